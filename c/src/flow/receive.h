/* receive.h: from the socket to the slot. I/O thread only.
 *
 * Headers arrive in provided buffers, so that an idle connection holds none. Once a header is read
 * and admitted, the body is received straight into the slot's tensors; only the bytes that came
 * along with the header are copied. Bytes that may not be parsed yet wait outside of the buffers
 * (held.h).
 */
#ifndef LM_FLOW_RECEIVE_H
#define LM_FLOW_RECEIVE_H

#include "flow/state.h"

/* Goes on with what can be read: bytes already here, then the next receive. For lm_advance_all. */
void lm_receive_continue(struct lm_io *io, struct lm_connection *connection);
/* Bytes of a stream, which came through its carrier. Returns how many it took: none while it waits
 * for a slot. Marks. */
size_t lm_receive_give(struct lm_io *io, struct lm_connection *stream, const uint8_t *bytes,
                       size_t count);
/* Where the next bytes of a stream's body belong, for its carrier to receive them there; false: it
 * has no place for them now. */
bool lm_receive_place(struct lm_io *io, const struct lm_connection *stream,
                      struct iovec *place_out);
/* So many of them are there. Marks. */
void lm_receive_placed(struct lm_io *io, struct lm_connection *stream, size_t bytes);
void lm_receive_completed(struct lm_io *io, const struct lm_completion *completion);
/* A connection in LM_READ_DESCRIPTOR may have its byte. */
void lm_receive_readable(struct lm_io *io, const struct lm_completion *completion);
/* Goes on with connections that had their share of an earlier turn, in order. */
void lm_receive_resume(struct lm_io *io);
/* Retries the header reads that found no buffer, if one has come back since. */
void lm_receive_retry_starved(struct lm_io *io);
/* Looks for descriptors for parked connections that have bytes, if one has become free since. */
void lm_receive_retry_unparking(struct lm_io *io);

#endif
