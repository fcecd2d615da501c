/* histogram.h: log-linear histograms of durations in nanoseconds, laid out as lumen.h documents.
 *
 * 64 buckets an octave from 1 µs to 68 s: a bucket is at most 1/64 of its value wide, so that its
 * middle is within 0.8 % of every value in it. Below 1 µs the buckets are 16 ns wide. One writer.
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

struct lm_histogram {
    lm_atomic_u64 buckets[LM_HISTOGRAM_BUCKETS];
};

static inline uint32_t lm_histogram_bucket(uint64_t value_ns) {
    if (value_ns < (1ull << (LM_HISTOGRAM_SUB_BITS + LM_HISTOGRAM_UNIT_BITS))) {
        return (uint32_t)(value_ns >> LM_HISTOGRAM_UNIT_BITS);
    }
    uint32_t top = 63u - (uint32_t)__builtin_clzll(value_ns);
    if (top > LM_HISTOGRAM_TOP_BIT) return LM_HISTOGRAM_BUCKETS - 1;
    return ((top - LM_HISTOGRAM_SUB_BITS - LM_HISTOGRAM_UNIT_BITS) << LM_HISTOGRAM_SUB_BITS) +
           (uint32_t)(value_ns >> (top - LM_HISTOGRAM_SUB_BITS));
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

#endif
