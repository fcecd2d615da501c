/* operators.h: the operators whose time follows from the shapes of their inputs, and of which
 * inputs the values decide how large their outputs are. An operator that is not here may take any
 * time: Loop, Scan and If run a graph as often as they like; NonZero, Compress, Unique and
 * NonMaxSuppression make outputs as large as values say; RoiAlign takes as many samples; nobody
 * knows what a custom operator does. Read-only; any thread.
 */
#ifndef LM_ONNX_OPERATORS_H
#define LM_ONNX_OPERATORS_H

#include "onnx/fields.h"

struct lm_onnx_operator {
    const char *name;
    uint8_t sizes;    /* bit i: the values of input i decide the size of an output, or the time */
    bool is_constant; /* its outputs' values follow from shapes, whatever its inputs hold */
    bool is_random;   /* nobody knows its outputs' values */
};

/* NULL: it may take any time. */
const struct lm_onnx_operator *lm_onnx_operator_find(struct lm_bytes domain, struct lm_bytes name);

#endif
