/* trial.c: runs a model with free dimensions twice, with one row of the largest shape and
 * with two of another, to see whether its outputs have the shapes that the graph declares. Control
 * thread, before the server starts.
 *
 * Published models lie: the trained SqueezeNet of Windows-Machine-Learning declares an output of
 * one row whatever its input has. ONNX Runtime only warns when it allocates such an output itself,
 * but refuses one that was wrapped beforehand. What the model does counts, not what it says.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "models/load.h"
#include "models/model.h"
#include "models/runner.h"
#include "models/sizes.h"
#include "models/warmup.h"

/* A Run is timed so often, unless that takes too long. */
enum { TIMED_RUNS = 12, TIMED_NS = 5000000 };

struct shape {
    size_t rank;
    int64_t dims[LM_RANK_MAX];
};

static int read_shape(const struct lm_ort *ort, const OrtValue *value, struct shape *shape) {
    OrtTensorTypeAndShapeInfo *info = NULL;
    int code = lm_ort_check(ort, ort->api->GetTensorTypeAndShape(value, &info), "a trial's shape");
    if (code) return code;
    OrtStatus *status = ort->api->GetDimensionsCount(info, &shape->rank);
    if (!status && shape->rank <= LM_RANK_MAX) {
        status = ort->api->GetDimensions(info, shape->dims, shape->rank);
    }
    ort->api->ReleaseTensorTypeAndShapeInfo(info);
    return lm_ort_check(ort, status, "a trial's shape");
}

/* Sets every element of zeroed memory to 1. */
static void fill_ones(int dtype, uint8_t *memory, size_t bytes) {
    const float one = 1;
    const double one_double = 1;
    uint8_t element[8] = {1}; /* integers and bools, little-endian */
    size_t size = lm_dtype_bytes(dtype);
    if (dtype == ORT_FLOAT) memcpy(element, &one, sizeof one);
    if (dtype == ORT_DOUBLE) memcpy(element, &one_double, sizeof one_double);
    if (dtype == ORT_FLOAT16) memcpy(element, &(uint16_t){0x3c00}, 2);
    if (dtype == ORT_BFLOAT16) memcpy(element, &(uint16_t){0x3f80}, 2);
    for (size_t at = 0; at < bytes; at += size) memcpy(memory + at, element, size);
}

/* Runs on zeros, or on ones; every output is allocated by ONNX Runtime and only its shape is kept.
 */
static int try_sizes(const struct lm_model *model, const struct lm_ort *ort,
                     const struct lm_sizes *sizes, bool ones, struct shape *shapes,
                     uint64_t *took_ns) {
    OrtValue *values[2 * LM_TENSORS_MAX] = {0};
    void *memory[LM_TENSORS_MAX] = {0};
    int code = 0;
    for (uint32_t i = 0; !code && i < model->input_count; i++) {
        int64_t dims[LM_RANK_MAX];
        size_t bytes = 0;
        uint32_t rank = lm_tensor_shape(&model->inputs[i], sizes, dims);
        if (lm_is_string(&model->inputs[i])) {
            values[i] = lm_ort_strings_open(ort, dims, rank);
            code = values[i] ? 0 : LUMEN_E_ORT;
            continue; /* empty ones */
        }
        if (lm_tensor_bytes(&model->inputs[i], sizes, &bytes)) memory[i] = calloc(1, bytes);
        if (!memory[i]) code = lm_error(LUMEN_E_NOMEM, "no memory for a trial");
        if (!code && ones) fill_ones(model->inputs[i].dtype, memory[i], bytes);
        if (!code) {
            values[i] = lm_ort_wrap(ort, memory[i], bytes, dims, rank, model->inputs[i].dtype);
            code = values[i] ? 0 : LUMEN_E_ORT;
        }
    }
    uint64_t began_ns = lm_now_ns();
    if (!code) code = lm_model_run(model, ort, 0, values);
    *took_ns = lm_now_ns() - began_ns;
    for (uint32_t o = 0; o < model->output_count; o++) {
        OrtValue *output = values[model->input_count + o];
        if (!code) code = read_shape(ort, output, &shapes[o]);
        lm_ort_value_close(ort, output);
    }
    for (uint32_t i = 0; i < model->input_count; i++) {
        lm_ort_value_close(ort, values[i]);
        free(memory[i]);
    }
    return code;
}

