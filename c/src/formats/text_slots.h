/* text_slots.h: how large a slot is that also holds what HTTP receives and says as text: JSON of
 * requests beside their tensors, and the reply's head and JSON. Called by any thread. */
#ifndef LM_FORMATS_TEXT_SLOTS_H
#define LM_FORMATS_TEXT_SLOTS_H

#include "models/model.h"

enum {
    LM_REPLY_HEAD_BYTES = 608,  /* the reply's head, with a trace and a load report */
    LM_REPLY_EXPERT_BYTES = 320 /* of it besides: the name of the expert that answered */
};

/* The head and JSON of a reply whose outputs are binary: lm_model.reply_text_bytes of a server's
 * model. Never below LM_MODEL_SLOT_BYTES_MIN: whatever the model, an error sentence fits. */
size_t lm_model_reply_text_bytes(const struct lm_model *model);
/* Bytes of the outputs as JSON numbers, beyond that, in any of so many requests. */
size_t lm_model_reply_values_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                                   uint32_t count);
/* The bytes that one class of a classification takes, in JSON and as bytes. */
size_t lm_model_class_text_bytes(const struct lm_model *model);
/* The slot for so much JSON, or rows (also of pictures in base64); false when it overflows. */
bool lm_model_text_slot_bytes(const struct lm_model *model, size_t text_bytes, size_t *bytes_out);
bool lm_model_rows_slot_bytes(const struct lm_model *model, size_t text_bytes, size_t *bytes_out);
/* The same of texts, of a usual length; more of them, and longer replies, lie beside the slot. */
bool lm_model_texts_slot_bytes(const struct lm_model *model, size_t text_bytes, size_t *bytes_out);

#endif
