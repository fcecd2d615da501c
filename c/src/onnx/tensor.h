/* tensor.h: one input or output of a model: its type, its shape, its bytes. Written by the control
 * thread at start, then read by any thread. */
#ifndef LM_ONNX_TENSOR_H
#define LM_ONNX_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "onnx/ort_api.h"

/* Sizes of a model's free dimensions in one request: the rows, which are the first dimension of its
 * inputs, and others by their place in the model. An input of any rank has several places, and 0
 * where its shape has ended. */
struct lm_sizes {
    uint32_t rows;
    uint32_t free[LM_FREE_DIMS_MAX];
};

struct lm_tensor {
    char name[LM_TENSOR_NAME_BYTES_MAX];
    int dtype;                 /* enum lm_ort_dtype */
    uint32_t rank;             /* of an input of any rank: the most it may have */
    int64_t dims[LM_RANK_MAX]; /* -1: free */
    bool rows_free;            /* the first dimension is the request's rows */
    bool rows_first;           /* an output of which only this is known: the rows come first */
    bool is_whole;             /* an output of which classification takes all values as one row */
    bool varies;               /* some other dimension is free: */
    uint8_t free[LM_RANK_MAX]; /* 1 + its place in the sizes; 0: fixed, or the rows */
    uint8_t any_rank;          /* an input without a shape in the graph: 1 + the index in the model
                                * of what bounds its elements; 0: its rank is known */
    bool shape_known;          /* follows from the sizes of a request; always true of inputs */
    uint32_t wrapped_rows;     /* the graph wrongly declares so many rows: only then can memory be
                                * wrapped beforehand; 0: always */
    size_t element_bytes;      /* of a string: its length's, which is the least it has */
    size_t row_bytes; /* of one row, or of the whole tensor when rows_free is false; with every
                       * other free dimension being 1 */
    const struct lm_tensor *client; /* the same bytes in the shape that HTTP's clients say and see;
                                     * NULL: in the graph's (models/reshape.h) */
};

static inline const struct lm_tensor *lm_tensor_of_client(const struct lm_tensor *tensor) {
    return tensor->client ? tensor->client : tensor;
}

static inline bool lm_is_string(const struct lm_tensor *tensor) {
    return tensor->dtype == ORT_STRING;
}

/* Bytes of a tensor in a request of these sizes, of strings the least; false when they do not fit a
 * size_t. */
bool lm_tensor_bytes(const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                     size_t *bytes_out);
/* Writes the shape and returns its rank. */
uint32_t lm_tensor_shape(const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                         int64_t dims_out[LM_RANK_MAX]);
/* The number of dimensions in a request whose free ones have these sizes. */
static inline uint32_t lm_tensor_rank(const struct lm_tensor *tensor,
                                      const uint32_t free[LM_FREE_DIMS_MAX]) {
    uint32_t rank = 0;
    if (!tensor->any_rank) return tensor->rank;
    while (rank < tensor->rank && free[tensor->free[rank] - 1] != 0) rank++;
    return rank;
}

/* A free size may be 0; what no shape has said yet is none. Of any rank 0 is a dimension less. */
#define LM_SIZE_UNSAID UINT32_MAX
static inline void lm_tensors_unsay(const struct lm_tensor *inputs, uint32_t count,
                                    uint32_t free[LM_FREE_DIMS_MAX]) {
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t d = 0; !inputs[i].any_rank && d < inputs[i].rank; d++)
            if (inputs[i].free[d]) free[inputs[i].free[d] - 1] = LM_SIZE_UNSAID;
}

/* The Triton name of a dtype ("FP32"), and back its size; NULL and 0 for one that is not served. */
const char *lm_dtype_name(int dtype);
size_t lm_dtype_bytes(int dtype);

#endif
