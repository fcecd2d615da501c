/* worker.h: a worker's loop, and how it serves requests. On the worker's thread. */
#ifndef LM_WORK_WORKER_H
#define LM_WORK_WORKER_H

#include "work/state.h"

void *lm_worker_main(void *worker);
/* Answers `count` requests, those of one model together where that model is batched. Afterwards
 * each that was not handed over has its outcome and is the caller's to give back. */
void lm_worker_serve(struct lm_worker *worker, uint32_t *jobs, uint32_t count);
/* lm_worker_serve puts this in the place of a job that other threads have now. */
#define LM_NO_JOB UINT32_MAX
/* Answers a request whose texts have been run, and gives it back. Any thread that has a worker. */
void lm_worker_finish(struct lm_worker *worker, uint32_t job);

#endif
