/* http_route.c: see http_route.h. Runs on I/O threads. */
#include "formats/http_route.h"

#include <string.h>

#include "wire/http_scan.h"

enum { READ = 1, WRITE = 2, UPLOAD = 4 }; /* UPLOAD: PUT is taken as POST, for curl -T */

static const char *const allow[] = {[READ] = "GET, HEAD",
                                    [WRITE] = "POST",
                                    [READ | WRITE] = "GET, HEAD, POST",
                                    [WRITE | UPLOAD] = "POST, PUT"};

/* `*` stands for a name, `#` for a version, up to the next slash or (where the pattern has one) to
 * the last colon before it. The first that matches counts: inference comes first
 * because it is in a hurry, and the model of that name loses against `/v2/models/stats`. */
static const struct {
    const char *pattern;
    enum lm_http_route route;
    uint8_t methods;
} routes[] = {
    {"/v2/models/*/infer", LM_ROUTE_INFER, WRITE | UPLOAD},
    {"/v2/models/*/versions/#/infer", LM_ROUTE_INFER, WRITE | UPLOAD},
    {"/v1/models/*:predict", LM_ROUTE_PREDICT, WRITE},
    {"/v1/models/*/versions/#:predict", LM_ROUTE_PREDICT, WRITE},
    {"/v1/models/*:entities", LM_ROUTE_ENTITIES, WRITE},
    {"/v1/models/*/versions/#:entities", LM_ROUTE_ENTITIES, WRITE},
    {"/invocations", LM_ROUTE_INVOCATIONS, WRITE},
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
    {"/figures", LM_ROUTE_FIGURES, READ},
    {"/v1/models", LM_ROUTE_V1_MODELS, READ},
    {"/v1/models/*", LM_ROUTE_V1_MODEL, READ},
    {"/v1/models/*/versions/#", LM_ROUTE_V1_MODEL, READ},
    {"/v1/models/*/metadata", LM_ROUTE_V1_METADATA, READ},
    {"/v1/models/*/versions/#/metadata", LM_ROUTE_V1_METADATA, READ},
    {"/v1/chat/completions", LM_ROUTE_CHAT, WRITE},
    {"/v1/completions", LM_ROUTE_COMPLETIONS, WRITE},
    {"/v1/responses", LM_ROUTE_RESPONSES, WRITE},
    {"/v1/embeddings", LM_ROUTE_EMBEDDINGS, WRITE},
    {"/embeddings", LM_ROUTE_EMBEDDINGS, WRITE},
    {"/", LM_ROUTE_TEXTS, WRITE},
    {"/embed", LM_ROUTE_EMBED, WRITE},
    {"/predict", LM_ROUTE_PREDICT_TEXT, WRITE},
    {"/embed_all", LM_ROUTE_EMBED_ALL, WRITE},
    {"/tokenize", LM_ROUTE_TOKENIZE, WRITE},
    {"/decode", LM_ROUTE_DECODE, WRITE},
    {"/info", LM_ROUTE_INFO, READ},
    {"/similarity", LM_ROUTE_SIMILARITY, WRITE},
    {"/rerank", LM_ROUTE_RERANK, WRITE},
    {"/v1/rerank", LM_ROUTE_RERANK_V1, WRITE},
    {"/v2/rerank", LM_ROUTE_RERANK_V2, WRITE},
    {"/ping", LM_ROUTE_READY, READ},
    {"/health", LM_ROUTE_READY, READ},
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
        const char *stop = memchr(at, '/', (size_t)(end - at));
        if (!stop) stop = end;
        if (pattern[1] == ':') stop = memrchr(at, ':', (size_t)(stop - at));
        if (!stop) return false;
        struct lm_slice segment = lm_slice_between(at, stop);
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

/* Known, and served nowhere; CONNECT is for proxies and unknown here (RFC 9110 15.6.2). */
static bool is_heard_of(struct lm_slice method) {
    static const char *const names[] = {"DELETE", "OPTIONS", "PATCH", "TRACE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == method.bytes && memcmp(names[i], method.at, method.bytes) == 0)
            return true;
    return false;
}

/* Takes the first `key=value` off the query. false: there is none. */
static bool next_pair(struct lm_slice *query, struct lm_slice *pair) {
    if (query->bytes == 0) return false;
    const char *end = query->at + query->bytes, *stop = memchr(query->at, '&', query->bytes);
    *pair = lm_slice_between(query->at, stop ? stop : end);
    *query = lm_slice_between(stop ? stop + 1 : end, end);
    return true;
}

/* The value of a pair of this key, which ends with its "="; at NULL: it is another's. */
static struct lm_slice value_of(struct lm_slice pair, const char *key) {
    size_t bytes = strlen(key);
    if (pair.bytes < bytes || memcmp(pair.at, key, bytes) != 0) return (struct lm_slice){0};
    return lm_slice_between(pair.at + bytes, pair.at + pair.bytes);
}

/* The value of `model` in a query goes to the name. 200, 400 or 404. */
static int read_query(struct lm_slice query, struct lm_http_match *match) {
    struct lm_slice pair;
    while (next_pair(&query, &pair)) {
        struct lm_slice name = value_of(pair, "model=");
        if (!name.at) continue;
        match->why = "query: expected one name of a model, found model= twice";
        if (match->name_bytes > 0) return 400;
        match->why = "query: model=: expected a name with whole percent escapes";
        int status = decode_name(name, match);
        if (status != 200) return status;
    }
    return 200;
}

/* The value of `top` in a query: how many classes of a picture to answer. 200 or 400. */
static int read_top(struct lm_slice query, struct lm_http_match *match) {
    struct lm_slice pair;
    while (next_pair(&query, &pair)) {
        struct lm_slice digits = value_of(pair, "top=");
        uint32_t top = 0;
        if (!digits.at) continue;
        match->why = "query: top=: expected one number from 1 to 255";
        if (match->top > 0 || digits.bytes < 1 || digits.bytes > 3) return 400;
        for (size_t i = 0; i < digits.bytes; i++) {
            if (!lm_http_byte_is(digits.at[i], LM_BYTE_DIGIT)) return 400;
            top = top * 10 + (uint32_t)(digits.at[i] - '0');
        }
        if (top < 1 || top > UINT8_MAX) return 400;
        match->top = (uint8_t)top;
    }
    return 200;
}

static int find(struct lm_slice path, uint8_t method, struct lm_http_match *match) {
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        struct lm_slice name = {0}, version = {0};
        if (!matches(routes[i].pattern, path, &name, &version)) continue;
        int status = name.at ? decode_name(name, match) : 200;
        if (status == 200 && version.at) status = decode_version(version, match);
        if (status != 200) return status;
        match->route = routes[i].route;
        if (routes[i].methods & method) return 200;
        /* Another route of the same pattern, which has no name, may have the method. */
        uint8_t allowed = routes[i].methods;
        for (size_t j = i + 1; j < sizeof routes / sizeof routes[0]; j++) {
            if (strcmp(routes[j].pattern, routes[i].pattern) != 0) continue;
            match->route = routes[j].route;
            if (routes[j].methods & method) return 200;
            allowed |= routes[j].methods;
        }
        match->allow = allow[allowed];
        return 405;
    }
    return 404;
}

/* A target that is a whole URI: its host goes to the match, its path to path_out (with no bytes
 * where there is none). 200, 400 or 421. */
static int split_uri(struct lm_slice target, struct lm_http_match *match,
                     struct lm_slice *path_out) {
    const char *end = target.at + target.bytes;
    const char *scheme_end = memmem(target.at, target.bytes, "://", 3);
    if (!scheme_end) return 400;
    struct lm_slice scheme = lm_slice_between(target.at, scheme_end);
    for (size_t i = 0; i < scheme.bytes; i++) {
        char byte = scheme.at[i];
        bool letter = (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z';
        bool later =
            lm_http_byte_is(byte, LM_BYTE_DIGIT) || byte == '+' || byte == '-' || byte == '.';
        if (!letter && (i == 0 || !later)) return 400;
    }
    if (scheme.bytes == 0) return 400;
    match->why = "target: expected an http URI: for other schemes this server answers nothing";
    if (!lm_http_same_word(scheme, "http", 4)) return 421;
    const char *at = scheme_end + 3;
    while (at < end && *at != '/' && *at != '?') at++;
    match->host = lm_slice_between(scheme_end + 3, at);
    match->why = "target: expected the URI's host and maybe a port, and no user";
    bool has_name = match->host.bytes > 0 && *match->host.at != ':';
    if (!has_name || !lm_http_host_is_valid(match->host)) return 400;
    *path_out = lm_slice_between(at, end);
    return 200;
}

/* Routes of servers of texts that this one does not have. */
static const char *text_route(struct lm_slice path) {
    static const char *const texts[] = {"/v2/embed", "/embed_sparse", "/generate",
                                        "/chat/completions"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strlen(texts[i]) == path.bytes && memcmp(texts[i], path.at, path.bytes) == 0)
            return "Not Found: expected /v1/embeddings, /v1/rerank, /v2/rerank, /embed, /predict, "
                   "/rerank or /similarity for texts, /v1/chat/completions, /v1/completions or "
                   "/v1/responses for models of upstreams";
    return "Not Found";
}

int lm_http_find_route(const struct lm_http_head *head, struct lm_http_match *match_out) {
    struct lm_slice path = head->target;
    bool options = head->method == LM_HTTP_OTHER && head->method_name.bytes == 7 &&
                   memcmp(head->method_name.at, "OPTIONS", 7) == 0;
    *match_out = (struct lm_http_match){.version = LM_HTTP_VERSION_ANY,
                                        .no_body = head->method == LM_HTTP_HEAD,
                                        .host = head->host,
                                        .why = "method: expected GET, HEAD, POST or PUT"};
    if (head->method == LM_HTTP_OTHER && !is_heard_of(head->method_name)) return 501;
    match_out->why = "path: expected an absolute path with whole percent escapes";
    bool is_uri = path.bytes > 0 && path.at[0] != '/' && path.at[0] != '*';
    int status = is_uri ? split_uri(path, match_out, &path) : 200;
    if (status != 200) return status;
    /* The whole server: "*", or a URI that ends behind its host (RFC 9112 3.2.4). */
    bool whole = is_uri ? path.bytes == 0 : path.bytes == 1 && path.at[0] == '*';
    if (options && whole) {
        match_out->allow = allow[READ | WRITE];
        return 405;
    }
    const char *mark = path.bytes ? memchr(path.at, '?', path.bytes) : NULL;
    struct lm_slice query = {0};
    if (mark) query = lm_slice_between(mark + 1, path.at + path.bytes);
    if (mark) path.bytes = (size_t)(mark - path.at);
    if (is_uri && path.bytes == 0) path = (struct lm_slice){"/", 1};
    if (path.bytes == 0 || path.at[0] != '/') return 400;
    static const uint8_t methods[] = {[LM_HTTP_GET] = READ,
                                      [LM_HTTP_HEAD] = READ,
                                      [LM_HTTP_POST] = WRITE,
                                      [LM_HTTP_PUT] = UPLOAD,
                                      [LM_HTTP_OTHER] = 0};
    status = find(path, methods[head->method], match_out);
    if (status == 404) match_out->why = text_route(path);
    if (status != 200) return status;
    if (match_out->route == LM_ROUTE_INFER) return read_top(query, match_out);
    return match_out->route == LM_ROUTE_INVOCATIONS ? read_query(query, match_out) : 200;
}

const char *lm_http_route_name(uint8_t route) {
    static const char shared_memory[] = "shared_memory";
    static const char *const names[] = {
        [LM_ROUTE_PAGE] = "page",
        [LM_ROUTE_FIGURES] = "figures",
        [LM_ROUTE_LIVE] = "live",
        [LM_ROUTE_READY] = "ready",
        [LM_ROUTE_SERVER_METADATA] = "server_metadata",
        [LM_ROUTE_MODEL_READY] = "model_ready",
        [LM_ROUTE_MODEL_METADATA] = "model_metadata",
        [LM_ROUTE_MODEL_CONFIG] = "model_config",
        [LM_ROUTE_MODEL_STATS] = "model_stats",
        [LM_ROUTE_ALL_STATS] = "stats",
        [LM_ROUTE_INFER] = "infer",
        [LM_ROUTE_GRPC_INFER] = "infer",
        [LM_ROUTE_PREDICT] = "predict",
        [LM_ROUTE_INVOCATIONS] = "invocations",
        [LM_ROUTE_V1_MODELS] = "v1_models",
        [LM_ROUTE_V1_MODEL] = "v1_model",
        [LM_ROUTE_V1_METADATA] = "v1_metadata",
        [LM_ROUTE_REPOSITORY_INDEX] = "repository_index",
        [LM_ROUTE_REPOSITORY_LOAD] = "load",
        [LM_ROUTE_REPOSITORY_UNLOAD] = "unload",
        [LM_ROUTE_SYSTEM_SHM_STATUS] = shared_memory,
        [LM_ROUTE_SYSTEM_SHM_REGISTER] = shared_memory,
        [LM_ROUTE_SYSTEM_SHM_UNREGISTER] = shared_memory,
        [LM_ROUTE_CUDA_SHM_STATUS] = shared_memory,
        [LM_ROUTE_CUDA_SHM_REGISTER] = shared_memory,
        [LM_ROUTE_CUDA_SHM_UNREGISTER] = shared_memory,
        [LM_ROUTE_TRACE_SETTING] = "trace_setting",
        [LM_ROUTE_LOGGING] = "logging",
        [LM_ROUTE_CHAT] = "chat",
        [LM_ROUTE_COMPLETIONS] = "completions",
        [LM_ROUTE_RESPONSES] = "responses",
        [LM_ROUTE_EMBEDDINGS] = "embeddings",
        [LM_ROUTE_TEXTS] = "texts",
        [LM_ROUTE_EMBED] = "embed",
        [LM_ROUTE_EMBED_ALL] = "embed_all",
        [LM_ROUTE_TOKENIZE] = "tokenize",
        [LM_ROUTE_DECODE] = "decode",
        [LM_ROUTE_INFO] = "info",
        [LM_ROUTE_PREDICT_TEXT] = "predict_text",
        [LM_ROUTE_ENTITIES] = "entities",
        [LM_ROUTE_SIMILARITY] = "similarity",
        [LM_ROUTE_RERANK] = "rerank",
        [LM_ROUTE_RERANK_V1] = "rerank",
        [LM_ROUTE_RERANK_V2] = "rerank",
    };
    return route < sizeof names / sizeof names[0] ? names[route] : "unknown";
}
