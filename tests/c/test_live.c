/* test_live.c: models that are loaded, replaced and unloaded in a running server: what clients see,
 * what is refused, and that nothing is left of a model that went; also while clients ask without a
 * pause. LUMEN_ORT names libonnxruntime.so. */
#include <pthread.h>

#include "base/clock.h"
#include "flow/reload.h"
#include "live.h"

enum { CLIENTS = 3, ROUNDS = 60 };

static lumen_server *start_in(uint64_t arena_bytes, uint32_t queue_type, uint32_t allocator_type,
                              uint32_t batch_size) {
    lumen_config config = config_of(queue_type, allocator_type, batch_size);
    config.arena_bytes = arena_bytes;
    return start_with(&config);
}

static lumen_server *start(uint32_t queue_type, uint32_t allocator_type, uint32_t batch_size) {
    return start_in(16 << 20, queue_type, allocator_type, batch_size);
}

static bool describes(lumen_server *server, const char *text) {
    static char found[65536];
    int64_t bytes = lumen_describe(server, found, sizeof found - 1);
    CHECK(bytes > 0 && (size_t)bytes < sizeof found);
    found[bytes] = '\0';
    return strstr(found, text) != NULL;
}

/* ---- coming and going ---- */

static void come_and_go(uint32_t queue_type, uint32_t allocator_type, uint32_t batch_size) {
    lumen_server *server = start(queue_type, allocator_type, batch_size);
    int fd = dial(server), other = dial(server);
    lumen_model_config second = model_of("second", 1);
    uint32_t index = 77;
    lumen_info info;
    CHECK(ask(fd, 0) == 3 && ask(other, 0) == 3 && ask(fd, 1) == GONE);
    CHECK(lumen_load_model(server, &second, 0, &index) == 0 && index == 1);
    CHECK(ask(fd, 1) == -3 && ask(other, 1) == -3 && ask(fd, 0) == 3);
    CHECK(lumen_get_info(server, &info) == 0 && info.models == 2);
    second = model_of("second", 2);
    CHECK(lumen_load_model(server, &second, LUMEN_LOAD_GENTLY, &index) == 0 && index == 1);
    CHECK(ask(fd, 1) == 6 && ask(other, 1) == 6);
    CHECK(describes(server, "\"name\":\"second\"") && lumen_settle(server, 10000) == 0);
    CHECK(lumen_unload_model(server, "second") == 0);
    CHECK(ask(fd, 1) == GONE && ask(other, 0) == 3 && !describes(server, "\"name\":\"second\""));
    /* The last one may go, and every name has its index back. */
    CHECK(lumen_unload_model(server, "first") == 0 && ask(fd, 0) == GONE && ask(fd, 9) == GONE);
    lumen_model_config third = model_of("third", 2), first = model_of("first", 1);
    CHECK(lumen_load_model(server, &third, 0, &index) == 0 && index == 2);
    CHECK(lumen_load_model(server, &first, 0, &index) == 0 && index == 0);
    CHECK(lumen_load_model(server, &second, 0, &index) == 0 && index == 1);
    CHECK(ask(fd, 0) == -3 && ask(fd, 1) == 6 && ask(fd, 2) == 6);
    CHECK(lumen_settle(server, 10000) == 0 && server->set->retired == NULL);
    for (uint32_t m = 0; m < 3; m++) CHECK(server->set->models[m]->sets == 1);
    close(fd);
    close(other);
    lumen_close(server);
}

