/* infer.c: see infer.h. */
#include "work/infer.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "flow/answer_cache.h"
#include "flow/io_model.h"
#include "models/binding.h"
#include "work/carrier.h"
#include "work/record.h"
#include "work/region_tensors.h"
#include "work/route.h"
#include "work/sequence.h"
#include "work/width.h"

struct lm_infer_room lm_infer_loose_room(const struct lm_request *request) {
    const struct lm_model *model = request->model;
    size_t bytes = 0, strings = 0, left = lm_slot_left(request->slot);
    for (uint32_t i = 0; i < model->input_count; i++) strings += request->layout.string_bytes[i];
    lm_model_loose_bytes(model, &request->sizes, strings, &bytes);
    bytes = lm_align_up(bytes, LM_SLOT_ALIGN);
    return (struct lm_infer_room){
        .slot = bytes < left ? bytes : left,
        .allowed = model->output_bytes_are_default ? SIZE_MAX : model->max_output_bytes};
}

enum lm_status lm_infer_status(int code) {
    /* The inputs' values, such as an index beyond a table, are the client's. */
    if (code == LUMEN_E_INVALID) return LM_STATUS_BAD_REQUEST;
    return code == LUMEN_E_NOMEM ? LM_STATUS_OVERLOADED : LM_STATUS_INFERENCE_FAILED;
}

/* Memory for an output: in the room of the slot that is kept for such, whatever else is free, or
 * beside the slot. Returns 0 or LUMEN_E_*. */
static int take_room(struct lm_shared *shared, struct lm_request *request, uint32_t output,
                     size_t bytes, struct lm_infer_room *room, void **place_out) {
    if (bytes > room->allowed) {
        return lm_error(LUMEN_E_ORT,
                        "output '%s' has %zu bytes, which do not fit; raise max_output_bytes of "
                        "model '%s'",
                        request->model->outputs[output].name, bytes, request->model->name);
    }
    size_t used = lm_align_up(bytes, LM_SLOT_ALIGN);
    room->allowed -= bytes;
    *place_out = used <= room->slot ? lm_slot_alloc(request->slot, bytes) : NULL;
    if (!*place_out) return lm_spill_take(&shared->spills, &request->spills, bytes, place_out);
    room->slot -= used;
    return 0;
}

/* The same, or where a client that shares its memory wants the output. */
static int take_place(struct lm_shared *shared, struct lm_request *request, uint32_t output,
                      size_t bytes, struct lm_infer_room *room, void **place_out) {
    if (!lm_carrier_of(request)->has_places)
        return take_room(shared, request, output, bytes, room, place_out);
    *place_out = lm_region_room(request, output, bytes);
    return *place_out ? 0 : LUMEN_E_ORT;
}

int lm_infer_take_strings(struct lm_shared *shared, struct lm_request *request, uint32_t output,
                          const OrtValue *value, size_t first, size_t count, const void **data_out,
                          size_t *bytes_out, struct lm_infer_room *room) {
    void *place = NULL;
    int code = lm_ort_strings_measure(&shared->ort, value, first, count, bytes_out);
    if (!code) code = take_room(shared, request, output, *bytes_out, room, &place);
    if (!code)
        code = lm_ort_strings_take(&shared->ort, value, first, count, place, *bytes_out, bytes_out);
    *data_out = place;
    return code;
}

static int read_shape(struct lm_shared *shared, const struct lm_tensor *tensor,
                      const OrtValue *value, int64_t dims[LM_RANK_MAX], size_t *rank_out) {
    const struct lm_ort_api *api = shared->ort.api;
    OrtTensorTypeAndShapeInfo *info = NULL;
    int code = lm_ort_check(&shared->ort, api->GetTensorTypeAndShape(value, &info), tensor->name);
    if (code) return code;
    OrtStatus *status = api->GetDimensionsCount(info, rank_out);
    if (!status && *rank_out <= LM_RANK_MAX) status = api->GetDimensions(info, dims, *rank_out);
    api->ReleaseTensorTypeAndShapeInfo(info);
    code = lm_ort_check(&shared->ort, status, tensor->name);
    if (!code && *rank_out > LM_RANK_MAX)
        code = lm_error(LUMEN_E_ORT, "output '%s' has %zu dimensions, at most %d are served",
                        tensor->name, *rank_out, LM_RANK_MAX);
    return code;
}

