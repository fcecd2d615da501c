/* model_trial.c: runs a model with free dimensions twice, with one row of the largest shape and
 * with two of another, to see whether its outputs have the shapes that the graph declares. Control
 * thread, before the server starts.
 *
 * Published models lie: the trained SqueezeNet of Windows-Machine-Learning declares an output of
 * one row whatever its input has. ONNX Runtime only warns when it allocates such an output itself,
 * but refuses one that was wrapped beforehand. What the model does counts, not what it says.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "parts/model.h"

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

/* Runs on zeros; every output is allocated by ONNX Runtime and only its shape is kept. */
static int try_sizes(const struct lm_model *model, const struct lm_ort *ort,
                     const struct lm_sizes *sizes, struct shape *shapes) {
    OrtValue *values[2 * LM_TENSORS_MAX] = {0};
    void *zeros[LM_TENSORS_MAX] = {0};
    int code = 0;
    for (uint32_t i = 0; !code && i < model->input_count; i++) {
        int64_t dims[LM_RANK_MAX];
        size_t bytes = 0;
        lm_tensor_shape(&model->inputs[i], sizes, dims);
        if (lm_tensor_bytes(&model->inputs[i], sizes, &bytes)) zeros[i] = calloc(1, bytes);
        if (!zeros[i]) code = lm_error(LUMEN_E_NOMEM, "no memory for a trial");
        if (!code) {
            values[i] = lm_ort_wrap(ort, zeros[i], bytes, dims, model->inputs[i].rank,
                                    model->inputs[i].dtype);
            code = values[i] ? 0 : LUMEN_E_ORT;
        }
    }
    if (!code) code = lm_model_run(model, ort, 0, values);
    for (uint32_t o = 0; o < model->output_count; o++) {
        OrtValue *output = values[model->input_count + o];
        if (!code) code = read_shape(ort, output, &shapes[o]);
        lm_ort_value_close(ort, output);
    }
    for (uint32_t i = 0; i < model->input_count; i++) {
        lm_ort_value_close(ort, values[i]);
        free(zeros[i]);
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
static void settle(struct lm_tensor *tensor, const struct shape *one, const struct shape *two,
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

void lm_model_try_sizes(struct lm_model *model, const struct lm_ort *ort) {
    struct shape one[LM_TENSORS_MAX], two[LM_TENSORS_MAX];
    struct lm_sizes first = lm_model_largest(model, 1), second = first;
    if (!model->rows_free && model->free_count == 0) return;
    if (model->rows_free) second.rows = 2;
    /* Sizes that differ from each other, of which a network that halves its input can be made. */
    for (uint32_t f = 0; f < model->free_count; f++) {
        uint32_t quarter = (first.free[f] + 3) / 4;
        second.free[f] = f % 2 ? 3 * quarter : 2 * quarter;
        if (second.free[f] > first.free[f]) second.free[f] = first.free[f];
    }
    /* A model that fails on zeros says nothing about its shapes: the graph's word is taken. */
    if (try_sizes(model, ort, &first, one) || try_sizes(model, ort, &second, two)) return;
    model->outputs_known = true;
    for (uint32_t o = 0; o < model->output_count; o++) {
        struct lm_tensor *tensor = &model->outputs[o];
        bool fits =
            same_but_rows(tensor, &one[o], &first) && same_but_rows(tensor, &two[o], &second);
        if (tensor->shape_known) settle(tensor, &one[o], &two[o], fits);
        model->outputs_known = model->outputs_known && tensor->shape_known;
    }
}
