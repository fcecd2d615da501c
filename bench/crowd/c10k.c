/* c10k.c: a crowd of connections to a server on this machine: connects as fast as it can, then
 * holds them, idle or slow, and churns some.
 *
 *   c10k --port P --connections N [--slow S] [--churn PER_SECOND] [--period-ms MS] [--stats FILE]
 *        [--body-bytes B] [--kinds frame,head,body] [--process I]
 *
 * Started by bench/crowd/c10k.py, which measures meanwhile; one thread on a ring of its own. Prints
 * a JSON line when it is ready, waits for a line on stdin, connects, prints two lines a second (ten
 * while it connects), and ends when stdin does. Source addresses are 127.0.0.2 and up, those of
 * process I beyond those of the one before, so that ports are not the limit.
 *
 * With the server's statistics file it never runs further ahead of accept than WINDOW: a full
 * accept queue drops handshakes, and what is measured then is the kernel's retry timer.
 *
 * Each connection has one operation under way: the connect, or a receive.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/error.h"
#include "flow/connection.h"
#include "parts/histogram.h"
#include "ring/ring.h"

enum {
    WINDOW = LM_LISTEN_BACKLOG / 4, /* connections that the server has not accepted yet */
    BURST = 64,                     /* connects between two looks at the ring */
    PER_SOURCE = 8000,              /* of its 28,232 ports: a free one is found at once */
    COUNTERS_MAX = 2 * LUMEN_IO_THREADS_MAX
};
static const uint64_t ms_ns = 1000000;
static const uint64_t stall_ns = 5000000000; /* of the ramp: whoever is not in by now stays out */

/* Slow are the 32 bytes of a native ping, an HTTP head, or the body of a native request. */
enum kind { KIND_IDLE, KIND_SLOW_FRAME, KIND_SLOW_HEAD, KIND_SLOW_BODY };
enum state { STATE_CLOSED, STATE_CONNECTING, STATE_OPEN, STATE_CLOSING };
enum phase { PHASE_RAMP, PHASE_HELD, PHASE_DONE };

struct member {
    int fd;
    uint8_t kind;
    uint8_t state;
    bool is_away;
    uint32_t at; /* slow: bytes of its request that are out */
    uint64_t began_ns;
};

struct crowd {
    uint16_t port;
    uint32_t count, slow_count, body_bytes, process, source_count;
    double churn, period_ms;
    uint8_t kinds[3]; /* of the slow ones, in turn */
    uint32_t kind_count;
    struct member *members; /* the idle ones first */
    uint32_t *todo;         /* a stack of members to connect */
    uint32_t todo_count;
    struct lm_ring *ring;
    const uint64_t *counters[COUNTERS_MAX]; /* the server's: accepted, refused */
    uint32_t counter_count;
    uint64_t counted_before;
    enum phase phase;
    uint64_t begin_ns, progress_ns, tick_ns, report_ns;
    uint64_t ramp_ns, ramp_established; /* 0: it lasts */
    uint64_t retry_ns;                  /* a connect failed: not before then */
    double slow_credit, churn_credit;
    uint32_t next_source, next_slow, next_churn;
    uint32_t open, connecting;
    uint32_t away; /* were connected, left or were sent away, and are on their way back */
    uint64_t established, failed, lost, shed, churned, answers, refusals;
    struct lm_histogram connect_times;
};

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "c10k: %s\n", what);
    exit(1);
}

/* ---- how far the server is ---- */

/* The words that count what came through accept, of all I/O threads; lumen.h has the layout. */
static void find_counters(struct crowd *crowd, const char *path) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &status) != 0) fail("cannot open the statistics file");
    const char *file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
    const lumen_stats_header *header = (const void *)file;
    if (file == MAP_FAILED || memcmp(header->magic, LUMEN_STATS_MAGIC, 8) != 0)
        fail("this is no statistics file");
    const lumen_stats_field *fields = (const void *)(file + header->fields_offset);
    for (uint32_t b = 0; b < header->block_count; b++) {
        const char *block = file + header->blocks_offset + (size_t)b * header->block_bytes;
        if (((const lumen_stats_block *)(const void *)block)->role != LUMEN_ROLE_IO) continue;
        for (uint32_t f = 0; f < header->field_count; f++) {
            if ((strcmp(fields[f].name, "connections_accepted") == 0 ||
                 strcmp(fields[f].name, "connections_refused") == 0) &&
                crowd->counter_count < COUNTERS_MAX) {
                crowd->counters[crowd->counter_count++] = (const void *)(block + fields[f].offset);
            }
        }
    }
    close(fd); /* the mapping stays to the end */
}

