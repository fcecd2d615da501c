/* batch.c: see batch.h. */
#include "work/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "flow/answer_cache.h"
#include "models/binding.h"
#include "models/process.h"
#include "models/sizes.h"
#include "work/carrier.h"
#include "work/infer.h"
#include "work/record.h"
#include "work/route.h"

static uint32_t tensor_count(const struct lm_model *model) {
    return model->input_count + model->output_count;
}

/* How many sets of wrapped tensors there are: one for each number of rows, or one that is wrapped
 * anew for each other shape, as where tensors of strings would hold memory in each of many. */
static uint32_t set_count(const struct lm_model *model) {
    return model->free_count > 0 || model->string_inputs > 0 ? 1 : model->batch_size;
}

static OrtValue **values_for(const struct lm_batch *batch, const struct lm_model *model,
                             uint32_t rows) {
    uint32_t set = set_count(model) > 1 ? rows - 1 : 0;
    return batch->values + (size_t)set * tensor_count(model);
}

/* Wraps the batch's memory as tensors of these sizes, unless that is what they are. */
static int wrap(struct lm_batch *batch, const struct lm_ort *ort, const struct lm_model *model,
                const struct lm_sizes *sizes, struct lm_binding *binding) {
    const struct lm_layout layout = {.inputs = batch->inputs, .outputs = batch->outputs};
    return lm_model_bind(model, ort, &layout, sizes, binding,
                         values_for(batch, model, sizes->rows));
}

static size_t row_bytes(const struct lm_tensor *tensor, const struct lm_sizes *sizes) {
    struct lm_sizes row = *sizes;
    size_t bytes = 0;
    row.rows = 1;
    lm_tensor_bytes(tensor, &row, &bytes);
    return bytes;
}

static int open_memory(struct lm_mapping *memory, const struct lm_model *model, size_t bytes) {
    if (!model->process) return lm_mapping_open(memory, bytes);
    int code = lm_common_memory_take(model->process->common, memory, bytes, LUMEN_HUGE_TRANSPARENT);
    if (!code) lm_mapping_touch(memory, memory->bytes);
    return code;
}

/* Lays the tensors of batch_size rows of the largest shape out in one mapping. */
static int place_tensors(struct lm_batch *batch, const struct lm_model *model) {
    const struct lm_sizes largest = lm_model_largest(model, model->batch_size);
    size_t total = 0, bytes = 0, at[2 * LM_TENSORS_MAX];
    batch->inputs = calloc(tensor_count(model), sizeof *batch->inputs);
    if (!batch->inputs) return lm_error(LUMEN_E_NOMEM, "no memory for batches");
    batch->outputs = batch->inputs + model->input_count;
    for (uint32_t t = 0; t < tensor_count(model); t++) {
        const struct lm_tensor *tensor =
            t < model->input_count ? &model->inputs[t] : &model->outputs[t - model->input_count];
        at[t] = total;
        if (!lm_tensor_bytes(tensor, &largest, &bytes) ||
            __builtin_add_overflow(total, lm_align_up(bytes, LM_SLOT_ALIGN), &total))
            return lm_error(LUMEN_E_INVALID, "model '%s': a batch of %u rows overflows a size",
                            model->name, model->batch_size);
    }
    int code = open_memory(&batch->memory, model, total);
    if (code) return code;
    uint8_t *base = batch->memory.base;
    for (uint32_t t = 0; t < tensor_count(model); t++) batch->inputs[t] = base + at[t];
    return 0;
}

int lm_batch_open(struct lm_model *model, const struct lm_ort *ort, uint32_t worker) {
    if (model->batch_size < 2) return 0;
    struct lm_batch *batch = calloc(1, sizeof *batch);
    model->batches[worker] = batch;
    if (!batch) return lm_error(LUMEN_E_NOMEM, "no memory for batches");
    int code = place_tensors(batch, model);
    if (code) return code;
    uint32_t sets = set_count(model);
    batch->values = calloc((size_t)sets * tensor_count(model), sizeof *batch->values);
    if (!batch->values) return lm_error(LUMEN_E_NOMEM, "no memory for batches");
    for (uint32_t rows = 1; !code && sets > 1 && rows <= model->batch_size; rows++) {
        const struct lm_sizes sizes = {.rows = rows};
        struct lm_binding binding = {0};
        code = wrap(batch, ort, model, &sizes, &binding);
    }
    if (sets == 1) {
        const struct lm_sizes sizes = lm_model_largest(model, model->batch_size);
        code = wrap(batch, ort, model, &sizes, &batch->binding);
    }
    return code;
}

void lm_batch_close(struct lm_model *model, const struct lm_ort *ort, uint32_t worker) {
    struct lm_batch *batch = model->batches[worker];
    if (!batch) return;
    for (uint32_t set = 0; batch->values && set < set_count(model); set++) {
        struct lm_binding binding = {0};
        lm_model_unbind(model, ort, &binding, values_for(batch, model, set + 1));
    }
    free(batch->values);
    free(batch->inputs);
    if (model->process) {
        lm_common_memory_give_back(model->process->common, &batch->memory);
    } else {
        lm_mapping_close(&batch->memory);
    }
    free(batch);
    model->batches[worker] = NULL;
}

