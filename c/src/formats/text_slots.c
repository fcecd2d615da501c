/* text_slots.c: see text_slots.h. */
#include "formats/text_slots.h"

#include <string.h>

#include "formats/rows_reply.h"
#include "models/layout.h"
#include "models/sizes.h"
#include "parts/upstreams.h"

enum {
    TEXT_BYTES_PER_ELEMENT = 2, /* the densest JSON: a digit and a comma */
    CLASS_BYTES = 128,          /* value and index of one class, as JSON and as bytes */
    LABEL_COPIES = 7            /* of a label: as bytes, and as JSON with every byte escaped */
};

/* The longest reply's JSON with every output as told, to any of so many requests. */
static size_t reply_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                          uint32_t count, bool binary) {
    struct lm_oip_output outputs[LM_TENSORS_MAX];
    struct lm_oip_requested_output requested[LM_TENSORS_MAX];
    struct lm_oip_request asked = {.sizes = sizes[0],
                                   .requested = requested,
                                   .requested_count = model->output_count,
                                   .id_bytes = LM_OIP_ID_BYTES_MAX};
    size_t json = 0, scratch = 0;
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_tensor *tensor = &model->outputs[o];
        size_t bytes = 0;
        for (uint32_t s = 0; s < count; s++) {
            size_t now = 0;
            if (!tensor->shape_known) {
                now = lm_model_unknown_bytes(model, tensor, &sizes[s]);
            } else if (lm_is_string(tensor)) {
                lm_model_string_output_bytes(model, tensor, &sizes[s], &now);
            } else {
                lm_tensor_bytes(tensor, &sizes[s], &now);
            }
            if (now > bytes) bytes = now;
        }
        asked.requested[o] =
            (struct lm_oip_requested_output){.output = (uint8_t)o, .binary = binary};
        outputs[o] = (struct lm_oip_output){.tensor = tensor, .bytes = bytes};
    }
    bool known = lm_oip_reply_bytes_max(model, &asked, outputs, NULL, &json, &scratch);
    return known ? lm_align_up(json, LM_SLOT_ALIGN) : SIZE_MAX / 4;
}

size_t lm_model_reply_text_bytes(const struct lm_model *model) {
    if (lm_model_is_elsewhere(model)) return LM_UPSTREAM_SLOT_BYTES;
    struct lm_sizes sizes = lm_model_largest(model, 1);
    return LM_REPLY_HEAD_BYTES + (model->experts.count ? (size_t)LM_REPLY_EXPERT_BYTES : 0) +
           reply_bytes(model, &sizes, 1, true);
}

/* The longest reply to rows with names. Of an output of unknown shape the brackets are guessed. */
static size_t rows_bytes(const struct lm_model *model, const struct lm_sizes *sizes) {
    struct lm_oip_output outputs[LM_TENSORS_MAX];
    size_t bytes = 0;
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_tensor *tensor = &model->outputs[o];
        outputs[o] = (struct lm_oip_output){.tensor = tensor, .rank = tensor->rank};
        if (tensor->shape_known) {
            if (lm_is_string(tensor)) {
                lm_model_string_output_bytes(model, tensor, sizes, &outputs[o].bytes);
            } else {
                lm_tensor_bytes(tensor, sizes, &outputs[o].bytes);
            }
            lm_tensor_shape(tensor, sizes, outputs[o].dims);
        } else {
            outputs[o].bytes = lm_model_unknown_bytes(model, tensor, sizes);
            outputs[o].rank = 2;
            outputs[o].dims[0] = sizes->rows;
            outputs[o].dims[1] = (int64_t)(outputs[o].bytes / tensor->element_bytes / sizes->rows);
        }
    }
    bool known = lm_rows_reply_bytes_max(model, outputs, &bytes);
    return known ? lm_align_up(LM_REPLY_HEAD_BYTES + bytes, LM_SLOT_ALIGN) : SIZE_MAX / 4;
}

size_t lm_model_reply_values_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                                   uint32_t count) {
    size_t most = reply_bytes(model, sizes, count, false);
    for (uint32_t s = 0; s < count; s++) {
        size_t bytes = rows_bytes(model, &sizes[s]);
        if (bytes > most) most = bytes;
    }
    return most;
}

size_t lm_model_class_text_bytes(const struct lm_model *model) {
    return CLASS_BYTES + LABEL_COPIES * (size_t)model->labels.bytes_max;
}

/* An element in the densest text; a blob behind it may have one byte an element. */
static size_t least_text_bytes(const struct lm_tensor *input) {
    return input->element_bytes < TEXT_BYTES_PER_ELEMENT ? input->element_bytes
                                                         : TEXT_BYTES_PER_ELEMENT;
}

/* Bytes of the densest text of one row. */
static size_t row_text_bytes(const struct lm_model *model, const struct lm_sizes *sizes) {
    struct lm_sizes row = *sizes;
    size_t bytes = 0;
    row.rows = 1;
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        size_t tensor = 0;
        lm_tensor_bytes(input, &row, &tensor);
        bytes += tensor / input->element_bytes * least_text_bytes(input);
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

/* Inputs of any rank have at most as many elements as so much JSON can hold. */
static void bound_by_text(const struct lm_model *model, size_t text_bytes, struct lm_sizes *sizes) {
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        if (!input->any_rank) continue;
        uint32_t *size = &sizes->free[model->free_dims[input->any_rank - 1].place];
        size_t most = text_bytes / least_text_bytes(input);
        if (*size > most) *size = most ? (uint32_t)most : 1;
    }
}

