/* node.c: the nodes: how many threads each has and on which cores, their slots, connections
 * and queue. Control thread only, while no other thread runs, but for what the cores are shared by.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flow/slot_plan.h"
#include "models/load.h"
#include "models/native_engine.h"
#include "models/process.h"
#include "models/virtual.h"
#include "server/state.h"
#include "work/worker.h"
#include "work/worker_open.h"

enum { LARGEST_REQUESTS = 8 }; /* that an I/O thread has room for, where nobody set its number */

/* How many nodes the settings leave room for: each has an I/O thread, and the queues that block, or
 * have one consumer, are for one. */
static uint32_t most_nodes(const lumen_config *config) {
    uint32_t type = config->queue_type;
    if (type == LUMEN_QUEUE_SPSC || type == LUMEN_QUEUE_NAIVE || type == LUMEN_QUEUE_BATCHED)
        return 1;
    bool few = config->io_threads > 0 && config->io_threads < LM_NODES_MAX;
    return few ? config->io_threads : LM_NODES_MAX;
}

/* What the settings ask of a machine, before it is known who runs the models. */
static struct lm_placement_wish wish_of(const lumen_server *server) {
    const lumen_config *config = &server->shared.config;
    uint32_t type = config->queue_type;
    return (struct lm_placement_wish){.cores = server->cores[0] ? server->cores : NULL,
                                      .nodes = config->nodes,
                                      .nodes_most = most_nodes(config),
                                      .workers =
                                          type == LUMEN_QUEUE_SPSC ? 1 : config->thread_count,
                                      .no_workers = type == LUMEN_QUEUE_INLINE};
}

/* The nodes of the plan, with their workers' threads. */
static void place_nodes(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    const struct lm_placement *placement = &server->placement;
    shared->node_count = placement->node_count;
    for (uint32_t n = 0; n < placement->node_count; n++) {
        const struct lm_placement_node *plan = &placement->nodes[n];
        struct lm_node *node = &shared->nodes[n];
        node->index = n;
        node->memory = plan->memory;
        node->thread_count = plan->worker_count + placement->spare_count; /* of one node alone */
        node->cpus = placement->confined ? &plan->cpus : NULL;
        node->other_count = placement->node_count - 1;
        for (uint32_t o = 0; o < node->other_count; o++)
            node->others[o] = &shared->nodes[plan->nearest[o]];
    }
}

int lm_server_place_workers(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    const lumen_config *config = &shared->config;
    server->by_time = config->queue_type == LUMEN_QUEUE_AUTO;
    if (server->by_time) shared->config.queue_type = LUMEN_QUEUE_MPMC;
    lm_machine_read(&server->machine, "");
    const struct lm_placement_wish wish = wish_of(server);
    int code = lm_placement_plan(&server->machine, &wish, &server->placement);
    if (code) return code;
    if (server->placement.note[0]) lm_server_note(server, server->placement.note);
    shared->ios = server->ios;
    shared->workers = server->workers;
    shared->active_count = server->placement.worker_count;
    shared->thread_count = shared->active_count + server->placement.spare_count;
    server->thread_total = shared->active_count;
    place_nodes(server);
    if (config->allocator_type == LUMEN_ALLOCATOR_ARENA &&
        lm_run_arenas_open(&shared->run_arenas, &shared->ort, LM_RUNNERS_MAX + 1)) {
        lm_server_note(server, lm_error_last());
    }
    return 0;
}

/* A virtual model goes where those that it runs may go, which have been decided on before: one of
 * its experts, or all its steps. */
static void choose_run_of_virtual(struct lm_model *model) {
    bool inline_all = true;
    uint64_t all_ns = 0;
    for (uint32_t p = 0; p < lm_model_part_count(model); p++) {
        const struct lm_model *part = lm_model_part(model, p);
        if (part->run == LUMEN_RUN_WORKER) model->run = LUMEN_RUN_WORKER;
        if (part->run_ns > model->run_ns) model->run_ns = part->run_ns;
        all_ns += part->run_ns;
        inline_all = inline_all && part->run == LUMEN_RUN_INLINE;
    }
    if (model->run == LUMEN_RUN_AUTO && inline_all) model->run = LUMEN_RUN_INLINE;
    bool is_worker = model->run == LUMEN_RUN_WORKER;
    const struct lm_runner *runner = lm_runner_of(model);
    model->run_why = is_worker ? runner->parts_on_workers : runner->parts_inline;
    if (!runner->runs_all_parts) return;
    model->run_ns = all_ns;
    if (model->run != LUMEN_RUN_AUTO || all_ns <= LM_SHORT_RUN_NS) return;
    model->run = LUMEN_RUN_WORKER;
    model->run_why = "its steps take longer than a hand-over";
}

