/* server.c: the table of contents: what is set up in which order, and taken down again. The only
 * file that knows all the others. Runs on the control thread; nothing here is on a request's path.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "base/processor.h"
#include "base/topology.h"
#include "dialects/greeting.h"
#include "dialects/grpc.h"
#include "dialects/http.h"
#include "dialects/http2.h"
#include "dialects/native.h"
#include "dialects/upstream.h"
#include "flow/accept.h"
#include "flow/access_log.h"
#include "flow/listen.h"
#include "flow/reload.h"
#include "flow/request_lists.h"
#include "flow/shared.h"
#include "flow/steer.h"
#include "parts/settings.h"
#include "server/state.h"
#include "tls/handshakes.h"

const char *lumen_version(void) {
    return LUMEN_VERSION;
}

const char *lumen_last_error(void) {
    return lm_error_last();
}

int lumen_check_engine(const char *path, uint32_t whole) {
    struct lm_engine engine;
    int code = lm_engine_open(&engine, path, whole != 0);
    if (!code) lm_engine_close(&engine);
    return code;
}

int lumen_usable_cpus(int32_t *cpus_out, uint32_t capacity) {
    return lm_topology_usable_cpus("", cpus_out, capacity);
}

/* ---- opening ---- */

/* Soft limits are low for select's sake; the hard one is what the administrator means. Where it is
 * too low, half of it is for connections that are idle, half for those that come or ask. */
static void allow_connections(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    uint64_t wanted = (uint64_t)shared->config.max_connections + LM_DESCRIPTORS_BESIDE;
    if (shared->tls) wanted += LM_TLS_HANDSHAKES_MAX;
    wanted += (uint64_t)lm_upstreams_links_max(&shared->upstreams) * shared->io_count;
    uint64_t allowed = lm_descriptors_allow(wanted);
    if (allowed >= wanted) return;
    server->descriptors = allowed;
    uint64_t free = allowed > 2 * LM_DESCRIPTORS_BESIDE ? allowed - LM_DESCRIPTORS_BESIDE : allowed;
    shared->unparked_max = (uint32_t)(free / 2 / shared->io_count) + 1;
}

/* For the sessions that will be opened; whether it can be is tried here. */
static void flush_denormals(lumen_server *server) {
    uint64_t fractions = lm_processor_fractions();
    server->shared.ort.flush_denormals = lm_processor_flush_denormals();
    lm_processor_set_fractions(fractions);
    if (!server->shared.ort.flush_denormals)
        lm_server_note(server, "engine.flush_denormals: this processor cannot");
}

static void set_dialects(struct lm_shared *shared) {
    shared->dialects[LM_DIALECT_OPEN] = &lm_greeting;
    shared->dialects[LM_DIALECT_NATIVE] = &lm_native;
    shared->dialects[LM_DIALECT_HTTP] = &lm_http;
    shared->dialects[LM_DIALECT_HTTP2] = &lm_http2;
    shared->dialects[LM_DIALECT_GRPC] = &lm_grpc;
    shared->dialects[LM_DIALECT_UPSTREAM] = &lm_upstream;
    shared->dialects[LM_DIALECT_UPSTREAM_HTTP2] = &lm_upstream_http2;
}

