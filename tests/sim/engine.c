/* engine.c: the server's side of a run: what server/server.c sets up and takes down, by hand and
 * small: five models, the slots the real plan gives them but few of each, threads as fibers.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "dialects/greeting.h"
#include "dialects/grpc.h"
#include "dialects/http.h"
#include "dialects/http2.h"
#include "dialects/http2_state.h"
#include "dialects/http_documents.h"
#include "dialects/native.h"
#include "dialects/upstream.h"
#include "flow/accept.h"
#include "flow/answer_cache.h"
#include "flow/reload.h"
#include "flow/request_lists.h"
#include "flow/shared.h"
#include "flow/slot_plan.h"
#include "formats/describe.h"
#include "formats/text_slots.h"
#include "io.h"
#include "sim.h"
#include "work/shadow.h"
#include "work/worker.h"
#include "work/worker_open.h"

struct lm_shared sim_shared;
struct lm_model_set sim_models;
static struct lm_model models[SIM_SERVED];
bool sim_draining;

static struct lm_io ios[2];
static struct lm_worker workers[5];
static struct lm_stats_block blocks[7];
static struct lm_tensor tensors[SIM_SERVED][2][SIM_TENSORS]; /* of each: inputs, outputs */
static char optional[64];                                    /* what sessions point to */
static uint64_t endings[2]; /* counted when the I/O thread's turn began */

/* ---- models ---- */

