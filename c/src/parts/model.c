/* model.c: a model's tensors and how they lie in a slot; see model.h. Loading is in model_load.c.
 */
#include "parts/model.h"

#include <string.h>

#include "base/error.h"
#include "parts/native_codec.h"

enum { TEXT_BYTES_PER_ELEMENT = 2 /* the densest JSON: a digit and a comma */ };

/* Bytes of a row of a body that lies beside the tensors and is converted into them; 0: it lies in
 * the tensors, or the model takes none such. */
static size_t raw_row_bytes(const struct lm_model *model, uint8_t encoding) {
    if (encoding == LM_ENCODING_RGB8 && model->has_rgb8)
        return (size_t)model->rgb8.height * model->rgb8.width * 3;
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

/* Adds one aligned allocation of `bytes` to a slot's size. */
static bool add_aligned(size_t *total, size_t bytes) {
    size_t rounded = lm_align_up(bytes, LM_SLOT_ALIGN);
    return rounded >= bytes && !__builtin_add_overflow(*total, rounded, total);
}

/* Adds the tensor's largest size in any of the requests. */
static bool add_tensor(size_t *total, const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                       uint32_t count) {
    size_t most = 0, bytes;
    for (uint32_t s = 0; s < count; s++) {
        if (!lm_tensor_bytes(tensor, &sizes[s], &bytes)) return false;
        if (bytes > most) most = bytes;
    }
    return add_aligned(total, most);
}

/* The slot that holds any of these requests. */
static bool slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes, uint32_t count,
                       size_t *bytes_out) {
    size_t total = 0, bytes;
    for (uint32_t i = 0; i < model->input_count; i++) {
        if (!add_tensor(&total, &model->inputs[i], sizes, count)) return false;
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        if (!model->outputs[i].shape_known) continue;
        if (!add_tensor(&total, &model->outputs[i], sizes, count)) return false;
    }
    size_t raw = most_raw_row_bytes(model);
    for (uint32_t s = 0, rows = 0; raw > 0 && s < count; s++) {
        if (sizes[s].rows <= rows) continue;
        if (!lm_mul_size(raw, sizes[s].rows - rows, &bytes) || !add_aligned(&total, bytes))
            return false;
        rows = sizes[s].rows;
    }
    if (!model->outputs_known && !add_aligned(&total, model->max_output_bytes)) return false;
    /* The texts alone are LM_MODEL_SLOT_BYTES_MIN: whatever the model, an error sentence fits. */
    if (!add_aligned(&total, lm_model_reply_text_bytes(model))) return false;
    *bytes_out = total;
    return true;
}

bool lm_model_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                         size_t *bytes_out) {
    return slot_bytes(model, sizes, 1, bytes_out);
}

/* Bytes of the densest text of one row; a blob behind it may have one byte an element. */
static size_t row_text_bytes(const struct lm_model *model, const struct lm_sizes *sizes) {
    struct lm_sizes row = *sizes;
    size_t bytes = 0;
    row.rows = 1;
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        size_t tensor = 0;
        lm_tensor_bytes(input, &row, &tensor);
        bytes += tensor / input->element_bytes *
                 (input->element_bytes < TEXT_BYTES_PER_ELEMENT ? input->element_bytes
                                                                : TEXT_BYTES_PER_ELEMENT);
    }
    return bytes;
}

/* The most rows of this shape that so much JSON can hold. */
static uint32_t rows_of_text(const struct lm_model *model, const struct lm_sizes *sizes,
                             size_t text_bytes) {
    size_t row_bytes = row_text_bytes(model, sizes);
    if (row_bytes == 0) return model->max_rows;
    size_t rows = text_bytes / row_bytes;
    return rows < 1 ? 1 : rows > model->max_rows ? model->max_rows : (uint32_t)rows;
}

/* The largest size of the one free dimension that so much JSON can hold, in one row. */
static uint32_t length_of_text(const struct lm_model *model, size_t text_bytes) {
    uint32_t low = 1, high = model->free_dims[0].max;
    while (low < high) {
        struct lm_sizes sizes = {.rows = 1, .free = {low + (high - low + 1) / 2}};
        if (row_text_bytes(model, &sizes) <= text_bytes) {
            low = sizes.free[0];
        } else {
            high = sizes.free[0] - 1;
        }
    }
    return low;
}

enum { TEXT_SIZES = 3 };

/* Nobody knows yet what sizes the JSON has. Whatever they are, no tensor is larger than in one of
 * these: as many rows as the text can hold of the smallest shape, of the largest shape, and one row
 * as long as the text allows. With several free dimensions one row has the largest shape. */
static void sizes_of_text(const struct lm_model *model, size_t text_bytes,
                          struct lm_sizes sizes[TEXT_SIZES]) {
    sizes[0] = sizes[1] = sizes[2] = lm_model_largest(model, 1);
    for (uint32_t f = 0; f < model->free_count; f++) sizes[0].free[f] = 1;
    if (model->free_count == 1) sizes[2].free[0] = length_of_text(model, text_bytes);
    sizes[0].rows = rows_of_text(model, &sizes[0], text_bytes);
    /* Too little text for one row of the largest shape. */
    if (model->free_count == 1 && sizes[2].free[0] < model->free_dims[0].max) sizes[1] = sizes[2];
    sizes[1].rows = rows_of_text(model, &sizes[1], text_bytes);
    /* Shorter rows may hold as much as a part of a further row of this shape. */
    if (model->free_count > 0 && sizes[1].rows < model->max_rows) sizes[1].rows++;
}

