/* listen.c: the listening TCP sockets. Control thread, at start. */
#include "flow/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "flow/accept.h"
#include "models/layout.h"
#include "models/sizes.h"

/* With several I/O threads each has a listener on the port; the first makes sure of it. */
enum port_sharing { PORT_ALONE, PORT_FIRST, PORT_NEXT };

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
            "another with --port, server.grpc_port or server.tls.port",
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

/* Bytes that a connection's first request should be able to leave in its socket: one row of the
 * largest model, or so much of it as slot_wait.c waits for. */
static int first_request_bytes(const struct lm_shared *shared) {
    size_t most = 0, bytes;
    const struct lm_model_set *set = lm_models_in_force(shared);
    for (uint32_t m = 0; m < set->count; m++) {
        const struct lm_sizes sizes = lm_model_largest(set->models[m], 1);
        if (!lm_model_payload_bytes(set->models[m], LM_ENCODING_TENSORS, &sizes, &bytes)) continue;
        if (bytes > most) most = bytes;
    }
    most += LM_HEADER_BUFFER_BYTES;
    return most < LM_HERE_BYTES ? (int)most : LM_HERE_BYTES;
}

/* The kernel starts a connection with a receive buffer that holds little more than 120 KB, and
 * widens it as it is read from. A low mark widens the listener's, which its connections inherit,
 * and stays when the mark is taken back; SO_RCVBUF would end the widening for good. */
static bool widen(int fd, int bytes) {
    const int one = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) != 0) return true;
    /* Left there, it would keep small requests from being seen. */
    return setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one) == 0;
}

/* TCP's own keepalive, from the idle timeout on. A client that watches is silent for longer than
 * that; where it has vanished, nothing else tells. */
static void keep_alive(const struct lm_shared *shared, int fd) {
    enum { IDLE_S = 7200, IDLE_S_MAX = 32767, PROBES = 3, BETWEEN_S_MAX = 75 };
    const uint32_t timeout_s = shared->config.idle_timeout_seconds;
    const int idle_s = !timeout_s ? IDLE_S : timeout_s > IDLE_S_MAX ? IDLE_S_MAX : (int)timeout_s;
    const int between_s = idle_s / 8 < 1               ? 1
                          : idle_s / 8 > BETWEEN_S_MAX ? BETWEEN_S_MAX
                                                       : idle_s / 8;
    const int on = 1, probes = PROBES;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static int open_listener(const struct lm_shared *shared, const char *host, uint32_t port,
                         enum port_sharing sharing, int *fd_out, uint32_t *port_out) {
    struct sockaddr_storage address;
    socklen_t bytes = 0;
    int code = parse_address(host, port, &address, &bytes);
    if (code) return code;
    if (sharing == PORT_FIRST && !is_free(&address, bytes)) {
        return explain_bind(host, port, EADDRINUSE);
    }
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return explain_bind(host, port, errno);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (sharing != PORT_ALONE) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    /* Inherited by every accepted connection. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    keep_alive(shared, fd);
    if (!widen(fd, first_request_bytes(shared)) ||
        bind(fd, (struct sockaddr *)&address, bytes) != 0 || listen(fd, LM_LISTEN_BACKLOG) != 0 ||
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

int lm_listen_alone(const struct lm_shared *shared, const char *host, uint32_t port, int *fd_out,
                    uint32_t *port_out) {
    return open_listener(shared, host, port, PORT_ALONE, fd_out, port_out);
}

int lm_listen_tcp(struct lm_shared *shared, uint32_t listener, const char *host, uint32_t port,
                  uint32_t *port_out) {
    for (uint32_t i = 0; i < shared->io_count; i++) {
        enum port_sharing sharing = shared->io_count == 1 ? PORT_ALONE
                                    : i == 0              ? PORT_FIRST
                                                          : PORT_NEXT;
        int *fd = &shared->ios[i].listen_fds[listener];
        int code = open_listener(shared, host, port, sharing, fd, &port);
        if (code) return code;
    }
    *port_out = port;
    return 0;
}
