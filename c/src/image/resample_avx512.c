/* resample_avx512.c: the two passes with AVX-512, VBMI and VNNI.
 *
 * Across, vpdpbusd multiplies a byte of four neighbouring pixels with a byte of four weights and
 * adds them: a weight is three signed bytes, so three sums make one. A vector holds the three
 * colours of five pixels. vpermb takes their bytes out of a window of 64 bytes of the row, or of
 * 128 where the picture gets a quarter as wide or less; beyond a tenth it is AVX2's turn. Down,
 * vpdpwssd does what resample_avx2.c does in two steps.
 */
#include "image/resample_x86.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))

enum { BLOCK = 5 }; /* pixels that are made at once */

/* Sixteen lanes: the weights of four taps, and where their bytes are in the window. */
struct quad {
    uint32_t low[16], middle[16], high[16];
};
struct picks {
    uint32_t at[16];
};

/* Before them: where the windows of the blocks begin, in bytes of the row. */
struct packed {
    uint32_t window; /* bytes; 0: what follows is AVX2's */
    uint32_t quads;  /* of each block */
    uint32_t reserved[14];
    uint32_t begins[];
};

static uint32_t block_count(uint32_t count) {
    return (count + BLOCK - 1) / BLOCK;
}

static size_t begins_bytes(uint32_t count) {
    return (sizeof(struct packed) + block_count(count) * sizeof(uint32_t) + 63) / 64 * 64;
}

static size_t packed_bytes(uint32_t count, uint32_t taps_max) {
    size_t block = sizeof(struct picks) + (taps_max + 3) / 4 * sizeof(struct quad);
    size_t here = begins_bytes(count) + block_count(count) * block;
    size_t there = sizeof(struct packed) + lm_resample_avx2.packed_bytes(count, taps_max);
    return here > there ? here : there;
}

/* Pixels are made in order of `taps`, which may be from the row's end to its beginning. A pixel's
 * quads begin at pixel `begin` of the row, maybe before the first tap. */
static void pack_pixel(const struct lm_weights *weights, uint32_t pixel, uint32_t begin,
                       uint32_t window, struct picks *picks) {
    const struct lm_taps *taps = &weights->taps[pixel];
    const struct lm_weight_pair *pairs = weights->pairs + (size_t)pixel * weights->pairs_max;
    struct quad *quads = (void *)(picks + 1);
    uint32_t lane = pixel % BLOCK * 3, place = taps->begin - begin;
    uint32_t at = 3 * begin - window;
    for (uint32_t colour = 0; colour < 3; colour++)
        picks->at[lane + colour] = 0x09060300 + 0x01010101 * (at + colour);
    for (uint32_t tap = 0; tap < taps->count; tap++, place++) {
        int32_t weight = lm_weight(pairs, tap);
        uint32_t shift = 8 * (place % 4);
        struct quad *quad = &quads[place / 4];
        quad->low[lane] |= (uint32_t)(weight & 0xff) << shift;
        quad->middle[lane] |= (uint32_t)((weight + 0x80) >> 8 & 0xff) << shift;
        quad->high[lane] |= (uint32_t)((weight + 0x8080) >> 16 & 0xff) << shift;
    }
    for (uint32_t q = 0; q <= (place - 1) / 4; q++) {
        uint32_t *parts[3] = {quads[q].low + lane, quads[q].middle + lane, quads[q].high + lane};
        for (uint32_t part = 0; part < 3; part++) parts[part][1] = parts[part][2] = parts[part][0];
    }
}

/* The first pixel that is read for `pixel`: quads are read as a whole, so near the row's end it is
 * one before the first tap, with a weight of 0. */
static uint32_t begin_of(const struct lm_weights *weights, uint32_t pixel, uint32_t quads) {
    uint32_t width = weights->end - weights->first, begin = weights->taps[pixel].begin;
    uint32_t last = width > 4 * quads ? width - 4 * quads : 0;
    return begin < last ? begin : last;
}

/* Fills in where the windows begin, so that no more than LM_IMAGE_SLACK is read past the row; false
 * where a block's bytes are not in one window. */
static bool place_windows(const struct lm_weights *weights, struct packed *packed) {
    int64_t room = 3 * (int64_t)(weights->end - weights->first) + LM_IMAGE_SLACK;
    int64_t last = room - packed->window - 12 * (int64_t)(packed->quads - 1);
    for (uint32_t b = 0; b < block_count(weights->count); b++) {
        uint32_t first = b * BLOCK, left = weights->count - first;
        uint32_t end = first + (left < BLOCK ? left : BLOCK);
        uint32_t one = begin_of(weights, first, packed->quads);
        uint32_t other = begin_of(weights, end - 1, packed->quads);
        int64_t begin = 3 * (int64_t)(one < other ? one : other);
        int64_t past = 3 * (int64_t)(one < other ? other : one) + 12;
        begin = begin < last ? begin : last;
        if (begin < 0 || past - begin > packed->window) return false;
        packed->begins[b] = (uint32_t)begin;
    }
    return true;
}

static void pack(struct lm_weights *weights, void *memory) {
    struct packed *packed = memory;
    *packed = (struct packed){.window = 64, .quads = (weights->taps_max + 3) / 4};
    bool fits = place_windows(weights, packed);
    if (!fits) {
        packed->window = 128;
        fits = place_windows(weights, packed);
    }
    if (!fits) {
        packed->window = 0;
        lm_resample_avx2.pack(weights, packed + 1);
        weights->packed = memory;
        return;
    }
    size_t block = sizeof(struct picks) + packed->quads * sizeof(struct quad);
    uint8_t *blocks = (uint8_t *)memory + begins_bytes(weights->count);
    memset(blocks, 0, block_count(weights->count) * block);
    for (uint32_t pixel = 0; pixel < weights->count; pixel++) {
        uint32_t b = pixel / BLOCK;
        pack_pixel(weights, pixel, begin_of(weights, pixel, packed->quads), packed->begins[b],
                   (void *)(blocks + b * block));
    }
    weights->packed = memory;
}

