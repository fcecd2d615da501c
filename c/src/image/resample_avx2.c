/* resample_avx2.c: the two passes with AVX2.
 *
 * vpmaddwd multiplies two bytes of neighbouring pixels or rows with two halves of weights, 16 bits
 * each, and adds them: once with the high halves and once with the low ones, (high << 11) + low in
 * the end. Across, a vector holds the three colours of two pixels, beside a fourth lane of nothing.
 */
#include "image/resample_x86.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))

enum { BLOCK = 4 }; /* pixels that are made at once: 0 and 2 in one vector, 1 and 3 in another */

struct block {
    uint32_t at[BLOCK]; /* first byte */
    uint32_t pairs;     /* of taps */
    uint32_t weights;   /* index of the block's first vector: high and low of both, by pair */
};

static uint32_t block_count(uint32_t count) {
    return (count + BLOCK - 1) / BLOCK;
}

static size_t blocks_bytes(uint32_t count) {
    return (block_count(count) * sizeof(struct block) + 63) / 64 * 64;
}

static size_t packed_bytes(uint32_t count, uint32_t taps_max) {
    return blocks_bytes(count) + (size_t)block_count(count) * ((taps_max + 1) / 2) * 128;
}

/* Pixel i of a block, whose pairs of taps begin at pixel `begin`, maybe before the first tap. */
static void pack_pixel(const struct lm_weights *weights, uint32_t pixel, uint32_t i, uint32_t begin,
                       int16_t *vectors) {
    const struct lm_taps *taps = &weights->taps[pixel];
    const struct lm_weight_pair *pairs = weights->pairs + (size_t)pixel * weights->pairs_max;
    for (uint32_t tap = 0; tap < taps->count; tap++) {
        uint32_t place = taps->begin - begin + tap;
        int16_t *high = vectors + place / 2 * 64 + i % 2 * 32 + i / 2 * 8 + place % 2;
        for (uint32_t colour = 0; colour < 3; colour++) {
            high[2 * colour] = pairs[tap / 2].high[tap % 2];
            high[2 * colour + 16] = pairs[tap / 2].low[tap % 2];
        }
    }
}

/* Taps are read four at a time: a pixel near the row's end begins earlier, with weights of 0. */
static void pack(struct lm_weights *weights, void *memory) {
    struct block *blocks = memory;
    int16_t *vectors = (void *)((uint8_t *)memory + blocks_bytes(weights->count));
    uint32_t width = weights->end - weights->first, next = 0;
    for (uint32_t b = 0; b < block_count(weights->count); b++) {
        uint32_t left = weights->count - b * BLOCK, pixels = left < BLOCK ? left : BLOCK;
        uint32_t pairs = 0;
        for (uint32_t i = 0; i < pixels; i++) {
            uint32_t taps = weights->taps[b * BLOCK + i].count;
            pairs = (taps + 1) / 2 > pairs ? (taps + 1) / 2 : pairs;
        }
        uint32_t last = width > 2 * pairs ? width - 2 * pairs : 0;
        blocks[b] = (struct block){.pairs = pairs, .weights = next};
        memset(vectors, 0, pairs * 128);
        for (uint32_t i = 0; i < pixels; i++) {
            uint32_t begin = weights->taps[b * BLOCK + i].begin;
            begin = begin < last ? begin : last;
            blocks[b].at[i] = 3 * begin;
            pack_pixel(weights, b * BLOCK + i, i, begin, vectors);
        }
        vectors += pairs * 64;
        next += pairs * 4;
    }
    weights->packed = memory;
}

/* Sums of bytes: rounds, and brings them to 16 bits. */
AVX2 static inline __m256i round_sums(__m256i high, __m256i low) {
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, LM_WEIGHT_LOW_BITS), low);
    sum = _mm256_add_epi32(sum, _mm256_set1_epi32(1 << (LM_WEIGHT_BITS - 1)));
    return _mm256_srai_epi32(sum, LM_WEIGHT_BITS);
}

AVX2 static inline __m256i load_two(const uint8_t *low, const uint8_t *high) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)low)),
                                   _mm_loadu_si128((const __m128i *)high), 1);
}

AVX2 static inline void add_pair(__m256i bytes, __m256i mask, const __m256i *weights, __m256i *high,
                                 __m256i *low) {
    __m256i words = _mm256_shuffle_epi8(bytes, mask);
    *high = _mm256_add_epi32(*high, _mm256_madd_epi16(words, weights[0]));
    *low = _mm256_add_epi32(*low, _mm256_madd_epi16(words, weights[1]));
}

