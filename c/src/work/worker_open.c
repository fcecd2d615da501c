/* worker_open.c: what a worker needs besides its thread: parser, decoders, batches, and models that
 * have run once. See worker_open.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/processor.h"
#include "base/topology.h"
#include "flow/access_log.h"
#include "flow/io_model.h"
#include "models/binding.h"
#include "models/process.h"
#include "models/sizes.h"
#include "models/virtual.h"
#include "models/warmup.h"
#include "wire/inflate.h"
#include "work/batch.h"
#include "work/image_body.h"
#include "work/infer.h"
#include "work/worker_open.h"

/* Its outputs have other shapes than was known of them: ONNX Runtime allocates them from here on.
 */
static int run_loose(struct lm_worker *worker, const struct lm_model *model, OrtValue **values) {
    struct lm_shared *shared = worker->shared;
    OrtValue **outputs = values + model->input_count;
    for (uint32_t i = 0; i < shared->io_count; i++) lm_io_model_say_outputs_lie(model, i);
    for (uint32_t o = 0; o < model->output_count; o++) {
        lm_ort_value_close(&shared->ort, outputs[o]);
        outputs[o] = NULL;
    }
    return lm_model_run(model, &shared->ort, worker->index, values);
}

/* Runs a model twice on zeros, so that ONNX Runtime's own memory is there before the first request.
 */
static int warm_sizes(struct lm_worker *worker, const struct lm_model *model,
                      const struct lm_sizes *sizes, uint64_t *warm_ns) {
    struct lm_ort *ort = &worker->shared->ort;
    struct lm_slot slot = {0};
    struct lm_layout_lists lists;
    struct lm_layout layout = lm_layout_of(&lists);
    struct lm_binding binding = {0};
    OrtValue *values[2 * LM_TENSORS_MAX] = {0};
    *warm_ns = 0;
    if (!lm_model_slot_bytes(model, sizes, &slot.bytes)) return 0;
    slot.base = aligned_alloc(LM_SLOT_ALIGN, slot.bytes);
    if (!slot.base) return lm_error(LUMEN_E_NOMEM, "no memory to warm model '%s' up", model->name);
    memset(slot.base, 0, slot.bytes);
    lm_model_layout(model, &slot, LM_ENCODING_TENSORS, sizes, &layout);
    int code = lm_model_bind(model, ort, &layout, sizes, &binding, values);
    for (int run = 0; !code && run < 2 && *warm_ns <= LM_WARM_NS; run++) {
        uint64_t began_ns = lm_now_ns();
        code = lm_model_run(model, ort, worker->index, values);
        if (code == LM_ORT_UNFIT_OUTPUT) code = run_loose(worker, model, values);
        *warm_ns = code ? 0 : lm_now_ns() - began_ns;
        lm_infer_drop_outputs(worker->shared, model, 1, values + model->input_count);
    }
    lm_model_unbind(model, ort, &binding, values);
    free(slot.base);
    return code;
}

/* The largest sizes, and a batch of them, where they take no longer than a start should wait. What
 * is known of other models the first worker wrote, which alone asks for it. */
static int warm_model(struct lm_worker *worker, struct lm_model *model, uint64_t *warm_ns) {
    const bool is_first = worker->index == 0;
    *warm_ns = 0;
    for (uint32_t p = 0; is_first && p < lm_model_part_count(model); p++)
        model->strays = model->strays || lm_model_part(model, p)->strays;
    if (lm_runner_of(model)->warm_ns) {
        if (is_first) *warm_ns = lm_runner_of(model)->warm_ns(model);
        return lm_runner_of(model)->is_apart ? 0 : lm_batch_warm(worker, model);
    }
    const struct lm_sizes modest = lm_warmup_sizes(model, 1), largest = lm_model_largest(model, 1);
    int code = warm_sizes(worker, model, &modest, warm_ns);
    if (memcmp(&modest, &largest, sizeof modest) == 0)
        return code ? code : lm_batch_warm(worker, model);
    uint64_t largest_ns = lm_warmup_largest_ns(model, *warm_ns);
    const bool is_long = !code && largest_ns > LM_WARM_NS;
    if (is_long) *warm_ns = largest_ns;
    if (is_long) return 0;
    /* One that takes no short input may take a long one, and the other way round. */
    int largest_code = warm_sizes(worker, model, &largest, &largest_ns);
    if (largest_code) return code;
    *warm_ns = largest_ns;
    return lm_batch_warm(worker, model);
}

/* The same, with a look at what a provider does to the thread: it may move it to other cores, or
 * let it run on all of them. */
static int warm_on_its_cores(struct lm_worker *worker, struct lm_model *model, uint64_t *warm_ns,
                             char *note, size_t note_bytes) {
    struct lm_cpu_set before, after;
    char names[96];
    if (model->source.providers.count == 0) return warm_model(worker, model, warm_ns);
    bool known = lm_thread_cpus(&before) == 0; /* also of the thread that loads a model */
    int code = warm_model(worker, model, warm_ns);
    if (!known || lm_thread_cpus(&after) != 0 || memcmp(&before, &after, sizeof before) == 0)
        return code;
    (void)lm_thread_keep_to(&before);
    if (worker->index == 0) model->strays = true;
    lm_providers_text(&model->source.providers, names, sizeof names);
    snprintf(note, note_bytes,
             "model '%s': a provider (%s) moves the thread that runs it to other cores, so that it "
             "is pinned again after each Run: switch the provider's own pinning off",
             model->name, names);
    return code;
}

