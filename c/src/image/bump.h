/* bump.h: the memory of one picture: handed out from one end, forgotten all at once. Used by the
 * thread that decodes. Under AddressSanitizer nothing else of it can be touched. */
#ifndef LM_IMAGE_BUMP_H
#define LM_IMAGE_BUMP_H

#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

/* SIMD code reads and writes past the end of a row, by less than this. */
#define LM_BUMP_ALIGN 64

struct lm_bump {
    uint8_t *base; /* aligned to LM_BUMP_ALIGN */
    size_t bytes;
    size_t used;
};

/* The next `bytes`, not zeroed, with LM_BUMP_ALIGN bytes of slack behind them; NULL when they do
 * not fit. */
static inline void *lm_bump_alloc(struct lm_bump *bump, size_t bytes) {
    size_t left = bump->bytes - bump->used;
    if (left < 2 * LM_BUMP_ALIGN || bytes > left - 2 * LM_BUMP_ALIGN) return NULL;
    void *at = bump->base + bump->used;
    ASAN_UNPOISON_MEMORY_REGION(at, bytes + LM_BUMP_ALIGN);
    bump->used += lm_align_up(bytes, LM_BUMP_ALIGN) + LM_BUMP_ALIGN;
    return at;
}

static inline void lm_bump_reset(struct lm_bump *bump) {
    ASAN_POISON_MEMORY_REGION(bump->base, bump->used);
    bump->used = 0;
}

#endif
