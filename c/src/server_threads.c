/* server_threads.c: the server's threads: started, checked, joined. Control thread only; the
 * threads' own part is flow/threads.c.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "server.h"

void lm_server_note(lumen_server *server, const char *line) {
    size_t used = strlen(server->info.notes);
    snprintf(server->info.notes + used, sizeof server->info.notes - used, "%s%s", used ? "\n" : "",
             line);
}

static int spawn(pthread_t *thread, bool *started, void *(*main)(void *), void *argument) {
    int code = pthread_create(thread, NULL, main, argument);
    if (code) return lm_error_errno(LUMEN_E_NOMEM, code, "cannot start a thread");
    *started = true;
    return 0;
}

/* Starts every thread with all signals blocked, so that they reach Python's main thread. Counts
 * those that run, also where one could not be started. */
static int spawn_threads(lumen_server *server, uint32_t *ios_out, uint32_t *workers_out) {
    struct lm_shared *shared = &server->shared;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = 0;
    *ios_out = *workers_out = 0;
    for (uint32_t i = 0; !code && i < shared->node.io_count; i++) {
        code = spawn(&server->ios[i].thread, &server->ios[i].thread_started, lm_io_main,
                     &server->ios[i]);
        *ios_out += !code;
    }
    uint32_t worker_threads =
        shared->config.queue_type == LUMEN_QUEUE_INLINE ? 0 : shared->node.worker_count;
    for (uint32_t w = 0; !code && w < worker_threads; w++) {
        code = spawn(&server->workers[w].thread, &server->workers[w].thread_started, lm_worker_main,
                     &server->workers[w]);
        *workers_out += !code;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

/* Says what the I/O threads' rings turned out to be; as a rule they are all the same. */
static void describe_rings(lumen_server *server) {
    lumen_info *info = &server->info;
    const struct lm_ring *first = server->ios[0].ring, *other = first;
    for (uint32_t i = 1; i < server->shared.node.io_count; i++) {
        const struct lm_ring *ring = server->ios[i].ring;
        if (strcmp(lm_ring_backend(ring), lm_ring_backend(first)) != 0) other = ring;
    }
    bool mixed = other != first;
    snprintf(info->io_backend, sizeof info->io_backend, "%s%s%s", lm_ring_backend(first),
             mixed ? "+" : "", mixed ? lm_ring_backend(other) : "");
    snprintf(info->io_detail, sizeof info->io_detail, "%s", lm_ring_detail(first));
    if (lm_ring_note(first)[0]) {
        lm_server_note(server, lm_ring_note(first));
    } else if (mixed) {
        lm_server_note(server, lm_ring_note(other));
    }
}

/* Says what comes of too few descriptors. */
static void describe_parking(lumen_server *server) {
    unsigned long long allowed = server->descriptors;
    uint32_t max_connections = server->shared.config.max_connections;
    const char *why = server->ios[0].park_error;
    char line[512];
    if (!server->shared.unparked_max) return;
    if (!why[0]) {
        snprintf(line, sizeof line,
                 "max_connections %u with %llu descriptors: connections that have been idle the "
                 "longest are kept without one",
                 max_connections, allowed);
    } else {
        snprintf(line, sizeof line,
                 "max_connections %u needs %u descriptors, %llu are allowed, and idle connections "
                 "cannot do without (%s): raise the hard limit (ulimit -Hn, LimitNOFILE= in the "
                 "systemd unit, docker run --ulimit nofile=), or lower server.max_connections",
                 max_connections, max_connections + LM_DESCRIPTORS_BESIDE, allowed, why);
    }
    lm_server_note(server, line);
}

/* Between the barriers: what the threads arrived at. */
static int look_at_threads(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    lumen_info *info = &server->info;
    for (uint32_t i = 0; i < shared->node.io_count; i++) {
        if (server->ios[i].start_code)
            return lm_error(server->ios[i].start_code, "%s", server->ios[i].start_error);
    }
    describe_rings(server);
    describe_parking(server);
    for (uint32_t w = 0; w < shared->node.worker_count; w++) {
        struct lm_worker *worker = &server->workers[w];
        if (worker->start_code) return lm_error(worker->start_code, "%s", worker->note);
        info->worker_cpus[w] = worker->pinned ? worker->cpu : -1;
        if (worker->cpu >= 0 && !worker->pinned)
            lm_server_note(server, "a worker could not be pinned to its core");
    }
    if (server->workers[0].note[0]) lm_server_note(server, server->workers[0].note);
    if (shared->config.allocator_type == LUMEN_ALLOCATOR_ARENA &&
        !server->ios[0].arena.memory.huge_pages) {
        lm_server_note(server,
                       "no huge pages for the arena (small, or transparent huge pages are off)");
    }
    return 0;
}

void lm_server_join_threads(lumen_server *server) {
    if (server->threads_joined) return;
    for (uint32_t i = 0; i < server->shared.node.io_count; i++) {
        if (server->ios[i].thread_started) pthread_join(server->ios[i].thread, NULL);
    }
    for (uint32_t w = 0; w < server->shared.node.worker_count; w++) {
        if (server->workers[w].thread_started) pthread_join(server->workers[w].thread, NULL);
    }
    server->threads_joined = true;
}

int lm_server_start_threads(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    uint32_t ios, workers;
    pthread_mutex_init(&shared->spawning, NULL);
    pthread_mutex_lock(&shared->spawning);
    int code = spawn_threads(server, &ios, &workers);
    pthread_barrier_init(&shared->started, NULL, ios + workers + 1);
    pthread_barrier_init(&shared->go, NULL, ios + workers + 1);
    /* relaxed: published by the mutex */
    lm_store_relaxed_u64(&shared->ios_running, ios);
    lm_store_relaxed_u64(&shared->workers_running, workers);
    pthread_mutex_unlock(&shared->spawning);
    pthread_barrier_wait(&shared->started);
    if (!code) code = look_at_threads(server);
    /* E2: release: how the start went; pairs with E3 in work/worker.c and E4 in io.c */
    if (code) lm_store_release_u32(&shared->workers_stop, 1);
    pthread_barrier_wait(&shared->go);
    return code;
}
