/* overload_client.c: what a server does with twice the requests it can run, and how soon it is its
 * old self again. One thread, epoll, the native protocol; four phases over connections made at the
 * start. Started by bench/load/overload.py, which also starts the server and reads the JSON printed
 * here.
 *
 *   overload_client HOST PORT MODEL ENCODING PAYLOAD DEADLINE_US CONNECTIONS DEPTH CALM SECONDS
 *                   CALM_SECONDS FACTOR SEED SAMPLES
 *
 * maximum   closed loop over at most 64 of CONNECTIONS, no deadline: what the server can do;
 * quiet     closed loop over CALM connections of their own: its p99 at ease;
 * overload  open loop, Poisson arrivals at FACTOR times the maximum, each with DEADLINE_US;
 * recovery  as quiet, begun while the last requests of the overload are still under way. Of each
 *           request, when it was sent and how long it took go to the file SAMPLES, u64 pairs, ns.
 *
 * In the open loop latency counts from the moment a request was due, whether or not it could be
 * sent then. DEPTH is how many requests a connection may have out: what is due together goes out
 * together, so that one thread can send more than a server can take.
 */
#include <arpa/inet.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "native_lane.h"
#include "parts/histogram.h"

enum {
    LOAD_LANES_MAX = 4096,
    CALM_LANES_MAX = 64,
    MAXIMUM_LANES = 64,
    MAXIMUM_DEPTH = 4,
    STATUSES = 16,
    EVENTS = 256,
    SAMPLES_MAX = 1 << 21,
    LATE_NS = 1000000
};
static const uint64_t second_ns = 1000000000u;

struct phase {
    const char *name;
    uint32_t first, count; /* lanes */
    uint32_t depth;        /* closed loop: requests out on each */
    double rate;           /* open loop: arrivals a second; 0: closed */
    uint32_t timeout_us;
    bool keeps_samples;
    uint64_t warmup_ns, duration_ns;
    uint64_t from_ns, end_ns; /* requests due in between count */
    uint64_t cpu_ns;          /* of this thread in that time */
    uint64_t statuses[STATUSES], late, unsent, lost;
    uint64_t accepted[LM_HISTOGRAM_BUCKETS], refused[LM_HISTOGRAM_BUCKETS];
};

struct bench {
    struct lane *lanes;
    uint32_t load_lanes, calm_lanes, depth;
    uint32_t ready[LOAD_LANES_MAX]; /* open loop: a ring of lanes with room */
    uint64_t ready_from, ready_to;
    struct lane_hooks hooks;
    struct phase *current;
    uint64_t out; /* requests without an answer */
    uint64_t random, next_due_ns;
    uint64_t (*samples)[2];
    size_t sample_count;
    int epoll;
};

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "overload_client: %s\n", what);
    exit(1);
}

static uint64_t thread_cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * second_ns + (uint64_t)now.tv_nsec;
}

/* ---- requests ---- */

static void start_request(struct bench *bench, struct lane *lane, uint64_t due_ns,
                          uint64_t now_ns) {
    struct phase *phase = bench->current;
    lane_put(lane, due_ns, phase->timeout_us, phase);
    bench->out++;
    if (due_ns >= phase->from_ns && now_ns - due_ns > LATE_NS) phase->late++;
}

static void make_ready(struct bench *bench, struct lane *lane) {
    if (lane->ready) return;
    lane->ready = true;
    bench->ready[bench->ready_to++ % LOAD_LANES_MAX] = (uint32_t)(lane - bench->lanes);
}