int lumen_open(const lumen_config *config, lumen_server **server_out) {
    *server_out = NULL;
    int code = lm_settings_check(config);
    if (code) return code;
    lumen_server *server = aligned_alloc(LM_CACHE_LINE, lm_align_up(sizeof *server, LM_CACHE_LINE));
    if (!server) return lm_error(LUMEN_E_NOMEM, "no memory for a server");
    memset(server, 0, sizeof *server);
    server->opened_ns = lm_now_ns();
    server->names_max = LUMEN_MODELS_MAX;
    pthread_mutex_init(&server->changing, NULL);
    pthread_mutex_init(&server->control, NULL);
    const char *name = config->name ? config->name : "lumen";
    memcpy(server->name, name, strlen(name) + 1);
    memcpy(server->host, config->host, strlen(config->host) + 1);
    if (config->cores) memcpy(server->cores, config->cores, strlen(config->cores) + 1);
    if (config->unix_socket)
        memcpy(server->unix_file.path, config->unix_socket, strlen(config->unix_socket) + 1);
    server->set = lm_server_new_set();
    if (!server->set ||
        (config->telemetry_csv_path &&
         !(server->telemetry_path = strdup(config->telemetry_csv_path))) ||
        (config->access_path && !(server->access_path = strdup(config->access_path)))) {
        free(server->telemetry_path);
        free(server->set);
        free(server);
        return lm_error(LUMEN_E_NOMEM, "no memory for a server");
    }

    struct lm_shared *shared = &server->shared;
    set_dialects(shared);
    shared->access_logged = server->access_path != NULL;
    shared->traced = server->telemetry_path || shared->access_logged;
    code = lm_shared_open(shared, config);
    server->auto_request = config->max_request_bytes == 0;
    server->auto_arena = config->arena_bytes == 0;
    if (server->auto_request) shared->config.max_request_bytes = LM_AUTO_REQUEST_BYTES;
    if (server->auto_arena) shared->config.arena_bytes = LM_AUTO_ARENA_BYTES;
    if (!code) code = lm_ort_open(&shared->ort, config->ort_library_path);
    if (code) {
        lm_shared_close(shared);
        free(server->telemetry_path);
        free(server->access_path);
        free(server->set);
        free(server);
        return code;
    }
    snprintf(server->info.ort_version, sizeof server->info.ort_version, "%s", shared->ort.version);
    if (config->flush_denormals) flush_denormals(server);
    code = lm_server_place_workers(server);
    if (code) {
        lumen_close(server);
        return code;
    }
    *server_out = server;
    return 0;
}

/* ---- starting ---- */

/* Where connections go to the node whose core received them. */
static void steer(lumen_server *server) {
    char line[192];
    int refused = lm_steer_listeners(&server->shared, server->placement.nodes);
    if (!refused) return;
    snprintf(line, sizeof line,
             "connections go to any node: the kernel refused to choose by the core that received "
             "them (%s)",
             strerror(refused));
    lm_server_note(server, line);
}

static int open_listeners(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    uint32_t grpc_port = shared->config.grpc_port;
    int code = lm_server_listen_tls(server);
    if (!code && !server->tls_only)
        code = lm_listen_tcp(shared, LM_LISTENER_TCP, server->host, shared->config.port,
                             &server->info.port);
    if (!code && grpc_port)
        code = lm_listen_tcp(shared, LM_LISTENER_GRPC, server->host, grpc_port, &grpc_port);
    if (!code && shared->node_count > 1 && !server->tls_only) steer(server);
    if (code || !server->unix_file.path[0]) return code;
    return lm_listen_unix(shared, &server->unix_file, shared->config.unix_socket_mode);
}

static int open_stats(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    const char *names[LUMEN_MODELS_MAX];
    const uint32_t later = shared->thread_count - server->thread_total;
    uint32_t at = 0;
    for (uint32_t m = 0; m < server->set->count; m++) names[m] = server->set->models[m]->name;
    int code = lm_stats_open(&shared->stats, server->info.port, shared->io_count,
                             shared->bulk.answerers - later, later, names, server->set->count);
    if (code) return code;
    for (uint32_t m = 0; m < server->set->count; m++)
        lm_server_name_experts(server, server->set->models[m]);
    for (uint32_t i = 0; i < shared->io_count; i++) {
        server->ios[i].stats = lm_stats_io_block(&shared->stats, i);
        server->ios[i].stats->head.node = (uint16_t)server->ios[i].node->index;
    }
    for (uint32_t w = 0; w < shared->bulk.answerers; w++) {
        struct lm_worker *worker = &server->workers[w];
        if (!lm_worker_is_there(worker)) continue;
        worker->stats = lm_stats_worker_block(&shared->stats, at++);
        worker->stats->head.index = (uint16_t)w;
        worker->stats->head.node = (uint16_t)worker->node->index;
    }
    if (shared->tls) shared->tls->counters = &server->ios[0].stats->io;
    memcpy(server->info.stats_path, shared->stats.path, sizeof server->info.stats_path);
    if (shared->stats.note[0]) lm_server_note(server, shared->stats.note);
    return 0;
}

