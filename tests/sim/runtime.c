/* runtime.c: ONNX Runtime as far as flow/ and models/model.c call it. A session doubles each number
 * of each input into the output of the same place; a first number of SIM_POISON makes Run fail; a
 * Run takes the worker as long as the seed says. Memory is read and written at its end, so that
 * whatever else touches it meanwhile is seen by the client.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "sim.h"

struct OrtValue {
    float *data;
    size_t bytes;
    size_t rank;
    int64_t dims[LM_RANK_MAX];
    bool owned;
};

uint32_t runtime_values, runtime_runs;
uint64_t runtime_takes_ns, runtime_lies_ns, runtime_loses_ns;
enum { LIE_NS = 100000000 };
static uint32_t long_own_runs[SIM_SERVED]; /* on I/O threads */
size_t runtime_keeps_bytes;

/* An allocator, as ONNX Runtime declares it. */
struct allocator {
    uint32_t version;
    void *(*alloc)(struct allocator *, size_t);
    void (*release)(struct allocator *, void *);
};
static struct allocator *allocator; /* NULL: none is registered */
static void *kept[8];
static uint32_t kept_count;

static OrtValue *new_value(void *data, size_t bytes, const int64_t *dims, size_t rank) {
    OrtValue *value = malloc(sizeof *value);
    *value = (OrtValue){.data = data, .bytes = bytes, .rank = rank};
    memcpy(value->dims, dims, rank * sizeof *dims);
    runtime_values++;
    return value;
}

OrtValue *lm_ort_wrap(const struct lm_ort *ort, void *data, size_t bytes, const int64_t *shape,
                      size_t rank, int dtype) {
    (void)ort;
    (void)dtype;
    return new_value(data, bytes, shape, rank);
}

/* No model of the simulation has strings. */
OrtValue *lm_ort_strings_open(const struct lm_ort *ort, const int64_t *shape, size_t rank) {
    (void)ort;
    (void)shape;
    (void)rank;
    SIM_CHECK(false, "a tensor of strings");
    return NULL;
}

int lm_ort_strings_fill(const struct lm_ort *ort, OrtValue *value, size_t first, size_t count,
                        const uint8_t *wire, struct lm_ort_growth *growth) {
    (void)ort;
    (void)value;
    (void)first;
    (void)count;
    (void)wire;
    (void)growth;
    SIM_CHECK(false, "a tensor of strings");
    return 0;
}

int lm_ort_strings_measure(const struct lm_ort *ort, const OrtValue *value, size_t first,
                           size_t count, size_t *bytes_out) {
    (void)ort;
    (void)value;
    (void)first;
    (void)count;
    (void)bytes_out;
    SIM_CHECK(false, "a tensor of strings");
    return 0;
}

int lm_ort_strings_take(const struct lm_ort *ort, const OrtValue *value, size_t first, size_t count,
                        uint8_t *wire, size_t room, size_t *bytes_out) {
    (void)ort;
    (void)value;
    (void)first;
    (void)count;
    (void)wire;
    (void)room;
    (void)bytes_out;
    SIM_CHECK(false, "a tensor of strings");
    return 0;
}

void lm_ort_value_close(const struct lm_ort *ort, OrtValue *value) {
    (void)ort;
    if (!value) return;
    if (value->owned) free(value->data);
    free(value);
    runtime_values--;
}

/* ---- Runs on the cores of sleeping workers ---- */

static struct lm_worker *wide_worker; /* whose Run it is */

static struct lm_worker *self_worker(void) {
    return &sim_shared.workers[(uint32_t)(fiber_self() - fibers) - sim_shared.io_count];
}

