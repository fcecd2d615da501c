/* layout.c: see layout.h. */
#include "models/layout.h"

#include "base/error.h"
#include "base/native_codec.h"
#include "models/sizes.h"

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

bool lm_model_least_string_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
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

/* Of a slot: outputs that are larger have memory of their own (spill.h), so that no setting for
 * them changes the sizes that are served. */
static size_t slot_part(const struct lm_model *model) {
    return model->max_output_bytes < LM_OUTPUT_BYTES ? model->max_output_bytes : LM_OUTPUT_BYTES;
}

size_t lm_model_unknown_bytes(const struct lm_model *model, const struct lm_tensor *output,
                              const struct lm_sizes *sizes) {
    size_t each = lm_is_string(output) ? LM_STRING_PLANNED_BYTES : output->element_bytes;
    if (!model->any_rank || !model->output_bytes_are_default) return slot_part(model);
    size_t bytes = lm_model_row_elements(model, sizes) * sizes->rows * each;
    return bytes > slot_part(model) ? bytes : slot_part(model);
}

bool lm_model_string_output_bytes(const struct lm_model *model, const struct lm_tensor *output,
                                  const struct lm_sizes *sizes, size_t *bytes_out) {
    size_t each = output->element_bytes + model->labels.bytes_max, least = 0;
    if (each < LM_STRING_PLANNED_BYTES) each = LM_STRING_PLANNED_BYTES;
    return lm_tensor_bytes(output, sizes, &least) &&
           lm_mul_size(least / output->element_bytes, each, bytes_out);
}

/* Of the outputs of unknown shape: they share the most that a setting allows, or the default. */
static bool unknown_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                          size_t *total) {
    *total = slot_part(model);
    if (!model->any_rank || !model->output_bytes_are_default) return true;
    *total = 0;
    for (uint32_t o = 0; o < model->output_count; o++) {
        if (model->outputs[o].shape_known) continue;
        if (!lm_slot_add(total, lm_model_unknown_bytes(model, &model->outputs[o], sizes)))
            return false;
    }
    return true;
}

bool lm_model_loose_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                          size_t string_bytes, size_t *bytes_out) {
    bool has_loose = !model->outputs_known || model->string_outputs > 0;
    size_t total = 0, bytes;
    *bytes_out = 0;
    if (!has_loose) return true;
    if ((!model->outputs_known || !model->output_bytes_are_default) &&
        !unknown_bytes(model, sizes, &total))
        return false;
    for (uint32_t o = 0; model->output_bytes_are_default && o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        if (!lm_is_string(output) || !output->shape_known) continue;
        if (!lm_model_string_output_bytes(model, output, sizes, &bytes) ||
            !lm_slot_add(&total, bytes))
            return false;
    }
    *bytes_out = total;
    return !lm_model_echoes(model) || lm_slot_add(bytes_out, string_bytes);
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
        if (!lm_output_has_place(&model->outputs[i])) continue;
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
    return lm_model_least_string_bytes(model, sizes, &strings) &&
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
        if (!lm_output_has_place(&model->outputs[i])) continue;
        lm_tensor_bytes(&model->outputs[i], sizes, &bytes);
        layout_out->outputs[i] = lm_slot_alloc(slot, bytes);
        LM_DEBUG_ASSERT(layout_out->outputs[i]);
    }
    /* Last, so that tensors lie at the same offsets whatever the encoding and stay wrapped. */
    size_t raw = raw_row_bytes(model, encoding);
    if (raw > 0) layout_out->raw = lm_slot_alloc(slot, raw * sizes->rows);
}
