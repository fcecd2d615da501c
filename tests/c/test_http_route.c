/* test_http_route.c: every route, its neighbours that are none, and hostile targets at the edge of
 * an unreadable page. Numbers like 32 are rows of the project's list of hostile inputs. */
#include "check.h"
#include "formats/http_route.h"

enum { ROOM = 16384, ANY = -1 };

static struct check_guard guard;
static struct lm_http_match match;

static int find(const char *method, const char *target, size_t target_bytes) {
    struct lm_http_head head = {.method = LM_HTTP_OTHER};
    char *bytes = (char *)check_guard_tail(&guard, target_bytes);
    memcpy(bytes, target, target_bytes);
    if (strcmp(method, "GET") == 0) head.method = LM_HTTP_GET;
    if (strcmp(method, "HEAD") == 0) head.method = LM_HTTP_HEAD;
    if (strcmp(method, "POST") == 0) head.method = LM_HTTP_POST;
    if (strcmp(method, "PUT") == 0) head.method = LM_HTTP_PUT;
    head.method_name = (struct lm_slice){method, strlen(method)};
    head.target = (struct lm_slice){bytes, target_bytes};
    memset(&match, 0xff, sizeof match);
    int status = lm_http_find_route(&head, &match);
    CHECK(match.name_bytes < LM_NAME_BYTES_MAX);
    CHECK((status == 405) <= (match.allow != NULL));
    CHECK(match.no_body == (head.method == LM_HTTP_HEAD));
    CHECK((status != 400 && status != 421 && status != 501) || match.why);
    if (status != 200) return status;
    CHECK(match.name[match.name_bytes] == '\0' && strlen(match.name) == match.name_bytes);
    for (const char *at = match.name; *at; at++) CHECK(*at >= ' ' && *at < 0x7f && *at != '/');
    return status;
}

