/* transport.c: see transport.h. */
#include "flow/transport.h"

#include <errno.h>
#include <limits.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

enum { TCP_STATE_CLOSED = 7, TCP_STATE_CLOSE_WAIT = 8 }; /* the kernel's; netinet/tcp.h has them */

static ssize_t socket_send(const struct lm_connection *connection, const struct msghdr *message) {
    ssize_t sent;
    do {
        sent = sendmsg(connection->fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

static void socket_shut(const struct lm_connection *connection, int how) {
    shutdown(connection->fd, how);
}

static int socket_waiting(const struct lm_connection *connection) {
    int bytes = 0;
    return ioctl(connection->fd, FIONREAD, &bytes) == 0 ? bytes : -1;
}

/* The kernel makes room for so many, up to its own limit, where the socket is readable all the
 * same. */
static void socket_wake_at(const struct lm_connection *connection, int bytes) {
    (void)setsockopt(connection->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

static bool tcp_look(const struct lm_connection *connection, struct lm_transport_look *look_out) {
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    *look_out = (struct lm_transport_look){.acked_bytes = info.tcpi_bytes_acked,
                                           .received_bytes = info.tcpi_bytes_received,
                                           .is_closed = info.tcpi_state == TCP_STATE_CLOSED,
                                           .has_ended = info.tcpi_state == TCP_STATE_CLOSE_WAIT};
    return true;
}

/* A stream's carrier sends for it, in its own time, and looks at it when it is advanced. */
static ssize_t stream_send(const struct lm_connection *connection, const struct msghdr *message) {
    (void)connection;
    (void)message;
    errno = EAGAIN;
    return -1;
}

static void stream_shut(const struct lm_connection *connection, int how) {
    (void)connection;
    (void)how;
}

/* The carrier gives a stream its bytes, and reads no more while the stream waits: as many as it can
 * ask for are here. */
static int stream_waiting(const struct lm_connection *connection) {
    (void)connection;
    return INT_MAX;
}

static void stream_wake_at(const struct lm_connection *connection, int bytes) {
    (void)connection;
    (void)bytes;
}

const struct lm_transport lm_transports[LM_TRANSPORT_COUNT] = {
    [LM_TRANSPORT_TCP] = {.send = socket_send,
                          .shut = socket_shut,
                          .waiting = socket_waiting,
                          .wake_at = socket_wake_at,
                          .look = tcp_look},
    [LM_TRANSPORT_UNIX] = {.has_descriptors = true,
                           .send = socket_send,
                           .shut = socket_shut,
                           .waiting = socket_waiting,
                           .wake_at = socket_wake_at},
    [LM_TRANSPORT_STREAM] = {.send = stream_send,
                             .shut = stream_shut,
                             .waiting = stream_waiting,
                             .wake_at = stream_wake_at},
};
