/* timers.c: see timers.h. */
#include "flow/timers.h"

#include "flow/slot_wait.h"
#include "flow/transport.h"

static const uint64_t tick_ns = LM_TIMER_TICK_MS * 1000000ull;

/* ---- what applies ---- */

uint64_t lm_timer_body_ns(const struct lm_io *io, uint64_t since_ns, uint64_t bytes) {
    const struct lm_shared *shared = io->shared;
    if (!shared->config.body_bytes_per_second) return 0;
    uint64_t slow_ns = bytes / shared->config.body_bytes_per_second * 1000000000ull;
    return since_ns + shared->header_timeout_ns + slow_ns + 1000000000ull;
}

uint64_t lm_timer_after(uint64_t since_ns, uint64_t timeout_ns) {
    return timeout_ns ? since_ns + timeout_ns : 0;
}

static uint64_t of_transport_ns(const struct lm_io *io, const struct lm_connection *connection) {
    const struct lm_transport *transport = lm_transport_of(io, connection);
    return transport->deadline_ns ? transport->deadline_ns(io, connection) : 0;
}

/* When the connection's patience ends; 0: never. */
static uint64_t deadline_ns(const struct lm_io *io, const struct lm_connection *connection) {
    const struct lm_shared *shared = io->shared;
    const uint64_t own_ns = of_transport_ns(io, connection);
    if (own_ns) return own_ns;
    if (connection->sending != LM_NO_SLOT)
        return lm_timer_after(io->requests[connection->sending].held_ns, shared->reply_timeout_ns);
    /* It waits for this thread; but who has sent half a header may not keep its descriptor so. */
    if (connection->list == LM_LIST_UNPARKING) return 0;
    if (connection->list == LM_LIST_STARVED && connection->in.header_used == 0) return 0;
    if (lm_connection_expects(connection) || connection->list == LM_LIST_WAITING_PART) {
        uint64_t bytes = lm_io_dialect(io, connection)->bytes_expected(connection);
        uint64_t until_ns = lm_timer_body_ns(io, connection->in.started_ns, bytes);
        if (until_ns == 0 || connection->timer_ns < until_ns) until_ns = connection->timer_ns;
        return until_ns == UINT64_MAX ? 0 : until_ns;
    }
    switch ((enum lm_read_state)connection->in.read_state) {
    case LM_READ_PROLOGUE:
        return lm_io_dialect(io, connection)->prologue_deadline_ns(io, connection);
    case LM_READ_BODY: {
        const struct lm_request *request = &io->requests[connection->in.receiving];
        return lm_timer_body_ns(io, request->held_ns, request->payload_bytes);
    }
    case LM_READ_DISCARD:
        return lm_timer_body_ns(io, connection->in.started_ns, connection->in.discard_bytes);
    case LM_READ_HEADER:
        if (connection->in.header_used)
            return lm_timer_after(connection->in.started_ns, shared->header_timeout_ns);
        if (connection->in_flight || connection->watches) return 0;
        return lm_timer_after(io->now_ns, shared->idle_timeout_ns);
    case LM_READ_DESCRIPTOR:
        return lm_timer_after(connection->in.started_ns, shared->header_timeout_ns);
    case LM_READ_WAIT:
    case LM_READ_LINGER: break;
    }
    return 0;
}

void lm_timer_update(struct lm_io *io, const struct lm_connection *connection) {
    uint64_t deadline = connection->fd < 0 ? 0 : deadline_ns(io, connection);
    /* Rounded up; ticks count from the thread's start, so that 32 bits last eight years. */
    uint64_t ticks = deadline ? (deadline - io->opened_ns + tick_ns - 1) / tick_ns : 0;
    io->deadlines[connection->index] = ticks < UINT32_MAX ? (uint32_t)ticks : UINT32_MAX;
}

/* ---- what happens then ---- */

static void expire(struct lm_io *io, struct lm_connection *connection) {
    lm_connection_mark(io, connection);
    if (lm_connection_expects(connection) || connection->list == LM_LIST_WAITING_PART) {
        lm_slot_wait_expire(io, connection);
        return;
    }
    lm_add_single_writer_u64(&io->stats->io.connections_timed_out, 1);
    bool is_reading = !connection->ended && (connection->in.read_state != LM_READ_HEADER ||
                                             connection->in.header_used > 0);
    connection->in.cut_short = LM_STATUS_BAD_REQUEST;
    if (of_transport_ns(io, connection)) {
        lm_connection_abort(io, connection);
    } else if (is_reading && connection->in.read_state != LM_READ_DISCARD) { /* which is answered */
        lm_io_dialect(io, connection)
            ->give_up(io, connection, LM_STATUS_BAD_REQUEST,
                      "the rest of the request did not come in time");
    } else if (is_reading || connection->sending != LM_NO_SLOT) {
        lm_connection_abort(io, connection);
    } else {
        lm_connection_end(io, connection); /* idle */
    }
}

/* A connection with bytes that it may not parse receives nothing, and so does not hear that its
 * client has gone: a reset is looked for, and where it is one, the end of its stream. */
static void reap_reset(struct lm_io *io) {
    lm_held_trim(&io->held);
    for (uint32_t n = 0; io->held.taken > 0 && n < LM_HELD_LOOKS; n++) {
        uint32_t index;
        int32_t page;
        if (!lm_held_next(&io->held, &index, &page)) return;
        struct lm_connection *connection = lm_io_connection(io, index);
        if (connection->buffer != page) continue; /* it was given back */
        struct lm_transport_look look;
        if (!lm_look_at_client(io, connection, &look)) continue;
        bool has_left = look.has_ended && lm_transport_unanswered(io, connection) > 0 &&
                        !lm_connection_may_half_close(io, connection);
        if (look.is_closed || has_left) lm_connection_abort(io, connection);
    }
}

/* Ten thousand that came together and have been idle since are due together: ending them at one go
 * would keep all others waiting for a tenth of a second. */
static void sweep(struct lm_io *io) {
    if (io->sweep_at == 0) {
        if (io->now_ns < io->next_sweep_ns) return;
        io->next_sweep_ns = io->now_ns + LM_SWEEP_PERIOD_MS * 1000000ull;
        reap_reset(io);
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

/* All linger equally long, so that the list is in the order of time. */
static void expire_lingering(struct lm_io *io) {
    const struct lm_list *list = &io->lists[LM_LIST_LINGERING];
    for (uint32_t expired = 0; list->count > 0 && expired < LM_EXPIRIES_PER_TURN; expired++) {
        struct lm_connection *connection = lm_io_connection(io, list->head);
        if (connection->timer_ns > io->now_ns) return;
        lm_connection_move(io, connection, LM_LIST_NONE);
        lm_connection_abort(io, connection);
    }
}

void lm_timers_expire(struct lm_io *io) {
    if (io->connections_open) {
        sweep(io);
    } else {
        io->sweep_at = 0;
    }
    if (io->lists[LM_LIST_LINGERING].count) expire_lingering(io);
}
