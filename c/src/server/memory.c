/* memory.c: what lies in the memory of each node: a copy of the weights, and sessions that
 * use it; and where all of it came to lie. Control thread, before the server's threads start, and
 * once they are up. A server of one node without memory of its own has nothing of this.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/topology.h"
#include "models/load.h"
#include "models/virtual.h"
#include "server/growth.h"
#include "server/state.h"

static bool has_copies(const struct lm_shared *shared) {
    return shared->node_count > 1 || shared->nodes[0].memory >= 0;
}

/* The sessions of one model for the workers of one node, opened by a thread that lives there: what
 * ONNX Runtime allocates for them, it allocates there. */
struct opening {
    lumen_server *server;
    struct lm_model *model;
    struct lm_node *node;
    uint32_t first, last; /* workers */
    int code;
    char error[768];
};

static int copy_weights(struct opening *opening) {
    const struct lm_mapping *optimised = &opening->model->source.optimised;
    struct lm_mapping *copy = &opening->model->weights[opening->node->index];
    if (optimised->bytes == 0 || copy->bytes > 0) return 0;
    int code = lm_mapping_open(copy, optimised->bytes);
    if (!code) memcpy(copy->base, optimised->base, optimised->bytes);
    return code;
}

static void *open_there(void *argument) {
    struct opening *opening = argument;
    lumen_server *server = opening->server;
    struct lm_node *node = opening->node;
    if (node->cpus) (void)lm_thread_keep_to(node->cpus);
    if (node->memory >= 0) lm_memory_prefer(node->memory);
    opening->code = copy_weights(opening);
    for (uint32_t w = opening->first; !opening->code && w < opening->last; w++) {
        const struct lm_placement *placement = &server->placement;
        uint32_t threads = server->shared.thread_count;
        const struct lm_place *place =
            w < threads ? &placement->workers[w] : &placement->ios[w - threads];
        if (place->node != node->index) continue;
        opening->code = lm_model_open_session(opening->model, &server->shared.ort, node->index, w);
    }
    if (opening->code) snprintf(opening->error, sizeof opening->error, "%s", lm_error_last());
    return NULL;
}

static int open_on_nodes(lumen_server *server, struct lm_model *model, uint32_t first,
                         uint32_t last) {
    sigset_t all, before;
    sigfillset(&all);
    for (uint32_t n = 0; n < server->shared.node_count; n++) {
        pthread_t thread;
        struct opening opening = {.server = server,
                                  .model = model,
                                  .node = &server->shared.nodes[n],
                                  .first = first,
                                  .last = last};
        pthread_sigmask(SIG_SETMASK, &all, &before);
        int refused = pthread_create(&thread, NULL, open_there, &opening);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (refused) return lm_error_errno(LUMEN_E_NOMEM, refused, "cannot start a thread");
        pthread_join(thread, NULL);
        if (opening.code) return lm_error(opening.code, "%s", opening.error);
    }
    return 0;
}

static int open_sessions(lumen_server *server, struct lm_model *model, uint32_t first,
                         uint32_t last) {
    int code = 0;
    if (has_copies(&server->shared)) return open_on_nodes(server, model, first, last);
    for (uint32_t w = first; !code && w < last; w++)
        code = lm_model_open_session(model, &server->shared.ort, 0, w);
    return code;
}

int lm_server_copy_weights(lumen_server *server, struct lm_model *model) {
    if (!has_copies(&server->shared) || lm_model_is_virtual(model) || lm_runner_of(model)->is_apart)
        return 0;
    return open_on_nodes(server, model, 0, model->session_count);
}

/* I/O threads run it, or a virtual model that runs it. */
static bool is_for_io(const lumen_server *server, const struct lm_model *model) {
    bool is = server->shared.thread_count == 0 || model->run != LUMEN_RUN_WORKER;
    /* Of a model that comes while the server runs, no other one is made yet. */
    const uint32_t count = server->state == SERVER_RUNNING ? 0 : server->set->count;
    for (uint32_t m = 0; m < count; m++) {
        const struct lm_model *other = server->set->models[m];
        for (uint32_t p = 0; p < lm_model_part_count(other); p++)
            is = is || (lm_model_part(other, p) == model && other->run != LUMEN_RUN_WORKER);
    }
    return is;
}

int lm_server_open_io_sessions(lumen_server *server, struct lm_model *model) {
    const struct lm_shared *shared = &server->shared;
    int code = lm_runner_of(model)->is_engine
                   ? lm_engine_hold_runners(&model->engine, shared->worker_count)
                   : 0;
    if (code || lm_model_is_virtual(model) || !is_for_io(server, model)) return code;
    /* Without places for threads the first I/O thread has the first session. */
    return open_sessions(server, model, shared->thread_count ? shared->thread_count : 1,
                         shared->worker_count);
}

