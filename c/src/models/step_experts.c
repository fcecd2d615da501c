/* step_experts.c: see step_experts.h. */
#include "models/step_experts.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "models/experts_rule.h"

/* A tensor that is not what the graph of the one that takes or makes it declares. */
static int refuse_shape(int code, const struct lm_tensor *tensor, const int64_t *expected,
                        const int64_t *found) {
    char text[2][160];
    for (int t = 0; t < 2; t++) {
        const int64_t *dims = t ? found : expected;
        size_t used = 0;
        for (uint32_t d = 0; d < tensor->rank && used < sizeof text[t]; d++)
            used += (size_t)snprintf(text[t] + used, sizeof text[t] - used, "%s%lld", d ? ", " : "",
                                     (long long)dims[d]);
    }
    return lm_error(code, "'%.64s': expected [%s], found [%s]", tensor->name, text[0], text[1]);
}

/* The sizes that a tensor shows: the rows, and free dimensions of its own; and the number of its
 * elements. What a step made need not have the shape that a graph declares: then returns `unfit`.
 */
static int read_sizes(const struct lm_ort *ort, const struct lm_tensor *tensor,
                      const OrtValue *value, int unfit, struct lm_sizes *out, size_t *count_out) {
    OrtTensorTypeAndShapeInfo *info = NULL;
    int64_t dims[LM_RANK_MAX] = {0}, expected[LM_RANK_MAX];
    size_t rank = 0;
    *out = (struct lm_sizes){.rows = 1};
    int code = lm_ort_check(ort, ort->api->GetTensorTypeAndShape(value, &info), tensor->name);
    if (code) return code;
    OrtStatus *status = ort->api->GetDimensionsCount(info, &rank);
    if (!status && rank <= LM_RANK_MAX) status = ort->api->GetDimensions(info, dims, rank);
    if (!status) status = ort->api->GetTensorShapeElementCount(info, count_out);
    ort->api->ReleaseTensorTypeAndShapeInfo(info);
    code = lm_ort_check(ort, status, tensor->name);
    if (!code && rank != tensor->rank)
        code = lm_error(unfit, "'%.64s': expected %u dimensions, found %zu", tensor->name,
                        tensor->rank, rank);
    for (uint32_t d = 0; !code && d < tensor->rank; d++) {
        if (d == 0 && tensor->rows_free) out->rows = (uint32_t)dims[d];
        if (tensor->free[d]) out->free[tensor->free[d] - 1] = (uint32_t)dims[d];
    }
    /* Fixed dimensions may differ, and those of one name from each other. */
    if (!code) lm_tensor_shape(tensor, out, expected);
    if (!code && memcmp(expected, dims, rank * sizeof *dims) != 0)
        code = refuse_shape(unfit, tensor, expected, dims);
    return code;
}

/* The bytes of the row of strings that has most. */
static int read_length(const struct lm_ort *ort, const struct lm_tensor *tensor,
                       const OrtValue *value, uint32_t rows, size_t count, uint64_t *out) {
    const size_t each = count / rows;
    size_t bytes = 0;
    uint64_t length = 0;
    *out = 0;
    for (size_t s = 0; s < count; s++) {
        OrtStatus *status = ort->api->GetStringTensorElementLength(value, s, &bytes);
        int code = lm_ort_check(ort, status, tensor->name);
        if (code) return code;
        length = s % each == 0 ? bytes : length + bytes;
        if (length > *out) *out = length;
    }
    return 0;
}

/* The input that shows a free dimension, or the rows. */
static uint32_t input_with(const struct lm_model *model, uint32_t dimension) {
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        if (dimension >= model->free_count && input->rows_free) return i;
        for (uint32_t d = 0; d < input->rank && dimension < model->free_count; d++)
            if (input->free[d] == model->free_dims[dimension].place + 1) return i;
    }
    return 0;
}

int lm_step_choose(const struct lm_step *step, const struct lm_ort *ort,
                   const OrtValue *const *inputs, uint32_t *expert_out) {
    const struct lm_model *model = step->model;
    const struct lm_experts *experts = &model->experts;
    const bool is_size = experts->feature == LUMEN_FEATURE_SIZE;
    struct lm_sizes sizes;
    uint64_t length = 0;
    size_t count = 0;
    void *data = NULL;
    *expert_out = 0;
    if (lm_experts_cascade(experts)) return 0;
    const uint32_t at = is_size ? input_with(model, experts->at) : experts->at;
    int code = read_sizes(ort, &model->inputs[at], inputs[at], LUMEN_E_INVALID, &sizes, &count);
    if (code) return code;
    if (is_size) {
        const bool is_rows = experts->at >= model->free_count;
        *expert_out = lm_experts_choose(
            experts, is_rows ? sizes.rows : sizes.free[model->free_dims[experts->at].place]);
        return 0;
    }
    if (count == 0) return 0; /* a step may make no rows: nothing asks for a better expert */
    if (experts->feature == LUMEN_FEATURE_LENGTH) {
        code = read_length(ort, &model->inputs[at], inputs[at], sizes.rows, count, &length);
        *expert_out = lm_experts_choose(experts, (double)length);
        return code;
    }
    OrtStatus *status = ort->api->GetTensorMutableData((OrtValue *)(uintptr_t)inputs[at], &data);
    code = lm_ort_check(ort, status, model->inputs[at].name);
    if (!code) *expert_out = lm_experts_by_values(model, &sizes, data);
    return code;
}

int lm_step_judge(const struct lm_step *step, const struct lm_ort *ort, uint32_t expert,
                  OrtValue *const *outputs, bool *is_sure_out) {
    const struct lm_model *model = step->model;
    const struct lm_experts *experts = &model->experts;
    OrtValue *output = outputs[step->judged];
    struct lm_sizes sizes;
    size_t count = 0;
    void *data = NULL;
    *is_sure_out = true;
    if (!lm_experts_cascade(experts) || expert + 1 >= experts->count) return 0;
    int code = read_sizes(ort, &model->outputs[experts->at], output, LUMEN_E_ORT, &sizes, &count);
    if (code || count == 0) return code;
    code = lm_ort_check(ort, ort->api->GetTensorMutableData(output, &data), "reading an output");
    if (!code) *is_sure_out = lm_experts_is_sure(model, expert, &sizes, data);
    return code;
}
