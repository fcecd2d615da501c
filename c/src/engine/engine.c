/* engine.c: see engine.h. */
#include "engine/engine.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "engine/team.h"
#include "engine/trees.h"

enum {
    BLOCK_ROWS_MAX = 48,        /* rows that a layer's weights are read once for */
    BLOCK_BYTES = 1 << 20,      /* of a layer's rows, more or less: a second-level cache */
    SHARED_WEIGHTS = 128 << 10, /* bytes: a smaller layer is done sooner than it is shared */
};

static void size_dense(struct lm_engine *engine) {
    const struct lm_engine_view *view = &engine->view;
    engine->kernel = lm_dense_choose(0);
    for (uint32_t l = 0; l < view->layer_count; l++) {
        size_t padded = (size_t)lm_padded_outputs(view->layers[l].outputs);
        if (padded > engine->width) engine->width = padded;
    }
    size_t rows = BLOCK_BYTES / (engine->width * sizeof(float));
    engine->block_rows = rows < 1 ? 1 : rows > BLOCK_ROWS_MAX ? BLOCK_ROWS_MAX : (uint32_t)rows;
    /* The input and the output of a layer. */
    engine->runner_bytes = 2 * engine->block_rows * engine->width * sizeof(float);
}

static void size_trees(struct lm_engine *engine) {
    const struct lm_engine_header *header = engine->view.header;
    size_t row = lm_align_up((header->inputs + 1) * sizeof(float), LM_ENGINE_ALIGN);
    size_t sums = lm_align_up(header->targets * sizeof(float), LM_ENGINE_ALIGN);
    engine->block_rows = 1;
    engine->width = row / sizeof(float);
    engine->runner_bytes = row + 2 * sums + header->targets + header->scores * sizeof(float);
}

int lm_engine_open_view(struct lm_engine *engine, const struct lm_engine_view *view) {
    *engine = (struct lm_engine){.view = *view};
    if (view->header->kind == LM_ENGINE_DENSE)
        size_dense(engine);
    else
        size_trees(engine);
    engine->runner_bytes = lm_align_up(engine->runner_bytes, LM_ENGINE_PAGE);
    return lm_engine_hold_runners(engine, 1);
}

int lm_engine_open(struct lm_engine *engine, const char *path, bool whole) {
    struct lm_mapping file;
    struct lm_engine_view view;
    *engine = (struct lm_engine){0};
    int code = lm_engine_file_open(&file, &view, path, whole);
    if (code) return code;
    code = lm_engine_open_view(engine, &view);
    engine->file = file;
    if (code) lm_engine_close(engine);
    return code;
}

void lm_engine_close(struct lm_engine *engine) {
    lm_mapping_close(&engine->memory);
    lm_mapping_close(&engine->file);
    *engine = (struct lm_engine){0};
}

int lm_engine_hold_runners(struct lm_engine *engine, uint32_t runners) {
    lm_mapping_close(&engine->memory);
    return lm_mapping_open(&engine->memory, engine->runner_bytes * runners);
}

/* ---- dense networks ---- */

static void linear_panel(void *argument, uint32_t part) {
    struct lm_dense_task task = *(const struct lm_dense_task *)argument;
    const struct lm_dense_kernel *kernel = lm_dense_choose(0);
    uint32_t end = task.end;
    task.first = part * LM_PANEL;
    task.end = end - task.first < LM_PANEL ? end : task.first + LM_PANEL;
    kernel->linear(&task);
}

static void run_linear(const struct lm_engine *engine, const struct lm_engine_layer *layer,
                       const float *input, size_t stride, float *output, uint32_t rows,
                       struct lm_team *team) {
    struct lm_dense_task task = {.input = input,
                                 .input_stride = stride,
                                 .output = output,
                                 .output_stride = engine->width,
                                 .rows = rows,
                                 .inputs = layer->inputs,
                                 .weights = engine->view.floats + layer->weights,
                                 .bias = engine->view.floats + layer->bias,
                                 .end = (uint32_t)lm_padded_outputs(layer->outputs),
                                 .activation = layer->activation};
    uint64_t bytes = (uint64_t)task.inputs * task.end * sizeof(float);
    if (team && bytes * rows >= SHARED_WEIGHTS) {
        lm_team_run(team, linear_panel, &task, (task.end + LM_PANEL - 1) / LM_PANEL);
    } else {
        engine->kernel->linear(&task);
    }
}

