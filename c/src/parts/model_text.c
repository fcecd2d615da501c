/* model_text.c: how much room HTTP's texts take beside a request's tensors; see model.h. */
#include <string.h>

#include "parts/rows_reply.h"

enum {
    HEAD_BYTES = 320,   /* the reply's head */
    EXPERT_BYTES = 320, /* of it, the name of the expert that answered */
    CLASS_BYTES = 128,  /* value and index of one class, as JSON and as bytes */
    LABEL_COPIES = 7    /* of a label: as bytes, and as JSON with every byte escaped */
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
    struct lm_sizes sizes = lm_model_largest(model, 1);
    return HEAD_BYTES + (model->experts.count ? (size_t)EXPERT_BYTES : 0) +
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
    return known ? lm_align_up(HEAD_BYTES + bytes, LM_SLOT_ALIGN) : SIZE_MAX / 4;
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