/* Copies an output that ONNX Runtime allocated into the slot, and writes its shape to `block`. */
static int take_output(struct lm_shared *shared, struct lm_request *request, uint32_t output,
                       OrtValue **value, const void **data_out, size_t *bytes_out, uint32_t **block,
                       struct lm_infer_room *room) {
    const struct lm_tensor *tensor = &request->model->outputs[output];
    void *data = NULL;
    size_t rank = 0, count = 1;
    int64_t dims[LM_RANK_MAX];
    int code = read_shape(shared, tensor, *value, dims, &rank);
    if (code) return code;
    *(*block)++ = (uint32_t)rank;
    for (size_t d = 0; d < rank; d++) {
        *(*block)++ = (uint32_t)dims[d];
        count *= (size_t)dims[d];
    }
    if (lm_is_string(tensor)) {
        if (tensor->shape_known && !request->is_loose)
            code = lm_model_check_count(&shared->ort, tensor, *value, &request->sizes);
        if (!code)
            code = lm_infer_take_strings(shared, request, output, *value, 0, count, data_out,
                                         bytes_out, room);
    } else {
        *bytes_out = count * tensor->element_bytes;
        code = lm_ort_check(&shared->ort, shared->ort.api->GetTensorMutableData(*value, &data),
                            tensor->name);
        void *copy = NULL;
        if (!code) code = take_place(shared, request, output, *bytes_out, room, &copy);
        if (!code && *bytes_out) memcpy(copy, data, *bytes_out); /* none: maybe no memory at all */
        *data_out = copy;
    }
    if (code) return code;
    lm_ort_value_close(&shared->ort, *value);
    *value = NULL;
    return 0;
}

void lm_infer_put_shape(const struct lm_tensor *tensor, const struct lm_sizes *sizes,
                        uint32_t **block) {
    int64_t dims[LM_RANK_MAX];
    lm_tensor_shape(tensor, sizes, dims);
    *(*block)++ = tensor->rank;
    for (uint32_t d = 0; d < tensor->rank; d++) *(*block)++ = (uint32_t)dims[d];
}

int lm_infer_check_rows(struct lm_shared *shared, const struct lm_tensor *tensor,
                        const OrtValue *value, uint32_t rows) {
    int64_t dims[LM_RANK_MAX];
    size_t rank = 0;
    int code = read_shape(shared, tensor, value, dims, &rank);
    if (code || (rank > 0 && dims[0] == rows)) return code;
    return lm_error(LUMEN_E_ORT, "output '%s': expected %u rows, found %lld", tensor->name, rows,
                    rank ? (long long)dims[0] : 0ll);
}

int lm_infer_take_rows(struct lm_shared *shared, struct lm_request *request, uint32_t output,
                       OrtValue *value, uint32_t first, const void **data_out, size_t *bytes_out,
                       uint32_t **block, struct lm_infer_room *room) {
    const struct lm_tensor *tensor = &request->model->outputs[output];
    int64_t dims[LM_RANK_MAX];
    size_t rank = 0, row_bytes = tensor->element_bytes;
    void *data = NULL;
    int code = read_shape(shared, tensor, value, dims, &rank);
    if (!code)
        code = lm_ort_check(&shared->ort, shared->ort.api->GetTensorMutableData(value, &data),
                            tensor->name);
    if (code) return code;
    *(*block)++ = (uint32_t)rank;
    *(*block)++ = request->sizes.rows;
    for (size_t d = 1; d < rank; d++) {
        *(*block)++ = (uint32_t)dims[d];
        row_bytes *= (size_t)dims[d];
    }
    *bytes_out = request->sizes.rows * row_bytes;
    void *copy = NULL;
    code = take_place(shared, request, output, *bytes_out, room, &copy);
    if (code) return code;
    if (*bytes_out) memcpy(copy, (const uint8_t *)data + first * row_bytes, *bytes_out);
    *data_out = copy;
    return 0;
}

