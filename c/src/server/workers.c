/* workers.c: how many workers there are, the queue that they share and the memory of slots,
 * changed while the server serves (the modes of docs/CONCURRENCY.md). Another line takes the place
 * of the one in force (flow/node.h); workers that it has no use for sleep until there is one that
 * has. More than there were come with sessions of their own, which are open and warm before the
 * line. Any thread of the process that holds the server; one change at a time.
 */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "flow/reload.h"
#include "parts/settings.h"
#include "server/growth.h"
#include "server/state.h"

enum { WAIT_MS = 5000 }; /* for threads that are in a Run */

/* What is to be in force. */
struct change {
    uint32_t queue_type, workers, allocator_type;
    bool by_time;
};

static int refuse(const char *setting, const char *why) {
    return lm_error(LUMEN_E_UNSUPPORTED, "%s cannot change without a restart: %s", setting, why);
}

/* ---- what may change ---- */

static int check_queue(const lumen_server *server, const struct change *change) {
    const struct lm_shared *shared = &server->shared;
    bool has_own = shared->worker_count > shared->thread_count;
    if (change->queue_type == LUMEN_QUEUE_INLINE)
        return refuse("engine.queue_type", "for inline, I/O threads have to be placed first");
    if (shared->thread_count == 0)
        return refuse("engine.queue_type", "with inline the server has no workers");
    if (change->by_time && !server->by_time && !has_own)
        return refuse("engine.queue_type", "for auto, I/O threads need sessions of their own");
    if (change->queue_type == LUMEN_QUEUE_SPSC && (change->workers > 1 || shared->io_count > 1))
        return lm_error(LUMEN_E_INVALID,
                        "engine.queue_type spsc: expected one worker and one I/O thread, found %u "
                        "and %u",
                        change->workers, shared->io_count);
    return 0;
}

static int check_workers(const lumen_server *server, const struct change *change) {
    const struct lm_shared *shared = &server->shared;
    if (change->workers > shared->thread_count) {
        return lm_error(LUMEN_E_UNSUPPORTED,
                        "engine.thread_count cannot become %u without a restart: expected at most "
                        "%u, the cores of the server's node or what it was started with",
                        change->workers, shared->thread_count);
    }
    return 0;
}

static int check_allocator(const lumen_server *server) {
    if (server->cuda_locked > 0)
        return refuse("engine.allocator_type", "the arenas are locked for the GPU");
    return 0;
}

/* What the settings ask for. */
static struct change change_of(const lumen_server *server, const lumen_config *config) {
    const struct lm_shared *shared = &server->shared;
    bool by_time = config->queue_type == LUMEN_QUEUE_AUTO;
    const uint32_t cores = server->placement.core_count;
    uint32_t most = cores < shared->thread_count ? cores : shared->thread_count;
    if (config->queue_type == LUMEN_QUEUE_SPSC) most = 1;
    return (struct change){.queue_type = by_time ? LUMEN_QUEUE_MPMC : config->queue_type,
                           .workers = config->thread_count ? config->thread_count : most,
                           .allocator_type = config->allocator_type,
                           .by_time = by_time};
}

/* ---- more threads ---- */

/* The set in force: it and those that it has replaced stay until the end of the growth. */
static const struct lm_model_set *begin_growth(lumen_server *server, uint32_t workers) {
    pthread_mutex_lock(&server->control);
    const struct lm_model_set *set = server->set;
    server->grows = true;
    lm_server_want_of_processes(set, workers);
    pthread_mutex_unlock(&server->control);
    return set;
}

static int add_worker(lumen_server *server, const struct lm_model_set *set) {
    const uint32_t index = server->thread_total;
    int code = lm_server_check_phase(server);
    if (!code) code = lm_server_open_later_sessions(server, set, index);
    if (!code) code = lm_server_add_worker(server);
    if (code) lm_server_close_later_sessions(server, set, index);
    return code;
}

/* After a failure workers that have come by then sleep. */
static int grow(lumen_server *server, uint32_t workers) {
    char why[512];
    const struct lm_model_set *set = begin_growth(server, workers);
    int code = lm_server_await_processes(server, set, workers);
    while (!code && server->thread_total < workers) code = add_worker(server, set);
    snprintf(why, sizeof why, "%s", lm_error_last());
    pthread_mutex_lock(&server->control);
    server->grows = false;
    if (code) lm_server_want_of_processes(server->set, server->thread_total);
    pthread_mutex_unlock(&server->control);
    return code ? lm_error(code, "%s", why) : 0;
}

/* ---- the line ---- */

bool lm_server_seal(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    if (!server->sealing) return true;
    if (!lm_reload_all_turned(shared, server->sealing)) return false;
    lm_node_seal_line(&shared->nodes[0]);
    server->sealing = 0;
    return true;
}

static bool is_sealed(lumen_server *server) {
    pthread_mutex_lock(&server->control);
    bool is = lm_server_seal(server);
    pthread_mutex_unlock(&server->control);
    return is;
}

/* Every worker has left the line that is not in force. */
static bool is_left(lumen_server *server) {
    const struct lm_shared *shared = &server->shared;
    const uint32_t number = lm_node_line(&shared->nodes[0])->number;
    for (uint32_t w = 0; w < shared->thread_count; w++) {
        /* H7: acquire: its last use of the line before; pairs with H6 in work/jobs.c */
        uint32_t found = lm_load_acquire_u32(&shared->workers[w].line_number);
        if (found != number && found != LM_NO_LINE) return false;
    }
    return true;
}

