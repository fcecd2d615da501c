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
#include "models/binding.h"
#include "models/layout.h"
#include "models/load.h"
#include "models/model.h"
#include "models/process.h"
#include "models/runner.h"
#include "models/sizes.h"
#include "models/warmup.h"

struct serving {
    struct lm_common_memory common;
    struct lm_ort ort;
    struct lm_model model;
    struct lm_boxes *boxes;
    lm_atomic_u64 memory_at_rest; /* that only this process has, in bytes, when it was ready */
    uint32_t number;
    uint32_t first_count; /* threads with which it is ready */
    lm_atomic_u64 threads_ready;
};

/* A thread's. */
struct runner {
    struct serving *serving;
    struct lm_box *box;
    uint32_t index;
    int32_t cpu;
    bool is_warm;
    uint32_t seen; /* the request that a process before has left behind: its worker gave it up */
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
    uint64_t rest = lm_load_relaxed_u64(&serving->memory_at_rest); /* relaxed: a bound */
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

/* As a worker warms a model of its own process up. Returns 0 or LUMEN_E_*. */
static int warm(struct runner *runner) {
    struct serving *serving = runner->serving;
    const struct lm_model *model = &serving->model;
    const struct lm_sizes modest = lm_warmup_sizes(model, 1), largest = lm_model_largest(model, 1);
    uint64_t took_ns = warm_sizes(runner, &modest),
             largest_ns = lm_warmup_largest_ns(model, took_ns);
    if (memcmp(&modest, &largest, sizeof modest) != 0)
        took_ns = largest_ns > LM_WARM_NS ? largest_ns : warm_sizes(runner, &largest);
    if (runner->index == 0) serving->boxes->warm_ns = took_ns;
    return lm_warmups_run(model, &serving->ort, runner->index);
}

static void warm_or_end(struct runner *runner) {
    if (warm(runner) == 0) return;
    fprintf(stderr, "The process of model %s cannot serve: %s\n", runner->serving->model.name,
            lm_error_last());
    _exit(1);
}

static void *serve(void *argument) {
    struct runner *runner = argument;
    struct serving *serving = runner->serving;
    struct lm_box *box = runner->box;
    char name[16];
    snprintf(name, sizeof name, "lumen-m/%u", runner->index);
    pthread_setname_np(pthread_self(), name);
    if (serving->ort.flush_denormals) (void)lm_processor_flush_denormals();
    uint32_t seen = runner->seen, asked;
    if (!runner->is_warm) warm_or_end(runner);
    /* J13: acq_rel: what the other threads wrote; pairs with J13 */
    if (runner->index < serving->first_count &&
        lm_add_acq_rel_u64(&serving->threads_ready, 1) + 1 == serving->first_count) {
        /* relaxed, both: a bound; shown by J8 */
        lm_store_relaxed_u64(&serving->memory_at_rest, private_memory());
        lm_store_relaxed_u32(&serving->boxes->served, serving->first_count);
        /* J8: release: these boxes are served; pairs with J7 in models/process.c */
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

static int start_thread(struct serving *serving, uint32_t index, bool is_warm) {
    pthread_t thread;
    struct runner *runner =
        aligned_alloc(LM_CACHE_LINE, lm_align_up(sizeof *runner, LM_CACHE_LINE));
    if (!runner) return lm_error(LUMEN_E_NOMEM, "no memory for the threads of a model");
    struct lm_box *box = &serving->boxes->boxes[index];
    *runner = (struct runner){.serving = serving,
                              .box = box,
                              .index = index,
                              .cpu = -1,
                              .seen = lm_load_acquire_u32(&box->asked), /* as J12 */
                              .is_warm = is_warm};
    int refused = pthread_create(&thread, NULL, serve, runner);
    if (refused) free(runner);
    return refused ? lm_error_errno(LUMEN_E_NOMEM, refused, "cannot start a thread") : 0;
}

/* The opening of the model. Where it is to be gentle, a thread of its own opens the model and runs
 * it once: an ordinary user's thread that has stepped down stays there, and so do those that it
 * starts. */
struct opening {
    struct serving *serving;
    const lumen_process *place;
    const char *ort_library;
    const lumen_model_config *config;
    bool gently;
    int code;
    char error[768];
};

static void *open_there(void *argument) {
    struct opening *opening = argument;
    struct serving *serving = opening->serving;
    const struct sched_param none = {0};
    if (opening->gently) (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    opening->code = open_all(serving, opening->place, opening->ort_library, opening->config);
    if (opening->code) snprintf(opening->error, sizeof opening->error, "%s", lm_error_last());
    if (opening->code || !opening->gently) return NULL;
    if (serving->ort.flush_denormals) (void)lm_processor_flush_denormals();
    for (uint32_t w = 0; w < opening->place->workers; w++) {
        struct runner runner = {.serving = serving, .index = w};
        warm_or_end(&runner);
    }
    return NULL;
}

static int open_model(struct opening *opening) {
    pthread_t thread;
    int refused = opening->gently ? pthread_create(&thread, NULL, open_there, opening) : 0;
    if (refused) return lm_error_errno(LUMEN_E_NOMEM, refused, "cannot start a thread");
    if (opening->gently) {
        pthread_join(thread, NULL);
    } else {
        (void)open_there(opening);
    }
    return opening->code ? lm_error(opening->code, "%s", opening->error) : 0;
}

/* ---- more workers ---- */

/* A thread for one box more. */
static int serve_another(struct serving *serving, uint32_t index) {
    struct runner runner = {.serving = serving, .index = index};
    int code = lm_model_open_session(&serving->model, &serving->ort, 0, index);
    if (!code) code = warm(&runner);
    if (!code) code = start_thread(serving, index, true);
    if (code) return code;
    lm_store_relaxed_u64(&serving->memory_at_rest, private_memory()); /* relaxed: a bound */
    /* J16: release: the box is served; pairs with J17 in models/process.c */
    lm_store_release_u32(&serving->boxes->served, index + 1);
    return 0;
}

/* Sleeps until the server has more workers. */
static void follow_workers(struct serving *serving) {
    struct lm_boxes *boxes = serving->boxes;
    if (serving->ort.flush_denormals) (void)lm_processor_flush_denormals();
    for (uint32_t served = serving->first_count;;) {
        uint32_t wanted = lm_load_relaxed_u32(&boxes->wanted); /* relaxed: a number alone */
        int code = served < wanted ? serve_another(serving, served) : 0;
        if (!code && served < wanted) {
            served++;
            continue;
        }
        if (code) {
            fprintf(stderr, "The process of model %s cannot serve %u workers: %s\n",
                    serving->model.name, wanted, lm_error_last());
            lm_store_relaxed_u32(&boxes->refused, wanted); /* relaxed: a number alone */
        }
        lm_box_sleep(&boxes->wanted, wanted, 0);
    }
}

int lm_process_serve(const lumen_process *place, const char *ort_library,
                     const lumen_model_config *config) {
    static struct serving serving; /* until the end of the process */
    struct opening opening = {.serving = &serving,
                              .place = place,
                              .ort_library = ort_library,
                              .config = config,
                              /* ONNX Runtime's own threads run with the model: no loader's. */
                              .gently = place->gently && config->intra_op_threads <= 1};
    int code = lm_common_memory_join(&serving.common, place->fd, place->bytes);
    if (code) return code;
    serving.boxes = (struct lm_boxes *)(void *)(serving.common.base + place->at);
    serving.number = place->number;
    serving.first_count = place->workers;
    code = open_model(&opening);
    for (uint32_t w = 0; !code && w < place->workers; w++)
        code = start_thread(&serving, w, opening.gently);
    if (code) return code;
    follow_workers(&serving);
    return 0;
}
