/* test_server.c: every setting is checked against its range and arrives where it is used, each with
 * a value that no other setting has; and the calls of lumen.h are refused out of their order.
 * LUMEN_ORT names libonnxruntime.so, LUMEN_ROOT the repository (default: the directory above). */
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/error.h"
#include "check.h"
#include "flow/accept.h"
#include "flow/reload.h"
#include "flow/slot_plan.h"
#include "models/run_place.h"
#include "parts/settings.h"
#include "server/state.h"

static const char *library, *directory;
static char digits[1024];

static lumen_config valid(void) {
    return (lumen_config){.abi_version = LUMEN_ABI_VERSION,
                          .host = "127.0.0.1",
                          .ort_library_path = library,
                          .max_connections = 16,
                          .thread_count = 1,
                          .max_request_bytes = 65536,
                          .arena_bytes = 16 << 20,
                          .queue_capacity = 64,
                          .batch_size = 1};
}

static lumen_model_config model_of(const char *name) {
    return (lumen_model_config){.name = name,
                                .path = digits,
                                .intra_op_threads = 1,
                                .scale = {1, 1, 1},
                                .max_output_bytes = 4096,
                                .batch_delay_us = UINT32_MAX};
}

/* ---- ranges ---- */

#define RANGE(section, type, field, least, most) \
    {#section "." #field, offsetof(lumen_config, field), sizeof(type), least, most},
#define NO_RANGE(type, field)
/* tests/test_library.py compares the numbers themselves with those of settings/schema.py. */
static const struct range {
    const char *name;
    size_t at, bytes;
    uint64_t least, most;
} ranges[] = {LUMEN_CONFIG_FIELDS(RANGE, NO_RANGE)};

static int check_with(const struct range *range, uint64_t value) {
    lumen_config config = valid();
    if (strcmp(range->name, "engine.queue_type") == 0) config.batch_size = 2; /* one type's least */
    memcpy((uint8_t *)&config + range->at, &value, range->bytes); /* little-endian, as the ABI */
    return lm_settings_check(&config);
}

static void refused_value(const struct range *range, uint64_t value) {
    char found[96];
    CHECK_AT("%s: %llu", range->name, (unsigned long long)value);
    CHECK(check_with(range, value) == LUMEN_E_INVALID);
    snprintf(found, sizeof found, ": expected %llu to %llu, found %llu",
             (unsigned long long)range->least, (unsigned long long)range->most,
             (unsigned long long)value);
    CHECK(strstr(lm_error_last(), range->name) && strstr(lm_error_last(), found));
}

static void numbers(void) {
    for (size_t r = 0; r < sizeof ranges / sizeof ranges[0]; r++) {
        const struct range *range = &ranges[r];
        CHECK_AT("%s", range->name);
        CHECK(check_with(range, range->least) == 0 && check_with(range, range->most) == 0);
        if (range->least > 0) refused_value(range, range->least - 1);
        if (range->bytes == 8 || range->most < UINT32_MAX) refused_value(range, range->most + 1);
    }
}

static void refused(const lumen_config *config, const char *why) {
    lumen_server *server = (lumen_server *)(void *)directory; /* anything but NULL */
    CHECK_AT("expected '%s' in: %s", why, lm_error_last());
    int code = lumen_open(config, &server);
    CHECK_AT("expected '%s' in: %s", why, lm_error_last());
    CHECK(code == LUMEN_E_INVALID && !server && strstr(lm_error_last(), why));
}

/* Texts of the most bytes that fit and of one more, and settings that make no sense together. */
static void texts_and_pairs(void) {
    static char path[LM_UNIX_PATH_BYTES_MAX + 1], name[LM_HOST_NAME_BYTES_MAX + 1];
    const char *hosts[] = {"a", name};
    static const uint32_t powers[] = {3, 48, 1000, 32767};
    lumen_config config = valid();
    config.abi_version++;
    refused(&config, "abi_version: expected");
    config = valid();
    config.host = NULL;
    refused(&config, "must be set");
    config = valid();
    config.ort_library_path = NULL;
    refused(&config, "must be set");
    config = valid();
    config.host = memset(path, 'h', LM_HOST_BYTES_MAX);
    refused(&config, "server.host");
    path[LM_HOST_BYTES_MAX - 1] = '\0';
    CHECK(lm_settings_check(&config) == 0); /* whether it is an address is asked at start */
    config = valid();
    config.name = "";
    refused(&config, "server.name: expected 1 to 64 bytes, found 0");
    config.name = memset(path, 'n', LM_SERVER_NAME_BYTES_MAX);
    path[LM_SERVER_NAME_BYTES_MAX] = '\0';
    refused(&config, "server.name: expected 1 to 64 bytes, found 65");
    path[LM_SERVER_NAME_BYTES_MAX - 1] = '\0';
    CHECK(lm_settings_check(&config) == 0);
    config = valid();
    config.unix_socket = "";
    refused(&config, "found none");
    config.unix_socket = memset(path, 'p', LM_UNIX_PATH_BYTES_MAX);
    refused(&config, "at most 107 bytes, found 108");
    path[LM_UNIX_PATH_BYTES_MAX - 1] = '\0';
    CHECK(lm_settings_check(&config) == 0);
    config = valid();
    config.hosts = hosts;
    config.host_count = 2;
    memset(name, 'n', LM_HOST_NAME_BYTES_MAX);
    refused(&config, "server.hosts");
    name[LM_HOST_NAME_BYTES_MAX - 1] = '\0';
    CHECK(lm_settings_check(&config) == 0);
    config = valid();
    config.host_count = LUMEN_HOSTS_MAX + 1;
    refused(&config, "server.hosts");
    for (size_t p = 0; p < sizeof powers / sizeof powers[0]; p++) {
        config = valid();
        config.queue_capacity = powers[p];
        refused(&config, "power of two");
    }
    config = valid();
    config.queue_type = LUMEN_QUEUE_BATCHED;
    refused(&config, "at least 2, found 1");
    config.batch_size = 2;
    CHECK(lm_settings_check(&config) == 0);
    config.queue_type = LUMEN_QUEUE_SPSC;
    CHECK(lm_settings_check(&config) == 0);
    config.io_threads = 2;
    refused(&config, "found 1 and 2");
    config.io_threads = 1;
    config.thread_count = 2;
    refused(&config, "found 2 and 1");
}

static void rates(void) {
    static const double bad[] = {-1, 0.0009, 1.0000001e9, 1.0 / 0.0, 0.0 / 0.0};
    static const double good[] = {0.001, 1, 1e9};
    lumen_config config = valid();
    config.burst = 1;
    for (size_t r = 0; r < sizeof bad / sizeof bad[0]; r++) {
        config.rate = bad[r];
        refused(&config, "server.rate");
    }
    for (size_t r = 0; r < sizeof good / sizeof good[0]; r++) {
        config.rate = good[r];
        CHECK(lm_settings_check(&config) == 0);
    }
    config.burst = 0;
    refused(&config, "burst of at least 1, found 0");
    config.rate = 0;
    CHECK(lm_settings_check(&config) == 0);
}

/* ---- where they arrive ---- */

/* A bucket that holds exactly `burst` and fills at `rate` a second. */
static void is_bucket(struct lm_token_bucket *bucket, double rate, uint32_t burst) {
    uint64_t now_ns = bucket->start_ns;
    CHECK(lm_token_bucket_acquire(bucket, burst, now_ns));
    CHECK(!lm_token_bucket_acquire(bucket, 1, now_ns));
    double wait_s = (double)lm_token_bucket_wait_ns(bucket, 1, now_ns) / 1e9;
    CHECK(wait_s > 0.999 / rate && wait_s < 1.001 / rate);
}

static void settings_of_the_server(void) {
    char host[] = "127.0.0.3", name[] = "lumen.example";
    const char *hosts[] = {name, "second"};
    const char *const models[] = {"first"};
    lumen_key_config key = {
        .name = "k", .sha256 = {1}, .rate = 2, .burst = 5, .models = models, .model_count = 1};
    lumen_config config = valid();
    lumen_server *server;
    CHECK_AT("a server's settings");
    config.host = host;
    config.io_backend = LUMEN_IO_EPOLL;
    config.queue_type = LUMEN_QUEUE_SCQ;
    config.idle = LUMEN_IDLE_PARK;
    config.allocator_type = LUMEN_ALLOCATOR_STANDARD;
    config.overload = LUMEN_OVERLOAD_WAIT;
    config.header_timeout_ms = 11;
    config.reply_timeout_ms = 12;
    config.idle_timeout_seconds = 13;
    config.hang_seconds = 14;
    config.default_timeout_ms = 15;
    config.body_bytes_per_second = 16;
    config.connections_per_address = 17;
    config.max_request_bytes = 18000;
    config.rate = 19;
    config.burst = 20;
    config.thread_count = 3;
    config.hosts = hosts;
    config.host_count = 2;
    config.keys = &key;
    config.key_count = 1;
    CHECK(lumen_open(&config, &server) == 0);
    memset(host, 'x', sizeof host); /* all of it is copied */
    memset(name, 'x', sizeof name);
    memset(&key, 0xff, sizeof key);
    struct lm_shared *shared = &server->shared;
    CHECK(strcmp(server->host, "127.0.0.3") == 0 && shared->config.io_backend == LUMEN_IO_EPOLL);
    CHECK(shared->config.queue_type == LUMEN_QUEUE_SCQ && shared->config.idle == LUMEN_IDLE_PARK);
    CHECK(shared->config.allocator_type == LUMEN_ALLOCATOR_STANDARD && !shared->run_arenas.count);
    CHECK(shared->config.overload == LUMEN_OVERLOAD_WAIT);
    CHECK(shared->header_timeout_ns == 11000000 && shared->reply_timeout_ns == 12000000);
    CHECK(shared->idle_timeout_ns == 13000000000 && shared->hang_ns == 14000000000);
    CHECK(shared->default_timeout_ns == 15000000 && shared->config.body_bytes_per_second == 16);
    CHECK(shared->addresses.bound == 17 && shared->config.max_request_bytes == 18000);
    CHECK(server->thread_total == 3 && !shared->traced);
    struct lm_access *access = lm_reload_in_force(shared);
    CHECK(access->hosts.count == 2 && strcmp(access->hosts.names[0], "lumen.example") == 0);
    CHECK(strcmp(access->hosts.names[1], "second") == 0);
    is_bucket(&access->bucket, 19, 20);
    lm_keys_name_model(&access->keys, 0, "first:2", "first");
    CHECK(access->keys.count == 1 && lm_keys_allow_model(&access->keys, 0, 0));
    CHECK(!lm_keys_allow_model(&access->keys, 0, 1) && !lm_keys_is_admin(&access->keys, 0));
    is_bucket(lm_keys_bucket(&access->keys, 0), 2, 5);
    CHECK(strstr(server->info.ort_version, "."));
    lumen_close(server);
}

static void settings_of_models(void) {
    lumen_config config = valid();
    lumen_server *server;
    uint32_t index = 77;
    CHECK_AT("models' settings");
    config.batch_size = 3;
    config.batch_delay_us = 21;
    config.thread_count = 2;
    CHECK(lumen_open(&config, &server) == 0);
    lumen_model_config first = model_of("first"), second = model_of("second");
    const uint32_t threads = check_threads();
    CHECK(lumen_add_model(server, &first, &index) == 0 && index == 0);
    CHECK(check_threads_become(threads)); /* Runs on its worker alone */
    second.batch_size = 4;
    second.batch_delay_us = 0;
    second.max_rows = 5;
    second.max_output_bytes = 6000;
    second.channel_order = LUMEN_CHANNELS_BGR;
    second.rate = 7;
    second.burst = 8;
    second.intra_op_threads = 3;
    second.labels = "zero\none\n2\n3\n4\n5\n6\n7\n8\n9\n";
    second.label_bytes = (uint32_t)strlen(second.labels);
    CHECK(lumen_add_model(server, &second, &index) == 0 && index == 1);
    /* Each of the two workers' sessions has two threads beside the worker. */
    CHECK(check_threads_become(threads + 4));
    lumen_model_config third = model_of("third");
    third.batch_delay_us = 22;
    CHECK(lumen_add_model(server, &third, &index) == 0 && index == 2);
    struct lm_model *const *models = server->set->models;
    CHECK(models[2]->batch_size == 3 && models[2]->batch_delay_ns == 22000);
    CHECK(models[0]->batch_size == 3 && models[0]->batch_delay_ns == 21000);
    CHECK(models[1]->batch_size == 4 && models[1]->batch_delay_ns == 0);
    CHECK(models[0]->max_rows == LM_ROWS_MAX && models[1]->max_rows == 5);
    CHECK(models[0]->max_output_bytes == 4096 && models[1]->max_output_bytes == 6000);
    CHECK(models[0]->channel_order == LUMEN_CHANNELS_RGB);
    CHECK(models[1]->channel_order == LUMEN_CHANNELS_BGR);
    CHECK(models[0]->labels.count == 0 && models[1]->labels.count == 10);
    CHECK(models[0]->index == 0 && models[1]->index == 1 && models[1]->session_count == 2);
    struct lm_access *access = lm_reload_in_force(&server->shared);
    CHECK(lm_token_bucket_acquire(&access->model_buckets[0], 1000, 0));
    is_bucket(&access->model_buckets[1], 7, 8);
    lumen_close(server);
    CHECK(check_threads_become(threads)); /* every session is closed */
}

/* As many as there may be, each with its own index; and one more. */
static void many_models(void) {
    enum { NAMES = 64 };
    lumen_config config = valid();
    lumen_server *server;
    uint32_t index = 77;
    const uint32_t threads = check_threads();
    CHECK(lumen_open(&config, &server) == 0);
    CHECK(server->names_max == LUMEN_MODELS_MAX);
    server->names_max = NAMES;
    for (uint32_t m = 0; m <= NAMES; m++) {
        char name[16];
        snprintf(name, sizeof name, "model %u", m);
        lumen_model_config model = model_of(name);
        model.intra_op_threads = 2; /* one beside its worker: sessions can be counted */
        CHECK_AT("%s", name);
        if (m < NAMES) {
            CHECK(lumen_add_model(server, &model, &index) == 0 && index == m);
        } else {
            CHECK(lumen_add_model(server, &model, &index) == LUMEN_E_INVALID && index == m - 1);
            CHECK(strstr(lm_error_last(), "at most 64"));
        }
    }
    CHECK(check_threads_become(threads + NAMES));
    lumen_close(server);
    CHECK(check_threads_become(threads));
}

/* ---- the calls and their order ---- */

static void says(int code, int expected, const char *why) {
    CHECK_AT("expected '%s' in: %s", why, lm_error_last());
    CHECK(code == expected && strstr(lm_error_last(), why));
}

static void models_that_are_refused(lumen_server *server) {
    lumen_model_config model = model_of("digits");
    uint32_t index;
    says(lumen_add_model(server, &model, &index), LUMEN_E_INVALID, "'digits' is given twice");
    model = model_of("other");
    model.rate = -1;
    says(lumen_add_model(server, &model, &index), LUMEN_E_INVALID, "model 'other': rate");
    model = model_of("other");
    model.labels = "zero\none\n";
    model.label_bytes = 9;
    says(lumen_add_model(server, &model, &index), LUMEN_E_MODEL,
         "labels: expected a line for each of 10 classes, found 2");
    model = model_of("other");
    model.batch_size = LM_BATCH_MAX + 1;
    says(lumen_add_model(server, &model, &index), LUMEN_E_INVALID, "found 257");
    CHECK(server->set->count == 1);
}

/* Options that accepted connections inherit, and SO_REUSEADDR for the next server. */
static void options_of_listeners(const lumen_server *server) {
    for (uint32_t i = 0; i < server->shared.io_count; i++) {
        int fd = server->ios[i].listen_fds[LM_LISTENER_TCP], value = 0;
        socklen_t bytes = sizeof value;
        CHECK_AT("the listener of I/O thread %u", i);
        CHECK(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &bytes) == 0 && value);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, &bytes) == 0 && value);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, &bytes) == 0 && value == 1);
        CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    }
}

