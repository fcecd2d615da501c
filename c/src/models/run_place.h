/* run_place.h: who runs a model, workers or I/O threads, and why. What was chosen at load ends for
 * I/O threads with the first Run that is too long (work/own.h). Any thread.
 */
#ifndef LM_MODELS_RUN_PLACE_H
#define LM_MODELS_RUN_PLACE_H

#include "models/model.h"

/* Remembers a Run that took an I/O thread too long; what such a one computed, or 0. */
void lm_model_end_own_runs(struct lm_model *model, uint64_t computed_ns);
uint32_t lm_model_long_run_us(const struct lm_model *model);
/* The setting's word for who runs a model, and why. */
const char *lm_model_run_name(const struct lm_model *model);
const char *lm_model_run_why(const struct lm_model *model);

#endif