static void answered(void *context, struct lane_request *request, uint16_t status) {
    struct bench *bench = context;
    struct phase *phase = request->tag;
    uint64_t latency_ns = lm_now_ns() - request->due_ns;
    bench->out--;
    if (request->due_ns < phase->from_ns || request->due_ns >= phase->end_ns) return;
    phase->statuses[status < STATUSES ? status : STATUSES - 1]++;
    if (status == LM_STATUS_OVERLOADED || status == LM_STATUS_DEADLINE)
        phase->refused[lm_histogram_bucket(latency_ns)]++;
    if (status != LM_STATUS_OK) return;
    phase->accepted[lm_histogram_bucket(latency_ns)]++;
    if (phase->keeps_samples && bench->sample_count < SAMPLES_MAX) {
        bench->samples[bench->sample_count][0] = request->due_ns - phase->from_ns;
        bench->samples[bench->sample_count++][1] = latency_ns;
    }
}

/* Closed loops send the next request at once. */
static void place_free(void *context, struct lane *lane, const struct lane_request *request) {
    struct bench *bench = context;
    struct phase *phase = bench->current;
    if (phase != request->tag) return;
    uint64_t now = lm_now_ns();
    if (phase->rate > 0) {
        make_ready(bench, lane);
    } else if (now < phase->end_ns) {
        start_request(bench, lane, now, now);
    }
}

static void lost(void *context, const struct lane_request *request) {
    struct bench *bench = context;
    struct phase *phase = request->tag;
    phase->lost++;
    bench->out--;
}

/* Deals with what has come; sleeps for at most so long when nothing has. */
static void turn(struct bench *bench, uint64_t wait_ns) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(bench->epoll, events, EVENTS, 0);
    if (count == 0 && wait_ns > 0) {
        /* ppoll, since epoll_wait knows whole milliseconds only. */
        struct pollfd all = {.fd = bench->epoll, .events = POLLIN};
        struct timespec limit = {(time_t)(wait_ns / second_ns), (long)(wait_ns % second_ns)};
        if (ppoll(&all, 1, &limit, NULL) > 0) count = epoll_wait(bench->epoll, events, EVENTS, 0);
    }
    for (int e = 0; e < count; e++) {
        struct lane *lane = &bench->lanes[events[e].data.u32];
        lane_receive(lane, &bench->hooks);
        lane_flush(lane, &bench->hooks);
    }
}

/* ---- phases ---- */

static void schedule_next(struct bench *bench, double rate) {
    bench->random ^= bench->random << 13;
    bench->random ^= bench->random >> 7;
    bench->random ^= bench->random << 17;
    double uniform = (double)(bench->random >> 11) / 9007199254740992.0; /* 2^53 */
    bench->next_due_ns += (uint64_t)(-log(1.0 - uniform) / rate * 1e9);
}

/* Sends what is due, all of it over one lane while that has room. */
static void start_due(struct bench *bench, struct phase *phase, uint64_t now_ns) {
    struct lane *lane = NULL;
    while (bench->next_due_ns <= now_ns && bench->next_due_ns < phase->end_ns) {
        if (!lane || lane->free_count == 0) {
            if (lane) lane_flush(lane, &bench->hooks);
            if (bench->ready_from == bench->ready_to) return;
            lane = &bench->lanes[bench->ready[bench->ready_from++ % LOAD_LANES_MAX]];
            lane->ready = false;
            if (lane->fd < 0) lane = NULL;
            continue;
        }
        start_request(bench, lane, bench->next_due_ns, now_ns);
        schedule_next(bench, phase->rate);
    }
    if (!lane) return;
    if (lane->free_count > 0) make_ready(bench, lane);
    lane_flush(lane, &bench->hooks);
}

static void start_phase(struct bench *bench, struct phase *phase) {
    uint64_t now = lm_now_ns();
    bench->current = phase;
    bench->next_due_ns = now;
    phase->from_ns = now + phase->warmup_ns;
    phase->end_ns = phase->from_ns + phase->duration_ns;
    for (uint32_t l = phase->first; l < phase->first + phase->count; l++) {
        struct lane *lane = &bench->lanes[l];
        if (lane->fd < 0) continue;
        if (phase->rate > 0) make_ready(bench, lane);
        for (uint32_t d = 0; phase->rate <= 0 && d < phase->depth; d++)
            start_request(bench, lane, now, now);
        lane_flush(lane, &bench->hooks);
    }
}

