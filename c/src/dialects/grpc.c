/* grpc.c: see grpc.h. */
#include "dialects/grpc.h"

#include "dialects/http.h"
#include "dialects/http_admit.h"
#include "dialects/http_block.h"
#include "dialects/http_receive.h"
#include "dialects/http_refuse.h"
#include "dialects/http_reply.h"

const struct lm_dialect lm_grpc = {
    .name = "grpc",
    .one_at_a_time = true,
    .take = lm_http_take,
    .prologue_deadline_ns = lm_http_prologue_deadline_ns,
    .body_received = lm_http_body_received,
    .forget = lm_http_block_give,
    .bytes_expected = lm_http_bytes_expected,
    .retry = lm_http_retry,
    .refuse = lm_http_refuse_request,
    .give_up = lm_http_give_up,
    .answer = lm_http_answer_for,
    .compose_outputs = lm_http_compose_outputs,
    .compose_error = lm_http_compose_error,
    .key = lm_http_key,
    .complete_row = lm_http_complete_row,
    .is_http = true,
};
