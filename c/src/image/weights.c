/* weights.c: see weights.h. The numbers are Pillow's, operation by operation in double: no fused
 * multiply and add, which would round once where Pillow rounds twice.
 */
#include "image/weights.h"

#include <math.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc: -std=c11 */
#endif

static double bilinear(double x) {
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double box(double x) {
    return x > -0.5 && x <= 0.5 ? 1 : 0;
}

/* Half the source pixels that count where the picture does not get smaller. */
static double support_of(enum lm_filter filter) {
    return filter == LM_FILTER_BICUBIC ? 2 : filter == LM_FILTER_BILINEAR ? 1 : 0.5;
}

static double scale_of(const struct lm_image_side *side) {
    return (double)side->in / side->out;
}

static bool copies(const struct lm_image_side *side, enum lm_filter filter) {
    return filter == LM_FILTER_NEAREST || side->in == side->out;
}

uint32_t lm_weights_taps_max(const struct lm_image_side *side, enum lm_filter filter) {
    if (copies(side, filter)) return 1;
    double most = ceil(support_of(filter) * fmax(scale_of(side), 1)) * 2 + 1;
    return most < side->in ? (uint32_t)most : side->in;
}

static size_t round_up(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

size_t lm_weights_bytes(const struct lm_image_side *side, enum lm_filter filter) {
    size_t taps = lm_weights_taps_max(side, filter), count = side->count;
    return round_up(count * sizeof(struct lm_taps)) +
           round_up(count * ((taps + 1) / 2) * sizeof(struct lm_weight_pair)) +
           round_up(taps * sizeof(double));
}

/* The weights of a pixel whose middle is at `centre` of the source, in double. */
static void weigh(enum lm_filter filter, double *weights, const struct lm_taps *taps, double centre,
                  double inverse) {
    double sum = 0;
    for (uint32_t i = 0; i < taps->count; i++) {
        double x = ((double)(i + taps->begin) - centre + 0.5) * inverse;
        weights[i] = filter == LM_FILTER_BICUBIC    ? bicubic(x)
                     : filter == LM_FILTER_BILINEAR ? bilinear(x)
                                                    : box(x);
        sum += weights[i];
    }
    for (uint32_t i = 0; i < taps->count && sum != 0; i++) weights[i] /= sum;
}

/* Rounds half away from 0. */
static int32_t fixed(double weight) {
    return (int32_t)((weight < 0 ? -0.5 : 0.5) + weight * (1 << LM_WEIGHT_BITS));
}

static void set_weight(struct lm_weight_pair *pairs, uint32_t tap, int32_t weight) {
    int32_t high = weight >> LM_WEIGHT_LOW_BITS;
    pairs[tap / 2].high[tap % 2] = (int16_t)high;
    pairs[tap / 2].low[tap % 2] = (int16_t)(weight - high * (1 << LM_WEIGHT_LOW_BITS));
}

static struct lm_taps taps_at(double centre, double support, uint32_t in) {
    double from = centre - support + 0.5, to = centre + support + 0.5;
    uint32_t begin = from > 0 ? (uint32_t)from : 0;
    uint32_t end = to < in ? (uint32_t)to : in;
    return (struct lm_taps){.begin = begin, .count = end - begin};
}

static void make_filtered(struct lm_weights *weights, const struct lm_image_side *side,
                          enum lm_filter filter, struct lm_taps *taps, struct lm_weight_pair *pairs,
                          double *exact) {
    double scale = scale_of(side), wider = fmax(scale, 1), inverse = 1 / wider;
    double support = support_of(filter) * wider;
    for (uint32_t i = 0; i < side->count; i++) {
        double centre = (side->first + i + 0.5) * scale;
        taps[i] = taps_at(centre, support, side->in);
        weigh(filter, exact, &taps[i], centre, inverse);
        uint32_t count = taps[i].count;
        for (uint32_t tap = 0; tap < count; tap++)
            set_weight(pairs, side->reversed ? count - 1 - tap : tap, fixed(exact[tap]));
        for (uint32_t tap = count; tap < 2 * weights->pairs_max; tap++) set_weight(pairs, tap, 0);
        pairs += weights->pairs_max;
    }
}

/* Pillow adds up the positions of NEAREST, with the error that grows on the way. */
static void make_copies(const struct lm_image_side *side, struct lm_taps *taps,
                        struct lm_weight_pair *pairs) {
    double scale = scale_of(side), at = scale * 0.5;
    for (uint32_t i = 0; i < side->first; i++) at += scale;
    for (uint32_t i = 0; i < side->count; i++, at += scale) {
        uint32_t begin = (uint32_t)at;
        taps[i] = (struct lm_taps){.begin = begin < side->in ? begin : side->in - 1, .count = 1};
        pairs[i] = (struct lm_weight_pair){.high = {1 << (LM_WEIGHT_BITS - LM_WEIGHT_LOW_BITS)}};
    }
}

size_t lm_weights_make(struct lm_weights *weights, const struct lm_image_side *side,
                       enum lm_filter filter, void *memory) {
    uint32_t taps_max = lm_weights_taps_max(side, filter), count = side->count;
    *weights =
        (struct lm_weights){.count = count, .taps_max = taps_max, .pairs_max = (taps_max + 1) / 2};
    struct lm_taps *taps = memory;
    struct lm_weight_pair *pairs = (void *)((uint8_t *)memory + round_up(count * sizeof *taps));
    size_t pairs_bytes = round_up((size_t)count * weights->pairs_max * sizeof *pairs);
    double *exact = (void *)((uint8_t *)pairs + pairs_bytes);
    if (copies(side, filter)) {
        make_copies(side, taps, pairs);
    } else {
        make_filtered(weights, side, filter, taps, pairs, exact);
    }
    const struct lm_taps *last = &taps[count - 1];
    uint32_t first = taps[0].begin, end = last->begin + last->count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t begin = taps[i].begin;
        taps[i].begin = side->reversed ? end - begin - taps[i].count : begin - first;
    }
    weights->first = side->reversed ? side->in - end : first;
    weights->end = side->reversed ? side->in - first : end;
    weights->taps = taps;
    weights->pairs = pairs;
    return (size_t)((uint8_t *)exact - (uint8_t *)memory);
}
