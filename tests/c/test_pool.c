/* test_pool.c: each pooling of three tokens' vectors, by hand; several side by side; lengths. That
 * servers pool as sentence-transformers do is tested from Python
 * (tests/e2e/models/test_e2e_texts.py).
 */
#include <math.h>

#include "check.h"
#include "lumen.h"
#include "text/pool.h"

enum { TOKENS = 3, WIDTH = 2 };

static const float vectors[TOKENS * WIDTH] = {1, -4, 3, 8, 2, -1};

static void check_near(const float *found, const float *expected, size_t count) {
    for (size_t i = 0; i < count; i++) CHECK(fabsf(found[i] - expected[i]) < 1e-6f);
}

static void each_pooling(void) {
    static const struct {
        uint32_t pooling;
        float expected[WIDTH];
    } cases[] = {{LUMEN_POOLING_CLS, {1, -4}},
                 {LUMEN_POOLING_MAX, {3, 8}},
                 {LUMEN_POOLING_MEAN, {2, 1}},
                 {LUMEN_POOLING_MEAN_SQRT_LEN, {3.4641016f, 1.7320508f}},
                 {LUMEN_POOLING_WEIGHTED_MEAN, {13.f / 6, 9.f / 6}},
                 {LUMEN_POOLING_LAST_TOKEN, {2, -1}}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        float found[WIDTH];
        CHECK(lm_pool_parts(cases[c].pooling) == 1);
        lm_pool(cases[c].pooling, vectors, TOKENS, WIDTH, found);
        check_near(found, cases[c].expected, WIDTH);
        lm_pool(cases[c].pooling, vectors, 1, WIDTH, found); /* one token is all there is */
        check_near(found, vectors, WIDTH);
    }
}

static void several_side_by_side(void) {
    const float expected[2 * WIDTH] = {1, -4, 2, 1};
    float found[2 * WIDTH];
    CHECK(lm_pool_parts(LUMEN_POOLING_MEAN | LUMEN_POOLING_CLS) == 2);
    lm_pool(LUMEN_POOLING_MEAN | LUMEN_POOLING_CLS, vectors, TOKENS, WIDTH, found);
    check_near(found, expected, 2 * WIDTH);
}

static void lengths(void) {
    const float unit[2] = {0.6f, 0.8f}, zeros[2] = {0, 0};
    float vector[2] = {3, 4}, nothing[2] = {0, 0};
    lm_pool_normalise(vector, 2);
    check_near(vector, unit, 2);
    lm_pool_normalise(nothing, 2); /* no NaN */
    check_near(nothing, zeros, 2);
}

int main(void) {
    each_pooling();
    several_side_by_side();
    lengths();
    return check_finish("test_pool");
}
