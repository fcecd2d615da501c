/* http_access.c: see http_access.h. */
#include "dialects/http_access.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "dialects/http_refuse.h"
#include "flow/gate.h"
#include "flow/tls.h"
#include "wire/http_scan.h"

static bool needs_key(enum lm_http_route route) {
    return route != LM_ROUTE_PAGE;
}

static void refuse_site(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                        struct lm_slice found) {
    char why[LM_TEXT_BYTES_MAX];
    snprintf(why, sizeof why, "%s, found '%.*s'",
             code == 421
                 ? "Host: expected an address, localhost or a name in server.hosts"
                 : "Origin: pages of other sites may not ask: expected the host and port of Host, "
                   "or a name in server.hosts",
             (int)(found.bytes < 80 ? found.bytes : 80), found.at);
    lm_refusal_count(io, LM_STATUS_BAD_REQUEST, UINT32_MAX);
    lm_http_refuse_code(io, connection, code, NULL, why);
}

bool lm_http_authorise(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_http_head *head, struct lm_slice host) {
    struct lm_access *access = io->access;
    struct lm_http_call *call = &connection->in.call;
    /* Whoever looks whether the server lives may call it what they like. */
    if (call->route == LM_ROUTE_LIVE || call->route == LM_ROUTE_READY) return true;
    const bool may_be_page = !lm_io_dialect(io, connection)->is_rpc;
    uint32_t code = may_be_page ? lm_http_site_refusal(&access->hosts, host, head->origin) : 0;
    if (code) {
        refuse_site(io, connection, code, code == 421 ? host : head->origin);
        return false;
    }
    if (access->keys.count == 0 || !needs_key((enum lm_http_route)call->route)) return true;
    struct lm_token token = head->authorization.at
                                ? lm_keys_bearer(head->authorization.at, head->authorization.bytes)
                                : lm_keys_api_key(head->api_key.at, head->api_key.bytes);
    /* Without a token the client's certificate says who it is. */
    const bool has_token = head->authorization.at || head->api_key.at;
    const uint8_t *subject = has_token ? NULL : lm_tls_subject(io, connection);
    call->key = subject ? lm_keys_find_subject(&access->keys, subject)
                        : lm_keys_find(&access->keys, token.at, token.bytes);
    if (call->key != LM_NO_KEY) {
        /* Now: a reload may put another table in force before the body is here. */
        call->owner = lm_keys_owner(&access->keys, call->key);
        call->admin = lm_keys_is_admin(&access->keys, call->key);
        return true;
    }
    lm_http_refuse_status(
        io, connection, LM_STATUS_UNAUTHORISED,
        "expected a key of this server (Authorization: Bearer ..., or X-API-Key), found "
        "none or an unknown one");
    return false;
}

bool lm_http_is_from_page(const struct lm_http_head *head) {
    const struct lm_slice *site = &head->fetch_site;
    return site->at &&
           (lm_http_same_word(*site, "cross-site", 10) || lm_http_same_word(*site, "same-site", 9));
}

bool lm_http_is_local(const struct lm_connection *connection) {
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    if (connection->in.call.is_forwarded) return false;
    if (getpeername(connection->fd, (struct sockaddr *)&peer, &bytes) != 0) return false;
    if (peer.ss_family == AF_INET)
        return ntohl(((struct sockaddr_in *)&peer)->sin_addr.s_addr) >> 24 == 127;
    if (peer.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&peer)->sin6_addr);
    return peer.ss_family == AF_UNIX;
}

const char *lm_http_control_refusal(const struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    if (call->from_page)
        return "Sec-Fetch-Site: control endpoints are not for pages of other sites: expected none, "
               "or same-origin";
    if (call->key != LM_NO_KEY ? call->admin : lm_http_is_local(connection)) return NULL;
    if (call->key == LM_NO_KEY && call->is_forwarded)
        return "control endpoints are for an admin key, or for this machine where the server has "
               "no keys: this request came through a proxy (Forwarded, Via, X-Forwarded-For or "
               "X-Real-IP), which does not say whose it is: give the server keys";
    return "control endpoints are for an admin key, or for this machine where the server has no "
           "keys";
}

uint32_t lm_http_key(const struct lm_io *io, const struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    return lm_gate_key(io, call->key, call->owner, connection->in.started_ns);
}
