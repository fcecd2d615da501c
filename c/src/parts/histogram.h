/* histogram.h: log-linear histograms of durations in nanoseconds, laid out as lumen_stats.h says.
 *
 * 64 buckets an octave from 1 µs to 68 s: a bucket is at most 1/64 of its value wide, so that its
 * middle is within 0.8 % of every value in it. Below 1 µs the buckets are 16 ns wide. One thread
 * writes, any thread reads. A model's histogram is coarser, to stay small beside 63 others: 4
 * buckets an octave from 16 µs to 34 s, and the exact sum.
 */
#ifndef LM_PARTS_HISTOGRAM_H
#define LM_PARTS_HISTOGRAM_H

#include <stdint.h>

#include "base/atomics.h"

enum {
    LM_HISTOGRAM_SUB_BITS = 6,
    LM_HISTOGRAM_UNIT_BITS = 4,
    LM_HISTOGRAM_TOP_BIT = 35, /* values of 2^36 ns (68.7 s) and more share the last bucket */
    LM_HISTOGRAM_BUCKETS =
            (LM_HISTOGRAM_TOP_BIT - LM_HISTOGRAM_SUB_BITS - LM_HISTOGRAM_UNIT_BITS + 2)
        << LM_HISTOGRAM_SUB_BITS
};

enum {
    LM_MODEL_HISTOGRAM_SUB_BITS = 2,
    LM_MODEL_HISTOGRAM_UNIT_BITS = 12,
    LM_MODEL_HISTOGRAM_TOP_BIT = 34, /* values of 2^35 ns (34.4 s) and more share the last bucket */
    LM_MODEL_HISTOGRAM_BUCKETS = (LM_MODEL_HISTOGRAM_TOP_BIT - LM_MODEL_HISTOGRAM_SUB_BITS -
                                  LM_MODEL_HISTOGRAM_UNIT_BITS + 2)
        << LM_MODEL_HISTOGRAM_SUB_BITS
};

struct lm_histogram {
    lm_atomic_u64 buckets[LM_HISTOGRAM_BUCKETS];
};

struct lm_model_histogram {
    lm_atomic_u64 sum_ns;
    lm_atomic_u64 buckets[LM_MODEL_HISTOGRAM_BUCKETS];
};

/* The formula of lumen_stats.h; `top_bit` is the last octave that has buckets of its own. */
static inline uint32_t lm_histogram_bucket_of(uint64_t value_ns, uint32_t sub_bits,
                                              uint32_t unit_bits, uint32_t top_bit) {
    if (value_ns < (1ull << (sub_bits + unit_bits))) return (uint32_t)(value_ns >> unit_bits);
    uint32_t top = 63u - (uint32_t)__builtin_clzll(value_ns);
    if (top > top_bit) return ((top_bit - sub_bits - unit_bits + 2) << sub_bits) - 1;
    return ((top - sub_bits - unit_bits) << sub_bits) + (uint32_t)(value_ns >> (top - sub_bits));
}

static inline uint32_t lm_histogram_bucket(uint64_t value_ns) {
    return lm_histogram_bucket_of(value_ns, LM_HISTOGRAM_SUB_BITS, LM_HISTOGRAM_UNIT_BITS,
                                  LM_HISTOGRAM_TOP_BIT);
}

static inline uint32_t lm_model_histogram_bucket(uint64_t value_ns) {
    return lm_histogram_bucket_of(value_ns, LM_MODEL_HISTOGRAM_SUB_BITS,
                                  LM_MODEL_HISTOGRAM_UNIT_BITS, LM_MODEL_HISTOGRAM_TOP_BIT);
}

/* The smallest value of a bucket; of bucket + 1, the end of this one. */
static inline uint64_t lm_histogram_floor(uint32_t bucket) {
    const uint32_t sub = 1u << LM_HISTOGRAM_SUB_BITS;
    if (bucket < sub) return (uint64_t)bucket << LM_HISTOGRAM_UNIT_BITS;
    uint32_t octave = (bucket >> LM_HISTOGRAM_SUB_BITS) - 1;
    return (uint64_t)(sub + (bucket & (sub - 1))) << (octave + LM_HISTOGRAM_UNIT_BITS);
}

static inline void lm_histogram_record(struct lm_histogram *histogram, uint64_t value_ns) {
    lm_add_single_writer_u64(&histogram->buckets[lm_histogram_bucket(value_ns)], 1);
}

static inline void lm_model_histogram_record(struct lm_model_histogram *histogram,
                                             uint64_t value_ns) {
    lm_add_single_writer_u64(&histogram->sum_ns, value_ns);
    lm_add_single_writer_u64(&histogram->buckets[lm_model_histogram_bucket(value_ns)], 1);
}

#endif