/* Composes the reply over the outputs, with all their shapes where the rows do not tell them. */
static int compose_outputs(struct lm_shared *shared, struct lm_request *request,
                           OrtValue **outputs) {
    const struct lm_model *model = request->model;
    const void *data[LM_TENSORS_MAX];
    size_t bytes[LM_TENSORS_MAX];
    uint32_t words[LM_SHAPE_BLOCK_BYTES(LM_TENSORS_MAX) / 4];
    uint32_t *block = words;
    struct lm_infer_room room = lm_infer_loose_room(request);
    bool tells_shapes = lm_model_tells_shapes(model) || request->is_loose;
    *block++ = model->output_count;
    for (uint32_t i = 0; i < model->output_count; i++) {
        const struct lm_tensor *output = &model->outputs[i];
        if (output->shape_known && !lm_is_string(output) && !request->is_loose) {
            data[i] = request->layout.outputs[i];
            lm_tensor_bytes(output, &request->sizes, &bytes[i]);
            if (tells_shapes) lm_infer_put_shape(output, &request->sizes, &block);
            int code = 0;
            if (!lm_request_is_in_place(request) &&
                !lm_output_is_wrapped(output, request->sizes.rows)) {
                code = lm_model_take_output(&shared->ort, output, &outputs[i],
                                            request->layout.outputs[i], bytes[i]);
            }
            if (code) return code;
        } else {
            int code =
                take_output(shared, request, i, &outputs[i], &data[i], &bytes[i], &block, &room);
            if (code) return code;
        }
    }
    size_t block_bytes = tells_shapes ? (size_t)(block - words) * sizeof *block : 0;
    if (block_bytes) memcpy(request->prefix, words, block_bytes);
    int code = lm_carrier_put(request, data, bytes);
    if (code) return code;
    lm_answers_say(request, data, bytes, block_bytes, false);
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

void lm_infer_end_strings(struct lm_worker *worker, const struct lm_model *model,
                          struct lm_binding *binding, OrtValue **values) {
    lm_add_single_writer_u64(&worker->stats->worker.string_allocations, binding->string_allocs);
    binding->string_allocs = 0;
    if (binding->string_bytes <= LM_STRINGS_KEPT_BYTES) return;
    /* Its inputs alone: the outputs are still to be read. */
    for (uint32_t i = 0; i < model->input_count; i++) {
        lm_ort_value_close(&worker->shared->ort, values[i]);
        values[i] = NULL;
    }
    binding->sizes = (struct lm_sizes){0};
}

/* One Run, and those of further experts while none is sure. */
static int run(struct lm_worker *worker, struct lm_request *request, OrtValue **values) {
    const struct lm_model *model = request->model;
    OrtValue **outputs = values + model->input_count;
    for (;;) {
        int code = lm_width_run(worker, request, values);
        lm_record_run(worker, model);
        if (code || !lm_route_goes_on_after(request, &worker->shared->ort, outputs)) return code;
        lm_infer_drop_outputs(worker->shared, model, request->sizes.rows, outputs);
    }
}

/* Releases what is left of the request's outputs, all of them where they are of ONNX Runtime. */
static void drop_outputs(struct lm_shared *shared, const struct lm_request *request,
                         struct lm_binding *binding, OrtValue **outputs) {
    lm_infer_drop_outputs(shared, request->model, request->sizes.rows, outputs);
    if (!request->is_loose) return;
    for (uint32_t o = 0; o < request->model->output_count; o++) {
        lm_ort_value_close(&shared->ort, outputs[o]);
        outputs[o] = NULL;
    }
    binding->sizes = (struct lm_sizes){0}; /* they are wrapped anew for the next request */
}

/* The Run. Where outputs turn out to have other shapes than was known of them, ONNX Runtime
 * allocates them, for this request and those that follow. An expert's answer is looked at in its
 * place: there the failure stays. */
static int run_as_outputs_are(struct lm_worker *worker, struct lm_request *request,
                              struct lm_binding *binding, OrtValue **values) {
    OrtValue **outputs = values + request->model->input_count;
    bool may_be_loose = !lm_request_is_in_place(request) && !request->expert;
    request->is_loose = may_be_loose && (lm_io_model_outputs_lie(request) ||
                                         lm_request_text_ask(request).all_tokens);
    if (request->is_loose) drop_outputs(worker->shared, request, binding, outputs);
    int code = run(worker, request, values);
    if (code != LM_ORT_UNFIT_OUTPUT || !may_be_loose || request->is_loose) return code;
    lm_io_model_say_outputs_lie(request->model, request->io->index);
    request->is_loose = true;
    drop_outputs(worker->shared, request, binding, outputs);
    return run(worker, request, values);
}

/* Its tensors, wrapped and filled, and its Run. Returns 0 or LUMEN_E_*. */
static int bind_and_run(struct lm_worker *worker, struct lm_request *request,
                        struct lm_binding *binding, OrtValue **values) {
    struct lm_shared *shared = worker->shared;
    const struct lm_model *model = request->model;
    const bool in_place = lm_request_is_in_place(request);
    int code = in_place ? 0
                        : lm_model_bind(model, &shared->ort, &request->layout, &request->sizes,
                                        binding, values);
    if (!code && !in_place && model->string_inputs > 0)
        code = lm_model_fill_strings(model, &shared->ort, &request->layout, &request->sizes, 0,
                                     binding, values);
    request->inferred_ns = lm_now_ns();
    /* After a batch that was not sure it is in its Runs already. */
    if (!request->goes_on) request->preprocessed_ns = request->inferred_ns;
    if (!code) {
        code = run_as_outputs_are(worker, request, binding, values);
        request->inferred_ns = lm_now_ns();
        request->batch_rows = request->sizes.rows;
        request->leads = true;
    }
    if (!in_place && model->string_inputs > 0) lm_infer_end_strings(worker, model, binding, values);
    return code;
}

static void refuse(struct lm_worker *worker, struct lm_request *request, enum lm_status status) {
    request->preprocessed_ns = request->inferred_ns = lm_now_ns();
    if (!lm_worker_may_answer(request)) return;
    lm_worker_compose_error(request, status, lm_error_last());
    lm_record_status(worker, request);
}

static void infer_on(struct lm_worker *worker, struct lm_request *request,
                     struct lm_binding *binding, OrtValue **values) {
    struct lm_shared *shared = worker->shared;
    const struct lm_model *model = request->model;
    const struct lm_encoding *encoding = &lm_encodings[request->encoding];
    request->is_loose = false;
    if (encoding->convert && !request->converted)
        encoding->convert(request, request->layout.inputs);
    enum lm_status turn = lm_sequence_begin(request, request->popped_ns);
    if (turn != LM_STATUS_OK) {
        refuse(worker, request, turn);
        return;
    }
    int code = bind_and_run(worker, request, binding, values);
    if (!lm_worker_may_answer(request)) {
        lm_sequence_end(request, false, request->inferred_ns);
        drop_outputs(shared, request, binding, values + model->input_count);
        return;
    }
    if (!code) code = compose_outputs(shared, request, values + model->input_count);
    /* The answer may be one that cannot be said, as NaN in JSON. */
    lm_sequence_end(request, !code && request->status == LM_STATUS_OK, request->inferred_ns);
    if (code) {
        drop_outputs(shared, request, binding, values + model->input_count);
        lm_worker_compose_error(request, lm_infer_status(code), lm_error_last());
    }
    lm_record_status(worker, request);
}

void lm_infer(struct lm_worker *worker, struct lm_request *request) {
    if (!lm_carrier_of(request)->has_places) {
        infer_on(worker, request, lm_io_model_binding(request), lm_io_model_values(request));
        return;
    }
    /* For this Run alone: its tensors may be anywhere, and the memory is not ours to keep. */
    OrtValue *values[2 * LM_TENSORS_MAX];
    struct lm_binding binding = {0};
    for (uint32_t v = 0; v < request->model->input_count + request->model->output_count; v++)
        values[v] = NULL;
    infer_on(worker, request, &binding, values);
    lm_model_unbind(request->model, &worker->shared->ort, &binding, values);
}

void lm_infer_answer(struct lm_worker *worker, struct lm_request *request, int code) {
    char why[LM_TRACE_WHY_BYTES];
    lm_record_run(worker, request->model);
    request->batch_rows = request->sizes.rows;
    request->leads = true;
    request->width = 1;
    request->is_loose = false;
    if (!lm_worker_may_answer(request)) return;
    snprintf(why, sizeof why, "%s", request->why);
    if (!code && compose_outputs(worker->shared, request, NULL)) {
        lm_worker_compose_error(request, LM_STATUS_INFERENCE_FAILED, lm_error_last());
    } else if (code == LUMEN_E_STATE) { /* nobody waited for it any more, or its time is over */
        lm_worker_compose_error(request, LM_STATUS_DEADLINE,
                                "the deadline passed while its texts were run");
    } else if (code) {
        lm_worker_compose_error(request, lm_infer_status(code), why);
    }
    lm_record_status(worker, request);
}
