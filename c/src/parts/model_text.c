/* model_text.c: how much room HTTP's texts take beside a request's tensors; see model.h. */
#include <string.h>

#include "parts/oip_reply.h"

enum {
    HEAD_BYTES = 256,  /* the reply's head */
    CLASS_BYTES = 128, /* value and index of one class, as JSON and as bytes */
    LABEL_COPIES = 7   /* of a label: as bytes, and as JSON with every byte escaped */
};

/* The longest reply's JSON with every output as told, to any of so many requests. */
static size_t reply_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                          uint32_t count, bool binary) {
    struct lm_oip_output outputs[LM_TENSORS_MAX];
    struct lm_oip_request asked = {
        .sizes = sizes[0], .requested_count = model->output_count, .id_bytes = LM_OIP_ID_BYTES_MAX};
    size_t json = 0, scratch = 0;
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_tensor *tensor = &model->outputs[o];
        size_t bytes = tensor->shape_known ? 0 : model->max_output_bytes;
        for (uint32_t s = 0; tensor->shape_known && s < count; s++) {
            size_t now = 0;
            lm_tensor_bytes(tensor, &sizes[s], &now);
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
    return HEAD_BYTES + reply_bytes(model, &sizes, 1, true);
}

size_t lm_model_reply_values_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                                   uint32_t count) {
    return reply_bytes(model, sizes, count, false);
}

size_t lm_model_class_text_bytes(const struct lm_model *model) {
    return CLASS_BYTES + LABEL_COPIES * (size_t)model->labels.bytes_max;
}
