/* test_loadgen.c: the load generator against a server that does as it is told: what is sent, what
 * each reply is counted as, and what a latency is counted from.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "check.h"
#include "load/loadgen.h"

enum { PAYLOAD = 40, ANSWER = 24, STEPS_MAX = 8 };

/* The server's n-th answer; the last step stands for all later requests. */
struct step {
    uint16_t status;
    uint32_t bytes; /* of its payload */
    bool wrong;     /* its last byte */
    bool cuts;      /* ends the connection instead */
    uint32_t wait_ms;
};

struct script {
    const struct step *steps;
    uint64_t count;
    bool http; /* whatever it says */
};

static uint32_t port;
static int listener;
static lm_atomic_u64 playing; /* const struct script * */
static lm_atomic_u64 served;  /* requests, over all connections */
static lm_atomic_u64 serving; /* connections */
static uint8_t payloads[2][PAYLOAD], answers[2][ANSWER];

static bool read_all(int fd, uint8_t *bytes, size_t count) {
    return recv(fd, bytes, count, MSG_WAITALL) == (ssize_t)count;
}

/* Every word of a header has a value that no other one has. */
static void check_header(const uint8_t *bytes) {
    static const uint8_t expected[LM_NATIVE_REQUEST_BYTES] = {'L',
                                                              'M',
                                                              'N',
                                                              '1',
                                                              LM_KIND_INFER,
                                                              1,
                                                              3,
                                                              0,
                                                              [16] = PAYLOAD,
                                                              [20] = 0x15,
                                                              0xcd,
                                                              0x5b,
                                                              0x07,
                                                              [24] = 5,
                                                              [28] = LM_FLAG_CREDENTIAL};
    CHECK(memcmp(bytes, expected, sizeof expected) == 0);
}

static void answer(int fd, const struct step *step, const uint8_t *payload, bool speaks_http) {
    uint8_t reply[LM_NATIVE_REPLY_BYTES + ANSWER] = "LMR1";
    static const char http[] =
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    if (speaks_http) {
        CHECK(send(fd, http, sizeof http - 1, MSG_NOSIGNAL) == sizeof http - 1);
        return;
    }
    memcpy(reply + 4, &step->status, 2);
    memcpy(reply + 16, &step->bytes, 4);
    memcpy(reply + LM_NATIVE_REPLY_BYTES, answers[payload[0]], step->bytes);
    reply[LM_NATIVE_REPLY_BYTES + step->bytes - 1] ^= step->wrong;
    size_t all = LM_NATIVE_REPLY_BYTES + step->bytes;
    /* The generator may be done, and gone. */
    (void)!send(fd, reply, 50, MSG_NOSIGNAL); /* a head and two bytes: the rest by itself */
    (void)!send(fd, reply + 50, all - 50, MSG_NOSIGNAL);
}

static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument;
    uint8_t header[LM_NATIVE_REQUEST_BYTES], payload[PAYLOAD];
    const struct script *script = (const struct script *)(uintptr_t)lm_load_acquire_u64(&playing);
    bool speaks_http = script->http;
    while ((speaks_http || read_all(fd, header, sizeof header)) &&
           read_all(fd, payload, sizeof payload)) {
        uint64_t n = atomic_fetch_add_explicit(&served.value, 1, memory_order_relaxed);
        const struct step *step = &script->steps[n < script->count ? n : script->count - 1];
        if (!speaks_http) check_header(header);
        CHECK(payload[0] < 2 && memcmp(payload, payloads[payload[0]], PAYLOAD) == 0);
        /* The server's own time, as a model would take it. */
        nanosleep(&(struct timespec){.tv_nsec = step->wait_ms * 1000000L}, NULL);
        if (step->cuts) break;
        answer(fd, step, payload, speaks_http);
        if (speaks_http) break;
    }
    close(fd);
    (void)lm_sub_acq_rel_u64(&serving, 1);
    return NULL;
}

static void *accept_all(void *argument) {
    int fd;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        pthread_t thread;
        const int on = 1;
        atomic_fetch_add_explicit(&serving.value, 1, memory_order_acq_rel);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        CHECK(pthread_create(&thread, NULL, serve, (void *)(intptr_t)fd) == 0);
        pthread_detach(thread);
    }
    return argument;
}

/* The server's answers from now on, once its earlier connections have ended. */
static void begin(const struct script *script) {
    while (lm_load_acquire_u64(&serving)) sched_yield();
    lm_store_relaxed_u64(&served, 0); /* relaxed: nobody is connected */
    lm_store_release_u64(&playing, (uintptr_t)script);
}
#define BEGIN(steps, is_http)                                                                     \
    do {                                                                                          \
        static const struct script script = {steps, sizeof(steps) / sizeof((steps)[0]), is_http}; \
        begin(&script);                                                                           \
    } while (0)