static uint32_t state_of(const lumen_server *server) {
    return server->shared.stats.header->state;
}

/* Each of two I/O threads has half of the memory, and slots for half of what the queue holds. */
static void slots_of(const lumen_server *server, struct lm_model *model, const lumen_info *info) {
    lumen_slot_class classes[LUMEN_SLOT_CLASSES_MAX];
    const struct lm_slot_plan_limits half = {.arena_bytes = 8 << 20,
                                             .max_request_bytes = 65536,
                                             .slot_count_max = 32,
                                             .worker_count = 3};
    uint32_t count = 0;
    uint64_t bytes = 0;
    CHECK(lm_slot_plan(&model, 1, &half, classes, &count) == 0);
    CHECK(info->slot_class_count == count && server->set->models[0]->max_rows == model->max_rows);
    for (uint32_t c = 0; c < count; c++) {
        CHECK_AT("slots of class %u", c);
        CHECK(info->slot_classes[c].slot_bytes == classes[c].slot_bytes);
        CHECK(info->slot_classes[c].slot_count == classes[c].slot_count);
        bytes += classes[c].slot_bytes * classes[c].slot_count;
    }
    CHECK(info->arena_bytes >= 2 * bytes && info->arena_bytes < 2 * (bytes + (2 << 20)));
    uint64_t queue = server->shared.nodes[0].lines[0].queue.mpmc.mask +
                     1; /* a power of two that holds every slot */
    CHECK(queue >= 64 && queue >= info->slots && queue < 2ull * info->slots);
}

