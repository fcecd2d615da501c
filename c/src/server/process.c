/* process.c: models that processes of their own run: the memory that these have in common
 * with the server, and what the control thread says of them. Python starts the processes and reaps
 * them (lumen_uring/serving/processes.py), also while another thread loads their model: both look
 * under `control`.
 */
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "models/process.h"
#include "models/process_serve.h"
#include "server/growth.h"
#include "server/state.h"

enum {
    BEGIN_MS = 10000, /* in which Python's main thread starts a process */
    GROW_MS = 30000   /* in which a process opens the sessions of more workers */
};

/* Addresses, of which unused ones cost nothing: for arenas, batches and boxes. */
static int open_common(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    uint64_t bytes = 4 * shared->config.arena_bytes + (16ull << 30);
    int code = lm_common_memory_open(&server->common, lm_align_up(bytes, 2u << 20));
    if (!code) shared->common = &server->common;
    return code;
}

/* The one of that key: of a model in force, of one that still has requests, or of the one that is
 * being loaded. The caller holds `control`. */
static struct lm_process *find(const lumen_server *server, uint64_t key) {
    struct lm_process *coming = server->loading ? server->loading->process : NULL;
    if (coming && coming->key == key) return coming;
    for (const struct lm_model_set *set = server->set; set; set = set->retired) {
        for (uint32_t m = 0; m < set->count; m++) {
            struct lm_process *process = set->models[m]->process;
            if (process && process->key == key) return process;
        }
    }
    (void)lm_error(LUMEN_E_INVALID, "no model has a process with the key %llu",
                   (unsigned long long)key);
    return NULL;
}

/* The arenas are in it where this comes before the start. Of a model that comes later, tensors are
 * copied unless another one was isolated then. */
int lm_server_isolate(lumen_server *server, struct lm_model *model,
                      const lumen_model_config *config) {
    const uint64_t own_ns = config->isolation_hang_seconds * 1000000000ull;
    struct lm_shared *shared = &server->shared;
    pthread_mutex_lock(&server->control);
    bool is_taken = find(server, config->process_key) != NULL;
    pthread_mutex_unlock(&server->control);
    int code = 0;
    if (is_taken) {
        return lm_error(LUMEN_E_INVALID, "model '%s': process_key %llu is another model's",
                        model->name, (unsigned long long)config->process_key);
    }
    if (shared->thread_count == 0) {
        return lm_error(LUMEN_E_INVALID,
                        "model '%s': isolation: process needs workers, of which engine.queue_type: "
                        "inline has none",
                        model->name);
    }
    if (!shared->common) code = open_common(server);
    if (!code)
        code = lm_process_open(&model->process, shared->common, model, shared->thread_count,
                               own_ns ? own_ns : shared->hang_ns, config->process_key);
    if (!code) lm_process_want(model->process, server->thread_total);
    return code;
}

/* ---- more workers ---- */

void lm_server_want_of_processes(const struct lm_model_set *set, uint32_t workers) {
    for (; set; set = set->retired)
        for (uint32_t m = 0; m < set->count; m++)
            if (set->models[m]->process) lm_process_want(set->models[m]->process, workers);
}

/* Of one that was replaced or unloaded, also meanwhile, the process need not come back. */
static bool is_in_force(lumen_server *server, const struct lm_model *model) {
    pthread_mutex_lock(&server->control);
    const bool found = lm_model_set_find(server->set, model->index) == model;
    pthread_mutex_unlock(&server->control);
    return found;
}