/* Relaxed: counts of another process, as of a moment ago. */
static uint64_t taken(const struct crowd *crowd) {
    uint64_t sum = 0;
    for (uint32_t c = 0; c < crowd->counter_count; c++)
        sum += __atomic_load_n(crowd->counters[c], __ATOMIC_RELAXED);
    return sum - crowd->counted_before;
}

/* Connections that wait in the server's accept queue; 0 when it is not known. */
static uint64_t unaccepted(const struct crowd *crowd) {
    uint64_t accepted = crowd->counter_count ? taken(crowd) : crowd->established;
    return crowd->established > accepted ? crowd->established - accepted : 0;
}

/* ---- one connection ---- */

static void ended(struct crowd *crowd, uint32_t index) {
    struct member *member = &crowd->members[index];
    bool again = true;
    if (member->state == STATE_CONNECTING) {
        crowd->connecting--;
        crowd->failed++;
        crowd->retry_ns = lm_now_ns() + 10 * ms_ns;
    } else {
        crowd->open--;
        if (member->state == STATE_CLOSING) {
            crowd->churned++;
        } else if (member->kind != KIND_IDLE) {
            crowd->shed++; /* the server may: slow ones hold what others wait for */
        } else {
            crowd->lost++; /* refused or dropped without a cause: not tried again */
            again = false;
        }
        member->is_away = again;
        crowd->away += again;
    }
    close(member->fd);
    *member = (struct member){.fd = -1, .kind = member->kind, .is_away = member->is_away};
    if (again) crowd->todo[crowd->todo_count++] = index;
}

static void established(struct crowd *crowd, uint32_t index, uint64_t now_ns) {
    struct member *member = &crowd->members[index];
    member->state = STATE_OPEN;
    crowd->connecting--;
    crowd->open++;
    crowd->away -= member->is_away;
    member->is_away = false;
    crowd->established++;
    crowd->progress_ns = now_ns;
    lm_histogram_record(&crowd->connect_times, now_ns - member->began_ns);
    lm_ring_recv_header(crowd->ring, member->fd, index, 0);
}

static int dial(struct crowd *crowd) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0) return -1;
    uint32_t source = INADDR_LOOPBACK + 1 + crowd->process * crowd->source_count +
                      crowd->next_source++ % crowd->source_count;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(source)};
    struct sockaddr_in there = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons(crowd->port)};
    /* The port is chosen by connect, which looks at both ends: each source has all of them. */
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&here, sizeof here) != 0 ||
        (connect(fd, (struct sockaddr *)&there, sizeof there) != 0 && errno != EINPROGRESS)) {
        int number = errno;
        close(fd);
        errno = number;
        return -1;
    }
    fcntl(fd, F_SETFL, O_RDWR); /* rings wait for sockets that would block, and for no others */
    return fd;
}

static void start_connect(struct crowd *crowd, uint32_t index) {
    static const struct msghdr nothing;
    struct member *member = &crowd->members[index];
    member->began_ns = lm_now_ns();
    member->fd = dial(crowd);
    if (member->fd < 0) {
        if (crowd->failed++ == 0) fprintf(stderr, "c10k: connect: %s\n", strerror(errno));
        crowd->retry_ns = member->began_ns + 10 * ms_ns;
        crowd->todo[crowd->todo_count++] = index;
        return;
    }
    member->state = STATE_CONNECTING;
    crowd->connecting++;
    /* Sending nothing works once the connection is there, which on loopback is now as a rule. */
    if (send(member->fd, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL) == 0) {
        established(crowd, index, lm_now_ns());
    } else {
        lm_ring_send(crowd->ring, member->fd, &nothing, index, 0);
    }
}

