/* places.h: max_in_flight, counted for the whole server in one word that all I/O threads share.
 *
 * Bits 0 to 31 of the word are the requests in flight, 32 to 47 the I/O threads in which requests
 * wait for a place, 48 to 55 the thread that took one last. While others wait, a thread takes no
 * second place in a row before another one has had its turn, or LM_PLACE_TURN_NS have passed (the
 * other may be running a model): so that requests that wait in one thread are not starved by
 * those of another. Within a thread gate.c keeps their order. Without max_in_flight nothing here is
 * touched: the slots are the bound.
 */
#ifndef LM_FLOW_PLACES_H
#define LM_FLOW_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/limits.h"

struct lm_places {
    LM_CACHE_ALIGNED lm_atomic_u64 word;
    uint32_t max; /* 0: no bound */
};

_Static_assert(LUMEN_IO_THREADS_MAX <= 16, "a bit for each I/O thread that waits");

/* A request that asks for a place. */
struct lm_place_call {
    uint32_t thread;
    uint32_t reserve; /* places that are left for others, unless nothing is in flight */
    bool waits;       /* it has waited already */
    bool may_pass;    /* its thread need not let another one have its turn */
};

static inline uint32_t lm_places_taken(const struct lm_places *places) {
    return (uint32_t)lm_load_relaxed_u64(&places->word); /* relaxed: a count, guards nothing */
}

/* How many of them are for those whose bytes are here. */
static inline uint32_t lm_places_reserve(const struct lm_places *places) {
    return places->max / LM_RESERVE_ONE_IN + (places->max % LM_RESERVE_ONE_IN != 0);
}

static inline uint32_t lm_places_left(const struct lm_places *places) {
    uint32_t taken = lm_places_taken(places);
    if (places->max == 0) return UINT32_MAX / 2;
    return taken < places->max ? places->max - taken : 0;
}

/* false: none is free, or it is another thread's turn; a request that waits is noted then. */
static inline bool lm_places_take(struct lm_places *places, const struct lm_place_call *call) {
    if (places->max == 0) return true;
    /* relaxed, here and below: the word is a count and a hint who is next, and guards nothing */
    uint64_t word = lm_load_relaxed_u64(&places->word), next;
    uint64_t own = 1ull << (32 + call->thread);
    bool takes;
    do {
        uint64_t taken = (uint32_t)word, others = word & 0xffff00000000ull & ~own;
        uint32_t reserve = taken == 0 ? 0 : call->reserve;
        bool in_turn = !call->waits ? false : (uint8_t)(word >> 48) != call->thread;
        takes = taken + reserve < places->max && (!others || in_turn || call->may_pass);
        next = takes         ? ((word + 1) & 0xffffffffffffull) | (uint64_t)call->thread << 48
               : call->waits ? word | own
                             : word;
    } while (next != word && !lm_cas_weak_relaxed_u64(&places->word, &word, next));
    return takes;
}

/* Returns the threads in which requests wait, a bit for each. */
static inline uint32_t lm_places_give(struct lm_places *places) {
    if (places->max == 0) return 0;
    /* relaxed: as above */
    return (uint32_t)(lm_sub_relaxed_u64(&places->word, 1) >> 32) & 0xffff;
}

/* No request waits in this thread any more. */
static inline void lm_places_forget(struct lm_places *places, uint32_t thread) {
    uint64_t own = 1ull << (32 + thread);
    /* relaxed, both: as above */
    if (places->max == 0 || !(lm_load_relaxed_u64(&places->word) & own)) return;
    (void)lm_and_relaxed_u64(&places->word, ~own);
}

#endif
