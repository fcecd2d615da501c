/* grpc_receive.h: a call's message, from DATA to a request. I/O thread only.
 */
#ifndef LM_DIALECTS_GRPC_RECEIVE_H
#define LM_DIALECTS_GRPC_RECEIVE_H

#include "dialects/http2_state.h"

/* Its fields are here, as a head of HTTP/1.1. */
void lm_grpc_begin(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                   const char *head, size_t bytes);
/* Bytes of DATA. Returns how many it took: none while its request waits for a slot. */
size_t lm_grpc_take(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                    const uint8_t *bytes, size_t count);
/* So many bytes of what its request has a place for are there, and not given to lm_grpc_take. */
void lm_grpc_placed(struct lm_http2_stream *stream, size_t bytes);
/* The client has sent its last byte. */
void lm_grpc_end(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream);

#endif
