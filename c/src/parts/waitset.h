/* waitset.h: where idle workers sleep, and how the producer of a job wakes the warmest of them.
 *
 * One 64-bit word has a bit per sleeping worker, and both sides read-modify-write that one word:
 *   worker:   set own bit (W1), look at the queue again, and only then sleep on its own futex
 *   producer: push, then read-modify-write the word (P1); where a bit was set, clear it and wake
 * The two operations are ordered on the same word. Either the producer's comes second and sees the
 * bit, or the worker's comes second, reads what the producer wrote and so sees the push: no wake-up
 * is lost. A wake-up is only a hint; the queue alone carries data.
 */
#ifndef LM_PARTS_WAITSET_H
#define LM_PARTS_WAITSET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"
#include "lumen.h"

struct lm_waitset_seat {
    LM_CACHE_ALIGNED lm_atomic_u32 woken; /* the futex: 0 sleep on, 1 wake up */
    lm_atomic_u64 parked_at;              /* when it last went idle; written by its worker */
};

struct lm_waitset {
    LM_CACHE_ALIGNED lm_atomic_u64 sleepers; /* a bit per worker that sleeps or is about to */
    struct lm_waitset_seat seats[LUMEN_WORKERS_MAX];
};

void lm_waitset_init(struct lm_waitset *set);

/* Worker `index` announces that it will sleep. It must look for work once more, then call exactly
 * one of lm_waitset_cancel (work was found) or lm_waitset_sleep. */
void lm_waitset_prepare(struct lm_waitset *set, uint32_t index, uint64_t now_ns);
void lm_waitset_cancel(struct lm_waitset *set, uint32_t index);
/* Returns after a wake-up, at `until_ns` (CLOCK_MONOTONIC; UINT64_MAX: never), or for no reason:
 * the caller looks for work again. */
void lm_waitset_sleep(struct lm_waitset *set, uint32_t index, uint64_t until_ns);

/* After a push: wakes the worker that went idle last, its caches being warmest. false: none sleeps.
 */
bool lm_waitset_wake_one(struct lm_waitset *set);
/* A bit per worker that sleeps. What the caller wrote before, each of them sees once it is woken.
 */
uint64_t lm_waitset_sleepers(struct lm_waitset *set);
void lm_waitset_wake_all(struct lm_waitset *set);

#endif