enum { TEXT_SIZES = 3 };

/* Nobody knows yet what sizes the JSON has. Whatever they are, no tensor is larger than in one of
 * these: as many rows as the text can hold of the smallest shape, of the largest shape, and one row
 * as long as the text allows. With several free dimensions one row has the largest shape. */
static void sizes_of_text(const struct lm_model *model, size_t text_bytes,
                          struct lm_sizes sizes[TEXT_SIZES]) {
    const bool has_length = model->free_count == 1 && !model->any_rank;
    sizes[1] = lm_model_largest(model, 1);
    bound_by_text(model, text_bytes, &sizes[1]);
    sizes[2] = sizes[1];
    sizes[0] = lm_model_smallest(model, 1);
    if (has_length) sizes[2].free[0] = length_of_text(model, text_bytes);
    sizes[0].rows = rows_of_text(model, &sizes[0], text_bytes);
    /* Too little text for one row of the largest shape. */
    if (has_length && sizes[2].free[0] < model->free_dims[0].max) sizes[1] = sizes[2];
    sizes[1].rows = rows_of_text(model, &sizes[1], text_bytes);
    /* Shorter rows may hold as much as a part of a further row of this shape. */
    if (model->free_count > 0 && sizes[1].rows < model->max_rows) sizes[1].rows++;
}

bool lm_model_text_slot_bytes(const struct lm_model *model, size_t text_bytes, size_t *bytes_out) {
    struct lm_sizes sizes[TEXT_SIZES];
    size_t tensors;
    size_t text = lm_align_up(text_bytes + LM_SLOT_ALIGN, LM_SLOT_ALIGN);
    sizes_of_text(model, text_bytes, sizes);
    if (!lm_model_slot_bytes_of(model, sizes, TEXT_SIZES, &tensors)) return false;
    /* The densest text of a string, two quotes and a comma, becomes its length. Strings that go out
     * again have their bytes there, and their JSON. */
    size_t strings = text / 3 * 4 + LM_SLOT_ALIGN;
    for (uint32_t copy = 0; model->string_inputs > 0 && copy <= 2 * lm_model_echoes(model);
         copy++) {
        if (strings < text || !lm_slot_add(&tensors, strings)) return false;
    }
    if (!lm_slot_add(&tensors, model->string_inputs * (size_t)LM_SLOT_ALIGN)) return false;
    return text > text_bytes && !__builtin_add_overflow(tensors, text, bytes_out) &&
           !__builtin_add_overflow(
               *bytes_out, lm_model_reply_values_bytes(model, sizes, TEXT_SIZES), bytes_out);
}

/* A photograph in base64, or less: smaller ones may need several requests. */
enum { FILE_TEXT_BYTES = 64 << 10 };

bool lm_model_rows_slot_bytes(const struct lm_model *model, size_t text_bytes, size_t *bytes_out) {
    if (!lm_model_text_slot_bytes(model, text_bytes, bytes_out)) return false;
    if (!model->input_plan.has_images) return true;
    const size_t files = text_bytes / FILE_TEXT_BYTES + 1;
    const uint32_t rows = files < model->max_rows ? (uint32_t)files : model->max_rows;
    const struct lm_sizes sizes = lm_model_largest(model, rows);
    size_t bytes = 0;
    if (!lm_model_slot_bytes(model, &sizes, &bytes) ||
        !lm_slot_add(&bytes, text_bytes + LM_SLOT_ALIGN) || !lm_slot_add(&bytes, text_bytes) ||
        !lm_slot_add(&bytes, lm_model_reply_values_bytes(model, &sizes, 1)))
        return false;
    if (bytes > *bytes_out) *bytes_out = bytes;
    return true;
}

enum { TEXT_BYTES = 256, TEXT_VALUE_BYTES = 16 /* of a number in the reply */ };

bool lm_model_texts_slot_bytes(const struct lm_model *model, size_t text_bytes, size_t *bytes_out) {
    const size_t texts = text_bytes / TEXT_BYTES + 1;
    const struct lm_sizes sizes = {.rows =
                                       texts < model->max_rows ? (uint32_t)texts : model->max_rows};
    size_t text = lm_align_up(text_bytes + LM_SLOT_ALIGN, LM_SLOT_ALIGN), outputs = 0, reply = 0;
    for (uint32_t o = 0; o < model->output_count; o++) {
        size_t bytes = 0;
        if (!lm_tensor_bytes(&model->outputs[o], &sizes, &bytes) || !lm_slot_add(&outputs, bytes))
            return false;
    }
    *bytes_out = text;
    return lm_mul_size(outputs / sizeof(float), TEXT_VALUE_BYTES, &reply) &&
           lm_slot_add(bytes_out, text) && lm_slot_add(bytes_out, outputs) &&
           lm_slot_add(bytes_out, reply) && lm_slot_add(bytes_out, model->reply_text_bytes);
}