static void run_phase(struct bench *bench, struct phase *phase) {
    const uint64_t tick_ns = 10 * 1000000;
    uint64_t now, counted_from = 0;
    start_phase(bench, phase);
    while ((now = lm_now_ns()) < phase->end_ns) {
        uint64_t wait = tick_ns;
        if (!counted_from && now >= phase->from_ns) counted_from = thread_cpu_ns();
        if (phase->rate > 0) {
            start_due(bench, phase, now);
            now = lm_now_ns();
            bool is_blocked = bench->ready_from == bench->ready_to;
            uint64_t gap = bench->next_due_ns > now ? bench->next_due_ns - now : 0;
            if (!is_blocked && gap < wait) wait = gap;
        }
        turn(bench, wait);
    }
    phase->cpu_ns = thread_cpu_ns() - counted_from;
    for (; phase->rate > 0 && bench->next_due_ns < phase->end_ns; phase->unsent++)
        schedule_next(bench, phase->rate);
}

static void drain(struct bench *bench) {
    uint64_t until = lm_now_ns() + 5 * second_ns;
    while (bench->out > 0 && lm_now_ns() < until) turn(bench, 1000000);
    if (bench->out > 0) fail("requests without an answer");
}

/* ---- the program ---- */

static void open_lanes(struct bench *bench, char **arguments) {
    uint8_t header[LM_NATIVE_REQUEST_BYTES] = "LMN1";
    uint16_t model = (uint16_t)atoi(arguments[3]);
    uint32_t rows = 1, lanes = bench->load_lanes + bench->calm_lanes;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(arguments[2]))};
    if (inet_pton(AF_INET, arguments[1], &address.sin_addr) != 1) fail("expected an IPv4 address");
    header[4] = LM_KIND_INFER;
    header[5] = (uint8_t)atoi(arguments[4]);
    memcpy(header + 6, &model, 2);
    memcpy(header + 16, &bench->hooks.payload_bytes, 4);
    memcpy(header + 24, &rows, 4);
    bench->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (bench->epoll < 0) fail("epoll_create1");
    for (uint32_t l = 0; l < lanes; l++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = l};
        struct lane *lane = &bench->lanes[l];
        if (!lane_open(lane, &address, bench->depth, header) ||
            epoll_ctl(bench->epoll, EPOLL_CTL_ADD, lane->fd, &event) != 0)
            fail(strerror(errno));
    }
}

static void read_payload(struct bench *bench, const char *path) {
    FILE *file = fopen(path, "rb");
    long bytes = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    uint8_t *payload = bytes > 0 ? malloc((size_t)bytes) : NULL;
    if (!payload) fail("cannot read the payload");
    rewind(file);
    if (fread(payload, 1, (size_t)bytes, file) != (size_t)bytes) fail("cannot read the payload");
    fclose(file);
    bench->hooks.payload = payload;
    bench->hooks.payload_bytes = (uint32_t)bytes;
}

static void open_bench(struct bench *bench, char **arguments) {
    bench->load_lanes = (uint32_t)atoi(arguments[7]);
    bench->depth = (uint32_t)atoi(arguments[8]);
    bench->calm_lanes = (uint32_t)atoi(arguments[9]);
    bench->random = strtoull(arguments[13], NULL, 10) * 2 + 1;
    bench->hooks.context = bench;
    bench->hooks.answered = answered;
    bench->hooks.place_free = place_free;
    bench->hooks.lost = lost;
    if (bench->load_lanes < 1 || bench->load_lanes > LOAD_LANES_MAX || bench->depth < 1 ||
        bench->depth > LANE_DEPTH_MAX || bench->calm_lanes < 1 ||
        bench->calm_lanes > CALM_LANES_MAX)
        fail("CONNECTIONS, DEPTH or CALM is out of range");
    bench->lanes = calloc(bench->load_lanes + bench->calm_lanes, sizeof *bench->lanes);
    bench->samples = calloc(SAMPLES_MAX, sizeof *bench->samples);
    if (!bench->lanes || !bench->samples) fail("no memory");
    read_payload(bench, arguments[5]);
    open_lanes(bench, arguments);
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* arrivals on time */
}

