/* threads.c: the server's threads: started, checked, joined. Control thread only, but for those
 * that come later (growth.h); the threads' own part is flow/threads.c.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "server/growth.h"
#include "server/state.h"
#include "work/bulk.h"
#include "work/shadow.h"
#include "work/worker.h"
#include "work/worker_open.h"

void lm_server_note(lumen_server *server, const char *line) {
    size_t used = strlen(server->info.notes);
    snprintf(server->info.notes + used, sizeof server->info.notes - used, "%s%s", used ? "\n" : "",
             line);
}

/* With all signals blocked, so that they reach Python's main thread. */
static int spawn(pthread_t *thread, bool *started, void *(*main)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code) return lm_error_errno(LUMEN_E_NOMEM, code, "cannot start a thread");
    *started = true;
    return 0;
}

/* Starts every thread. Counts those that run, also where one could not be started. */
static int spawn_threads(lumen_server *server, uint32_t *ios_out, uint32_t *workers_out) {
    struct lm_shared *shared = &server->shared;
    int code = 0;
    *ios_out = *workers_out = 0;
    for (uint32_t i = 0; !code && i < shared->io_count; i++) {
        code = spawn(&server->ios[i].thread, &server->ios[i].thread_started, lm_io_main,
                     &server->ios[i]);
        *ios_out += !code;
    }
    for (uint32_t w = 0; !code && w < server->thread_total; w++) {
        code = spawn(&server->workers[w].thread, &server->workers[w].thread_started, lm_worker_main,
                     &server->workers[w]);
        *workers_out += !code;
    }
    for (uint32_t w = shared->worker_count; !code && w < shared->bulk.answerers; w++) {
        code = spawn(&server->workers[w].thread, &server->workers[w].thread_started, lm_bulk_main,
                     &server->workers[w]);
        *workers_out += !code;
    }
    return code;
}

