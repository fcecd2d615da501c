/* process.c: models that processes of their own run: the memory that these have in common
 * with the server, and what the control thread says of them. Control thread only; Python starts the
 * processes and reaps them (lumen_uring/serving/processes.py).
 */
#include "models/process.h"
#include "base/error.h"
#include "models/process_serve.h"
#include "server/state.h"

/* Addresses, of which unused ones cost nothing: for arenas, batches and boxes. */
static int open_common(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    uint64_t bytes = 4 * shared->config.arena_bytes + (16ull << 30);
    int code = lm_common_memory_open(&server->common, lm_align_up(bytes, 2u << 20));
    if (!code) shared->common = &server->common;
    return code;
}

int lm_server_isolate(lumen_server *server, struct lm_model *model,
                      const lumen_model_config *config) {
    const uint64_t own_ns = config->isolation_hang_seconds * 1000000000ull;
    struct lm_shared *shared = &server->shared;
    int code = 0;
    if (shared->thread_count == 0) {
        return lm_error(LUMEN_E_INVALID,
                        "model '%s': isolation: process needs workers, of which engine.queue_type: "
                        "inline has none",
                        model->name);
    }
    if (shared->config.allocator_type != LUMEN_ALLOCATOR_ARENA) {
        return lm_error(LUMEN_E_INVALID,
                        "model '%s': isolation: process needs engine.allocator_type: lumen_arena: "
                        "its tensors lie in memory that two processes map",
                        model->name);
    }
    if (server->state != SERVER_OPEN) {
        return lm_error(LUMEN_E_STATE,
                        "model '%s': isolation: process is for models of the start: list it in the "
                        "settings and restart the server",
                        model->name);
    }
    if (!shared->common) code = open_common(server);
    return code ? code
                : lm_process_open(&model->process, shared->common, model, shared->thread_count,
                                  own_ns ? own_ns : shared->hang_ns);
}

/* The one of that index that is in force, or still has requests; the caller holds `control`. */
static struct lm_process *find(const lumen_server *server, uint32_t index) {
    for (const struct lm_model_set *set = server->set; set; set = set->retired) {
        const struct lm_model *model = lm_model_set_find(set, index);
        if (model && model->process) return model->process;
    }
    (void)lm_error(LUMEN_E_INVALID, "model %u has no process of its own", index);
    return NULL;
}

static int next(lumen_server *server, uint32_t model, lumen_process *process_out) {
    const struct lm_shared *shared = &server->shared;
    struct lm_process *process = find(server, model);
    if (!process) return LUMEN_E_INVALID;
    uint32_t number = lm_process_next(process);
    if (!number) return lm_error(LUMEN_E_AGAIN, "a worker still waits for the last process");
    *process_out =
        (lumen_process){.bytes = shared->common->bytes,
                        .at = (uint64_t)((uint8_t *)process->boxes - shared->common->base),
                        .fd = shared->common->fd,
                        .number = number,
                        .workers = process->box_count,
                        .flush_denormals = shared->config.flush_denormals};
    return 0;
}

int lumen_next_process(lumen_server *server, uint32_t model, lumen_process *process_out) {
    pthread_mutex_lock(&server->control);
    int code = next(server, model, process_out);
    pthread_mutex_unlock(&server->control);
    return code;
}

int lumen_process_started(lumen_server *server, uint32_t model, int32_t pid) {
    pthread_mutex_lock(&server->control);
    struct lm_process *process = find(server, model);
    int code = process ? lm_process_started(process, pid) : LUMEN_E_INVALID;
    pthread_mutex_unlock(&server->control);
    return code;
}

int lumen_process_is_up(lumen_server *server, uint32_t model) {
    pthread_mutex_lock(&server->control);
    const struct lm_process *process = find(server, model);
    int code = process ? lm_process_is_up(process) : LUMEN_E_INVALID;
    pthread_mutex_unlock(&server->control);
    return code;
}

int lumen_process_ended(lumen_server *server, uint32_t model, uint32_t end) {
    pthread_mutex_lock(&server->control);
    struct lm_process *process = find(server, model);
    if (process) lm_process_ended(process, end);
    pthread_mutex_unlock(&server->control);
    return process ? 0 : LUMEN_E_INVALID;
}

int lumen_serve_process(const lumen_process *process, const char *ort_library_path,
                        const lumen_model_config *model) {
    return lm_process_serve(process, ort_library_path, model);
}
