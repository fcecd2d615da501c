/* rules.h: what a model's settings exclude: one table, which Python reads (lumen_rules), so that a
 * check, a start, a load and a reload refuse with the same words. Any thread. */
#ifndef LM_MODELS_RULES_H
#define LM_MODELS_RULES_H

#include "lumen.h"

/* `kinds`: bit LUMEN_BESIDE_* of each that the model has. Returns 0, or LUMEN_E_INVALID with the
 * first rule that is broken. */
int lm_rules_check(const lumen_model_config *config, uint32_t kinds);

#endif
