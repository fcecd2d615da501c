/* layout.h: where the tensors of one request lie, and what ONNX Runtime has wrapped over them.
 * Plain data, of the thread that has the request.
 */
#ifndef LM_MODELS_LAYOUT_H
#define LM_MODELS_LAYOUT_H

#include "base/limits.h"
#include "onnx/tensor.h"

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

/* Tensors wrapped over one slot's memory for one model; rebuilt only when sizes or memory change.
 * Strings are copied into tensors of ONNX Runtime's, which keep their memory for the next ones. */
struct lm_binding {
    void *base;
    struct lm_sizes sizes;  /* rows 0: nothing wrapped */
    size_t string_bytes;    /* that its string tensors hold, at most */
    uint64_t string_allocs; /* that they took since somebody set this to 0 */
};

#endif
