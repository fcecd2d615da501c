/* socket.c: see socket.h. */
#include "flow/socket.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { TCP_STATE_CLOSED = 7, TCP_STATE_CLOSE_WAIT = 8 }; /* the kernel's; netinet/tcp.h has them */

ssize_t lm_socket_send(struct lm_io *io, struct lm_connection *connection,
                       const struct msghdr *message) {
    ssize_t sent;
    (void)io;
    do {
        sent = sendmsg(connection->fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

bool lm_socket_start_send(struct lm_io *io, struct lm_connection *connection,
                          const struct msghdr *message) {
    lm_ring_send(io->ring, connection->fd, message, connection->index, connection->generation);
    return true;
}

bool lm_socket_start_header(struct lm_io *io, struct lm_connection *connection) {
    lm_ring_recv_header(io->ring, connection->fd, connection->index, connection->generation);
    return true;
}

bool lm_socket_start_recv(struct lm_io *io, struct lm_connection *connection, void *memory,
                          size_t bytes) {
    lm_ring_recv(io->ring, connection->fd, memory, bytes, connection->index,
                 connection->generation);
    return true;
}

bool lm_socket_withdraw(struct lm_io *io, struct lm_connection *connection) {
    lm_ring_cancel_recv(io->ring, connection->index, connection->generation);
    return false;
}

void lm_socket_shut(struct lm_io *io, struct lm_connection *connection, int how) {
    (void)io;
    shutdown(connection->fd, how);
}

void lm_socket_release(struct lm_io *io, struct lm_connection *connection) {
    (void)io;
    close(connection->fd);
}

int lm_socket_waiting(struct lm_io *io, const struct lm_connection *connection) {
    int bytes = 0;
    (void)io;
    return ioctl(connection->fd, FIONREAD, &bytes) == 0 ? bytes : -1;
}

/* The kernel makes room for so many, up to its own limit, where the socket is readable all the
 * same. */
void lm_socket_wake_at(struct lm_io *io, const struct lm_connection *connection, int bytes) {
    (void)io;
    (void)setsockopt(connection->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

bool lm_socket_look(const struct lm_connection *connection, struct lm_transport_look *look_out) {
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    *look_out = (struct lm_transport_look){.acked_bytes = info.tcpi_bytes_acked,
                                           .received_bytes = info.tcpi_bytes_received,
                                           .is_closed = info.tcpi_state == TCP_STATE_CLOSED,
                                           .has_ended = info.tcpi_state == TCP_STATE_CLOSE_WAIT};
    return true;
}
