/* tls.c: a server that speaks TLS: its door opens, and shows other certificates. Control thread. */
#include "flow/tls.h"
#include "base/error.h"
#include "flow/listen.h"
#include "parts/settings.h"
#include "server/state.h"
#include "tls/door.h"

int lm_server_hold_sessions(lumen_server *server) {
    return server->shared.sessions ? 0 : lm_tls_sessions_open(&server->shared.sessions);
}

int lumen_set_tls(lumen_server *server, const lumen_tls_config *config) {
    struct lm_tls_context *context;
    if (server->state == SERVER_ENDED)
        return lm_error(LUMEN_E_STATE, "lumen_set_tls: the server has ended");
    if (server->state == SERVER_RUNNING && !server->shared.tls)
        return lm_error(LUMEN_E_STATE,
                        "server.tls: expected before the start, found a server that runs");
    int code = lm_setting_in_range("server.tls.port", config->port, 0, UINT16_MAX);
    if (!code) code = lm_tls_context_open(&context, config);
    if (code) return code;
    if (server->shared.tls) {
        lm_tls_door_offer(server->shared.tls, context);
        return 0;
    }
    server->tls_only = config->only != 0;
    server->info.tls_port = config->port;
    code = lm_server_hold_sessions(server);
    if (!code) return lm_tls_door_open(&server->shared.tls, context, server->shared.sessions);
    lm_tls_context_close(context);
    return code;
}

int lm_server_listen_tls(lumen_server *server) {
    struct lm_shared *shared = &server->shared;
    struct lm_tls_door *door = shared->tls;
    if (!door) return 0;
    door->addresses = &shared->addresses;
    door->deliver = lm_tls_deliver;
    door->owner = shared;
    door->timeout_ns = shared->header_timeout_ns;
    int code = lm_listen_alone(shared, server->host, server->info.tls_port, &door->listen_fd,
                               &server->info.tls_port);
    if (server->tls_only) server->info.port = server->info.tls_port;
    return code;
}
