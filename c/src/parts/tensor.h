/* tensor.h: one input or output of a model: its type, its shape, its bytes. Written by the control
 * thread at start, then read by any thread. */
#ifndef LM_PARTS_TENSOR_H
#define LM_PARTS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

/* Sizes of a model's free dimensions in one request: the rows, which are the first dimension of its
 * inputs, and others by their index in the model. */
struct lm_sizes {
    uint32_t rows;
    uint32_t free[LM_FREE_DIMS_MAX];
};

struct lm_tensor {
    char name[LM_TENSOR_NAME_BYTES_MAX];
    int dtype; /* enum lm_ort_dtype */
    uint32_t rank;
    int64_t dims[LM_RANK_MAX]; /* -1: free */
    bool rows_free;            /* the first dimension is the request's rows */
    bool varies;               /* some other dimension is free: */
    uint8_t free[LM_RANK_MAX]; /* 1 + its index in the model; 0: fixed, or the rows */
    bool shape_known;          /* follows from the sizes of a request; always true of inputs */
    uint32_t wrapped_rows;     /* the graph wrongly declares so many rows: only then can memory be
                                * wrapped beforehand; 0: always */
    size_t element_bytes;
    size_t row_bytes; /* of one row, or of the whole tensor when rows_free is false; with every
                       * other free dimension being 1 */
};

/* Bytes of a tensor in a request of these sizes; false when they do not fit a size_t. */
bool lm_tensor_bytes(const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                     size_t *bytes_out);
void lm_tensor_shape(const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                     int64_t dims_out[LM_RANK_MAX]);

/* The Triton name of a dtype ("FP32"), and back its size; NULL and 0 for one that is not served. */
const char *lm_dtype_name(int dtype);
size_t lm_dtype_bytes(int dtype);

#endif
