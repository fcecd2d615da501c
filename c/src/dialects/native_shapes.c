/* native_shapes.c: see native_shapes.h. */
#include "dialects/native_shapes.h"

#include <stdio.h>
#include <string.h>

/* The size of a free dimension: within its maximum, and the same wherever it stands. */
static bool take_size(struct lm_native_call *call, const struct lm_model *model, uint32_t i,
                      uint32_t d, char *why, size_t why_bytes) {
    uint32_t f = model->inputs[i].free[d] - 1u, found = call->word;
    const struct lm_free_dim *dim = &model->free_dims[f];
    if (found < 1 || found > dim->max) {
        snprintf(why, why_bytes,
                 "shape block: input %u dimension %u ('%.64s'): expected 1 to %u (max_dims), found "
                 "%u",
                 i, d, dim->name, dim->max, found);
        return false;
    }
    if (call->free[f] != 0 && call->free[f] != found) {
        snprintf(why, why_bytes,
                 "shape block: input %u dimension %u ('%.64s'): expected %u as before, found %u", i,
                 d, dim->name, call->free[f], found);
        return false;
    }
    call->free[f] = found;
    return true;
}

bool lm_native_take_word(struct lm_native_call *call, const struct lm_model *model, uint32_t rows,
                         uint32_t at, char *why, size_t why_bytes) {
    uint32_t found = call->word;
    if (at == 0) {
        if (found == model->input_count) return true;
        snprintf(why, why_bytes, "shape block: expected %u tensors, found %u", model->input_count,
                 found);
        return false;
    }
    uint32_t i = 0;
    for (at--; at > model->inputs[i].rank; i++) at -= 1 + model->inputs[i].rank;
    const struct lm_tensor *input = &model->inputs[i];
    if (at == 0) {
        if (found == input->rank) return true;
        snprintf(why, why_bytes, "shape block: input %u: expected rank %u, found %u", i,
                 input->rank, found);
        return false;
    }
    uint32_t d = at - 1;
    if (input->free[d]) return take_size(call, model, i, d, why, why_bytes);
    int64_t expected = d == 0 && input->rows_free ? (int64_t)rows : input->dims[d];
    if ((int64_t)found == expected) return true;
    snprintf(why, why_bytes, "shape block: input %u dimension %u: expected %lld, found %u", i, d,
             (long long)expected, found);
    return false;
}

struct lm_sizes lm_native_sizes(const struct lm_connection *connection,
                                const struct lm_native_request *request) {
    struct lm_sizes sizes = {.rows = request->rows};
    memcpy(sizes.free, connection->in.native.free, sizeof sizes.free);
    return sizes;
}
