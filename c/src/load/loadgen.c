/* loadgen.c: the load generator: closed loop, or open loop at a fixed rate with Poisson arrivals.
 * Runs in the thread that calls lumen_load, on a ring of its own; knows nothing of the server's
 * state. What a request and a reply look like is the dialect's: loadgen_native.c, loadgen_http.c.
 *
 * In open loop a request's latency counts from the moment it was due, whether or not a connection
 * was free then: a server that stalls is charged for everything that should have been sent
 * meanwhile.
 */
#include "load/loadgen.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/random.h"
#include "base/topology.h"
#include "parts/histogram.h"
#include "ring/ring.h"

_Static_assert((int)LUMEN_LOAD_BUCKETS == (int)LM_HISTOGRAM_BUCKETS, "one layout of histograms");

enum {
    LATE_NS = 1000000,
    DUE_MAX = 1 << 20,
    TICK_NS = 50 * 1000000 /* to look at the clock and at `stop` */
};

struct load {
    const lumen_load_config *config;
    lumen_load_result *result;
    const struct lm_load_dialect *dialect;
    struct lm_ring *ring;
    struct lm_load_dials dials;
    struct lm_load_connection *connections;
    uint8_t *heads; /* of replies; a page that no reply needs is never touched */
    uint32_t *idle; /* a stack of free connections */
    uint32_t idle_count;
    uint32_t open_count;
    uint32_t next_payload;
    uint64_t *due; /* open loop: a ring of arrivals that found no free connection */
    uint64_t due_head, due_tail;
    uint64_t next_due_ns;
    uint64_t random;
    uint64_t count_from_ns, cpu_from_ns;
    uint64_t out; /* counted requests that are under way */
};

/* ---- set-up ---- */

static void load_close(struct load *load) {
    lm_ring_close(load->ring);
    for (uint32_t c = 0; load->connections && c < load->config->connections; c++) {
        lm_load_tls_end(load->dials.tls, &load->connections[c]);
        if (load->connections[c].fd >= 0) close(load->connections[c].fd);
    }
    lm_load_tls_close(load->dials.tls);
    free(load->connections);
    free(load->heads);
    free(load->idle);
    free(load->due);
}

static int load_open(struct load *load, const lumen_load_config *config,
                     lumen_load_result *result) {
    const struct lm_load_dialect *dialect = config->protocol == 1 ? &lm_load_http : &lm_load_native;
    *load = (struct load){.config = config,
                          .result = result,
                          .dialect = dialect,
                          .random = lm_random_seeded(config->seed)};
    load->connections = calloc(config->connections, sizeof *load->connections);
    for (uint32_t c = 0; load->connections && c < config->connections; c++)
        load->connections[c].fd = -1;
    load->heads = calloc(config->connections, dialect->reply_head_bytes);
    load->idle = calloc(config->connections, sizeof *load->idle);
    load->due = config->rate > 0 ? calloc(DUE_MAX, sizeof *load->due) : NULL;
    if (!load->connections || !load->heads || !load->idle || (config->rate > 0 && !load->due)) {
        return lm_error(LUMEN_E_NOMEM, "no memory for %u connections", config->connections);
    }
    for (uint32_t c = 0; c < config->connections; c++) {
        struct lm_load_connection *connection = &load->connections[c];
        connection->head = load->heads + (size_t)c * dialect->reply_head_bytes;
        dialect->prepare(connection, config);
        load->idle[c] = config->connections - 1 - c;
    }
    load->open_count = load->idle_count = config->connections;
    int code = lm_ring_open(&load->ring, LUMEN_IO_AUTO, config->connections);
    load->dials = (struct lm_load_dials){
        .config = config, .ring = load->ring, .connections = load->connections};
    if (!code) code = lm_load_tls_open(&load->dials.tls, config);
    return code ? code : lm_load_dial_all(&load->dials);
}

/* ---- one request ---- */