/* Decides who runs the model: the I/O threads by the time it takes, where nothing else is set. */
static void choose_run(const lumen_server *server, struct lm_model *model) {
    if (model->run_why) return; /* it is decided */
    const struct lm_runner *runner = lm_runner_of(model);
    if (runner->not_inline) {
        model->run = LUMEN_RUN_WORKER;
        model->run_why = runner->not_inline;
    } else if (server->shared.config.queue_type == LUMEN_QUEUE_INLINE) {
        model->run = LUMEN_RUN_INLINE;
        model->run_why = "engine.queue_type is inline";
    } else if (model->run != LUMEN_RUN_AUTO) {
        model->run_why = "it is set";
    } else if (!server->by_time) {
        model->run_why = "engine.queue_type is set";
    } else if (model->batch_size > 1) {
        model->run_why = "workers gather batches";
    } else if (model->threads > 1) {
        model->run_why = "intra_op_threads is set";
    } else if (model->source.providers.count > 0) {
        model->run_why = "it has other providers, whose Runs may wait";
    } else if (lm_model_is_virtual(model)) {
        choose_run_of_virtual(model);
        return;
    } else {
        if (!runner->is_engine) model->run_ns = lm_model_time_run(model, &server->shared.ort);
        bool is_short = model->run_ns > 0 && model->run_ns <= LM_SHORT_RUN_NS;
        bool is_bounded = runner->is_engine || !model->source.unbounded[0];
        if (is_short && is_bounded) {
            model->run_why = "its Runs are short";
            return;
        }
        model->run_why = !is_bounded     ? model->source.unbounded
                         : model->run_ns ? "its Runs take longer than a hand-over"
                                         : "it fails on an input of zeros";
    }
    if (model->run == LUMEN_RUN_AUTO) model->run = LUMEN_RUN_WORKER;
}

/* Which models have a native engine that is worth it. */
static int choose_engines(lumen_server *server) {
    int code = 0;
    for (uint32_t m = 0; !code && m < server->set->count; m++)
        code = lm_model_choose_engine(server->set->models[m], &server->shared.ort);
    return code;
}

/* The same of all. Returns whether I/O threads run any, and in `all_out` whether they run every
 * request of one row. Without models both are prepared for what may come. */
static bool choose_runs(lumen_server *server, bool *all_out) {
    const bool is_inline = server->shared.config.queue_type == LUMEN_QUEUE_INLINE;
    uint32_t here = 0;
    bool any = false;
    *all_out = server->set->count > 0 || is_inline;
    for (uint32_t m = 0; m < server->set->count; m++) {
        struct lm_model *model = server->set->models[m];
        choose_run(server, model);
        if (lm_model_is_elsewhere(model)) continue; /* I/O threads have its requests anyway */
        here++;
        any = any || model->run != LUMEN_RUN_WORKER;
        /* Of other sizes a Run may take any time, and may need any memory. */
        bool always = model->run != LUMEN_RUN_WORKER &&
                      (model->run == LUMEN_RUN_INLINE || model->free_count == 0);
        *all_out = *all_out && always;
    }
    return any || (here == 0 && (is_inline || server->by_time));
}

/* The plan of all threads, once it is known whether I/O threads run every request. */
static int plan_threads(const lumen_server *server, const struct lm_machine *machine,
                        bool all_inline, struct lm_placement_wish *wish,
                        struct lm_placement *placement) {
    const lumen_config *config = &server->shared.config;
    *wish = wish_of(server);
    int code = lm_placement_plan(machine, wish, placement);
    uint32_t wanted = 1;
    if (all_inline) wanted = config->thread_count ? config->thread_count : placement->core_count;
    if (wanted > LUMEN_IO_THREADS_MAX) wanted = LUMEN_IO_THREADS_MAX;
    /* Each has a part of the arena. */
    uint64_t enough =
        config->arena_bytes / (LARGEST_REQUESTS * (uint64_t)config->max_request_bytes);
    if (server->by_time && wanted > enough) wanted = enough ? (uint32_t)enough : 1;
    if (wanted < placement->node_count) wanted = placement->node_count;
    wish->io_count = config->io_threads ? config->io_threads : wanted;
    wish->io_runs_models = all_inline;
    return code ? code : lm_placement_plan(machine, wish, placement);
}

