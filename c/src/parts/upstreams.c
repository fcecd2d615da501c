/* upstreams.c: see upstreams.h. */
#include "parts/upstreams.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "parts/settings.h"

enum { HOST_BYTES_MAX = 300, PATH_BYTES_MAX = 512, KEY_BYTES_MAX = 4096 };

/* Whether a text fits a line of a head: a control character in it would end the line. */
static bool is_plain(const char *text, size_t most) {
    size_t bytes = strnlen(text, most + 1);
    for (size_t i = 0; i < bytes; i++)
        if ((uint8_t)text[i] < ' ' || (uint8_t)text[i] >= 0x7f) return false;
    return bytes <= most;
}

static int refuse(const lumen_upstream_config *config, const char *what, const char *expected) {
    return lm_error(LUMEN_E_INVALID, "upstreams.%.63s: %s: expected %s", config->name, what,
                    expected);
}

static int open_address(struct lm_upstream_address *address, const lumen_upstream_config *config,
                        const lumen_upstream_address *from) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address->socket;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address->socket;
    int code = lm_setting_in_range("port of an upstream", from->port, 1, UINT16_MAX);
    if (code) return code;
    if (inet_pton(AF_INET, from->ip, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)from->port);
        address->socket_bytes = sizeof *v4;
    } else if (inet_pton(AF_INET6, from->ip, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)from->port);
        address->socket_bytes = sizeof *v6;
    } else {
        return refuse(config, "address", "an IPv4 or IPv6 address");
    }
    if (!is_plain(from->host, HOST_BYTES_MAX) || !is_plain(from->path, PATH_BYTES_MAX) ||
        (from->tls_host && !is_plain(from->tls_host, HOST_BYTES_MAX)))
        return refuse(config, "address", "a host and a path of printable ASCII");
    if (asprintf(&address->host, "Host: %s\r\n", from->host) < 0) address->host = NULL;
    address->path = strdup(from->path);
    if (from->tls_host) address->tls_host = strdup(from->tls_host);
    if (!address->host || !address->path || (from->tls_host && !address->tls_host))
        return lm_error(LUMEN_E_NOMEM, "no memory for an upstream");
    return 0;
}

static void close_address(struct lm_upstream_address *address) {
    free(address->host);
    free(address->path);
    free(address->tls_host);
    address->host = address->path = address->tls_host = NULL;
}

static void close_one(struct lm_upstream *upstream) {
    for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++)
        close_address(&upstream->addresses[a]);
    free(upstream->authorization);
    free(upstream);
}

static int check(const lumen_upstream_config *config) {
    size_t name_bytes = strnlen(config->name, LM_UPSTREAM_NAME_BYTES_MAX);
    if (name_bytes < 1 || name_bytes == LM_UPSTREAM_NAME_BYTES_MAX)
        return refuse(config, "name", "1 to 63 bytes");
    /* The key is in no message. */
    if (config->authorization && !is_plain(config->authorization, KEY_BYTES_MAX))
        return refuse(config, "key", "at most 4096 printable ASCII characters, without line ends");
    int code = lm_setting_in_range("addresses of an upstream", config->address_count, 1,
                                   LUMEN_UPSTREAM_ADDRESSES_MAX);
    if (!code) code = lm_setting_in_range("upstreams.connections", config->connections, 0, 64);
    if (!code) code = lm_setting_in_range("upstreams.in_flight", config->in_flight, 1, 65536);
    if (!code) code = lm_setting_in_range("upstreams.retries", config->retries, 0, 1);
    if (!code && !(config->retry_share >= 0 && config->retry_share <= 1))
        code = refuse(config, "retry_share", "0.0 to 1.0");
    if (!code) code = lm_setting_in_range("upstreams.token_bytes", config->token_bytes, 1, 16);
    if (!code)
        code = lm_setting_in_range("upstreams.answer_tokens", config->answer_tokens, 0, 1u << 24);
    if (!code) code = lm_setting_in_range("upstreams.asks_usage", config->asks_usage, 0, 1);
    if (!code) code = lm_setting_in_range("upstreams.http2", config->http2, 0, LUMEN_HTTP2_NEVER);
    return code;
}

static uint64_t ns_of(uint32_t ms) {
    return ms * 1000000ull;
}

int lm_upstreams_add(struct lm_upstreams *upstreams, const lumen_upstream_config *config) {
    int code = check(config);
    if (code) return code;
    if (upstreams->count == LUMEN_UPSTREAMS_MAX)
        return lm_error(LUMEN_E_INVALID, "upstreams: expected at most %d", LUMEN_UPSTREAMS_MAX);
    struct lm_upstream *upstream = calloc(1, sizeof *upstream);
    if (!upstream) return lm_error(LUMEN_E_NOMEM, "no memory for an upstream");
    memcpy(upstream->name, config->name, strlen(config->name) + 1);
    upstream->connections = config->connections;
    upstream->in_flight = config->in_flight;
    upstream->connect_ns = ns_of(config->connect_ms);
    upstream->first_byte_ns = ns_of(config->first_byte_ms);
    upstream->silence_ns = ns_of(config->silence_ms);
    upstream->total_ns = ns_of(config->total_ms);
    upstream->ping_ns = ns_of(config->ping_ms);
    upstream->hedge_ns = ns_of(config->hedge_ms);
    upstream->retries = config->retries > 0;
    upstream->retry_percent = (uint32_t)(config->retry_share * 100 + 0.5);
    upstream->token_bytes = config->token_bytes;
    upstream->answer_tokens = config->answer_tokens;
    upstream->asks_usage = config->asks_usage;
    upstream->http2 = (uint8_t)config->http2;
    int bytes = asprintf(
        &upstream->authorization, "%s%s%s", config->authorization ? "Authorization: " : "",
        config->authorization ? config->authorization : "", config->authorization ? "\r\n" : "");
    if (bytes < 0) {
        upstream->authorization = NULL;
        code = lm_error(LUMEN_E_NOMEM, "no memory for an upstream");
    }
    bool any_left_out = false;
    if (!code) code = lm_upstream_move(upstream, config, true, &any_left_out);
    if (code) {
        close_one(upstream);
        return code;
    }
    upstreams->at[upstreams->count++] = upstream;
    return 0;
}

