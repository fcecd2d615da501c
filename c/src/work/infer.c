/* infer.c: see infer.h. */
#include "work/infer.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "work/encoding.h"
#include "work/record.h"

/* Copies an output that ONNX Runtime allocated into the slot, and writes its shape to `block`. */
static int take_output(struct lm_shared *shared, struct lm_request *request, uint32_t output,
                       OrtValue **value, const void **data_out, size_t *bytes_out, uint32_t **block,
                       size_t *room_used) {
    const struct lm_ort_api *api = shared->ort.api;
    const struct lm_tensor *tensor = &request->model->outputs[output];
    OrtTensorTypeAndShapeInfo *info = NULL;
    void *data = NULL;
    size_t rank = 0;
    int64_t dims[LM_RANK_MAX];
    int code = lm_ort_check(&shared->ort, api->GetTensorTypeAndShape(*value, &info), tensor->name);
    if (code) return code;
    OrtStatus *status = api->GetDimensionsCount(info, &rank);
    if (!status && rank <= LM_RANK_MAX) status = api->GetDimensions(info, dims, rank);
    if (!status) status = api->GetTensorMutableData(*value, &data);
    api->ReleaseTensorTypeAndShapeInfo(info);
    code = lm_ort_check(&shared->ort, status, tensor->name);
    if (code) return code;
    if (rank > LM_RANK_MAX)
        return lm_error(LUMEN_E_ORT, "output '%s' has %zu dimensions, at most %d are served",
                        tensor->name, rank, LM_RANK_MAX);
    size_t bytes = tensor->element_bytes;
    *(*block)++ = (uint32_t)rank;
    for (size_t d = 0; d < rank; d++) {
        *(*block)++ = (uint32_t)dims[d];
        bytes *= (size_t)dims[d];
    }
    /* The room kept for them, whatever else is free in the slot. */
    *room_used += lm_align_up(bytes, LM_SLOT_ALIGN);
    bool fits = *room_used <= lm_align_up(request->model->max_output_bytes, LM_SLOT_ALIGN);
    void *copy = fits ? lm_slot_alloc(request->slot, bytes) : NULL;
    if (!copy) {
        return lm_error(
            LUMEN_E_ORT,
            "output '%s' has %zu bytes, which do not fit; raise max_output_bytes of model '%s'",
            tensor->name, bytes, request->model->name);
    }
    if (bytes) memcpy(copy, data, bytes); /* an empty output may have no memory at all */
    lm_ort_value_close(&shared->ort, *value);
    *value = NULL;
    *data_out = copy;
    *bytes_out = bytes;
    return 0;
}

static void block_of_known(const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                           uint32_t **block) {
    int64_t dims[LM_RANK_MAX];
    lm_tensor_shape(tensor, sizes, dims);
    *(*block)++ = tensor->rank;
    for (uint32_t d = 0; d < tensor->rank; d++) *(*block)++ = (uint32_t)dims[d];
}

size_t lm_infer_write_shapes(struct lm_request *request) {
    const struct lm_model *model = request->model;
    uint32_t words[LM_SHAPE_BLOCK_BYTES_MAX / 4];
    uint32_t *block = words;
    *block++ = model->output_count;
    for (uint32_t o = 0; o < model->output_count; o++)
        block_of_known(&model->outputs[o], &request->sizes, &block);
    size_t bytes = (size_t)(block - words) * sizeof *block;
    memcpy(request->prefix, words, bytes);
    return bytes;
}

/* Composes the reply over the outputs, with all their shapes where the rows do not tell them. */
static int compose_outputs(struct lm_shared *shared, struct lm_request *request,
                           OrtValue **outputs) {
    const struct lm_model *model = request->model;
    const void *data[LM_TENSORS_MAX];
    size_t bytes[LM_TENSORS_MAX];
    uint32_t words[LM_SHAPE_BLOCK_BYTES_MAX / 4];
    uint32_t *block = words;
    size_t room_used = 0;
    bool tells_shapes = lm_model_tells_shapes(model);
    *block++ = model->output_count;
    for (uint32_t i = 0; i < model->output_count; i++) {
        const struct lm_tensor *output = &model->outputs[i];
        if (output->shape_known) {
            data[i] = request->layout.outputs[i];
            lm_tensor_bytes(output, &request->sizes, &bytes[i]);
            if (tells_shapes) block_of_known(output, &request->sizes, &block);
            int code = 0;
            if (!lm_output_is_wrapped(output, request->sizes.rows)) {
                code = lm_model_take_output(&shared->ort, output, &outputs[i],
                                            request->layout.outputs[i], bytes[i]);
            }
            if (code) return code;
        } else {
            int code = take_output(shared, request, i, &outputs[i], &data[i], &bytes[i], &block,
                                   &room_used);
            if (code) return code;
        }
    }
    size_t block_bytes = tells_shapes ? (size_t)(block - words) * sizeof *block : 0;
    if (block_bytes) memcpy(request->prefix, words, block_bytes);
    lm_request_dialect(request)->compose_outputs(request, data, bytes, block_bytes);
    return 0;
}

void lm_infer_drop_outputs(struct lm_shared *shared, const struct lm_model *model, uint32_t rows,
                           OrtValue **outputs) {
    for (uint32_t i = 0; i < model->output_count; i++) {
        if (lm_output_is_wrapped(&model->outputs[i], rows)) continue;
        lm_ort_value_close(&shared->ort, outputs[i]);
        outputs[i] = NULL;
    }
}

void lm_infer(struct lm_worker *worker, struct lm_request *request) {
    struct lm_shared *shared = worker->shared;
    struct lm_io *io = request->io;
    const struct lm_model *model = request->model;
    uint32_t slot = request->slot->index;
    OrtValue **values = lm_io_values(io, request->models, slot, model->index);
    const struct lm_encoding *encoding = &lm_encodings[request->encoding];
    if (encoding->convert) encoding->convert(request, request->layout.inputs);
    int code = lm_model_bind(model, &shared->ort, &request->layout, &request->sizes,
                             lm_io_binding(io, request->models, slot, model->index), values);
    request->preprocessed_ns = lm_now_ns();
    request->inferred_ns = request->preprocessed_ns;
    if (!code) {
        code = lm_model_run(model, &shared->ort, worker->index, values);
        request->inferred_ns = lm_now_ns();
        lm_record_run(worker, model);
        request->batch_rows = request->sizes.rows;
    }
    if (!lm_worker_may_answer(request)) {
        lm_infer_drop_outputs(shared, model, request->sizes.rows, values + model->input_count);
        return;
    }
    if (!code) code = compose_outputs(shared, request, values + model->input_count);
    if (code) {
        lm_infer_drop_outputs(shared, model, request->sizes.rows, values + model->input_count);
        /* The inputs' values, such as an index beyond a table, are the client's. */
        bool unfit = code == LUMEN_E_INVALID;
        lm_worker_compose_error(request, unfit ? LM_STATUS_BAD_REQUEST : LM_STATUS_INFERENCE_FAILED,
                                lm_error_last());
    }
    lm_record_status(worker, request);
}
