/* steps_plan.h: makes the steps of an ensemble of what the settings say: which tensors are one,
 * what the request brings, what is answered. Control thread, at load.
 */
#ifndef LM_MODELS_STEPS_PLAN_H
#define LM_MODELS_STEPS_PLAN_H

#include "lumen.h"

struct lm_model;

/* Makes `model` an ensemble of `models`, of which there are `count`. Returns 0, or LUMEN_E_* where
 * steps or tensors do not fit. */
int lm_steps_open(struct lm_model *model, struct lm_model *const *models, uint32_t count,
                  const lumen_steps_config *config);
void lm_steps_close(struct lm_model *model);

#endif
