/* worker.c: pop, drop what has expired, preprocess, run, reply; see worker.h.
 * A worker waits on no socket and allocates nothing of ours. ONNX Runtime allocates inside Run.
 */
#include "flow/worker.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/topology.h"

/* ---- waiting for work ---- */

static bool pop_spinning(struct lm_shared *shared, uint32_t *job_out, uint32_t pauses) {
    for (uint32_t i = 0; i < pauses; i++) {
        if (lm_mpmc_pop(&shared->queue, job_out)) return true;
        lm_cpu_relax();
    }
    return lm_mpmc_pop(&shared->queue, job_out);
}

/* Sleeps until there may be work; see waitset.h for why none is missed. */
static bool pop_or_sleep(struct lm_worker *worker, uint32_t *job_out) {
    struct lm_shared *shared = worker->shared;
    lm_waitset_prepare(&shared->waitset, worker->index, lm_now_ns());
    bool found = lm_mpmc_pop(&shared->queue, job_out);
    /* acquire: pairs with the release in lm_thread_ended */
    if (found || lm_load_acquire_u32(&shared->workers_stop)) {
        lm_waitset_cancel(&shared->waitset, worker->index);
        return found;
    }
    lm_add_single_writer_u64(&worker->stats->worker.sleeps, 1);
    lm_waitset_sleep(&shared->waitset, worker->index);
    return false;
}

/* The next request, or false when the server ends. */
static bool next_job(struct lm_worker *worker, uint32_t *job_out) {
    struct lm_shared *shared = worker->shared;
    for (;;) {
        if (lm_mpmc_pop(&shared->queue, job_out)) return true;
        if (lm_load_acquire_u32(&shared->workers_stop)) return false; /* as in pop_or_sleep */
        switch (shared->idle) {
        case LUMEN_IDLE_SPIN: lm_cpu_relax(); break;
        case LUMEN_IDLE_YIELD: sched_yield(); break;
        case LUMEN_IDLE_ADAPTIVE:
            if (pop_spinning(shared, job_out, LM_SPIN_PAUSES)) return true;
            if (pop_or_sleep(worker, job_out)) return true;
            break;
        default:
            if (pop_or_sleep(worker, job_out)) return true;
            break;
        }
    }
}

/* ---- one request ---- */

