/* tensor.c: see tensor.h. */
#include "onnx/tensor.h"

#include <string.h>

#include "base/memory.h"

static const struct {
    int dtype;
    uint32_t bytes;
    const char *name;
} dtypes[] = {
    {ORT_FLOAT, 4, "FP32"},    {ORT_UINT8, 1, "UINT8"},   {ORT_INT8, 1, "INT8"},
    {ORT_UINT16, 2, "UINT16"}, {ORT_INT16, 2, "INT16"},   {ORT_INT32, 4, "INT32"},
    {ORT_INT64, 8, "INT64"},   {ORT_BOOL, 1, "BOOL"},     {ORT_FLOAT16, 2, "FP16"},
    {ORT_DOUBLE, 8, "FP64"},   {ORT_UINT32, 4, "UINT32"}, {ORT_UINT64, 8, "UINT64"},
    {ORT_BFLOAT16, 2, "BF16"}, {ORT_STRING, 4, "BYTES"},
};

const char *lm_dtype_name(int dtype) {
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    }
    return NULL;
}

size_t lm_dtype_bytes(int dtype) {
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (dtypes[i].dtype == dtype) return dtypes[i].bytes;
    }
    return 0;
}

bool lm_tensor_bytes(const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                     size_t *bytes_out) {
    size_t bytes = tensor->row_bytes;
    uint32_t rank = lm_tensor_rank(tensor, sizes->free);
    for (uint32_t d = 0; tensor->varies && d < rank; d++) {
        if (tensor->free[d] && !lm_mul_size(bytes, sizes->free[tensor->free[d] - 1], &bytes))
            return false;
    }
    return lm_mul_size(bytes, tensor->rows_free ? sizes->rows : 1, bytes_out);
}

uint32_t lm_tensor_shape(const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                         int64_t dims_out[LM_RANK_MAX]) {
    uint32_t rank = lm_tensor_rank(tensor, sizes->free);
    memcpy(dims_out, tensor->dims, sizeof tensor->dims);
    if (tensor->rows_free) dims_out[0] = sizes->rows;
    for (uint32_t d = 0; tensor->varies && d < rank; d++) {
        if (tensor->free[d]) dims_out[d] = sizes->free[tensor->free[d] - 1];
    }
    return rank;
}
