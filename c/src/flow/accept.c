/* accept.c: see accept.h. */
#include "flow/accept.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "flow/tls.h"

void lm_accept_arm(struct lm_io *io) {
    if (io->draining || io->now_ns < io->accept_retry_ns) return;
    io->accept_retry_ns = 0;
    for (uint32_t l = 0; l < LM_LISTENERS; l++) {
        if (io->listen_fds[l] < 0 || (io->accepts_armed & 1u << l)) continue;
        io->accepts_armed |= 1u << l;
        lm_ring_accept(io->ring, l, io->listen_fds[l]);
    }
}

/* false: its address has as many connections as it may. Asked of the kernel only where there is a
 * bound. */
static bool count_address(struct lm_io *io, struct lm_connection *connection) {
    struct sockaddr_storage peer = {0};
    socklen_t bytes = sizeof peer;
    if (!io->shared->addresses.bound) return true;
    if (getpeername(connection->fd, (struct sockaddr *)&peer, &bytes) != 0) return true;
    /* Who is at the other end of a unix socket has no address; its file's mode says who may be. */
    if (peer.ss_family == AF_UNIX) return true;
    return lm_address_table_add(&io->shared->addresses, &peer, &connection->address);
}

static struct lm_connection *refuse(struct lm_io *io, int fd) {
    lm_add_single_writer_u64(&io->stats->io.connections_refused, 1);
    close(fd);
    return NULL;
}

static struct lm_connection *open_connection(struct lm_io *io, int fd, uint8_t transport) {
    struct lm_connection *connection = io->draining ? NULL : lm_connection_open(io, fd, transport);
    if (!connection) return refuse(io, fd);
    lm_connection_mark(io, connection);
    return connection;
}

static void start_connection(struct lm_io *io, int fd, uint8_t transport) {
    struct lm_connection *connection = open_connection(io, fd, transport);
    if (!connection) return;
    if (!count_address(io, connection)) {
        lm_add_single_writer_u64(&io->stats->io.connections_crowded, 1);
        lm_connection_abort(io, connection);
    }
}

void lm_accept_greeted(struct lm_io *io, int fd) {
    struct lm_tls_sessions *sessions = io->shared->sessions;
    struct lm_tls_session *session = lm_tls_session_at(sessions, fd);
    lm_tls_session_put(sessions, fd, NULL); /* a closed descriptor may be anybody's next */
    /* Without enough descriptors idle connections are parked, which these are not. */
    const bool fits = !io->unparked_max || io->tls->open < io->unparked_max;
    struct lm_connection *connection =
        fits ? open_connection(io, fd, LM_TRANSPORT_TLS) : refuse(io, fd);
    if (connection) {
        io->tls->open++;
        lm_tls_session_put(sessions, fd, session);
        session->now_ns = &io->now_ns;
        connection->address = session->address;
        return;
    }
    lm_address_table_remove(&io->shared->addresses, session->address);
    lm_tls_session_close(sessions->openssl, session);
}

/* Unix sockets have no SO_REUSEPORT. Threads that wait on one listening socket would share its
 * connections badly: io_uring waits exclusively and keeps its place, so that the first in line gets
 * all of them (docs/IO.md), and with `inline` all the work. So the first I/O thread alone accepts,
 * and assigns connections in turn: one wake-up for each connection, none for a request. */
static void assign(struct lm_io *io, int fd) {
    struct lm_shared *shared = io->shared;
    struct lm_io *to = &shared->ios[io->assigned_count++ % shared->io_count];
    /* A thread that drains may have ended, and would not take the connection. relaxed: nothing else
     * is read because of it; what is pushed too late, lm_accept_refuse_assigned closes. */
    bool draining = lm_load_relaxed_u32(&shared->phase) == LM_PHASE_DRAINING;
    if (to == io || draining || !lm_spsc_push(&to->assigned, (uint32_t)fd)) {
        start_connection(io, fd, LM_TRANSPORT_UNIX);
    } else {
        lm_ring_wake(to->ring);
    }
}

void lm_accept_take_assigned(struct lm_io *io) {
    uint32_t fd;
    while (lm_spsc_pop(&io->assigned, &fd)) start_connection(io, (int)fd, LM_TRANSPORT_UNIX);
}

void lm_accept_refuse_assigned(struct lm_io *io) {
    uint32_t fd;
    while (io->assigned.values && lm_spsc_pop(&io->assigned, &fd)) close((int)fd);
}

void lm_accept_completed(struct lm_io *io, const struct lm_completion *completion) {
    if (!completion->more) io->accepts_armed &= ~(1u << completion->index);
    if (completion->result >= 0 && completion->index == LM_LISTENER_UNIX) {
        assign(io, completion->result);
    } else if (completion->result >= 0) {
        start_connection(io, completion->result, LM_TRANSPORT_TCP);
    } else if (completion->result != -ECONNABORTED && completion->result != -EINTR &&
               completion->result != -ECANCELED) {
        /* Out of descriptors or memory, as a rule: trying again at once would spin. A close wakes
         * it earlier. */
        io->accept_retry_ns = io->now_ns + LM_ACCEPT_PAUSE_MS * 1000000ull;
    }
    lm_accept_arm(io);
}

void lm_accept_close_listeners(struct lm_io *io) {
    for (uint32_t l = 0; l < LM_LISTENERS; l++) {
        if (io->listen_fds[l] >= 0) close(io->listen_fds[l]);
        io->listen_fds[l] = -1;
    }
}