/* Nobody waits for a worker, and the helpers have cores of workers that sleep. */
static void check_wide_begins(void) {
    struct lm_node *node = &sim_shared.nodes[0];
    SIM_CHECK(!wide_worker, "two Runs are wide at once");
    wide_worker = self_worker();
    SIM_CHECK(lm_queue_depth(&lm_node_line(node)->queue) == 0,
              "a Run is wide while a request waits");
    uint32_t owner = lm_load_relaxed_u32(&node->width.owner);
    SIM_CHECK(owner == wide_worker->index + 1, "a wide Run of worker %u is not known", owner);
    SIM_CHECK(lm_load_relaxed_u32(&node->width.helper_count) + 1 == sim_plan.width, "its width");
    for (uint32_t h = 0; h + 1 < sim_plan.width; h++) {
        uint32_t seat = lm_load_relaxed_u32(&node->width.seats[h]);
        uint32_t tid = lm_load_relaxed_u32(&node->width.tids[h]);
        SIM_CHECK(lm_load_relaxed_u64(&node->waitset.sleepers) & 1ull << seat &&
                      sim_helper_cpus[tid] == sim_shared.workers[seat].cpu && seat + 1 != owner,
                  "helper %u has the core of worker %u, which does not sleep", tid, seat);
    }
}

static void check_wide_ends(void) {
    const struct lm_node *node = &sim_shared.nodes[0];
    for (uint32_t h = 0; h + 1 < sim_plan.width; h++) {
        int32_t cpu = sim_helper_cpus[lm_load_relaxed_u32(&node->width.tids[h])];
        bool theirs = cpu != wide_worker->cpu;
        SIM_CHECK(!theirs || !lm_load_relaxed_u64(&sim_shared.workers[cpu].busy_since_ns),
                  "a helper has kept the core of worker %d, which has requests", cpu);
    }
    wide_worker = NULL;
}

/* No model of the simulation has one. */
void lm_engine_run(const struct lm_engine *engine, uint32_t runner, const float *input,
                   void *const *outputs, uint32_t rows, struct lm_team *team) {
    (void)engine, (void)runner, (void)input, (void)outputs, (void)rows, (void)team;
    abort();
}

/* The time of a Run, by the value of its request: the model may have been quick until then. */
static uint64_t takes_ns(const OrtValue *const *inputs, size_t input_count) {
    bool lies = input_count > 0 && inputs[0]->bytes > 0 && inputs[0]->data[0] == SIM_LIE;
    uint64_t drawn = 1000 + sim_random() % sim_plan.run_ns_max;
    if (lies) return runtime_lies_ns;
    if (runtime_takes_ns) return runtime_takes_ns;
    return sim_one_in(sim_plan.lies_one_in) ? drawn + LIE_NS : drawn;
}

/* Of a model that I/O threads run by its time, each of them runs one that is too long, at most. A
 * thread that is stopped while it reads its clock may miss one that is not far too long. */
static void check_own_run(const OrtSession *session, uint64_t took_ns) {
    uint32_t thread = (uint32_t)(fiber_self() - fibers);
    if (thread >= sim_shared.io_count || took_ns < LIE_NS) return;
    uint32_t model = engine_model_of(session);
    if (sim_plan.runs[model] != LUMEN_RUN_AUTO || sim_shared.thread_count == 0) return;
    const struct lm_worker *worker = sim_shared.ios[thread].inline_worker;
    if (!lm_load_relaxed_u64(&worker->busy_since_ns)) return; /* it warms up */
    if (sim_plan.batch_size > 1) return; /* such a model is the workers', but not here */
    SIM_CHECK(++long_own_runs[model] <= sim_shared.io_count,
              "I/O threads run model %u, whose Runs are too long", model);
}

static void pass_run(const OrtSession *session, uint64_t took_ns) {
    if (!fiber_self()) return;
    check_own_run(session, took_ns);
    fiber_block(&runtime_runs, sim_now_ns + took_ns + runtime_loses_ns);
    sim_lost_ns[fiber_self() - fibers] += runtime_loses_ns;
}

