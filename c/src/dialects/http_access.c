/* http_access.c: see http_access.h. */
#include "dialects/http_access.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "dialects/http_refuse.h"
#include "wire/http_scan.h"

static bool is_address(const char *name, size_t bytes) {
    char text[INET6_ADDRSTRLEN];
    unsigned char unused[16];
    if (bytes > 2 && name[0] == '[' && name[bytes - 1] == ']') {
        name++;
        bytes -= 2;
    }
    if (bytes >= sizeof text) return false;
    memcpy(text, name, bytes);
    text[bytes] = '\0';
    return inet_pton(AF_INET, text, unused) == 1 || inet_pton(AF_INET6, text, unused) == 1;
}

/* Whether a name is this one, in whatever case. */
static bool equals(const char *at, size_t bytes, const char *word) {
    return strlen(word) == bytes && strncasecmp(at, word, bytes) == 0;
}

/* A host without its port, and without the dot behind a name that is whole. */
static struct lm_slice name_of(struct lm_slice host) {
    const char *colon = memrchr(host.at, ':', host.bytes);
    const char *bracket = memrchr(host.at, ']', host.bytes);
    if (colon && (!bracket || colon > bracket)) host.bytes = (size_t)(colon - host.at);
    if (host.bytes > 1 && host.at[host.bytes - 1] == '.') host.bytes--;
    return host;
}

static bool is_listed(const struct lm_access *access, struct lm_slice name) {
    for (uint32_t h = 0; h < access->host_count; h++) {
        if (strcmp(access->hosts[h], "*") == 0 || equals(name.at, name.bytes, access->hosts[h]))
            return true;
    }
    return false;
}

/* Whether a Host names this server: otherwise a page in somebody's browser could reach it through
 * a name of its own (DNS rebinding), which no address is. */
static bool host_is_allowed(const struct lm_access *access, struct lm_slice host) {
    struct lm_slice name = name_of(host);
    return equals(name.at, name.bytes, "localhost") || is_address(name.at, name.bytes) ||
           is_listed(access, name);
}

/* The host of an Origin as a Host header has it: without the port that its scheme implies. */
static struct lm_slice origin_host(struct lm_slice origin, const char **implied_out) {
    const char *scheme = origin.at ? memmem(origin.at, origin.bytes, "://", 3) : NULL;
    if (!scheme) return (struct lm_slice){0};
    *implied_out = equals(origin.at, (size_t)(scheme - origin.at), "https") ? ":443" : ":80";
    return lm_slice_between(scheme + 3, origin.at + origin.bytes);
}

static struct lm_slice without_suffix(struct lm_slice text, const char *suffix) {
    size_t bytes = strlen(suffix);
    if (text.bytes > bytes && memcmp(text.at + text.bytes - bytes, suffix, bytes) == 0)
        text.bytes -= bytes;
    return text;
}

/* A page may ask the server that it came from, by the same host and port, or one whose host is in
 * server.hosts. Unlike a Host, an address says nothing: anybody can serve a page at one. */
static bool origin_is_allowed(const struct lm_access *access, struct lm_slice origin,
                              struct lm_slice host) {
    const char *implied = NULL;
    if (!origin.at) return true;
    struct lm_slice from = origin_host(origin, &implied);
    if (!from.at) return false;
    struct lm_slice to = without_suffix(host, implied);
    from = without_suffix(from, implied);
    if (to.bytes > 0 && from.bytes == to.bytes && strncasecmp(from.at, to.at, to.bytes) == 0)
        return true;
    return is_listed(access, name_of(from));
}

static bool needs_key(enum lm_http_route route) {
    return route != LM_ROUTE_PAGE;
}

bool lm_http_authorise(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_http_head *head, struct lm_slice host) {
    struct lm_access *access = io->access;
    struct lm_http_call *call = &connection->in.call;
    char why[LM_TEXT_BYTES_MAX];
    /* Whoever looks whether the server lives may call it what they like. */
    if (call->route == LM_ROUTE_LIVE || call->route == LM_ROUTE_READY) return true;
    if (host.at && !host_is_allowed(access, host)) {
        snprintf(why, sizeof why,
                 "Host: expected an address, localhost or a name in server.hosts, "
                 "found '%.*s'",
                 (int)(host.bytes < 80 ? host.bytes : 80), host.at);
        lm_refusal_count(io, LM_STATUS_BAD_REQUEST, UINT32_MAX);
        /* RFC 9110 15.5.20: an origin for which the server is not configured. */
        lm_http_refuse_code(io, connection, 421, NULL, why);
        return false;
    }
    if (!origin_is_allowed(access, head->origin, host)) {
        lm_refusal_count(io, LM_STATUS_BAD_REQUEST, UINT32_MAX);
        snprintf(why, sizeof why,
                 "Origin: pages of other sites may not ask: expected the host and port of Host, or "
                 "a name in server.hosts, found '%.*s'",
                 (int)(head->origin.bytes < 80 ? head->origin.bytes : 80), head->origin.at);
        lm_http_refuse_code(io, connection, 403, NULL, why);
        return false;
    }
    if (access->keys.count == 0 || !needs_key((enum lm_http_route)call->route)) return true;
    struct lm_token token = head->authorization.at
                                ? lm_keys_bearer(head->authorization.at, head->authorization.bytes)
                                : lm_keys_api_key(head->api_key.at, head->api_key.bytes);
    call->key = lm_keys_find(&access->keys, token.at, token.bytes);
    if (call->key != LM_NO_KEY) {
        /* Now: a reload may put another table in force before the body is here. */
        const char *name = access->keys.entries[call->key].name;
        call->owner = lm_sequence_owner(name, strlen(name));
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
    return site->at && (equals(site->at, site->bytes, "cross-site") ||
                        equals(site->at, site->bytes, "same-site"));
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