int lumen_set_metrics_port(lumen_server *server, uint32_t port) {
    if (server->state != SERVER_OPEN)
        return lm_error(LUMEN_E_STATE, "lumen_set_metrics_port comes before lumen_start");
    if (port > UINT16_MAX)
        return lm_error(LUMEN_E_INVALID, "metrics port: expected 0 to 65535, found %u", port);
    server->metrics_port = port;
    return 0;
}

static void lock_memory(lumen_server *server) {
    char why[256];
    if (!server->shared.config.lock_memory) return;
    server->memory_locked = lm_memory_lock(why, sizeof why) == 0;
    if (!server->memory_locked) lm_server_note(server, why);
}

int lumen_start(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    if (server->state != SERVER_OPEN) return lm_error(LUMEN_E_STATE, "lumen_start is called once");
    server->state = SERVER_ENDED; /* until it runs: a failed start can only be closed */
    lm_shared_use_models(shared, server->set);
    int code = lm_server_plan_slots(server);
    if (!code) allow_connections(server);
    if (!code) code = open_listeners(server);
    if (!code) code = lm_request_lists_open(server->set, NULL);
    if (!code) code = lm_server_open_nodes(server);
    if (!code) code = lm_server_describe_set(server->set);
    if (!code) code = lm_server_document_set(server, server->set, NULL);
    if (!code) code = open_stats(server);
    if (!code && lm_access_log_has_rows(shared)) {
        code = lm_telemetry_open(&server->telemetry, shared, server->telemetry_path,
                                 server->access_path);
        server->telemetry.spans = &server->spans;
        /* relaxed: no thread runs yet */
        lm_store_relaxed_u32(&server->telemetry.access_as_json, shared->config.access_as_json);
    }
    lm_load_meter_open(&shared->load, lm_now_ns());
    if (!code) code = lm_server_start_threads(server);
    if (code) return code;
    server->state = SERVER_RUNNING; /* from here on lumen_close stops what runs */
    if (lm_access_log_has_rows(shared)) code = lm_telemetry_start(&server->telemetry);
    if (!code && shared->tls) code = lm_tls_handshakes_start(shared->tls);
    if (!code) code = lm_server_follow_traffic(server, &lm_reload_in_force(shared)->traffic);
    if (code) return code;
    lock_memory(server); /* last: all memory is there */
    server->info.io_threads = shared->io_count;
    server->info.workers = lm_shared_parallel(shared);
    server->info.models = server->set->count;
    server->info.ready_us = (lm_now_ns() - server->opened_ns) / 1000;
    lm_stats_set_state(&shared->stats, LUMEN_STATE_READY);
    return 0;
}

int lumen_get_info(lumen_server *server, lumen_info *info_out) {
    pthread_mutex_lock(&server->control);
    *info_out = server->info;
    for (uint32_t i = 0; server->state == SERVER_RUNNING && i < server->shared.io_count; i++) {
        const struct lm_io *io = &server->ios[i];
        info_out->arena_bytes += io->arena.memory.bytes ? lm_annexes_bytes(&io->annexes) : 0;
        info_out->slots += lm_annexes_slots(&io->annexes);
    }
    pthread_mutex_unlock(&server->control);
    return 0;
}

int64_t lumen_describe(lumen_server *server, char *buffer, size_t capacity) {
    int code = 0;
    if (server->set->count == 0 && server->state == SERVER_OPEN)
        return lm_error(LUMEN_E_STATE, "no models: lumen_add_model comes before lumen_describe");
    /* The plan gives the models the largest sizes they are described with. */
    if (server->state == SERVER_OPEN) code = lm_server_plan_slots(server);
    if (!code && server->state == SERVER_OPEN) code = lm_server_describe_set(server->set);
    if (code) return code;
    pthread_mutex_lock(&server->control); /* another set may come */
    size_t bytes = server->set->description_bytes;
    memcpy(buffer, server->set->description, bytes < capacity ? bytes : capacity);
    pthread_mutex_unlock(&server->control);
    return (int64_t)bytes;
}