bool lm_model_text_slot_bytes(const struct lm_model *model, size_t text_bytes, size_t *bytes_out) {
    struct lm_sizes sizes[TEXT_SIZES];
    size_t tensors;
    size_t text = lm_align_up(text_bytes + LM_SLOT_ALIGN, LM_SLOT_ALIGN);
    sizes_of_text(model, text_bytes, sizes);
    if (!slot_bytes(model, sizes, TEXT_SIZES, &tensors)) return false;
    return text > text_bytes && !__builtin_add_overflow(tensors, text, bytes_out) &&
           !__builtin_add_overflow(
               *bytes_out, lm_model_reply_values_bytes(model, sizes, TEXT_SIZES), bytes_out);
}

uint32_t lm_model_shape_block_bytes(const struct lm_model *model) {
    uint32_t words = 1;
    for (uint32_t i = 0; i < model->input_count; i++) words += 1 + model->inputs[i].rank;
    return words * 4;
}

void lm_model_layout(const struct lm_model *model, struct lm_slot *slot, uint8_t encoding,
                     const struct lm_sizes *sizes, struct lm_layout *layout_out) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < model->input_count; i++) {
        lm_tensor_bytes(&model->inputs[i], sizes, &bytes);
        layout_out->inputs[i] = lm_slot_alloc(slot, bytes);
        LM_DEBUG_ASSERT(layout_out->inputs[i]);
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        layout_out->outputs[i] = NULL;
        if (!model->outputs[i].shape_known) continue;
        lm_tensor_bytes(&model->outputs[i], sizes, &bytes);
        layout_out->outputs[i] = lm_slot_alloc(slot, bytes);
        LM_DEBUG_ASSERT(layout_out->outputs[i]);
    }
    /* Last, so that tensors lie at the same offsets whatever the encoding and stay wrapped. */
    size_t raw = raw_row_bytes(model, encoding);
    layout_out->raw = raw > 0 ? lm_slot_alloc(slot, raw * sizes->rows) : NULL;
}

bool lm_output_is_wrapped(const struct lm_tensor *output, uint32_t rows) {
    return output->shape_known && (output->wrapped_rows == 0 || output->wrapped_rows == rows);
}

static OrtValue *wrap(const struct lm_ort *ort, const struct lm_tensor *tensor, void *data,
                      const struct lm_sizes *sizes) {
    int64_t dims[LM_RANK_MAX];
    size_t bytes = 0;
    lm_tensor_shape(tensor, sizes, dims);
    lm_tensor_bytes(tensor, sizes, &bytes);
    return lm_ort_wrap(ort, data, bytes, dims, tensor->rank, tensor->dtype);
}

int lm_model_bind(const struct lm_model *model, const struct lm_ort *ort,
                  const struct lm_layout *layout, const struct lm_sizes *sizes,
                  struct lm_binding *binding, OrtValue **values) {
    void *base = layout->inputs[0];
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
    *binding = (struct lm_binding){.base = base, .sizes = *sizes};
    return 0;
}

void lm_model_unbind(const struct lm_model *model, const struct lm_ort *ort,
                     struct lm_binding *binding, OrtValue **values) {
    for (uint32_t i = 0; i < model->input_count + model->output_count; i++) {
        lm_ort_value_close(ort, values[i]);
        values[i] = NULL;
    }
    *binding = (struct lm_binding){0};
}

int lm_model_run(const struct lm_model *model, const struct lm_ort *ort, uint32_t worker,
                 OrtValue **values) {
    return lm_ort_run(ort, model->sessions[worker], model->input_names,
                      (const OrtValue *const *)values, model->input_count, model->output_names,
                      values + model->input_count, model->output_count);
}

int lm_model_take_output(const struct lm_ort *ort, const struct lm_tensor *output, OrtValue **value,
                         void *place, size_t bytes) {
    void *data = NULL;
    size_t count = 0;
    OrtTensorTypeAndShapeInfo *info = NULL;
    OrtStatus *status = ort->api->GetTensorTypeAndShape(*value, &info);
    if (!status) status = ort->api->GetTensorShapeElementCount(info, &count);
    if (!status) status = ort->api->GetTensorMutableData(*value, &data);
    if (info) ort->api->ReleaseTensorTypeAndShapeInfo(info);
    int code = lm_ort_check(ort, status, "reading an output");
    if (!code && count * output->element_bytes != bytes) {
        code = lm_error(LUMEN_E_ORT, "output '%s': expected %zu bytes, the model made %zu",
                        output->name, bytes, count * output->element_bytes);
    }
    if (!code && bytes) memcpy(place, data, bytes);
    lm_ort_value_close(ort, *value);
    *value = NULL;
    return code;
}
