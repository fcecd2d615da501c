/* server_node.c: the node: how many threads it has and on which cores, their slots, connections and
 * queue. Control thread only, while no other thread runs.
 */
#include <string.h>

#include "base/error.h"
#include "base/topology.h"
#include "parts/slot_plan.h"
#include "server.h"

static uint32_t count_io_threads(const lumen_config *config) {
    if (config->io_threads) return config->io_threads;
    if (config->queue_type != LUMEN_QUEUE_INLINE) return 1;
    /* Inline: they are the workers too. */
    int usable = lm_topology_usable_cpus("", NULL, 0);
    uint32_t count = config->thread_count ? config->thread_count
                     : usable < 1         ? 1
                                          : (uint32_t)usable;
    return count < LUMEN_IO_THREADS_MAX ? count : LUMEN_IO_THREADS_MAX;
}

/* Chooses the workers' cores: those this process may use; more workers than cores are not pinned.
 */
static void place_workers(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    struct lm_node *node = &shared->node;
    int32_t cpus[LUMEN_WORKERS_MAX];
    int usable = lm_topology_usable_cpus("", cpus, LUMEN_WORKERS_MAX);
    uint32_t found = usable < 1 ? 1 : (uint32_t)usable;
    if (found > LUMEN_WORKERS_MAX) found = LUMEN_WORKERS_MAX;
    uint32_t wanted = shared->config.thread_count ? shared->config.thread_count : found;
    if (shared->config.queue_type == LUMEN_QUEUE_SPSC) wanted = 1;
    /* Inline: a worker is what an I/O thread runs models with. */
    node->worker_count = shared->config.queue_type == LUMEN_QUEUE_INLINE ? node->io_count : wanted;
    node->workers = server->workers;
    /* An I/O thread that looks for work must not take a core on which a worker computes. */
    bool own_core = shared->config.queue_type == LUMEN_QUEUE_INLINE
                        ? node->io_count <= found
                        : node->io_count + node->worker_count <= found;
    bool polls =
        shared->config.idle == LUMEN_IDLE_ADAPTIVE || shared->config.idle == LUMEN_IDLE_SPIN;
    shared->io_shares_cores = !own_core && shared->config.queue_type != LUMEN_QUEUE_INLINE;
    if (own_core && polls) shared->io_poll_ns = LM_IO_POLL_NS;
    bool pin = usable > 0 && node->worker_count <= found;
    if (!pin && usable > 0) lm_server_note(server, "more workers than cores: they are not pinned");
    for (uint32_t w = 0; w < node->worker_count; w++) {
        server->workers[w] = (struct lm_worker){
            .shared = shared, .node = node, .index = w, .cpu = pin ? cpus[w] : -1};
    }
}

void lm_server_place_node(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    struct lm_node *node = &shared->node;
    node->ios = server->ios;
    node->io_count = count_io_threads(&shared->config);
    for (uint32_t i = 0; i < node->io_count; i++)
        memset(server->ios[i].listen_fds, -1, sizeof server->ios[i].listen_fds);
    place_workers(server);
    if (shared->config.allocator_type == LUMEN_ALLOCATOR_ARENA &&
        lm_run_arenas_open(&node->run_arenas, &shared->ort, node->worker_count)) {
        lm_server_note(server, lm_error_last());
    }
}

int lm_server_plan_slots(lumen_server *server) {
    const lumen_config *config = &server->shared.config;
    const struct lm_node *node = &server->shared.node;
    lumen_info *info = &server->info;
    if (info->slot_class_count > 0) return 0;
    struct lm_slot_plan_limits limits = {.arena_bytes = config->arena_bytes / node->io_count,
                                         .max_request_bytes = config->max_request_bytes,
                                         .slot_count_max = config->queue_capacity / node->io_count,
                                         .worker_count = node->worker_count};
    return lm_slot_plan(server->set.models, server->set.count, &limits, info->slot_classes,
                        &info->slot_class_count);
}

int lm_server_open_node(lumen_server *server) {
    const lumen_config *config = &server->shared.config;
    struct lm_node *node = &server->shared.node;
    lumen_info *info = &server->info;
    int code = lm_server_plan_slots(server);
    /* The kernel spreads connections as it likes: each thread has room for all of them. */
    for (uint32_t i = 0; !code && i < node->io_count; i++) {
        code = lm_io_open(&server->ios[i], &server->shared, i, config->max_connections,
                          info->slot_classes, info->slot_class_count);
        info->slots += server->ios[i].arena.slot_count;
        info->arena_bytes += server->ios[i].arena.memory.bytes;
    }
    return code ? code : lm_node_open(node, config, info->slots);
}

void lm_server_close_node(lumen_server *server) {
    struct lm_node *node = &server->shared.node;
    for (uint32_t i = 0; i < node->io_count; i++) lm_io_close(&server->ios[i]);
    for (uint32_t w = 0; w < node->worker_count; w++) lm_worker_close(&server->workers[w]);
    lm_node_close(node, &server->shared.config);
}