/* Keys, hosts and rates are taken over; a table that is wrong leaves the old one in force. */
static void reloads(lumen_server *server, lumen_config config, lumen_model_config model) {
    struct lm_access *before = lm_reload_in_force(&server->shared);
    lumen_key_config key = {.name = "ada"};
    lumen_model_config other = model_of("other");
    CHECK(before->keys.count == 0);
    says(lumen_reload(server, &config, &model, 2), LUMEN_E_INVALID, "at most the 1 models");
    says(lumen_reload(server, &config, &other, 1), LUMEN_E_INVALID,
         "that are served, found 'other'");
    model.rate = -1;
    says(lumen_reload(server, &config, &model, 1), LUMEN_E_INVALID, "model 'digits': rate");
    config.rate = -1;
    says(lumen_reload(server, &config, &model, 1), LUMEN_E_INVALID, "server.rate");
    CHECK(lm_reload_in_force(&server->shared) == before);
    model.rate = 3, model.burst = 4;
    config.rate = 5, config.burst = 6;
    config.keys = &key, config.key_count = 1;
    for (int round = 0; round < 3; round++) CHECK(lumen_reload(server, &config, &model, 1) == 0);
    struct lm_access *now = lm_reload_in_force(&server->shared);
    is_bucket(&now->bucket, 5, 6);
    is_bucket(&now->model_buckets[0], 3, 4);
    CHECK(now->keys.count == 1 && !now->retired); /* both I/O threads have looked */
    /* Spent tokens stay spent. */
    config.rate = model.rate = 0.001;
    CHECK(lumen_reload(server, &config, &model, 1) == 0);
    now = lm_reload_in_force(&server->shared);
    CHECK(lm_token_bucket_acquire(&now->bucket, 6, lm_now_ns()));
    CHECK(lm_token_bucket_acquire(&now->model_buckets[0], 4, lm_now_ns()));
    CHECK(lumen_reload(server, &config, &model, 1) == 0);
    now = lm_reload_in_force(&server->shared);
    CHECK(!lm_token_bucket_acquire(&now->bucket, 6, lm_now_ns()));
    CHECK(!lm_token_bucket_acquire(&now->model_buckets[0], 4, lm_now_ns()));
    CHECK(lumen_heartbeat(server) == 0);
}

