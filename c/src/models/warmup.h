/* warmup.h: requests that each worker runs before a model is ready, so that no client's is the
 * first of its kind. Opened and closed by the control thread; run by any thread that may run the
 * session.
 */
#ifndef LM_MODELS_WARMUP_H
#define LM_MODELS_WARMUP_H

#include "lumen.h"
#include "onnx/ort.h"

struct lm_model;

/* Copies the requests to model->warmups once its tensors are known. Returns 0, or LUMEN_E_* where
 * one does not fit them. */
int lm_warmups_open(struct lm_model *model, const lumen_model_config *config);
void lm_warmups_close(struct lm_model *model);
/* Runs all on that session. Returns 0, or LUMEN_E_* with a sentence that names model and request.
 */
int lm_warmups_run(const struct lm_model *model, const struct lm_ort *ort, uint32_t session);

/* The model's largest sizes, but of no dimension more than LM_MODEST_DIM: what a start can afford
 * to run, whatever the model's limits are. */
struct lm_sizes lm_warmup_sizes(const struct lm_model *model, uint32_t rows);
/* How long a row of the largest sizes takes where one of those took so long. */
uint64_t lm_warmup_largest_ns(const struct lm_model *model, uint64_t modest_ns);

#endif