/* ---- addresses that come and go ---- */

static bool is_same_text(const char *one, const char *other) {
    return one && other ? strcmp(one, other) == 0 : one == other;
}

static bool is_same(const struct lm_upstream_address *one,
                    const struct lm_upstream_address *other) {
    return one->socket_bytes == other->socket_bytes &&
           memcmp(&one->socket, &other->socket, one->socket_bytes) == 0 &&
           is_same_text(one->host, other->host) && is_same_text(one->path, other->path) &&
           is_same_text(one->tls_host, other->tls_host);
}

static void set_state(struct lm_upstream_address *address, uint32_t state) {
    /* A1: release: what is in the entry was written before; pairs with A2 */
    lm_store_release_u32(&address->state, state);
}

static uint32_t state_of(const struct lm_upstream_address *address) {
    return lm_load_relaxed_u32(&address->state); /* relaxed: this thread alone writes it */
}

/* An entry for an address that comes; NULL: there is none yet. */
static struct lm_upstream_address *free_entry(struct lm_upstream *upstream, bool are_turned) {
    for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++)
        if (state_of(&upstream->addresses[a]) == LM_ADDRESS_FREE) return &upstream->addresses[a];
    for (uint32_t a = 0; are_turned && a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++) {
        struct lm_upstream_address *address = &upstream->addresses[a];
        /* A4: acquire: the last connection's uses of it are over; pairs with A3 in
         * dialects/upstream_pool.c
         */
        if (state_of(address) == LM_ADDRESS_LEAVING && lm_load_acquire_u64(&address->links) == 0)
            return address;
    }
    return NULL;
}

static struct lm_upstream_address *find(struct lm_upstream *upstream,
                                        const struct lm_upstream_address *wanted) {
    for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++) {
        struct lm_upstream_address *address = &upstream->addresses[a];
        if (state_of(address) != LM_ADDRESS_FREE && is_same(address, wanted)) return address;
    }
    return NULL;
}

/* Its entry is the one at `at` from now on. Returns 0 or LUMEN_E_AGAIN. */
static int take_in(struct lm_upstream *upstream, struct lm_upstream_address *wanted,
                   bool are_turned, uint32_t *at) {
    struct lm_upstream_address *const known = find(upstream, wanted);
    struct lm_upstream_address *entry = known ? known : free_entry(upstream, are_turned);
    if (!entry)
        return lm_error(LUMEN_E_AGAIN, "upstream '%s': all entries for addresses have connections",
                        upstream->name);
    *at = (uint32_t)(entry - upstream->addresses);
    if (known) {
        close_address(wanted);
    } else {
        close_address(entry);
        entry->socket = wanted->socket;
        entry->socket_bytes = wanted->socket_bytes;
        entry->host = wanted->host;
        entry->path = wanted->path;
        entry->tls_host = wanted->tls_host;
        entry->number = ++upstream->address_last;
    }
    set_state(entry, LM_ADDRESS_IN_USE);
    return 0;
}

int lm_upstream_move(struct lm_upstream *upstream, const lumen_upstream_config *config,
                     bool are_turned, bool *any_left_out) {
    uint32_t kept = 0; /* bit n: entry n */
    int code = lm_setting_in_range("addresses of an upstream", config->address_count, 1,
                                   LUMEN_UPSTREAM_ADDRESSES_MAX);
    for (uint32_t a = 0; !code && a < config->address_count; a++) {
        struct lm_upstream_address wanted = {0};
        uint32_t at = 0;
        code = open_address(&wanted, config, &config->addresses[a]);
        if (!code) code = take_in(upstream, &wanted, are_turned, &at);
        if (code) close_address(&wanted);
        if (!code) kept |= 1u << at;
    }
    /* Where one has no entry yet, others go all the same: theirs will be free. */
    if (code && code != LUMEN_E_AGAIN) return code;
    for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++) {
        if (kept >> a & 1 || state_of(&upstream->addresses[a]) != LM_ADDRESS_IN_USE) continue;
        if (code && kept == 0) break; /* better an old one than none */
        set_state(&upstream->addresses[a], LM_ADDRESS_LEAVING);
        *any_left_out = true;
    }
    return code;
}

void lm_upstreams_close(struct lm_upstreams *upstreams) {
    for (uint32_t u = 0; u < upstreams->count; u++) close_one(upstreams->at[u]);
    upstreams->count = 0;
}
