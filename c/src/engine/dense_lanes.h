/* dense_lanes.h: the kernels of dense.h in vectors of LANES floats. Included by dense_avx512.c and
 * dense_avx2.c, each of which says before what a vector is and what is done to it. Any thread.
 *
 * One row: the sums of a panel stay in registers while its weights pass through once, in the order
 * in which they lie. ROWS rows at a time: the same with ROW_VECTORS vectors of each row's sums.
 */

#define INLINE TARGET static inline __attribute__((always_inline))

/* e^x = 2^n e^r, where x = n ln 2 + r: e^r - 1, and 2^n / 2, since 2^128 is no float. */
INLINE vec exp_parts(vec x, vec *half_out) {
    /* Beyond these it is as good as 0, or as infinity. NaN, as the second one, passes. */
    x = least(all(88.7f), most(all(-87.3f), x));
    vec n = nearest(x * all(1.44269504f));
    /* ln 2 in two parts, of which the first has few bits: n times it is exact. */
    vec r = fused(n, all(-0.693359375f), x);
    r = fused(n, all(2.12194440e-4f), r);
    vec sum = all(1.0f / 5040); /* Taylor's: the next term is below 4e-9 of r */
    sum = fused(sum, r, all(1.0f / 720));
    sum = fused(sum, r, all(1.0f / 120));
    sum = fused(sum, r, all(1.0f / 24));
    sum = fused(sum, r, all(1.0f / 6));
    sum = fused(sum, r, all(1.0f / 2));
    *half_out = power_of_two(n - all(1));
    return fused(sum * r, r, r);
}

INLINE vec exponential(vec x) {
    vec half, sum = exp_parts(x, &half);
    half = fused(half, sum, half);
    return half + half;
}

/* Without loss near 0. */
INLINE vec exp_minus_one(vec x) {
    vec half, sum = exp_parts(x, &half);
    half = fused(half, sum, half - all(0.5f));
    return half + half;
}

INLINE vec activated(vec value, uint32_t activation) {
    const vec one = all(1);
    switch ((enum lm_engine_activation)activation) {
    case LM_ACTIVATION_RELU: return most(all(0), value);
    case LM_ACTIVATION_SIGMOID: return one / (exponential(all(0) - value) + one);
    case LM_ACTIVATION_TANH: {
        vec twice = exp_minus_one(least(all(40), value + value));
        return twice / (twice + one + one);
    }
    case LM_ACTIVATION_NONE:
    case LM_ACTIVATION_SOFTMAX: return value;
    }
    return value;
}

/* `vectors` vectors of outputs of `rows` rows, both constant where this is inlined: of the panel at
 * `first`, which is `width` wide, those from `skip` on. */
INLINE void block(const struct lm_dense_task *task, uint32_t first, uint32_t width, uint32_t skip,
                  uint32_t row, const uint32_t rows, const uint32_t vectors) {
    const float *weights = task->weights + (size_t)first * task->inputs + skip;
    const float *input = task->input + row * task->input_stride;
    vec sums[ROWS][LM_PANEL / LANES];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vectors; v++)
            sums[r][v] = load(task->bias + first + skip + v * LANES);
    }
    for (uint32_t i = 0; i < task->inputs; i++, weights += width) {
        vec lanes[LM_PANEL / LANES];
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vectors; v++) lanes[v] = load(weights + v * LANES);
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            vec x = all(input[r * task->input_stride + i]);
#pragma GCC unroll 8
            for (uint32_t v = 0; v < vectors; v++) sums[r][v] = fused(x, lanes[v], sums[r][v]);
        }
    }
    float *output = task->output + row * task->output_stride + first + skip;
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
        for (uint32_t v = 0; v < vectors; v++)
            store(output + r * task->output_stride + v * LANES,
                  activated(sums[r][v], task->activation));
    }
}

TARGET static void panel_of_row(const struct lm_dense_task *task, uint32_t first, uint32_t width,
                                uint32_t row) {
    enum { STEP = LM_PANEL_STEP / LANES };
    switch (width / LM_PANEL_STEP) {
    case 1: block(task, first, 1 * LM_PANEL_STEP, 0, row, 1, 1 * STEP); break;
    case 2: block(task, first, 2 * LM_PANEL_STEP, 0, row, 1, 2 * STEP); break;
    case 3: block(task, first, 3 * LM_PANEL_STEP, 0, row, 1, 3 * STEP); break;
    default: block(task, first, LM_PANEL, 0, row, 1, 4 * STEP); break;
    }
}

TARGET static void panel_of_rows(const struct lm_dense_task *task, uint32_t first, uint32_t width,
                                 uint32_t row) {
    uint32_t skip = 0;
    for (; skip + ROW_VECTORS * LANES <= width; skip += ROW_VECTORS * LANES)
        block(task, first, width, skip, row, ROWS, ROW_VECTORS);
    for (; skip < width; skip += LANES) block(task, first, width, skip, row, ROWS, 1);
}

TARGET static void linear(const struct lm_dense_task *task) {
    for (uint32_t first = task->first; first < task->end; first += LM_PANEL) {
        uint32_t left = task->end - first, width = left < LM_PANEL ? left : LM_PANEL, row = 0;
        for (; row + ROWS <= task->rows; row += ROWS) panel_of_rows(task, first, width, row);
        for (; row < task->rows; row++) panel_of_row(task, first, width, row);
    }
}

/* Vectors at the end have lanes of another row or of nothing: they count as `other`. */
TARGET static vec tail(const float *row, size_t at, size_t count, vec other) {
    if (at + LANES <= count) return load(row + at);
    float last[LANES] = {0};
    for (size_t i = at; i < count; i++) last[i - at] = row[i];
    return first_lanes(load(last), count - at, other);
}

TARGET static void softmax(float *row, size_t count) {
    float lanes[LANES], largest, total = 0;
    vec highest = all(row[0]), sum = all(0);
    for (size_t at = 0; at < count; at += LANES)
        highest = most(highest, tail(row, at, count, highest));
    store(lanes, highest);
    largest = lanes[0];
    for (size_t l = 1; l < LANES; l++) largest = lanes[l] > largest ? lanes[l] : largest;
    for (size_t at = 0; at < count; at += LANES) {
        size_t here = count - at < LANES ? count - at : LANES;
        vec power = exponential(tail(row, at, count, all(0)) - all(largest));
        sum += here < LANES ? first_lanes(power, here, all(0)) : power;
        store(lanes, power);
        for (size_t l = 0; l < here; l++) row[at + l] = lanes[l];
    }
    store(lanes, sum);
    for (size_t l = 0; l < LANES; l++) total += lanes[l];
    for (size_t i = 0; i < count; i++) row[i] /= total;
}

const struct lm_dense_kernel KERNEL = {NAME, linear, softmax};
