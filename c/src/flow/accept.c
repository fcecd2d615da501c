/* accept.c: the listening socket, and new connections on their I/O thread. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "flow/io.h"

static int parse_address(const char *host, uint32_t port, struct sockaddr_storage *address,
                         socklen_t *bytes) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *bytes = sizeof *v4;
    } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        *bytes = sizeof *v6;
    } else {
        return lm_error(LUMEN_E_INVALID,
                        "server.host: expected an IPv4 or IPv6 address, found '%s'", host);
    }
    return 0;
}

static int explain_bind(const char *host, uint32_t port, int errno_value) {
    switch (errno_value) {
    case EADDRINUSE:
        return lm_error(
            LUMEN_E_IO,
            "port %u on %s is in use: stop what listens there (ss -ltnp 'sport = :%u') or choose "
            "another with --port",
            port, host, port);
    case EACCES:
        return lm_error(
            LUMEN_E_IO,
            "port %u needs privilege: choose one from 1024 up, or grant CAP_NET_BIND_SERVICE",
            port);
    case EADDRNOTAVAIL:
        return lm_error(
            LUMEN_E_IO,
            "%s is not an address of this machine: use 127.0.0.1, 0.0.0.0 or one of `ip addr`",
            host);
    default:
        return lm_error_errno(LUMEN_E_IO, errno_value, "cannot listen on %s port %u", host, port);
    }
}

/* Whether the port is free of others: sharing it would also share it with a stranger's server. */
static bool is_free(const struct sockaddr_storage *address, socklen_t bytes) {
    const int on = 1;
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return true; /* the real attempt will say why */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool free = bind(fd, (const struct sockaddr *)address, bytes) == 0 || errno != EADDRINUSE;
    close(fd);
    return free;
}

int lm_listen(const char *host, uint32_t port, enum lm_port_sharing sharing, int *fd_out,
              uint32_t *port_out) {
    struct sockaddr_storage address;
    socklen_t bytes = 0;
    int code = parse_address(host, port, &address, &bytes);
    if (code) return code;
    if (sharing == LM_PORT_FIRST && !is_free(&address, bytes)) {
        return explain_bind(host, port, EADDRINUSE);
    }
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return explain_bind(host, port, errno);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (sharing != LM_PORT_ALONE) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    /* Inherited by every accepted connection. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, bytes) != 0 || listen(fd, LM_LISTEN_BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) {
        code = explain_bind(host, port, errno);
        close(fd);
        return code;
    }
    /* sin_port and sin6_port lie at the same place. */
    *port_out = ntohs(((struct sockaddr_in *)&address)->sin_port);
    *fd_out = fd;
    return 0;
}

void lm_accept_arm(struct lm_io *io) {
    if (io->accept_armed || io->draining || io->now_ns < io->accept_retry_ns) return;
    io->accept_retry_ns = 0;
    io->accept_armed = true;
    lm_ring_accept(io->ring, io->listen_fd);
}

/* false: its address has as many connections as it may. Asked of the kernel only where there is a
 * bound. */
static bool count_address(struct lm_io *io, struct lm_connection *connection) {
    struct sockaddr_storage peer = {0};
    socklen_t bytes = sizeof peer;
    if (!io->shared->connections_per_address) return true;
    if (getpeername(connection->fd, (struct sockaddr *)&peer, &bytes) != 0) return true;
    return lm_address_table_add(&io->addresses, &peer, &connection->address);
}

static void start_connection(struct lm_io *io, int fd) {
    struct lm_connection *connection = io->draining ? NULL : lm_connection_open(io, fd);
    if (!connection) {
        lm_add_single_writer_u64(&io->stats->io.connections_refused, 1);
        close(fd);
        return;
    }
    if (!count_address(io, connection)) {
        lm_add_single_writer_u64(&io->stats->io.connections_crowded, 1);
        lm_connection_abort(io, connection);
    }
    lm_receive_continue(io, connection);
    lm_connection_settle(io, connection);
}

void lm_accept_completed(struct lm_io *io, const struct lm_completion *completion) {
    if (!completion->more) io->accept_armed = false;
    if (completion->result >= 0) {
        start_connection(io, completion->result);
    } else if (completion->result != -ECONNABORTED && completion->result != -EINTR &&
               completion->result != -ECANCELED) {
        /* Out of descriptors or memory, as a rule: trying again at once would spin. A close wakes
         * it earlier. */
        io->accept_retry_ns = io->now_ns + LM_ACCEPT_PAUSE_MS * 1000000ull;
    }
    lm_accept_arm(io);
}
