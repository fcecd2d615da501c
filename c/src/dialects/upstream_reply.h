/* upstream_reply.h: the answer of an upstream on its way to the client: its head is read, and said
 * anew for the client's connection; its body goes on in the turn in which it comes. What the client
 * does not take waits in the request's slot, and then nothing more is read. I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_REPLY_H
#define LM_DIALECTS_UPSTREAM_REPLY_H

#include "dialects/upstream_state.h"

/* Takes bytes of a link. Returns how many; 0: its client must read first. */
size_t lm_upstream_take(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                        size_t count);
/* The link's other side sends no more. Where that was the end of an answer, it is passed; then the
 * link has no request any more. */
void lm_upstream_ended(struct lm_io *io, struct lm_link *link);

#endif
