/* parking.c: see parking.h. */
#include "flow/parking.h"

#include <unistd.h>

#include "base/error.h"
#include "flow/transport.h"

bool lm_parking_may_park(const struct lm_io *io, const struct lm_connection *connection) {
    return lm_transport_of(io, connection)->may_park && connection->recv_armed &&
           !connection->ended && connection->list == LM_LIST_NONE &&
           connection->in.read_state == LM_READ_HEADER && connection->in.header_used == 0 &&
           connection->in_flight == 0 && !lm_connection_is_sending(connection);
}

/* How many idle ones have a descriptor too many: beyond their half, or that others ask for. */
static uint32_t count_to_park(const struct lm_io *io) {
    uint32_t unparked = io->connections_open - io->connections_parked;
    uint32_t count = unparked > io->unparked_max ? unparked - io->unparked_max : 0;
    if (count < io->lists[LM_LIST_UNPARKING].count) count = io->lists[LM_LIST_UNPARKING].count;
    return count < io->lists[LM_LIST_IDLE].count ? count : io->lists[LM_LIST_IDLE].count;
}

bool lm_parking_is_due(const struct lm_io *io) {
    return io->now_ns >= io->next_park_ns && count_to_park(io) > 0;
}

void lm_parking_park(struct lm_io *io) {
    if (!lm_parking_is_due(io)) return;
    if (!lm_ring_is_submitted(io->ring)) return; /* a receive in there needs its descriptor */
    for (uint32_t count = count_to_park(io); count > 0; count--) {
        struct lm_connection *connection = &io->connections[io->lists[LM_LIST_IDLE].head];
        if (lm_fd_store_put(io->fd_store, connection->index, connection->fd) != 0) {
            io->next_park_ns = io->now_ns + LM_PARK_RETRY_MS * 1000000ull; /* no memory */
            return;
        }
        close(connection->fd);
        io->descriptor_freed = true;
        connection->fd = LM_FD_PARKED;
        io->connections_parked++;
        lm_connection_move(io, connection, LM_LIST_NONE);
        if (io->accept_retry_ns) io->accept_retry_ns = io->now_ns; /* a descriptor is free again */
    }
}

bool lm_parking_unpark(struct lm_io *io, struct lm_connection *connection) {
    LM_ASSERT(connection->fd == LM_FD_PARKED);
    int fd = lm_fd_store_get(io->fd_store, connection->index);
    if (fd < 0) return false;
    lm_fd_store_drop(io->fd_store, connection->index);
    connection->fd = fd;
    io->connections_parked--;
    lm_add_single_writer_u64(&io->stats->io.connections_unparked, 1);
    return true;
}