/* `quads` and `wide` are constants where this is called. */
AVX512 __attribute__((always_inline)) static inline void blocks_across(const struct packed *packed,
                                                                       uint32_t count,
                                                                       const uint8_t *row,
                                                                       uint8_t *out, uint32_t quads,
                                                                       bool wide) {
    const uint8_t *at = (const uint8_t *)packed + begins_bytes(count);
    const __m512i half = _mm512_set1_epi32(1 << (LM_WEIGHT_BITS - 1));
    for (uint32_t b = 0; b < block_count(count); b++, out += 3 * BLOCK) {
        const uint8_t *from = row + packed->begins[b];
        const __m512i picks = _mm512_load_si512(at);
        const struct quad *quad = (const void *)(at + sizeof(struct picks));
        __m512i low = half, middle = _mm512_setzero_si512(), high = middle;
#pragma GCC unroll 4
        for (uint32_t q = 0; q < quads; q++, from += 12, quad++) {
            __m512i bytes = _mm512_loadu_si512(from);
            bytes = wide ? _mm512_permutex2var_epi8(bytes, picks, _mm512_loadu_si512(from + 64))
                         : _mm512_permutexvar_epi8(picks, bytes);
            low = _mm512_dpbusd_epi32(low, bytes, _mm512_load_si512(quad->low));
            middle = _mm512_dpbusd_epi32(middle, bytes, _mm512_load_si512(quad->middle));
            high = _mm512_dpbusd_epi32(high, bytes, _mm512_load_si512(quad->high));
        }
        at = (const uint8_t *)quad;
        __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high, 8), middle);
        sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 8), low);
        sum = _mm512_max_epi32(_mm512_srai_epi32(sum, LM_WEIGHT_BITS), _mm512_setzero_si512());
        _mm_storeu_si128((__m128i *)out, _mm512_cvtusepi32_epi8(sum));
    }
}

AVX512 static void across(const struct lm_weights *weights, const uint8_t *row, uint8_t *out) {
    const struct packed *packed = weights->packed;
    uint32_t count = weights->count;
    if (packed->window == 0) {
        struct lm_weights other = *weights;
        other.packed = (void *)(uintptr_t)(packed + 1);
        lm_resample_avx2.across(&other, row, out);
    } else if (packed->window == 128) {
        blocks_across(packed, count, row, out, packed->quads, true);
    } else if (packed->quads == 1) {
        blocks_across(packed, count, row, out, 1, false);
    } else if (packed->quads == 2) {
        blocks_across(packed, count, row, out, 2, false);
    } else if (packed->quads == 3) {
        blocks_across(packed, count, row, out, 3, false);
    } else {
        blocks_across(packed, count, row, out, packed->quads, false);
    }
}

AVX512 static inline __m512i round_sums(__m512i sum) {
    sum = _mm512_add_epi32(sum, _mm512_set1_epi32(1 << (LM_WEIGHT_BITS - 1)));
    return _mm512_srai_epi32(sum, LM_WEIGHT_BITS);
}

/* Sums of 64 columns, in the order in which bytes are unpacked to words twice. */
struct sums {
    __m512i high[4], low[4];
};

AVX512 static inline void add_rows(struct sums *sums, __m512i a, __m512i b,
                                   const struct lm_weight_pair *pair) {
    int32_t factors[2];
    memcpy(factors, pair, sizeof factors);
    const __m512i high = _mm512_set1_epi32(factors[0]), low = _mm512_set1_epi32(factors[1]);
    const __m512i zero = _mm512_setzero_si512();
    __m512i near = _mm512_unpacklo_epi8(a, b), far = _mm512_unpackhi_epi8(a, b);
    __m512i words[4] = {_mm512_unpacklo_epi8(near, zero), _mm512_unpackhi_epi8(near, zero),
                        _mm512_unpacklo_epi8(far, zero), _mm512_unpackhi_epi8(far, zero)};
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) {
        sums->high[i] = _mm512_dpwssd_epi32(sums->high[i], words[i], high);
        sums->low[i] = _mm512_dpwssd_epi32(sums->low[i], words[i], low);
    }
}

AVX512 static void down(const uint8_t *const *rows, const struct lm_weight_pair *pairs,
                        uint32_t taps, uint8_t *out, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) {
        struct sums sums;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; i++) sums.high[i] = sums.low[i] = _mm512_setzero_si512();
        uint32_t tap = 0;
        for (; tap + 2 <= taps; tap += 2) {
            add_rows(&sums, _mm512_loadu_si512(rows[tap] + at),
                     _mm512_loadu_si512(rows[tap + 1] + at), &pairs[tap / 2]);
        }
        if (tap < taps) {
            add_rows(&sums, _mm512_loadu_si512(rows[tap] + at), _mm512_setzero_si512(),
                     &pairs[tap / 2]);
        }
        __m512i rounded[4];
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; i++) {
            rounded[i] = round_sums(
                _mm512_add_epi32(_mm512_slli_epi32(sums.high[i], LM_WEIGHT_LOW_BITS), sums.low[i]));
        }
        _mm512_storeu_si512(out + at,
                            _mm512_packus_epi16(_mm512_packs_epi32(rounded[0], rounded[1]),
                                                _mm512_packs_epi32(rounded[2], rounded[3])));
    }
}

const struct lm_resample lm_resample_avx512 = {
    .name = "avx512", .packed_bytes = packed_bytes, .pack = pack, .across = across, .down = down};
#endif
