/* reshape.c: see reshape.h. */
#include "models/reshape.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

static int reshape(struct lm_model *model, struct lm_tensor *tensor,
                   struct lm_declared_tensor *said) {
    struct lm_tensor *client = said->client;
    const bool has_rows = said->rank > 0 && said->dims[0] < 0;
    bool fits = tensor->shape_known && !tensor->varies && (tensor->rows_free || !has_rows);
    size_t bytes = tensor->element_bytes;
    for (uint32_t d = has_rows ? 1 : 0; d < said->rank; d++)
        fits = fits && said->dims[d] > 0 && lm_mul_size(bytes, (size_t)said->dims[d], &bytes);
    if (!fits || bytes != tensor->row_bytes) {
        return lm_error(LUMEN_E_MODEL,
                        "reshape of '%.64s': expected fixed dimensions, and as many elements as in "
                        "the graph",
                        tensor->name);
    }
    *client = *tensor;
    client->rank = said->rank;
    client->rows_free = has_rows;
    memcpy(client->dims, said->dims, sizeof client->dims);
    if (tensor->rows_free && !has_rows) model->max_rows = 1;
    tensor->client = client;
    return 0;
}

int lm_model_reshape(struct lm_model *model) {
    int code = 0;
    for (uint32_t t = 0; !code && t < model->input_count + model->output_count; t++) {
        const bool is_output = t >= model->input_count;
        struct lm_tensor *tensor =
            is_output ? &model->outputs[t - model->input_count] : &model->inputs[t];
        struct lm_declared_tensor *said =
            lm_declared_find(&model->declared, tensor->name, is_output);
        tensor->client = NULL; /* a virtual model's tensors are copies */
        tensor->is_whole = is_output && model->declared.no_rows;
        if (said && said->client) code = reshape(model, tensor, said);
    }
    return code;
}
