/* grpc_stream.h: calls of many messages: streamed inference, reflection, and the watch over a
 * service's health. I/O thread only.
 */
#ifndef LM_DIALECTS_GRPC_STREAM_H
#define LM_DIALECTS_GRPC_STREAM_H

#include "dialects/http2_state.h"

/* Whether the next message of such a call may begin: replies keep the order of their messages. */
bool lm_grpc_may_begin(const struct lm_io *io, const struct lm_http2_stream *stream);
/* Answers a message that is no request of HTTP. */
void lm_grpc_answer(struct lm_io *io, struct lm_http2_stream *stream, const uint8_t *message,
                    size_t bytes);
/* Its client hears of changes from now on. */
void lm_grpc_watch(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                   const uint8_t *message, size_t bytes);
/* It is looked at: whether it has come to its end, or has something new to say. */
void lm_grpc_look(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream);
/* Its entry is given back. */
void lm_grpc_forget(struct lm_io *io, struct lm_connection *carrier,
                    struct lm_http2_stream *stream);

/* Looks at the connections whose clients watch over health, a few times a second. */
void lm_grpc_look_at_watched(struct lm_io *io);
/* How long the thread may sleep before that. */
uint64_t lm_grpc_watch_ns(const struct lm_io *io);

#endif
