/* slot_wait.c: see slot_wait.h. */
#include "flow/slot_wait.h"

#include <errno.h>
#include <stdio.h>

#include "base/error.h"
#include "flow/refusal.h"
#include "flow/slots.h"
#include "flow/transport.h"

static const char too_many[] = "all slots are taken and too many requests wait for one";

/* ---- waiting for bytes ---- */

/* How many bytes must be in the socket before a slot is worth it; 0: as many as that are here. */
static int bytes_wanted(struct lm_io *io, const struct lm_connection *connection) {
    uint64_t wanted = lm_io_dialect(io, connection)->bytes_expected(connection), have = 0;
    if (wanted > LM_HERE_BYTES) wanted = LM_HERE_BYTES;
    if (connection->buffer != LM_NO_BUFFER)
        have = (uint64_t)(connection->buffer_end - connection->buffer_at);
    if (have >= wanted) return 0;
    wanted -= have;
    return lm_transport_of(io, connection)->waiting(io, connection) >= (int)wanted ? 0
                                                                                   : (int)wanted;
}

void lm_slot_wait_turn_away(struct lm_io *io, struct lm_connection *connection,
                            enum lm_status status, const char *why) {
    if (connection->recv_armed)
        lm_transport_of(io, connection)
            ->wake_at(io, connection, 1); /* what is refused is read, too */
    struct lm_refusal refusal;
    (void)lm_refuse(&refusal, status, 0, "%s", why);
    lm_connection_move(io, connection, LM_LIST_NONE);
    connection->in.started_ns = io->now_ns; /* of the rest, which is read from here on */
    lm_io_dialect(io, connection)->refuse(io, connection, &refusal);
    lm_connection_mark(io, connection);
}

void lm_slot_wait_outgrown(struct lm_io *io, struct lm_connection *connection, size_t bytes) {
    char why[LM_TEXT_BYTES_MAX];
    snprintf(why, sizeof why,
             "the request needs %zu bytes, more than any slot has since another model was unloaded",
             bytes);
    lm_slot_wait_turn_away(io, connection, LM_STATUS_TOO_LARGE, why);
}

static bool too_many_wait(const struct lm_io *io) {
    uint32_t held = io->lists[LM_LIST_WAITING].count + io->lists[LM_LIST_WAITING_PART].count +
                    io->lists[LM_LIST_EXPECTING_HELD].count;
    return held > LM_SLOT_WAITERS_MAX;
}

/* With `overload: wait` a request may wait while its bytes come. */
static bool may_turn_away(const struct lm_io *io, const struct lm_connection *connection) {
    if (io->shared->config.overload == LUMEN_OVERLOAD_REFUSE) return true;
    return io->now_ns > connection->in.started_ns + LM_STALL_MS * 1000000ull;
}

/* Waiting requests hold pages of bytes and HTTP's blocks, of which there is a fixed number. Beyond
 * a bound the request is refused that has waited longest for bytes that do not come. */
static void bound_waiting(struct lm_io *io) {
    const struct lm_list *held = &io->lists[LM_LIST_EXPECTING_HELD];
    if (held->head == LM_NO_CONNECTION) held = &io->lists[LM_LIST_WAITING_PART];
    if (!too_many_wait(io) || held->head == LM_NO_CONNECTION) return;
    struct lm_connection *oldest = lm_io_connection(io, held->head);
    if (!may_turn_away(io, oldest)) return;
    lm_slot_wait_turn_away(io, oldest, LM_STATUS_OVERLOADED, too_many);
}

static void wait_for_bytes(struct lm_io *io, struct lm_connection *connection, int wanted) {
    bool holds = connection->buffer != LM_NO_BUFFER || connection->in.block != LM_NO_BLOCK;
    lm_add_single_writer_u64(&io->stats->io.body_waits, 1);
    lm_transport_of(io, connection)->wake_at(io, connection, wanted);
    lm_ring_poll(io->ring, connection->fd, connection->index, connection->generation);
    connection->recv_armed = true;
    lm_connection_move(io, connection, holds ? LM_LIST_EXPECTING_HELD : LM_LIST_EXPECTING);
    bound_waiting(io);
}

/* ---- waiting for a slot ---- */

/* A request joins those whose bytes are here. */
static void join_waiting(struct lm_io *io, struct lm_connection *connection) {
    struct lm_waiters *waiters = &io->waiters;
    if (io->lists[LM_LIST_WAITING].count == 0) {
        waiters->due_ns = UINT64_MAX;
        waiters->least_bytes = SIZE_MAX;
        waiters->released = waiters->no_place = false;
    }
    if (connection->timer_ns < waiters->due_ns) waiters->due_ns = connection->timer_ns;
    lm_connection_move(io, connection, LM_LIST_WAITING);
}

/* Its bytes are here: a slot, now or when one comes back; where the kernel takes no more of them,
 * one that can be spared. */
