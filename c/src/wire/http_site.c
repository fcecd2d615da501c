/* http_site.c: see http_site.h. */
#include "wire/http_site.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/limits.h"
#include "wire/http_scan.h"

void lm_http_hosts_set(struct lm_http_hosts *hosts, const char *const *names, uint32_t count) {
    hosts->count = count;
    for (uint32_t h = 0; h < count; h++)
        snprintf(hosts->names[h], sizeof hosts->names[h], "%s", names[h]);
}

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

/* A host without its port, and without the dot behind a name that is whole. */
static struct lm_slice name_of(struct lm_slice host) {
    const char *colon = memrchr(host.at, ':', host.bytes);
    const char *bracket = memrchr(host.at, ']', host.bytes);
    if (colon && (!bracket || colon > bracket)) host.bytes = (size_t)(colon - host.at);
    if (host.bytes > 1 && host.at[host.bytes - 1] == '.') host.bytes--;
    return host;
}

static bool is_listed(const struct lm_http_hosts *hosts, struct lm_slice name) {
    for (uint32_t h = 0; h < hosts->count; h++) {
        if (strcmp(hosts->names[h], "*") == 0 || lm_slice_is(name, hosts->names[h])) return true;
    }
    return false;
}

/* Whether a Host names this server: otherwise a page in somebody's browser could reach it through
 * a name of its own (DNS rebinding), which no address is. */
static bool host_is_allowed(const struct lm_http_hosts *hosts, struct lm_slice host) {
    struct lm_slice name = name_of(host);
    return lm_slice_is(name, "localhost") || is_address(name.at, name.bytes) ||
           is_listed(hosts, name);
}

/* The host of an Origin as a Host header has it: without the port that its scheme implies. */
static struct lm_slice origin_host(struct lm_slice origin, const char **implied_out) {
    const char *scheme = origin.at ? memmem(origin.at, origin.bytes, "://", 3) : NULL;
    if (!scheme) return (struct lm_slice){0};
    *implied_out = lm_slice_is(lm_slice_between(origin.at, scheme), "https") ? ":443" : ":80";
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
static bool origin_is_allowed(const struct lm_http_hosts *hosts, struct lm_slice origin,
                              struct lm_slice host) {
    const char *implied = NULL;
    if (!origin.at) return true;
    struct lm_slice from = origin_host(origin, &implied);
    if (!from.at) return false;
    struct lm_slice to = without_suffix(host, implied);
    from = without_suffix(from, implied);
    if (to.bytes > 0 && from.bytes == to.bytes && strncasecmp(from.at, to.at, to.bytes) == 0)
        return true;
    return is_listed(hosts, name_of(from));
}

uint32_t lm_http_site_refusal(const struct lm_http_hosts *hosts, struct lm_slice host,
                              struct lm_slice origin) {
    /* RFC 9110 15.5.20: a host for which the server is not configured. */
    if (host.at && !host_is_allowed(hosts, host)) return 421;
    return origin_is_allowed(hosts, origin, host) ? 0 : 403;
}

static struct lm_slice slice_of(const char *text) {
    return (struct lm_slice){.at = text, .bytes = text ? strlen(text) : 0};
}

int lumen_http_site(const char *const *names, uint32_t count, const char *host,
                    const char *origin) {
    struct lm_http_hosts hosts;
    if (count > LUMEN_HOSTS_MAX) return LUMEN_E_INVALID;
    lm_http_hosts_set(&hosts, names, count);
    return (int)lm_http_site_refusal(&hosts, slice_of(host), slice_of(origin));
}