/* Places the workers: threads on the cores of the plan, and one for each I/O thread that runs
 * models. */
static void place_workers(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    const struct lm_placement *placement = &server->placement;
    for (uint32_t w = 0; w < shared->worker_count; w++) {
        bool is_thread = w < shared->thread_count;
        const struct lm_place *place =
            is_thread ? &placement->workers[w] : &placement->ios[w - shared->thread_count];
        struct lm_node *node = &shared->nodes[place->node];
        server->workers[w] =
            (struct lm_worker){.shared = shared, .node = node, .index = w, .cpu = place->cpu};
        if (is_thread && w >= shared->active_count) {
            /* relaxed, both: no other thread yet */
            lm_store_relaxed_u32(&server->workers[w].presence, LM_WORKER_ABSENT);
            lm_store_relaxed_u32(&server->workers[w].line_number, LM_NO_LINE);
        }
        if (node->memory >= 0) lm_run_arenas_bind(&shared->run_arenas, w, node->memory);
    }
}

/* A thread beside each worker, on the sessions of that one, where there are texts to be run. */
static int place_bulk(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    bool any = false;
    for (uint32_t m = 0; m < server->set->count; m++) any = any || server->set->models[m]->text;
    lm_waitset_init(&shared->bulk.waitset);
    shared->bulk.answerers = shared->worker_count;
    if (!any || shared->active_count == 0) return 0;
    int code = lm_mpmc_open(&shared->bulk.tokens, LM_BULK_TOKENS);
    if (code) return code;
    shared->bulk.count = shared->active_count;
    shared->bulk.answerers += shared->bulk.count;
    for (uint32_t b = 0; b < shared->bulk.count; b++) {
        const uint32_t w = shared->worker_count + b;
        server->workers[w] = (struct lm_worker){.shared = shared,
                                                .node = server->workers[b].node,
                                                .index = w,
                                                .cpu = -1,
                                                .finish = lm_worker_finish};
    }
    return 0;
}

/* An I/O thread that looks for work must not take a core on which a worker computes: where it
 * shares one, it looks only while nothing is in flight. */
void lm_server_share_cores(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    const lumen_config *config = &shared->config;
    const uint32_t found = server->placement.core_count;
    const bool any_inline = shared->worker_count > shared->thread_count;
    uint32_t busy = shared->io_count + (server->all_inline ? 0 : shared->active_count);
    bool polls = config->idle == LUMEN_IDLE_ADAPTIVE || config->idle == LUMEN_IDLE_SPIN;
    bool may_poll = polls && (busy <= found || (any_inline && shared->io_count == 1));
    uint64_t poll_ns = may_poll ? LM_IO_POLL_NS : 0;
    if (config->busy_poll_us) poll_ns = config->busy_poll_us * 1000ull;
    /* relaxed, both: guard nothing */
    lm_store_relaxed_u32(&shared->io_shares_cores, busy > found && !server->all_inline);
    lm_store_relaxed_u64(&shared->io_poll_ns, poll_ns);
}

static int place_threads(lumen_server *server, bool any_inline, bool all_inline) {
    struct lm_shared *shared = &server->shared;
    const struct lm_placement *placement = &server->placement;
    struct lm_placement_wish wish;
    int code = plan_threads(server, &server->machine, all_inline, &wish, &server->placement);
    if (code) return code;
    shared->io_count = placement->io_count;
    shared->worker_count = shared->thread_count + (any_inline ? shared->io_count : 0);
    for (uint32_t n = 0; n < shared->node_count; n++) {
        struct lm_node *node = &shared->nodes[n];
        node->io_count = placement->nodes[n].io_count;
        node->worker_count = node->thread_count + (any_inline ? node->io_count : 0);
    }
    if (shared->active_count > placement->core_count)
        lm_server_note(server, "more workers than cores: they are not pinned");
    place_workers(server);
    code = place_bulk(server);
    if (code) return code;
    for (uint32_t i = 0; i < shared->io_count; i++)
        memset(server->ios[i].listen_fds, -1, sizeof server->ios[i].listen_fds);
    server->all_inline = all_inline;
    lm_server_share_cores(server);
    return 0;
}

/* Once the models are known. */
static int place(lumen_server *server) {
    bool all;
    if (server->shared.io_count > 0) return 0;
    int code = choose_engines(server);
    if (code) return code;
    bool any = choose_runs(server, &all);
    code = place_threads(server, any, all);
    return code ? code : lm_server_open_sessions(server);
}

