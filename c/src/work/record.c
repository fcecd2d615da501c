/* record.c: see record.h. */
#include "work/record.h"

#include "base/clock.h"
#include "flow/access_log.h"
#include "flow/slots.h"
#include "models/runner.h"
#include "models/steps.h"

/* Of the texts of an answered request: the second output has how many each became. */
static uint32_t count_tokens(const struct lm_request *request) {
    const int32_t *tokens = request->layout.outputs[1];
    uint32_t sum = 0;
    for (uint32_t row = 0; row < request->sizes.rows; row++) sum += (uint32_t)tokens[row];
    return sum;
}

void lm_record_status(struct lm_worker *worker, struct lm_request *request) {
    struct lm_worker_counters *counters = &worker->stats->worker;
    struct lm_worker_model_counters *model = &worker->stats->models[request->model->index].worker;
    if (request->status == LM_STATUS_OVERLOADED) {
        lm_add_single_writer_u64(&counters->requests_overloaded, 1);
        lm_add_single_writer_u64(&model->model_unfit, 1);
        return;
    }
    if (request->status == LM_STATUS_DEADLINE) {
        lm_add_single_writer_u64(&counters->requests_expired, 1);
        lm_add_single_writer_u64(&model->model_expired, 1);
        return;
    }
    if (request->status != LM_STATUS_OK) {
        bool failed = request->status == LM_STATUS_INFERENCE_FAILED;
        lm_add_single_writer_u64(&counters->requests_error, 1);
        lm_add_single_writer_u64(failed ? &model->model_failed : &model->model_unfit, 1);
        if (failed) return;
        bool large = request->status == LM_STATUS_TOO_LARGE;
        lm_add_single_writer_u64(large ? &counters->requests_too_large : &counters->requests_bad,
                                 1);
        return;
    }
    lm_add_single_writer_u64(&counters->requests_ok, 1);
    lm_add_single_writer_u64(&model->model_ok, 1);
    lm_add_single_writer_u64(&counters->rows, request->sizes.rows);
    lm_add_single_writer_u64(&model->model_rows, request->sizes.rows);
    if (request->model->text) {
        request->tokens = count_tokens(request);
        lm_add_single_writer_u64(&model->model_tokens, request->tokens);
        lm_slots_settle(request, request->tokens); /* before its client may ask again */
    }
    if (request->expert) {
        const uint8_t place = request->model->experts.places[request->expert_at];
        lm_add_single_writer_u64(&model->model_experts[place], 1);
    }
}

void lm_record_run(struct lm_worker *worker, const struct lm_model *model) {
    lm_add_single_writer_u64(&worker->stats->worker.runs, 1);
    lm_add_single_writer_u64(&worker->stats->models[model->index].worker.model_runs, 1);
}

/* Of an ensemble's request that is recorded: a span of each step, below the request's. */
static void trace_steps(struct lm_worker *worker, const struct lm_request *request) {
    const struct lm_steps *steps = request->model->steps;
    for (uint32_t s = 0; s < steps->count; s++) {
        struct lm_trace_record row = {.started_ns = worker->steps_ns[s],
                                      .total_ns = worker->steps_ns[s + 1] - worker->steps_ns[s],
                                      .model = (uint16_t)steps->steps[s].model->index,
                                      .is_span_alone = true,
                                      .kind = LUMEN_SPAN_STEP,
                                      .dialect = ""};
        row.context = request->context;
        row.context.parent = request->context.span;
        lm_trace_push(&worker->trace, &row);
    }
}

static void trace(struct lm_worker *worker, const struct lm_request *request, uint64_t sent_ns) {
    struct lm_trace_record row = {
        .id = request->id,
        .started_ns = request->started_ns,
        .receive_ns = request->received_ns - request->started_ns,
        .queue_ns = request->popped_ns - request->received_ns,
        .preprocess_ns = request->preprocessed_ns - request->popped_ns,
        .infer_ns = request->inferred_ns - request->preprocessed_ns,
        .send_ns = sent_ns - request->inferred_ns,
        .total_ns = sent_ns - request->started_ns,
        .bytes = request->payload_bytes,
        .rows = request->sizes.rows,
        .batch_rows = request->batch_rows,
        .width = request->width,
        .expert = request->expert ? (uint16_t)(request->expert->index + 1) : 0,
        .queue = (uint8_t)(worker->line ? worker->line->queue.type : LUMEN_QUEUE_INLINE),
        .allocator = lm_slot_allocator(request->slot),
        .model = (uint16_t)request->model->index,
        .status = request->status,
    };
    lm_access_log_complete(request, &row);
    lm_trace_push(&worker->trace, &row);
    const bool has_steps = lm_runner_of(request->model)->runs_all_parts;
    if (has_steps && request->context.span && request->status == LM_STATUS_OK)
        trace_steps(worker, request);
    lm_store_relaxed_u64(&worker->stats->worker.traces_dropped,
                         lm_load_relaxed_u64(&worker->trace.dropped)); /* relaxed: own words */
}