/* Signals reach the thread that started the server, and no other one. */
static void signals_are_pythons(void) {
    sigset_t mine;
    char path[300], line[128];
    int others = 0;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mine) == 0 && !sigismember(&mine, SIGTERM));
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    for (struct dirent *task = readdir(tasks); task; task = readdir(tasks)) {
        unsigned long long blocked = 0;
        char name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = task->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (status && fgets(line, sizeof line, status)) {
            (void)sscanf(line, "Name: %31s", name);
            (void)sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (status) fclose(status);
        if (strncmp(name, "lumen-", 6) != 0) continue;
        CHECK_AT("thread %s blocks %llx", name, blocked);
        CHECK(blocked >> (SIGTERM - 1) & 1 && blocked >> (SIGINT - 1) & 1);
        others++;
    }
    closedir(tasks);
    CHECK(others == 5);
}

/* A description of more than 64 KiB, as a client reads it and as the control thread does. */
static void a_long_description(void) {
    enum { MODELS = 8, LABEL = 1000, CLASSES = 10 };
    static char labels[CLASSES * (LABEL + 1)], whole[256 << 10], seen[256 << 10];
    uint8_t ask[LM_NATIVE_REQUEST_BYTES] = "LMN1\x03", head[LM_NATIVE_REPLY_BYTES];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static lumen_info info;
    lumen_config config = valid();
    lumen_server *server;
    uint32_t index, count;
    CHECK_AT("a long description");
    memset(labels, 'l', sizeof labels);
    for (int c = 0; c < CLASSES; c++) labels[c * (LABEL + 1) + LABEL] = '\n';
    CHECK(lumen_open(&config, &server) == 0);
    for (uint32_t m = 0; m < MODELS; m++) {
        char name[] = {'m', (char)('0' + m), '\0'};
        lumen_model_config model = model_of(name);
        model.labels = labels;
        model.label_bytes = sizeof labels;
        CHECK(lumen_add_model(server, &model, &index) == 0);
    }
    CHECK(lumen_start(server) == 0 && lumen_get_info(server, &info) == 0);
    int64_t bytes = lumen_describe(server, whole, sizeof whole);
    CHECK(bytes > 64 << 10 && bytes < (int64_t)sizeof whole);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_port = htons((uint16_t)info.port);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    CHECK(send(fd, ask, sizeof ask, MSG_NOSIGNAL) == sizeof ask);
    CHECK(recv(fd, head, sizeof head, MSG_WAITALL) == sizeof head);
    memcpy(&count, head + 16, 4);
    CHECK(count == bytes && recv(fd, seen, count, MSG_WAITALL) == bytes);
    CHECK(memcmp(seen, whole, count) == 0);
    close(fd);
    lumen_close(server);
}

