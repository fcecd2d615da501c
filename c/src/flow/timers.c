/* timers.c: what a connection may take its time for, and what happens when it takes too long. I/O
 * thread only.
 *
 * Each connection has one deadline at a time, from what it is doing: a header or a body that
 * arrives, a reply that is read, or nothing. Setting it is a store of four bytes beside the table;
 * a few times a second they are all looked through, which for 100,000 connections is 400 KB read in
 * order. Connections that linger, or hold what others wait for, have clocks of their own.
 */
#include <linux/tcp.h>
#include <netinet/in.h>

#include "dialects/http.h"
#include "flow/access_log.h"
#include "work/worker.h"

enum { TCP_STATE_CLOSED = 7 }; /* in the kernel's tcp_states.h: after a reset */

static const uint64_t tick_ns = LM_TIMER_TICK_MS * 1000000ull;

/* ---- what applies ---- */

static uint64_t body_deadline_ns(const struct lm_io *io, uint64_t since_ns, uint64_t bytes) {
    const struct lm_shared *shared = io->shared;
    if (!shared->body_bytes_per_s) return 0;
    uint64_t slow_ns = bytes / shared->body_bytes_per_s * 1000000000ull;
    return since_ns + shared->header_timeout_ns + slow_ns + 1000000000ull;
}

static uint64_t after(uint64_t since_ns, uint64_t timeout_ns) {
    return timeout_ns ? since_ns + timeout_ns : 0;
}

/* When the connection's patience ends; 0: never. */
static uint64_t deadline_ns(const struct lm_io *io, const struct lm_connection *connection) {
    const struct lm_shared *shared = io->shared;
    if (connection->sending != LM_NO_SLOT)
        return after(io->requests[connection->sending].held_ns, shared->reply_timeout_ns);
    /* It waits for this thread; but who has sent half a header may not keep its descriptor so. */
    if (connection->list == LM_LIST_UNPARKING) return 0;
    if (connection->list == LM_LIST_STARVED && connection->header_used == 0) return 0;
    if (lm_connection_expects(connection) || connection->list == LM_LIST_WAITING_PART) {
        uint64_t bytes = lm_scarce_bytes_expected(connection);
        uint64_t until_ns = body_deadline_ns(io, connection->started_ns, bytes);
        if (until_ns == 0 || connection->timer_ns < until_ns) until_ns = connection->timer_ns;
        return until_ns == UINT64_MAX ? 0 : until_ns;
    }
    switch ((enum lm_read_state)connection->read_state) {
    case LM_READ_JSON: return after(connection->started_ns, shared->header_timeout_ns);
    case LM_READ_DROP_CHUNKS:
        return body_deadline_ns(io, connection->started_ns, connection->call.content_bytes);
    case LM_READ_BODY:
    case LM_READ_CHUNKS: {
        const struct lm_request *request = &io->requests[connection->receiving];
        uint64_t bytes = connection->read_state == LM_READ_CHUNKS ? request->http.text_bytes
                                                                  : request->payload_bytes;
        return body_deadline_ns(io, request->held_ns, bytes);
    }
    case LM_READ_DISCARD:
        return body_deadline_ns(io, connection->started_ns, connection->discard_bytes);
    case LM_READ_HEADER:
        if (connection->header_used)
            return after(connection->started_ns, shared->header_timeout_ns);
        return connection->in_flight ? 0 : after(io->now_ns, shared->idle_timeout_ns);
    default: return 0; /* waits for a slot, or lingers */
    }
}

void lm_timer_update(struct lm_io *io, const struct lm_connection *connection) {
    uint64_t deadline = connection->fd < 0 ? 0 : deadline_ns(io, connection);
    /* Rounded up; ticks count from the thread's start, so that 32 bits last eight years. */
    uint64_t ticks = deadline ? (deadline - io->opened_ns + tick_ns - 1) / tick_ns : 0;
    io->deadlines[connection->index] = ticks < UINT32_MAX ? (uint32_t)ticks : UINT32_MAX;
}

/* ---- what happens then ---- */

static void expire(struct lm_io *io, struct lm_connection *connection) {
    if (lm_connection_expects(connection) || connection->list == LM_LIST_WAITING_PART) {
        lm_scarce_expire(io, connection);
        lm_connection_settle(io, connection);
        return;
    }
    lm_add_single_writer_u64(&io->stats->io.connections_timed_out, 1);
    bool is_reading = connection->read_state != LM_READ_HEADER || connection->header_used > 0;
    bool may_say_so = connection->sending == LM_NO_SLOT && connection->reply_head == LM_NO_SLOT &&
                      connection->in_flight == 0 && connection->dialect == LM_DIALECT_HTTP &&
                      connection->read_state != LM_READ_DISCARD; /* it is answered */
    connection->cut_short = LM_STATUS_BAD_REQUEST;
    if (is_reading && may_say_so) {
        lm_http_give_up(io, connection, 408, "the rest of the request did not come in time");
    } else if (is_reading || connection->sending != LM_NO_SLOT) {
        lm_connection_abort(io, connection);
    } else {
        lm_connection_end(io, connection); /* idle */
    }
    lm_connection_settle(io, connection);
}