/* For good: its operations may still be under way, so nothing else ever uses its place. */
static void lose_connection(struct load *load, uint32_t index) {
    struct lm_load_connection *connection = &load->connections[index];
    if (connection->lost) return;
    connection->lost = true;
    /* Closed at the end: something may be under way on it. */
    if (connection->fd >= 0) shutdown(connection->fd, SHUT_RDWR);
    load->open_count--;
    if (!connection->busy) return;
    connection->busy = false;
    load->out -= connection->counted;
    load->result->disconnects++;
    load->result->errors += connection->counted;
}

/* Most requests fit the socket at once; the rest goes through the ring. */
static void send_rest(struct load *load, uint32_t index) {
    struct lm_load_connection *connection = &load->connections[index];
    const struct msghdr *message = lm_load_write(load->dials.tls, connection);
    connection->sending = message != NULL;
    if (message) lm_ring_send(load->ring, connection->fd, message, index, connection->generation);
}

static void await_bytes(struct load *load, uint32_t index) {
    struct lm_load_connection *connection = &load->connections[index];
    if (connection->session)
        lm_ring_poll(load->ring, connection->fd, index, connection->generation);
    else
        lm_ring_recv_header(load->ring, connection->fd, index, connection->generation);
}

static void begin_exchange(struct load *load, uint32_t index) {
    struct lm_load_connection *connection = &load->connections[index];
    const void *payload = load->config->payloads[connection->payload];
    connection->parts[0] = (struct iovec){connection->request, load->dialect->request_head_bytes};
    connection->parts[1] = (struct iovec){(void *)(uintptr_t)payload, load->config->payload_bytes};
    connection->message = (struct msghdr){.msg_iov = connection->parts, .msg_iovlen = 2};
    send_rest(load, index);
    await_bytes(load, index);
}

static void start_request(struct load *load, uint32_t index, uint64_t due_ns, uint64_t now_ns) {
    struct lm_load_connection *connection = &load->connections[index];
    connection->payload = load->next_payload;
    load->next_payload = (load->next_payload + 1) % load->config->payload_count;
    connection->busy = true;
    connection->counted = load->count_from_ns && due_ns >= load->count_from_ns;
    connection->due_ns = due_ns;
    connection->head_used = 0;
    connection->head_done = false;
    connection->body_left = 0;
    connection->body_used = 0;
    connection->differs = false;
    connection->last = false;
    load->out += connection->counted;
    if (connection->counted && now_ns - due_ns > LATE_NS) load->result->late++;
    if (connection->fd >= 0) {
        begin_exchange(load, index);
    } else if (lm_load_dial(&load->dials, index) != 0) {
        /* The server closed it after its last reply. Connecting is a part of this request's time.
         */
        lose_connection(load, index);
    }
}

static void connected(struct load *load, const struct lm_completion *completion) {
    struct lm_load_connection *connection = &load->connections[completion->index];
    if (lm_load_dialled(&load->dials, completion)) {
        begin_exchange(load, completion->index);
    } else if (!connection->dialling) {
        lose_connection(load, completion->index);
    }
}

static void record(lumen_load_result *result, uint64_t latency_ns) {
    if (result->requests == 0 || latency_ns < result->min_ns) result->min_ns = latency_ns;
    if (latency_ns > result->max_ns) result->max_ns = latency_ns;
    result->requests++;
    result->sum_ns += latency_ns;
    result->buckets[lm_histogram_bucket(latency_ns)]++;
}

static void count_reply(struct load *load, const struct lm_load_connection *connection) {
    lumen_load_result *result = load->result;
    uint16_t status = connection->status;
    if (!connection->counted) return;
    load->out--;
    result->statuses[status < 16 ? status : 15]++;
    bool short_reply =
        load->config->expect_bytes && connection->body_used != load->config->expect_bytes;
    if (status == LM_STATUS_OK && !connection->differs && !short_reply) {
        record(result, lm_now_ns() - connection->due_ns);
        return;
    }
    if (status == LM_STATUS_OK) result->mismatches++;
    result->errors++;
}

/* After a reply: the connection is free once nothing of its request is under way. A server may
 * answer before it has read everything; where it then closes, the rest cannot be sent. */