static int await_process(lumen_server *server, const struct lm_model *model, uint32_t workers) {
    const uint64_t until_ns = lm_now_ns() + GROW_MS * 1000000ull;
    int code;
    while ((code = lm_process_serves(model->process, workers)) == LUMEN_E_AGAIN) {
        const int ended = lm_server_check_phase(server);
        if (ended) return ended;
        if (!lm_process_is_up(model->process) && !is_in_force(server, model)) return 0;
        if (lm_now_ns() >= until_ns) break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (!code) return 0;
    return lm_error(LUMEN_E_MODEL,
                    "engine.thread_count cannot become %u: the process of model '%s' %s", workers,
                    model->name,
                    code == LUMEN_E_AGAIN ? "has not opened as many sessions in time"
                                          : "cannot serve as many (its line in the log says why)");
}

int lm_server_await_processes(lumen_server *server, const struct lm_model_set *set,
                              uint32_t workers) {
    int code = 0;
    for (const struct lm_model_set *each = set; each; each = each->retired)
        for (uint32_t m = 0; !code && m < each->count; m++)
            if (each->models[m]->process) code = await_process(server, each->models[m], workers);
    return code;
}

int lm_server_open_rooms(const lumen_server *server, struct lm_process *process) {
    const struct lm_shared *shared = &server->shared;
    uint32_t slots = 0;
    for (uint32_t i = 0; i < shared->io_count; i++)
        slots += lm_arena_slots_max(&shared->ios[i].arena);
    return lm_process_open_rooms(process, shared->node_count, slots);
}

/* ---- a model that is being loaded ---- */

int lm_server_called_off(const struct lm_loading *loading) {
    return lm_error(LUMEN_E_STATE, "model '%s' was unloaded while it was loaded",
                    loading->config->name);
}

static int why_over(const struct lm_loading *loading, uint64_t until_ns) {
    const struct lm_process *process = loading->process;
    const char *name = loading->config->name;
    const uint32_t end = lm_process_end(process);
    const int code = lm_server_check_phase(loading->server);
    if (code) return code;
    if (loading->is_called_off) return lm_server_called_off(loading);
    if (end) {
        return lm_error(LUMEN_E_MODEL,
                        "the process of model '%s' ended %s %u before it could serve", name,
                        end < 256 ? "by signal" : "with status", end < 256 ? end : end - 256);
    }
    if (!lm_process_was_started(process) && lm_now_ns() > until_ns)
        return lm_error(LUMEN_E_STATE, "nobody has started the process of model '%s'", name);
    return 0;
}

int lm_server_await_process(struct lm_loading *loading) {
    lumen_server *server = loading->server;
    const uint64_t until_ns = lm_now_ns() + BEGIN_MS * 1000000ull;
    struct lm_process *process = loading->model->process;
    int code = lm_server_open_rooms(server, process);
    if (code) return code;
    pthread_mutex_lock(&server->control);
    loading->process = process;
    pthread_mutex_unlock(&server->control);
    while (!code && !lm_process_is_up(process)) {
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        pthread_mutex_lock(&server->control);
        code = why_over(loading, until_ns);
        pthread_mutex_unlock(&server->control);
    }
    return code;
}

void lm_server_leave_process(struct lm_loading *loading) {
    lumen_server *server = loading->server;
    for (bool starts = true; starts;) {
        pthread_mutex_lock(&server->control);
        starts = loading->process && loading->process->is_starting;
        if (!starts) loading->process = NULL;
        pthread_mutex_unlock(&server->control);
        if (starts) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

bool lm_server_starts_process(const struct lm_model_set *set) {
    bool any = false;
    for (uint32_t m = 0; m < set->count; m++) {
        const struct lm_process *process = set->models[m]->process;
        any = any || (process && process->is_starting);
    }
    return any;
}

/* ---- what the control thread says ---- */

static int next(lumen_server *server, uint64_t key, lumen_process *process_out) {
    const struct lm_shared *shared = &server->shared;
    const struct lm_loading *loading = server->loading;
    struct lm_process *process = find(server, key);
    if (!process) return LUMEN_E_INVALID;
    uint32_t number = lm_process_next(process);
    if (!number) return lm_error(LUMEN_E_AGAIN, "a worker still waits for the last process");
    *process_out =
        (lumen_process){.bytes = shared->common->bytes,
                        .at = (uint64_t)((uint8_t *)process->boxes - shared->common->base),
                        .fd = shared->common->fd,
                        .number = number,
                        .workers = process->wanted,
                        .gently = loading && loading->process == process && loading->gently,
                        .flush_denormals = shared->config.flush_denormals};
    return 0;
}

int lumen_next_process(lumen_server *server, uint64_t key, lumen_process *process_out) {
    pthread_mutex_lock(&server->control);
    int code = next(server, key, process_out);
    pthread_mutex_unlock(&server->control);
    return code;
}

int lumen_process_started(lumen_server *server, uint64_t key, int32_t pid) {
    pthread_mutex_lock(&server->control);
    struct lm_process *process = find(server, key);
    int code = process ? lm_process_started(process, pid) : LUMEN_E_INVALID;
    pthread_mutex_unlock(&server->control);
    return code;
}

int lumen_process_is_up(lumen_server *server, uint64_t key) {
    pthread_mutex_lock(&server->control);
    const struct lm_process *process = find(server, key);
    int code = process ? lm_process_is_up(process) : LUMEN_E_INVALID;
    pthread_mutex_unlock(&server->control);
    return code;
}

int lumen_process_ended(lumen_server *server, uint64_t key, uint32_t end) {
    pthread_mutex_lock(&server->control);
    struct lm_process *process = find(server, key);
    if (process) lm_process_ended(process, end);
    pthread_mutex_unlock(&server->control);
    return process ? 0 : LUMEN_E_INVALID;
}

int lumen_serve_process(const lumen_process *process, const char *ort_library_path,
                        const lumen_model_config *model) {
    return lm_process_serve(process, ort_library_path, model);
}
