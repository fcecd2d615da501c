/* transports.c: see transports.h. */
#include "flow/transports.h"

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>

#include "flow/socket.h"
#include "flow/tls.h"
#include "flow/tls_turn.h"

/* A stream's carrier sends for it, in its own time, and looks at it when it is advanced. */
static ssize_t stream_send(struct lm_io *io, struct lm_connection *connection,
                           const struct msghdr *message) {
    (void)io, (void)connection, (void)message;
    errno = EAGAIN;
    return -1;
}

static bool stream_start_send(struct lm_io *io, struct lm_connection *connection,
                              const struct msghdr *message) {
    (void)io, (void)connection, (void)message;
    return false;
}

/* Its slot may be received to. */
static void stream_shut(struct lm_io *io, struct lm_connection *connection, int how) {
    struct lm_connection *carrier = lm_io_connection(io, connection->carrier);
    if (!connection->recv_armed || how == SHUT_WR) return;
    if (lm_transport_of(io, carrier)->withdraw(io, carrier))
        lm_io_dialect(io, carrier)->placed(io, carrier, 0);
}

static void stream_release(struct lm_io *io, struct lm_connection *connection) {
    (void)io, (void)connection;
}

/* The carrier gives a stream its bytes, and holds as many as its client may send while it waits: as
 * many as it can ask for are here. */
static int stream_waiting(struct lm_io *io, const struct lm_connection *connection) {
    (void)io, (void)connection;
    return INT_MAX;
}

static void stream_wake_at(struct lm_io *io, const struct lm_connection *connection, int bytes) {
    (void)io, (void)connection, (void)bytes;
}

/* What TCP and unix sockets have in common. */
#define OF_SOCKETS                                                                        \
    .may_park = true, .send = lm_socket_send, .start_send = lm_socket_start_send,         \
    .start_header = lm_socket_start_header, .start_recv = lm_socket_start_recv,           \
    .withdraw = lm_socket_withdraw, .shut = lm_socket_shut, .release = lm_socket_release, \
    .waiting = lm_socket_waiting, .wake_at = lm_socket_wake_at

const struct lm_transport lm_transports[LM_TRANSPORT_COUNT] = {
    [LM_TRANSPORT_TCP] = {OF_SOCKETS, .look = lm_socket_look},
    [LM_TRANSPORT_UNIX] = {OF_SOCKETS, .has_descriptors = true},
    /* Its carrier gives it its bytes (lm_receive_give): it starts no receive. */
    [LM_TRANSPORT_STREAM] = {.io_thread_sends = true,
                             .send = stream_send,
                             .start_send = stream_start_send,
                             .shut = stream_shut,
                             .release = stream_release,
                             .waiting = stream_waiting,
                             .wake_at = stream_wake_at},
    [LM_TRANSPORT_TLS] = {.io_thread_sends = true,
                          .send = lm_tls_send,
                          .start_send = lm_tls_start_send,
                          .start_header = lm_tls_start_header,
                          .start_recv = lm_tls_start_recv,
                          .withdraw = lm_tls_withdraw,
                          .shut = lm_tls_shut,
                          .release = lm_tls_release,
                          .waiting = lm_tls_waiting,
                          .wake_at = lm_tls_wake_at,
                          .advance = lm_tls_advance,
                          .sent = lm_tls_sent,
                          .readable = lm_tls_readable,
                          .deadline_ns = lm_tls_deadline_ns,
                          .has_rest = lm_tls_has_rest,
                          .look = lm_socket_look},
};
