/* model.c: a model's tensors and how they lie in a slot; see model.h. Loading is in load.c.
 */
#include "models/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/native_codec.h"

/* Bytes of a row of a body that lies beside the tensors and is converted into them; 0: it lies in
 * the tensors, or the model takes none such. */
static size_t raw_row_bytes(const struct lm_model *model, uint8_t encoding) {
    if (encoding == LM_ENCODING_RGB8 && model->input_plan.has_rgb8)
        return (size_t)model->input_plan.rgb8.height * model->input_plan.rgb8.width * 3;
    return 0;
}

/* The same of the encoding that has most. */
static size_t most_raw_row_bytes(const struct lm_model *model) {
    size_t most = 0;
    for (uint8_t e = 0; e < LM_ENCODING_COUNT; e++) {
        if (raw_row_bytes(model, e) > most) most = raw_row_bytes(model, e);
    }
    return most;
}

bool lm_model_payload_bytes(const struct lm_model *model, uint8_t encoding,
                            const struct lm_sizes *sizes, size_t *bytes_out) {
    size_t raw = raw_row_bytes(model, encoding);
    if (raw > 0) return lm_mul_size(raw, sizes->rows, bytes_out);
    size_t total = 0;
    for (uint32_t i = 0; i < model->input_count; i++) {
        size_t bytes;
        if (!lm_tensor_bytes(&model->inputs[i], sizes, &bytes)) return false;
        if (__builtin_add_overflow(total, bytes, &total)) return false;
    }
    *bytes_out = total;
    return true;
}

/* Whether an output lies in the slot before its Run. */
static bool has_place(const struct lm_tensor *output) {
    return output->shape_known && !lm_is_string(output);
}

/* Adds the tensor's largest size in any of the requests. */
static bool add_tensor(size_t *total, const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                       uint32_t count) {
    size_t most = 0, bytes;
    for (uint32_t s = 0; s < count; s++) {
        if (!lm_tensor_bytes(tensor, &sizes[s], &bytes)) return false;
        if (bytes > most) most = bytes;
    }
    return lm_slot_add(total, most);
}

/* The least that the strings of a request have. */
static bool least_string_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                               size_t *bytes_out) {
    size_t total = 0, bytes;
    for (uint32_t i = 0; model->string_inputs > 0 && i < model->input_count; i++) {
        if (!lm_is_string(&model->inputs[i])) continue;
        if (!lm_tensor_bytes(&model->inputs[i], sizes, &bytes) ||
            __builtin_add_overflow(total, bytes, &total))
            return false;
    }
    *bytes_out = total;
    return true;
}

bool lm_model_slot_bytes_of(const struct lm_model *model, const struct lm_sizes *sizes,
                            uint32_t count, size_t *bytes_out) {
    size_t total = 0, bytes;
    for (uint32_t i = 0; i < model->input_count; i++) {
        if (lm_is_string(&model->inputs[i])) continue;
        if (!add_tensor(&total, &model->inputs[i], sizes, count)) return false;
    }
    for (uint32_t i = 0; i < model->optional_count; i++) {
        if (!add_tensor(&total, &model->inputs[model->input_count + i], sizes, count)) return false;
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        if (!has_place(&model->outputs[i])) continue;
        if (!add_tensor(&total, &model->outputs[i], sizes, count)) return false;
    }
    size_t raw = most_raw_row_bytes(model);
    for (uint32_t s = 0, rows = 0; raw > 0 && s < count; s++) {
        if (sizes[s].rows <= rows) continue;
        if (!lm_mul_size(raw, sizes[s].rows - rows, &bytes) || !lm_slot_add(&total, bytes))
            return false;
        rows = sizes[s].rows;
    }
    size_t loose = 0;
    for (uint32_t s = 0; s < count; s++) {
        if (!lm_model_loose_bytes(model, &sizes[s], 0, &bytes)) return false;
        if (bytes > loose) loose = bytes;
    }
    if (!lm_slot_add(&total, loose)) return false;
    if (!lm_slot_add(&total, model->reply_text_bytes)) return false;
    *bytes_out = total;
    return true;
}

bool lm_model_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                         size_t *bytes_out) {
    size_t strings = 0;
    return least_string_bytes(model, sizes, &strings) &&
           lm_mul_size(strings / sizeof(uint32_t), LM_STRING_PLANNED_BYTES, &strings) &&
           lm_model_slot_bytes_with(model, sizes, strings, bytes_out);
}

bool lm_model_slot_bytes_with(const struct lm_model *model, const struct lm_sizes *sizes,
                              size_t string_bytes, size_t *bytes_out) {
    /* Each input's strings may be an allocation of their own. */
    size_t apart = model->string_inputs * (size_t)LM_SLOT_ALIGN;
    return lm_model_slot_bytes_of(model, sizes, 1, bytes_out) &&
           lm_slot_add(bytes_out, string_bytes) &&
           (!lm_model_echoes(model) || lm_slot_add(bytes_out, string_bytes)) &&
           lm_slot_add(bytes_out, apart);
}

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

uint32_t lm_model_shape_block_bytes(const struct lm_model *model,
                                    const uint32_t free[LM_FREE_DIMS_MAX]) {
    uint32_t words = 1;
    for (uint32_t i = 0; i < model->input_count; i++)
        words += 1 + lm_tensor_rank(&model->inputs[i], free);
    return words * 4;
}

void lm_model_layout(const struct lm_model *model, struct lm_slot *slot, uint8_t encoding,
                     const struct lm_sizes *sizes, struct lm_layout *layout_out) {
    size_t bytes = 0;
    lm_layout_clear(layout_out, model);
    for (uint32_t i = 0; i < model->input_count; i++) {
        if (lm_is_string(&model->inputs[i])) continue; /* where its bytes arrive */
        lm_tensor_bytes(&model->inputs[i], sizes, &bytes);
        layout_out->inputs[i] = lm_slot_alloc(slot, bytes);
        LM_DEBUG_ASSERT(layout_out->inputs[i]);
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        if (!has_place(&model->outputs[i])) continue;
        lm_tensor_bytes(&model->outputs[i], sizes, &bytes);
        layout_out->outputs[i] = lm_slot_alloc(slot, bytes);
        LM_DEBUG_ASSERT(layout_out->outputs[i]);
    }
    /* Last, so that tensors lie at the same offsets whatever the encoding and stay wrapped. */
    size_t raw = raw_row_bytes(model, encoding);
    if (raw > 0) layout_out->raw = lm_slot_alloc(slot, raw * sizes->rows);
}

bool lm_output_is_wrapped(const struct lm_tensor *output, uint32_t rows) {
    return has_place(output) && (output->wrapped_rows == 0 || output->wrapped_rows == rows);
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
    least_string_bytes(model, sizes, &binding->string_bytes);
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
