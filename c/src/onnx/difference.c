/* difference.c: see difference.h. */
#include "onnx/difference.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "onnx/tensor.h"

int lm_difference_open(struct lm_difference *difference, uint32_t rows) {
    *difference = (struct lm_difference){.rows = rows, .apart = calloc(rows ? rows : 1, 1)};
    return difference->apart ? 0 : lm_error(LUMEN_E_NOMEM, "no memory to compare %u rows", rows);
}

void lm_difference_close(struct lm_difference *difference) {
    free(difference->apart);
    difference->apart = NULL;
}

static void all_apart(struct lm_difference *difference) {
    memset(difference->apart, 1, difference->rows);
}

uint32_t lm_difference_rows(const struct lm_difference *difference) {
    uint32_t apart = 0;
    for (uint32_t row = 0; row < difference->rows; row++) apart += difference->apart[row];
    return apart;
}

/* ---- numbers of floating point ---- */

/* IEEE 754's binary16. */
static double half_of(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const double fraction = bits & 1023, sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) return fraction > 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

/* The upper half of a binary32. */
static double brain_of(uint16_t bits) {
    const uint32_t whole = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &whole, sizeof value);
    return (double)value;
}

static bool is_float(int dtype) {
    return dtype == ORT_FLOAT || dtype == ORT_DOUBLE || dtype == ORT_FLOAT16 ||
           dtype == ORT_BFLOAT16;
}

static double number_at(int dtype, const void *numbers, size_t at) {
    switch (dtype) {
    case ORT_FLOAT: return (double)((const float *)numbers)[at];
    case ORT_DOUBLE: return ((const double *)numbers)[at];
    case ORT_FLOAT16: return half_of(((const uint16_t *)numbers)[at]);
    default: return brain_of(((const uint16_t *)numbers)[at]);
    }
}

static double distance(double one, double other) {
    if (isnan(one) && isnan(other)) return 0;
    if (one == other) return 0; /* infinities too */
    const double apart = fabs(one - other);
    return isnan(apart) ? (double)INFINITY : apart;
}

/* A row of floats: where the largest of each is, the first of several; and the largest difference.
 */
static bool is_other_class(int dtype, const void *one, const void *other, size_t first,
                           size_t count, double *largest) {
    size_t top = first, other_top = first;
    double most = -(double)INFINITY, other_most = -(double)INFINITY;
    for (size_t at = first; at < first + count; at++) {
        const double a = number_at(dtype, one, at), b = number_at(dtype, other, at);
        const double apart = distance(a, b);
        if (apart > *largest) *largest = apart;
        if (a > most) most = a, top = at;
        if (b > other_most) other_most = b, other_top = at;
    }
    return top != other_top;
}

static void add_numbers(struct lm_difference *difference, int dtype, const void *one,
                        const void *other, size_t bytes) {
    const size_t size = lm_dtype_bytes(dtype), count = bytes / size;
    const bool by_rows = count % difference->rows == 0;
    const size_t each = by_rows ? count / difference->rows : count;
    for (size_t row = 0; row * each < count; row++) {
        const size_t at = row * each * size;
        const bool is_apart =
            is_float(dtype)
                ? is_other_class(dtype, one, other, row * each, each, &difference->largest)
                : memcmp((const uint8_t *)one + at, (const uint8_t *)other + at, each * size) != 0;
        difference->apart[row] |= is_apart;
        if (is_apart && !by_rows) all_apart(difference);
    }
}

/* ---- strings ---- */

static size_t string_end(const uint8_t *strings, size_t at) {
    uint32_t bytes;
    memcpy(&bytes, strings + at, sizeof bytes);
    return at + sizeof bytes + bytes;
}

static size_t count_strings(const struct iovec *strings) {
    size_t count = 0;
    for (size_t at = 0; at < strings->iov_len; count++) at = string_end(strings->iov_base, at);
    return count;
}

static void add_strings(struct lm_difference *difference, const struct iovec *one,
                        const struct iovec *other) {
    const size_t count = count_strings(one);
    const bool by_rows = count % difference->rows == 0;
    const size_t each = by_rows ? count / difference->rows : count;
    const uint8_t *a = one->iov_base, *b = other->iov_base;
    if (count != count_strings(other)) {
        all_apart(difference);
        return;
    }
    for (size_t s = 0; s < count; s++) {
        const size_t a_bytes = string_end(a, 0), b_bytes = string_end(b, 0);
        const bool is_apart = a_bytes != b_bytes || memcmp(a, b, a_bytes) != 0;
        if (is_apart && by_rows) difference->apart[s / each] = 1;
        if (is_apart && !by_rows) all_apart(difference);
        a += a_bytes;
        b += b_bytes;
    }
}

/* ---- an output ---- */

void lm_difference_add(struct lm_difference *difference, int dtype, const struct iovec *one,
                       const struct iovec *other) {
    if (difference->rows == 0) return;
    if (dtype == ORT_STRING)
        add_strings(difference, one, other);
    else if (one->iov_len != other->iov_len)
        all_apart(difference);
    else
        add_numbers(difference, dtype, one->iov_base, other->iov_base, one->iov_len);
}