/* Fewer descriptors than connections: half of them, shared by the I/O threads, are for the idle. */
static void few_descriptors(void) {
    const struct rlimit limit = {1000, 1000};
    lumen_config config = valid();
    lumen_model_config model = model_of("digits");
    lumen_server *server;
    uint32_t index;
    config.io_threads = 2;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    config.max_connections = 1000 - 256;
    CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &model, &index) == 0);
    CHECK(lumen_start(server) == 0 && server->shared.unparked_max == 0);
    lumen_close(server);
    config.max_connections = 1000 - 255;
    CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &model, &index) == 0);
    CHECK(lumen_start(server) == 0);
    CHECK(server->descriptors == 1000 && server->shared.unparked_max == (1000 - 256) / 2 / 2 + 1);
    lumen_close(server);
}

/* An I/O thread looks for work on a core of its own only; where it shares one it gives way. */
static void cores_of_io_threads(void) {
    int usable = lumen_usable_cpus(NULL, 0);
    CHECK(usable > 0);
    if (usable > LUMEN_WORKERS_MAX) usable = LUMEN_WORKERS_MAX;
    for (int workers = usable > 1 ? usable - 1 : 1; workers <= usable; workers++) {
        for (uint32_t idle = LUMEN_IDLE_ADAPTIVE; idle <= LUMEN_IDLE_PARK; idle++) {
            lumen_config config = valid();
            lumen_model_config model = model_of("digits");
            lumen_server *server;
            uint32_t index;
            char first;
            CHECK_AT("%d workers on %d cores, idle %u", workers, usable, idle);
            config.thread_count = (uint32_t)workers;
            config.idle = idle;
            CHECK(lumen_open(&config, &server) == 0);
            CHECK(lumen_add_model(server, &model, &index) == 0);
            CHECK(lumen_describe(server, &first, 1) > 0); /* decides where threads run */
            bool polls = idle == LUMEN_IDLE_ADAPTIVE || idle == LUMEN_IDLE_SPIN;
            const struct lm_shared *shared = &server->shared;
            CHECK(lm_load_relaxed_u32(&shared->io_shares_cores) == (workers == usable));
            CHECK((lm_load_relaxed_u64(&shared->io_poll_ns) > 0) == (workers < usable && polls));
            lumen_close(server);
            config.busy_poll_us = 700; /* set: wherever the thread runs */
            CHECK(lumen_open(&config, &server) == 0);
            CHECK(lumen_add_model(server, &model, &index) == 0);
            CHECK(lumen_describe(server, &first, 1) > 0);
            CHECK(lm_load_relaxed_u64(&server->shared.io_poll_ns) == 700000);
            lumen_close(server);
        }
    }
}

