/* batch.c: see batch.h. */
#include "work/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "work/encoding.h"
#include "work/infer.h"
#include "work/record.h"

static uint32_t tensor_count(const struct lm_model *model) {
    return model->input_count + model->output_count;
}

static OrtValue **values_for(const struct lm_batch *batch, const struct lm_model *model,
                             uint32_t rows) {
    return batch->values + (size_t)(rows - 1) * tensor_count(model);
}

/* Lays the tensors of batch_size rows out in one mapping. */
static int place_tensors(struct lm_batch *batch, const struct lm_model *model) {
    size_t total = 0;
    for (uint32_t t = 0; t < tensor_count(model); t++) {
        const struct lm_tensor *tensor =
            t < model->input_count ? &model->inputs[t] : &model->outputs[t - model->input_count];
        total += lm_align_up(tensor->row_bytes * model->batch_size, LM_SLOT_ALIGN);
    }
    int code = lm_mapping_open(&batch->memory, total);
    if (code) return code;
    uint8_t *at = batch->memory.base;
    for (uint32_t i = 0; i < model->input_count; i++) {
        batch->inputs[i] = at;
        at += lm_align_up(model->inputs[i].row_bytes * model->batch_size, LM_SLOT_ALIGN);
    }
    for (uint32_t o = 0; o < model->output_count; o++) {
        batch->outputs[o] = at;
        at += lm_align_up(model->outputs[o].row_bytes * model->batch_size, LM_SLOT_ALIGN);
    }
    return 0;
}

int lm_batch_open(struct lm_batch *batch, const struct lm_ort *ort, const struct lm_model *model) {
    if (model->batch_size < 2) return 0;
    int code = place_tensors(batch, model);
    if (code) return code;
    batch->values = calloc((size_t)model->batch_size * tensor_count(model), sizeof *batch->values);
    if (!batch->values) return lm_error(LUMEN_E_NOMEM, "no memory for batches");
    for (uint32_t rows = 1; rows <= model->batch_size; rows++) {
        struct lm_layout layout = {0};
        struct lm_binding binding = {0};
        for (uint32_t i = 0; i < model->input_count; i++) layout.inputs[i] = batch->inputs[i];
        for (uint32_t o = 0; o < model->output_count; o++) layout.outputs[o] = batch->outputs[o];
        code = lm_model_bind(model, ort, &layout, rows, &binding, values_for(batch, model, rows));
        if (code) return code;
    }
    return 0;
}

void lm_batch_close(struct lm_batch *batch, const struct lm_ort *ort,
                    const struct lm_model *model) {
    for (uint32_t rows = 1; batch->values && rows <= model->batch_size; rows++) {
        struct lm_binding binding = {0};
        lm_model_unbind(model, ort, &binding, values_for(batch, model, rows));
    }
    free(batch->values);
    batch->values = NULL;
    lm_mapping_close(&batch->memory);
}

/* Puts a request's rows at `row` of the batch. */
static void gather(const struct lm_batch *batch, const struct lm_request *request, uint32_t row) {
    const struct lm_model *model = request->model;
    const struct lm_encoding *encoding = &lm_encodings[request->encoding];
    void *inputs[LM_TENSORS_MAX];
    for (uint32_t i = 0; i < model->input_count; i++) {
        size_t row_bytes = model->inputs[i].row_bytes;
        inputs[i] = batch->inputs[i] + row * row_bytes;
        if (encoding->convert) continue;
        memcpy(inputs[i], request->layout.inputs[i], request->rows * row_bytes);
    }
    if (encoding->convert) encoding->convert(request, inputs);
}

static void compose(const struct lm_batch *batch, struct lm_request *request, uint32_t row) {
    const struct lm_model *model = request->model;
    const void *data[LM_TENSORS_MAX];
    size_t bytes[LM_TENSORS_MAX];
    for (uint32_t o = 0; o < model->output_count; o++) {
        size_t row_bytes = model->outputs[o].row_bytes;
        data[o] = batch->outputs[o] + row * row_bytes;
        bytes[o] = request->rows * row_bytes;
    }
    request->in_batch = true;
    lm_request_dialect(request)->compose_outputs(request, data, bytes, 0);
}

/* Outputs that could not be wrapped for so many rows are copied to their place. */
static int take_outputs(struct lm_worker *worker, struct lm_batch *batch,
                        const struct lm_model *model, uint32_t rows, OrtValue **outputs) {
    int code = 0;
    for (uint32_t o = 0; !code && o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        if (lm_output_is_wrapped(output, rows)) continue;
        code = lm_model_take_output(&worker->shared->ort, output, &outputs[o], batch->outputs[o],
                                    rows * output->row_bytes);
    }
    return code;
}

bool lm_batch_run(struct lm_worker *worker, struct lm_request **requests, uint32_t count) {
    const struct lm_model *model = requests[0]->model;
    struct lm_batch *batch = &worker->batches[model->index];
    uint32_t rows = 0;
    for (uint32_t r = 0; r < count; r++) {
        gather(batch, requests[r], rows);
        rows += requests[r]->rows;
    }
    LM_DEBUG_ASSERT(rows <= model->batch_size);
    OrtValue **values = values_for(batch, model, rows);
    uint64_t before = lm_now_ns();
    int code = lm_model_run(model, &worker->shared->ort, worker->index, values);
    if (!code) code = take_outputs(worker, batch, model, rows, values + model->input_count);
    if (code) lm_infer_drop_outputs(worker->shared, model, rows, values + model->input_count);
    uint64_t after = lm_now_ns();
    lm_record_run(worker, model);
    if (code) {
        lm_add_single_writer_u64(&worker->stats->worker.batches_failed, 1);
        return false;
    }
    lm_add_single_writer_u64(&worker->stats->worker.batches, 1);
    uint32_t row = 0;
    for (uint32_t r = 0; r < count; r++) {
        requests[r]->preprocessed_ns = before;
        requests[r]->inferred_ns = after;
        requests[r]->batch_rows = rows;
        if (lm_worker_may_answer(requests[r])) {
            compose(batch, requests[r], row);
            lm_record_status(worker, requests[r]);
        }
        row += requests[r]->rows;
    }
    return true;
}

/* Which output of the batch an address lies in. */
static bool output_at(const struct lm_batch *batch, const struct lm_model *model, const uint8_t *at,
                      uint32_t *output_out) {
    for (uint32_t o = 0; o < model->output_count; o++) {
        size_t bytes = model->batch_size * model->outputs[o].row_bytes;
        *output_out = o;
        if (at >= batch->outputs[o] && at < batch->outputs[o] + bytes) return true;
    }
    return false;
}

void lm_batch_keep_reply(struct lm_worker *worker, struct lm_request *request) {
    const struct lm_batch *batch = &worker->batches[request->model->index];
    struct iovec *end = request->message.msg_iov + request->message.msg_iovlen;
    if (!request->in_batch) return;
    request->in_batch = false;
    for (struct iovec *part = request->message.msg_iov; part < end; part++) {
        uint32_t output;
        if (!output_at(batch, request->model, part->iov_base, &output)) continue; /* its own slot */
        void *room = request->layout.outputs[output];
        memcpy(room, part->iov_base, part->iov_len);
        part->iov_base = room;
    }
}
