/* experts_open.h: experts from their configuration. Control thread.
 */
#ifndef LM_MODELS_EXPERTS_OPEN_H
#define LM_MODELS_EXPERTS_OPEN_H

#include "models/model.h"

/* Makes `model` a virtual one of `models`, of which there are `count`: with the tensors, sizes and
 * pictures of the last expert. Returns 0, or LUMEN_E_* where an expert or the rule does not fit. */
int lm_experts_open(struct lm_model *model, struct lm_model *const *models, uint32_t count,
                    const lumen_experts_config *config);

#endif
