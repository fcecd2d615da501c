/* waitset.c: see waitset.h. */
#include "parts/waitset.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long futex(lm_atomic_u32 *word, int operation, uint32_t value,
                  const struct timespec *until) {
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, until, NULL,
                   FUTEX_BITSET_MATCH_ANY);
}

void lm_waitset_init(struct lm_waitset *set) {
    memset(set, 0, sizeof *set);
}

void lm_waitset_prepare(struct lm_waitset *set, uint32_t index, uint64_t now_ns) {
    struct lm_waitset_seat *seat = &set->seats[index];
    /* relaxed, both: W1 releases them to the producer that sees the bit */
    lm_store_relaxed_u32(&seat->woken, 0);
    lm_store_relaxed_u64(&seat->parked_at, now_ns);
    /* W1: acquire sees a push whose P1 came first, release shows the seat; pairs with P1 and S1 */
    (void)lm_or_acq_rel_u64(&set->sleepers, 1ull << index);
}

void lm_waitset_cancel(struct lm_waitset *set, uint32_t index) {
    /* A producer that already took the bit wakes a worker that is awake: harmless.
     * acq_rel: keeps every write to this word a read-modify-write, as W1 and P1 need */
    (void)lm_and_acq_rel_u64(&set->sleepers, ~(1ull << index));
}

void lm_waitset_sleep(struct lm_waitset *set, uint32_t index, uint64_t until_ns) {
    struct lm_waitset_seat *seat = &set->seats[index];
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    const struct timespec *limit = until_ns == UINT64_MAX ? NULL : &until;
    /* relaxed: a hint, the kernel compares the word again */
    while (lm_load_relaxed_u32(&seat->woken) == 0) {
        /* EAGAIN, EINTR, ETIMEDOUT: the caller looks again */
        if (futex(&seat->woken, FUTEX_WAIT_BITSET, 0, limit) != 0) break;
    }
    lm_waitset_cancel(set, index);
}

static void wake_seat(struct lm_waitset *set, uint32_t index) {
    /* relaxed: only a hint, the queue is the edge */
    lm_store_relaxed_u32(&set->seats[index].woken, 1);
    futex(&set->seats[index].woken, FUTEX_WAKE, 1, NULL);
}

static uint32_t warmest(const struct lm_waitset *set, uint64_t sleepers) {
    uint32_t best = 0;
    uint64_t best_at = 0;
    for (uint64_t rest = sleepers; rest; rest &= rest - 1) {
        uint32_t index = (uint32_t)__builtin_ctzll(rest);
        /* relaxed: a stale time only costs warmth */
        uint64_t at = lm_load_relaxed_u64(&set->seats[index].parked_at);
        if (at >= best_at) {
            best_at = at;
            best = index;
        }
    }
    return best;
}

bool lm_waitset_wake_one(struct lm_waitset *set) {
    /* P1: release shows the push to the worker whose W1 comes later; acquire pairs with W1 and S1.
     * It must write even when no bit is set: a plain load could pass the push and miss a worker at
     * W1. */
    uint64_t sleepers = lm_or_acq_rel_u64(&set->sleepers, 0);
    while (sleepers) {
        uint32_t index = warmest(set, sleepers);
        uint64_t bit = 1ull << index;
        /* acq_rel: as P1; decides between two producers which of them wakes this worker */
        sleepers = lm_and_acq_rel_u64(&set->sleepers, ~bit);
        if (sleepers & bit) {
            wake_seat(set, index);
            return true;
        }
    }
    return false;
}

uint64_t lm_waitset_sleepers(struct lm_waitset *set) {
    /* S1: acq_rel: comes before the W1 or the P1 of whoever clears a bit that is set here, and
     * shows them what was written before; pairs with W1 and P1 */
    return lm_and_acq_rel_u64(&set->sleepers, UINT64_MAX);
}

void lm_waitset_wake_all(struct lm_waitset *set) {
    /* acq_rel: as P1 */
    uint64_t sleepers = lm_and_acq_rel_u64(&set->sleepers, 0);
    for (; sleepers; sleepers &= sleepers - 1) wake_seat(set, (uint32_t)__builtin_ctzll(sleepers));
}
