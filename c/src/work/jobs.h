/* jobs.h: where a worker's next requests come from: the line of its node (flow/node.h), or another
 * node's. Worker only.
 */
#ifndef LM_WORK_JOBS_H
#define LM_WORK_JOBS_H

#include "work/state.h"

/* The next requests to serve together; 0 when the worker must leave its line, which has none. */
uint32_t lm_jobs_next(struct lm_worker *worker, uint32_t *jobs);
/* The line that it worked with has no requests left: on to the one in force, or to sleep where that
 * has enough workers. false: the server ends. */
bool lm_jobs_change_line(struct lm_worker *worker);
/* A worker that came later: sleeps until a line wants it. false: the server ends. */
bool lm_jobs_begin_spare(struct lm_worker *worker);
/* Workers may put back what they pop: others than the I/O thread may push. */
static inline bool lm_jobs_may_go_back(const struct lm_queue *queue) {
    return queue->type == LUMEN_QUEUE_MPMC || queue->type == LUMEN_QUEUE_SCQ;
}
/* One wake-up can stand for two jobs: its worker may have been about to find other work, or have
 * found the queue "empty" behind a stopped producer. Whoever found work and still sees some passes
 * the wake-up on, so that no job waits beside a sleeping worker. */
void lm_jobs_wake_another(struct lm_node *node, struct lm_line *line);

#endif
