/* resample.c: see resample.h. The plain kernel, and the choice. */
#include "image/resample.h"

#include <string.h>

#include "base/processor.h"
#include "image/resample_neon.h"
#include "image/resample_x86.h"

static uint8_t rounded(int32_t sum) {
    int32_t value = sum >> LM_WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

enum { HALF = 1 << (LM_WEIGHT_BITS - 1) };

static void across_scalar(const struct lm_weights *weights, const uint8_t *row, uint8_t *out) {
    for (uint32_t i = 0; i < weights->count; i++, out += 3) {
        const uint8_t *pixel = row + 3 * (size_t)weights->taps[i].begin;
        const struct lm_weight_pair *pairs = weights->pairs + (size_t)i * weights->pairs_max;
        int32_t red = HALF, green = HALF, blue = HALF;
        for (uint32_t tap = 0; tap < weights->taps[i].count; tap++, pixel += 3) {
            int32_t weight = lm_weight(pairs, tap);
            red += pixel[0] * weight;
            green += pixel[1] * weight;
            blue += pixel[2] * weight;
        }
        out[0] = rounded(red);
        out[1] = rounded(green);
        out[2] = rounded(blue);
    }
}

static void down_scalar(const uint8_t *const *rows, const struct lm_weight_pair *pairs,
                        uint32_t taps, uint8_t *out, size_t bytes) {
    enum { CHUNK = 256 };
    int32_t sums[CHUNK];
    for (size_t at = 0; at < bytes; at += CHUNK) {
        size_t count = bytes - at < CHUNK ? bytes - at : CHUNK;
        for (size_t i = 0; i < count; i++) sums[i] = HALF;
        for (uint32_t tap = 0; tap < taps; tap++) {
            const uint8_t *row = rows[tap] + at;
            int32_t weight = lm_weight(pairs, tap);
            for (size_t i = 0; i < count; i++) sums[i] += row[i] * weight;
        }
        for (size_t i = 0; i < count; i++) out[at + i] = rounded(sums[i]);
    }
}

static const struct lm_resample scalar = {
    .name = "scalar", .across = across_scalar, .down = down_scalar};

static const struct lm_resample *const kernels[] = {
#if defined(__x86_64__)
    &lm_resample_avx512,
    &lm_resample_avx2,
#elif defined(__aarch64__)
    &lm_resample_neon,
#endif
    &scalar,
};
enum { KERNEL_COUNT = sizeof kernels / sizeof kernels[0] };

static uint32_t first_kernel(void) {
#if defined(__x86_64__)
    uint32_t processor = lm_processor();
    return processor & LM_PROCESSOR_AVX512_VN ? 0 : processor & LM_PROCESSOR_AVX2 ? 1 : 2;
#else
    return 0;
#endif
}

const struct lm_resample *lm_resample_kernel(uint32_t index) {
    uint32_t at = first_kernel() + index;
    return at < KERNEL_COUNT ? kernels[at] : NULL;
}

/* Four bytes are copied for each pixel: the next one overwrites the fourth. Begins change by at
 * most 1 or by at least 1 from one pixel to the next, so the last one tells whether all are
 * neighbours.
 */
void lm_resample_pick(const struct lm_weights *weights, const uint8_t *row, uint8_t *out) {
    const struct lm_taps *taps = weights->taps;
    uint32_t count = weights->count;
    if (taps[0].begin == 0 && taps[count - 1].begin == count - 1) {
        memcpy(out, row, 3 * (size_t)count);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        memcpy(out + 3 * (size_t)i, row + 3 * (size_t)taps[i].begin, 4);
}
