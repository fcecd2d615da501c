/* reply.h: from the slot back to the socket. Workers compose (dialect.h) and send; what does not
 * fit, and the I/O thread's own answers, go through the ring.
 *
 * Replies of one connection must not mix. The sender of a reply holds the connection's token
 * (`sender`): it is taken by exchange, and released when a reply is out whole. A worker that finds
 * it taken leaves the reply to the I/O thread, which sends it once the holder's request has come
 * back. I/O thread only, but for lm_reply_try.
 */
#ifndef LM_FLOW_REPLY_H
#define LM_FLOW_REPLY_H

#include "flow/state.h"

/* Sends what fits, without waiting, on the worker that holds the request. */
enum lm_outcome lm_reply_try(struct lm_connection *connection, struct lm_request *request,
                             size_t *sent_bytes_out);
/* The I/O thread's own answers, whatever they say: a head, and a body that lives as long as the
 * server (`body_is_shared`) or is copied when it does not fit the socket at once. */
void lm_reply_bytes(struct lm_io *io, struct lm_connection *connection, const void *head,
                    size_t head_bytes, const void *body, size_t body_bytes, bool body_is_shared);
/* A reply that comes in pieces, each of which is the request's message: sends what the socket takes
 * at once. The connection's token is taken with the first piece, and given with the last, of which
 * request->in_pieces is false. UNSENT: it is taken. PARTIAL: what is left goes with
 * lm_reply_rest, once it lies where it stays; then request->fed_by is marked. */
enum lm_outcome lm_reply_piece(struct lm_io *io, struct lm_connection *connection,
                               struct lm_request *request, bool is_first);
void lm_reply_rest(struct lm_io *io, struct lm_connection *connection, struct lm_request *request);
/* A worker is done with a slot. */
void lm_reply_returned(struct lm_io *io, uint32_t slot);
void lm_reply_completed(struct lm_io *io, const struct lm_completion *completion);
/* Bytes of a connection are sent: of a reply, or of what it carries. */
void lm_reply_sent(struct lm_io *io, const struct lm_completion *completion);
/* Starts the next waiting reply if the token is free. */
void lm_reply_flush(struct lm_io *io, struct lm_connection *connection);
/* Drops the replies that wait. */
void lm_reply_drop_waiting(struct lm_io *io, struct lm_connection *connection);

/* Moves a message on by the bytes that are sent. true: nothing is left. Any thread. */
bool lm_reply_move(struct msghdr *message, size_t sent);

#endif