/* What cannot be loaded or unloaded, and that nothing has changed then. */
static void refused(void) {
    lumen_server *server = start(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    const struct lm_model_set *before = server->set;
    lumen_model_config model = model_of("second", 1), large = model_of("large", 3);
    const lumen_expert experts[] = {{.model = 0, .bound = 1}, {.model = 1}};
    const lumen_experts_config rule = {
        .feature = LUMEN_FEATURE_MEAN, .count = 2, .experts = experts};
    uint32_t index = 0;
    int fd = dial(server);
    says(lumen_unload_model(server, "second"), LUMEN_E_INVALID, "no model 'second' is served");
    says(lumen_load_model(server, &model, 2, &index), LUMEN_E_INVALID, "unknown flags 0x2");
    model.path = "/nowhere.onnx";
    CHECK(lumen_load_model(server, &model, 0, &index) < 0);
    model = model_of("second", 1);
    model.rate = -1;
    says(lumen_load_model(server, &model, 0, &index), LUMEN_E_INVALID, "model 'second': rate");
    model.rate = 0;
    model.batch_size = LM_BATCH_MAX + 1;
    says(lumen_load_model(server, &model, 0, &index), LUMEN_E_INVALID, "found 257");
    says(lumen_load_model(server, &large, 0, &index), LUMEN_E_INVALID,
         "server.max_request_bytes: expected at least 80000");
    CHECK(server->set == before && ask(fd, 0) == 3 && ask(fd, 1) == GONE);
    CHECK(server->shared.stats.header->model_count == 1);
    model.batch_size = 0;
    CHECK(lumen_load_model(server, &model, 0, &index) == 0 && index == 1);
    /* Experts of a virtual model stay. */
    lumen_model_config virtual = {
        .name = "either", .experts = &rule, .intra_op_threads = 1, .batch_delay_us = UINT32_MAX};
    CHECK(lumen_load_model(server, &virtual, 0, &index) == 0 && index == 2);
    CHECK(ask(fd, 2) == -3); /* a mean of 3 is not below 1 */
    says(lumen_unload_model(server, "second"), LUMEN_E_INVALID,
         "model 'second' is run by 'either', a virtual model: unload 'either' first");
    says(lumen_load_model(server, &model, 0, &index), LUMEN_E_INVALID, "is run by 'either'");
    CHECK(lumen_unload_model(server, "either") == 0 && lumen_unload_model(server, "second") == 0);
    CHECK(ask(fd, 2) == GONE && ask(fd, 0) == 3 && lumen_settle(server, 10000) == 0);
    close(fd);
    lumen_close(server);
}

/* ---- larger tensors ---- */

/* Whether the model negates WIDE numbers. */
static bool negates(int fd, uint16_t model) {
    static float values[WIDE];
    uint8_t request[LM_NATIVE_REQUEST_BYTES] = "LMN1\1", reply[LM_NATIVE_REPLY_BYTES];
    const uint32_t payload = sizeof values;
    uint16_t status;
    for (int v = 0; v < WIDE; v++) values[v] = (float)(v % 100) + 1;
    memcpy(request + 6, &model, 2);
    memcpy(request + 16, &payload, 4);
    CHECK(send(fd, request, sizeof request, MSG_NOSIGNAL) == (ssize_t)sizeof request);
    CHECK(send(fd, values, sizeof values, MSG_NOSIGNAL) == (ssize_t)sizeof values);
    CHECK(recv(fd, reply, sizeof reply, MSG_WAITALL) == (ssize_t)sizeof reply);
    memcpy(&status, reply + 4, 2);
    CHECK_AT("status %u", status);
    if (status != LM_STATUS_OK) return false;
    CHECK(recv(fd, values, sizeof values, MSG_WAITALL) == (ssize_t)sizeof values);
    for (int v = 0; v < WIDE; v++) {
        if (values[v] != -((float)(v % 100) + 1)) return false;
    }
    return true;
}

/* A model whose requests fit no slot brings some along, and they go with it. */
static void larger(uint32_t allocator_type) {
    lumen_server *server = start(LUMEN_QUEUE_MPMC, allocator_type, 1);
    lumen_model_config wide = model_of("wide", 4), second = model_of("second", 1);
    lumen_info before, with, after;
    uint32_t index;
    int fd = dial(server), other = dial(server);
    CHECK(lumen_get_info(server, &before) == 0);
    for (int round = 0; round < 3; round++) {
        CHECK_AT("allocator %u, round %d: %s", allocator_type, round, lm_error_last());
        CHECK(lumen_load_model(server, &wide, 0, &index) == 0 && index == 1);
        for (int n = 0; n < 10; n++) CHECK(negates(fd, 1) && negates(other, 1) && ask(fd, 0) == 3);
        CHECK(lumen_get_info(server, &with) == 0 && with.slots > before.slots);
        if (allocator_type == LUMEN_ALLOCATOR_ARENA)
            CHECK(with.arena_bytes >= before.arena_bytes + 2 * 2 * 8 * sizeof(float) * WIDE);
        /* The next ones find them there. */
        CHECK(lumen_load_model(server, &wide, 0, &index) == 0 && negates(fd, 1));
        CHECK(lumen_load_model(server, &second, 0, &index) == 0 && index == 2);
        CHECK(lumen_settle(server, 10000) == 0 && negates(other, 1) && ask(fd, 2) == -3);
        CHECK(lumen_get_info(server, &after) == 0 && after.slots == with.slots);
        CHECK(lumen_unload_model(server, "wide") == 0 && lumen_settle(server, 10000) == 0);
        CHECK(lumen_get_info(server, &after) == 0 && after.slots == before.slots);
        CHECK(after.arena_bytes == before.arena_bytes && ask(fd, 2) == -3 && ask(other, 0) == 3);
    }
    close(fd);
    close(other);
    lumen_close(server);
    /* Where there is no room for them, nothing changes. */
    server = start_in(640 << 10, LUMEN_QUEUE_MPMC, allocator_type, 1);
    fd = dial(server);
    CHECK(lumen_get_info(server, &before) == 0);
    says(lumen_load_model(server, &wide, 0, &index), LUMEN_E_INVALID,
         "model 'wide': a row needs a slot of 121472 bytes, of which each I/O thread has 2");
    CHECK(lumen_settle(server, 10000) == 0 && ask(fd, 0) == 3 && ask(fd, 1) == GONE);
    CHECK(lumen_get_info(server, &after) == 0 && after.slots == before.slots);
    close(fd);
    lumen_close(server);
}

/* A model's rate comes and goes with it, and the others' go on. */
static void rates(void) {
    lumen_server *server = start(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    lumen_model_config model = model_of("second", 1);
    uint32_t index;
    model.rate = 1e-3, model.burst = 5;
    CHECK(lumen_load_model(server, &model, 0, &index) == 0);
    struct lm_access *access = lm_reload_in_force(&server->shared);
    CHECK(lm_token_bucket_acquire(&access->model_buckets[1], 4, lm_now_ns()));
    CHECK(lumen_load_model(server, &model, 0, &index) == 0); /* the same rate: what is spent is */
    access = lm_reload_in_force(&server->shared);
    CHECK(!lm_token_bucket_acquire(&access->model_buckets[1], 2, lm_now_ns()));
    model.burst = 6;
    CHECK(lumen_load_model(server, &model, 0, &index) == 0);
    access = lm_reload_in_force(&server->shared);
    CHECK(lm_token_bucket_acquire(&access->model_buckets[1], 6, lm_now_ns()));
    CHECK(lm_token_bucket_acquire(&access->model_buckets[0], 1000, lm_now_ns()));
    lumen_close(server);
}

/* ---- ever new names ---- */

static uint32_t rounds_of_names(void) {
    const char *text = getenv("LUMEN_LIVE_NAMES"); /* 10000 in the long form */
    return text ? (uint32_t)strtoul(text, NULL, 10) : 300;
}

/* By which native clients call the model. */
static uint16_t number_of(lumen_server *server, const char *name) {
    const struct lm_model *model = lm_model_set_named(server->set, name);
    CHECK_AT("%s", name);
    CHECK(model);
    return (uint16_t)model->number;
}

/* Reads the statistics of a name, and checks that the figures are its own. */
static uint64_t answered(lumen_server *server, const char *name) {
    struct lm_shared *shared = &server->shared;
    const uint32_t m = lm_stats_find_model(&shared->stats, name);
    uint64_t sum = 0;
    if (m == LUMEN_MODELS_MAX) return UINT64_MAX;
    for (uint32_t w = 0; w < shared->worker_count; w++) {
        struct lm_stats_block *block = lm_stats_worker_block(&shared->stats, w);
        const struct lm_model_histogram *times = &block->models[m].stages[LM_MODEL_STAGE_TOTAL];
        uint64_t ok = lm_load_relaxed_u64(&block->models[m].worker.model_ok), seen = 0;
        for (uint32_t b = 0; b < LM_MODEL_HISTOGRAM_BUCKETS; b++)
            seen += lm_load_relaxed_u64(&times->buckets[b]);
        CHECK_AT("%s: %llu answers, %llu times", name, (unsigned long long)ok,
                 (unsigned long long)seen);
        CHECK(seen <= ok);
        sum += ok;
    }
    return sum;
}

/* Loads and unloads names that were never there: each begins anew, and nobody who still calls an
 * old one reaches another model. */
static void new_names(uint32_t rounds) {
    enum { KEPT = 70 };
    lumen_server *server = start(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    uint16_t old[KEPT] = {0};
    char name[32], before[32] = "";
    int fd = dial(server);
    for (uint32_t n = 0; n < rounds; n++) {
        uint32_t index;
        snprintf(name, sizeof name, "m%u", n);
        lumen_model_config model = model_of(name, 1 + (int)(n % 2));
        model.rate = 1e-3, model.burst = 2; /* one that goes over would soon be empty */
        CHECK_AT("%s: %s", name, lm_error_last());
        CHECK(lumen_load_model(server, &model, 0, &index) == 0);
        const uint16_t number = number_of(server, name);
        CHECK(answered(server, name) == 0);
        CHECK(ask(fd, number) == (n % 2 ? 6 : -3) && ask(fd, 0) == 3);
        CHECK(lm_stats_find_model(&server->shared.stats, name) == index);
        for (uint32_t k = 0; k < KEPT; k++) {
            if (k < n && old[k]) CHECK(old[k] != number && ask(fd, old[k]) == GONE);
        }
        old[n % KEPT] = number;
        CHECK(lumen_unload_model(server, name) == 0 && ask(fd, number) == GONE);
        CHECK(lumen_settle(server, 10000) == 0);
        CHECK(answered(server, name) == 1);
        /* A name that comes back soon finds its figures. */
        if (n % 10 == 0 && before[0]) {
            model = model_of(before, 1);
            CHECK(lumen_load_model(server, &model, 0, &index) == 0);
            CHECK(answered(server, before) == 1 && lumen_unload_model(server, before) == 0);
        }
        memcpy(before, name, sizeof before);
    }
    CHECK(server->shared.stats.header->model_count <= KEPT); /* names that went give their places */
    if (rounds > KEPT) CHECK(answered(server, "m0") == UINT64_MAX);
    close(fd);
    lumen_close(server);
}

/* A worker records the time of an answer once it is sent. */
static bool is_longest_idle(lumen_server *server, const char *expected) {
    char name[32] = "";
    for (int tries = 0; tries < 5000 && strcmp(name, expected) != 0; tries++) {
        if (tries) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        CHECK(lumen_longest_idle(server, NULL, 0, name, sizeof name) == 0);
    }
    return strcmp(name, expected) == 0;
}

/* The model that nobody has asked for longest, of those that may go. */
static void the_longest_idle(void) {
    enum { TICK_NS = 20000000 }; /* the clock of the last answers is a coarse one */
    lumen_server *server = start(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    const char *const spared[] = {"first", "two"};
    lumen_model_config model = model_of("two", 2);
    char name[32];
    uint32_t index;
    int fd = dial(server);
    CHECK(is_longest_idle(server, "first"));
    nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    CHECK(lumen_load_model(server, &model, 0, &index) == 0);
    CHECK(lumen_longest_idle(server, spared, 1, name, sizeof name) == 0 && !strcmp(name, "two"));
    CHECK(lumen_longest_idle(server, spared, 2, name, sizeof name) == LUMEN_E_INVALID);
    CHECK(lumen_longest_idle(server, spared, 0, name, 3) == LUMEN_E_INVALID);
    nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    CHECK(ask(fd, 0) == 3);
    CHECK(is_longest_idle(server, "two"));
    nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    CHECK(ask(fd, number_of(server, "two")) == 6);
    CHECK(is_longest_idle(server, "first"));
    close(fd);
    lumen_close(server);
}

/* The Runs of one row that the workers have counted for the model at an index, once they are
 * `expected`: a worker counts a Run once it has answered. */
static bool runs_become(lumen_server *server, uint32_t index, uint64_t expected) {
    uint64_t runs = UINT64_MAX;
    for (int tries = 0; tries < 5000 && runs != expected; tries++) {
        if (tries) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        runs = 0;
        for (uint32_t w = 0; w < server->shared.worker_count; w++) {
            const struct lm_worker *worker = &server->workers[w];
            /* relaxed: a counter */
            if (worker->batch_counts)
                runs += lm_load_relaxed_u64(&worker->batch_counts[index][0].runs);
        }
    }
    return runs == expected;
}

/* A name beyond those that there is room for is refused, until one has gone; it then takes the
 * place of that one, and none of its figures. */
static void one_too_many(void) {
    enum { NAMES = 64 };
    lumen_server *server = start(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    server->names_max = NAMES;
    lumen_model_config model = model_of("one", 1);
    uint32_t index;
    char name[32];
    int fd = dial(server);
    for (uint32_t n = 1; n < NAMES; n++) {
        snprintf(name, sizeof name, "m%u", n);
        model = model_of(name, 1);
        CHECK_AT("%s: %s", name, lm_error_last());
        CHECK(lumen_load_model(server, &model, 0, &index) == 0 && index == n);
    }
    model = model_of("one", 2);
    says(lumen_load_model(server, &model, 0, &index), LUMEN_E_INVALID,
         "expected at most 64 names at a time, found 'one' as one more: unload one first");
    CHECK(ask(fd, 7) == -3 && runs_become(server, 7, 1));
    CHECK(lumen_unload_model(server, "m7") == 0);
    CHECK(lumen_load_model(server, &model, 0, &index) == 0 && index == 7);
    CHECK_AT("one at the place of m7");
    CHECK(runs_become(server, 7, 0));
    CHECK(number_of(server, "one") == LUMEN_MODELS_MAX && ask(fd, LUMEN_MODELS_MAX) == 6);
    CHECK(ask(fd, 7) == GONE && ask(fd, 6) == -3);
    close(fd);
    lumen_close(server);
}

/* ---- unloads while something goes on ---- */

struct loader {
    lumen_server *server;
    pthread_t thread;
    int code;
    char error[256];
};

static void *load_one(void *argument) {
    struct loader *loader = argument;
    lumen_model_config model = model_of("coming", 1);
    uint32_t index;
    loader->code = lumen_load_model(loader->server, &model, 0, &index);
    snprintf(loader->error, sizeof loader->error, "%s", lm_error_last());
    return NULL;
}

/* The load has begun, or is even over. */
static bool has_begun(lumen_server *server, const char *name) {
    pthread_mutex_lock(&server->control);
    bool has = server->loading || lm_model_set_named(server->set, name);
    pthread_mutex_unlock(&server->control);
    return has;
}

/* Of another model, and of the one that is being loaded. */
static void unloads_during_a_load(void) {
    lumen_server *server = start(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    struct loader loader = {.server = server};
    lumen_model_config second = model_of("second", 2);
    bool called_off = false;
    uint32_t index;
    for (int round = 0; round < 200 && !called_off; round++) {
        CHECK(lumen_load_model(server, &second, 0, &index) == 0);
        CHECK(pthread_create(&loader.thread, NULL, load_one, &loader) == 0);
        while (!has_begun(server, "coming")) sched_yield();
        CHECK_AT("round %d: %s", round, lm_error_last());
        CHECK(lumen_unload_model(server, "second") == 0);
        /* Before it comes, or behind it: it is not there afterwards. */
        CHECK(lumen_unload_model(server, "coming") == 0);
        pthread_join(loader.thread, NULL);
        called_off = loader.code != 0;
        if (called_off) CHECK(strstr(loader.error, "'coming' was unloaded while it was loaded"));
        CHECK(!lm_model_set_named(server->set, "coming"));
    }
    CHECK(called_off);
    CHECK(lumen_settle(server, 10000) == 0 && server->set->retired == NULL);
    lumen_close(server);
}

/* The second model, then the first one. */
static void *load_chain(void *argument) {
    static const lumen_step_tensor made = {"y", "t"}, taken = {"x", "t"};
    static const lumen_step both[] = {{.model = 1, .output_count = 1, .outputs = &made},
                                      {.model = 0, .input_count = 1, .inputs = &taken}};
    static const lumen_steps_config steps = {.count = 2, .steps = both};
    struct loader *loader = argument;
    lumen_model_config model = {
        .name = "chain", .steps = &steps, .intra_op_threads = 1, .batch_delay_us = UINT32_MAX};
    uint32_t index;
    loader->code = lumen_load_model(loader->server, &model, 0, &index);
    return NULL;
}

/* A step of a virtual model stays, from the moment that its load begins. */
static void unloads_a_step_during_a_load(void) {
    lumen_server *server = start(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    struct loader loader = {.server = server};
    lumen_model_config second = model_of("second", 2);
    bool was_coming = false;
    uint32_t index;
    for (int round = 0; round < 200 && !was_coming; round++) {
        CHECK(lumen_load_model(server, &second, 0, &index) == 0 && index == 1);
        CHECK(pthread_create(&loader.thread, NULL, load_chain, &loader) == 0);
        while (!has_begun(server, "chain")) sched_yield();
        CHECK_AT("chain, round %d", round);
        CHECK(lumen_unload_model(server, "second") == LUMEN_E_INVALID);
        was_coming = strstr(lm_error_last(), "'chain', a virtual model that is being loaded");
        pthread_join(loader.thread, NULL);
        CHECK(loader.code == 0);
        CHECK(lumen_unload_model(server, "chain") == 0);
        CHECK(lumen_unload_model(server, "second") == 0);
    }
    CHECK(was_coming);
    lumen_close(server);
}

/* The control program starts a process of the model: its memory stays until that has ended. */
static void unloads_while_a_process_starts(void) {
    enum { KEY = 7 };
    lumen_config config = config_of(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    lumen_model_config first = model_of("first", 0), apart = model_of("apart", 1);
    lumen_server *server = NULL;
    lumen_process process;
    uint32_t index;
    CHECK_AT("a process that starts");
    apart.isolation = LUMEN_ISOLATION_PROCESS;
    apart.process_key = KEY;
    CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &first, &index) == 0);
    CHECK(lumen_add_model(server, &apart, &index) == 0 && lumen_start(server) == 0);
    CHECK(lumen_next_process(server, KEY, &process) == 0);
    CHECK(lumen_unload_model(server, "apart") == 0);
    CHECK(lumen_settle(server, 200) == LUMEN_E_AGAIN);
    CHECK(lumen_process_ended(server, KEY, 256 + 1) == 0);
    CHECK(lumen_settle(server, 10000) == 0);
    CHECK(lumen_next_process(server, KEY, &process) == LUMEN_E_INVALID);
    lumen_close(server);
}

/* ---- under load ---- */

static lm_atomic_u32 stop;

struct client {
    lumen_server *server;
    pthread_t thread;
    uint64_t answers, gone;
};

/* The first model never changes; the second is one of two, or gone. */
static void *keep_asking(void *argument) {
    struct client *client = argument;
    int fd = dial(client->server);
    bool right = true;
    while (!lm_load_relaxed_u32(&stop)) { /* relaxed: a hint */
        right = right && ask(fd, 0) == 3;
        int found = ask(fd, 1);
        right = right && (found == -3 || found == 6 || found == GONE);
        client->gone += found == GONE;
        client->answers++;
    }
    CHECK(right);
    close(fd);
    return NULL;
}

static void under_load(uint32_t queue_type, uint32_t batch_size) {
    struct client clients[CLIENTS] = {0};
    uint32_t threads = check_threads(), index;
    lumen_server *server = start(queue_type, LUMEN_ALLOCATOR_ARENA, batch_size);
    uint64_t random = check_seed();
    bool there = false;
    lm_store_relaxed_u32(&stop, 0);
    for (int c = 0; c < CLIENTS; c++) {
        clients[c].server = server;
        CHECK(pthread_create(&clients[c].thread, NULL, keep_asking, &clients[c]) == 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        lumen_model_config model = model_of("second", 1 + (int)check_below(&random, 2));
        CHECK_AT("round %d: %s", round, lm_error_last());
        if (there && check_below(&random, 3) == 0) {
            CHECK(lumen_unload_model(server, "second") == 0);
            there = false;
        } else {
            /* Gently once: these clients leave no processor idle. */
            uint32_t flags = round == 0 ? LUMEN_LOAD_GENTLY : 0;
            CHECK(lumen_load_model(server, &model, flags, &index) == 0 && index == 1);
            there = true;
        }
        if (check_below(&random, 4) == 0) CHECK(lumen_settle(server, 10000) == 0);
    }
    CHECK(lumen_settle(server, 10000) == 0 && server->set->retired == NULL);
    lm_store_relaxed_u32(&stop, 1);
    for (int c = 0; c < CLIENTS; c++) {
        pthread_join(clients[c].thread, NULL);
        CHECK(clients[c].answers > 0);
    }
    lumen_close(server);
    CHECK(check_threads_become(threads));
}

int main(void) {
    library = getenv("LUMEN_ORT");
    if (!library) check_skip("test_live", "LUMEN_ORT does not name libonnxruntime.so");
    check_watchdog(getenv("LUMEN_LIVE_NAMES") ? 3600 : 300, "a model that goes");
    make_graphs();
    come_and_go(LUMEN_QUEUE_MPMC, LUMEN_ALLOCATOR_ARENA, 1);
    come_and_go(LUMEN_QUEUE_AUTO, LUMEN_ALLOCATOR_STANDARD, 1);
    come_and_go(LUMEN_QUEUE_INLINE, LUMEN_ALLOCATOR_ARENA, 1);
    come_and_go(LUMEN_QUEUE_BATCHED, LUMEN_ALLOCATOR_ARENA, 4);
    refused();
    larger(LUMEN_ALLOCATOR_ARENA);
    larger(LUMEN_ALLOCATOR_STANDARD);
    rates();
    new_names(rounds_of_names());
    the_longest_idle();
    one_too_many();
    unloads_during_a_load();
    unloads_a_step_during_a_load();
    unloads_while_a_process_starts();
    under_load(LUMEN_QUEUE_AUTO, 1);
    under_load(LUMEN_QUEUE_MPMC, 4);
    check_watchdog(0, "");
    return check_finish("test_live");
}