int lm_batch_warm(struct lm_worker *worker, const struct lm_model *model) {
    const struct lm_batch *batch = model->batches[worker->index];
    if (!batch) return 0;
    OrtValue **values = values_for(batch, model, model->batch_size);
    int code = 0;
    for (uint32_t e = 0; !code && e < (model->experts.count ? model->experts.count : 1); e++) {
        const struct lm_model *runs = model->experts.count ? model->experts.models[e] : model;
        code = lm_model_run(runs, &worker->shared->ort, worker->index, values);
        lm_infer_drop_outputs(worker->shared, model, model->batch_size,
                              values + model->input_count);
    }
    return code;
}

/* Puts a request's rows at `row` of the batch. */
static int gather(struct lm_batch *batch, const struct lm_ort *ort,
                  const struct lm_request *request, uint32_t row, OrtValue **values) {
    const struct lm_model *model = request->model;
    const struct lm_encoding *encoding = &lm_encodings[request->encoding];
    const bool converts = encoding->convert && !request->converted;
    void *inputs[LM_TENSORS_MAX];
    for (uint32_t i = 0; i < model->input_count; i++) {
        size_t bytes = row_bytes(&model->inputs[i], &request->sizes);
        inputs[i] = (uint8_t *)batch->inputs[i] + row * bytes;
        if (converts || lm_is_string(&model->inputs[i])) continue;
        memcpy(inputs[i], request->layout.inputs[i], request->sizes.rows * bytes);
    }
    if (converts) encoding->convert(request, inputs);
    if (model->string_inputs == 0) return 0;
    return lm_model_fill_strings(model, ort, &request->layout, &request->sizes, row,
                                 &batch->binding, values);
}

static int compose(const struct lm_batch *batch, struct lm_shared *shared,
                   struct lm_request *request, uint32_t row, OrtValue **outputs) {
    const struct lm_model *model = request->model;
    const void *data[LM_TENSORS_MAX];
    size_t bytes[LM_TENSORS_MAX];
    uint32_t words[LM_SHAPE_BLOCK_BYTES(LM_TENSORS_MAX) / 4];
    uint32_t *block = words;
    struct lm_infer_room room = lm_infer_loose_room(request);
    *block++ = model->output_count;
    for (uint32_t o = 0; o < model->output_count; o++) {
        if (!model->outputs[o].shape_known) {
            int code = lm_infer_take_rows(shared, request, o, outputs[o], row, &data[o], &bytes[o],
                                          &block, &room);
            if (code) return code;
            continue;
        }
        lm_infer_put_shape(&model->outputs[o], &request->sizes, &block);
        size_t each = row_bytes(&model->outputs[o], &request->sizes);
        if (lm_is_string(&model->outputs[o])) {
            each /= model->outputs[o].element_bytes;
            int code =
                lm_infer_take_strings(shared, request, o, outputs[o], row * each,
                                      request->sizes.rows * each, &data[o], &bytes[o], &room);
            if (code) return code;
            continue;
        }
        data[o] = (const uint8_t *)batch->outputs[o] + row * each;
        bytes[o] = request->sizes.rows * each;
    }
    int code = lm_carrier_put(request, data, bytes);
    if (code) return code;
    request->in_batch = true;
    size_t block_bytes = lm_model_tells_shapes(model) ? (size_t)(block - words) * sizeof *block : 0;
    memcpy(request->prefix, words, block_bytes);
    lm_answers_say(request, data, bytes, block_bytes, true);
    lm_request_dialect(request)->compose_outputs(request, data, bytes, block_bytes);
    return 0;
}

/* Outputs that could not be wrapped for so many rows are copied to their place. */
static int take_outputs(struct lm_worker *worker, struct lm_batch *batch,
                        const struct lm_model *model, const struct lm_sizes *sizes,
                        OrtValue **outputs) {
    int code = 0;
    for (uint32_t o = 0; !code && o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        if (lm_output_is_wrapped(output, sizes->rows)) continue;
        if (!output->shape_known) { /* each request takes its own, here and below */
            code = lm_infer_check_rows(worker->shared, output, outputs[o], sizes->rows);
            continue;
        }
        if (lm_is_string(output)) {
            code = lm_model_check_count(&worker->shared->ort, output, outputs[o], sizes);
            continue;
        }
        code = lm_model_take_output(&worker->shared->ort, output, &outputs[o], batch->outputs[o],
                                    sizes->rows * row_bytes(output, sizes));
    }
    return code;
}