int lm_server_open_later_sessions(lumen_server *server, const struct lm_model_set *set,
                                  uint32_t worker) {
    int code = 0;
    for (; set; set = set->retired) {
        for (uint32_t m = 0; !code && m < set->count; m++) {
            struct lm_model *model = set->models[m];
            if (model->session_count == 0 || model->sessions[worker]) continue;
            code = lm_server_check_phase(server);
            if (!code) code = open_sessions(server, model, worker, worker + 1);
        }
    }
    return code;
}

void lm_server_close_later_sessions(lumen_server *server, const struct lm_model_set *set,
                                    uint32_t worker) {
    for (; set; set = set->retired)
        for (uint32_t m = 0; m < set->count; m++)
            lm_model_close_session(set->models[m], &server->shared.ort, worker);
}

int lm_server_open_sessions(lumen_server *server) {
    int code = 0;
    for (uint32_t m = 0; !code && m < server->set->count; m++)
        code = lm_server_open_io_sessions(server, server->set->models[m]);
    return code;
}

/* ---- where it lies ---- */

static bool count_pages(const lumen_server *server, const struct lm_node *node,
                        struct lm_pages *pages) {
    const struct lm_shared *shared = &server->shared;
    bool known = true;
    for (uint32_t i = 0; i < shared->io_count; i++) {
        const struct lm_mapping *memory = &shared->ios[i].arena.memory;
        if (shared->ios[i].node == node && memory->bytes > 0)
            known = lm_memory_where(memory->base, memory->bytes, node->memory, pages) && known;
    }
    for (uint32_t m = 0; m < server->set->count; m++) {
        const struct lm_mapping *weights = &server->set->models[m]->weights[node->index];
        if (weights->bytes > 0)
            known = lm_memory_where(weights->base, weights->bytes, node->memory, pages) && known;
    }
    return known;
}

void lm_server_describe_nodes(lumen_server *server) {
    lumen_info *info = &server->info;
    size_t used = 0;
    if (!has_copies(&server->shared)) return;
    for (uint32_t n = 0; n < server->shared.node_count; n++) {
        const struct lm_node *node = &server->shared.nodes[n];
        struct lm_pages pages = {0};
        char cores[64], where[160] = "";
        lm_cpu_set_text(&server->placement.nodes[n].cpus, cores, sizeof cores);
        if (node->memory >= 0) {
            bool known = count_pages(server, node, &pages);
            snprintf(where, sizeof where,
                     known
                         ? "; on the machine's node %d lie %llu of %llu pages of arena and weights"
                         : "; the kernel does not say where its pages lie",
                     node->memory, (unsigned long long)pages.here,
                     (unsigned long long)(pages.here + pages.elsewhere));
        }
        int bytes = snprintf(info->nodes + used, sizeof info->nodes - used,
                             "%s%u: cores %s, I/O threads %u, workers %u%s", n ? "\n" : "", n,
                             cores, node->io_count, lm_node_parallel(node), where);
        used += bytes > 0 && used + (size_t)bytes < sizeof info->nodes ? (size_t)bytes : 0;
    }
}

/* ---- for a GPU ---- */

static bool any_on_gpu(const lumen_server *server) {
    for (uint32_t m = 0; m < server->set->count; m++) {
        if (lm_providers_use_cuda(&server->set->models[m]->source.providers)) return true;
    }
    return false;
}

int lm_server_lock_for_gpu(lumen_server *server) {
    const struct lm_shared *shared = &server->shared;
    if (!any_on_gpu(server)) return 0;
    if (!lm_cuda_host_find(&server->cuda)) {
        return lm_error(LUMEN_E_UNSUPPORTED,
                        "CUDA's runtime is not found: copies of requests to the GPU wait");
    }
    for (uint32_t i = 0; i < shared->io_count; i++) {
        const struct lm_mapping *memory = &shared->ios[i].arena.memory;
        if (memory->bytes == 0) continue; /* allocator_type: standard */
        int code = lm_cuda_host_lock(&server->cuda, memory->base, memory->bytes);
        if (code) return code;
        server->cuda_locked++;
    }
    return 0;
}

void lm_server_unlock_for_gpu(lumen_server *server) {
    for (uint32_t i = 0; i < server->shared.io_count && server->cuda_locked > 0; i++) {
        const struct lm_mapping *memory = &server->shared.ios[i].arena.memory;
        if (memory->bytes == 0) continue;
        lm_cuda_host_unlock(&server->cuda, memory->base);
        server->cuda_locked--;
    }
}
