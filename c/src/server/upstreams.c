/* upstreams.c: servers elsewhere whose models are served here. Control thread; upstreams are added
 * before the start. */
#include "parts/upstreams.h"
#include "base/error.h"
#include "flow/reload.h"
#include "server/state.h"
#include "tls/client.h"

static bool speak_tls(const lumen_upstream_address *addresses, uint32_t count) {
    for (uint32_t a = 0; a < count; a++)
        if (addresses[a].tls_host) return true;
    return false;
}

/* One context for all of its addresses. */
static int open_tls(lumen_server *server, struct lm_upstream *upstream,
                    const lumen_upstream_config *config) {
    const struct lm_tls_trust trust = {.authorities = config->authorities,
                                       .certificate = config->certificate,
                                       .key = config->private_key,
                                       .source = config->source ? config->source : upstream->name};
    if (!speak_tls(config->addresses, config->address_count)) return 0;
    static const char *const protocols[] = {[LUMEN_HTTP2_AUTO] = LM_ALPN_HTTP2 LM_ALPN_HTTP1,
                                            [LUMEN_HTTP2_ALWAYS] = LM_ALPN_HTTP2,
                                            [LUMEN_HTTP2_NEVER] = LM_ALPN_HTTP1};
    int code = lm_server_hold_sessions(server);
    return code ? code : lm_tls_client_open(&upstream->tls, &trust, protocols[upstream->http2]);
}

int lumen_add_upstream(lumen_server *server, const lumen_upstream_config *config,
                       uint32_t *index_out) {
    struct lm_upstreams *upstreams = &server->shared.upstreams;
    if (server->state != SERVER_OPEN)
        return lm_error(LUMEN_E_STATE, "upstreams are added before lumen_start");
    int code = lm_upstreams_add(upstreams, config);
    if (!code) code = open_tls(server, upstreams->at[upstreams->count - 1], config);
    if (!code) *index_out = upstreams->count - 1;
    return code;
}

int lumen_move_upstream(lumen_server *server, uint32_t index,
                        const lumen_upstream_address *addresses, uint32_t count) {
    struct lm_shared *shared = &server->shared;
    if (server->state != SERVER_RUNNING) return lm_error(LUMEN_E_STATE, "the server does not run");
    if (index >= shared->upstreams.count)
        return lm_error(LUMEN_E_INVALID, "upstreams: expected one of %u, found %u",
                        shared->upstreams.count, index);
    struct lm_upstream *upstream = shared->upstreams.at[index];
    if (!upstream->tls && speak_tls(addresses, count))
        return lm_error(LUMEN_E_INVALID,
                        "upstreams.%s: expected addresses without TLS, as at the start, found some "
                        "with it",
                        upstream->name);
    const lumen_upstream_config config = {
        .name = upstream->name, .addresses = addresses, .address_count = count};
    bool any_left_out = false;
    pthread_mutex_lock(&server->control);
    int code = lm_upstream_move(upstream, &config, lm_reload_all_turned(shared, upstream->left_at),
                                &any_left_out);
    if (any_left_out) upstream->left_at = lm_reload_ask(shared);
    pthread_mutex_unlock(&server->control);
    return code;
}
