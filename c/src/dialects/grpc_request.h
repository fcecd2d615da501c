/* grpc_request.h: the request of HTTP that a call's message becomes. I/O thread only.
 */
#ifndef LM_DIALECTS_GRPC_REQUEST_H
#define LM_DIALECTS_GRPC_REQUEST_H

#include "dialects/grpc_reply.h"

/* Makes a request of a message, or of what of one stands before its tensors: `have` bytes are
 * there, and what lm_grpc_scan_head says of them. Returns how many are taken: none of a message
 * that goes to its request whole. */
size_t lm_grpc_give(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                    const uint8_t *message, size_t have, uint64_t tensor, size_t begins);
/* The lines that the client's fields are, while the call waits for a message. */
struct lm_slice lm_grpc_fields(struct lm_io *io, const struct lm_http2_stream *stream);
/* Answers a call that has no request; there is no one else to count it. */
void lm_grpc_refuse(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                    enum lm_grpc_status status, const char *why);

#endif