static void print_histogram(const char *name, const uint64_t *buckets) {
    const char *comma = "";
    printf(", \"%s\": [", name);
    for (uint32_t b = 0; b < LM_HISTOGRAM_BUCKETS; b++) {
        if (buckets[b] == 0) continue;
        printf("%s[%u, %llu]", comma, b, (unsigned long long)buckets[b]);
        comma = ", ";
    }
    printf("]");
}

static void print_phase(const struct phase *phase, const char *end) {
    printf("\"%s\": {\"seconds\": %.6f, \"rate\": %.3f, \"late\": %llu, \"unsent\": %llu, "
           "\"lost\": %llu, \"client_share\": %.4f, \"statuses\": [",
           phase->name, (double)phase->duration_ns / 1e9, phase->rate,
           (unsigned long long)phase->late, (unsigned long long)phase->unsent,
           (unsigned long long)phase->lost, (double)phase->cpu_ns / (double)phase->duration_ns);
    for (int s = 0; s < STATUSES; s++)
        printf("%s%llu", s ? ", " : "", (unsigned long long)phase->statuses[s]);
    printf("]");
    print_histogram("accepted", phase->accepted);
    print_histogram("refused", phase->refused);
    printf("}%s", end);
}

static void write_samples(const struct bench *bench, const char *path) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bench->samples, sizeof *bench->samples, bench->sample_count, file) !=
                     bench->sample_count)
        fail("cannot write the samples");
    if (fclose(file) != 0) fail("cannot write the samples");
}

int main(int argc, char **argv) {
    static struct bench bench;
    static struct phase maximum, quiet, overload, recovery;
    if (argc != 15) fail("see the head of bench/load/overload_client.c");
    open_bench(&bench, argv);
    uint64_t calm_ns = (uint64_t)(atof(argv[11]) * 1e9);
    maximum =
        (struct phase){.name = "maximum",
                       .count = bench.load_lanes < MAXIMUM_LANES ? bench.load_lanes : MAXIMUM_LANES,
                       .depth = bench.depth < MAXIMUM_DEPTH ? bench.depth : MAXIMUM_DEPTH,
                       .warmup_ns = calm_ns / 4,
                       .duration_ns = calm_ns};
    quiet = maximum;
    quiet.name = "quiet";
    quiet.first = bench.load_lanes;
    quiet.count = bench.calm_lanes;
    quiet.depth = 1;
    recovery = quiet;
    recovery.name = "recovery";
    recovery.keeps_samples = true;
    recovery.warmup_ns = 0;
    overload = (struct phase){.name = "overload",
                              .count = bench.load_lanes,
                              .timeout_us = (uint32_t)strtoul(argv[6], NULL, 10),
                              .duration_ns = (uint64_t)(atof(argv[10]) * 1e9)};
    run_phase(&bench, &maximum);
    drain(&bench);
    run_phase(&bench, &quiet);
    drain(&bench);
    overload.rate = atof(argv[12]) * (double)maximum.statuses[0] / ((double)calm_ns / 1e9);
    if (overload.rate <= 0) fail("the server answered nothing");
    run_phase(&bench, &overload);
    run_phase(&bench, &recovery);
    drain(&bench);
    printf("{");
    print_phase(&maximum, ",\n ");
    print_phase(&quiet, ",\n ");
    print_phase(&overload, ",\n ");
    print_phase(&recovery, "}\n");
    write_samples(&bench, argv[14]);
    return 0;
}
