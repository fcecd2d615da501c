/* random.h: numbers that look random and are the same each time: xorshift64 (Marsaglia, 2003).
 * Not for secrets. A state belongs to one thread. */
#ifndef LM_BASE_RANDOM_H
#define LM_BASE_RANDOM_H

#include <stdint.h>

/* A first state, which is never 0: neighbouring seeds give unrelated sequences (splitmix64). */
static inline uint64_t lm_random_seeded(uint64_t seed) {
    uint64_t z = seed + 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (z ^ (z >> 31)) | 1;
}

static inline uint64_t lm_random_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* 0 <= x < 1. */
static inline double lm_random_unit(uint64_t *state) {
    return (double)(lm_random_next(state) >> 11) * 0x1p-53;
}

#endif