/* Says what the I/O threads' rings turned out to be; as a rule they are all the same. */
static void describe_rings(lumen_server *server) {
    lumen_info *info = &server->info;
    const struct lm_ring *first = server->ios[0].ring, *other = first;
    for (uint32_t i = 1; i < server->shared.io_count; i++) {
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

/* Says which threads did not get the priority that was asked for. */
static void describe_real_time(lumen_server *server) {
    const struct lm_shared *shared = &server->shared;
    int refused = 0;
    char line[256];
    for (uint32_t i = 0; i < shared->io_count; i++)
        if (server->ios[i].real_time.refused) refused = server->ios[i].real_time.refused;
    for (uint32_t w = 0; w < shared->thread_count; w++)
        if (server->workers[w].real_time.refused) refused = server->workers[w].real_time.refused;
    if (!refused) return;
    snprintf(
        line, sizeof line,
        "engine.real_time %u: threads have ordinary priority (%s): ulimit -r %u, LimitRTPRIO=%u "
        "in the systemd unit, or CAP_SYS_NICE",
        shared->real_time, strerror(refused), shared->real_time, shared->real_time);
    lm_server_note(server, line);
}

/* Says where the arena's pages are others than was asked for. */
static void describe_pages(lumen_server *server) {
    const lumen_config *config = &server->shared.config;
    const struct lm_mapping *memory = &server->ios[0].arena.memory;
    char line[256];
    if (config->allocator_type != LUMEN_ALLOCATOR_ARENA) return;
    if (config->huge_pages == LUMEN_HUGE_EXPLICIT && !memory->reserved) {
        unsigned long long pages = memory->bytes >> 21;
        snprintf(
            line, sizeof line,
            "engine.huge_pages explicit: each I/O thread's arena needs %llu reserved pages of 2 "
            "MiB (sysctl vm.nr_hugepages=%llu as root): transparent ones are taken",
            pages, pages * server->shared.io_count);
        lm_server_note(server, line);
    }
    if (config->huge_pages != LUMEN_HUGE_NONE && !memory->huge_pages) {
        lm_server_note(server,
                       "no huge pages for the arena (small, or transparent huge pages are off)");
    }
}

/* Between the barriers: what the threads arrived at. */
static int look_at_threads(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    lumen_info *info = &server->info;
    for (uint32_t i = 0; i < shared->io_count; i++) {
        if (server->ios[i].start_code)
            return lm_error(server->ios[i].start_code, "%s", server->ios[i].start_error);
    }
    describe_rings(server);
    describe_parking(server);
    for (uint32_t w = 0; w < shared->bulk.answerers; w++) {
        struct lm_worker *worker = &server->workers[w];
        if (!lm_worker_is_there(worker)) continue;
        if (worker->start_code) return lm_error(worker->start_code, "%s", worker->note);
        if (w < lm_shared_parallel(shared))
            info->worker_cpus[w] = worker->pinned ? worker->cpu : -1;
        if (worker->cpu >= 0 && !worker->pinned)
            lm_server_note(server, "a worker could not be pinned to its core");
    }
    if (server->workers[0].note[0]) lm_server_note(server, server->workers[0].note);
    describe_real_time(server);
    describe_pages(server);
    lm_server_describe_nodes(server);
    return 0;
}

void lm_server_join_threads(lumen_server *server) {
    if (server->threads_joined) return;
    for (uint32_t i = 0; i < server->shared.io_count; i++) {
        if (server->ios[i].thread_started) pthread_join(server->ios[i].thread, NULL);
    }
    for (uint32_t w = 0; w < server->shared.bulk.answerers; w++) {
        if (server->workers[w].thread_started) pthread_join(server->workers[w].thread, NULL);
    }
    if (server->shadow_started) pthread_join(server->shadow, NULL);
    server->threads_joined = true;
}

/* ---- workers that come later ---- */

/* Its part of the statistics, and its thread; the caller holds `control`. */
static int start_worker(lumen_server *server, struct lm_worker *worker) {
    struct lm_shared *shared = &server->shared;
    if (server->state != SERVER_RUNNING) return lm_error(LUMEN_E_STATE, "the server has ended");
    int code = lm_stats_hold_worker(&shared->stats, worker->index, &worker->stats);
    if (code) return code;
    /* relaxed, all: under `control`, and no thread yet */
    (void)lm_count_relaxed_u64(&shared->workers_running, 1);
    lm_store_relaxed_u32(&worker->presence, LM_WORKER_ABSENT);
    code = spawn(&worker->thread, &worker->thread_started, lm_worker_main, worker);
    if (code) (void)lm_sub_relaxed_u64(&shared->workers_running, 1); /* relaxed: as above */
    return code;
}

/* It is set up, or has ended; the caller holds `control`. */
static int count_worker(lumen_server *server, struct lm_worker *worker) {
    if (worker->start_code) {
        const int code = lm_error(worker->start_code, "%s", worker->note);
        if (server->state != SERVER_RUNNING) return code; /* whoever ends the server joins it */
        pthread_join(worker->thread, NULL);
        worker->thread_started = false;
        lm_worker_leave_models(worker);
        lm_worker_close(worker);
        return code;
    }
    server->info.worker_cpus[worker->index] = worker->pinned ? worker->cpu : -1;
    lm_stats_show_worker(&server->shared.stats);
    /* H10: release: its statistics; pairs with H9 in work/state.h */
    lm_store_release_u32(&worker->presence, LM_WORKER_THERE);
    server->thread_total++;
    return 0;
}

int lm_server_add_worker(lumen_server *server) {
    struct lm_worker *worker = &server->workers[server->thread_total];
    pthread_mutex_lock(&server->control);
    int code = start_worker(server, worker);
    pthread_mutex_unlock(&server->control);
    if (code) return code;
    /* H12: acquire: how that went; pairs with H11 in work/worker.c */
    while (lm_load_acquire_u32(&worker->presence) == LM_WORKER_ABSENT)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pthread_mutex_lock(&server->control);
    code = count_worker(server, worker);
    pthread_mutex_unlock(&server->control);
    return code;
}

/* ---- the thread for copies of requests ---- */

/* After a failure what is open stays so until the end. */
static int open_shadow_queues(struct lm_shadow_jobs *jobs, uint32_t io_count) {
    int code =
        jobs->queue.cells ? 0 : lm_mpmc_open(&jobs->queue, LM_SHADOWS_MAX * LUMEN_IO_THREADS_MAX);
    for (uint32_t i = 0; !code && i < io_count; i++)
        code = jobs->returns[i].values ? 0 : lm_spsc_open(&jobs->returns[i], LM_SHADOWS_MAX);
    lm_waitset_init(&jobs->waitset);
    return code;
}

int lm_server_start_shadow(lumen_server *server) {
    struct lm_shadow_jobs *jobs = &server->shared.shadows;
    if (server->shadow_started) return 0;
    int code = open_shadow_queues(jobs, server->shared.io_count);
    if (code) return code;
    code = spawn(&server->shadow, &server->shadow_started, lm_shadow_main, &server->shared);
    /* V2: release: shows the queue; pairs with V1 in flow/shadow.c */
    if (!code) lm_store_release_u32(&jobs->is_open, 1);
    return code;
}

/* Without the kernel's bound a Run that never ends would stop the machine. */
static void allow_real_time(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    if (!shared->config.real_time) return;
    if (lm_real_time_is_bounded("")) {
        shared->real_time = shared->config.real_time;
    } else {
        lm_server_note(server,
                       "engine.real_time: threads have ordinary priority, since nothing bounds "
                       "real-time threads here (sysctl kernel.sched_rt_runtime_us=950000 as root)");
    }
}

int lm_server_start_threads(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    uint32_t ios, workers;
    allow_real_time(server);
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
    /* E2: release: how the start went; pairs with E3 in work/jobs.c and E4 in io.c */
    if (code) lm_store_release_u32(&shared->workers_stop, 1);
    pthread_barrier_wait(&shared->go);
    return code;
}
