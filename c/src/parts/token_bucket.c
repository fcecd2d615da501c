/* token_bucket.c: see token_bucket.h. */
#include "parts/token_bucket.h"

#include <math.h>

#include "base/error.h"
#include "base/limits.h"

enum {
    FRACTION_BITS = 61, /* binary places of units_per_ns */
    SHIFT_MAX = 30,     /* with a burst of 32 bits: 62 */
    UNITS_PER_NS_MAX = 4,
    ELAPSED_BITS = 60 /* 36 years of nanoseconds */
};

#define ELAPSED_MAX ((1ull << ELAPSED_BITS) - 1)
#define GONE_MAX (1ull << 62) /* a bucket counts so many units as gone, beside its burst */

_Static_assert(UNITS_PER_NS_MAX == 1 << 2 && 2 + FRACTION_BITS < 64, "units_per_ns fits its word");
_Static_assert(2 + ELAPSED_BITS <= 62, "what has flowed in is at most 2^62 units");
_Static_assert(32 + SHIFT_MAX <= 62, "a burst and a cost are at most 2^62 units; three sums fit");

void lm_token_bucket_init(struct lm_token_bucket *bucket, double rate_per_s, uint32_t burst,
                          uint64_t now_ns) {
    *bucket = (struct lm_token_bucket){.start_ns = now_ns};
    if (rate_per_s == 0) return;
    LM_ASSERT(rate_per_s >= LM_RATE_MIN && rate_per_s <= LM_RATE_MAX && burst >= 1);
    uint32_t shift = SHIFT_MAX;
    while (ldexp(rate_per_s, (int)shift) > UNITS_PER_NS_MAX * 1e9) shift--;
    /* In whole numbers, so that the rate is rounded down and never up: rate = mantissa * 2^exponent
     * with a mantissa of 53 bits. */
    int exponent;
    uint64_t mantissa = (uint64_t)ldexp(frexp(rate_per_s, &exponent), 53);
    int places = exponent - 53 + (int)shift + FRACTION_BITS;
    LM_ASSERT(places >= 0 && places <= 127 - 53);
    bucket->units_per_ns = (uint64_t)(((unsigned __int128)mantissa << places) / 1000000000u);
    bucket->burst_units = (uint64_t)burst << shift;
    bucket->shift = shift;
    LM_ASSERT(lm_token_bucket_is_valid(bucket));
}

bool lm_token_bucket_is_valid(const struct lm_token_bucket *bucket) {
    if (bucket->units_per_ns == 0) return bucket->burst_units == 0 && bucket->shift == 0;
    /* relaxed: only a range is looked at */
    uint64_t gone = lm_load_relaxed_u64(&bucket->gone);
    return bucket->shift <= SHIFT_MAX && bucket->burst_units >> bucket->shift >= 1 &&
           bucket->units_per_ns <= (uint64_t)UNITS_PER_NS_MAX << FRACTION_BITS &&
           gone <= GONE_MAX + bucket->burst_units;
}

static uint64_t elapsed_ns(const struct lm_token_bucket *bucket, uint64_t now_ns) {
    if (now_ns <= bucket->start_ns) return 0;
    uint64_t elapsed = now_ns - bucket->start_ns;
    return elapsed < ELAPSED_MAX ? elapsed : ELAPSED_MAX;
}

static uint64_t flowed_units(const struct lm_token_bucket *bucket, uint64_t now_ns) {
    uint64_t elapsed = elapsed_ns(bucket, now_ns);
    return (uint64_t)(((unsigned __int128)elapsed * bucket->units_per_ns) >> FRACTION_BITS);
}

bool lm_token_bucket_acquire(struct lm_token_bucket *bucket, uint32_t n, uint64_t now_ns) {
    LM_DEBUG_ASSERT(n >= 1 && lm_token_bucket_is_valid(bucket));
    if (bucket->units_per_ns == 0) return true;
    uint64_t flowed = flowed_units(bucket, now_ns);
    uint64_t brim = flowed + bucket->burst_units;
    uint64_t cost = (uint64_t)n << bucket->shift, next;
    /* relaxed, both: this word is the whole state and says nothing about other memory; all its
     * changes have one order, which is all that the bound in token_bucket.h needs. */
    uint64_t gone = lm_load_relaxed_u64(&bucket->gone);
    do {
        next = (gone > flowed ? gone : flowed) + cost;
        if (next > brim) return false;
    } while (!lm_cas_weak_relaxed_u64(&bucket->gone, &gone, next));
    return true;
}

void lm_token_bucket_charge(struct lm_token_bucket *bucket, uint32_t n, uint64_t now_ns) {
    if (bucket->units_per_ns == 0) return;
    const uint64_t most = GONE_MAX + bucket->burst_units;
    uint64_t flowed = flowed_units(bucket, now_ns);
    uint64_t cost = (uint64_t)n << bucket->shift, next;
    uint64_t gone = lm_load_relaxed_u64(&bucket->gone); /* relaxed, both: as in acquire */
    do {
        next = (gone > flowed ? gone : flowed) + cost;
        if (next > most) next = most;
    } while (!lm_cas_weak_relaxed_u64(&bucket->gone, &gone, next));
}

uint64_t lm_token_bucket_wait_ns(const struct lm_token_bucket *bucket, uint32_t n,
                                 uint64_t now_ns) {
    if (bucket->units_per_ns == 0) return 0;
    uint64_t flowed = flowed_units(bucket, now_ns);
    uint64_t cost = (uint64_t)n << bucket->shift;
    if (cost > bucket->burst_units) return UINT64_MAX;
    uint64_t gone = lm_load_relaxed_u64(&bucket->gone); /* relaxed: as in acquire */
    uint64_t next = (gone > flowed ? gone : flowed) + cost;
    if (next <= flowed + bucket->burst_units) return 0;
    uint64_t wanted = next - bucket->burst_units; /* what must have flowed in by then */
    unsigned __int128 product = (unsigned __int128)wanted << FRACTION_BITS;
    unsigned __int128 elapsed = (product + bucket->units_per_ns - 1) / bucket->units_per_ns;
    if (elapsed > ELAPSED_MAX) return UINT64_MAX;
    return bucket->start_ns + (uint64_t)elapsed - now_ns;
}