static void wait_for_slot(struct lm_io *io, struct lm_connection *connection,
                          enum lm_connection_list list) {
    if (list == LM_LIST_WAITING) {
        join_waiting(io, connection);
    } else {
        lm_connection_move(io, connection, list);
    }
    lm_io_dialect(io, connection)->retry(io, connection);
    if (!lm_connection_waits(connection)) return;
    lm_add_single_writer_u64(&io->stats->io.slot_waits, 1);
    bound_waiting(io);
    bool still = lm_connection_waits(connection);
    if (still && too_many_wait(io) && io->shared->config.overload == LUMEN_OVERLOAD_REFUSE)
        lm_slot_wait_turn_away(io, connection, LM_STATUS_OVERLOADED, too_many);
}

void lm_slot_wait_begin(struct lm_io *io, struct lm_connection *connection) {
    int wanted = bytes_wanted(io, connection);
    if (wanted) {
        wait_for_bytes(io, connection, wanted);
    } else {
        wait_for_slot(io, connection, LM_LIST_WAITING);
    }
}

void lm_slot_wait_readable(struct lm_io *io, const struct lm_completion *completion) {
    struct lm_connection *connection = lm_io_connection(io, completion->index);
    LM_ASSERT(connection->generation == completion->generation && connection->recv_armed);
    bool again = completion->result == -EINTR || completion->result == -EAGAIN;
    connection->recv_armed = false;
    lm_connection_mark(io, connection);
    if (connection->ended) return;
    if (completion->result < 0 && !again) {
        lm_connection_abort(io, connection);
        return;
    }
    if (!lm_connection_expects(connection)) return;
    lm_transport_of(io, connection)->wake_at(io, connection, 1);
    if (again) return; /* lm_slot_wait_begin looks anew */
    bool is_part = bytes_wanted(io, connection) > 0;
    wait_for_slot(io, connection, is_part ? LM_LIST_WAITING_PART : LM_LIST_WAITING);
}

/* A kernel that took no more may have taken more since. */
static void retry_parts(struct lm_io *io) {
    uint32_t next;
    for (uint32_t i = io->lists[LM_LIST_WAITING_PART].head; i != LM_NO_CONNECTION; i = next) {
        struct lm_connection *connection = lm_io_connection(io, i);
        next = connection->next;
        if (bytes_wanted(io, connection) == 0) join_waiting(io, connection);
        lm_io_dialect(io, connection)->retry(io, connection);
        if (!lm_connection_waits(connection)) lm_connection_mark(io, connection);
    }
}

void lm_slot_wait_expire(struct lm_io *io, struct lm_connection *connection) {
    if (connection->timer_ns <= io->now_ns) {
        lm_slot_wait_turn_away(
            io, connection, LM_STATUS_DEADLINE,
            "the deadline passed before the request's bytes were here and a slot was free");
    } else {
        lm_slot_wait_turn_away(io, connection, LM_STATUS_OVERLOADED,
                               "slots are few, and the rest of the request did not come in time");
    }
}

/* A round looks at those that wait in their order, and ends where nothing is to be had any more.
 * All of them are looked at only when a deadline has passed. */
static void retry_waiting(struct lm_io *io, bool all) {
    struct lm_waiters *waiters = &io->waiters;
    uint32_t next;
    if (all) waiters->due_ns = UINT64_MAX;
    for (uint32_t i = io->lists[LM_LIST_WAITING].head; i != LM_NO_CONNECTION; i = next) {
        struct lm_connection *connection = lm_io_connection(io, i);
        bool nothing = waiters->no_place || waiters->refused_bytes <= waiters->least_bytes;
        if (nothing && !all) return;
        next = connection->next;
        if (connection->timer_ns <= io->now_ns) {
            lm_slot_wait_turn_away(io, connection, LM_STATUS_DEADLINE,
                                   "the deadline passed before a slot was free");
        } else if (!nothing) {
            lm_io_dialect(io, connection)->retry(io, connection);
        }
        if (connection->list == LM_LIST_WAITING) {
            if (connection->timer_ns < waiters->due_ns) waiters->due_ns = connection->timer_ns;
        } else {
            lm_connection_mark(io, connection);
        }
    }
    uint64_t soonest_ns = io->now_ns + LM_WAITING_NS;
    if (waiters->due_ns < soonest_ns) waiters->due_ns = soonest_ns;
}

void lm_slot_wait_retry(struct lm_io *io) {
    struct lm_waiters *waiters = &io->waiters;
    bool due = io->now_ns >= waiters->due_ns;
    /* Another thread may have given a place back. */
    bool places = io->shared->io_count > 1 && io->shared->places.max;
    if (!due && !waiters->released && !places) return;
    waiters->released = waiters->no_place = false;
    waiters->refused_bytes = SIZE_MAX;
    waiters->retrying = true;
    retry_waiting(io, due);
    waiters->retrying = false;
}

void lm_slot_wait_bound(struct lm_io *io) {
    retry_parts(io);
    for (uint32_t n = 0; n < LM_SLOT_WAITERS_MAX && too_many_wait(io); n++) bound_waiting(io);
}