static const struct found {
    const char *method;
    const char *target;
    enum lm_http_route route;
    const char *name;
    int64_t version;
} found[] = {
    {"GET", "/", LM_ROUTE_PAGE, "", ANY},
    {"GET", "/figures", LM_ROUTE_FIGURES, "", ANY},
    {"HEAD", "/", LM_ROUTE_PAGE, "", ANY},
    {"GET", "/?a=/v2", LM_ROUTE_PAGE, "", ANY},
    /* RFC 9112 3.2.2: a whole URI */
    {"GET", "http://h?a=/v2", LM_ROUTE_PAGE, "", ANY},
    {"HEAD", "HTTP://h:80", LM_ROUTE_PAGE, "", ANY},
    {"GET", "http://h/v2", LM_ROUTE_SERVER_METADATA, "", ANY},
    {"POST", "http://[::1]:8000/v2/models/m/infer?x", LM_ROUTE_INFER, "m", ANY},
    {"GET", "/v2", LM_ROUTE_SERVER_METADATA, "", ANY},
    {"GET", "/v2/health/live", LM_ROUTE_LIVE, "", ANY},
    {"GET", "/v2/health/ready", LM_ROUTE_READY, "", ANY},
    {"HEAD", "/v2/health/ready?x", LM_ROUTE_READY, "", ANY},
    {"GET", "/v2/models/m/ready", LM_ROUTE_MODEL_READY, "m", ANY},
    {"GET", "/v2/models/m/versions/1/ready", LM_ROUTE_MODEL_READY, "m", 1},
    {"GET", "/v2/models/m", LM_ROUTE_MODEL_METADATA, "m", ANY},
    {"GET", "/v2/models/m/versions/12", LM_ROUTE_MODEL_METADATA, "m", 12},
    {"GET", "/v2/models/m/config", LM_ROUTE_MODEL_CONFIG, "m", ANY},
    {"GET", "/v2/models/m/versions/0/config", LM_ROUTE_MODEL_CONFIG, "m", 0},
    {"GET", "/v2/models/stats", LM_ROUTE_ALL_STATS, "", ANY},
    {"GET", "/v2/models/st%61ts", LM_ROUTE_MODEL_METADATA, "stats", ANY},
    {"GET", "/v2/models/stats/stats", LM_ROUTE_MODEL_STATS, "stats", ANY},
    {"GET", "/v2/models/m/stats", LM_ROUTE_MODEL_STATS, "m", ANY},
    {"GET", "/v2/models/m/versions/007/stats", LM_ROUTE_MODEL_STATS, "m", 7},
    {"POST", "/v2/models/m/infer", LM_ROUTE_INFER, "m", ANY},
    {"POST", "/v2/models/m/infer?", LM_ROUTE_INFER, "m", ANY},
    {"PUT", "/v2/models/m/infer", LM_ROUTE_INFER, "m", ANY},
    {"PUT", "/v2/models/m/versions/1/infer?a&&top=255&stop=0", LM_ROUTE_INFER, "m", 1},
    {"POST", "/v1/models/m:predict", LM_ROUTE_PREDICT, "m", ANY},
    {"POST", "/v1/models/m%3Apredict:predict?x", LM_ROUTE_PREDICT, "m:predict", ANY},
    {"POST", "/v1/models/m:predict:predict", LM_ROUTE_PREDICT, "m:predict", ANY},
    {"POST", "/v1/models/m/versions/1:predict", LM_ROUTE_PREDICT, "m", 1},
    {"GET", "/v1/models", LM_ROUTE_V1_MODELS, "", ANY},
    {"GET", "/v1/models/m", LM_ROUTE_V1_MODEL, "m", ANY},
    {"GET", "/v1/models/m:predicts", LM_ROUTE_V1_MODEL, "m:predicts", ANY},
    {"GET", "/v1/models/m/versions/2", LM_ROUTE_V1_MODEL, "m", 2},
    {"GET", "/v1/models/m/metadata", LM_ROUTE_V1_METADATA, "m", ANY},
    {"GET", "/v1/models/m/versions/2/metadata", LM_ROUTE_V1_METADATA, "m", 2},
    {"POST", "/invocations", LM_ROUTE_INVOCATIONS, "", ANY},
    {"POST", "/invocations?", LM_ROUTE_INVOCATIONS, "", ANY},
    {"POST", "/invocations?model=m", LM_ROUTE_INVOCATIONS, "m", ANY},
    {"POST", "/invocations?a=b&model=m%2e&&c", LM_ROUTE_INVOCATIONS, "m.", ANY},
    {"POST", "/invocations?models=m&amodel=n", LM_ROUTE_INVOCATIONS, "", ANY},
    {"GET", "/ping", LM_ROUTE_READY, "", ANY},
    {"GET", "/health", LM_ROUTE_READY, "", ANY},
    {"POST", "/v2/models/m/versions/4294967294/infer", LM_ROUTE_INFER, "m", 4294967294},
    {"POST", "/v2/models/ResNet-50_v1.2/infer", LM_ROUTE_INFER, "ResNet-50_v1.2", ANY},
    {"POST", "/v2/models/a%20b%2Bc%7e/infer", LM_ROUTE_INFER, "a b+c~", ANY},
    {"POST", "/v2/models/../infer", LM_ROUTE_INFER, "..", ANY}, /* a name, and nobody's */
    {"POST", "/v2/models/%252e/infer", LM_ROUTE_INFER, "%2e", ANY},
    {"POST", "/v2/repository/index", LM_ROUTE_REPOSITORY_INDEX, "", ANY},
    {"POST", "/v2/repository/models/m/load", LM_ROUTE_REPOSITORY_LOAD, "m", ANY},
    {"POST", "/v2/repository/models/m/unload", LM_ROUTE_REPOSITORY_UNLOAD, "m", ANY},
    {"GET", "/v2/systemsharedmemory/status", LM_ROUTE_SYSTEM_SHM_STATUS, "", ANY},
    {"GET", "/v2/systemsharedmemory/region/r/status", LM_ROUTE_SYSTEM_SHM_STATUS, "r", ANY},
    {"POST", "/v2/systemsharedmemory/region/r/register", LM_ROUTE_SYSTEM_SHM_REGISTER, "r", ANY},
    {"POST", "/v2/systemsharedmemory/unregister", LM_ROUTE_SYSTEM_SHM_UNREGISTER, "", ANY},
    {"POST", "/v2/systemsharedmemory/region/r/unregister", LM_ROUTE_SYSTEM_SHM_UNREGISTER, "r",
     ANY},
    {"GET", "/v2/cudasharedmemory/status", LM_ROUTE_CUDA_SHM_STATUS, "", ANY},
    {"GET", "/v2/cudasharedmemory/region/r/status", LM_ROUTE_CUDA_SHM_STATUS, "r", ANY},
    {"POST", "/v2/cudasharedmemory/region/r/register", LM_ROUTE_CUDA_SHM_REGISTER, "r", ANY},
    {"POST", "/v2/cudasharedmemory/unregister", LM_ROUTE_CUDA_SHM_UNREGISTER, "", ANY},
    {"POST", "/v2/cudasharedmemory/region/r/unregister", LM_ROUTE_CUDA_SHM_UNREGISTER, "r", ANY},
    {"GET", "/v2/trace/setting", LM_ROUTE_TRACE_SETTING, "", ANY},
    {"POST", "/v2/trace/setting", LM_ROUTE_TRACE_SETTING, "", ANY},
    {"GET", "/v2/models/m/trace/setting", LM_ROUTE_TRACE_SETTING, "m", ANY},
    {"POST", "/v2/models/m/trace/setting", LM_ROUTE_TRACE_SETTING, "m", ANY},
    {"GET", "/v2/logging", LM_ROUTE_LOGGING, "", ANY},
    {"POST", "/v2/logging", LM_ROUTE_LOGGING, "", ANY},
    {"POST", "/v1/chat/completions", LM_ROUTE_CHAT, "", ANY},
    {"POST", "/v1/completions", LM_ROUTE_COMPLETIONS, "", ANY},
    {"POST", "/v1/responses", LM_ROUTE_RESPONSES, "", ANY},
    {"POST", "/v1/embeddings", LM_ROUTE_EMBEDDINGS, "", ANY},
    {"POST", "/embeddings", LM_ROUTE_EMBEDDINGS, "", ANY},
    {"POST", "/", LM_ROUTE_TEXTS, "", ANY},
    {"POST", "/embed", LM_ROUTE_EMBED, "", ANY},
    {"POST", "/predict", LM_ROUTE_PREDICT_TEXT, "", ANY},
    {"POST", "/v1/models/ner:entities", LM_ROUTE_ENTITIES, "ner", ANY},
    {"POST", "/v1/models/a:b/versions/3:entities", LM_ROUTE_ENTITIES, "a:b", 3},
    {"POST", "/embed_all", LM_ROUTE_EMBED_ALL, "", ANY},
    {"POST", "/tokenize", LM_ROUTE_TOKENIZE, "", ANY},
    {"POST", "/decode", LM_ROUTE_DECODE, "", ANY},
    {"GET", "/info", LM_ROUTE_INFO, "", ANY},
    {"POST", "/similarity", LM_ROUTE_SIMILARITY, "", ANY},
    {"POST", "/rerank", LM_ROUTE_RERANK, "", ANY},
    {"POST", "/v1/rerank", LM_ROUTE_RERANK_V1, "", ANY},
    {"POST", "/v2/rerank", LM_ROUTE_RERANK_V2, "", ANY},
};

