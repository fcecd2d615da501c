/* resample.h: the two passes of a resize over rows of RGB bytes. The kernel is chosen by what the
 * processor has; all of them give Pillow's bits. Used on the thread that owns the row sink.
 *
 * A sum is exact in 32 bits, whichever way the 22-bit weights are split and whatever wraps on the
 * way: 255 times the weights of one pixel, in absolute values, stays below 2^31.
 */
#ifndef LM_IMAGE_RESAMPLE_H
#define LM_IMAGE_RESAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "image/weights.h"

/* Bytes past the end of a row that may be read, and past the end of a result that may be written.
 */
enum { LM_IMAGE_SLACK = 64 };

struct lm_resample {
    const char *name;
    /* Room for the weights as `across` wants them, and their making, in memory aligned to 64; NULL
     * where it wants them as they are. */
    size_t (*packed_bytes)(uint32_t count, uint32_t taps_max);
    void (*pack)(struct lm_weights *weights, void *memory);
    /* Makes weights->count pixels of one row, which begins at pixel weights->first of the source.
     * Not for copies. */
    void (*across)(const struct lm_weights *weights, const uint8_t *row, uint8_t *out);
    /* Makes `bytes` values, each of `taps` rows. */
    void (*down)(const uint8_t *const *rows, const struct lm_weight_pair *pairs, uint32_t taps,
                 uint8_t *out, size_t bytes);
};

/* The kernels that this processor can run, the fastest first; NULL past the last. */
const struct lm_resample *lm_resample_kernel(uint32_t index);

/* The same as `across`, for copies. */
void lm_resample_pick(const struct lm_weights *weights, const uint8_t *row, uint8_t *out);

#endif
