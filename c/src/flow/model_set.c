/* model_set.c: see model_set.h. */
#include "flow/model_set.h"

#include <string.h>

#include "base/error.h"

void lm_model_set_add(struct lm_model_set *set, struct lm_model *model) {
    LM_ASSERT(model->index < LUMEN_MODELS_MAX);
    set->at[model->index] = model;
    model->sets++;
    set->count = set->own_count = 0;
    for (uint32_t m = 0; m < LUMEN_MODELS_MAX; m++) {
        if (!set->at[m]) continue;
        set->numbers[set->count] = (uint16_t)set->at[m]->number;
        set->own_count += !lm_model_is_elsewhere(set->at[m]);
        set->models[set->count++] = set->at[m];
    }
}

const char *lm_model_set_changed(const struct lm_model_set *set, uint32_t index,
                                 uint32_t signature) {
    const struct lm_model *model = lm_model_set_find(set, index);
    if (!model) return "the model was unloaded while the request came";
    if (model->signature == signature) return NULL;
    return "the model was replaced, while the request came, by one with other tensors: ask for its "
           "tensors again";
}

struct lm_model *lm_model_set_version(const struct lm_model_set *set, const char *base,
                                      uint32_t version) {
    struct lm_model *found = NULL;
    for (uint32_t m = 0; m < set->count; m++) {
        struct lm_model *model = set->models[m];
        if (strcmp(model->base, base) != 0 || (version && model->version != version)) continue;
        if (!found || model->version > found->version) found = model;
    }
    return found;
}

struct lm_model *lm_model_set_named(const struct lm_model_set *set, const char *name) {
    for (uint32_t m = 0; m < set->count; m++) {
        if (strcmp(set->models[m]->name, name) == 0) return set->models[m];
    }
    return NULL;
}