static void routes(void) {
    uint64_t seen = 0;
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        CHECK_AT("%s %s", found[i].method, found[i].target);
        CHECK(find(found[i].method, found[i].target, strlen(found[i].target)) == 200);
        CHECK(match.route == found[i].route && strcmp(match.name, found[i].name) == 0);
        CHECK(match.version ==
              (found[i].version == ANY ? LM_HTTP_VERSION_ANY : (uint32_t)found[i].version));
        seen |= UINT64_C(1) << match.route;
        /* One byte less or more is something else, or a longer name. */
        size_t path_bytes = strcspn(found[i].target, "?");
        bool ends_with_host = found[i].route == LM_ROUTE_PAGE && path_bytes > 1;
        if (ends_with_host) continue;
        if (path_bytes == strlen(found[i].target) && path_bytes > 1 && !match.name[0]) {
            find(found[i].method, found[i].target, path_bytes - 1);
            CHECK(match.name[0] || match.route != found[i].route);
        }
        char longer[128];
        snprintf(longer, sizeof longer, "%.*s/", (int)path_bytes, found[i].target);
        CHECK(find(found[i].method, longer, strlen(longer)) == 404);
    }
    /* None is left out, but for the one that has no path. */
    CHECK((seen | UINT64_C(1) << LM_ROUTE_GRPC_INFER) == (UINT64_C(1) << (int)LM_ROUTE_COUNT) - 1);
}