/* Runs of the smallest request were long at this start: the machine did other things. */
static bool is_disturbed(const lumen_server *server) {
    static int times;
    const struct lm_model *model = server->set->models[0];
    if (model->run != LUMEN_RUN_WORKER || model->run_ns == 0) return false;
    CHECK(times++ < 50);
    return true;
}

/* Who runs a model, and how many threads there are. Digits take some microseconds. */
static void who_runs_a_model(void) {
    static const struct {
        uint32_t queue_type, run, batch_size, intra_op_threads;
        uint32_t expected, threads, all; /* of the model; workers that are threads, and all */
        const char *why;
    } cases[] = {
        {LUMEN_QUEUE_AUTO, LUMEN_RUN_AUTO, 1, 1, LUMEN_RUN_AUTO, 3, 5, "short"},
        {LUMEN_QUEUE_AUTO, LUMEN_RUN_WORKER, 1, 1, LUMEN_RUN_WORKER, 3, 3, "is set"},
        {LUMEN_QUEUE_AUTO, LUMEN_RUN_INLINE, 4, 1, LUMEN_RUN_INLINE, 3, 5, "is set"},
        {LUMEN_QUEUE_AUTO, LUMEN_RUN_AUTO, 4, 1, LUMEN_RUN_WORKER, 3, 3, "batches"},
        {LUMEN_QUEUE_AUTO, LUMEN_RUN_AUTO, 1, 2, LUMEN_RUN_WORKER, 3, 3, "intra_op_threads"},
        {LUMEN_QUEUE_SCQ, LUMEN_RUN_AUTO, 1, 1, LUMEN_RUN_WORKER, 3, 3, "queue_type"},
        {LUMEN_QUEUE_SCQ, LUMEN_RUN_INLINE, 1, 1, LUMEN_RUN_INLINE, 3, 5, "is set"},
        {LUMEN_QUEUE_INLINE, LUMEN_RUN_AUTO, 1, 1, LUMEN_RUN_INLINE, 0, 2, "queue_type"},
        /* As many threads as there may be leave room for those of the I/O threads. */
        {LUMEN_QUEUE_AUTO, LUMEN_RUN_AUTO, 1, 1, LUMEN_RUN_AUTO, 64, 66, "short"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        lumen_config config = valid();
        lumen_model_config model = model_of("digits");
        lumen_server *server;
        uint32_t index;
        CHECK_AT("case %zu", c);
        config.queue_type = cases[c].queue_type;
        config.io_threads = 2;
        config.thread_count = cases[c].threads;
        model.run = cases[c].run;
        model.batch_size = cases[c].batch_size;
        model.intra_op_threads = cases[c].intra_op_threads;
        CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &model, &index) == 0);
        CHECK(lumen_start(server) == 0);
        if (cases[c].expected == LUMEN_RUN_AUTO && is_disturbed(server)) {
            lumen_close(server);
            c--; /* again */
            continue;
        }
        const struct lm_model *found = server->set->models[0];
        const struct lm_node *node = &server->shared.nodes[0];
        CHECK(found->run == cases[c].expected && strstr(found->run_why, cases[c].why));
        CHECK((found->run_ns > 0) == (cases[c].expected == LUMEN_RUN_AUTO));
        const uint32_t later = node->thread_count - cases[c].threads; /* places without a thread */
        CHECK(server->thread_total == cases[c].threads);
        CHECK(node->worker_count == cases[c].all + later);
        for (uint32_t w = 0; w < node->worker_count; w++)
            CHECK((found->sessions[w] != NULL) == lm_worker_is_there(&server->workers[w]));
        CHECK(node->worker_count <= LM_RUNNERS_MAX && !found->sessions[node->worker_count]);
        CHECK((server->ios[1].inline_worker != NULL) == (node->worker_count > node->thread_count));
        lumen_close(server);
    }
}

