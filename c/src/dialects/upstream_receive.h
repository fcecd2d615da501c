/* upstream_receive.h: the frames of an upstream's connection of HTTP/2: those of answers go on to
 * their clients, each as far as its client reads; the others are seen to here. I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_RECEIVE_H
#define LM_DIALECTS_UPSTREAM_RECEIVE_H

#include "dialects/upstream_http2_state.h"

/* Takes bytes of a frame. Returns how many; 0: the ring must send a request first. */
size_t lm_trunk_take(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                     size_t count);
/* Sends on the bytes of an answer that were kept because its client did not read. */
void lm_stream_go_on(struct lm_io *io, struct lm_link *link);

#endif