/* Returns how long the loop may sleep. */
static uint64_t connect_some(struct crowd *crowd, uint64_t now_ns, uint64_t tick_ns) {
    if (crowd->todo_count == 0 || crowd->phase == PHASE_DONE) return tick_ns;
    if (now_ns < crowd->retry_ns) return crowd->retry_ns - now_ns;
    uint64_t ahead = unaccepted(crowd) + crowd->connecting;
    if (ahead >= WINDOW) return ms_ns / 10;
    for (uint32_t i = 0; i < BURST && crowd->todo_count && ahead + i < WINDOW; i++)
        start_connect(crowd, crowd->todo[--crowd->todo_count]);
    return 0;
}

/* ---- what comes in ---- */

/* An answer to a slow request starts the piece it came in: it took a second or more to ask. */
static void take_answer(struct crowd *crowd, const uint8_t *bytes, size_t count) {
    static const char fine[] = "HTTP/1.1 200";
    bool is_native = count >= LM_NATIVE_REPLY_BYTES && memcmp(bytes, "LMR1", 4) == 0;
    bool is_fine = is_native ? bytes[4] == LM_STATUS_OK && bytes[5] == 0
                             : count >= sizeof fine && memcmp(bytes, fine, sizeof fine - 1) == 0;
    crowd->answers += is_fine;
    crowd->refusals += !is_fine;
}

static void complete(struct crowd *crowd, const struct lm_completion *completion) {
    uint32_t index = completion->index;
    if (completion->op == LM_OP_SEND) {
        if (completion->result < 0) {
            ended(crowd, index);
        } else {
            established(crowd, index, lm_now_ns());
        }
        return;
    }
    if (completion->op != LM_OP_RECV_HEADER) return;
    if (completion->result > 0) {
        take_answer(crowd, lm_ring_buffer(crowd->ring, completion->buffer),
                    (size_t)completion->result);
    }
    if (completion->buffer != LM_NO_BUFFER) lm_ring_buffer_return(crowd->ring, completion->buffer);
    if (completion->result > 0 || completion->result == -ENOBUFS) {
        lm_ring_recv_header(crowd->ring, crowd->members[index].fd, index, 0);
    } else {
        ended(crowd, index);
    }
}

/* ---- slow ones and leavers ---- */

/* Sends the next byte of a request; the body's header goes whole. What fails, the receive sees. */
static void dribble(const struct crowd *crowd, struct member *member) {
    static const char head[] = "GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    uint8_t frame[LM_NATIVE_REQUEST_BYTES] = "LMN1";
    const void *from = frame;
    size_t bytes = 1;
    uint32_t whole = LM_NATIVE_REQUEST_BYTES;
    if (member->kind == KIND_SLOW_FRAME) {
        frame[4] = LM_KIND_PING;
        from = &frame[member->at];
    } else if (member->kind == KIND_SLOW_HEAD) {
        whole = sizeof head - 1;
        from = &head[member->at];
    } else {
        whole = 1 + crowd->body_bytes;
        frame[4] = LM_KIND_INFER;
        memcpy(frame + 16, &crowd->body_bytes, 4);
        if (member->at == 0) bytes = sizeof frame;
    }
    if (send(member->fd, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)bytes) return;
    member->at = (member->at + 1) % whole;
}

static void tick(struct crowd *crowd, double passed_ms) {
    uint32_t idle_count = crowd->count - crowd->slow_count;
    crowd->slow_credit += crowd->slow_count * passed_ms / crowd->period_ms;
    for (; crowd->slow_credit >= 1; crowd->slow_credit--) {
        uint32_t index = idle_count + crowd->next_slow++ % crowd->slow_count;
        if (crowd->members[index].state == STATE_OPEN) dribble(crowd, &crowd->members[index]);
    }
    if (crowd->phase != PHASE_HELD || idle_count == 0) return;
    crowd->churn_credit += crowd->churn * passed_ms / 1e3;
    for (; crowd->churn_credit >= 1; crowd->churn_credit--) {
        struct member *member = &crowd->members[crowd->next_churn++ % idle_count];
        if (member->state != STATE_OPEN) continue;
        member->state = STATE_CLOSING;
        shutdown(member->fd, SHUT_RDWR); /* its receive ends, then it is closed and comes again */
    }
}

/* ---- reports ---- */

