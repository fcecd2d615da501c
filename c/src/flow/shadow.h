/* shadow.h: copies of requests for another version of their model, whose answers nobody gets: what
 * is counted is how far they are from those that clients got. `traffic` says which version and how
 * many (parts/traffic.h).
 *
 * Nothing is copied. A request that was chosen is answered as any other; then its slot, with its
 * inputs and outputs, goes to a thread of its own (work/shadow.h) before it goes back to the arena.
 * That thread runs where nobody else wants the core, so no answer waits for it. As many slots are
 * lent so as others can do without. I/O thread only.
 */
#ifndef LM_FLOW_SHADOW_H
#define LM_FLOW_SHADOW_H

#include "flow/state.h"

/* A whole request: decides whether another version is to run it too. */
void lm_shadow_choose(struct lm_io *io, struct lm_request *request);
/* It is over: its slot goes to the thread of copies. false: it does not. */
bool lm_shadow_take(struct lm_io *io, struct lm_request *request);
/* Counts what came of copies that are done, and gives their slots back to the arena. */
void lm_shadow_take_back(struct lm_io *io);

#endif
