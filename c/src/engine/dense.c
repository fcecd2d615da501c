/* dense.c: see dense.h. The plain kernel, and the choice. */
#include "engine/dense.h"

#include <math.h>

#include "base/processor.h"
#include "engine/dense_x86.h"

static float activated(float value, uint32_t activation) {
    if (activation == LM_ACTIVATION_RELU) return value < 0 ? 0 : value;
    if (activation == LM_ACTIVATION_SIGMOID) return 1 / (1 + expf(-value));
    return activation == LM_ACTIVATION_TANH ? tanhf(value) : value;
}

/* LM_PANEL_STEP outputs of one row, from `first` on, in a panel of `width`. */
static void some(const struct lm_dense_task *task, const float *weights, uint32_t width,
                 const float *input, float *output, uint32_t first) {
    float sums[LM_PANEL_STEP];
    for (uint32_t o = 0; o < LM_PANEL_STEP; o++) sums[o] = task->bias[first + o];
    for (uint32_t i = 0; i < task->inputs; i++, weights += width) {
        float x = input[i];
        for (uint32_t o = 0; o < LM_PANEL_STEP; o++) sums[o] += x * weights[o];
    }
    for (uint32_t o = 0; o < LM_PANEL_STEP; o++)
        output[first + o] = activated(sums[o], task->activation);
}

static void linear(const struct lm_dense_task *task) {
    for (uint32_t first = task->first; first < task->end; first += LM_PANEL) {
        uint32_t left = task->end - first, width = left < LM_PANEL ? left : LM_PANEL;
        const float *weights = task->weights + (size_t)first * task->inputs;
        for (uint32_t row = 0; row < task->rows; row++) {
            for (uint32_t skip = 0; skip < width; skip += LM_PANEL_STEP)
                some(task, weights + skip, width, task->input + row * task->input_stride,
                     task->output + row * task->output_stride, first + skip);
        }
    }
}

static void softmax(float *row, size_t count) {
    float most = row[0], sum = 0;
    for (size_t i = 1; i < count; i++) most = row[i] > most ? row[i] : most;
    for (size_t i = 0; i < count; i++) sum += row[i] = expf(row[i] - most);
    for (size_t i = 0; i < count; i++) row[i] /= sum;
}

static const struct lm_dense_kernel plain = {"plain", linear, softmax};

static const struct lm_dense_kernel *const kernels[] = {
#if defined(__x86_64__)
    &lm_dense_avx512,
    &lm_dense_avx2,
#endif
    &plain,
};
enum { KERNEL_COUNT = sizeof kernels / sizeof kernels[0] };

static uint32_t first_kernel(void) {
#if defined(__x86_64__)
    uint32_t processor = lm_processor();
    return processor & LM_PROCESSOR_AVX512 ? 0 : processor & LM_PROCESSOR_FMA ? 1 : 2;
#else
    return 0;
#endif
}

const struct lm_dense_kernel *lm_dense_choose(uint32_t index) {
    uint32_t at = first_kernel() + index;
    return at < KERNEL_COUNT ? kernels[at] : NULL;
}