/* A Run that was too long is told once, and from then on describe says who runs the model. */
static void a_long_run_is_told(void) {
    lumen_config config = valid();
    lumen_model_config model = model_of("digits");
    lumen_server *server;
    uint32_t index;
    char text[512], document[1 << 14];
    config.queue_type = LUMEN_QUEUE_AUTO;
    for (bool again = true; again;) {
        CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &model, &index) == 0);
        CHECK(lumen_start(server) == 0);
        again = is_disturbed(server);
        if (again) lumen_close(server);
    }
    CHECK(lumen_news(server, text, sizeof text) == 0 && text[0] == '\0');
    CHECK(lumen_describe(server, document, sizeof document) < (int64_t)sizeof document);
    CHECK(strstr(document, "\"run\":\"auto\""));
    lm_model_end_own_runs(server->set->models[0], 5200000);
    CHECK(lumen_news(server, text, 40) == 0 && strlen(text) < 40); /* no more than fits */
    server->set->models[0]->long_run_told = false;
    CHECK(lumen_news(server, text, sizeof text) == 0);
    CHECK(strcmp(text, "Model digits: a Run took an I/O thread 5.2 ms. The workers run it from now "
                       "on.") == 0);
    CHECK(lumen_news(server, text, sizeof text) == 0 && text[0] == '\0');
    CHECK(lumen_describe(server, document, sizeof document) < (int64_t)sizeof document);
    CHECK(strstr(document, "\"run\":\"worker\",\"run_why\":\"one of its Runs took an I/O "));
    CHECK(lumen_settle(server, 10000) == 0);
    lumen_close(server);
}

static bool pinning_is_refused;

/* In place of the C library's, as a seccomp profile or a cpuset may answer it. */
int sched_setaffinity(pid_t thread, size_t bytes, const cpu_set_t *mask) {
    if (!pinning_is_refused) return (int)syscall(SYS_sched_setaffinity, thread, bytes, mask);
    errno = EPERM;
    return -1;
}

/* A worker that could not be pinned to its core is reported without one, everywhere. */
static void pinned_or_not(void) {
    lumen_config config = valid();
    lumen_model_config model = model_of("digits");
    int32_t usable[1];
    CHECK(lumen_usable_cpus(usable, 1) > 0);
    for (int refused_too = 0; refused_too < 2; refused_too++) {
        lumen_server *server;
        lumen_info info;
        uint32_t index;
        CHECK_AT("pinning is %s", refused_too ? "refused" : "allowed");
        pinning_is_refused = refused_too;
        CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &model, &index) == 0);
        CHECK(lumen_start(server) == 0 && lumen_get_info(server, &info) == 0);
        int32_t cpu = refused_too ? -1 : usable[0];
        CHECK(info.worker_cpus[0] == cpu && server->workers[0].stats->head.cpu == cpu);
        CHECK(!strstr(info.notes, "could not be pinned") == !refused_too);
        lumen_close(server);
    }
    pinning_is_refused = false;
}

static void before_a_model(lumen_server *server, lumen_config config, lumen_model_config model) {
    char part[16];
    says(lumen_stop(server, 0), LUMEN_E_STATE, "does not run");
    says(lumen_unready(server), LUMEN_E_STATE, "does not run");
    says(lumen_set_metrics_port(server, 65536), LUMEN_E_INVALID, "0 to 65535, found 65536");
    CHECK(lumen_set_metrics_port(server, 65535) == 0);
    CHECK(lumen_set_metrics_port(server, 8002) == 0);
    says(lumen_reload(server, &config, &model, 1), LUMEN_E_STATE, "does not run");
    says(lumen_heartbeat(server), LUMEN_E_STATE, "does not run");
    says(lumen_wait(server, 0), LUMEN_E_STATE, "does not run");
    says((int)lumen_describe(server, part, sizeof part), LUMEN_E_STATE, "no models");
}

static void description_of(lumen_server *server) {
    static char whole[8192], part[16];
    int64_t bytes = lumen_describe(server, whole, sizeof whole);
    CHECK(bytes > 16 && bytes < (int64_t)sizeof whole && whole[0] == '{' &&
          whole[bytes - 1] == '}');
    memset(part, '#', sizeof part);
    CHECK(lumen_describe(server, part, 8) == bytes);
    CHECK(memcmp(part, whole, 8) == 0 && part[8] == '#');
}

static void described_before_the_start(lumen_config config, lumen_model_config model) {
    static char before[8192], after[8192];
    static lumen_info planned, info;
    lumen_server *server;
    uint32_t index;
    CHECK_AT("a description before the start");
    CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &model, &index) == 0);
    int64_t bytes = lumen_describe(server, before, sizeof before);
    CHECK(bytes > 16 && bytes < (int64_t)sizeof before);
    model.name = "late";
    says(lumen_add_model(server, &model, &index), LUMEN_E_STATE, "before lumen_describe");
    CHECK(lumen_get_info(server, &planned) == 0 && planned.slot_class_count > 0);
    CHECK(lumen_start(server) == 0 && lumen_get_info(server, &info) == 0);
    CHECK(lumen_describe(server, after, sizeof after) == bytes);
    CHECK(memcmp(before, after, (size_t)bytes) == 0);
    CHECK(memcmp(planned.slot_classes, info.slot_classes, sizeof info.slot_classes) == 0);
    lumen_close(server);
    config.max_request_bytes = 64;
    model.name = "digits";
    CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &model, &index) == 0);
    says((int)lumen_describe(server, before, sizeof before), LUMEN_E_INVALID, "max_request_bytes");
    lumen_close(server);
}