/* Whether the output has the declared shape in both trials, the first dimension apart. */
static bool same_but_rows(const struct lm_tensor *tensor, const struct shape *shape,
                          const struct lm_sizes *sizes) {
    int64_t declared[LM_RANK_MAX];
    if (shape->rank != tensor->rank || tensor->rank == 0) return false;
    lm_tensor_shape(tensor, sizes, declared);
    for (uint32_t d = tensor->free[0] ? 0 : 1; d < tensor->rank; d++) {
        if (shape->dims[d] != declared[d]) return false;
    }
    return true;
}

/* Corrects one output whose shape the graph claims to know. `fits`: all but its first dimension. */
static void correct(struct lm_tensor *tensor, const struct shape *one, const struct shape *two,
                    bool fits) {
    if (fits && tensor->free[0]) return;
    if (fits && one->dims[0] == 1 && two->dims[0] == 2) {
        if (!tensor->rows_free) {
            tensor->wrapped_rows = (uint32_t)tensor->dims[0];
            tensor->row_bytes = tensor->element_bytes;
            for (uint32_t d = 1; d < tensor->rank; d++) {
                if (!tensor->free[d]) tensor->row_bytes *= (size_t)tensor->dims[d];
            }
        }
        tensor->dims[0] = -1;
        tensor->rows_free = true;
    } else if (!fits || tensor->rows_free || one->dims[0] != tensor->dims[0] ||
               two->dims[0] != tensor->dims[0]) {
        tensor->rows_free = tensor->varies = false;
        tensor->shape_known = false;
    }
}

/* ---- outputs whose dimensions have names of their own ---- */

enum { TRIALS = 3 };

/* The free dimension that a dimension of an output was as large as, in every trial, if it is the
 * only one; free_count: there is none. */
static uint32_t alike(const struct lm_model *model, const struct shape *shapes[TRIALS],
                      const struct lm_sizes sizes[TRIALS], uint32_t d) {
    uint32_t found = model->free_count;
    for (uint32_t f = 0; f < model->free_count; f++) {
        bool same = !model->free_dims[f].is_any_rank; /* of which other ranks will come */
        for (uint32_t t = 0; t < TRIALS; t++)
            same = same && shapes[t]->dims[d] == (int64_t)sizes[t].free[f];
        if (same && found < model->free_count) return model->free_count;
        if (same) found = f;
    }
    return found;
}

/* Exporters that are not told name each output's dimensions anew. The shape is known if each of
 * them was the rows, or one free dimension of the inputs, in every trial: on zeros and on ones, so
 * that a size which the values decide is no such one. */
static void learn(const struct lm_model *model, struct lm_tensor *tensor,
                  const struct shape *shapes[TRIALS], const struct lm_sizes sizes[TRIALS]) {
    struct lm_tensor learnt = *tensor;
    for (uint32_t t = 0; t < TRIALS; t++) {
        if (shapes[t]->rank != tensor->rank || tensor->rank == 0) return;
    }
    learnt.row_bytes = tensor->element_bytes;
    learnt.rows_free = learnt.varies = false;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        bool is_rows = d == 0 && model->rows_free && tensor->dims[0] < 0, is_fixed = true;
        uint32_t f = alike(model, shapes, sizes, d);
        for (uint32_t t = 0; t < TRIALS; t++) {
            is_rows = is_rows && shapes[t]->dims[d] == (int64_t)sizes[t].rows;
            is_fixed = is_fixed && shapes[t]->dims[d] == tensor->dims[d];
        }
        learnt.free[d] = 0;
        if (is_fixed) {
            learnt.row_bytes *= (size_t)tensor->dims[d];
        } else if (is_rows) {
            learnt.rows_free = true;
        } else if (f < model->free_count) {
            learnt.free[d] = (uint8_t)(f + 1);
            learnt.varies = true;
        } else {
            return;
        }
    }
    learnt.shape_known = true;
    *tensor = learnt;
}