int lm_worker_take_model(struct lm_worker *worker, struct lm_model *model, char *note,
                         size_t note_bytes) {
    uint64_t warm_ns;
    bool runs = model->process ? worker->index < model->process->box_count
                               : lm_model_has_session(model, worker->index);
    if (!runs) return 0; /* an I/O thread's: only threads run it */
    int code = lm_batch_open(model, &worker->shared->ort, worker->index);
    if (!code) code = lm_image_desk_extend(worker, model);
    if (code) return code;
    /* Zeros may be no sensible input for it: worth a note, not a refusal. */
    if (warm_on_its_cores(worker, model, &warm_ns, note, note_bytes))
        snprintf(note, note_bytes, "model '%s' fails on an input of zeros: %s", model->name,
                 lm_error_last());
    if (worker->index == 0) model->warm_ns = warm_ns;
    return lm_runner_of(model)->is_apart
               ? 0
               : lm_warmups_run(model, &worker->shared->ort, worker->index);
}

/* A set that came later than `set` has the model too. */
static bool is_listed(const struct lm_model_set *newest, const struct lm_model_set *set,
                      const struct lm_model *model) {
    for (; newest != set; newest = newest->retired)
        if (lm_model_set_find(newest, model->index) == model) return true;
    return false;
}

/* Also for the last requests of models that went: of a worker that comes later they may be. */
int lm_worker_open(struct lm_worker *worker) {
    struct lm_shared *shared = worker->shared;
    if (worker->cpu >= 0) {
        worker->pinned = lm_thread_pin(worker->cpu) == 0;
    } else if (worker->node->cpus) {
        (void)lm_thread_keep_to(worker->node->cpus);
    }
    if (worker->node->memory >= 0) lm_memory_prefer(worker->node->memory);
    if (shared->config.flush_denormals) (void)lm_processor_flush_denormals();
    worker->stats->head.cpu = worker->pinned ? worker->cpu : -1;
    int code = lm_access_log_has_rows(shared) ? lm_trace_open(&worker->trace) : 0;
    worker->batch_counts = calloc(LUMEN_MODELS_MAX, sizeof *worker->batch_counts);
    if (!code && !worker->batch_counts) code = lm_error(LUMEN_E_NOMEM, "no memory for a worker");
    if (code) return code;
    code = lm_oip_parser_open(&worker->parser, shared->config.max_request_bytes);
    if (!code) code = lm_inflater_open(&worker->inflater);
    if (!code) code = lm_image_desk_open(worker);
    if (code) return code;
    const struct lm_model_set *newest = lm_models_in_force(shared);
    for (const struct lm_model_set *set = newest; set; set = set->retired) {
        for (uint32_t m = 0; !code && m < set->count; m++) {
            if (is_listed(newest, set, set->models[m])) continue;
            lm_run_arena_enter(&shared->run_arenas, worker->index);
            code = lm_worker_take_model(worker, set->models[m], worker->note, sizeof worker->note);
            /* relaxed: a gauge */
            lm_store_relaxed_u64(&worker->stats->worker.arena_kept_bytes, lm_run_arena_leave());
        }
    }
    return code;
}

int lm_worker_open_bulk(struct lm_worker *worker) {
    const struct lm_shared *shared = worker->shared;
    if (worker->node->cpus) (void)lm_thread_keep_to(worker->node->cpus);
    if (shared->config.flush_denormals) (void)lm_processor_flush_denormals();
    worker->stats->head.cpu = -1;
    worker->batch_counts = calloc(LUMEN_MODELS_MAX, sizeof *worker->batch_counts);
    if (!worker->batch_counts) return lm_error(LUMEN_E_NOMEM, "no memory for a worker");
    return lm_access_log_has_rows(shared) ? lm_trace_open(&worker->trace) : 0;
}

void lm_worker_forget_model(struct lm_worker *worker, uint32_t model) {
    for (uint32_t b = 0; worker->batch_counts && b < LM_BATCH_SIZES; b++) {
        struct lm_batch_count *count = &worker->batch_counts[model][b];
        /* relaxed, all of them: the worker has left the model (L2 in flow/reload.c) */
        lm_store_relaxed_u64(&count->rows, 0);
        lm_store_relaxed_u64(&count->runs, 0);
        lm_store_relaxed_u64(&count->input_ns, 0);
        lm_store_relaxed_u64(&count->infer_ns, 0);
        lm_store_relaxed_u64(&count->output_ns, 0);
    }
}

void lm_worker_close(struct lm_worker *worker) {
    lm_image_desk_close(&worker->desk);
    lm_inflater_close(worker->inflater);
    worker->inflater = NULL;
    lm_oip_parser_close(worker->parser);
    worker->parser = NULL;
    lm_trace_close(&worker->trace);
    free(worker->batch_counts);
    worker->batch_counts = NULL;
}

static void leave_model(struct lm_shared *shared, struct lm_model *model, uint32_t worker) {
    lm_batch_close(model, &shared->ort, worker);
    lm_image_desk_close(&model->desks[worker]);
}

void lm_worker_leave_models(struct lm_worker *worker) {
    for (const struct lm_model_set *set = lm_models_in_force(worker->shared); set;
         set = set->retired)
        for (uint32_t m = 0; m < set->count; m++)
            leave_model(worker->shared, set->models[m], worker->index);
}

void lm_shared_leave_model(struct lm_shared *shared, struct lm_model *model) {
    for (uint32_t w = 0; w < LM_RUNNERS_MAX; w++) leave_model(shared, model, w);
    for (uint32_t i = 0; i < shared->io_count; i++) lm_io_model_close(&shared->ios[i], model);
}
