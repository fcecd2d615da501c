/* model.c: memory for a model's tensors, and which models are alike; see model.h. Loading is in
 * load.c. */
#include "models/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int lm_model_hold_tensors(struct lm_model *model, uint32_t inputs, uint32_t outputs) {
    const size_t count = inputs + outputs;
    model->inputs = calloc(count, sizeof *model->inputs + sizeof *model->input_names);
    if (!model->inputs) return lm_error(LUMEN_E_NOMEM, "no memory for %zu tensors", count);
    model->outputs = model->inputs + inputs;
    model->input_names = (const char **)(model->inputs + count);
    model->output_names = model->input_names + inputs;
    return 0;
}

void lm_model_drop_tensors(struct lm_model *model) {
    free(model->inputs);
    model->inputs = model->outputs = NULL;
    model->input_names = model->output_names = NULL;
    model->input_count = model->output_count = 0;
}

static bool are_like(const struct lm_tensor *tensors, const struct lm_tensor *others,
                     uint32_t count) {
    for (uint32_t t = 0; t < count; t++) {
        const struct lm_tensor *a = &tensors[t], *b = &others[t];
        bool same = strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->rank == b->rank &&
                    memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0 &&
                    memcmp(a->free, b->free, sizeof a->free) == 0 && a->rows_free == b->rows_free &&
                    a->any_rank == b->any_rank && a->shape_known == b->shape_known;
        if (!same) return false;
    }
    return true;
}

bool lm_model_is_like(const struct lm_model *model, const struct lm_model *other) {
    bool same =
        model->input_count == other->input_count && model->output_count == other->output_count &&
        model->free_count == other->free_count && model->max_rows == other->max_rows &&
        model->max_output_bytes == other->max_output_bytes &&
        model->output_bytes_are_default == other->output_bytes_are_default &&
        !model->sequences == !other->sequences &&
        lm_input_plan_is_like(&model->input_plan, &other->input_plan) &&
        model->optional_count == other->optional_count &&
        are_like(model->inputs, other->inputs, model->input_count + model->optional_count) &&
        are_like(model->outputs, other->outputs, model->output_count);
    for (uint32_t f = 0; same && f < model->free_count; f++) {
        const struct lm_free_dim *a = &model->free_dims[f], *b = &other->free_dims[f];
        same = strcmp(a->name, b->name) == 0 && a->max == b->max && a->place == b->place;
    }
    return same;
}