static double quantile_us(const struct lm_histogram *histogram, double q) {
    uint64_t total = 0, seen = 0; /* relaxed: this thread's own counts */
    for (uint32_t b = 0; b < LM_HISTOGRAM_BUCKETS; b++)
        total += lm_load_relaxed_u64(&histogram->buckets[b]);
    for (uint32_t b = 0; total && b < LM_HISTOGRAM_BUCKETS; b++) {
        seen += lm_load_relaxed_u64(&histogram->buckets[b]);
        if ((double)seen >= q * (double)total)
            return (double)(lm_histogram_floor(b) + lm_histogram_floor(b + 1)) / 2e3;
    }
    return 0;
}

static void report(const struct crowd *crowd, uint64_t now_ns) {
    static const char *const names[] = {"ramp", "held", "done"};
    double ramp_s = (double)(crowd->ramp_ns ? crowd->ramp_ns : now_ns - crowd->begin_ns) / 1e9;
    uint64_t connects = crowd->ramp_ns ? crowd->ramp_established : crowd->established;
    printf("{\"phase\": \"%s\", \"seconds\": %.3f, \"connected\": %u, \"away\": %u, \"failed\": "
           "%llu, ",
           names[crowd->phase], (double)(now_ns - crowd->begin_ns) / 1e9, crowd->open, crowd->away,
           (unsigned long long)crowd->failed);
    printf("\"lost\": %llu, \"shed\": %llu, \"churned\": %llu, \"answers\": %llu, "
           "\"refusals\": %llu, \"unaccepted\": %llu, ",
           (unsigned long long)crowd->lost, (unsigned long long)crowd->shed,
           (unsigned long long)crowd->churned, (unsigned long long)crowd->answers,
           (unsigned long long)crowd->refusals, (unsigned long long)unaccepted(crowd));
    printf("\"ramp_seconds\": %.4f, \"connects_per_second\": %.0f, \"connect_us\": {\"p50\": %.1f, "
           "\"p99\": %.1f}}\n",
           ramp_s, ramp_s > 0 ? (double)connects / ramp_s : 0,
           quantile_us(&crowd->connect_times, 0.5), quantile_us(&crowd->connect_times, 0.99));
    fflush(stdout);
}

/* ---- the program ---- */

static void set_up(struct crowd *crowd) {
    crowd->members = calloc(crowd->count, sizeof *crowd->members);
    crowd->todo = calloc(crowd->count, sizeof *crowd->todo);
    if (!crowd->members || !crowd->todo) fail("no memory for the connections");
    uint64_t wanted = (uint64_t)crowd->count + 64;
    if (lm_descriptors_allow(wanted) < wanted)
        fail("more connections than this process may have descriptors (ulimit -Hn)");
    if (lm_ring_open(&crowd->ring, LUMEN_IO_AUTO, crowd->count)) fail(lm_error_last());
    uint32_t idle_count = crowd->count - crowd->slow_count;
    for (uint32_t i = crowd->count; i-- > 0;) {
        uint32_t kind =
            i < idle_count ? KIND_IDLE : crowd->kinds[(i - idle_count) % crowd->kind_count];
        crowd->members[i] = (struct member){.fd = -1, .kind = (uint8_t)kind};
        crowd->todo[crowd->todo_count++] = i;
    }
    crowd->source_count = 1 + crowd->count / PER_SOURCE;
}

static bool is_ramp_over(struct crowd *crowd, uint64_t now_ns) {
    bool all_in = crowd->todo_count == 0 && crowd->connecting == 0 && unaccepted(crowd) == 0;
    return all_in || now_ns - crowd->progress_ns > stall_ns;
}