static void forget_outputs(struct lm_model *model) {
    model->outputs_known = false;
    for (uint32_t o = 0; o < model->output_count; o++) {
        struct lm_tensor *output = &model->outputs[o];
        output->rows_free = output->varies = output->shape_known = false;
    }
}

/* One row of modest sizes, two rows of others, and the same once more for ones. Modest: whether an
 * output follows its inputs is seen on a short text, too, and the longest may take minutes. */
static void choose_sizes(const struct lm_model *model, bool modest, struct lm_sizes sizes[TRIALS]) {
    sizes[0] = modest ? lm_warmup_sizes(model, 1) : lm_model_largest(model, 1);
    sizes[1] = sizes[0];
    if (model->rows_free) sizes[1].rows = 2;
    /* Sizes that differ from each other, of which a network that halves its input can be made. */
    for (uint32_t f = 0; f < model->free_count; f++) {
        const uint32_t place = model->free_dims[f].place;
        uint32_t most = sizes[0].free[place], quarter = (most + 3) / 4;
        uint32_t size = f % 2 ? 3 * quarter : 2 * quarter;
        sizes[1].free[place] = size < most ? size : most;
    }
    sizes[2] = sizes[1];
}

/* false: the model fails on zeros. */
static bool try_two(const struct lm_model *model, const struct lm_ort *ort, bool modest,
                    struct lm_sizes sizes[TRIALS], struct shape *one, struct shape *two) {
    uint64_t took_ns;
    choose_sizes(model, modest, sizes);
    return try_sizes(model, ort, &sizes[0], false, one, &took_ns) == 0 &&
           try_sizes(model, ort, &sizes[1], false, two, &took_ns) == 0;
}

void lm_model_try_sizes(struct lm_model *model, const struct lm_ort *ort) {
    struct shape one[LM_TENSORS_MAX], two[LM_TENSORS_MAX], three[LM_TENSORS_MAX];
    struct lm_sizes sizes[TRIALS];
    uint64_t took_ns;
    if (!model->rows_free && model->free_count == 0) return;
    /* Some take no small pictures. A model that fails on zeros says nothing about its shapes: the
     * graph's word is taken, unless it is silent on inputs, where lists are but a guess. */
    if (!try_two(model, ort, true, sizes, one, two) &&
        !try_two(model, ort, false, sizes, one, two)) {
        if (model->any_rank) forget_outputs(model);
        return;
    }
    bool learns =
        model->free_count > 0 && try_sizes(model, ort, &sizes[2], true, three, &took_ns) == 0;
    model->outputs_known = true;
    for (uint32_t o = 0; o < model->output_count; o++) {
        struct lm_tensor *tensor = &model->outputs[o];
        bool fits =
            same_but_rows(tensor, &one[o], &sizes[0]) && same_but_rows(tensor, &two[o], &sizes[1]);
        if (tensor->shape_known) {
            correct(tensor, &one[o], &two[o], fits);
        } else if (learns) {
            learn(model, tensor, (const struct shape *[TRIALS]){&one[o], &two[o], &three[o]},
                  sizes);
        }
        model->outputs_known = model->outputs_known && tensor->shape_known;
    }
}

uint64_t lm_model_time_run(const struct lm_model *model, const struct lm_ort *ort) {
    struct shape shapes[LM_TENSORS_MAX];
    const struct lm_sizes sizes = lm_model_smallest(model, 1);
    uint64_t best_ns = 0, took_ns, until_ns = lm_now_ns() + TIMED_NS;
    for (uint32_t run = 0; run < TIMED_RUNS && (run == 0 || lm_now_ns() < until_ns); run++) {
        if (try_sizes(model, ort, &sizes, false, shapes, &took_ns)) return 0;
        if (best_ns == 0 || took_ns < best_ns) best_ns = took_ns;
    }
    return best_ns;
}
