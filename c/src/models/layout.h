/* layout.h: where the tensors of one request lie in its slot, and the bytes that they need there.
 * Any thread, on what is its own.
 */
#ifndef LM_MODELS_LAYOUT_H
#define LM_MODELS_LAYOUT_H

#include "base/limits.h"
#include "models/model.h"
#include "onnx/tensor.h"
#include "parts/arena.h"

/* Where one request's tensors lie in its slot. The lists have an entry for each tensor. */
struct lm_layout {
    void **inputs;
    void **outputs; /* NULL where the shape is not known before Run */
    uint8_t *raw;   /* a body that is converted, as received; NULL otherwise */
    /* Of strings: those of an input lie one behind the other, each as its length (u32) and its
     * bytes. They are anywhere in the slot, at any address. */
    size_t raw_bytes;
    size_t *string_bytes;
};

/* The lists of a layout that is no request's. */
struct lm_layout_lists {
    void *inputs[LM_TENSORS_MAX];
    void *outputs[LM_TENSORS_MAX];
    size_t string_bytes[LM_TENSORS_MAX];
};

static inline struct lm_layout lm_layout_of(struct lm_layout_lists *lists) {
    return (struct lm_layout){lists->inputs, lists->outputs, NULL, 0, lists->string_bytes};
}

/* No tensor has a place. */
static inline void lm_layout_clear(struct lm_layout *layout, const struct lm_model *model) {
    layout->raw = NULL;
    layout->raw_bytes = 0;
    for (uint32_t i = 0; i < model->input_count; i++) {
        layout->inputs[i] = NULL;
        layout->string_bytes[i] = 0;
    }
    for (uint32_t o = 0; o < model->output_count; o++) layout->outputs[o] = NULL;
}

/* A request's payload in bytes, without credential and shape block; false when it overflows. */
bool lm_model_payload_bytes(const struct lm_model *model, uint8_t encoding,
                            const struct lm_sizes *sizes, size_t *bytes_out);
/* The slot a request of these sizes needs, whatever its encoding; false when it overflows. */
bool lm_model_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                         size_t *bytes_out);
/* The same of one that any of so many requests fits into, but for strings. */
bool lm_model_slot_bytes_of(const struct lm_model *model, const struct lm_sizes *sizes,
                            uint32_t count, size_t *bytes_out);
/* The same where its strings have so many bytes in all, lengths included. */
bool lm_model_slot_bytes_with(const struct lm_model *model, const struct lm_sizes *sizes,
                              size_t string_bytes, size_t *bytes_out);
/* Bytes of the slot for outputs that have no place before a Run: strings, and unknown shapes. By
 * default strings may be as long as those that came. */
bool lm_model_loose_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                          size_t string_bytes, size_t *bytes_out);
/* Of those, of an output whose shape only the Run tells; of any rank, as many as all inputs. */
size_t lm_model_unknown_bytes(const struct lm_model *model, const struct lm_tensor *output,
                              const struct lm_sizes *sizes);
/* How many times the strings of a request take their bytes in a reply that may repeat them. */
static inline uint32_t lm_model_echoes(const struct lm_model *model) {
    return model->string_inputs > 0 && model->string_outputs > 0 && model->output_bytes_are_default;
}
/* The bytes that are planned for an output of strings. */
bool lm_model_string_output_bytes(const struct lm_model *model, const struct lm_tensor *output,
                                  const struct lm_sizes *sizes, size_t *bytes_out);
/* The least that the strings of a request have, lengths included. */
bool lm_model_least_string_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                                 size_t *bytes_out);
/* Of the shapes of the inputs in the native protocol; rank is what they have of `free`. */
uint32_t lm_model_shape_block_bytes(const struct lm_model *model,
                                    const uint32_t free[LM_FREE_DIMS_MAX]);
/* Whether an output lies in the slot before its Run. */
static inline bool lm_output_has_place(const struct lm_tensor *output) {
    return output->shape_known && !lm_is_string(output);
}
/* Allocates a request's tensors in an empty slot that is large enough. */
void lm_model_layout(const struct lm_model *model, struct lm_slot *slot, uint8_t encoding,
                     const struct lm_sizes *sizes, struct lm_layout *layout_out);

#endif
