/* overhead.c: what the server adds to ONNX Runtime, measured in one run: bare Run loops through the
 * C API take turns with requests over TCP to a server that runs the same model on the same cores.
 *
 *   overhead LIBRARY MODEL MEAN SCALE ORDER PIXELS HOST PORT PID [ROUNDS]
 *
 * LIBRARY libonnxruntime.so, MODEL the optimised graph, PIXELS a file of one rgb8 image. Started by
 * bench/perf/overhead.py, which also starts the server. Prints one JSON object.
 *
 * Rows:  one connection: median round trip ÷ median bare Run;
 *        16 connections: requests/s ÷ (cores ÷ bare Run), p99 ÷ median, CPU ÷ bare CPU.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/native_codec.h"
#include "base/topology.h"
#include "models/binding.h"
#include "models/load.h"
#include "models/model.h"
#include "models/runner.h"

enum { CONNECTIONS = 16, SAMPLES_MAX = 1 << 20, ONE_BURST = 40, RUNNERS_MAX = 64 };
static const uint64_t second_ns = 1000000000u;
static const struct lm_sizes one_row = {.rows = 1};

struct samples {
    uint64_t *values;
    size_t count;
};

struct bench {
    struct lm_ort ort;
    struct lm_model model;
    uint8_t *pixels;
    size_t pixel_bytes;
    struct sockaddr_in address;
    pid_t server;
    int32_t cpus[RUNNERS_MAX];
    uint32_t cpu_count;
    size_t reply_bytes;
};

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "overhead: %s\n", what);
    exit(1);
}

static void add(struct samples *samples, uint64_t value) {
    if (!samples->values) samples->values = malloc(SAMPLES_MAX * sizeof *samples->values);
    if (!samples->values) fail("no memory for samples");
    if (samples->count < SAMPLES_MAX) samples->values[samples->count++] = value;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double quantile(struct samples *samples, double q) {
    if (!samples->count) return 0;
    qsort(samples->values, samples->count, sizeof *samples->values, by_value);
    return (double)samples->values[(size_t)(q * (double)(samples->count - 1))];
}

static uint64_t cpu_ns(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) fail("cannot read a CPU clock (is the server gone?)");
    return (uint64_t)now.tv_sec * second_ns + (uint64_t)now.tv_nsec;
}

static uint64_t server_cpu_ns(const struct bench *bench) {
    clockid_t clock;
    if (clock_getcpuclockid(bench->server, &clock) != 0) fail("cannot find the server's CPU clock");
    return cpu_ns(clock);
}

/* ---- bare ONNX Runtime ---- */

struct runner {
    const struct bench *bench;
    uint32_t index;
    uint64_t until_ns; /* run until then, or ... */
    uint32_t runs;     /* ... that often */
    struct samples times;
    uint64_t cpu_ns;
    OrtValue *values[2 * LM_TENSORS_MAX];
    struct lm_slot slot;
    struct lm_binding binding;
};

static void runner_open(struct runner *runner, const struct bench *bench, uint32_t index) {
    struct lm_layout_lists lists;
    struct lm_layout layout = lm_layout_of(&lists);
    *runner = (struct runner){.bench = bench, .index = index};
    if (!lm_model_slot_bytes(&bench->model, &one_row, &runner->slot.bytes)) fail("model too large");
    runner->slot.base = aligned_alloc(LM_SLOT_ALIGN, runner->slot.bytes);
    if (!runner->slot.base) fail("no memory");
    lm_model_layout(&bench->model, &runner->slot, LM_ENCODING_TENSORS, &one_row, &layout);
    lm_rgb8_convert(&bench->model.input_plan.rgb8, bench->pixels, layout.inputs[0], 1);
    if (lm_model_bind(&bench->model, &bench->ort, &layout, &one_row, &runner->binding,
                      runner->values))
        fail(lm_error_last());
}

static void *runner_main(void *argument) {
    struct runner *runner = argument;
    const struct bench *bench = runner->bench;
    lm_thread_pin(bench->cpus[runner->index]);
    for (int warm = 0; warm < 3; warm++)
        lm_model_run(&bench->model, &bench->ort, runner->index, runner->values);
    uint64_t cpu = cpu_ns(CLOCK_THREAD_CPUTIME_ID), now = lm_now_ns();
    for (uint32_t run = 0; runner->runs ? run < runner->runs : now < runner->until_ns; run++) {
        uint64_t start = lm_now_ns();
        if (lm_model_run(&bench->model, &bench->ort, runner->index, runner->values))
            fail(lm_error_last());
        now = lm_now_ns();
        add(&runner->times, now - start);
    }
    runner->cpu_ns += cpu_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    return NULL;
}

