/* process_serve.c: see process_serve.h. The server may end at any time, and this process with it:
 * nothing here is given back.
 */
#include "models/process_serve.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/processor.h"
#include "base/status.h"
#include "base/topology.h"
#include "models/model.h"
#include "models/process.h"
#include "models/runner.h"
#include "models/warmup.h"

struct serving {
    struct lm_common_memory common;
    struct lm_ort ort;
    struct lm_model model;
    struct lm_boxes *boxes;
    uint64_t memory_at_rest; /* that only this process has, in bytes, when it was ready */
    uint32_t number;
    lm_atomic_u32 is_open; /* 1: the model is there, and its threads may warm it up */
    lm_atomic_u64 threads_ready;
};

/* A thread's. */
struct runner {
    struct serving *serving;
    struct lm_box *box;
    uint32_t index;
    int32_t cpu;
    bool is_warm;
    struct lm_binding binding;
    uint64_t places[2 * LM_TENSORS_MAX]; /* that are wrapped */
    OrtValue *values[2 * LM_TENSORS_MAX];
};

/* ---- memory ---- */

/* What RLIMIT_DATA bounds: memory that is this process's alone, and may be written. */
static uint64_t private_memory(void) {
    unsigned long long data = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    if (fscanf(file, "%*u %*u %*u %*u %*u %llu", &data) != 1) data = 0;
    fclose(file);
    return data * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* After a Run that failed: whether more than half of the room is taken although nothing runs that
 * could need it. What leaked comes back with a new process alone; a single Run that was too large
 * must not end it. */
static bool has_leaked(const struct serving *serving) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
    uint64_t rest = serving->memory_at_rest;
    return limit.rlim_cur > rest && private_memory() > rest + (limit.rlim_cur - rest) / 2;
}