static void finish_request(struct load *load, uint32_t index) {
    struct lm_load_connection *connection = &load->connections[index];
    if (connection->sending) {
        if (connection->last) shutdown(connection->fd, SHUT_RDWR);
        return; /* `sent` comes back here */
    }
    if (connection->last) {
        lm_load_tls_end(load->dials.tls, connection);
        close(connection->fd);
        connection->fd = -1;
        load->result->disconnects++;
    }
    load->idle[load->idle_count++] = index;
}

/* Compares a piece of the answer with what is expected, and counts it. */
static void take_body(struct load *load, struct lm_load_connection *connection,
                      const uint8_t *bytes, size_t count) {
    const lumen_load_config *config = load->config;
    if (config->expect_bytes) {
        uint64_t end = connection->body_used + count;
        const uint8_t *expected = config->expected[connection->payload];
        if (end > config->expect_bytes || memcmp(expected + connection->body_used, bytes, count)) {
            connection->differs = true;
        }
    }
    connection->body_used += count;
    connection->body_left -= count;
}

/* Takes bytes of a reply; false when they are no reply to what was asked. */
static bool take_bytes(struct load *load, struct lm_load_connection *connection,
                       const uint8_t *bytes, size_t count) {
    if (!connection->head_done) {
        ssize_t taken = load->dialect->take_head(connection, bytes, count);
        if (taken < 0) return false;
        bytes += taken;
        count -= (size_t)taken;
    }
    if (count > connection->body_left) return false;
    take_body(load, connection, bytes, count);
    return true;
}

static bool is_whole(const struct lm_load_connection *connection) {
    return connection->head_done && connection->body_left == 0;
}

/* After some bytes of a reply; `fine`: they belong to it, and its stream goes on. */
static void after_bytes(struct load *load, uint32_t index, bool fine) {
    struct lm_load_connection *connection = &load->connections[index];
    if (!fine) {
        lose_connection(load, index);
    } else if (is_whole(connection)) {
        connection->busy = false;
        count_reply(load, connection);
        finish_request(load, index);
    } else {
        await_bytes(load, index);
    }
}

static void received(struct load *load, const struct lm_completion *completion) {
    struct lm_load_connection *connection = &load->connections[completion->index];
    bool fine = completion->result == -ENOBUFS;
    if (completion->result > 0 && !connection->lost) {
        fine = take_bytes(load, connection, lm_ring_buffer(load->ring, completion->buffer),
                          (size_t)completion->result);
    }
    if (completion->buffer != LM_NO_BUFFER) lm_ring_buffer_return(load->ring, completion->buffer);
    if (!connection->lost) after_bytes(load, completion->index, fine);
}

/* With TLS: the socket has something, which may be no record of content. */
static void readable(struct load *load, const struct lm_completion *completion) {
    const uint32_t index = completion->index;
    struct lm_load_connection *connection = &load->connections[index];
    const uint8_t *bytes;
    ssize_t got = 1;
    bool fine = true;
    if (connection->dialling) return connected(load, completion); /* in its handshake */
    if (connection->lost) return;
    while (fine && got > 0 && !is_whole(connection)) {
        got = lm_load_tls_read(load->dials.tls, connection, &bytes);
        if (got > 0) fine = take_bytes(load, connection, bytes, (size_t)got);
    }
    after_bytes(load, index, fine && (got > 0 || got == -EAGAIN));
}

static void sent(struct load *load, const struct lm_completion *completion) {
    struct lm_load_connection *connection = &load->connections[completion->index];
    if (connection->lost) return;
    connection->sending = false;
    if (!lm_load_written(load->dials.tls, connection, completion->result)) {
        /* There may be a reply all the same; if not, the receive ends now. */
        connection->last = true;
        shutdown(connection->fd, SHUT_RDWR);
    } else if (connection->session) {
        send_rest(load, completion->index);
    }
    if (!connection->busy) finish_request(load, completion->index);
}

/* ---- arrivals ---- */

static void schedule_next(struct load *load) {
    double gap_s = -log(1.0 - lm_random_unit(&load->random)) / load->config->rate;
    load->next_due_ns += (uint64_t)(gap_s * 1e9);
}

/* Enough requests are counted or under way. */
static bool has_enough(const struct load *load) {
    const lumen_load_result *result = load->result;
    uint64_t wanted = load->config->requests;
    return wanted && load->count_from_ns && result->requests + result->errors + load->out >= wanted;
}

