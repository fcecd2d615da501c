/* model_set.c: see model_set.h. Control thread only. */
#include "flow/model_set.h"

#include "base/error.h"

void lm_model_set_add(struct lm_model_set *set, struct lm_model *model) {
    LM_ASSERT(model->index < LUMEN_MODELS_MAX);
    set->at[model->index] = model;
    set->count = 0;
    for (uint32_t m = 0; m < LUMEN_MODELS_MAX; m++) {
        if (set->at[m]) set->models[set->count++] = set->at[m];
    }
}
