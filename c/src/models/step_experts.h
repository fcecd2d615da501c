/* step_experts.h: which expert runs a step of an ensemble that is a virtual model itself
 * (experts.h): its tensors are ONNX Runtime's values, of the request or of the steps before. Any
 * thread that runs the ensemble.
 */
#ifndef LM_MODELS_STEP_EXPERTS_H
#define LM_MODELS_STEP_EXPERTS_H

#include "models/steps.h"

/* The expert that runs first; of no values it is the lightest. `inputs` are the step's. Returns 0,
 * LUMEN_E_ORT, or LUMEN_E_INVALID where the input that the rule looks at has not the shape that the
 * experts take: ONNX Runtime says so of any other input. */
int lm_step_choose(const struct lm_step *step, const struct lm_ort *ort,
                   const OrtValue *const *inputs, uint32_t *expert_out);
/* Whether the answer of that expert stands; of a rule that is no cascade, and of no values, it
 * does. `outputs` are the step's. Returns 0, or LUMEN_E_ORT also where the expert's graph declares
 * another shape than it made. */
int lm_step_judge(const struct lm_step *step, const struct lm_ort *ort, uint32_t expert,
                  OrtValue *const *outputs, bool *is_sure_out);

#endif
