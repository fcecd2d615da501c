/* dense.h: the layers of a dense network: y = activation(x W + b), with W packed as format.h says.
 *
 * Each output's sum is made in one order, input after input, whatever the number of rows and of
 * threads: a row has the same bits alone, in a batch, and on several cores. Any thread.
 */
#ifndef LM_ENGINE_DENSE_H
#define LM_ENGINE_DENSE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/format.h"

/* Some panels of a layer, for some rows. */
struct lm_dense_task {
    const float *input; /* rows of `inputs` elements, input_stride apart */
    size_t input_stride;
    float *output; /* room for the padded outputs */
    size_t output_stride;
    uint32_t rows;
    uint32_t inputs;
    const float *weights; /* of the whole layer */
    const float *bias;
    uint32_t first; /* output: a multiple of LM_PANEL */
    uint32_t end;   /* a multiple of LM_PANEL_STEP; of LM_PANEL but at the layer's end */
    uint32_t activation;
};

/* The functions for one kind of processor. */
struct lm_dense_kernel {
    const char *name;
    /* Runs the task; of the activations all but LM_ACTIVATION_SOFTMAX. */
    void (*linear)(const struct lm_dense_task *task);
    void (*softmax)(float *row, size_t count);
};

/* The fastest kernel here, then slower ones; NULL beyond the last, which is plain C. */
const struct lm_dense_kernel *lm_dense_choose(uint32_t index);

#endif
