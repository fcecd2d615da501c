/* trees_head.c: the scores and the class that ONNX Runtime makes of an ensemble's sums; see
 * trees.h. Two classes have conventions of their own, which depend on which class has weights, on
 * their signs and on the number of base values. */
#include <float.h>
#include <math.h>

#include "engine/trees.h"

static float logistic(float value) {
    float half = 1 / (1 + expf(-fabsf(value)));
    return value < 0 ? 1 - half : half;
}

/* Of values that are not near 0 alone, where `zero` says so: others stay near 0. */
static void softmax(float *values, uint32_t count, bool zero) {
    float most = -FLT_MAX, total = 0;
    for (uint32_t i = 0; i < count; i++) most = values[i] > most ? values[i] : most;
    float none = zero ? expf(-most) : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!zero || values[i] > 0.0000001f || values[i] < -0.0000001f) {
            values[i] = expf(values[i] - most);
            total += values[i];
        } else {
            values[i] *= none;
        }
    }
    for (uint32_t i = 0; i < count; i++) values[i] /= total;
}

static void transform(float *values, uint32_t count, uint32_t post) {
    switch ((enum lm_engine_post)post) {
    case LM_POST_NONE: return;
    case LM_POST_LOGISTIC:
        for (uint32_t i = 0; i < count; i++) values[i] = logistic(values[i]);
        return;
    case LM_POST_SOFTMAX: softmax(values, count, false); return;
    case LM_POST_SOFTMAX_ZERO: softmax(values, count, true); return;
    }
}

/* ONNX Runtime transforms several targets, and leaves a single one as it is. */
static void finish_regression(const struct lm_engine_view *view, float *sums, const uint8_t *has,
                              float *scores) {
    const struct lm_engine_header *header = view->header;
    for (uint32_t t = 0; t < header->targets; t++) {
        if (header->average) sums[t] /= (float)view->tree_count;
        if (view->base_count == header->targets) sums[t] += view->base[t];
        scores[t] = has[t] ? sums[t] : 0; /* without a leaf no base value either */
    }
    if (header->targets > 1) transform(scores, header->targets, header->post);
}

static uint32_t largest(const float *sums, const uint8_t *has, uint32_t count) {
    uint32_t best = count;
    for (uint32_t t = 0; t < count; t++) {
        if (has[t] && (best == count || sums[t] > sums[best])) best = t;
    }
    return best < count ? best : 0;
}

static uint32_t finish_classes(const struct lm_engine_view *view, float *sums, uint8_t *has,
                               float *scores) {
    const struct lm_engine_header *header = view->header;
    for (uint32_t t = 0; t < view->base_count; t++) {
        sums[t] = has[t] ? sums[t] + view->base[t] : view->base[t];
        has[t] = 1;
    }
    uint32_t best = largest(sums, has, header->targets);
    for (uint32_t t = 0; t < header->targets; t++) scores[t] = sums[t];
    transform(scores, header->targets, header->post);
    return best;
}

/* Two scores of the sum of the first class, which alone has weights. */
static void write_one_sum(const struct lm_engine_header *header, float sum, float *scores) {
    bool logistic_post = header->post == LM_POST_LOGISTIC;
    scores[1] = logistic_post ? logistic(sum) : sum;
    if (logistic_post)
        scores[0] = logistic(-sum);
    else
        scores[0] = header->binary && header->all_positive ? 1 - sum : -sum;
}

/* A class without weights has a score of 0, and takes no base value. */
static uint32_t finish_two(const struct lm_engine_view *view, float *sums, const uint8_t *has,
                           float *scores) {
    const struct lm_engine_header *header = view->header;
    bool second = has[1];
    if (view->base_count == 2 && second) {
        sums[1] = view->base[1] + sums[0];
        sums[0] = -sums[1];
    } else if (view->base_count > 0) {
        sums[0] += view->base[0];
    }
    float decisive = second ? sums[1] : sums[0];
    uint32_t class = decisive > (header->binary && header->all_positive ? 0.5f : 0.0f);
    if (!second && view->base_count < 2) {
        write_one_sum(header, sums[0], scores);
        return class;
    }
    for (uint32_t c = 0; c < 2; c++) scores[c] = has[c] ? sums[c] : 0;
    transform(scores, 2, header->post);
    return class;
}

uint32_t lm_trees_finish(const struct lm_engine_view *view, float *sums, uint8_t *has,
                         float *scores) {
    const struct lm_engine_header *header = view->header;
    if (header->head == LM_HEAD_REGRESSOR) {
        finish_regression(view, sums, has, scores);
        return 0;
    }
    return header->targets > 2 ? finish_classes(view, sums, has, scores)
                               : finish_two(view, sums, has, scores);
}
