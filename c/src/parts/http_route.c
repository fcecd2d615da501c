/* http_route.c: see http_route.h. Runs on I/O threads. */
#include "parts/http_route.h"

#include <string.h>

#include "parts/http_scan.h"

enum { READ = 1, WRITE = 2 };

static const char *const allow[] = {
    [READ] = "GET, HEAD", [WRITE] = "POST", [READ | WRITE] = "GET, HEAD, POST"};

/* `*` stands for a name, `#` for a version. The first that matches counts: inference comes first
 * because it is in a hurry, and the model of that name loses against `/v2/models/stats`. */
static const struct {
    const char *pattern;
    enum lm_http_route route;
    uint8_t methods;
} routes[] = {
    {"/v2/models/*/infer", LM_ROUTE_INFER, WRITE},
    {"/v2/models/*/versions/#/infer", LM_ROUTE_INFER, WRITE},
    {"/v2/health/live", LM_ROUTE_LIVE, READ},
    {"/v2/health/ready", LM_ROUTE_READY, READ},
    {"/v2/models/stats", LM_ROUTE_ALL_STATS, READ},
    {"/v2/models/*", LM_ROUTE_MODEL_METADATA, READ},
    {"/v2/models/*/versions/#", LM_ROUTE_MODEL_METADATA, READ},
    {"/v2/models/*/ready", LM_ROUTE_MODEL_READY, READ},
    {"/v2/models/*/versions/#/ready", LM_ROUTE_MODEL_READY, READ},
    {"/v2/models/*/config", LM_ROUTE_MODEL_CONFIG, READ},
    {"/v2/models/*/versions/#/config", LM_ROUTE_MODEL_CONFIG, READ},
    {"/v2/models/*/stats", LM_ROUTE_MODEL_STATS, READ},
    {"/v2/models/*/versions/#/stats", LM_ROUTE_MODEL_STATS, READ},
    {"/v2/models/*/trace/setting", LM_ROUTE_TRACE_SETTING, READ | WRITE},
    {"/v2/trace/setting", LM_ROUTE_TRACE_SETTING, READ | WRITE},
    {"/v2/logging", LM_ROUTE_LOGGING, READ | WRITE},
    {"/v2", LM_ROUTE_SERVER_METADATA, READ},
    {"/", LM_ROUTE_PAGE, READ},
    {"/v2/repository/index", LM_ROUTE_REPOSITORY_INDEX, WRITE},
    {"/v2/repository/models/*/load", LM_ROUTE_REPOSITORY_LOAD, WRITE},
    {"/v2/repository/models/*/unload", LM_ROUTE_REPOSITORY_UNLOAD, WRITE},
    {"/v2/systemsharedmemory/status", LM_ROUTE_SYSTEM_SHM_STATUS, READ},
    {"/v2/systemsharedmemory/region/*/status", LM_ROUTE_SYSTEM_SHM_STATUS, READ},
    {"/v2/systemsharedmemory/region/*/register", LM_ROUTE_SYSTEM_SHM_REGISTER, WRITE},
    {"/v2/systemsharedmemory/unregister", LM_ROUTE_SYSTEM_SHM_UNREGISTER, WRITE},
    {"/v2/systemsharedmemory/region/*/unregister", LM_ROUTE_SYSTEM_SHM_UNREGISTER, WRITE},
    {"/v2/cudasharedmemory/status", LM_ROUTE_CUDA_SHM_STATUS, READ},
    {"/v2/cudasharedmemory/region/*/status", LM_ROUTE_CUDA_SHM_STATUS, READ},
    {"/v2/cudasharedmemory/region/*/register", LM_ROUTE_CUDA_SHM_REGISTER, WRITE},
    {"/v2/cudasharedmemory/unregister", LM_ROUTE_CUDA_SHM_UNREGISTER, WRITE},
    {"/v2/cudasharedmemory/region/*/unregister", LM_ROUTE_CUDA_SHM_UNREGISTER, WRITE},
};

