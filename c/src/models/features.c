/* features.c: see features.h.
 *
 * Values are taken in blocks that stay in the first-level cache: a block's mean comes first, then
 * its squares around that mean, and Chan's formula merges the blocks. So memory is read once, and
 * a picture whose values are all alike has no variance, however large they are.
 */
#include "models/features.h"

#include <math.h>
#include <string.h>

#include "lumen.h"

/* A step takes four vectors, each into a sum of its own: one addition need not wait for another. */
enum { LANES = 4, SUMS = 4, STRIDE = LANES * SUMS, BLOCK = 2048, STEP_MAX = 4 };
_Static_assert(BLOCK % STRIDE == 0, "whole steps");

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)))); /* SSE's or NEON's */

static inline lanes load_lanes(const float *at) {
    lanes value;
    memcpy(&value, at, sizeof value);
    return value;
}

static float half(uint16_t bits) {
    int exponent = bits >> 10 & 31;
    float fraction = (float)(bits & 1023);
    float value = exponent == 31  ? (bits & 1023 ? NAN : INFINITY)
                  : exponent == 0 ? ldexpf(fraction, -24)
                                  : ldexpf(fraction + 1024, exponent - 25);
    return bits >> 15 ? -value : value;
}

static float brain(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

#define CONVERT(type, expression)                      \
    for (size_t i = 0; i < count; i++) {               \
        type x;                                        \
        memcpy(&x, from + i * sizeof(type), sizeof x); \
        to[i] = (expression);                          \
    }                                                  \
    break

/* Values `first` to `first + count` as floats, at `to`. */
static void load(const struct lm_values *values, size_t first, size_t count, float *to) {
    const uint8_t *from = (const uint8_t *)values->at + first * lm_dtype_bytes(values->dtype);
    switch (values->dtype) {
    case ORT_FLOAT: memcpy(to, from, count * sizeof *to); break;
    case ORT_DOUBLE: CONVERT(double, (float)x);
    case ORT_FLOAT16: CONVERT(uint16_t, half(x));
    case ORT_BFLOAT16: CONVERT(uint16_t, brain(x));
    case ORT_UINT8:
    case ORT_BOOL: CONVERT(uint8_t, (float)x);
    case ORT_INT8: CONVERT(int8_t, (float)x);
    case ORT_UINT16: CONVERT(uint16_t, (float)x);
    case ORT_INT16: CONVERT(int16_t, (float)x);
    case ORT_UINT32: CONVERT(uint32_t, (float)x);
    case ORT_INT32: CONVERT(int32_t, (float)x);
    case ORT_UINT64: CONVERT(uint64_t, (float)x);
    case ORT_INT64: CONVERT(int64_t, (float)x);
    default: memset(to, 0, count * sizeof *to); break;
    }
}

/* ---- variance, mean, norm ---- */

struct moments {
    double count, mean, squares; /* around the mean */
};

static double sum_of(const lanes sums[SUMS]) {
    double sum = 0;
    for (int s = 0; s < SUMS; s++) {
        for (int l = 0; l < LANES; l++) sum += (double)sums[s][l];
    }
    return sum;
}

static double sum_of_block(const float *block, size_t count) {
    lanes sums[SUMS] = {{0}};
    size_t i = 0;
    double rest = 0;
    for (; i + STRIDE <= count; i += STRIDE) {
        sums[0] += load_lanes(block + i);
        sums[1] += load_lanes(block + i + LANES);
        sums[2] += load_lanes(block + i + 2 * LANES);
        sums[3] += load_lanes(block + i + 3 * LANES);
    }
    for (; i < count; i++) rest += (double)block[i];
    return rest + sum_of(sums);
}

static inline lanes squared(lanes value) {
    return value * value;
}

/* Squares of the distances to a number. */
static double squares_of_block(const float *block, size_t count, float centre) {
    lanes sums[SUMS] = {{0}}, middle = (lanes){0} + centre;
    size_t i = 0;
    double rest = 0;
    for (; i + STRIDE <= count; i += STRIDE) {
        sums[0] += squared(load_lanes(block + i) - middle);
        sums[1] += squared(load_lanes(block + i + LANES) - middle);
        sums[2] += squared(load_lanes(block + i + 2 * LANES) - middle);
        sums[3] += squared(load_lanes(block + i + 3 * LANES) - middle);
    }
    for (; i < count; i++) {
        double apart = (double)block[i] - (double)centre;
        rest += apart * apart;
    }
    return rest + sum_of(sums);
}

static struct moments moments_of_block(const float *block, size_t count) {
    double mean = sum_of_block(block, count) / (double)count;
    /* The squares are around the mean as a float has it. */
    double off = mean - (double)(float)mean;
    double squares = squares_of_block(block, count, (float)mean) - (double)count * off * off;
    return (struct moments){(double)count, mean, squares < 0 ? 0 : squares};
}

/* Where a block of floats lies: in place if they are floats, else in `memory`. */
static const float *block_at(const struct lm_values *values, size_t first, size_t count,
                             float *memory) {
    const uint8_t *at = (const uint8_t *)values->at + first * sizeof(float);
    bool in_place = values->dtype == ORT_FLOAT && (uintptr_t)at % sizeof(float) == 0;
    if (in_place) return (const float *)(const void *)at;
    load(values, first, count, memory);
    return memory;
}

static struct moments moments_of(const struct lm_values *values) {
    struct moments all = {0, 0, 0};
    float block[BLOCK];
    for (size_t first = 0; first < values->count; first += BLOCK) {
        size_t count = values->count - first < BLOCK ? values->count - first : BLOCK;
        struct moments next = moments_of_block(block_at(values, first, count, block), count);
        double total = all.count + next.count, apart = next.mean - all.mean;
        all.squares += next.squares + apart * apart * all.count * next.count / total;
        all.mean += apart * next.count / total;
        all.count = total;
    }
    return all;
}

/* ---- edges ---- */

/* The squared differences of `count` values to those at `other`. */
static double squares_apart(const float *values, const float *other, size_t count) {
    lanes sums[SUMS] = {{0}};
    size_t i = 0;
    double rest = 0;
    for (; i + STRIDE <= count; i += STRIDE) {
        const float *one = values + i, *two = other + i;
        sums[0] += squared(load_lanes(one) - load_lanes(two));
        sums[1] += squared(load_lanes(one + LANES) - load_lanes(two + LANES));
        sums[2] += squared(load_lanes(one + 2 * LANES) - load_lanes(two + 2 * LANES));
        sums[3] += squared(load_lanes(one + 3 * LANES) - load_lanes(two + 3 * LANES));
    }
    for (; i < count; i++) {
        double apart = (double)values[i] - (double)other[i];
        rest += apart * apart;
    }
    return rest + sum_of(sums);
}

/* The mean of the squared differences of values that are neighbours in a line or a column. */
static double edges_of(const struct lm_values *values) {
    float here[BLOCK + STEP_MAX], above[BLOCK];
    double squares = 0, pairs = 0;
    size_t lines = values->line ? values->count / values->line : 0, step = values->step;
    for (size_t l = 0; l < lines; l++) {
        for (size_t first = 0; first < values->line; first += BLOCK) {
            size_t left = values->line - first, at = l * values->line + first;
            size_t count = left < BLOCK ? left : BLOCK;
            size_t more = left < BLOCK + step ? left : BLOCK + step; /* with the next neighbours */
            const float *line = block_at(values, at, more, here);
            if (more > step) {
                squares += squares_apart(line, line + step, more - step);
                pairs += (double)(more - step);
            }
            if (l % values->high == 0) continue;
            squares +=
                squares_apart(line, block_at(values, at - values->line, count, above), count);
            pairs += (double)count;
        }
    }
    return pairs > 0 ? squares / pairs : 0;
}

/* ---- an output ---- */

/* The largest value, the next one, and the sum of e^(value - largest). */
static void largest_of(const struct lm_values *values, bool exponents, double *first_out,
                       double *second_out, double *sum_out) {
    float block[BLOCK];
    double first = -INFINITY, second = -INFINITY, sum = 0;
    for (size_t at = 0; at < values->count; at += BLOCK) {
        size_t count = values->count - at < BLOCK ? values->count - at : BLOCK;
        load(values, at, count, block);
        for (size_t i = 0; i < count; i++) {
            double value = (double)block[i];
            if (value > first) {
                if (exponents && sum > 0) sum *= exp(first - value);
                second = first;
                first = value;
            } else if (value > second) {
                second = value;
            } else if (value != value) {
                first = second = NAN; /* no comparison is true from here on */
            }
            if (exponents) sum += exp(value - first);
        }
    }
    *first_out = first;
    *second_out = second;
    *sum_out = sum;
}

/* ---- all ---- */

bool lm_feature_fits(uint32_t feature, int dtype, uint32_t rank) {
    bool numbers = dtype != ORT_STRING && lm_dtype_bytes(dtype) > 0;
    switch ((enum lumen_feature)feature) {
    case LUMEN_FEATURE_VARIANCE:
    case LUMEN_FEATURE_MEAN:
    case LUMEN_FEATURE_NORM: return numbers;
    case LUMEN_FEATURE_EDGES: return numbers && rank >= 2;
    case LUMEN_FEATURE_PIXELS:
    case LUMEN_FEATURE_SIZE: return true;
    case LUMEN_FEATURE_LENGTH: return dtype == ORT_STRING;
    case LUMEN_FEATURE_PROBABILITY:
    case LUMEN_FEATURE_SOFTMAX:
    case LUMEN_FEATURE_MARGIN:
        return dtype == ORT_FLOAT || dtype == ORT_DOUBLE || dtype == ORT_FLOAT16 ||
               dtype == ORT_BFLOAT16;
    }
    return false;
}

/* Where the last of four dimensions can only be channels, the picture's sides are before it. */
static void shape_picture(const int64_t *dims, uint32_t rank, struct lm_values *values) {
    bool channels_last =
        rank == 4 && (dims[3] == 1 || dims[3] == 3) && dims[1] != 1 && dims[1] != 3;
    const int64_t *sides = dims + rank - 2 - channels_last;
    values->step = channels_last ? (size_t)dims[3] : 1;
    values->high = (size_t)sides[0];
    values->line = (size_t)sides[1] * values->step;
}

struct lm_values lm_values_of(const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                              const void *at) {
    struct lm_values values = {.at = at, .dtype = tensor->dtype, .count = 1};
    int64_t dims[LM_RANK_MAX];
    uint32_t rank = lm_tensor_shape(tensor, sizes, dims);
    for (uint32_t d = tensor->rows_free ? 1 : 0; d < rank; d++) values.count *= (size_t)dims[d];
    if (rank >= 2) shape_picture(dims, rank, &values);
    return values;
}

double lm_feature_of(uint32_t feature, const struct lm_values *values) {
    if (feature == LUMEN_FEATURE_EDGES) return edges_of(values);
    if (feature >= LUMEN_FEATURE_PROBABILITY) {
        double first, second, sum;
        largest_of(values, feature == LUMEN_FEATURE_SOFTMAX, &first, &second, &sum);
        if (feature == LUMEN_FEATURE_SOFTMAX) return 1 / sum;
        return feature == LUMEN_FEATURE_MARGIN ? first - second : first;
    }
    struct moments all = moments_of(values);
    if (feature == LUMEN_FEATURE_MEAN) return all.mean;
    if (feature == LUMEN_FEATURE_NORM) return sqrt(all.squares + all.count * all.mean * all.mean);
    return all.squares / all.count;
}

int lumen_feature(uint32_t feature, uint32_t dtype, const int64_t *dims, uint32_t rank,
                  const void *rows, double *values_out) {
    struct lm_tensor tensor = {.dtype = (int)dtype, .rank = rank, .rows_free = true};
    if (rank < 1 || rank > LM_RANK_MAX || feature == LUMEN_FEATURE_PIXELS ||
        feature == LUMEN_FEATURE_SIZE || feature == LUMEN_FEATURE_LENGTH ||
        !lm_feature_fits(feature, (int)dtype, rank))
        return LUMEN_E_INVALID;
    for (uint32_t d = 0; d < rank; d++) {
        if (dims[d] < 1 || dims[d] > INT32_MAX) return LUMEN_E_INVALID;
    }
    memcpy(tensor.dims, dims, rank * sizeof *dims);
    struct lm_sizes sizes = {.rows = (uint32_t)dims[0]};
    struct lm_values row = lm_values_of(&tensor, &sizes, rows);
    for (uint32_t r = 0; r < sizes.rows; r++) {
        row.at = (const uint8_t *)rows + r * row.count * lm_dtype_bytes((int)dtype);
        values_out[r] = lm_feature_of(feature, &row);
    }
    return 0;
}
