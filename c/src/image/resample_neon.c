/* resample_neon.c: the two passes with NEON: each byte, widened to 16 bits, times the high and the
 * low half of its weight.
 */
#include "image/resample_neon.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <string.h>

static uint16x4_t round_sums(int32x4_t high, int32x4_t low) {
    int32x4_t sum = vaddq_s32(vshlq_n_s32(high, LM_WEIGHT_LOW_BITS), low);
    sum = vaddq_s32(sum, vdupq_n_s32(1 << (LM_WEIGHT_BITS - 1)));
    return vqmovun_s32(vshrq_n_s32(sum, LM_WEIGHT_BITS));
}

/* high[0], high[1], low[0], low[1] */
static int16x4_t load_pair(const struct lm_weight_pair *pair) {
    return vld1_s16((const int16_t *)(const void *)pair);
}

/* Three colours of a pixel, beside a lane that does not count. */
static int16x4_t load_pixel(const uint8_t *pixel) {
    return vreinterpret_s16_u16(vget_low_u16(vmovl_u8(vld1_u8(pixel))));
}

static void across(const struct lm_weights *weights, const uint8_t *row, uint8_t *out) {
    for (uint32_t i = 0; i < weights->count; i++, out += 3) {
        const uint8_t *pixel = row + 3 * (size_t)weights->taps[i].begin;
        const struct lm_weight_pair *pair = weights->pairs + (size_t)i * weights->pairs_max;
        int32x4_t high = vdupq_n_s32(0), low = high;
        uint32_t tap = 0, taps = weights->taps[i].count;
        for (; tap + 2 <= taps; tap += 2, pixel += 6, pair++) {
            int16x4_t factors = load_pair(pair), one = load_pixel(pixel),
                      other = load_pixel(pixel + 3);
            high = vmlal_lane_s16(vmlal_lane_s16(high, one, factors, 0), other, factors, 1);
            low = vmlal_lane_s16(vmlal_lane_s16(low, one, factors, 2), other, factors, 3);
        }
        if (tap < taps) {
            int16x4_t factors = load_pair(pair), one = load_pixel(pixel);
            high = vmlal_lane_s16(high, one, factors, 0);
            low = vmlal_lane_s16(low, one, factors, 2);
        }
        uint16x4_t rounded = round_sums(high, low);
        uint8x8_t bytes = vqmovn_u16(vcombine_u16(rounded, rounded));
        uint32_t four = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
        memcpy(out, &four, sizeof four); /* the next pixel overwrites the fourth */
    }
}

/* Sums of 16 columns. */
struct sums {
    int32x4_t high[4], low[4];
};

static inline void add_row(struct sums *sums, const uint8_t *row, int16_t high, int16_t low) {
    uint8x16_t bytes = vld1q_u8(row);
    int16x8_t half[2] = {vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes))),
                         vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(bytes)))};
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) {
        int16x4_t four = i % 2 ? vget_high_s16(half[i / 2]) : vget_low_s16(half[i / 2]);
        sums->high[i] = vmlal_n_s16(sums->high[i], four, high);
        sums->low[i] = vmlal_n_s16(sums->low[i], four, low);
    }
}

static void down(const uint8_t *const *rows, const struct lm_weight_pair *pairs, uint32_t taps,
                 uint8_t *out, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 16) {
        struct sums sums;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; i++) sums.high[i] = sums.low[i] = vdupq_n_s32(0);
        for (uint32_t tap = 0; tap < taps; tap++) {
            const struct lm_weight_pair *pair = &pairs[tap / 2];
            add_row(&sums, rows[tap] + at, pair->high[tap % 2], pair->low[tap % 2]);
        }
        uint16x8_t near = vcombine_u16(round_sums(sums.high[0], sums.low[0]),
                                       round_sums(sums.high[1], sums.low[1]));
        uint16x8_t far = vcombine_u16(round_sums(sums.high[2], sums.low[2]),
                                      round_sums(sums.high[3], sums.low[3]));
        vst1q_u8(out + at, vcombine_u8(vqmovn_u16(near), vqmovn_u16(far)));
    }
}

const struct lm_resample lm_resample_neon = {.name = "neon", .across = across, .down = down};
#endif