/* 100 ms while there is nothing to do, to look at stdin: whoever measures must not be disturbed. */
static void run(struct crowd *crowd) {
    struct lm_completion completions[LM_COMPLETIONS_PER_TURN];
    uint64_t tick_ns = crowd->slow_count || crowd->churn > 0 ? 10 * ms_ns : 100 * ms_ns;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char line[64];
    crowd->counted_before = taken(crowd);
    crowd->begin_ns = crowd->progress_ns = crowd->tick_ns = crowd->report_ns = lm_now_ns();
    while (crowd->phase != PHASE_DONE) {
        uint64_t now = lm_now_ns(), limit = connect_some(crowd, now, tick_ns);
        int count = lm_ring_wait(crowd->ring, 0, limit, completions, LM_COMPLETIONS_PER_TURN);
        if (count < 0) fail(strerror(-count));
        for (int c = 0; c < count; c++) complete(crowd, &completions[c]);
        now = lm_now_ns();
        if (crowd->phase == PHASE_RAMP && is_ramp_over(crowd, now)) {
            crowd->phase = PHASE_HELD;
            crowd->ramp_ns = now - crowd->begin_ns;
            crowd->ramp_established = crowd->established;
            crowd->report_ns = 0;
        }
        if (now - crowd->tick_ns >= tick_ns) {
            tick(crowd, (double)(now - crowd->tick_ns) / (double)ms_ns);
            crowd->tick_ns = now;
            bool asked = poll(&input, 1, 0) > 0;
            if (asked && read(STDIN_FILENO, line, sizeof line) <= 0) crowd->phase = PHASE_DONE;
        }
        if (now - crowd->report_ns >= (crowd->phase == PHASE_RAMP ? 100 : 500) * ms_ns) {
            report(crowd, now);
            crowd->report_ns = now;
        }
    }
    report(crowd, lm_now_ns());
}

/* By reset: a hundred thousand ports in TIME_WAIT would be the next run's trouble. */
static void leave(struct crowd *crowd) {
    struct linger now = {.l_onoff = 1};
    for (uint32_t i = 0; i < crowd->count; i++) {
        int fd = crowd->members[i].fd;
        if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    lm_ring_close(crowd->ring);
    for (uint32_t i = 0; i < crowd->count; i++) {
        if (crowd->members[i].fd >= 0) close(crowd->members[i].fd);
    }
    free(crowd->members);
    free(crowd->todo);
}

static void read_kinds(struct crowd *crowd, const char *names) {
    static const char *const known[] = {"frame", "head", "body"};
    crowd->kind_count = 0;
    for (uint32_t k = 0; k < 3; k++) {
        if (strstr(names, known[k]))
            crowd->kinds[crowd->kind_count++] = (uint8_t)(KIND_SLOW_FRAME + k);
    }
    if (crowd->kind_count == 0) fail("--kinds: expected frame, head or body");
}

static void read_options(struct crowd *crowd, int argc, char **argv) {
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'},      {"connections", required_argument, NULL, 'n'},
        {"slow", required_argument, NULL, 's'},      {"churn", required_argument, NULL, 'c'},
        {"kinds", required_argument, NULL, 'k'},     {"stats", required_argument, NULL, 'f'},
        {"period-ms", required_argument, NULL, 'm'}, {"body-bytes", required_argument, NULL, 'b'},
        {"process", required_argument, NULL, 'i'},   {0}};
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'p': crowd->port = (uint16_t)strtoul(optarg, NULL, 10); break;
        case 'n': crowd->count = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 's': crowd->slow_count = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'i': crowd->process = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'b': crowd->body_bytes = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'c': crowd->churn = strtod(optarg, NULL); break;
        case 'm': crowd->period_ms = strtod(optarg, NULL); break;
        case 'k': read_kinds(crowd, optarg); break;
        case 'f': find_counters(crowd, optarg); break;
        default: fail("see the head of bench/crowd/c10k.c");
        }
    }
    if (crowd->port == 0 || crowd->count == 0 || crowd->count > LM_CONNECTIONS_MAX ||
        crowd->slow_count > crowd->count || crowd->period_ms <= 0 || crowd->churn < 0)
        fail("see the head of bench/crowd/c10k.c");
}

int main(int argc, char **argv) {
    static struct crowd crowd = {.period_ms = 1000, .body_bytes = 1 << 10};
    char line[64];
    read_kinds(&crowd, "frame,head,body");
    read_options(&crowd, argc, argv);
    set_up(&crowd);
    printf("{\"phase\": \"ready\", \"table_entry_bytes\": %zu}\n", sizeof(struct lm_connection));
    fflush(stdout);
    if (fgets(line, sizeof line, stdin)) {
        run(&crowd);
        leave(&crowd);
    }
    return 0;
}
