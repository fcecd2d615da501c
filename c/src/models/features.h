/* features.h: numbers that tell an easy payload from a hard one: a pass over the values of a row,
 * in memory of any alignment. Pure. Workers, I/O threads that run models themselves, and through
 * lumen_feature the program that fits thresholds: so both compute the same bits.
 */
#ifndef LM_MODELS_FEATURES_H
#define LM_MODELS_FEATURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "onnx/tensor.h"

/* The values of one row, and for edges how they are a picture. */
struct lm_values {
    const void *at;
    int dtype; /* enum lm_ort_dtype; any but strings */
    size_t count;
    size_t line; /* values of a picture's line */
    size_t step; /* from a value to its neighbour in the line */
    size_t high; /* lines of a plane, one plane behind the other */
};

/* Whether there is such a feature of numbers of this type and rank: lm_feature_of may be asked. */
bool lm_feature_fits(uint32_t feature, int dtype, uint32_t rank);
/* Describes rows of a tensor of these sizes, of which the first begins at `at`. */
struct lm_values lm_values_of(const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                              const void *at);
/* LUMEN_FEATURE_VARIANCE to LUMEN_FEATURE_EDGES, and those of an output. Of no finite number it
 * is NaN or infinite. */
double lm_feature_of(uint32_t feature, const struct lm_values *values);

#endif
