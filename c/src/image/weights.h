/* weights.h: which source pixels make one side of a resized picture, and with which weights:
 * Pillow's numbers. Made on the thread that owns the picture's row sink.
 */
#ifndef LM_IMAGE_WEIGHTS_H
#define LM_IMAGE_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/geometry.h"

/* Fraction bits of a weight. */
enum { LM_WEIGHT_BITS = 22, LM_WEIGHT_LOW_BITS = 11 };

/* Two weights, each as high * 2048 + low: factors of 16 bits, which vectors multiply in pairs. */
struct lm_weight_pair {
    int16_t high[2], low[2];
};

struct lm_taps {
    uint32_t begin; /* stored source pixel, counted from `first` on */
    uint32_t count;
};

struct lm_weights {
    uint32_t first, end; /* the stored source pixels that are used */
    uint32_t count;      /* pixels made, in the upright picture's order */
    uint32_t taps_max;   /* of one pixel; 1: each pixel is a copy */
    uint32_t pairs_max;  /* half of taps_max, rounded up */
    const struct lm_taps *taps;
    const struct lm_weight_pair *pairs; /* pairs_max for each pixel; 0 behind its last tap */
    void *packed;                       /* the same as a kernel wants them (resample.h) */
};

static inline int32_t lm_weight(const struct lm_weight_pair *pairs, uint32_t tap) {
    const struct lm_weight_pair *pair = &pairs[tap / 2];
    return pair->high[tap % 2] * (1 << LM_WEIGHT_LOW_BITS) + pair->low[tap % 2];
}

/* No pixel has more taps than so many. */
uint32_t lm_weights_taps_max(const struct lm_image_side *side, enum lm_filter filter);

/* The bytes that lm_weights_make needs; the form that a kernel packs them in is not counted. */
size_t lm_weights_bytes(const struct lm_image_side *side, enum lm_filter filter);

/* Makes the weights of a side in `memory`, aligned to 64; returns how much of it is used for good.
 */
size_t lm_weights_make(struct lm_weights *weights, const struct lm_image_side *side,
                       enum lm_filter filter, void *memory);

#endif
