/* token_bucket.h: how many requests a second may pass; shared by all I/O threads.
 *
 * A bucket holds at most `burst` tokens, is full at first and fills at `rate_per_s`. One word is
 * all of its state: the tokens gone since the start, taken or spilled over the brim. How many have
 * flowed in follows from the time alone, so nothing is ever refilled, there is no remainder to
 * carry from one refill to the next, and no second word that could disagree with the first:
 *   flowed(now) = (now - start) * rate, rounded down to units of 2^-shift of a token
 *   spilled     : gone < flowed(now) means that the bucket stood full; gone counts as flowed(now)
 *   take n      : gone = max(gone, flowed(now)) + n, unless that is above flowed(now) + burst
 * (A bucket that is refilled only once it looks empty saves a nanosecond or two and gives out twice
 * its burst after a pause: what was in it, and at once what the pause brought.)
 *
 * Guaranteed, with any number of threads that each pass their own idea of the time:
 * - Acquires whose now_ns lie within t of each other are given fewer than burst + rate * t + u
 *   tokens together, u = 2^-shift <= 1/4 (below one in a billion for rates up to 3.7 a second).
 * - What is charged counts as taken, also where it is more than is there: later acquires wait until
 *   so much has flowed in.
 * - All n or none. A refusal writes nothing: refused clients take nothing from others, not even
 *   for a moment.
 * - An acquire is refused only if fewer than n tokens were there at one moment during the call, by
 *   its own now_ns. So a thread whose clock lags may be refused what others will only take later;
 *   never is it given more.
 * - Lock-free: a retry means that another thread was given its tokens (or, on processors other than
 *   x86, that the compare-exchange failed for nothing).
 * - No drift: the rate in force is below rate_per_s by less than one part in 10^15. Time may go
 *   back, also before the start (that is the start). 36 years after the start the bucket dries up.
 */
#ifndef LM_PARTS_TOKEN_BUCKET_H
#define LM_PARTS_TOKEN_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"

struct lm_token_bucket {
    LM_CACHE_ALIGNED lm_atomic_u64 gone; /* in units; written by every thread that takes */
    /* Read only after init. On the same line: who needs these needs `gone` next. */
    uint64_t start_ns;
    uint64_t units_per_ns; /* fixed point, 61 binary places; 0: no limit */
    uint64_t burst_units;
    uint32_t shift; /* a token is 2^shift units */
};

_Static_assert(sizeof(struct lm_token_bucket) == LM_CACHE_LINE, "one line per bucket");

/* Before any other thread knows of it. rate_per_s is 0 (no limit) or LM_RATE_MIN..LM_RATE_MAX, and
 * then burst at least 1. */
void lm_token_bucket_init(struct lm_token_bucket *bucket, double rate_per_s, uint32_t burst,
                          uint64_t now_ns);
bool lm_token_bucket_is_valid(const struct lm_token_bucket *bucket);

/* Any thread: takes n tokens (1..), or none and returns false. Never true for n above the burst. */
bool lm_token_bucket_acquire(struct lm_token_bucket *bucket, uint32_t n, uint64_t now_ns);

/* Any thread: takes n tokens that are spent already, whether they are there or not. */
void lm_token_bucket_charge(struct lm_token_bucket *bucket, uint32_t n, uint64_t now_ns);

/* Any thread: how long until an acquire of n would succeed if nobody else took any; 0: it would
 * now. UINT64_MAX: never. To the nanosecond; divides, so for refusals only. */
uint64_t lm_token_bucket_wait_ns(const struct lm_token_bucket *bucket, uint32_t n, uint64_t now_ns);

#endif
