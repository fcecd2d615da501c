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
/* The head of an answer is read. false: the link is over. */
bool lm_upstream_take_answer(struct lm_io *io, struct lm_link *link,
                             const struct lm_http_response *response);
/* Takes bytes of its body. Returns how many: those that have gone on, or are in the window. */
size_t lm_upstream_take_body(struct lm_io *io, struct lm_link *link, const uint8_t *bytes,
                             size_t count);
/* The body ends here. false: its client must read first. */
bool lm_upstream_end_body(struct lm_io *io, struct lm_link *link);
/* The link's other side sends no more. Where that was the end of an answer, it is passed; then the
 * link has no request any more. */
void lm_upstream_ended(struct lm_io *io, struct lm_link *link);

#endif