/* While it runs, and before it starts. */
static void closed_early(lumen_config config, lumen_model_config model) {
    lumen_server *server;
    uint32_t index;
    CHECK_AT("a server that is closed while it runs");
    CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &model, &index) == 0);
    CHECK(lumen_start(server) == 0);
    lumen_close(server);
    CHECK(lumen_open(&config, &server) == 0 && lumen_add_model(server, &model, &index) == 0);
    lumen_close(server);
}

static void from_open_to_close(void) {
    lumen_config config = valid();
    lumen_server *server;
    lumen_model_config model = model_of("digits");
    static lumen_info info;
    uint32_t index;
    config.io_threads = 2;
    config.thread_count = 3;
    char path[128];
    struct stat found;
    snprintf(path, sizeof path, "%s/socket", directory);
    config.unix_socket = path;
    config.unix_socket_mode = 0620;
    uint64_t before_ns = lm_now_ns();
    CHECK(lumen_open(&config, &server) == 0);
    uint64_t opened_ns = lm_now_ns();
    before_a_model(server, config, model);
    CHECK(lumen_add_model(server, &model, &index) == 0);
    models_that_are_refused(server);
    struct lm_model as_read = *server->set->models[0]; /* before its rows are bounded */
    CHECK_AT("a start: %s", lm_error_last());
    uint64_t start_ns = lm_now_ns();
    CHECK(lumen_start(server) == 0);
    uint64_t whole_us = (lm_now_ns() - before_ns) / 1000, part_us = (start_ns - opened_ns) / 1000;
    says(lumen_start(server), LUMEN_E_STATE, "called once");
    says(lumen_add_model(server, &model, &index), LUMEN_E_STATE, "before lumen_start");
    CHECK_AT("a server that runs");
    CHECK(lumen_get_info(server, &info) == 0);
    CHECK(part_us <= info.ready_us && info.ready_us <= whole_us);
    CHECK(info.io_threads == 2 && info.workers == 3 && info.models == 1 && info.port > 0);
    CHECK(info.arena_bytes > 0 && info.arena_bytes <= config.arena_bytes + (4u << 20));
    uint32_t slots = 0;
    for (uint32_t c = 0; c < info.slot_class_count; c++) slots += info.slot_classes[c].slot_count;
    CHECK(slots > 0 && info.slots == 2 * slots);
    CHECK(info.arena_bytes ==
          server->ios[0].arena.memory.bytes + server->ios[1].arena.memory.bytes);
    signals_are_pythons();
    slots_of(server, &as_read, &info);
    CHECK(state_of(server) == LUMEN_STATE_READY);
    options_of_listeners(server);
    description_of(server);
    uint64_t began_ns = lm_now_ns();
    CHECK(lumen_wait(server, 30) == LUMEN_E_AGAIN);
    CHECK(lm_now_ns() - began_ns >= 30000000); /* it did wait; how late, who knows */
    reloads(server, config, model);
    CHECK(lumen_unready(server) == 0 && state_of(server) == LUMEN_STATE_DRAINING);
    CHECK(lumen_wait(server, 1) == LUMEN_E_AGAIN); /* serves as before */
    CHECK(access(info.stats_path, F_OK) == 0);
    CHECK(stat(path, &found) == 0 && S_ISSOCK(found.st_mode) && (found.st_mode & 0777) == 0620);
    CHECK(lumen_stop(server, 60000) == 0);
    CHECK(access(path, F_OK) != 0); /* another server may have it, however long this one takes */
    CHECK(lumen_wait(server, 60000) == 0 && state_of(server) == LUMEN_STATE_STOPPED);
    CHECK(lumen_wait(server, 0) == 0);
    says(lumen_stop(server, 0), LUMEN_E_STATE, "does not run");
    lumen_close(server);
    CHECK(access(info.stats_path, F_OK) != 0);
    lumen_close(NULL);
    closed_early(config, model);
    described_before_the_start(config, model);
}

int main(void) {
    const char *root = getenv("LUMEN_ROOT");
    library = getenv("LUMEN_ORT");
    if (CHECK_UNDER_TSAN)
        check_skip("test_server", "ONNX Runtime is not built for ThreadSanitizer");
    if (!library || !library[0])
        check_skip("test_server", "LUMEN_ORT does not name libonnxruntime.so");
    snprintf(digits, sizeof digits, "%s/lumen_uring/models/digits.onnx", root ? root : "..");
    directory = check_temporary_directory();
    check_watchdog(300, "a server that ends");
    numbers();
    texts_and_pairs();
    rates();
    settings_of_the_server();
    settings_of_models();
    many_models();
    from_open_to_close();
    a_long_description();
    cores_of_io_threads();
    who_runs_a_model();
    a_long_run_is_told();
    pinned_or_not();
    few_descriptors(); /* last: the limit stays */
    return check_finish("test_server");
}