/* Whether a further expert is to run the request, whose rows begin at `row`. */
static bool goes_on(const struct lm_batch *batch, struct lm_request *request, uint32_t row) {
    const struct lm_experts *experts = &request->model->experts;
    if (!lm_experts_cascade(experts)) return false;
    const uint8_t *output = batch->outputs[experts->at];
    output += row * row_bytes(&request->model->outputs[experts->at], &request->sizes);
    return lm_route_goes_on(request, output);
}

static void answer(struct lm_worker *worker, const struct lm_batch *batch,
                   struct lm_request *request, uint32_t row, OrtValue **outputs) {
    if (!lm_worker_may_answer(request)) return;
    int code = compose(batch, worker->shared, request, row, outputs);
    if (code) lm_worker_compose_error(request, lm_infer_status(code), lm_error_last());
    lm_record_status(worker, request);
}

bool lm_batch_run(struct lm_worker *worker, struct lm_request **requests, uint32_t count) {
    const struct lm_model *model = requests[0]->model;
    struct lm_batch *batch = model->batches[worker->index];
    uint32_t rows = 0, row = 0;
    for (uint32_t r = 0; r < count; r++) rows += requests[r]->sizes.rows;
    LM_DEBUG_ASSERT(rows <= model->batch_size);
    struct lm_sizes sizes = requests[0]->sizes; /* all are of its shape */
    sizes.rows = rows;
    OrtValue **values = values_for(batch, model, rows);
    uint64_t before = lm_now_ns();
    int code = set_count(model) == 1
                   ? wrap(batch, &worker->shared->ort, model, &sizes, &batch->binding)
                   : 0;
    for (uint32_t r = 0; !code && r < count; r++) {
        code = gather(batch, &worker->shared->ort, requests[r], row, values);
        row += requests[r]->sizes.rows;
    }
    const struct lm_model *runs = lm_request_runs(requests[0]);
    const bool in_place = lm_request_is_in_place(requests[0]);
    struct lm_run run = lm_worker_run(worker, runs);
    run.values = values;
    run.inputs = batch->inputs;
    run.outputs = batch->outputs;
    run.sizes = &sizes;
    if (!code) code = lm_model_make_run(runs, in_place, &run);
    if (!code && !in_place)
        code = take_outputs(worker, batch, model, &sizes, values + model->input_count);
    if (code) lm_infer_drop_outputs(worker->shared, model, rows, values + model->input_count);
    if (model->string_inputs > 0) lm_infer_end_strings(worker, model, &batch->binding, values);
    uint64_t after = lm_now_ns();
    lm_record_run(worker, model);
    if (code) {
        lm_add_single_writer_u64(&worker->stats->worker.batches_failed, 1);
        return false;
    }
    lm_add_single_writer_u64(&worker->stats->worker.batches, 1);
    row = 0;
    for (uint32_t r = 0; r < count; r++) {
        if (!requests[r]->goes_on) requests[r]->preprocessed_ns = before;
        requests[r]->inferred_ns = after;
        requests[r]->batch_rows = rows;
        requests[r]->leads = r == 0;
        requests[r]->width = 1;
        requests[r]->goes_on = goes_on(batch, requests[r], row);
        if (!requests[r]->goes_on)
            answer(worker, batch, requests[r], row, values + model->input_count);
        row += requests[r]->sizes.rows;
    }
    if (model->string_outputs > 0 || !model->outputs_known)
        lm_infer_drop_outputs(worker->shared, model, rows, values + model->input_count);
    return true;
}

/* Which output of the batch an address lies in. */
static bool output_at(const struct lm_batch *batch, const struct lm_model *model, const uint8_t *at,
                      uint32_t *output_out) {
    for (uint32_t o = 0; o < model->output_count; o++) {
        const uint8_t *first = batch->outputs[o];
        const uint8_t *end = o + 1 < model->output_count
                                 ? (const uint8_t *)batch->outputs[o + 1]
                                 : (const uint8_t *)batch->memory.base + batch->memory.bytes;
        *output_out = o;
        if (at >= first && at < end) return true;
    }
    return false;
}

void lm_batch_keep_reply(struct lm_worker *worker, struct lm_request *request) {
    struct iovec *end = request->message.msg_iov + request->message.msg_iovlen;
    if (!request->in_batch) return; /* threads for many texts have no batches */
    const struct lm_batch *batch = request->model->batches[worker->index];
    request->in_batch = false;
    for (struct iovec *part = request->message.msg_iov; part < end; part++) {
        uint32_t output;
        size_t bytes = 0;
        if (!output_at(batch, request->model, part->iov_base, &output)) continue; /* its own slot */
        /* An output's rest keeps its place in the whole, which may be kept for the response cache
         * (lm_answers_say). */
        lm_tensor_bytes(&request->model->outputs[output], &request->sizes, &bytes);
        uint8_t *room = (uint8_t *)request->layout.outputs[output] + (bytes - part->iov_len);
        memcpy(room, part->iov_base, part->iov_len);
        part->iov_base = room;
    }
}
