/* pool.c: see pool.h. The arithmetic is that of sentence-transformers. */
#include "text/pool.h"

#include <math.h>
#include <string.h>

#include "lumen.h"

static const float LENGTH_MIN = 1e-12f;

uint32_t lm_pool_parts(uint32_t pooling) {
    return (uint32_t)__builtin_popcount(pooling);
}

static void pool_max(const float *vectors, size_t tokens, size_t width, float *out) {
    memcpy(out, vectors, width * sizeof *out);
    for (size_t t = 1; t < tokens; t++) {
        const float *vector = vectors + t * width;
        for (size_t i = 0; i < width; i++) out[i] = vector[i] > out[i] ? vector[i] : out[i];
    }
}

/* The sum of all vectors, or (`weighted`) of each times its position from 1 on, divided. */
static void pool_sum(const float *vectors, size_t tokens, size_t width, int weighted, float divisor,
                     float *out) {
    memset(out, 0, width * sizeof *out);
    for (size_t t = 0; t < tokens; t++) {
        const float *vector = vectors + t * width;
        const float weight = weighted ? (float)(t + 1) : 1;
        for (size_t i = 0; i < width; i++) out[i] += weight * vector[i];
    }
    for (size_t i = 0; i < width; i++) out[i] /= divisor;
}

static void pool_part(uint32_t part, const float *vectors, size_t tokens, size_t width,
                      float *out) {
    const float count = (float)tokens;
    if (part == LUMEN_POOLING_CLS) memcpy(out, vectors, width * sizeof *out);
    if (part == LUMEN_POOLING_MAX) pool_max(vectors, tokens, width, out);
    if (part == LUMEN_POOLING_MEAN) pool_sum(vectors, tokens, width, 0, count, out);
    if (part == LUMEN_POOLING_MEAN_SQRT_LEN) pool_sum(vectors, tokens, width, 0, sqrtf(count), out);
    if (part == LUMEN_POOLING_WEIGHTED_MEAN)
        pool_sum(vectors, tokens, width, 1, count * (count + 1) / 2, out);
    if (part == LUMEN_POOLING_LAST_TOKEN)
        memcpy(out, vectors + (tokens - 1) * width, width * sizeof *out);
}

void lm_pool(uint32_t pooling, const float *vectors, size_t tokens, size_t width, float *out) {
    for (; pooling; pooling &= pooling - 1, out += width)
        pool_part(pooling & -pooling, vectors, tokens, width, out);
}

void lm_pool_normalise(float *vector, size_t width) {
    float squares = 0;
    for (size_t i = 0; i < width; i++) squares += vector[i] * vector[i];
    const float length = sqrtf(squares) > LENGTH_MIN ? sqrtf(squares) : LENGTH_MIN;
    for (size_t i = 0; i < width; i++) vector[i] /= length;
}
