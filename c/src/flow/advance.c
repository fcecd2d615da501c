/* advance.c: see advance.h. */
#include "flow/advance.h"

#include <sys/socket.h>

#include "flow/parking.h"
#include "flow/receive.h"
#include "flow/reply.h"
#include "flow/timers.h"
#include "flow/transport.h"

static bool is_busy(const struct lm_connection *connection) {
    return connection->in_flight > 0 || lm_connection_is_sending(connection);
}

/* Requests are with the workers, and the connection can go on only when one comes back: its return
 * must wake this thread. */
static bool wants_return(const struct lm_io *io, const struct lm_connection *connection) {
    bool is_full = connection->in_flight >= lm_io_in_flight_max(io, connection);
    /* Where bytes are received all the same, the next request is seen, unless it is here already.
     */
    bool is_stuck = is_full && (!lm_io_dialect(io, connection)->one_at_a_time ||
                                connection->buffer != LM_NO_BUFFER);
    return connection->in_flight > 0 &&
           (is_stuck || connection->ended || lm_connection_is_sending(connection) ||
            connection->in.read_state == LM_READ_LINGER || connection->close_after_reply);
}

static bool is_between_requests(const struct lm_connection *connection) {
    return connection->in.read_state == LM_READ_HEADER && connection->in.header_used == 0 &&
           connection->buffer == LM_NO_BUFFER;
}

static void send_and_receive(struct lm_io *io, struct lm_connection *connection) {
    const struct lm_dialect *dialect = lm_io_dialect(io, connection);
    const struct lm_transport *transport = lm_transport_of(io, connection);
    if (transport->advance) transport->advance(io, connection);
    if (dialect->carry) {
        dialect->carry(io, connection);
    } else if (lm_load_relaxed_u32(&connection->gone)) { /* relaxed: written by this thread */
        lm_reply_drop_waiting(io, connection);
    } else {
        lm_reply_flush(io, connection);
    }
    /* The reply to the last request is out. */
    if (connection->close_after_reply && !is_busy(connection) && !connection->ended &&
        connection->in.read_state == LM_READ_HEADER) {
        connection->close_after_reply = false;
        lm_connection_linger(io, connection, 0);
    }
    if (!connection->ended) lm_receive_continue(io, connection);
}

static void advance(struct lm_io *io, struct lm_connection *connection) {
    if (lm_connection_is_stream(connection))
        lm_connection_mark(io,
                           lm_io_connection(io, connection->carrier)); /* it may have to say so */
    send_and_receive(io, connection);
    if (connection->ended) lm_connection_drop_reading(io, connection);
    bool busy = is_busy(connection);
    if (connection->in.read_state == LM_READ_LINGER && !busy && !connection->write_shut) {
        connection->write_shut = true;
        connection->timer_ns = io->now_ns + LM_LINGER_MS * 1000000ull; /* from here on */
        lm_connection_move(io, connection, LM_LIST_LINGERING);
        lm_transport_of(io, connection)->shut(io, connection, SHUT_WR);
    }
    /* While the server drains, a connection between two requests has no future. */
    if (io->draining && !connection->ended && !busy && is_between_requests(connection))
        lm_connection_end_idle(io, connection);
    bool wants = wants_return(io, connection);
    if (wants != connection->counted) {
        connection->counted = wants;
        io->connections_wanting += wants ? 1u : (uint32_t)-1;
    }
    if (connection->marked) return; /* something changed: it is advanced again */
    if (connection->ended && !connection->recv_armed && !busy) lm_connection_close(io, connection);
    if (io->fd_store && connection->fd != LM_FD_PARKED &&
        connection->index < lm_parking_places(io) && lm_parking_may_park(io, connection))
        lm_connection_move(io, connection, LM_LIST_IDLE);
    lm_timer_update(io, connection);
}

void lm_advance_all(struct lm_io *io) {
    struct lm_connection *connection;
    while ((connection = lm_connection_take_marked(io))) advance(io, connection);
}
