/* http.h: the HTTP/1.1 side of a request's life: what lies between flow/ and the parsers of parts/.
 * A connection that speaks HTTP has one request at a time with the workers, so that replies keep
 * the order of their requests.
 */
#ifndef LM_DIALECTS_HTTP_H
#define LM_DIALECTS_HTTP_H

#include "dialects/http_access.h"
#include "dialects/http_admit.h"
#include "dialects/http_block.h"
#include "dialects/http_receive.h"
#include "dialects/http_refuse.h"
#include "dialects/http_reply.h"
#include "dialects/http_whole.h"

extern const struct lm_dialect lm_http;

/* The entries of its table that gRPC's has too. */
#define LM_HTTP_ENTRIES                                                                         \
    .take = lm_http_take, .prologue_deadline_ns = lm_http_prologue_deadline_ns,                 \
    .body_received = lm_http_body_received, .forget = lm_http_forget,                           \
    .bytes_expected = lm_http_bytes_expected, .retry = lm_http_retry,                           \
    .refuse = lm_http_refuse_request, .give_up = lm_http_give_up, .answer = lm_http_answer_for, \
    .compose_outputs = lm_http_compose_outputs, .compose_error = lm_http_compose_error,         \
    .key = lm_http_key, .complete_row = lm_http_complete_row, .is_http = true

void lm_http_forget(struct lm_io *io, struct lm_connection *connection);
uint64_t lm_http_bytes_expected(const struct lm_connection *connection);
void lm_http_answer_for(struct lm_io *io, struct lm_connection *connection,
                        struct lm_request *request, enum lm_status status, const char *why);
void lm_http_complete_row(const struct lm_request *request, struct lm_trace_record *row);

/* Control thread: what each I/O thread keeps for HTTP. */
int lm_http_open(struct lm_io *io);
void lm_http_close(struct lm_io *io);

#endif