static void explain(struct lm_box *box) {
    struct rlimit limit;
    size_t used = strnlen(box->error, sizeof box->error - 1);
    if (!strstr(box->error, "alloc") || getrlimit(RLIMIT_DATA, &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY)
        return;
    snprintf(box->error + used, sizeof box->error - used,
             " (the model's process may have %llu bytes: isolation_memory)",
             (unsigned long long)limit.rlim_cur);
}

/* ---- a request ---- */

static int bind(struct runner *runner, struct lm_layout_lists *lists) {
    const struct serving *serving = runner->serving;
    const struct lm_model *model = &serving->model;
    const struct lm_box *box = runner->box;
    uint32_t tensors = model->input_count + model->output_count;
    struct lm_layout layout = lm_layout_of(lists);
    for (uint32_t t = 0; t < tensors; t++) {
        void *place = serving->common.base + box->places[t];
        *(t < model->input_count ? &lists->inputs[t] : &lists->outputs[t - model->input_count]) =
            place;
    }
    if (memcmp(runner->places, box->places, tensors * sizeof *runner->places) != 0)
        lm_model_unbind(model, &serving->ort, &runner->binding, runner->values);
    memcpy(runner->places, box->places, tensors * sizeof *runner->places);
    return lm_model_bind(model, &serving->ort, &layout, &box->sizes, &runner->binding,
                         runner->values);
}

/* Runs the model on the tensors of its box; every output is at its place then. */
static int run(struct runner *runner) {
    const struct serving *serving = runner->serving;
    const struct lm_model *model = &serving->model;
    const struct lm_sizes *sizes = &runner->box->sizes;
    OrtValue **outputs = runner->values + model->input_count;
    struct lm_layout_lists lists;
    int code = bind(runner, &lists);
    if (!code) code = lm_model_run(model, &serving->ort, runner->index, runner->values);
    for (uint32_t o = 0; o < model->output_count; o++) {
        size_t bytes = 0;
        if (lm_output_is_wrapped(&model->outputs[o], sizes->rows)) continue;
        lm_tensor_bytes(&model->outputs[o], sizes, &bytes);
        if (!code)
            code = lm_model_take_output(&serving->ort, &model->outputs[o], &outputs[o],
                                        lists.outputs[o], bytes);
        lm_ort_value_close(&serving->ort, outputs[o]);
        outputs[o] = NULL;
    }
    return code;
}

static void answer(struct runner *runner, uint32_t request) {
    struct lm_box *box = runner->box;
    if (box->cpu != runner->cpu && box->cpu >= 0) (void)lm_thread_pin(box->cpu);
    runner->cpu = box->cpu;
    box->code = run(runner);
    if (box->code) {
        snprintf(box->error, sizeof box->error, "%s", lm_error_last());
        explain(box);
    }
    bool leaked = box->code && has_leaked(runner->serving);
    /* J10: release: outputs, code and sentence; pairs with J9 in models/process.c */
    lm_store_release_u32(&box->answered, request);
    lm_box_wake(&box->answered);
    if (leaked) _exit(LM_PROCESS_LEAKED);
}

/* Two Runs on zeros, so that ONNX Runtime's memory is there. A model may fail on zeros: its
 * requests will tell. Returns what the second one took; 0: it failed. */
static uint64_t warm_sizes(struct runner *runner, const struct lm_sizes *sizes) {
    struct serving *serving = runner->serving;
    const struct lm_model *model = &serving->model;
    struct lm_slot slot = {0};
    struct lm_layout_lists lists;
    struct lm_layout layout = lm_layout_of(&lists);
    struct lm_binding binding = {0};
    uint64_t took_ns = 0;
    if (!lm_model_slot_bytes(model, sizes, &slot.bytes)) return 0;
    slot.base = aligned_alloc(LM_SLOT_ALIGN, slot.bytes);
    if (!slot.base) return 0;
    memset(slot.base, 0, slot.bytes);
    lm_model_layout(model, &slot, LM_ENCODING_TENSORS, sizes, &layout);
    for (int times = 0; times < 2 && took_ns <= LM_WARM_NS; times++) {
        int code = lm_model_bind(model, &serving->ort, &layout, sizes, &binding, runner->values);
        uint64_t began_ns = lm_now_ns();
        if (!code) code = lm_model_run(model, &serving->ort, runner->index, runner->values);
        took_ns = code ? 0 : lm_now_ns() - began_ns;
        lm_model_unbind(model, &serving->ort, &binding, runner->values);
    }
    free(slot.base);
    return took_ns;
}

/* As a worker warms a model of its own process up. */
static void warm(struct runner *runner) {
    struct serving *serving = runner->serving;
    const struct lm_model *model = &serving->model;
    const struct lm_sizes modest = lm_warmup_sizes(model, 1), largest = lm_model_largest(model, 1);
    uint64_t took_ns = warm_sizes(runner, &modest),
             largest_ns = lm_warmup_largest_ns(model, took_ns);
    if (memcmp(&modest, &largest, sizeof modest) != 0)
        took_ns = largest_ns > LM_WARM_NS ? largest_ns : warm_sizes(runner, &largest);
    if (runner->index == 0) serving->boxes->warm_ns = took_ns;
    if (lm_warmups_run(model, &serving->ort, runner->index) != 0) {
        fprintf(stderr, "The process of model %s cannot serve: %s\n", model->name, lm_error_last());
        _exit(1);
    }
}

static void *serve(void *argument) {
    struct runner *runner = argument;
    struct serving *serving = runner->serving;
    struct lm_box *box = runner->box;
    char name[16];
    snprintf(name, sizeof name, "lumen-m/%u", runner->index);
    pthread_setname_np(pthread_self(), name);
    /* J14: acquire: the model; pairs with J15 */
    while (!lm_load_acquire_u32(&serving->is_open)) lm_box_sleep(&serving->is_open, 0, 0);
    if (serving->ort.flush_denormals) (void)lm_processor_flush_denormals();
    /* A process that ended has left a request behind, which its worker has given up. */
    uint32_t seen = lm_load_acquire_u32(&box->asked), asked; /* as J12 */
    if (!runner->is_warm) warm(runner);
    /* J13: acq_rel: what the other threads wrote; pairs with J13 */
    if (lm_add_acq_rel_u64(&serving->threads_ready, 1) + 1 == serving->model.session_count) {
        serving->memory_at_rest = private_memory();
        /* J8: release: all boxes are served; pairs with J7 in models/process.c */
        lm_store_release_u32(&serving->boxes->ready, serving->number);
    }
    for (;;) {
        /* J12: acquire: what is asked; pairs with J11 in models/process.c */
        while ((asked = lm_load_acquire_u32(&box->asked)) == seen)
            lm_box_sleep(&box->asked, seen, 0);
        seen = asked;
        answer(runner, asked);
    }
    return NULL;
}

/* ---- the beginning ---- */

static int open_all(struct serving *serving, const lumen_process *place, const char *ort_library,
                    const lumen_model_config *config) {
    lumen_model_config own = *config;
    own.isolation = LUMEN_ISOLATION_NONE; /* here are its sessions */
    own.engine = LUMEN_ENGINE_ORT;
    int code = lm_ort_open(&serving->ort, ort_library);
    serving->ort.flush_denormals = place->flush_denormals != 0;
    /* ONNX Runtime's arenas double, and keep what a Run that failed made them take. */
    serving->ort.uses_malloc = true;
    if (!code) code = lm_model_open(&serving->model, &serving->ort, &own, 0, place->workers);
    if (!code && lm_process_signature(&serving->model) != serving->boxes->signature) {
        code = lm_error(LUMEN_E_MODEL,
                        "the file of model '%s' has other tensors than when it was loaded: load it "
                        "again, or put the file back",
                        config->name);
    }
    return code;
}

int lm_process_serve(const lumen_process *place, const char *ort_library,
                     const lumen_model_config *config) {
    static struct serving serving; /* until the end of the process */
    const struct sched_param none = {0};
    /* ONNX Runtime's own threads run with the model: they are no loader's. */
    const bool gently = place->gently && config->intra_op_threads <= 1;
    struct runner *runners =
        aligned_alloc(LM_CACHE_LINE, lm_align_up(place->workers * sizeof *runners, LM_CACHE_LINE));
    if (!runners) return lm_error(LUMEN_E_NOMEM, "no memory for the threads of a model");
    memset(runners, 0, place->workers * sizeof *runners);
    int code = lm_common_memory_join(&serving.common, place->fd, place->bytes);
    if (code) return code;
    serving.boxes = (struct lm_boxes *)(void *)(serving.common.base + place->at);
    serving.number = place->number;
    /* Before this thread steps down: those that it starts then would do so too, and an ordinary
     * user's thread stays there. */
    for (uint32_t w = 0; w < place->workers; w++) {
        pthread_t thread;
        runners[w] = (struct runner){
            .serving = &serving, .box = &serving.boxes->boxes[w], .index = w, .cpu = -1};
        int refused = pthread_create(&thread, NULL, serve, &runners[w]);
        if (refused) return lm_error_errno(LUMEN_E_NOMEM, refused, "cannot start a thread");
    }
    if (gently) (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    code = open_all(&serving, place, ort_library, config);
    if (code) return code;
    if (gently && serving.ort.flush_denormals) (void)lm_processor_flush_denormals();
    for (uint32_t w = 0; gently && w < place->workers; w++) {
        warm(&runners[w]);
        runners[w].is_warm = true;
    }
    /* J15: release: the model; pairs with J14 */
    lm_store_release_u32(&serving.is_open, 1);
    lm_box_wake(&serving.is_open);
    for (;;) pause();
}
