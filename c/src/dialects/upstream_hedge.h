/* upstream_hedge.h: a short request that waits for its answer goes to a second address too, and
 * whoever answers first is heard (embeddings and rerank alone: asking twice changes nothing). An
 * exchange has two links then, rivals. I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_HEDGE_H
#define LM_DIALECTS_UPSTREAM_HEDGE_H

#include "dialects/upstream_state.h"

/* The other link of its request; NULL: there is none. */
struct lm_link *lm_upstream_rival(const struct lm_io *io, const struct lm_link *link);
/* The link waits: its request goes to another address too where it is time for that. */
void lm_upstream_hedge(struct lm_io *io, const struct lm_link *link);
/* Whether the kernel is done with what the rival sends from the request's slot. */
bool lm_upstream_may_answer(const struct lm_io *io, const struct lm_link *link);
/* The link's answer is the one: nothing comes of the rival. */
void lm_upstream_win(struct lm_io *io, struct lm_link *link);
/* The link is over, and has let go of its request: the rival goes on alone. false: there is none.
 */
bool lm_upstream_yield(struct lm_io *io, const struct lm_link *link, uint32_t slot);

#endif
