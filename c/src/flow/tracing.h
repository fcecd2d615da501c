/* tracing.h: the traces that requests are part of. What a head says of one (W3C's Trace Context,
 * X-Request-Id) is kept beside its connection until the request is admitted, and as long as it may
 * go on to an upstream. Some requests are recorded: as their clients say, else at random, so many
 * a second at most. I/O thread only.
 */
#ifndef LM_FLOW_TRACING_H
#define LM_FLOW_TRACING_H

#include "flow/state.h"
#include "wire/traceparent.h"

/* Returns 0 or LUMEN_E_NOMEM; without traces and upstreams nothing is kept. */
int lm_tracing_open(struct lm_io *io);
void lm_tracing_close(struct lm_io *io);

/* Keeps three fields of a head. A malformed or too long one is not kept, as the standard has it. */
struct lm_tracing_head {
    struct lm_slice traceparent, tracestate, request_id;
};
void lm_tracing_keep(struct lm_io *io, const struct lm_connection *connection,
                     const struct lm_tracing_head *head);
/* The request is admitted: whether it is recorded is known from here on. */
void lm_tracing_begin(struct lm_io *io, const struct lm_connection *connection,
                      struct lm_request *request);

/* Lines of a head, each with its end: for an upstream, which hears of this request as its parent
 * where it is recorded, and of the client's parent elsewhere. Returns their bytes. */
size_t lm_tracing_write(const struct lm_io *io, const struct lm_connection *connection,
                        const struct lm_request *request, char *out, size_t room);
/* The same for the client of a request that is recorded: how its span is called. Any thread. */
enum { LM_TRACERESPONSE_BYTES = sizeof "traceresponse: \r\n" + LM_TRACEPARENT_BYTES };
size_t lm_tracing_write_answer(const struct lm_request *request, char out[LM_TRACERESPONSE_BYTES]);

#endif