static lumen_load_config config_of(uint32_t connections, uint64_t requests) {
    static const void *sent[2] = {payloads[0], payloads[1]};
    static const void *expected[2] = {answers[0], answers[1]};
    return (lumen_load_config){.host = "127.0.0.1",
                               .port = port,
                               .connections = connections,
                               .model = 3,
                               .encoding = 1,
                               .credential = 1,
                               .rows = 5,
                               .timeout_us = 123456789,
                               .payload_count = 2,
                               .payloads = sent,
                               .payload_bytes = PAYLOAD,
                               .requests = requests,
                               .cpu = -1,
                               .expect_bytes = ANSWER,
                               .expected = expected,
                               .seed = 5};
}

static lumen_load_result run(const lumen_load_config *config) {
    lumen_load_result result;
    int code = lumen_load(config, &result, NULL);
    CHECK_AT("a load: %s", lm_error_last());
    CHECK(code == 0 && result.counting == 1);
    check_where[0] = '\0';
    uint64_t inside = 0;
    for (uint32_t b = 0; b < LUMEN_LOAD_BUCKETS; b++) inside += result.buckets[b];
    CHECK(inside == result.requests);
    if (result.requests) {
        CHECK(result.min_ns <= result.max_ns && result.sum_ns >= result.requests * result.min_ns);
        CHECK(result.sum_ns <= result.requests * result.max_ns);
    }
    return result;
}

/* ---- what is counted ---- */

static void each_reply_by_itself(void) {
    static const struct step steps[] = {{.bytes = ANSWER},
                                        {.bytes = ANSWER},
                                        {.bytes = ANSWER, .wrong = true},
                                        {.bytes = ANSWER - 1},
                                        {.status = LM_STATUS_DEADLINE, .bytes = 9},
                                        {.status = 200, .bytes = 9},
                                        {.status = LM_STATUS_OVERLOADED, .bytes = ANSWER},
                                        {.bytes = ANSWER}}; /* what was wrong before is over */
    lumen_load_config config = config_of(1, 8);
    BEGIN(steps, false);
    lumen_load_result result = run(&config);
    CHECK(result.requests == 3 && result.errors == 5 && result.mismatches == 2);
    CHECK(result.statuses[LM_STATUS_OK] == 5 && result.statuses[LM_STATUS_DEADLINE] == 1);
    CHECK(result.statuses[LM_STATUS_OVERLOADED] == 1 && result.statuses[15] == 1);
    CHECK(result.disconnects == 0 && result.late == 0 && result.unsent == 0);
    CHECK(lm_load_relaxed_u64(&served) == 8);
    config.expect_bytes = 0; /* then nobody looks */
    BEGIN(steps, false);
    config.requests = 4;
    result = run(&config);
    CHECK(result.requests == 4 && result.errors == 0 && result.mismatches == 0);
}

/* In the warm-up nothing is counted but that a connection is gone; afterwards its request is. */
static void connections_that_end(void) {
    static const struct step early[] = {{.cuts = true}, {.bytes = ANSWER, .wait_ms = 2}};
    static const struct step late[] = {{.bytes = ANSWER}, {.cuts = true}, {.bytes = ANSWER}};
    lumen_load_config config = config_of(2, 4);
    config.warmup_ns = 30000000;
    BEGIN(early, false);
    lumen_load_result result = run(&config);
    CHECK(result.disconnects == 1 && result.errors == 0 && result.requests == 4);
    config.warmup_ns = 0;
    config.requests = 5;
    BEGIN(late, false);
    result = run(&config);
    CHECK(result.disconnects == 1 && result.errors == 1 && result.requests == 4);
    static const struct step all[] = {{.bytes = ANSWER}, {.cuts = true}};
    config.connections = 1;
    BEGIN(all, false);
    CHECK(lumen_load(&config, &result, NULL) == LUMEN_E_IO);
    CHECK(strstr(lm_error_last(), "closed every connection"));
    CHECK(result.requests == 1 && result.errors == 1 && result.disconnects == 1);
}

/* A server that closes after each reply is dialled anew, and nothing is lost by it. */
static void replies_that_close(void) {
    static const struct step any[] = {{.bytes = 2}};
    lumen_load_config config = config_of(2, 6);
    config.protocol = 1;
    config.expect_bytes = 0;
    BEGIN(any, true);
    lumen_load_result result = run(&config);
    CHECK(result.requests == 6 && result.errors == 0 && result.statuses[0] == 6);
}

/* ---- times ---- */

static void burn(uint64_t ns) {
    struct timespec now;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec < ns);
}

/* From the moment it is sent; the generator's own time is of this load alone. */
static void latencies(void) {
    static const struct step steps[] = {{.bytes = ANSWER, .wait_ms = 10}};
    lumen_load_config config = config_of(1, 3);
    BEGIN(steps, false);
    burn(100000000);
    lumen_load_result result = run(&config);
    CHECK(result.requests == 3 && result.min_ns >= 10000000);
    CHECK(result.wall_ns >= 30000000 && result.cpu_ns > 0 && result.cpu_ns <= result.wall_ns);
    CHECK(result.max_ns <= result.wall_ns && result.sum_ns <= result.wall_ns);
}

