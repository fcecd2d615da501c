/* shared.h: where settings arrive: what all threads of a server share is set from its
 * configuration. Control thread, while no other runs.
 */
#ifndef LM_FLOW_SHARED_H
#define LM_FLOW_SHARED_H

#include "flow/state.h"

/* `shared` is zeroed. Returns 0 or LUMEN_E_*. */
int lm_shared_open(struct lm_shared *shared, const lumen_config *config);
void lm_shared_close(struct lm_shared *shared);
/* Puts a set of models in force, which its owner keeps. */
void lm_shared_use_models(struct lm_shared *shared, struct lm_model_set *set);
/* Its rate, and which keys may use it. */
int lm_shared_add_model(struct lm_shared *shared, const struct lm_model *model,
                        const lumen_model_config *config);

#endif