AVX2 static void across(const struct lm_weights *weights, const uint8_t *row, uint8_t *out) {
    const struct block *block = weights->packed, *end = block + block_count(weights->count);
    const __m256i *all =
        (const void *)((const uint8_t *)weights->packed + blocks_bytes(weights->count));
    /* The colours of taps 0 and 1, then of 2 and 3, as words. */
    const __m256i first = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    const __m256i second = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
    const __m256i join = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
    for (; block < end; block++, out += 3 * BLOCK) {
        const __m256i *at = all + block->weights;
        const uint8_t *p0 = row + block->at[0], *p1 = row + block->at[1], *p2 = row + block->at[2],
                      *p3 = row + block->at[3];
        __m256i high0 = _mm256_setzero_si256(), low0 = high0, high1 = high0, low1 = high0;
        uint32_t pair = 0;
        for (; pair + 2 <= block->pairs; pair += 2, at += 8) {
            __m256i even = load_two(p0 + 6 * pair, p2 + 6 * pair);
            __m256i odd = load_two(p1 + 6 * pair, p3 + 6 * pair);
            add_pair(even, first, at, &high0, &low0);
            add_pair(odd, first, at + 2, &high1, &low1);
            add_pair(even, second, at + 4, &high0, &low0);
            add_pair(odd, second, at + 6, &high1, &low1);
        }
        if (pair < block->pairs) {
            add_pair(load_two(p0 + 6 * pair, p2 + 6 * pair), first, at, &high0, &low0);
            add_pair(load_two(p1 + 6 * pair, p3 + 6 * pair), first, at + 2, &high1, &low1);
        }
        __m256i words = _mm256_packs_epi32(round_sums(high0, low0), round_sums(high1, low1));
        __m256i bytes = _mm256_shuffle_epi8(_mm256_packus_epi16(words, words), join);
        _mm_storel_epi64((__m128i *)out, _mm256_castsi256_si128(bytes));
        _mm_storel_epi64((__m128i *)(out + 6), _mm256_extracti128_si256(bytes, 1));
    }
}

/* Sums of 32 columns, in the order in which bytes are unpacked to words twice. */
struct sums {
    __m256i high[4], low[4];
};

AVX2 static inline void add_rows(struct sums *sums, __m256i a, __m256i b,
                                 const struct lm_weight_pair *pair) {
    int32_t factors[2];
    memcpy(factors, pair, sizeof factors);
    const __m256i high = _mm256_set1_epi32(factors[0]), low = _mm256_set1_epi32(factors[1]);
    const __m256i zero = _mm256_setzero_si256();
    __m256i near = _mm256_unpacklo_epi8(a, b), far = _mm256_unpackhi_epi8(a, b);
    __m256i words[4] = {_mm256_unpacklo_epi8(near, zero), _mm256_unpackhi_epi8(near, zero),
                        _mm256_unpacklo_epi8(far, zero), _mm256_unpackhi_epi8(far, zero)};
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) {
        sums->high[i] = _mm256_add_epi32(sums->high[i], _mm256_madd_epi16(words[i], high));
        sums->low[i] = _mm256_add_epi32(sums->low[i], _mm256_madd_epi16(words[i], low));
    }
}

AVX2 static void down(const uint8_t *const *rows, const struct lm_weight_pair *pairs, uint32_t taps,
                      uint8_t *out, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 32) {
        struct sums sums;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; i++) sums.high[i] = sums.low[i] = _mm256_setzero_si256();
        uint32_t tap = 0;
        for (; tap + 2 <= taps; tap += 2) {
            add_rows(&sums, _mm256_loadu_si256((const __m256i *)(rows[tap] + at)),
                     _mm256_loadu_si256((const __m256i *)(rows[tap + 1] + at)), &pairs[tap / 2]);
        }
        if (tap < taps) {
            add_rows(&sums, _mm256_loadu_si256((const __m256i *)(rows[tap] + at)),
                     _mm256_setzero_si256(), &pairs[tap / 2]);
        }
        __m256i near = _mm256_packs_epi32(round_sums(sums.high[0], sums.low[0]),
                                          round_sums(sums.high[1], sums.low[1]));
        __m256i far = _mm256_packs_epi32(round_sums(sums.high[2], sums.low[2]),
                                         round_sums(sums.high[3], sums.low[3]));
        _mm256_storeu_si256((__m256i *)(out + at), _mm256_packus_epi16(near, far));
    }
}

const struct lm_resample lm_resample_avx2 = {
    .name = "avx2", .packed_bytes = packed_bytes, .pack = pack, .across = across, .down = down};
#endif
