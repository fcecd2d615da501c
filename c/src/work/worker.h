/* worker.h: a worker's loop, and how it serves requests. On the worker's thread. */
#ifndef LM_WORK_WORKER_H
#define LM_WORK_WORKER_H

#include "work/state.h"

void *lm_worker_main(void *worker);
/* Answers `count` requests, those of one model together where that model is batched. Afterwards
 * each has its outcome and is the caller's to give back. */
void lm_worker_serve(struct lm_worker *worker, const uint32_t *jobs, uint32_t count);

#endif