/* Copies an output that ONNX Runtime allocated into the slot, and writes its shape to `block`. */
static int take_output(struct lm_shared *shared, struct lm_request *request, uint32_t output,
                       OrtValue **value, const void **data_out, size_t *bytes_out,
                       uint32_t **block) {
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
    void *copy = lm_slot_alloc(request->slot, bytes);
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

static void block_of_known(const struct lm_tensor *tensor, uint32_t rows, uint32_t **block) {
    int64_t dims[LM_RANK_MAX];
    lm_tensor_shape(tensor, rows, dims);
    *(*block)++ = tensor->rank;
    for (uint32_t d = 0; d < tensor->rank; d++) *(*block)++ = (uint32_t)dims[d];
}

/* Composes the reply over the outputs. When some shape was unknown, all shapes are told. */
static int compose_outputs(struct lm_shared *shared, struct lm_request *request,
                           OrtValue **outputs) {
    const struct lm_model *model = request->model;
    const void *data[LM_TENSORS_MAX];
    size_t bytes[LM_TENSORS_MAX];
    uint32_t words[LM_SHAPE_BLOCK_BYTES_MAX / 4];
    uint32_t *block = words;
    *block++ = model->output_count;
    for (uint32_t i = 0; i < model->output_count; i++) {
        const struct lm_tensor *output = &model->outputs[i];
        if (output->shape_known) {
            data[i] = request->layout.outputs[i];
            lm_tensor_bytes(output, request->rows, &bytes[i]);
            if (!model->outputs_known) block_of_known(output, request->rows, &block);
            int code = 0;
            if (!lm_output_is_wrapped(output, request->rows)) {
                code = lm_model_take_output(&shared->ort, output, &outputs[i],
                                            request->layout.outputs[i], bytes[i]);
            }
            if (code) return code;
        } else {
            int code = take_output(shared, request, i, &outputs[i], &data[i], &bytes[i], &block);
            if (code) return code;
        }
    }
    size_t block_bytes = model->outputs_known ? 0 : (size_t)(block - words) * sizeof *block;
    if (block_bytes) memcpy(request->prefix, words, block_bytes);
    lm_reply_outputs(request, data, bytes, block_bytes);
    return 0;
}

/* Releases outputs that ONNX Runtime allocated and nobody took. */
static void drop_outputs(struct lm_shared *shared, const struct lm_model *model, uint32_t rows,
                         OrtValue **outputs) {
    for (uint32_t i = 0; i < model->output_count; i++) {
        if (lm_output_is_wrapped(&model->outputs[i], rows)) continue;
        lm_ort_value_close(&shared->ort, outputs[i]);
        outputs[i] = NULL;
    }
}

static void infer(struct lm_worker *worker, struct lm_io *io, struct lm_request *request) {
    struct lm_shared *shared = worker->shared;
    const struct lm_model *model = request->model;
    uint32_t slot = request->slot->index;
    OrtValue **values = lm_io_values(io, slot, model->index);
    if (request->encoding == LM_ENCODING_RGB8) {
        lm_rgb8_convert(&model->rgb8, request->layout.raw, request->layout.inputs[0],
                        request->rows);
    }
    int code = lm_model_bind(model, &shared->ort, &request->layout, request->rows,
                             lm_io_binding(io, slot, model->index), values);
    request->preprocessed_ns = lm_now_ns();
    request->inferred_ns = request->preprocessed_ns;
    if (!code) {
        code = lm_model_run(model, &shared->ort, worker->index, values);
        request->inferred_ns = lm_now_ns();
        lm_add_single_writer_u64(&worker->stats->worker.runs, 1);
    }
    if (!code) code = compose_outputs(shared, request, values + model->input_count);
    if (code) {
        drop_outputs(shared, model, request->rows, values + model->input_count);
        lm_reply_text(request, LM_STATUS_INFERENCE_FAILED, lm_error_last());
        lm_add_single_writer_u64(&worker->stats->worker.requests_error, 1);
        return;
    }
    lm_add_single_writer_u64(&worker->stats->worker.requests_ok, 1);
    lm_add_single_writer_u64(&worker->stats->worker.rows, request->rows);
}

static void expire(struct lm_worker *worker, struct lm_request *request) {
    char text[LM_TEXT_BYTES_MAX];
    request->preprocessed_ns = request->inferred_ns = request->popped_ns;
    snprintf(text, sizeof text, "the deadline passed %llu us ago, in the queue",
             (unsigned long long)((request->popped_ns - request->deadline_ns) / 1000));
    lm_reply_text(request, LM_STATUS_DEADLINE, text);
    lm_add_single_writer_u64(&worker->stats->worker.requests_expired, 1);
}

static void record(struct lm_worker *worker, const struct lm_request *request, uint64_t sent_ns) {
    struct lm_histogram *stages = worker->stats->stages;
    lm_histogram_record(&stages[LM_STAGE_RECEIVE], request->received_ns - request->started_ns);
    lm_histogram_record(&stages[LM_STAGE_QUEUE], request->popped_ns - request->received_ns);
    lm_histogram_record(&stages[LM_STAGE_PREPROCESS],
                        request->preprocessed_ns - request->popped_ns);
    lm_histogram_record(&stages[LM_STAGE_INFER], request->inferred_ns - request->preprocessed_ns);
    if (request->outcome != LM_OUTCOME_SENT) return; /* the I/O thread records the rest */
    lm_histogram_record(&stages[LM_STAGE_SEND], sent_ns - request->inferred_ns);
    lm_histogram_record(&stages[LM_STAGE_TOTAL], sent_ns - request->started_ns);
}

/* Hands the slot back to its I/O thread, which is woken only when it has a use for it now. */
static void give_back(struct lm_io *io, uint32_t slot, enum lm_outcome outcome) {
    bool pushed = lm_mpmc_push(&io->returns, slot);
    LM_ASSERT(pushed); /* the ring has a place for every slot */
    /* W2: release shows the push, acquire pairs with I1; decides which worker rings */
    bool wanted = lm_exchange_acq_rel_u32(&io->wants_returns, 0) == 1;
    if (wanted || outcome == LM_OUTCOME_PARTIAL || outcome == LM_OUTCOME_UNSENT ||
        outcome == LM_OUTCOME_BROKEN) {
        lm_ring_wake(io->ring);
    }
}

static void serve(struct lm_worker *worker, uint32_t job) {
    struct lm_io *io = &worker->shared->ios[lm_job_io(job)];
    uint32_t slot = lm_job_slot(job);
    struct lm_request *request = &io->requests[slot];
    struct lm_connection *connection = lm_io_connection(io, request->connection);
    request->popped_ns = lm_now_ns();
    enum lm_outcome outcome = LM_OUTCOME_DROPPED;
    if (lm_load_relaxed_u32(
            &connection->gone)) { /* relaxed: missing it costs one Run, nothing else */
        lm_add_single_writer_u64(&worker->stats->worker.requests_gone, 1);
        request->outcome = outcome;
    } else {
        if (request->popped_ns >= request->deadline_ns) {
            expire(worker, request);
        } else {
            infer(worker, io, request);
        }
        size_t sent_bytes;
        outcome = lm_reply_try(connection, request, &sent_bytes);
        lm_add_single_writer_u64(&worker->stats->worker.bytes_out, sent_bytes);
        request->outcome = (uint8_t)outcome;
        record(worker, request, lm_now_ns());
    }
    give_back(io, slot, outcome);
}

/* ---- the thread ---- */

/* Runs a model twice on zeros, so that ONNX Runtime's own memory is there before the first request.
 */
static int warm_model(struct lm_worker *worker, const struct lm_model *model) {
    struct lm_ort *ort = &worker->shared->ort;
    struct lm_slot slot = {0};
    struct lm_layout layout;
    struct lm_binding binding = {0};
    OrtValue *values[2 * LM_TENSORS_MAX] = {0};
    if (!lm_model_slot_bytes(model, 1, &slot.bytes)) return 0;
    slot.base = aligned_alloc(LM_SLOT_ALIGN, slot.bytes);
    if (!slot.base) return lm_error(LUMEN_E_NOMEM, "no memory to warm model '%s' up", model->name);
    memset(slot.base, 0, slot.bytes);
    lm_model_layout(model, &slot, LM_ENCODING_TENSORS, 1, &layout);
    int code = lm_model_bind(model, ort, &layout, 1, &binding, values);
    for (int run = 0; !code && run < 2; run++) {
        code = lm_model_run(model, ort, worker->index, values);
        drop_outputs(worker->shared, model, 1, values + model->input_count);
    }
    lm_model_unbind(model, ort, &binding, values);
    free(slot.base);
    return code;
}

static void warm(struct lm_worker *worker) {
    for (uint32_t m = 0; m < worker->shared->model_count; m++) {
        const struct lm_model *model = &worker->shared->models[m];
        if (warm_model(worker, model) == 0) continue;
        /* Zeros may be no sensible input for it: worth a note, not a refusal. */
        snprintf(worker->note, sizeof worker->note, "model '%s' fails on an input of zeros: %s",
                 model->name, lm_error_last());
    }
}

static void set_up(struct lm_worker *worker) {
    char name[16];
    snprintf(name, sizeof name, "lumen-w/%u", worker->index);
    pthread_setname_np(pthread_self(), name);
    worker->stats->head.tid = (int32_t)syscall(SYS_gettid);
    if (worker->cpu >= 0) worker->pinned = lm_thread_pin(worker->cpu) == 0;
    worker->stats->head.cpu = worker->pinned ? worker->cpu : -1;
}

void *lm_worker_main(void *argument) {
    struct lm_worker *worker = argument;
    struct lm_shared *shared = worker->shared;
    set_up(worker);
    warm(worker);
    pthread_barrier_wait(&shared->started);
    pthread_barrier_wait(&shared->go);
    if (worker->niceness) worker->niceness = lm_thread_nice_by(worker->niceness);
    uint32_t job;
    while (next_job(worker, &job)) serve(worker, job);
    lm_thread_ended(shared, LUMEN_ROLE_WORKER);
    return NULL;
}