/* Whether `path` is of this pattern, and what stands for its `*` and `#`. */
static bool matches(const char *pattern, struct lm_slice path, struct lm_slice *name_out,
                    struct lm_slice *version_out) {
    const char *at = path.at, *end = path.at + path.bytes;
    for (; *pattern; pattern++) {
        if (*pattern != '*' && *pattern != '#') {
            if (at == end || *at++ != *pattern) return false;
            continue;
        }
        const char *slash = memchr(at, '/', (size_t)(end - at));
        struct lm_slice segment = lm_slice_between(at, slash ? slash : end);
        if (segment.bytes == 0) return false;
        *(*pattern == '*' ? name_out : version_out) = segment;
        at += segment.bytes;
    }
    return at == end;
}

/* 200, 400 or 404. */
static int decode_name(struct lm_slice raw, struct lm_http_match *match) {
    const char *at = raw.at, *end = raw.at + raw.bytes;
    while (at < end) {
        char byte = *at++;
        if (byte == '%') {
            if (end - at < 2 || !lm_http_byte_is(at[0], LM_BYTE_HEX) ||
                !lm_http_byte_is(at[1], LM_BYTE_HEX))
                return 400;
            byte = (char)(lm_http_hex_value(at[0]) << 4 | lm_http_hex_value(at[1]));
            at += 2;
        }
        if (!lm_http_is_plain(byte, ' ', false) || byte == '/') return 400;
        if (match->name_bytes == LM_NAME_BYTES_MAX - 1) return 404; /* no name is that long */
        match->name[match->name_bytes++] = byte;
    }
    match->name[match->name_bytes] = '\0';
    return 200;
}

/* 200 or 404: digits alone make a version, and a huge one exists nowhere. */
static int decode_version(struct lm_slice raw, struct lm_http_match *match) {
    uint64_t version = 0;
    for (size_t i = 0; i < raw.bytes; i++) {
        if (!lm_http_byte_is(raw.at[i], LM_BYTE_DIGIT)) return 404;
        version = version * 10 + (uint64_t)(raw.at[i] - '0');
        if (version >= LM_HTTP_VERSION_ANY) return 404;
    }
    match->version = (uint32_t)version;
    return 200;
}

static bool is_heard_of(struct lm_slice method) {
    static const char *const names[] = {"PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == method.bytes && memcmp(names[i], method.at, method.bytes) == 0)
            return true;
    return false;
}

static int find(struct lm_slice path, uint8_t method, struct lm_http_match *match) {
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        struct lm_slice name = {0}, version = {0};
        if (!matches(routes[i].pattern, path, &name, &version)) continue;
        int status = name.at ? decode_name(name, match) : 200;
        if (status == 200 && version.at) status = decode_version(version, match);
        if (status != 200) return status;
        match->route = routes[i].route;
        match->allow = allow[routes[i].methods];
        return routes[i].methods & method ? 200 : 405;
    }
    return 404;
}

int lm_http_find_route(const struct lm_http_head *head, struct lm_http_match *match_out) {
    struct lm_slice target = head->target;
    match_out->version = LM_HTTP_VERSION_ANY;
    match_out->no_body = head->method == LM_HTTP_HEAD;
    match_out->name_bytes = 0;
    match_out->name[0] = '\0';
    match_out->allow = NULL;
    if (head->method == LM_HTTP_OTHER && !is_heard_of(head->method_name)) return 501;
    if (head->method == LM_HTTP_OTHER && target.bytes == 1 && target.at[0] == '*') {
        match_out->allow = allow[READ | WRITE];
        return 405;
    }
    if (target.bytes == 0 || target.at[0] != '/') return 400;
    const char *query = memchr(target.at, '?', target.bytes);
    if (query) target.bytes = (size_t)(query - target.at);
    uint8_t method = head->method == LM_HTTP_OTHER  ? 0
                     : head->method == LM_HTTP_POST ? WRITE
                                                    : READ;
    return find(target, method, match_out);
}