static void run_scale(const struct lm_engine *engine, const struct lm_engine_layer *layer,
                      const float *input, size_t stride, float *output, uint32_t rows) {
    const float *offsets = engine->view.floats + layer->weights;
    const float *factors = engine->view.floats + layer->bias;
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t i = 0; i < layer->inputs; i++)
            output[row * engine->width + i] = (input[row * stride + i] - offsets[i]) * factors[i];
    }
}

/* The first of the largest elements, as ArgMax has it. */
static uint32_t first_largest(const float *row, uint32_t count) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++) best = row[i] > row[best] ? i : best;
    return best;
}

static void put_row(const struct lm_engine *engine, const float *row, void *const *outputs,
                    uint64_t at) {
    const struct lm_engine_header *header = engine->view.header;
    float two[2] = {1 - row[0], row[0]};
    const float *scores = header->head == LM_HEAD_BINARY ? two : row;
    if (header->score_output != LM_ENGINE_NONE)
        memcpy((float *)outputs[header->score_output] + at * header->scores, scores,
               header->scores * sizeof *scores);
    if (header->label_output != LM_ENGINE_NONE)
        ((int64_t *)outputs[header->label_output])[at] =
            engine->view.labels[first_largest(scores, header->scores)];
}

static void run_dense(const struct lm_engine *engine, float *memory, const float *input,
                      void *const *outputs, uint64_t first, uint32_t rows, struct lm_team *team) {
    const struct lm_engine_view *view = &engine->view;
    float *halves[2] = {memory, memory + engine->block_rows * engine->width};
    size_t stride = view->header->inputs;
    for (uint32_t l = 0; l < view->layer_count; l++) {
        const struct lm_engine_layer *layer = &view->layers[l];
        float *output = halves[l % 2];
        if (layer->kind == LM_LAYER_SCALE)
            run_scale(engine, layer, input, stride, output, rows);
        else
            run_linear(engine, layer, input, stride, output, rows, team);
        for (uint32_t row = 0; layer->activation == LM_ACTIVATION_SOFTMAX && row < rows; row++)
            engine->kernel->softmax(output + row * engine->width, layer->outputs);
        input = output;
        stride = engine->width;
    }
    for (uint32_t row = 0; row < rows; row++)
        put_row(engine, input + row * stride, outputs, first + row);
}

/* ---- trees ---- */

static void run_trees(const struct lm_engine *engine, float *memory, const float *input,
                      void *const *outputs, uint64_t at) {
    const struct lm_engine_header *header = engine->view.header;
    float *row = memory, *sums = memory + engine->width;
    float *scores = sums + lm_align_up(header->targets, LM_ENGINE_ALIGN / sizeof(float));
    uint8_t *has = (uint8_t *)(scores + header->scores);
    /* A copy: behind the features there is NaN for the leaves. */
    memcpy(row, input, header->inputs * sizeof *row);
    row[header->inputs] = NAN;
    lm_trees_sum(&engine->view, row, sums, has);
    uint32_t class = lm_trees_finish(&engine->view, sums, has, scores);
    if (header->score_output != LM_ENGINE_NONE)
        memcpy((float *)outputs[header->score_output] + at * header->scores, scores,
               header->scores * sizeof *scores);
    if (header->label_output != LM_ENGINE_NONE)
        ((int64_t *)outputs[header->label_output])[at] = engine->view.labels[class];
}

void lm_engine_run(const struct lm_engine *engine, uint32_t runner, const float *input,
                   void *const *outputs, uint32_t rows, struct lm_team *team) {
    const struct lm_engine_header *header = engine->view.header;
    float *memory = (void *)((uint8_t *)engine->memory.base + runner * engine->runner_bytes);
    for (uint32_t row = 0, count; row < rows; row += count) {
        const float *from = input + (size_t)row * header->inputs;
        count = rows - row < engine->block_rows ? rows - row : engine->block_rows;
        if (header->kind == LM_ENGINE_DENSE)
            run_dense(engine, memory, from, outputs, row, count, team);
        else
            run_trees(engine, memory, from, outputs, row);
    }
}