/* Starts everything that is due. */
static void start_due(struct load *load, uint64_t now_ns) {
    if (load->config->rate <= 0) {
        while (load->idle_count > 0 && !has_enough(load)) {
            start_request(load, load->idle[--load->idle_count], now_ns, now_ns);
        }
        return;
    }
    while (load->next_due_ns <= now_ns && load->due_tail - load->due_head < DUE_MAX) {
        load->due[load->due_tail++ % DUE_MAX] = load->next_due_ns;
        schedule_next(load);
    }
    while (load->idle_count > 0 && load->due_head != load->due_tail && !has_enough(load)) {
        uint64_t due = load->due[load->due_head++ % DUE_MAX];
        start_request(load, load->idle[--load->idle_count], due, now_ns);
    }
}

static uint64_t wait_limit(const struct load *load, uint64_t now_ns) {
    if (load->config->rate <= 0) return TICK_NS;
    uint64_t gap = load->next_due_ns > now_ns ? load->next_due_ns - now_ns : 0;
    return gap < TICK_NS ? gap : TICK_NS;
}

static bool is_over(const struct load *load, uint64_t now_ns) {
    const lumen_load_config *config = load->config;
    if (!load->count_from_ns) return false;
    if (has_enough(load)) return true;
    return config->duration_ns && now_ns - load->count_from_ns >= config->duration_ns;
}

static void complete(struct load *load, const struct lm_completion *completion) {
    if (completion->op == LM_OP_CONNECT) connected(load, completion);
    if (completion->op == LM_OP_READABLE) readable(load, completion);
    if (completion->op == LM_OP_SEND) sent(load, completion);
    if (completion->op == LM_OP_RECV_HEADER) received(load, completion);
}

static bool told_to_stop(const uint32_t *stop) {
    return stop && lm_plain_load_relaxed_u32(stop); /* relaxed: a hint from another thread */
}

static int run(struct load *load, const uint32_t *stop) {
    struct lm_completion completions[LM_COMPLETIONS_PER_TURN];
    uint64_t begin = lm_now_ns();
    bool ending = false;
    load->next_due_ns = begin;
    for (;;) {
        uint64_t now = lm_now_ns();
        if (!load->count_from_ns && now - begin >= load->config->warmup_ns) {
            load->count_from_ns = now;
            load->cpu_from_ns = lm_thread_cpu_ns();
            load->result->counting = 1;
        }
        if (load->count_from_ns) load->result->wall_ns = now - load->count_from_ns;
        ending = ending || is_over(load, now) || told_to_stop(stop);
        if (load->open_count == 0) {
            return lm_error(LUMEN_E_IO, "the server closed every connection");
        }
        /* What is under way is awaited, but not for ever. */
        if (ending && (load->out == 0 || told_to_stop(stop))) break;
        if (!ending) start_due(load, now);
        int count = lm_ring_wait(load->ring, load->config->poll_us * 1000ull, wait_limit(load, now),
                                 completions, LM_COMPLETIONS_PER_TURN);
        if (count < 0)
            return lm_error_errno(LUMEN_E_IO, count, "load generator: %s",
                                  lm_ring_backend(load->ring));
        for (int c = 0; c < count; c++) complete(load, &completions[c]);
    }
    return 0;
}

/* Also after an error: what was counted until then is true. */
static void finish(struct load *load) {
    if (load->result->counting) load->result->cpu_ns = lm_thread_cpu_ns() - load->cpu_from_ns;
    load->result->unsent = load->due_tail - load->due_head;
}

int lumen_load(const lumen_load_config *config, lumen_load_result *result_out,
               const uint32_t *stop) {
    struct load load;
    memset(result_out, 0, sizeof *result_out);
    int code = lm_load_check(config);
    if (code) return code;
    code = load_open(&load, config, result_out);
    if (!code) {
        if (config->cpu >= 0) (void)lm_thread_pin(config->cpu);
        (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* arrivals on time */
        code = run(&load, stop);
        finish(&load);
    }
    load_close(&load);
    return code;
}
