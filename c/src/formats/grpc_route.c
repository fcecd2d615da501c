/* grpc_route.c: see grpc_route.h. */
#include "formats/grpc_route.h"

#include "wire/http_scan.h"

/* The part of a message that becomes the request's body. */
enum body { NO_BODY, ALL_FIELDS, FIRST_FIELD };

/* In a path, `*` is the name's place and `#` the version's, where one is said. */
static const struct route {
    const char *path;
    const char *nameless;  /* where no name is said; NULL: one must be */
    uint8_t name, version; /* numbers of their fields; 0: the message has none */
    uint8_t body;
    bool is_post; /* even without a body */
} routes[LM_GRPC_METHODS] = {
    [LM_GRPC_SERVER_LIVE] = {.nameless = "/v2/health/live"},
    [LM_GRPC_SERVER_READY] = {.nameless = "/v2/health/ready"},
    [LM_GRPC_MODEL_READY] = {.path = "/v2/models/*#/ready", .name = 1, .version = 2},
    [LM_GRPC_SERVER_METADATA] = {.nameless = "/v2"},
    [LM_GRPC_MODEL_METADATA] = {.path = "/v2/models/*#", .name = 1, .version = 2},
    [LM_GRPC_MODEL_INFER] = {.path = "/v2/models/*#/infer",
                             .name = 1,
                             .version = 2,
                             .is_post = true},
    [LM_GRPC_MODEL_STREAM_INFER] = {.path = "/v2/models/*#/infer",
                                    .name = 1,
                                    .version = 2,
                                    .is_post = true},
    [LM_GRPC_MODEL_CONFIG] = {.path = "/v2/models/*#/config", .name = 1, .version = 2},
    [LM_GRPC_MODEL_STATISTICS] = {.path = "/v2/models/*#/stats",
                                  .nameless = "/v2/models/stats",
                                  .name = 1,
                                  .version = 2},
    [LM_GRPC_REPOSITORY_INDEX] = {.nameless = "/v2/repository/index",
                                  .body = ALL_FIELDS,
                                  .is_post = true},
    [LM_GRPC_MODEL_LOAD] = {.path = "/v2/repository/models/*/load",
                            .name = 2,
                            .body = ALL_FIELDS,
                            .is_post = true},
    [LM_GRPC_MODEL_UNLOAD] = {.path = "/v2/repository/models/*/unload",
                              .name = 2,
                              .body = ALL_FIELDS,
                              .is_post = true},
    [LM_GRPC_SYSTEM_SHM_STATUS] = {.path = "/v2/systemsharedmemory/region/*/status",
                                   .nameless = "/v2/systemsharedmemory/status",
                                   .name = 1},
    [LM_GRPC_SYSTEM_SHM_REGISTER] = {.path = "/v2/systemsharedmemory/region/*/register",
                                     .name = 1,
                                     .body = ALL_FIELDS,
                                     .is_post = true},
    [LM_GRPC_SYSTEM_SHM_UNREGISTER] = {.path = "/v2/systemsharedmemory/region/*/unregister",
                                       .nameless = "/v2/systemsharedmemory/unregister",
                                       .name = 1,
                                       .is_post = true},
    [LM_GRPC_CUDA_SHM_STATUS] = {.path = "/v2/cudasharedmemory/region/*/status",
                                 .nameless = "/v2/cudasharedmemory/status",
                                 .name = 1},
    [LM_GRPC_CUDA_SHM_REGISTER] = {.path = "/v2/cudasharedmemory/region/*/register",
                                   .name = 1,
                                   .body = ALL_FIELDS,
                                   .is_post = true},
    [LM_GRPC_CUDA_SHM_UNREGISTER] = {.path = "/v2/cudasharedmemory/region/*/unregister",
                                     .nameless = "/v2/cudasharedmemory/unregister",
                                     .name = 1,
                                     .is_post = true},
    [LM_GRPC_TRACE_SETTING] = {.path = "/v2/models/*/trace/setting",
                               .nameless = "/v2/trace/setting",
                               .name = 2,
                               .body = FIRST_FIELD},
    [LM_GRPC_LOG_SETTINGS] = {.nameless = "/v2/logging", .body = FIRST_FIELD},
    [LM_GRPC_CHECK] = {.path = "/v2/models/*/ready", .nameless = "/v2/health/ready", .name = 1},
    [LM_GRPC_WATCH] = {.path = "/v2/models/*/ready", .nameless = "/v2/health/ready", .name = 1},
};

/* Fields that say where to, not what. */
static const char *const names[] = {"name", "model_name", "repository_name", NULL};

/* Percent-encoded, but for what no path takes for more than a letter. */
static void put_segment(struct lm_grpc_text *line, struct lm_pb_field text) {
    static const char digits[] = "0123456789ABCDEF";
    for (uint64_t i = 0; i < text.value; i++) {
        const char byte = (char)text.bytes[i];
        const char escaped[3] = {'%', digits[text.bytes[i] >> 4], digits[text.bytes[i] & 15]};
        const bool is_plain = lm_http_byte_is(byte, LM_BYTE_TOKEN) && byte != '%';
        lm_grpc_put(line, is_plain ? &byte : escaped, is_plain ? 1 : 3);
    }
}

static void put_path(struct lm_grpc_text *line, const char *path, struct lm_pb_field name,
                     struct lm_pb_field version) {
    for (; *path; path++) {
        if (*path == '*') {
            put_segment(line, name);
        } else if (*path == '#') {
            if (version.value) lm_grpc_puts(line, "/versions/");
            put_segment(line, version);
        } else {
            lm_grpc_put(line, path, 1);
        }
    }
}

static bool has_field(const uint8_t *message, size_t bytes, uint32_t number) {
    struct lm_pb_reader reader = lm_pb_reader(message, bytes);
    struct lm_pb_field field;
    bool has = false;
    while (lm_pb_next(&reader, &field)) has = has || field.number == number;
    return has;
}

const char *lm_grpc_route(enum lm_grpc_method_index method, const uint8_t *message, size_t bytes,
                          struct lm_grpc_text *line, struct lm_grpc_text *body) {
    const struct route *route = &routes[method];
    const struct lm_grpc_message *request = lm_grpc_methods[method].request;
    struct lm_pb_field name = {.bytes = (const uint8_t *)""}, version = name;
    if (route->name) name = lm_grpc_string_of(message, bytes, route->name);
    if (route->version) version = lm_grpc_string_of(message, bytes, route->version);
    const char *service = lm_grpc_services[LM_GRPC_INFERENCE];
    const bool is_health = method == LM_GRPC_CHECK || method == LM_GRPC_WATCH;
    if (is_health && name.value == strlen(service) && memcmp(name.bytes, service, name.value) == 0)
        name.value = 0; /* the service as a whole */
    if (!name.value && !route->nameless)
        return "the message names no model or region: expected its name";
    if (route->body == ALL_FIELDS) lm_grpc_put_message(body, request, message, bytes, names);
    const bool has_first =
        route->body == FIRST_FIELD && has_field(message, bytes, request->fields[0].number);
    if (has_first) lm_grpc_put_field(body, &request->fields[0], message, bytes);
    lm_grpc_puts(line, route->is_post || has_first ? "POST " : "GET ");
    put_path(line, name.value ? route->path : route->nameless, name, version);
    lm_grpc_puts(line, " HTTP/1.1\r\n");
    if (line->is_full || body->is_full) return "the message is too long";
    return line->is_bad || body->is_bad ? "the bytes are none of the method's message" : NULL;
}