int lm_ort_run(const struct lm_ort *ort, OrtSession *session, const char *const *input_names,
               const OrtValue *const *inputs, size_t input_count, const char *const *output_names,
               OrtValue **outputs, size_t output_count) {
    (void)ort;
    (void)input_names;
    (void)output_names;
    bool is_wide = session == SIM_WIDE_SESSION;
    if (is_wide) check_wide_begins();
    runtime_runs++;
    pass_run(session, takes_ns(inputs, input_count));
    runtime_runs--;
    if (is_wide) check_wide_ends();
    if (runtime_keeps_bytes) kept[kept_count++] = allocator->alloc(allocator, runtime_keeps_bytes);
    for (size_t i = 0; i < input_count; i++) {
        size_t count = inputs[i]->bytes / sizeof(float);
        size_t step = inputs[i]->rank ? count / (size_t)inputs[i]->dims[0] : 1;
        for (size_t at = 0; at < count; at += step) {
            if (inputs[i]->data[at] == SIM_POISON) return lm_error(LUMEN_E_ORT, "poisoned");
        }
    }
    for (size_t o = 0; o < output_count; o++) {
        const OrtValue *input = inputs[o];
        if (!outputs[o]) {
            outputs[o] = new_value(malloc(input->bytes), input->bytes, input->dims, input->rank);
            outputs[o]->owned = true;
        }
        SIM_CHECK(outputs[o]->bytes == input->bytes, "an output bound to the wrong size");
        for (size_t at = 0; at < input->bytes / sizeof(float); at++)
            outputs[o]->data[at] = 2 * input->data[at];
    }
    return 0;
}

/* ---- the calls of the API that infer.c and model.c make themselves ---- */

static OrtStatus *get_info(const OrtValue *value, OrtTensorTypeAndShapeInfo **info_out) {
    *info_out = (OrtTensorTypeAndShapeInfo *)(uintptr_t)value;
    return NULL;
}

static OrtStatus *get_rank(const OrtTensorTypeAndShapeInfo *info, size_t *rank_out) {
    *rank_out = ((const OrtValue *)(const void *)info)->rank;
    return NULL;
}

static OrtStatus *get_dims(const OrtTensorTypeAndShapeInfo *info, int64_t *dims, size_t count) {
    memcpy(dims, ((const OrtValue *)(const void *)info)->dims, count * sizeof *dims);
    return NULL;
}

static OrtStatus *get_count(const OrtTensorTypeAndShapeInfo *info, size_t *count_out) {
    *count_out = ((const OrtValue *)(const void *)info)->bytes / sizeof(float);
    return NULL;
}

static OrtStatus *get_data(OrtValue *value, void **data_out) {
    *data_out = value->data;
    return NULL;
}

static void release_info(OrtTensorTypeAndShapeInfo *info) {
    (void)info;
}

static OrtStatus *take_allocator(OrtEnv *env, OrtAllocator *given) {
    (void)env;
    allocator = (struct allocator *)(void *)given;
    return NULL;
}

static OrtStatus *drop_allocator(OrtEnv *env, const OrtMemoryInfo *info) {
    (void)env;
    (void)info;
    allocator = NULL;
    return NULL;
}

void runtime_frees(void) {
    while (kept_count > 0) allocator->release(allocator, kept[--kept_count]);
}

int lm_ort_check(const struct lm_ort *ort, OrtStatus *status, const char *tried) {
    (void)ort;
    (void)tried;
    SIM_CHECK(!status, "no status was ever given");
    return 0;
}

void runtime_open(struct lm_ort *ort) {
    static const struct lm_ort_api api = {
        .GetTensorTypeAndShape = get_info,
        .GetDimensionsCount = get_rank,
        .GetDimensions = get_dims,
        .GetTensorShapeElementCount = get_count,
        .GetTensorMutableData = get_data,
        .ReleaseTensorTypeAndShapeInfo = release_info,
        .RegisterAllocator = take_allocator,
        .UnregisterAllocator = drop_allocator,
    };
    ort->api = &api;
    runtime_runs = 0;
    memset(long_own_runs, 0, sizeof long_own_runs);
    memset(sim_lost_ns, 0, FIBERS_MAX * sizeof *sim_lost_ns);
    wide_worker = NULL;
}