static const struct refused {
    const char *method;
    const char *target;
    int status;
    const char *allow;
} refused[] = {
    {"PUT", "/", 405, "GET, HEAD, POST"},
    {"POST", "/v2/health/live", 405, "GET, HEAD"},
    {"GET", "/v2/models/m/infer", 405, "POST, PUT"},
    {"HEAD", "/v2/models/m/infer", 405, "POST, PUT"},
    {"PUT", "/v1/models/m:predict", 405, "POST"},
    {"PUT", "/v2/models/m", 405, "GET, HEAD"},
    {"PUT", "/v2/models/m/infer?top=0", 400, NULL},
    {"POST", "/v2/models/m/infer?top=", 400, NULL},
    {"POST", "/v2/models/m/infer?top=256", 400, NULL},
    {"POST", "/v2/models/m/infer?top=1&top=1", 400, NULL},
    {"POST", "/v2/models/m/infer?x&top=1a", 400, NULL},
    {"GET", "/v1/models/m:predict", 405, "POST"},
    {"GET", "/invocations?model=m", 405, "POST"},
    {"POST", "/v1/models/m", 405, "GET, HEAD"},
    {"POST", "/v1/models/:predict", 405, "GET, HEAD"},
    {"POST", "/v1/models/m/versions/:predict", 404, NULL},
    {"POST", "/v1/models/m/versions/1a:predict", 404, NULL},
    {"POST", "/v1/models/m/versions/1:explain", 404, NULL},
    {"POST", "/invocations?model=m&model=n", 400, NULL},
    {"POST", "/invocations?model=a%2", 400, NULL},
    {"POST", "/invocations?model=a/b", 400, NULL},
    {"GET", "/v2/repository/index", 405, "POST"},
    {"PUT", "/v2/logging", 405, "GET, HEAD, POST"},
    {"DELETE", "/v2", 405, "GET, HEAD"},
    {"PATCH", "/v2", 405, "GET, HEAD"},
    {"OPTIONS", "/v2", 405, "GET, HEAD"},
    {"OPTIONS", "*", 405, "GET, HEAD, POST"}, /* 31 */
    {"TRACE", "/", 405, "GET, HEAD, POST"},
    {"GET", "*", 400, NULL},
    {"CONNECT", "h:80", 501, NULL},
    {"CONNECT", "/", 501, NULL},
    {"OPTIONS", "http://h", 405, "GET, HEAD, POST"}, /* RFC 9112 3.2.4: the same as "*" */
    {"OPTIONS", "http://h/", 405, "GET, HEAD, POST"},
    {"OPTIONS", "http://h?x", 405, "GET, HEAD, POST"},
    {"PRI", "*", 501, NULL},
    {"get", "/", 501, NULL},
    {"OPTION", "/", 501, NULL},
    {"OPTIONSX", "/", 501, NULL},
    /* 32 */
    {"GET", "https://h/v2", 421, NULL}, /* RFC 9110 7.4: not over a connection without TLS */
    {"GET", "ftp://h/v2", 421, NULL},
    {"GET", "a+b-c.9://h/v2", 421, NULL},
    {"GET", "httpx://h/v2", 421, NULL},
    {"GET", "zA+.-09://h/v2", 421, NULL},
    {"GET", "Z://h/v2", 421, NULL},
    {"GET", "z{://h/v2", 400, NULL},
    {"GET", "a`://h/v2", 400, NULL},
    {"GET", "a_://h/v2", 400, NULL},
    {"GET", "+a://h/v2", 400, NULL},
    {"GET", "-://h/v2", 400, NULL},
    {"GET", "9http://h/v2", 400, NULL},
    {"GET", "ht_tp://h/v2", 400, NULL},
    {"GET", "://h/v2", 400, NULL},
    {"GET", "http:/v2", 400, NULL},
    {"GET", "http:h/v2", 400, NULL},
    {"GET", "http", 400, NULL},
    {"GET", "http://", 400, NULL}, /* RFC 9110 4.2.1: no http URI is without a host */
    {"GET", "http:///v2", 400, NULL},
    {"GET", "http://:80/v2", 400, NULL},
    {"GET", "http://user@h/v2", 400, NULL}, /* RFC 9110 4.2.4 */
    {"GET", "http://user:word@h/v2", 400, NULL},
    {"GET", "http://h:x/v2", 400, NULL},
    {"GET", "http://[::1/v2", 400, NULL},
    {"GET", "http://h#/v2", 400, NULL},
    {"GET", "http://h/v2/models/%", 400, NULL},
    {"GET", "http://h//v2", 404, NULL},
    {"GET", "http://h/http://h/v2", 404, NULL},
    {"PUT", "http://h/v2", 405, "GET, HEAD"},
    {"GET", "h:80", 400, NULL},
    {"GET", "?", 400, NULL},
    {"GET", "//", 404, NULL},
    {"GET", "//v2", 404, NULL},
    {"GET", "/V2", 404, NULL},
    {"GET", "/v2/", 404, NULL},
    {"GET", "/v2/../v2", 404, NULL},
    {"GET", "/%76%32", 404, NULL},
    {"GET", "/v2;x", 404, NULL},
    {"GET", "/v2#x", 404, NULL},
    {"GET", "/v3", 404, NULL},
    {"GET", "/v2/health", 404, NULL},
    {"GET", "/v2/health/", 404, NULL},
    {"GET", "/%zz", 404, NULL},
    {"GET", "/v2/models", 404, NULL},
    {"GET", "/v2/models/", 404, NULL},
    {"GET", "/v2/models//ready", 404, NULL},
    {"POST", "/v2/models/m/generate", 404, NULL},
    {"POST", "/v2/models/m//infer", 404, NULL},
    {"POST", "/v2/models/a/b/infer", 404, NULL},
    {"GET", "/v2/models/%", 400, NULL},
    {"GET", "/v2/models/%2", 400, NULL},
    {"GET", "/v2/models/%zz", 400, NULL},
    {"GET", "/v2/models/a%2gb", 400, NULL},
    {"GET", "/v2/models/%00", 400, NULL},
    {"GET", "/v2/models/m%00/ready", 400, NULL},
    {"GET", "/v2/models/%2e%2e%2fm", 400, NULL},
    {"GET", "/v2/models/a%2Fb/ready", 400, NULL},
    {"GET", "/v2/models/%ff", 400, NULL},
    {"GET", "/v2/models/%c0%af", 400, NULL},
    {"GET", "/v2/models/a%0d%0ab", 400, NULL}, /* 46 */
    {"GET", "/v2/models/%1b", 400, NULL},
    {"GET", "/v2/models/%7f", 400, NULL},
    /* 13 */
    {"POST", "/v2/models/m/versions/infer", 404, NULL},
    {"POST", "/v2/models/m/versions//infer", 404, NULL},
    {"POST", "/v2/models/m/versions/-1/infer", 404, NULL},
    {"POST", "/v2/models/m/versions/1.0/infer", 404, NULL},
    {"POST", "/v2/models/m/versions/latest/infer", 404, NULL},
    {"POST", "/v2/models/m/versions/%31/infer", 404, NULL},
    {"POST", "/v2/models/m/versions/4294967295/infer", 404, NULL},
    {"POST", "/v2/models/m/versions/9223372036854775808/infer", 404, NULL},
    {"POST", "/v2/models/m/versions/18446744073709551617/infer", 404, NULL},
    {"POST", "/v2/models/m/versions/1/trace/setting", 404, NULL},
    {"POST", "/v2/systemsharedmemory/register", 404, NULL},
    {"POST", "/v2/systemsharedmemory/region//register", 404, NULL},
    {"POST", "/v2/systemsharedmemory/region/%2f..%2fx/register", 400, NULL}, /* 20 */
};