int64_t lumen_plan(lumen_server *server, const char *root, char *buffer, size_t capacity) {
    struct lm_placement_wish wish;
    bool all = server->shared.config.queue_type == LUMEN_QUEUE_INLINE;
    if (server->state != SERVER_OPEN)
        return lm_error(LUMEN_E_STATE, "lumen_plan comes before lumen_start");
    if (server->set->count > 0) choose_runs(server, &all);
    struct lm_machine *machine = malloc(sizeof *machine);
    struct lm_placement *placement = malloc(sizeof *placement);
    int code = machine && placement ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for a plan of cores");
    if (!code) {
        lm_machine_read(machine, root ? root : "");
        code = plan_threads(server, machine, all, &wish, placement);
    }
    size_t bytes = code ? 0 : lm_placement_text(machine, &wish, placement, buffer, capacity);
    free(machine);
    free(placement);
    return code ? code : (int64_t)bytes;
}

int lm_server_plan_slots(lumen_server *server) {
    lumen_info *info = &server->info;
    if (info->slot_class_count > 0) return 0;
    int code = place(server);
    if (code) return code;
    lm_server_fit_limits(server);
    const struct lm_slot_plan_limits limits = lm_server_slot_limits(server);
    code = lm_slot_plan(server->set->models, server->set->count, &limits, info->slot_classes,
                        &info->slot_class_count);
    if (!code) lm_server_widen(server);
    return code;
}

/* A model that is loaded later finds the threads as they are. */
static void choose_late_run(const lumen_server *server, struct lm_model *model) {
    const struct lm_shared *shared = &server->shared;
    bool any_inline = shared->worker_count > shared->thread_count;
    choose_run(server, model);
    if (model->run == LUMEN_RUN_WORKER || shared->thread_count == 0) return;
    bool has_sessions =
        lm_model_is_virtual(model) ? lm_model_has_session(model, shared->thread_count) : true;
    if (any_inline && has_sessions) return;
    model->run = LUMEN_RUN_WORKER;
    model->run_why =
        any_inline ? "workers run its parts" : "I/O threads ran no model when the server started";
}

int lm_server_settle_model(lumen_server *server, struct lm_model *model) {
    int code = lm_model_choose_engine(model, &server->shared.ort);
    if (code) return code;
    choose_late_run(server, model);
    snprintf(model->wide.why, sizeof model->wide.why, "it came while the server ran");
    return lm_server_open_io_sessions(server, model);
}

int lm_server_open_nodes(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    const lumen_config *config = &shared->config;
    lumen_info *info = &server->info;
    uint32_t slots[LM_NODES_MAX] = {0};
    int code = lm_server_plan_slots(server);
    /* The kernel spreads connections as it likes: each thread has room for all of them. */
    for (uint32_t i = 0; !code && i < shared->io_count; i++) {
        struct lm_node *node = &shared->nodes[server->placement.ios[i].node];
        if (node->memory >= 0) lm_memory_prefer(node->memory);
        code = lm_io_open(&server->ios[i], shared, node, i, config->max_connections,
                          info->slot_classes, info->slot_class_count);
        if (node->memory >= 0) lm_memory_prefer(-1);
        slots[node->index] += lm_arena_slots_max(&server->ios[i].arena);
        info->slots += server->ios[i].arena.slot_count;
        info->arena_bytes += server->ios[i].arena.memory.bytes;
    }
    for (uint32_t n = 0; !code && n < shared->node_count; n++)
        code = lm_node_open(&shared->nodes[n], config, server->placement.nodes[n].worker_count,
                            slots[n]);
    for (uint32_t m = 0; !code && m < server->set->count; m++) {
        struct lm_process *process = server->set->models[m]->process;
        if (process) code = lm_server_open_rooms(server, process);
    }
    if (!code && lm_server_lock_for_gpu(server)) lm_server_note(server, lm_error_last());
    return code;
}

void lm_server_close_nodes(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    lm_server_unlock_for_gpu(server);
    for (uint32_t i = 0; i < shared->io_count; i++) lm_io_close(&server->ios[i]);
    for (uint32_t w = 0; w < shared->bulk.answerers; w++) lm_worker_close(&server->workers[w]);
    lm_mpmc_close(&shared->bulk.tokens);
    lm_mpmc_close(&shared->shadows.queue);
    for (uint32_t i = 0; i < shared->io_count; i++) lm_spsc_close(&shared->shadows.returns[i]);
    for (uint32_t n = 0; n < shared->node_count; n++) lm_node_close(&shared->nodes[n]);
}