/* A request whose worker does not come back is answered here. Its slot stays with the worker. */
static void answer_overdue(struct lm_io *io, struct lm_request *request) {
    static const char why[] = "the deadline passed, and the model has not returned";
    struct lm_connection *connection = lm_io_connection(io, request->connection);
    if (!lm_request_claim(request)) return; /* its worker is about to */
    request->with_worker = false;
    connection->in_flight--;
    lm_gate_count_refusal(io, LM_STATUS_DEADLINE, request->model->index);
    lm_add_single_writer_u64(&io->stats->io.model_overdue[request->model->index], 1);
    if (lm_load_relaxed_u32(&connection->gone)) { /* relaxed: written by this thread */
        lm_connection_settle(io, connection);
        return;
    }
    if (connection->dialect == LM_DIALECT_HTTP) {
        lm_http_answer_error(io, connection, lm_http_code(LM_STATUS_DEADLINE), "Retry-After: 1\r\n",
                             why);
    } else {
        struct lm_native_reply reply = {.id = request->id, .status = LM_STATUS_DEADLINE};
        lm_access_log_refused(io, connection, request, LM_STATUS_DEADLINE, why);
        lm_reply_own(io, connection, &reply, why);
    }
    lm_receive_continue(io, connection);
    lm_connection_settle(io, connection);
}

/* Workers look at deadlines before a Run. What is long past its own is with a worker that does not
 * return, or behind such a one. */
static void answer_all_overdue(struct lm_io *io) {
    for (uint32_t s = 0; s < io->arena.slot_count; s++) {
        struct lm_request *request = &io->requests[s];
        if (!request->with_worker) continue;
        uint64_t due_ns = lm_load_relaxed_u64(&request->overdue_ns); /* relaxed: as written */
        if (due_ns == UINT64_MAX || io->now_ns <= due_ns + LM_OVERDUE_NS) continue;
        answer_overdue(io, request);
    }
}

static bool some_worker_hangs(const struct lm_io *io) {
    const struct lm_shared *shared = io->shared;
    if (!shared->hang_ns) return false;
    for (uint32_t w = 0; w < shared->worker_count; w++) {
        /* relaxed: a hint */
        uint64_t since_ns = lm_load_relaxed_u64(&shared->workers[w].busy_since_ns);
        if (since_ns && io->now_ns > since_ns + shared->hang_ns) return true;
    }
    return false;
}

/* A connection with bytes that it may not parse receives nothing, and so does not hear that its
 * client has gone: a reset is looked for. (A client that sends no more may still read.) */
static void look_at_held(struct lm_io *io) {
    lm_held_trim(&io->held);
    for (uint32_t n = 0; io->held.taken > 0 && n < LM_HELD_LOOKS; n++) {
        uint32_t index = lm_held_next(&io->held, io->connections);
        if (index == LM_NO_CONNECTION) return;
        struct lm_connection *connection = lm_io_connection(io, index);
        struct tcp_info info = {0};
        socklen_t bytes = sizeof info;
        if (getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) continue;
        if (info.tcpi_state != TCP_STATE_CLOSED) continue;
        lm_connection_abort(io, connection);
        lm_connection_settle(io, connection);
    }
}

static void look_at_workers(struct lm_io *io) {
    io->worker_hangs = some_worker_hangs(io);
    lm_store_relaxed_u64(&io->stats->io.worker_hangs, io->worker_hangs); /* relaxed: a gauge */
    if (io->in_flight) answer_all_overdue(io);
    if (io->in_flight) lm_scarce_suspend(io);
}

/* Ten thousand that came together and have been idle since are due together: ending them at one go
 * would keep all others waiting for a tenth of a second. */
static void sweep(struct lm_io *io) {
    if (io->sweep_at == 0) {
        if (io->now_ns < io->next_sweep_ns) return;
        io->next_sweep_ns = io->now_ns + LM_SWEEP_PERIOD_MS * 1000000ull;
        look_at_workers(io);
        look_at_held(io);
    }
    /* Inline, a Run may have taken long: what came meanwhile came in time. */
    uint32_t now = (uint32_t)((io->seen_ns - io->opened_ns) / tick_ns);
    uint32_t i = io->sweep_at, expired = 0;
    for (; i < io->connections_used && expired < LM_EXPIRIES_PER_TURN; i++) {
        if (!io->deadlines[i] || io->deadlines[i] > now) continue;
        expire(io, &io->connections[i]);
        expired++;
    }
    io->sweep_at = i < io->connections_used ? i : 0;
}

static void expire_lingering(struct lm_io *io) {
    uint32_t next, expired = 0;
    for (uint32_t i = io->lists[LM_LIST_LINGERING].head;
         i != LM_NO_CONNECTION && expired < LM_EXPIRIES_PER_TURN; i = next) {
        struct lm_connection *connection = lm_io_connection(io, i);
        next = connection->next;
        if (connection->timer_ns > io->now_ns) continue;
        /* Replies come first; how long nobody may read one has a limit of its own. */
        if (!connection->write_shut) continue;
        lm_connection_move(io, connection, LM_LIST_NONE);
        lm_connection_abort(io, connection);
        lm_connection_settle(io, connection);
        expired++;
    }
}

void lm_timers_expire(struct lm_io *io) {
    if (io->connections_open) {
        sweep(io);
    } else {
        io->sweep_at = 0;
    }
    if (io->arena.acquired_count || io->lists[LM_LIST_WAITING_PART].count) lm_scarce_evict(io);
    if (io->lists[LM_LIST_LINGERING].count) expire_lingering(io);
}
