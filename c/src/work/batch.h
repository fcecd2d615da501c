/* batch.h: several requests of one model in one Run. Workers, and I/O threads that run models
 * themselves.
 *
 * The rows are gathered into memory of the worker's own: pixels are converted straight into it,
 * which is the copy they need anyway; tensors are copied (docs/adr/0006 has what that costs).
 * Outputs are sent from there, each request its rows; only a reply that the socket does not take at
 * once is copied to its request's slot.
 */
#ifndef LM_WORK_BATCH_H
#define LM_WORK_BATCH_H

#include "work/state.h"

/* The worker's room for batches of the model; none where it is not batched. Returns 0 or LUMEN_E_*.
 */
int lm_batch_open(struct lm_model *model, const struct lm_ort *ort, uint32_t worker);
void lm_batch_close(struct lm_model *model, const struct lm_ort *ort, uint32_t worker);
/* Runs the largest batch on zeros. Returns 0 or LUMEN_E_*; 0 where the model has no batches. */
int lm_batch_warm(struct lm_worker *worker, const struct lm_model *model);
/* Runs requests of one model, expert and shape as one batch and composes their replies over the
 * batch's memory, but for those that a further expert is to run: they are marked goes_on. false:
 * the Run failed; nothing is composed, and each request can still be run by itself.
 */
bool lm_batch_run(struct lm_worker *worker, struct lm_request **requests, uint32_t count);
/* Moves what is left of a reply from the batch's memory, which is used again, to the request's
 * slot. */
void lm_batch_keep_reply(struct lm_worker *worker, struct lm_request *request);

#endif
