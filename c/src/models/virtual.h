/* virtual.h: what experts and ensembles have in common: a model that has no session and runs
 * others (experts.h, steps.h). Any thread.
 */
#ifndef LM_MODELS_VIRTUAL_H
#define LM_MODELS_VIRTUAL_H

#include "models/runner.h"
#include "models/steps.h"

/* How many models it runs, and the one at that place. */
static inline uint32_t lm_model_part_count(const struct lm_model *model) {
    return model->steps ? model->steps->count : model->experts.count;
}
static inline const struct lm_model *lm_model_part(const struct lm_model *model, uint32_t at) {
    return model->steps ? model->steps->steps[at].model : model->experts.models[at];
}
/* Whether worker `index` may run the model, or each that it runs; a step may be experts. */
static inline bool lm_model_has_session(const struct lm_model *model, uint32_t index) {
    bool has = lm_model_is_virtual(model) || model->sessions[index];
    for (uint32_t p = 0; has && p < lm_model_part_count(model); p++)
        has = lm_model_has_session(lm_model_part(model, p), index);
    return has;
}

#endif