static void refusals(void) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        CHECK_AT("%s %s", refused[i].method, refused[i].target);
        CHECK(find(refused[i].method, refused[i].target, strlen(refused[i].target)) ==
              refused[i].status);
        if (refused[i].allow) CHECK(strcmp(match.allow, refused[i].allow) == 0);
    }
    CHECK(find("GET", "", 0) == 400);
}

static void classes_asked_for(void) {
    static const struct {
        const char *target;
        uint8_t top;
    } cases[] = {{"/v2/models/m/infer", 0},
                 {"/v2/models/m/infer?stop=3", 0},
                 {"/v2/models/m/infer?top=1", 1},
                 {"/v2/models/m/infer?a=b&top=255&c", 255},
                 {"/v2/models/m/infer?top=010", 10}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_AT("%s", cases[i].target);
        CHECK(find("PUT", cases[i].target, strlen(cases[i].target)) == 200);
        CHECK(match.top == cases[i].top);
    }
}

static bool host_is(const char *text) {
    return match.host.bytes == strlen(text) && memcmp(match.host.at, text, match.host.bytes) == 0;
}

/* RFC 9112 3.2.2: the target's host counts, and the Host header's is not looked at. */
static void hosts(void) {
    struct lm_http_head head = {.method = LM_HTTP_GET, .host = {"one:1", 5}};
    head.target = (struct lm_slice){"/v2", 3};
    CHECK(lm_http_find_route(&head, &match) == 200 && host_is("one:1"));
    head.target = (struct lm_slice){"http://two:2/v2", 15};
    CHECK(lm_http_find_route(&head, &match) == 200 && host_is("two:2"));
    head.target = (struct lm_slice){"http://two", 10};
    CHECK(lm_http_find_route(&head, &match) == 200 && host_is("two"));
    head.host = (struct lm_slice){0};
    head.target = (struct lm_slice){"/v2", 3};
    CHECK(lm_http_find_route(&head, &match) == 200 && !match.host.at);
}

