/* http_access.c: see http_access.h. */
#include "dialects/http_access.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "dialects/http_refuse.h"

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

/* Whether a Host (or an Origin's host) names this server: otherwise a page in somebody's browser
 * could reach it through a name of its own (DNS rebinding). */
static bool host_is_allowed(const struct lm_access *access, struct lm_slice host) {
    size_t bytes = host.bytes;
    const char *colon = memrchr(host.at, ':', bytes);
    const char *bracket = memrchr(host.at, ']', bytes);
    if (colon && (!bracket || colon > bracket)) bytes = (size_t)(colon - host.at);
    if (bytes > 1 && host.at[bytes - 1] == '.') bytes--; /* of a name that is whole */
    if (equals(host.at, bytes, "localhost") || is_address(host.at, bytes)) return true;
    for (uint32_t h = 0; h < access->host_count; h++) {
        if (strcmp(access->hosts[h], "*") == 0 || equals(host.at, bytes, access->hosts[h]))
            return true;
    }
    return false;
}

static bool origin_is_allowed(const struct lm_access *access, struct lm_slice origin) {
    const char *scheme = origin.at ? memmem(origin.at, origin.bytes, "://", 3) : NULL;
    if (!origin.at) return true;
    if (!scheme) return false;
    size_t skipped = (size_t)(scheme + 3 - origin.at);
    return host_is_allowed(access, (struct lm_slice){scheme + 3, origin.bytes - skipped});
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
    if (!origin_is_allowed(access, head->origin)) {
        lm_refusal_count(io, LM_STATUS_BAD_REQUEST, UINT32_MAX);
        lm_http_refuse_code(io, connection, 403, NULL, "Origin: pages of other sites may not ask");
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

bool lm_http_is_local(const struct lm_connection *connection) {
    struct sockaddr_storage peer;
    socklen_t bytes = sizeof peer;
    if (getpeername(connection->fd, (struct sockaddr *)&peer, &bytes) != 0) return false;
    if (peer.ss_family == AF_INET)
        return ntohl(((struct sockaddr_in *)&peer)->sin_addr.s_addr) >> 24 == 127;
    if (peer.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&peer)->sin6_addr);
    return peer.ss_family == AF_UNIX;
}

bool lm_http_may_control(const struct lm_connection *connection) {
    bool has_key = connection->in.call.key != LM_NO_KEY;
    return has_key ? connection->in.call.admin : lm_http_is_local(connection);
}
