/* fallbacks.h: which models may answer in the place of one that cannot. The control thread writes
 * the lists and I/O threads read them, an index at a time. */
#ifndef LM_FLOW_FALLBACKS_H
#define LM_FLOW_FALLBACKS_H

#include <stdint.h>

#include "base/atomics.h"
#include "lumen_upstreams.h"

/* A model's: 1 + the index of the n-th, in bits 16 n of the words; 0: there is none. */
enum { LM_FALLBACKS_A_WORD = 4, LM_FALLBACK_WORDS = LUMEN_FALLBACKS_MAX / LM_FALLBACKS_A_WORD };
struct lm_fallback_list {
    lm_atomic_u64 words[LM_FALLBACK_WORDS];
};
_Static_assert(LUMEN_MODELS_MAX < 1 << 16, "an index has 16 bits");

struct lm_fallbacks {
    struct lm_fallback_list of[LUMEN_MODELS_MAX];
    lm_atomic_u32 any; /* 1: some model has some */
};

/* The n-th model in the place of this one; UINT32_MAX: there is none. */
static inline uint32_t lm_fallbacks_at(const struct lm_fallbacks *fallbacks, uint32_t model,
                                       uint32_t n) {
    if (n >= LUMEN_FALLBACKS_MAX) return UINT32_MAX;
    /* relaxed: an index, which the reader looks up in the set that it uses */
    const uint64_t word = lm_load_relaxed_u64(&fallbacks->of[model].words[n / LM_FALLBACKS_A_WORD]);
    return (uint32_t)(word >> 16 * (n % LM_FALLBACKS_A_WORD) & 0xffff) - 1;
}
static inline bool lm_fallbacks_are_any(const struct lm_fallbacks *fallbacks) {
    return lm_load_relaxed_u32(&fallbacks->any); /* relaxed: as above */
}

#endif