static bool wait_until(bool (*is)(lumen_server *server), lumen_server *server) {
    const uint64_t until_ns = lm_now_ns() + WAIT_MS * 1000000ull;
    while (!is(server)) {
        if (lm_now_ns() >= until_ns) return false;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return true;
}

/* Workers that slept and are wanted again. */
static void call_spare(struct lm_shared *shared, const struct lm_line *line) {
    for (uint32_t w = 0; w < line->workers; w++) {
        lm_atomic_u32 *number = &shared->workers[w].line_number;
        /* relaxed: a worker that says so waits for this thread */
        if (lm_load_relaxed_u32(number) != LM_NO_LINE) continue;
        /* H5: release: the line is in force; pairs with H4 in work/jobs.c */
        lm_store_release_u32(number, line->number);
    }
    lm_waitset_wake_all(&shared->nodes[0].spare);
}

static int change_line(lumen_server *server, const struct change *change,
                       const lumen_config *config) {
    struct lm_shared *shared = &server->shared;
    struct lm_node *node = &shared->nodes[0];
    lumen_config now = shared->config;
    if (!wait_until(is_sealed, server) || !wait_until(is_left, server))
        return lm_error(LUMEN_E_STATE,
                        "the change before is not over: a Run takes longer than %d s",
                        WAIT_MS / 1000);
    int code = change->workers > server->thread_total ? grow(server, change->workers) : 0;
    if (code) return code;
    now.queue_type = change->queue_type;
    now.batch_size = config->batch_size;
    now.batch_delay_us = config->batch_delay_us;
    pthread_mutex_lock(&server->control);
    code = server->state == SERVER_RUNNING ? lm_node_open_line(node, &now, change->workers)
                                           : lm_error(LUMEN_E_STATE, "the server has ended");
    if (!code) {
        shared->active_count = change->workers;
        lm_server_share_cores(server);
        lm_node_publish_line(node);
        call_spare(shared, lm_node_line(node));
        server->sealing = lm_reload_ask(shared);
        server->info.workers = change->workers;
        lm_server_describe_anew(server);
    }
    pthread_mutex_unlock(&server->control);
    if (code || wait_until(is_sealed, server)) return code;
    return lm_error(LUMEN_E_AGAIN, "an I/O thread has been in a Run for %d s: the change goes on",
                    WAIT_MS / 1000);
}

/* ---- the memory of slots ---- */

static int change_allocator(lumen_server *server, uint32_t type) {
    struct lm_shared *shared = &server->shared;
    int code = 0;
    for (uint32_t i = 0; !code && type == LUMEN_ALLOCATOR_ARENA && i < shared->io_count; i++) {
        int32_t memory = shared->ios[i].node->memory;
        if (memory >= 0) lm_memory_prefer(memory);
        pthread_mutex_lock(&server->control); /* lumen_get_info tells of it */
        code = lm_arena_hold_memory(&shared->ios[i].arena, shared->config.huge_pages);
        pthread_mutex_unlock(&server->control);
        if (memory >= 0) lm_memory_prefer(-1);
    }
    if (code) return code;
    shared->config.allocator_type = type;
    lm_run_arenas_use(&shared->run_arenas, type == LUMEN_ALLOCATOR_ARENA);
    lm_store_relaxed_u32(&shared->allocator_type, type); /* relaxed: shown by the turn asked for */
    uint64_t asked = lm_reload_ask(shared), until_ns = lm_now_ns() + WAIT_MS * 1000000ull;
    while (!lm_reload_all_turned(shared, asked)) {
        if (lm_now_ns() >= until_ns)
            return lm_error(LUMEN_E_AGAIN,
                            "an I/O thread has been in a Run for %d s: the change goes on",
                            WAIT_MS / 1000);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return 0;
}

/* ---- the call ---- */

static int change_workers(lumen_server *server, const lumen_config *config) {
    struct lm_shared *shared = &server->shared;
    if (server->state != SERVER_RUNNING)
        return lm_error(LUMEN_E_STATE, "lumen_change_workers comes after lumen_start");
    const struct lm_line *line = lm_node_line(&shared->nodes[0]);
    const struct change change = change_of(server, config);
    bool is_other = change.queue_type != line->queue.type || change.workers != shared->active_count;
    if (shared->thread_count == 0) is_other = change.queue_type != LUMEN_QUEUE_INLINE;
    bool is_timed = change.by_time != server->by_time && shared->thread_count > 0;
    bool is_moved = change.allocator_type != shared->config.allocator_type;
    int code = 0;
    if ((is_other || is_timed) && shared->node_count > 1)
        return refuse("engine.thread_count, engine.queue_type", "the server has several nodes");
    if (is_other || is_timed) code = check_queue(server, &change);
    if (!code && is_other) code = check_workers(server, &change);
    if (!code && is_moved) code = check_allocator(server);
    if (!code && is_other) code = change_line(server, &change, config);
    if (code) return code;
    server->by_time = change.by_time;
    lm_store_relaxed_u32(&shared->by_time, change.by_time); /* relaxed: shown by a turn asked for */
    if (is_timed) (void)lm_reload_ask(shared);
    return is_moved ? change_allocator(server, change.allocator_type) : 0;
}

int lumen_change_workers(lumen_server *server, const lumen_config *config) {
    int code = lm_settings_check(config);
    if (code) return code;
    pthread_mutex_lock(&server->changing);
    code = change_workers(server, config);
    pthread_mutex_unlock(&server->changing);
    return code;
}