/* From the moment it was due, sent or not: with one connection that is busy for 10 ms each time. */
static void arrivals(void) {
    static const struct step steps[] = {{.bytes = ANSWER, .wait_ms = 10}};
    lumen_load_config config = config_of(1, 5);
    config.rate = 1000;
    BEGIN(steps, false);
    lumen_load_result result = run(&config);
    CHECK(result.requests == 5 && result.errors == 0);
    CHECK(result.late >= 3 && result.late <= 5); /* all but those that found it free */
    CHECK(result.max_ns >= 35000000);            /* four before it, and a few ms until it was due */
    CHECK(result.unsent >= 15); /* 50 arrivals or more in 50 ms, five of them sent */
    /* A request that was due in the warm-up is not counted, however late it is sent. */
    config.warmup_ns = 60000000;
    config.requests = 2;
    BEGIN(steps, false);
    result = run(&config);
    CHECK(result.requests == 2 && lm_load_relaxed_u64(&served) >= 2 + 30);
}

/* ---- connections ---- */

/* A listener that has no room is asked again; one that refuses has an end. */
static void dials(void) {
    lumen_load_config config = config_of(1, 1);
    struct lm_load_connection connection = {.fd = -1};
    struct lm_load_dials all = {.config = &config, .connections = &connection};
    struct lm_completion completion;
    struct sockaddr_in *address = (struct sockaddr_in *)&all.address;
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)port);
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    all.address_bytes = sizeof *address;
    CHECK(lm_ring_open(&all.ring, LUMEN_IO_AUTO, 1) == 0 && lm_load_dial(&all, 0) == 0);
    for (int times = 0; times < 3; times++) {
        CHECK(lm_ring_wait(all.ring, 0, UINT64_MAX, &completion, 1) == 1);
        CHECK(completion.op == LM_OP_CONNECT && completion.result == 0 && all.count == 1);
        completion.result = -EAGAIN;
        CHECK(!lm_load_dialled(&all, &completion) && all.code == 0);
        CHECK(all.count == 1 && connection.dialling && connection.fd >= 0);
    }
    CHECK(lm_ring_wait(all.ring, 0, UINT64_MAX, &completion, 1) == 1);
    completion.result = -ECONNREFUSED;
    CHECK(!lm_load_dialled(&all, &completion) && all.code == LUMEN_E_IO && all.count == 0);
    CHECK(strstr(lm_error_last(), "cannot connect to 127.0.0.1 port") && connection.fd == -1);
    lm_ring_close(all.ring);
}

/* ---- settings ---- */

static void refused(lumen_load_config config, const char *why) {
    lumen_load_result result;
    CHECK_AT("expected '%s'", why);
    CHECK(lumen_load(&config, &result, NULL) == LUMEN_E_INVALID && strstr(lm_error_last(), why));
}

static void settings(void) {
    char path[5 + LM_UNIX_PATH_BYTES_MAX + 1] = "unix:/tmp/";
    lumen_load_config config = config_of(0, 1);
    refused(config, "1 to 16384, found 0");
    config.connections = 16385;
    refused(config, "1 to 16384, found 16385");
    config.connections = 16384;
    CHECK(lm_load_check(&config) == 0);
    config.payload_count = 0;
    refused(config, "at least one payload");
    config = config_of(1, 0);
    refused(config, "a number of requests or a duration");
    config.duration_ns = 1;
    CHECK(lm_load_check(&config) == 0);
    config.payload_bytes = 1ull << 32;
    refused(config, "less than 4 GiB");
    config = config_of(1, 1);
    config.protocol = 2;
    refused(config, "found 2");
    config.protocol = 0;
    config.host = "localhost";
    refused(config, "found 'localhost'");
    config.host = "unix:";
    refused(config, "found 'unix:'");
    memset(path + 10, 'x', sizeof path - 11);
    config.host = path; /* one byte too many, and as many as there may be */
    refused(config, "a path of at most 107 bytes");
    path[sizeof path - 2] = '\0';
    lumen_load_result result;
    CHECK(lumen_load(&config, &result, NULL) == LUMEN_E_IO);
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    pthread_t thread;
    check_watchdog(120, "a load that ends");
    for (uint32_t p = 0; p < 2; p++) {
        for (uint32_t b = 0; b < PAYLOAD; b++) payloads[p][b] = (uint8_t)(b ? b + p * 100 : p);
        for (uint32_t b = 0; b < ANSWER; b++) answers[p][b] = (uint8_t)(b + p * 100);
    }
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, bytes) == 0);
    CHECK(listen(listener, 64) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &bytes) == 0);
    port = ntohs(address.sin_port);
    CHECK(pthread_create(&thread, NULL, accept_all, NULL) == 0);
    settings();
    for (int backend = 0; backend < 2; backend++) { /* io_uring, where it is to be had; epoll */
        setenv("LUMEN_URING_MASK", backend ? "setup" : "", 1);
        each_reply_by_itself();
        connections_that_end();
        replies_that_close();
        dials();
        latencies();
        arrivals();
    }
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
    return check_finish("test_loadgen");
}
