/* loadgen_setup.c: the load generator's settings and its connections; called by loadgen.c only. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "load/loadgen.h"

enum { DIALS_MAX = 128 }; /* under way at a time, so that no listener's backlog overflows */

/* Any kind of address, and how many bytes of it count; 0: config->host is none. */
static socklen_t read_address(const lumen_load_config *config, struct sockaddr_storage *address) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
    struct sockaddr_un *local = (struct sockaddr_un *)address;
    memset(address, 0, sizeof *address);
    if (strncmp(config->host, "unix:", 5) == 0) {
        size_t bytes = strlen(config->host + 5);
        if (bytes == 0 || bytes >= LM_UNIX_PATH_BYTES_MAX) return 0;
        local->sun_family = AF_UNIX;
        memcpy(local->sun_path, config->host + 5, bytes + 1);
        return sizeof *local;
    }
    if (inet_pton(AF_INET, config->host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)config->port);
        return sizeof *v4;
    }
    if (inet_pton(AF_INET6, config->host, &v6->sin6_addr) != 1) return 0;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)config->port);
    return sizeof *v6;
}

/* A socket to connect. Returns it, or LUMEN_E_IO. */
static int new_socket(int family) {
    const int on = 1;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return lm_error_errno(LUMEN_E_IO, errno, "cannot create a socket");
    if (family != AF_UNIX) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int fail(const lumen_load_config *config, int number) {
    if (strncmp(config->host, "unix:", 5) == 0)
        return lm_error_errno(LUMEN_E_IO, number, "cannot connect to %s", config->host);
    return lm_error_errno(LUMEN_E_IO, number, "cannot connect to %s port %u", config->host,
                          config->port);
}

int lm_load_dial(struct lm_load_dials *dials, uint32_t index) {
    struct lm_load_connection *connection = &dials->connections[index];
    int fd = new_socket(dials->address.ss_family);
    if (fd < 0) return fd;
    connection->fd = fd;
    connection->generation++;
    connection->dialling = true;
    dials->count++;
    lm_ring_connect(dials->ring, fd, (const struct sockaddr *)&dials->address, dials->address_bytes,
                    index, connection->generation);
    return 0;
}

bool lm_load_dialled(struct lm_load_dials *dials, const struct lm_completion *completion) {
    struct lm_load_connection *connection = &dials->connections[completion->index];
    connection->dialling = false;
    dials->count--;
    if (completion->result >= 0) {
        const int code = dials->tls ? lm_load_tls_greet(dials->tls, connection) : 0;
        if (code == 0) return true;
        if (code == LM_LOAD_TLS_WAITS) {
            connection->dialling = true;
            dials->count++;
            lm_ring_poll(dials->ring, connection->fd, completion->index, connection->generation);
            return false;
        }
        dials->code = code;
    }
    lm_load_tls_end(dials->tls, connection);
    close(connection->fd);
    connection->fd = -1;
    /* A unix socket's listener has no room: it is asked until it has. */
    if (completion->result == -EAGAIN && lm_load_dial(dials, completion->index) == 0) return false;
    if (!dials->code) dials->code = fail(dials->config, -completion->result);
    return false;
}

int lm_load_dial_all(struct lm_load_dials *dials) {
    const lumen_load_config *config = dials->config;
    struct lm_completion completions[LM_COMPLETIONS_PER_TURN];
    dials->address_bytes = read_address(config, &dials->address);
    if (dials->address_bytes == 0) {
        return lm_error(LUMEN_E_INVALID,
                        "expected an IPv4 or IPv6 address, or unix: and a path of at most %d "
                        "bytes, found '%s'",
                        LM_UNIX_PATH_BYTES_MAX - 1, config->host);
    }
    for (uint32_t next = 0; next < config->connections || dials->count;) {
        for (; next < config->connections && dials->count < DIALS_MAX; next++) {
            int code = lm_load_dial(dials, next);
            if (code) return code;
        }
        int count = lm_ring_wait(dials->ring, 0, UINT64_MAX, completions, LM_COMPLETIONS_PER_TURN);
        if (count < 0)
            return lm_error_errno(LUMEN_E_IO, count, "load generator: %s",
                                  lm_ring_backend(dials->ring));
        for (int c = 0; c < count; c++)
            if (completions[c].op == LM_OP_CONNECT || completions[c].op == LM_OP_READABLE)
                (void)lm_load_dialled(dials, &completions[c]);
        if (dials->code) return dials->code;
    }
    return 0;
}

int lm_load_check(const lumen_load_config *config) {
    if (config->connections < 1 || config->connections > LUMEN_LOAD_CONNECTIONS_MAX) {
        return lm_error(LUMEN_E_INVALID, "connections: expected 1 to %d, found %u",
                        LUMEN_LOAD_CONNECTIONS_MAX, config->connections);
    }
    if (config->payload_count < 1 || config->payload_bytes > UINT32_MAX) {
        return lm_error(LUMEN_E_INVALID, "expected at least one payload of less than 4 GiB");
    }
    if (config->requests == 0 && config->duration_ns == 0) {
        return lm_error(LUMEN_E_INVALID, "expected a number of requests or a duration");
    }
    if (config->protocol > 1) {
        return lm_error(LUMEN_E_INVALID, "protocol: expected 0 (native) or 1 (HTTP/1.1), found %u",
                        config->protocol);
    }
    return 0;
}
