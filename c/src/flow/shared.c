/* shared.c: see shared.h. */
#include "flow/shared.h"

#include <stdio.h>

#include "base/clock.h"
#include "flow/reload.h"
#include "flow/transports.h"
#include "tls/client.h"
#include "tls/door.h"

/* How long a connection may wait for its next request, for clients that look; 0: for ever. */
static void write_keep_alive(char lines[LM_HTTP_KEEP_ALIVE_BYTES], uint32_t idle_s) {
    int used = snprintf(lines, LM_HTTP_KEEP_ALIVE_BYTES, "Connection: keep-alive\r\n");
    if (idle_s)
        snprintf(lines + used, LM_HTTP_KEEP_ALIVE_BYTES - (size_t)used,
                 "Keep-Alive: timeout=%u\r\n", idle_s);
}

int lm_shared_open(struct lm_shared *shared, const lumen_config *config) {
    shared->config = *config;
    shared->transports = lm_transports;
    shared->config.host = shared->config.ort_library_path = shared->config.unix_socket = NULL;
    shared->config.telemetry_csv_path = shared->config.access_path = NULL;
    shared->config.keys = NULL; /* lm_access_open copies them, and the hosts */
    shared->config.hosts = NULL;
    shared->default_timeout_ns = config->default_timeout_ms * 1000000ull;
    shared->header_timeout_ns = config->header_timeout_ms * 1000000ull;
    shared->reply_timeout_ns = config->reply_timeout_ms * 1000000ull;
    shared->idle_timeout_ns = config->idle_timeout_seconds * 1000000000ull;
    write_keep_alive(shared->keep_alive_lines, config->idle_timeout_seconds);
    shared->hang_ns = config->hang_seconds * 1000000000ull;
    lm_spill_open(&shared->spills, config->spill_bytes);
    shared->places.max = config->max_in_flight;
    /* relaxed, both: no thread runs yet */
    lm_store_relaxed_u32(&shared->allocator_type, config->allocator_type);
    lm_store_relaxed_u32(&shared->by_time, 1); /* where a model's own `run` leaves it to them */
    struct lm_access *access;
    /* Clients that speak TLS count from their handshake on. */
    const uint32_t beside = LM_TLS_HANDSHAKES_MAX + LUMEN_IO_THREADS_MAX * LM_ASSIGNED_MAX;
    int code = lm_address_table_open(&shared->addresses, config->connections_per_address,
                                     config->max_connections + beside);
    if (!code && config->shared_memory) code = lm_shm_open(&shared->shm);
    if (code) return code;
    code = lm_access_open(&access, config, NULL, lm_now_ns());
    lm_store_relaxed_u64(&shared->access, (uintptr_t)access); /* relaxed: no thread runs yet */
    return code;
}

void lm_shared_close(struct lm_shared *shared) {
    lm_reload_close(shared);
    lm_address_table_close(&shared->addresses);
    lm_shm_close(shared->shm);
    shared->shm = NULL;
    for (uint32_t u = 0; u < shared->upstreams.count; u++)
        lm_tls_client_close(shared->upstreams.at[u]->tls);
    lm_upstreams_close(&shared->upstreams);
    lm_tls_sessions_close(shared->sessions);
    shared->sessions = NULL;
    lm_budgets_close(&shared->budgets);
    lm_errands_close(shared->errands);
    shared->errands = NULL;
}

int lm_shared_add_model(struct lm_shared *shared, const struct lm_model *model,
                        const lumen_model_config *config) {
    struct lm_access *access = lm_reload_in_force(shared);
    lm_budgets_name_model(&shared->budgets, model->index, model->name);
    lm_keys_name_model(&access->keys, model->index, model->name, model->base);
    return lm_access_set_model(access, model->index, config, NULL, lm_now_ns());
}

void lm_shared_use_models(struct lm_shared *shared, struct lm_model_set *set) {
    /* G2: release: the set is whole; pairs with G1 in flow/state.h */
    lm_store_release_u64(&shared->models, (uintptr_t)set);
}
