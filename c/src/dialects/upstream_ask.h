/* upstream_ask.h: a request on its way to an upstream: its head is composed, its body goes from the
 * slot as it came, but for the model's name. I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_ASK_H
#define LM_DIALECTS_UPSTREAM_ASK_H

#include "dialects/upstream_state.h"

/* Sends the request of a slot over a link of this address, or once the link is open. `is_fresh`:
 * over a new one. false: there is no link to be had. */
bool lm_upstream_ask(struct lm_io *io, uint32_t slot, uint32_t address, bool is_fresh);
/* The link is open: its request goes out. */
void lm_upstream_send(struct lm_io *io, struct lm_link *link);
/* Writes the head of its request for HTTP/2 to the exchange's window; the link's message has its
 * body. Returns the bytes. */
size_t lm_upstream_write_block(struct lm_io *io, struct lm_link *link);
/* The ring has sent some of it. */
void lm_upstream_sent(struct lm_io *io, struct lm_link *link,
                      const struct lm_completion *completion);

#endif
