/* grpc.c: see grpc.h. */
#include "dialects/grpc.h"

#include "dialects/http.h"

const struct lm_dialect lm_grpc = {
    .name = "grpc", .one_at_a_time = true, .is_rpc = true, LM_HTTP_ENTRIES};