/* The entry of Runs with so many rows; NULL: all are of other sizes. */
static struct lm_batch_count *count_of(struct lm_worker *worker, uint32_t model, uint32_t rows) {
    for (uint32_t b = 0; b < LM_BATCH_SIZES; b++) {
        struct lm_batch_count *count = &worker->batch_counts[model][b];
        uint64_t found = lm_load_relaxed_u64(&count->rows);       /* relaxed: own words */
        if (found == 0) lm_store_relaxed_u64(&count->rows, rows); /* relaxed: a counter's name */
        if (found == 0 || found == rows) return count;
    }
    return NULL;
}

/* Of a batch the first request counts its Run. */
static void record_batch(struct lm_worker *worker, const struct lm_request *request,
                         uint64_t sent_ns) {
    if (request->batch_rows == 0) return;
    struct lm_batch_count *count = count_of(worker, request->model->index, request->batch_rows);
    if (!count) return;
    if (request->leads) {
        lm_add_single_writer_u64(&count->runs, 1);
        lm_add_single_writer_u64(&count->input_ns, request->preprocessed_ns - request->popped_ns);
        lm_add_single_writer_u64(&count->infer_ns, request->inferred_ns - request->preprocessed_ns);
    }
    lm_add_single_writer_u64(&count->output_ns, sent_ns - request->inferred_ns);
}

/* The model's share of the times; `sent_ns` also where the I/O thread sends what is left. */
static void record_model(struct lm_worker *worker, const struct lm_request *request,
                         uint64_t sent_ns) {
    struct lm_worker_model_counters *counters =
        &worker->stats->models[request->model->index].worker;
    lm_store_relaxed_u64(&counters->model_last_ms, lm_unix_ms()); /* relaxed: a gauge */
    if (request->status == LM_STATUS_INFERENCE_FAILED)
        lm_add_single_writer_u64(&counters->model_failed_ns, sent_ns - request->started_ns);
    if (request->status != LM_STATUS_OK) return;
    lm_add_single_writer_u64(&counters->model_ok_ns, sent_ns - request->started_ns);
    lm_add_single_writer_u64(&counters->model_queue_ns, request->popped_ns - request->received_ns);
    lm_add_single_writer_u64(&counters->model_preprocess_ns,
                             request->preprocessed_ns - request->popped_ns);
    lm_add_single_writer_u64(&counters->model_infer_ns,
                             request->inferred_ns - request->preprocessed_ns);
    lm_add_single_writer_u64(&counters->model_send_ns, sent_ns - request->inferred_ns);
}

static void record_stages(struct lm_worker *worker, const struct lm_request *request,
                          uint64_t sent_ns) {
    struct lm_histogram *stages = worker->stats->stages;
    struct lm_model_histogram *of_model = worker->stats->models[request->model->index].stages;
    lm_model_histogram_record(&of_model[LM_MODEL_STAGE_QUEUE],
                              request->popped_ns - request->received_ns);
    lm_model_histogram_record(&of_model[LM_MODEL_STAGE_INFER],
                              request->inferred_ns - request->preprocessed_ns);
    lm_histogram_record(&stages[LM_STAGE_RECEIVE], request->received_ns - request->started_ns);
    lm_histogram_record(&stages[LM_STAGE_QUEUE], request->popped_ns - request->received_ns);
    lm_histogram_record(&stages[LM_STAGE_PREPROCESS],
                        request->preprocessed_ns - request->popped_ns);
    lm_histogram_record(&stages[LM_STAGE_INFER], request->inferred_ns - request->preprocessed_ns);
    if (request->outcome != LM_OUTCOME_SENT) return; /* the I/O thread records the rest */
    lm_histogram_record(&stages[LM_STAGE_SEND], sent_ns - request->inferred_ns);
    lm_histogram_record(&stages[LM_STAGE_TOTAL], sent_ns - request->started_ns);
    lm_model_histogram_record(&of_model[LM_MODEL_STAGE_TOTAL], sent_ns - request->started_ns);
}

void lm_record_reply(struct lm_worker *worker, const struct lm_request *request, uint64_t sent_ns) {
    record_stages(worker, request, sent_ns);
    record_model(worker, request, sent_ns);
    record_batch(worker, request, sent_ns);
    if (lm_access_log_wants(request)) trace(worker, request, sent_ns);
}
