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

int lm_load_dial(const lumen_load_config *config, int *fd_out) {
    struct sockaddr_storage address;
    socklen_t bytes = read_address(config, &address);
    if (bytes == 0) {
        return lm_error(LUMEN_E_INVALID,
                        "expected an IPv4 or IPv6 address, or unix: and a path of at most %d "
                        "bytes, found '%s'",
                        LM_UNIX_PATH_BYTES_MAX - 1, config->host);
    }
    bool is_unix = address.ss_family == AF_UNIX;
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, bytes) != 0) {
        int number = errno;
        if (fd >= 0) close(fd);
        if (is_unix)
            return lm_error_errno(LUMEN_E_IO, number, "cannot connect to %s", config->host);
        return lm_error_errno(LUMEN_E_IO, number, "cannot connect to %s port %u", config->host,
                              config->port);
    }
    if (!is_unix) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *fd_out = fd;
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
