/* experts_rule.c: see experts_rule.h. */
#include "models/experts_rule.h"

#include "models/features.h"

uint32_t lm_experts_choose(const struct lm_experts *experts, double value) {
    uint32_t at = 0;
    while (at + 1 < experts->count && !(value < experts->bounds[at])) at++;
    return at;
}

uint32_t lm_experts_by_values(const struct lm_model *model, const struct lm_sizes *sizes,
                              const void *at) {
    const struct lm_experts *experts = &model->experts;
    const struct lm_tensor *input = &model->inputs[experts->at];
    struct lm_values row = lm_values_of(input, sizes, at);
    uint32_t latest = 0, rows = input->rows_free ? sizes->rows : 1;
    for (uint32_t r = 0; r < rows && latest + 1 < experts->count; r++) {
        row.at = (const uint8_t *)at + r * row.count * input->element_bytes;
        uint32_t wanted = lm_experts_choose(experts, lm_feature_of(experts->feature, &row));
        if (wanted > latest) latest = wanted;
    }
    return latest;
}

bool lm_experts_is_sure(const struct lm_model *model, uint32_t expert, const struct lm_sizes *sizes,
                        const void *output) {
    const struct lm_experts *experts = &model->experts;
    const struct lm_tensor *tensor = &model->outputs[experts->at];
    if (expert + 1 >= experts->count) return true;
    struct lm_values row = lm_values_of(tensor, sizes, output);
    uint32_t rows = tensor->rows_free ? sizes->rows : 1;
    bool sure = true;
    for (uint32_t r = 0; r < rows && sure; r++) {
        row.at = (const uint8_t *)output + r * row.count * tensor->element_bytes;
        sure = lm_feature_of(experts->feature, &row) >= experts->bounds[expert];
    }
    return sure;
}

static const char *const feature_names[] = {
    [LUMEN_FEATURE_VARIANCE] = "variance", [LUMEN_FEATURE_MEAN] = "mean",
    [LUMEN_FEATURE_NORM] = "norm",         [LUMEN_FEATURE_EDGES] = "edges",
    [LUMEN_FEATURE_PIXELS] = "pixels",     [LUMEN_FEATURE_LENGTH] = "length",
    [LUMEN_FEATURE_SIZE] = "size",         [LUMEN_FEATURE_PROBABILITY] = "probability",
    [LUMEN_FEATURE_SOFTMAX] = "softmax",   [LUMEN_FEATURE_MARGIN] = "margin"};

const char *lm_feature_name(enum lumen_feature feature) {
    return feature_names[feature];
}

const char *lm_experts_tensor(const struct lm_model *model) {
    const struct lm_experts *experts = &model->experts;
    if (experts->feature == LUMEN_FEATURE_PIXELS) return NULL;
    if (lm_experts_cascade(experts)) return model->outputs[experts->at].name;
    if (experts->feature != LUMEN_FEATURE_SIZE) return model->inputs[experts->at].name;
    if (experts->at < model->free_count) return model->free_dims[experts->at].name;
    return model->rows_name[0] ? model->rows_name : "rows";
}
