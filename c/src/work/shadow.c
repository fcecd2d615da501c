/* shadow.c: see shadow.h. */
#include "work/shadow.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/processor.h"
#include "base/topology.h"
#include "models/binding.h"
#include "onnx/difference.h"
#include "work/encoding.h"

/* The version's sessions may be some threads' alone; they are used by several at a time. */
static uint32_t any_session(const struct lm_model *model) {
    for (uint32_t s = 0; s < LM_RUNNERS_MAX; s++)
        if (model->sessions[s]) return s;
    return LM_RUNNERS_MAX;
}

/* Whether the version can be run on the request's tensors, and its Runs are on ONNX Runtime's
 * values: not those of another process, of a chosen expert, or of a state. */
static bool fits(const struct lm_request *request) {
    const struct lm_model *shadow = request->shadow.model;
    const struct lm_runner *runner = lm_runner_of(shadow);
    if (!runner->run || runner->keeps_state) return false;
    if (!runner->is_virtual && any_session(shadow) == LM_RUNNERS_MAX) return false;
    return !shadow->text == !request->model->text && lm_model_is_like(shadow, request->model);
}

/* ---- one output beside the other ---- */

/* An output as it is compared: numbers where they lie, strings as on the wire, which are a copy to
 * be freed. Returns 0 or LUMEN_E_*. */
static int read_output(const struct lm_ort *ort, const struct lm_tensor *tensor, OrtValue *value,
                       struct iovec *output_out, void **copy_out) {
    size_t count = 0, bytes = 0;
    int code = lm_model_count_elements(ort, value, &count);
    if (code) return code;
    if (!lm_is_string(tensor)) {
        output_out->iov_len = count * tensor->element_bytes;
        return lm_ort_check(ort, ort->api->GetTensorMutableData(value, &output_out->iov_base),
                            tensor->name);
    }
    code = lm_ort_strings_measure(ort, value, 0, count, &bytes);
    if (code) return code;
    *copy_out = malloc(bytes + 1);
    if (!*copy_out) return lm_error(LUMEN_E_NOMEM, "no memory to compare an output");
    *output_out = (struct iovec){*copy_out, bytes};
    return lm_ort_strings_take(ort, value, 0, count, *copy_out, bytes, &output_out->iov_len);
}

static int compare(const struct lm_ort *ort, struct lm_request *request, OrtValue **outputs) {
    const struct lm_model *model = request->shadow.model;
    struct lm_difference difference;
    int code = lm_difference_open(&difference, request->sizes.rows);
    for (uint32_t o = 0; !code && o < model->output_count; o++) {
        struct iovec output;
        void *copy = NULL;
        code = read_output(ort, &model->outputs[o], outputs[o], &output, &copy);
        if (!code)
            lm_difference_add(&difference, model->outputs[o].dtype, &request->keeping.outputs[o],
                              &output);
        free(copy);
    }
    request->shadow.rows_apart = lm_difference_rows(&difference);
    request->shadow.difference = difference.largest;
    lm_difference_close(&difference);
    return code;
}

/* ---- a Run ---- */

/* The request's inputs as values, and none of its outputs: ONNX Runtime makes these. */
static int bind_inputs(const struct lm_ort *ort, const struct lm_request *request,
                       struct lm_binding *binding, OrtValue **values) {
    const struct lm_model *model = request->shadow.model;
    struct lm_layout_lists lists;
    struct lm_layout layout = lm_layout_of(&lists);
    lm_layout_clear(&layout, model);
    for (uint32_t i = 0; i < model->input_count; i++) {
        layout.inputs[i] = request->layout.inputs[i];
        layout.string_bytes[i] = request->layout.string_bytes[i];
    }
    int code = lm_model_bind(model, ort, &layout, &request->sizes, binding, values);
    if (!code && model->string_inputs > 0)
        code = lm_model_fill_strings(model, ort, &layout, &request->sizes, 0, binding, values);
    return code;
}

static int run(const struct lm_shared *shared, struct lm_request *request) {
    const struct lm_model *model = request->shadow.model;
    const struct lm_encoding *encoding = &lm_encodings[request->encoding];
    OrtValue *values[2 * LM_TENSORS_MAX] = {0};
    struct lm_binding binding = {0};
    const uint32_t session = any_session(model);
    const struct lm_run run = {.ort = &shared->ort,
                               .worker = LM_SHADOW_ROOM,
                               .session = session < LM_RUNNERS_MAX ? session : 0,
                               .cpu = -1,
                               .values = values,
                               .inputs = request->layout.inputs,
                               .sizes = &request->sizes,
                               .text = lm_request_text_ask(request),
                               .optionals = lm_request_optionals(request)};
    /* After a batch they are there as they came. */
    if (encoding->convert && !request->converted)
        encoding->convert(request, request->layout.inputs);
    int code = bind_inputs(&shared->ort, request, &binding, values);
    if (!code) code = lm_runner_of(model)->run(model, &run);
    if (!code) code = compare(&shared->ort, request, values + model->input_count);
    lm_model_unbind(model, &shared->ort, &binding, values);
    return code;
}

static void work(const struct lm_shared *shared, struct lm_request *request) {
    struct lm_shadow_run *shadow = &request->shadow;
    /* relaxed: the end of the server waits for its slot */
    const bool ends = lm_load_relaxed_u32(&shared->phase) == LM_PHASE_DRAINING;
    if (ends || !fits(request)) {
        shadow->end = ends ? LM_SHADOW_SKIPPED : LM_SHADOW_UNFIT;
        return;
    }
    const uint64_t began_ns = lm_thread_cpu_ns();
    shadow->end = run(shared, request) ? LM_SHADOW_FAILED : LM_SHADOW_DONE;
    shadow->cpu_ns = lm_thread_cpu_ns() - began_ns;
}

/* ---- the thread ---- */

static bool next_job(struct lm_shared *shared, uint32_t *job_out) {
    struct lm_shadow_jobs *jobs = &shared->shadows;
    for (;;) {
        /* as E3 in work/jobs.c */
        if (lm_load_acquire_u32(&shared->workers_stop)) return false;
        if (lm_mpmc_pop(&jobs->queue, job_out)) return true;
        lm_waitset_prepare(&jobs->waitset, 0, lm_now_ns());
        const bool found = lm_mpmc_pop(&jobs->queue, job_out);
        if (found || lm_load_acquire_u32(&shared->workers_stop)) { /* as E3 */
            lm_waitset_cancel(&jobs->waitset, 0);
            return found;
        }
        lm_waitset_sleep(&jobs->waitset, 0, UINT64_MAX);
    }
}

void *lm_shadow_main(void *argument) {
    struct lm_shared *shared = argument;
    uint32_t job;
    pthread_setname_np(pthread_self(), "lumen-shadow");
    if (shared->nodes[0].cpus) (void)lm_thread_keep_to(shared->nodes[0].cpus);
    if (shared->config.flush_denormals) (void)lm_processor_flush_denormals();
    lm_thread_give_way();
    while (next_job(shared, &job)) {
        struct lm_io *io = &shared->ios[lm_job_io(job)];
        work(shared, &io->requests[lm_job_slot(job)]);
        const bool pushed = lm_spsc_push(&shared->shadows.returns[io->index], lm_job_slot(job));
        LM_ASSERT(pushed); /* there is a place for each copy */
        lm_ring_wake(io->ring);
    }
    return NULL;
}
