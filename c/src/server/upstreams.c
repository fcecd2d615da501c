/* upstreams.c: servers elsewhere whose models are served here. Control thread, before the start. */
#include "parts/upstreams.h"
#include "base/error.h"
#include "server/state.h"
#include "tls/client.h"

/* One context for all of its addresses. */
static int open_tls(lumen_server *server, struct lm_upstream *upstream,
                    const lumen_upstream_config *config) {
    const struct lm_tls_trust trust = {.authorities = config->authorities,
                                       .certificate = config->certificate,
                                       .key = config->private_key,
                                       .source = config->source ? config->source : upstream->name};
    bool speaks = false;
    for (uint32_t a = 0; a < upstream->address_count; a++)
        speaks = speaks || upstream->addresses[a].tls_host;
    if (!speaks) return 0;
    int code = lm_server_hold_sessions(server);
    return code ? code : lm_tls_client_open(&upstream->tls, &trust, true);
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