static struct lm_tensor tensor(const char *name, uint32_t rank, const int64_t *dims) {
    struct lm_tensor tensor = {.dtype = ORT_FLOAT, .rank = rank, .shape_known = true};
    snprintf(tensor.name, sizeof tensor.name, "%s", name);
    tensor.element_bytes = tensor.row_bytes = sizeof(float);
    for (uint32_t d = 0; d < rank; d++) {
        tensor.dims[d] = dims[d];
        if (dims[d] >= 0) tensor.row_bytes *= (size_t)dims[d];
    }
    tensor.rows_free = dims[0] < 0;
    return tensor;
}
#define TENSOR(name, ...) \
    tensor(name, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static struct lm_model *begin_model(uint32_t index, const char *name, uint32_t max_rows) {
    struct lm_model *model = &models[index];
    memset(model, 0, sizeof *model);
    snprintf(model->name, sizeof model->name, "%s", name);
    snprintf(model->base, sizeof model->base, "%.*s", (int)strcspn(name, ":"), name);
    model->version = 1;
    model->index = model->number = index;
    model->generation = 1 + index;
    model->caches = sim_plan.cache_bytes > 0;
    model->inputs = tensors[index][0];
    model->outputs = tensors[index][1];
    model->rows_free = true;
    model->outputs_known = true;
    model->max_rows = max_rows;
    model->signature = 1;
    model->batch_size = 1;
    model->run = sim_plan.runs[index];
    model->session_count = 5;
    model->wide.width = sim_plan.width > 1 ? sim_plan.width : 1;
    model->wide.gain = model->wide.width << LM_GAIN_SHIFT;
    model->wide.session = model->wide.width > 1 ? SIM_WIDE_SESSION : NULL;
    for (uint32_t h = 0; h + 1 < model->wide.width; h++)
        model->wide.helpers[h].tid = (int32_t)(2 * index + h);
    for (uint32_t s = 0; s < 5; s++) model->sessions[s] = (OrtSession *)(void *)(optional + index);
    return model;
}

uint32_t engine_model_of(const OrtSession *session) {
    return (uint32_t)((const char *)(const void *)session - optional);
}

static void end_model(struct lm_model *model) {
    model->reply_text_bytes = lm_model_reply_text_bytes(model);
    SIM_CHECK(lm_model_set_add(&sim_models, model) == 0, "set");
    lumen_model_config config = {.name = model->name};
    SIM_CHECK(lm_shared_add_model(&sim_shared, model, &config) == 0, "gate");
}

static void add(struct lm_model *model, struct lm_tensor in, const char *out) {
    struct lm_tensor result = in;
    snprintf(result.name, sizeof result.name, "%s", out);
    model->inputs[model->input_count++] = in;
    model->outputs[model->output_count++] = result;
}

static void open_settings(void) {
    memset(&sim_shared, 0, sizeof sim_shared);
    memset(&sim_models, 0, sizeof sim_models);
    memset(blocks, 0, sizeof blocks);
    memset(ios, 0, sizeof ios);
    memset(workers, 0, sizeof workers);
    memset(endings, 0, sizeof endings);
    lumen_config config = {.overload = sim_plan.overload,
                           .overload_status = sim_plan.overload_status,
                           .orca = sim_plan.orca,
                           .rate = sim_plan.rate,
                           .burst = 20,
                           .header_timeout_ms = sim_plan.header_ms,
                           .half_close = sim_plan.half_close,
                           .reply_timeout_ms = sim_plan.reply_ms,
                           .body_bytes_per_second = sim_plan.body_bytes_per_s,
                           .connections_per_address = sim_plan.per_address,
                           .max_connection_age_seconds = sim_plan.age_s,
                           .max_in_flight = sim_plan.in_flight_max,
                           .max_connections = sim_plan.connections,
                           .keys = sim_plan.keys,
                           .key_count = sim_plan.key_count,
                           .response_cache_bytes = sim_plan.cache_bytes,
                           .max_request_bytes = SIM_MAX_REQUEST_BYTES,
                           .spill_bytes = 1 << 20,
                           .idle = sim_plan.idle,
                           .allocator_type = sim_plan.allocator_type,
                           .queue_type = sim_plan.queue_type,
                           .queue_capacity = 2, /* no larger than its slots need */
                           .batch_size = sim_plan.batch_size,
                           .batch_delay_us = sim_plan.batch_delay_ns / 1000};
    SIM_CHECK(lm_shared_open(&sim_shared, &config) == 0, "settings");
    sim_shared.idle_timeout_ns = sim_plan.idle_ms * 1000000ull; /* settings have seconds */
    sim_shared.hang_ns = sim_plan.hang_ms * 1000000ull;
    sim_shared.dialects[LM_DIALECT_OPEN] = &lm_greeting;
    sim_shared.dialects[LM_DIALECT_NATIVE] = &lm_native;
    sim_shared.dialects[LM_DIALECT_HTTP] = &lm_http;
    sim_shared.dialects[LM_DIALECT_HTTP2] = &lm_http2;
    sim_shared.dialects[LM_DIALECT_GRPC] = &lm_grpc;
    sim_shared.dialects[LM_DIALECT_UPSTREAM] = &lm_upstream;
    lm_shared_use_models(&sim_shared, &sim_models);
}

/* The version of the first model that runs copies of its requests. */
static void add_shadow(void) {
    const lumen_traffic traffic = {.name = "tiny",
                                   .count = 1,
                                   .versions = {1},
                                   .weights = {1},
                                   .shadow = 2,
                                   .shadow_percent = sim_plan.shadow_percent};
    struct lm_model *model = begin_model(SIM_SHADOW, "tiny:2", 8);
    model->version = 2;
    add(model, TENSOR("x", -1, 4), "y");
    end_model(model);
    SIM_CHECK(lm_traffic_set(&lm_reload_in_force(&sim_shared)->traffic, &traffic, 1) == 0,
              "traffic");
}

void engine_models(void) {
    open_settings();
    struct lm_model *model = begin_model(0, "tiny", 8);
    add(model, TENSOR("x", -1, 4), "y");
    model->batch_size = sim_plan.batch_size;
    model->batch_delay_ns = sim_plan.batch_delay_ns;
    end_model(model);
    model = begin_model(1, "wide", 3);
    add(model, TENSOR("x", -1, 300), "y");
    model->outputs[0].shape_known = model->outputs[0].rows_free = false;
    model->outputs_known = false;
    model->max_output_bytes = 3 * 1200;
    end_model(model);
    model = begin_model(2, "picture", 4);
    add(model, TENSOR("x", -1, 3, 4, 4), "y");
    model->batch_size = sim_plan.batch_size;
    model->input_plan.has_rgb8 = true;
    model->input_plan.rgb8 = (struct lm_rgb8_plan){
        .height = 4, .width = 4, .layout = LM_LAYOUT_NCHW, .dtype = ORT_FLOAT};
    lm_rgb8_plan_init(&model->input_plan.rgb8, LUMEN_CHANNELS_RGB, (float[3]){0, 0, 0},
                      (float[3]){1, 1, 1});
    model->input_plan.has_images = true;
    model->picture_bytes = 1;
    model->input_plan.image =
        (struct lm_image_plan){.max_pixels = 1 << 14, .pixels = model->input_plan.rgb8};
    end_model(model);
    model = begin_model(3, "pair", 6);
    add(model, TENSOR("a", -1, 2), "c");
    add(model, TENSOR("b", 3), "d");
    end_model(model);
    model = begin_model(SIM_FREE_MODEL, "sentence", 5);
    struct lm_tensor rows = TENSOR("x", -1, -1);
    rows.free[1] = 1;
    rows.varies = true;
    add(model, rows, "y");
    model->free_count = 1;
    snprintf(model->free_dims[0].name, sizeof model->free_dims[0].name, "length");
    model->free_dims[0].max = SIM_LENGTH_MAX;
    model->batch_size = sim_plan.batch_size;
    end_model(model);
    if (sim_plan.shadow_percent) add_shadow();
}

/* ---- opening ---- */

/* The node of an I/O thread or a worker: the first half is of the first node. */
static struct lm_node *node_of(uint32_t index, uint32_t count) {
    return &sim_shared.nodes[index * sim_shared.node_count / count];
}

/* The node of a worker, or of the I/O thread whose own worker it is. */
static struct lm_node *node_of_worker(uint32_t w) {
    uint32_t threads = sim_shared.thread_count;
    return w < threads ? node_of(w, threads) : node_of(w - threads, sim_shared.io_count);
}

static void open_nodes(struct lm_shared *shared) {
    bool two = sim_plan.two_nodes && shared->thread_count != 1 && shared->io_count > 1;
    shared->node_count = two ? 2 : 1;
    for (uint32_t n = 0; n < shared->node_count; n++) {
        struct lm_node *node = &shared->nodes[n];
        *node = (struct lm_node){.index = n, .memory = -1, .other_count = shared->node_count - 1};
        node->others[0] = &shared->nodes[1 - n];
    }
    for (uint32_t i = 0; i < shared->io_count; i++) node_of(i, shared->io_count)->io_count++;
    for (uint32_t w = 0; w < shared->worker_count; w++) {
        node_of_worker(w)->worker_count++;
        node_of_worker(w)->thread_count += w < shared->thread_count;
    }
}

static void open_shared(struct lm_shared *shared) {
    runtime_open(&shared->ort);
    shared->default_timeout_ns = sim_plan.default_timeout_ns;
    shared->ios = ios;
    shared->io_count = sim_plan.io_count;
    lm_store_relaxed_u32(&shared->io_shares_cores, sim_plan.io_shares_cores);
    shared->unparked_max = sim_plan.unparked_max;
    shared->workers = workers;
    bool is_inline = shared->config.queue_type == LUMEN_QUEUE_INLINE;
    shared->thread_count = shared->active_count = is_inline ? 0 : sim_plan.worker_count;
    shared->worker_count =
        shared->thread_count + (is_inline || sim_plan.own ? shared->io_count : 0);
    shared->bulk.answerers = shared->worker_count;
    open_nodes(shared);
    shared->traced = sim_plan.plain || sim_one_in(8);
    shared->access_logged = shared->traced && (sim_plan.plain || sim_one_in(2));
    lm_store_relaxed_u64(&shared->ios_running, shared->io_count);
    lm_store_relaxed_u64(&shared->workers_running, shared->thread_count);
    struct lm_http_server http = {
        .name = "sim", .version = "sim", .port = 8000, .worker_count = lm_shared_parallel(shared)};
    SIM_CHECK(lm_describe(sim_models.models, sim_models.count, "sim", &sim_models.description,
                          &sim_models.description_bytes) == 0 &&
                  lm_http_documents_open(&sim_models, NULL, &http) == 0,
              "documents");
}

static void open_io(uint32_t i, const lumen_slot_class *classes, uint32_t class_count) {
    struct lm_io *io = &ios[i];
    io->listen_fds[LM_LISTENER_TCP] = listener_open(i);
    io->listen_fds[LM_LISTENER_UNIX] = io->listen_fds[LM_LISTENER_GRPC] = -1;
    io->stats = &blocks[i];
    SIM_CHECK(lm_io_open(io, &sim_shared, node_of(i, sim_shared.io_count), i, sim_plan.connections,
                         classes, class_count) == 0,
              "I/O thread: %s", lm_error_last());
    if (!sim_plan.plain && sim_below(2)) io->http2->shelves.room = sim_below(10000);
}

void engine_open(void) {
    struct lm_shared *shared = &sim_shared;
    lumen_slot_class classes[LUMEN_SLOT_CLASSES_MAX];
    uint32_t class_count = 0, slots = 0;
    open_shared(shared);
    for (uint32_t w = 0; w < shared->worker_count; w++)
        workers[w] = (struct lm_worker){.shared = shared,
                                        .node = node_of_worker(w),
                                        .stats = &blocks[2 + w],
                                        .index = w,
                                        .cpu = (int32_t)w};
    struct lm_slot_plan_limits limits = {.arena_bytes = 64 << 20,
                                         .max_request_bytes = SIM_MAX_REQUEST_BYTES,
                                         .slot_count_max = 256,
                                         .worker_count = lm_shared_parallel(shared)};
    SIM_CHECK(lm_slot_plan(sim_models.models, sim_models.count, &limits, classes, &class_count) ==
                  0,
              "slots");
    for (uint32_t c = 0; c < class_count; c++) {
        uint32_t drawn = c == 0 ? 2 + sim_below(30) : 1 + sim_below(3);
        classes[c].slot_count = sim_plan.slots && c > 0 ? sim_plan.slots : drawn;
        slots += classes[c].slot_count * sim_plan.io_count;
    }
    SIM_CHECK(lm_request_lists_open(&sim_models, NULL) == 0, "lists");
    for (uint32_t i = 0; i < shared->io_count; i++) open_io(i, classes, class_count);
    for (uint32_t n = 0; n < shared->node_count; n++) {
        struct lm_node *node = &shared->nodes[n];
        SIM_CHECK(lm_node_open(node, &shared->config, node->thread_count, slots) == 0, "queue");
    }
}

/* As server/threads.c opens it. */
static void start_shadow(void) {
    struct lm_shadow_jobs *jobs = &sim_shared.shadows;
    SIM_CHECK(lm_mpmc_open(&jobs->queue, LM_SHADOWS_MAX * LUMEN_IO_THREADS_MAX) == 0, "copies");
    for (uint32_t i = 0; i < sim_shared.io_count; i++)
        SIM_CHECK(lm_spsc_open(&jobs->returns[i], LM_SHADOWS_MAX) == 0, "copies");
    lm_waitset_init(&jobs->waitset);
    lm_store_release_u32(&jobs->is_open, 1);
    fiber_start("shadow", lm_shadow_main, &sim_shared);
}

void engine_start(void) {
    static const char *const io_names[] = {"io/0", "io/1"};
    static const char *const worker_names[] = {"worker/0", "worker/1", "worker/2", "worker/3"};
    sim_draining = false;
    for (uint32_t i = 0; i < sim_shared.io_count; i++)
        fiber_start(io_names[i], lm_io_main, &ios[i]);
    for (uint32_t w = 0; w < sim_shared.thread_count; w++)
        fiber_start(worker_names[w], lm_worker_main, &workers[w]);
    if (sim_plan.shadow_percent) start_shadow();
}

/* ---- the end ---- */

void engine_drain(uint64_t limit_ns) {
    SIM_TRACE("draining for at most %llu us", limit_ns / 1000);
    sim_draining = true;
    lm_store_relaxed_u64(&sim_shared.drain_until_ns, sim_now_ns + limit_ns);
    lm_store_release_u32(&sim_shared.phase, LM_PHASE_DRAINING);
    for (uint32_t i = 0; i < sim_shared.io_count; i++) {
        if (ios[i].ring) lm_ring_wake(ios[i].ring);
    }
}

static uint64_t count_endings(uint32_t io) {
    const struct lm_io_counters *counters = &blocks[io].io;
    return lm_load_relaxed_u64(&counters->connections_evicted) +
           lm_load_relaxed_u64(&counters->connections_timed_out) +
           lm_load_relaxed_u64(&counters->connections_crowded);
}

bool engine_ended_one(uint32_t io) {
    return count_endings(io) != endings[io];
}

bool engine_ended_any(void) {
    for (uint32_t i = 0; i < sim_shared.io_count; i++)
        if (count_endings(i)) return true;
    return false;
}

void engine_turn(uint32_t io) {
    endings[io] = count_endings(io);
}

static bool workers_asleep(void) {
    for (uint32_t f = sim_shared.io_count; f < fiber_count; f++) {
        if (!fibers[f].blocked_on || fibers[f].wake_at_ns != UINT64_MAX) return false;
    }
    return true;
}

bool engine_quiet(void) {
    for (uint32_t i = 0; i < sim_shared.io_count; i++) {
        if (lm_mpmc_depth(&ios[i].returns) || lm_spsc_depth(&ios[i].ready) ||
            lm_spsc_depth(&ios[i].own) || lm_answers_wait(&ios[i]))
            return false;
    }
    bool is_inline = sim_shared.config.queue_type == LUMEN_QUEUE_INLINE;
    for (uint32_t n = 0; !is_inline && n < sim_shared.node_count; n++) {
        if (lm_queue_depth(&lm_node_line(&sim_shared.nodes[n])->queue) > 0) return false;
    }
    return workers_asleep();
}

bool engine_idle(void) {
    for (uint32_t i = 0; i < sim_shared.io_count; i++) {
        /* Not in the middle of a turn either. */
        if (ios[i].connections_open || ios[i].arena.acquired_count || listener_next(i) ||
            !ios[i].ring || fibers[i].blocked_on != ios[i].ring)
            return false;
    }
    return engine_quiet();
}

bool engine_ended(void) {
    for (uint32_t f = 0; f < fiber_count; f++) {
        if (!fibers[f].ended) return false;
    }
    return true;
}

void engine_close(void) {
    const struct lm_width *width = &sim_shared.nodes[0].width; /* the others have no helpers */
    SIM_CHECK(!lm_load_relaxed_u32(&width->taken) && !lm_load_relaxed_u32(&width->owner),
              "a Run has not given the cores of other workers back");
    for (uint32_t i = 0; i < sim_shared.io_count; i++) lm_io_close(&ios[i]);
    for (uint32_t w = 0; w < sim_shared.worker_count; w++) lm_worker_close(&workers[w]);
    for (uint32_t n = 0; n < sim_shared.node_count; n++) lm_node_close(&sim_shared.nodes[n]);
    lm_mpmc_close(&sim_shared.shadows.queue);
    for (uint32_t i = 0; i < sim_shared.io_count; i++)
        lm_spsc_close(&sim_shared.shadows.returns[i]);
    for (uint32_t m = 0; m < sim_models.count; m++) {
        lm_shared_leave_model(&sim_shared, &models[m]);
        free(models[m].description.text);
    }
    lm_request_lists_close(sim_models.lists);
    free(sim_models.description);
    lm_http_documents_close(&sim_models);
    lm_model_set_close(&sim_models);
    lm_shared_close(&sim_shared);
    SIM_CHECK(fds_open == 0, "%u descriptors are left open", fds_open);
    SIM_CHECK(runtime_values == 0, "%u tensors of the runtime are left", runtime_values);
}