static void long_names(void) {
    static char target[ROOM];
    for (int name_bytes = 1; name_bytes < 8000; name_bytes += name_bytes < 70 ? 1 : 1001) {
        memset(target, 'n', sizeof target);
        memcpy(target, "/v2/models/", 11);
        memcpy(target + 11 + name_bytes, "/infer", 6);
        CHECK_AT("a name of %d bytes", name_bytes);
        CHECK(find("POST", target, (size_t)(11 + name_bytes + 6)) ==
              (name_bytes < LM_NAME_BYTES_MAX ? 200 : 404));
    }
}

/* The words for routes in the access log: one each, but for shared memory and ranking. */
static void names_of_routes(void) {
    static const char *const names[] = {"page",
                                        "figures",
                                        "live",
                                        "ready",
                                        "server_metadata",
                                        "model_ready",
                                        "model_metadata",
                                        "model_config",
                                        "model_stats",
                                        "stats",
                                        "infer",
                                        "infer",
                                        "predict",
                                        "invocations",
                                        "v1_models",
                                        "v1_model",
                                        "v1_metadata",
                                        "info",
                                        "repository_index",
                                        "load",
                                        "unload",
                                        "shared_memory",
                                        "shared_memory",
                                        "shared_memory",
                                        "shared_memory",
                                        "shared_memory",
                                        "shared_memory",
                                        "trace_setting",
                                        "logging",
                                        "embeddings",
                                        "texts",
                                        "embed",
                                        "embed_all",
                                        "tokenize",
                                        "decode",
                                        "predict_text",
                                        "similarity",
                                        "rerank",
                                        "rerank",
                                        "rerank",
                                        "chat",
                                        "completions",
                                        "responses",
                                        "entities"};
    enum { NAMES = sizeof names / sizeof names[0] };
    _Static_assert((int)NAMES == (int)LM_ROUTE_COUNT, "each has a word");
    for (uint8_t r = 0; r < NAMES; r++) {
        CHECK_AT("route %u", r);
        CHECK(strcmp(lm_http_route_name(r), names[r]) == 0);
    }
    CHECK(strcmp(lm_http_route_name(NAMES), "unknown") == 0);
    CHECK(strcmp(lm_http_route_name(LM_ROUTE_NONE), "unknown") == 0);
}

/* Random targets made of the routes' own words. */
static void random_targets(uint64_t *random) {
    static const char *const words[] = {"/",        "v2",
                                        "models",   "m",
                                        "versions", "1",
                                        "infer",    "stats",
                                        "ready",    "health",
                                        "%41",      "%",
                                        "config",   "?",
                                        "trace",    "setting",
                                        "\xff",     "region",
                                        "status",   "load",
                                        "%2f",      "systemsharedmemory"};
    uint32_t statuses[3] = {0};
    for (uint32_t i = 0; i < 200000; i++) {
        char target[512] = "/v2";
        for (uint32_t n = 1 + check_below(random, 6); n > 0; n--) {
            if (check_below(random, 8)) strncat(target, "/", 2);
            strncat(target, words[check_below(random, sizeof words / sizeof words[0])], 32);
        }
        CHECK_AT("random target %u: %.100s", i, target);
        int status = find(check_below(random, 2) ? "GET" : "POST", target, strlen(target));
        CHECK(status == 200 || status == 400 || status == 404 || status == 405);
        statuses[status == 200 ? 0 : status == 404 ? 1 : 2]++;
    }
    CHECK(statuses[0] > 1000 && statuses[1] > 1000 && statuses[2] > 1000);
}

int main(void) {
    uint64_t random = check_seed();
    check_guard_open(&guard, ROOM);
    routes();
    refusals();
    classes_asked_for();
    hosts();
    long_names();
    names_of_routes();
    random_targets(&random);
    check_guard_close(&guard);
    return check_finish("test_http_route");
}
