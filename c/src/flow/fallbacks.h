/* fallbacks.h: which models may answer in the place of one that cannot. A list is one word, which
 * the control thread writes and I/O threads read. */
#ifndef LM_FLOW_FALLBACKS_H
#define LM_FLOW_FALLBACKS_H

#include <stdint.h>

#include "base/atomics.h"
#include "lumen_upstreams.h"

_Static_assert(LUMEN_MODELS_MAX < 256 && LUMEN_FALLBACKS_MAX == 8, "a list is a word of bytes");

struct lm_fallbacks {
    lm_atomic_u64 of[LUMEN_MODELS_MAX]; /* byte n: 1 + the index of the n-th; 0: there is none */
    lm_atomic_u32 any;                  /* 1: some model has some */
};

/* The n-th model in the place of this one; UINT32_MAX: there is none. */
static inline uint32_t lm_fallbacks_at(const struct lm_fallbacks *fallbacks, uint32_t model,
                                       uint32_t n) {
    if (n >= LUMEN_FALLBACKS_MAX) return UINT32_MAX;
    /* relaxed: an index, which the reader looks up in the set that it uses */
    const uint64_t list = lm_load_relaxed_u64(&fallbacks->of[model]);
    return (uint32_t)(list >> 8 * n & 0xff) - 1;
}
static inline bool lm_fallbacks_are_any(const struct lm_fallbacks *fallbacks) {
    return lm_load_relaxed_u32(&fallbacks->any); /* relaxed: as above */
}

#endif