/* Runs `count` runners from `first`, side by side. */
static void run_bare(struct runner *first, uint32_t count) {
    pthread_t threads[RUNNERS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, runner_main, &first[i]))
            fail("cannot start a thread");
    }
    for (uint32_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

/* ---- requests ---- */

static int dial(const struct bench *bench) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&bench->address, sizeof bench->address) != 0)
        fail("cannot connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void send_request(const struct bench *bench, int fd) {
    uint8_t header[LM_NATIVE_REQUEST_BYTES] = "LMN1";
    uint32_t bytes = (uint32_t)bench->pixel_bytes;
    header[4] = LM_KIND_INFER;
    header[5] = LM_ENCODING_RGB8;
    memcpy(header + 16, &bytes, 4);
    struct iovec parts[2] = {{header, sizeof header}, {bench->pixels, bench->pixel_bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    while (message.msg_iovlen > 0) {
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < 0) fail("the server closed a connection");
        while (message.msg_iovlen > 0 && (size_t)sent >= message.msg_iov->iov_len) {
            sent -= (ssize_t)message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen > 0) {
            message.msg_iov->iov_base = (uint8_t *)message.msg_iov->iov_base + sent;
            message.msg_iov->iov_len -= (size_t)sent;
        }
    }
}

static void take_reply(const struct bench *bench, int fd) {
    uint8_t reply[1 << 16];
    uint16_t status;
    if (recv(fd, reply, bench->reply_bytes, MSG_WAITALL) != (ssize_t)bench->reply_bytes)
        fail("a reply is short");
    memcpy(&status, reply + 4, 2);
    if (status != LM_STATUS_OK) fail("a request was refused");
}

static void run_one_connection(const struct bench *bench, int fd, uint32_t requests,
                               struct samples *times) {
    for (uint32_t i = 0; i < 3 + requests; i++) {
        uint64_t start = lm_now_ns();
        send_request(bench, fd);
        take_reply(bench, fd);
        if (i >= 3) add(times, lm_now_ns() - start);
    }
}

struct load {
    struct samples times;
    uint64_t requests;
    uint64_t wall_ns;
    uint64_t server_cpu_ns;
};

/* Closed loop over all connections from one thread; the first moment is not counted. */
static void run_load(const struct bench *bench, uint64_t duration_ns, struct load *load) {
    struct pollfd polls[CONNECTIONS];
    uint64_t started[CONNECTIONS];
    for (int c = 0; c < CONNECTIONS; c++) {
        polls[c] = (struct pollfd){.fd = dial(bench), .events = POLLIN};
        started[c] = lm_now_ns();
        send_request(bench, polls[c].fd);
    }
    uint64_t begin = lm_now_ns() + duration_ns / 5, counted_from = 0, cpu = 0, now;
    while ((now = lm_now_ns()) < begin + duration_ns) {
        if (!counted_from && now >= begin) {
            counted_from = now;
            cpu = server_cpu_ns(bench);
        }
        if (poll(polls, CONNECTIONS, 1000) < 0 && errno != EINTR) fail("poll");
        for (int c = 0; c < CONNECTIONS; c++) {
            if (!polls[c].revents) continue;
            take_reply(bench, polls[c].fd);
            now = lm_now_ns();
            if (counted_from) {
                load->requests++;
                add(&load->times, now - started[c]);
            }
            started[c] = now;
            send_request(bench, polls[c].fd);
        }
    }
    load->wall_ns += lm_now_ns() - counted_from;
    load->server_cpu_ns += server_cpu_ns(bench) - cpu;
    for (int c = 0; c < CONNECTIONS; c++) {
        take_reply(bench, polls[c].fd);
        close(polls[c].fd);
    }
}

/* ---- the program ---- */

static void set_up(struct bench *bench, char **arguments) {
    float mean = strtof(arguments[3], NULL), scale = strtof(arguments[4], NULL);
    lumen_model_config config = {
        .name = "bare",
        .path = arguments[2],
        .intra_op_threads = 1,
        .mean = {mean, mean, mean},
        .scale = {scale, scale, scale},
        .channel_order = strcmp(arguments[5], "bgr") == 0 ? LUMEN_CHANNELS_BGR : LUMEN_CHANNELS_RGB,
        .max_output_bytes = 1 << 20};
    int found = lm_topology_usable_cpus("", bench->cpus, RUNNERS_MAX);
    if (found < 1) fail("no usable cores");
    bench->cpu_count = (uint32_t)(found < RUNNERS_MAX ? found : RUNNERS_MAX);
    if (lm_ort_open(&bench->ort, arguments[1])) fail(lm_error_last());
    if (lm_model_open(&bench->model, &bench->ort, &config, 0, bench->cpu_count))
        fail(lm_error_last());
    if (!bench->model.input_plan.has_rgb8) fail("the model takes no rgb8 images");
    lm_model_payload_bytes(&bench->model, LM_ENCODING_RGB8, &one_row, &bench->pixel_bytes);
    bench->pixels = malloc(bench->pixel_bytes);
    FILE *file = fopen(arguments[6], "rb");
    if (!file || !bench->pixels ||
        fread(bench->pixels, 1, bench->pixel_bytes, file) != bench->pixel_bytes)
        fail("cannot read the pixels");
    fclose(file);
    bench->reply_bytes = LM_NATIVE_REPLY_BYTES;
    for (uint32_t o = 0; o < bench->model.output_count; o++) {
        size_t bytes = 0;
        lm_tensor_bytes(&bench->model.outputs[o], &one_row, &bytes);
        bench->reply_bytes += bytes;
    }
    bench->address = (struct sockaddr_in){.sin_family = AF_INET,
                                          .sin_port = htons((uint16_t)atoi(arguments[8]))};
    if (inet_pton(AF_INET, arguments[7], &bench->address.sin_addr) != 1)
        fail("expected an IPv4 address");
    bench->server = (pid_t)atoi(arguments[9]);
}

int main(int argc, char **argv) {
    static struct bench bench;
    static struct runner alone[RUNNERS_MAX], together[RUNNERS_MAX];
    struct samples round_trips = {0}, bare_alone = {0}, bare_together = {0};
    struct load load = {0};
    if (argc < 10) fail("see the head of bench/perf/overhead.c");
    set_up(&bench, argv);
    uint32_t rounds = argc > 10 ? (uint32_t)atoi(argv[10]) : 10;
    uint64_t bare_cpu = 0;
    for (uint32_t c = 0; c < bench.cpu_count; c++) {
        runner_open(&alone[c], &bench, c);
        runner_open(&together[c], &bench, c);
    }
    int fd = dial(&bench);
    for (uint32_t round = 0; round < rounds; round++) {
        struct runner *runner = &alone[round % bench.cpu_count];
        runner->runs = ONE_BURST;
        run_bare(runner, 1);
        run_one_connection(&bench, fd, ONE_BURST, &round_trips);
        for (uint32_t c = 0; c < bench.cpu_count; c++)
            together[c].until_ns = lm_now_ns() + second_ns;
        run_bare(together, bench.cpu_count);
        run_load(&bench, 2 * second_ns, &load);
        fprintf(stderr, "\rround %u of %u", round + 1, rounds);
    }
    fprintf(stderr, "\n");
    for (uint32_t c = 0; c < bench.cpu_count; c++) {
        for (size_t i = 0; i < alone[c].times.count; i++)
            add(&bare_alone, alone[c].times.values[i]);
        for (size_t i = 0; i < together[c].times.count; i++)
            add(&bare_together, together[c].times.values[i]);
        bare_cpu += together[c].cpu_ns;
    }
    double alone_us = quantile(&bare_alone, 0.5) / 1e3,
           together_us = quantile(&bare_together, 0.5) / 1e3;
    double mean_run_us = 0;
    for (size_t i = 0; i < bare_together.count; i++)
        mean_run_us += (double)bare_together.values[i] / 1e3 / (double)bare_together.count;
    double trip_us = quantile(&round_trips, 0.5) / 1e3;
    double rps = (double)load.requests / ((double)load.wall_ns / 1e9);
    double cpu_us = (double)load.server_cpu_ns / 1e3 / (double)load.requests;
    double bare_cpu_us = (double)bare_cpu / 1e3 / (double)bare_together.count;
    printf("{\"cores\": %u, \"bare_run_us\": %.1f, \"round_trip_us\": %.1f, "
           "\"one_connection_ratio\": %.4f,\n",
           bench.cpu_count, alone_us, trip_us, trip_us / alone_us);
    printf(" \"bare_run_all_cores_us\": %.1f, \"bare_run_all_cores_mean_us\": %.1f, "
           "\"requests_per_second\": %.2f,\n",
           together_us, mean_run_us, rps);
    printf(" \"throughput_ratio\": %.4f, \"throughput_ratio_of_mean\": %.4f,\n",
           rps * together_us / 1e6 / bench.cpu_count, rps * mean_run_us / 1e6 / bench.cpu_count);
    printf(" \"p50_us\": %.0f, \"p99_us\": %.0f, \"p99_over_median\": %.4f,\n",
           quantile(&load.times, 0.5) / 1e3, quantile(&load.times, 0.99) / 1e3,
           quantile(&load.times, 0.99) / quantile(&load.times, 0.5));
    printf(" \"cpu_us_per_request\": %.1f, \"bare_cpu_us\": %.1f, \"cpu_ratio\": %.4f, "
           "\"requests\": %llu}\n",
           cpu_us, bare_cpu_us, cpu_us / bare_cpu_us, (unsigned long long)load.requests);
    return 0;
}