/* ---- the end ---- */

int lumen_unready(lumen_server *server) {
    if (server->state != SERVER_RUNNING) return lm_error(LUMEN_E_STATE, "the server does not run");
    lm_stats_set_state(&server->shared.stats, LUMEN_STATE_DRAINING);
    /* relaxed: says nothing about other memory */
    lm_store_relaxed_u32(&server->shared.phase, LM_PHASE_UNREADY);
    for (uint32_t i = 0; i < server->shared.io_count; i++) lm_ring_wake(server->ios[i].ring);
    return 0;
}

int lumen_stop(lumen_server *server, uint32_t drain_ms) {
    struct lm_shared *shared = &server->shared;
    if (server->state != SERVER_RUNNING) return lm_error(LUMEN_E_STATE, "the server does not run");
    lm_unlink_unix(&server->unix_file); /* a new server may take the path from here on */
    lm_tls_door_stop(shared->tls);
    lm_stats_set_state(&shared->stats, LUMEN_STATE_DRAINING);
    /* relaxed: published by D1 */
    lm_store_relaxed_u64(&shared->drain_until_ns, lm_now_ns() + drain_ms * 1000000ull);
    /* D1: release: shows drain_until_ns; pairs with D3 in io_due.c */
    lm_store_release_u32(&shared->phase, LM_PHASE_DRAINING);
    for (uint32_t i = 0; i < shared->io_count; i++) lm_ring_wake(server->ios[i].ring);
    return 0;
}

int lumen_wait(lumen_server *server, uint32_t timeout_ms) {
    struct lm_shared *shared = &server->shared;
    uint64_t until = lm_now_ns() + timeout_ms * 1000000ull;
    if (server->state == SERVER_OPEN) return lm_error(LUMEN_E_STATE, "the server does not run");
    /* F2: acquire, both: what the threads did; pairs with F1 in flow/threads.c */
    while (lm_load_acquire_u64(&shared->ios_running) +
               lm_load_acquire_u64(&shared->workers_running) >
           0) {
        if (lm_now_ns() >= until) return lm_error(LUMEN_E_AGAIN, "threads still run");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    pthread_mutex_lock(&server->control);
    server->state = SERVER_ENDED; /* no thread is started from here on */
    pthread_mutex_unlock(&server->control);
    lm_server_join_threads(server);
    lm_tls_door_join(shared->tls);
    lm_stats_set_state(&shared->stats, LUMEN_STATE_STOPPED);
    return 0;
}

void lumen_close(lumen_server *server) {
    if (!server) return;
    struct lm_shared *shared = &server->shared;
    if (server->state == SERVER_RUNNING) {
        lumen_stop(server, 0);
        while (lumen_wait(server, 1000) == LUMEN_E_AGAIN) continue;
    }
    lm_server_join_threads(server);
    lm_tls_door_join(shared->tls);
    pthread_mutex_lock(&server->changing); /* another thread may still load a model */
    pthread_mutex_unlock(&server->changing);
    pthread_mutex_lock(&server->control); /* or unload one */
    pthread_mutex_unlock(&server->control);
    pthread_mutex_destroy(&server->changing);
    pthread_mutex_destroy(&server->control);
    lm_unlink_unix(&server->unix_file);
    if (server->memory_locked) lm_memory_unlock();
    lm_telemetry_close(&server->telemetry);
    lm_span_store_close(&server->spans);
    free(server->telemetry_path);
    free(server->access_path);
    lm_server_forget_fallbacks(server);
    lm_server_close_nodes(server);
    lm_tls_door_close(shared->tls);
    while (server->set) {
        struct lm_model_set *before = server->set->retired;
        lm_server_close_set(server, server->set);
        server->set = before;
    }
    if (shared->common) lm_common_memory_close(shared->common);
    lm_stats_close(&shared->stats);
    lm_shared_close(shared);
    lm_run_arenas_close(&shared->run_arenas, &shared->ort);
    lm_ort_close(&shared->ort);
    free(server);
}
