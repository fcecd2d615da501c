/* model_trial.c: runs a model with free rows once with one row and once with two, to see whether
 * its outputs have the shapes that the graph declares. Control thread, before the server starts.
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
static int try_rows(const struct lm_model *model, const struct lm_ort *ort, uint32_t rows,
                    struct shape *shapes) {
    OrtValue *values[2 * LM_TENSORS_MAX] = {0};
    void *zeros[LM_TENSORS_MAX] = {0};
    int code = 0;
    for (uint32_t i = 0; !code && i < model->input_count; i++) {
        int64_t dims[LM_RANK_MAX];
        size_t bytes = 0;
        lm_tensor_shape(&model->inputs[i], rows, dims);
        if (lm_tensor_bytes(&model->inputs[i], rows, &bytes)) zeros[i] = calloc(1, bytes);
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

static bool same_but_rows(const struct lm_tensor *tensor, const struct shape *shape) {
    if (shape->rank != tensor->rank || tensor->rank == 0) return false;
    for (uint32_t d = 1; d < tensor->rank; d++) {
        if (shape->dims[d] != tensor->dims[d]) return false;
    }
    return true;
}

/* Corrects one output whose shape the graph claims to know. */
static void settle(struct lm_tensor *tensor, const struct shape *one, const struct shape *two) {
    bool fits = same_but_rows(tensor, one) && same_but_rows(tensor, two);
    if (fits && one->dims[0] == 1 && two->dims[0] == 2) {
        tensor->row_bytes = tensor->element_bytes;
        for (uint32_t d = 1; d < tensor->rank; d++) tensor->row_bytes *= (size_t)tensor->dims[d];
        if (!tensor->rows_free) tensor->wrapped_rows = (uint32_t)tensor->dims[0];
        tensor->dims[0] = -1;
        tensor->rows_free = true;
    } else if (!fits || tensor->rows_free || one->dims[0] != tensor->dims[0] ||
               two->dims[0] != tensor->dims[0]) {
        tensor->rows_free = false;
        tensor->shape_known = false;
    }
}

void lm_model_try_rows(struct lm_model *model, const struct lm_ort *ort) {
    struct shape one[LM_TENSORS_MAX], two[LM_TENSORS_MAX];
    if (!model->rows_free) return;
    /* A model that fails on zeros says nothing about its shapes: the graph's word is taken. */
    if (try_rows(model, ort, 1, one) || try_rows(model, ort, 2, two)) return;
    model->outputs_known = true;
    for (uint32_t o = 0; o < model->output_count; o++) {
        struct lm_tensor *tensor = &model->outputs[o];
        if (tensor->shape_known) settle(tensor, &one[o], &two[o]);
        model->outputs_known = model->outputs_known && tensor->shape_known;
    }
}
