/* tensor.h: one input or output of a model: its type, its shape, its bytes. Written by the control
 * thread at start, then read by any thread. */
#ifndef LM_PARTS_TENSOR_H
#define LM_PARTS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

struct lm_tensor {
    char name[LM_TENSOR_NAME_BYTES_MAX];
    int dtype; /* enum lm_ort_dtype */
    uint32_t rank;
    int64_t dims[LM_RANK_MAX]; /* -1: free */
    bool rows_free;            /* the first dimension is the request's rows */
    bool shape_known;          /* settled by the rows; always true of inputs */
    uint32_t wrapped_rows;     /* the graph wrongly declares so many rows: only then can memory be
                                * wrapped beforehand; 0: always */
    size_t element_bytes;
    size_t row_bytes; /* of one row, or of the whole tensor when rows_free is false */
};

/* Bytes of a tensor for `rows`; false when they do not fit a size_t. */
bool lm_tensor_bytes(const struct lm_tensor *tensor, uint32_t rows, size_t *bytes_out);
void lm_tensor_shape(const struct lm_tensor *tensor, uint32_t rows, int64_t dims_out[LM_RANK_MAX]);

/* The Triton name of a dtype ("FP32"), and back its size; NULL and 0 for one that is not served. */
const char *lm_dtype_name(int dtype);
size_t lm_dtype_bytes(int dtype);

#endif
