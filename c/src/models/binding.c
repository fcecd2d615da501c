/* binding.c: see binding.h. */
#include "models/binding.h"

#include <string.h>

#include "base/error.h"

bool lm_output_is_wrapped(const struct lm_tensor *output, uint32_t rows) {
    return lm_output_has_place(output) &&
           (output->wrapped_rows == 0 || output->wrapped_rows == rows);
}

static OrtValue *wrap(const struct lm_ort *ort, const struct lm_tensor *tensor, void *data,
                      const struct lm_sizes *sizes) {
    int64_t dims[LM_RANK_MAX];
    size_t bytes = 0;
    uint32_t rank = lm_tensor_shape(tensor, sizes, dims);
    if (lm_is_string(tensor)) return lm_ort_strings_open(ort, dims, rank);
    lm_tensor_bytes(tensor, sizes, &bytes);
    return lm_ort_wrap(ort, data, bytes, dims, rank, tensor->dtype);
}

/* Tensors lie in one order, so that one address says where all are; NULL: none lies anywhere. */
static void *first_place(const struct lm_model *model, const struct lm_layout *layout) {
    for (uint32_t i = 0; i < model->input_count; i++) {
        if (!lm_is_string(&model->inputs[i])) return layout->inputs[i];
    }
    for (uint32_t o = 0; o < model->output_count; o++) {
        if (layout->outputs[o]) return layout->outputs[o];
    }
    return NULL;
}

int lm_model_bind(const struct lm_model *model, const struct lm_ort *ort,
                  const struct lm_layout *layout, const struct lm_sizes *sizes,
                  struct lm_binding *binding, OrtValue **values) {
    void *base = first_place(model, layout);
    if (binding->base == base && memcmp(&binding->sizes, sizes, sizeof *sizes) == 0) return 0;
    lm_model_unbind(model, ort, binding, values);
    for (uint32_t i = 0; i < model->input_count; i++) {
        values[i] = wrap(ort, &model->inputs[i], layout->inputs[i], sizes);
        if (!values[i]) return LUMEN_E_ORT;
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        if (!layout->outputs[i] || !lm_output_is_wrapped(&model->outputs[i], sizes->rows)) continue;
        values[model->input_count + i] = wrap(ort, &model->outputs[i], layout->outputs[i], sizes);
        if (!values[model->input_count + i]) return LUMEN_E_ORT;
    }
    *binding =
        (struct lm_binding){.base = base, .sizes = *sizes, .string_allocs = model->string_inputs};
    if (model->string_inputs == 0) return 0;
    lm_model_least_string_bytes(model, sizes, &binding->string_bytes);
    binding->string_bytes *= LM_ORT_STRING_BYTES / sizeof(uint32_t);
    return 0;
}

int lm_model_fill_strings(const struct lm_model *model, const struct lm_ort *ort,
                          const struct lm_layout *layout, const struct lm_sizes *sizes,
                          uint32_t row, struct lm_binding *binding, OrtValue **values) {
    int code = 0;
    for (uint32_t i = 0; !code && i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        size_t least = 0;
        if (!lm_is_string(input)) continue;
        lm_tensor_bytes(input, sizes, &least);
        size_t count = least / input->element_bytes;
        struct lm_ort_growth growth = {0};
        code = lm_ort_strings_fill(ort, values[i], row * (count / sizes->rows), count,
                                   layout->inputs[i], &growth);
        binding->string_bytes += growth.bytes;
        binding->string_allocs += growth.count;
    }
    return code;
}

void lm_model_unbind(const struct lm_model *model, const struct lm_ort *ort,
                     struct lm_binding *binding, OrtValue **values) {
    for (uint32_t i = 0; i < model->input_count + model->output_count; i++) {
        lm_ort_value_close(ort, values[i]);
        values[i] = NULL;
    }
    *binding = (struct lm_binding){0};
}

int lm_model_count_elements(const struct lm_ort *ort, const OrtValue *value, size_t *count_out) {
    OrtTensorTypeAndShapeInfo *info = NULL;
    OrtStatus *status = ort->api->GetTensorTypeAndShape(value, &info);
    if (!status) status = ort->api->GetTensorShapeElementCount(info, count_out);
    if (info) ort->api->ReleaseTensorTypeAndShapeInfo(info);
    return lm_ort_check(ort, status, "reading an output");
}

int lm_model_check_count(const struct lm_ort *ort, const struct lm_tensor *output,
                         const OrtValue *value, const struct lm_sizes *sizes) {
    size_t count = 0, least = 0;
    int code = lm_model_count_elements(ort, value, &count);
    lm_tensor_bytes(output, sizes, &least);
    if (code || count == least / output->element_bytes) return code;
    return lm_error(LUMEN_E_ORT, "output '%s': expected %zu elements, the model made %zu",
                    output->name, least / output->element_bytes, count);
}

int lm_model_take_output(const struct lm_ort *ort, const struct lm_tensor *output, OrtValue **value,
                         void *place, size_t bytes) {
    void *data = NULL;
    size_t count = 0;
    int code = lm_model_count_elements(ort, *value, &count);
    if (!code)
        code =
            lm_ort_check(ort, ort->api->GetTensorMutableData(*value, &data), "reading an output");
    if (!code && count * output->element_bytes != bytes) {
        code = lm_error(LUMEN_E_ORT, "output '%s': expected %zu bytes, the model made %zu",
                        output->name, bytes, count * output->element_bytes);
    }
    if (!code && bytes) memcpy(place, data, bytes);
    lm_ort_value_close(ort, *value);
    *value = NULL;
    return code;
}
