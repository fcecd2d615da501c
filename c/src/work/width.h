/* width.h: how many cores a request's Run gets. A worker that finds nothing in the queue and enough
 * other workers asleep runs the model's wide session (models/wide.h), its helpers on the cores of
 * those that sleep; otherwise its own session, on its own core. One Run of a node is wide at a
 * time.
 *
 * A worker that wakes meanwhile sends the helper away from its core, to that of the wide Run's own
 * worker, before it does anything else: its request begins as it would beside a Run on one core,
 * and the wide Run goes on as if on one core. Workers only; models that I/O threads run are not
 * opened wide.
 */
#ifndef LM_WORK_WIDTH_H
#define LM_WORK_WIDTH_H

#include "work/state.h"

/* Runs the request's model on bound values, and says on the request how wide. */
int lm_width_run(struct lm_worker *worker, struct lm_request *request, OrtValue **values);
/* The worker has requests: no helper of another worker's Run stays on its core. */
void lm_width_reclaim(struct lm_worker *worker);
/* What the request would take now, in ns: of a Run as wide as it may be. */
uint64_t lm_width_cost_ns(struct lm_worker *worker, const struct lm_request *request);

#endif
