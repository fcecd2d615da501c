/* worker_open.h: what a worker has besides its thread: opened, given models, closed. On its own
 * thread, but for what says otherwise. */
#ifndef LM_WORK_WORKER_OPEN_H
#define LM_WORK_WORKER_OPEN_H

#include "work/state.h"

/* Opens what a worker needs besides its thread; the calling thread is the one that will use it. */
int lm_worker_open(struct lm_worker *worker);
void lm_worker_close(struct lm_worker *worker);
/* The worker's batches of a model, and its first Runs; on any thread, which is in an arena of Runs.
 * A model that fails leaves a note. Returns 0 or LUMEN_E_*. */
int lm_worker_take_model(struct lm_worker *worker, struct lm_model *model, char *note,
                         size_t note_bytes);
/* Control thread: of a worker that could not be opened. */
void lm_worker_leave_models(struct lm_worker *worker);
/* Another model gets the index of one that nobody asks for any more: no Run was counted. */
void lm_worker_forget_model(struct lm_worker *worker, uint32_t model);
/* No request of the model is left: frees what the threads have of it. Control thread. */
void lm_shared_leave_model(struct lm_shared *shared, struct lm_model *model);
/* Opens a thread for requests of many texts (bulk.h), which needs no parser, no decoders and no Run
 * of its own. Returns as above. */
int lm_worker_open_bulk(struct lm_worker *worker);

#endif
