/* steps_tell.h: the names that an ensemble's tensors have, and how clients are told of its steps.
 * Control thread.
 */
#ifndef LM_MODELS_STEPS_TELL_H
#define LM_MODELS_STEPS_TELL_H

#include "lumen.h"
#include "models/steps.h"

/* The name in the ensemble of a step's tensor. */
const char *lm_step_name(const lumen_step_tensor *map, uint32_t count, const char *tensor);
/* The same of an output; "": nobody takes it. */
const char *lm_step_output_name(const lumen_step *config, const char *tensor);

/* Writes the steps as Triton's clients are told them. Returns 0 or LUMEN_E_NOMEM. */
int lm_steps_tell(struct lm_steps *steps, const lumen_steps_config *config);

#endif
