/* loadgen_setup.c: the load generator's settings and its connections; called by loadgen.c only. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "base/error.h"
#include "flow/loadgen.h"

int lm_load_dial(const lumen_load_config *config, int *fd_out) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)config->port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)config->port)};
    bool is_v4 = inet_pton(AF_INET, config->host, &v4.sin_addr) == 1;
    if (!is_v4 && inet_pton(AF_INET6, config->host, &v6.sin6_addr) != 1) {
        return lm_error(LUMEN_E_INVALID, "expected an IPv4 or IPv6 address, found '%s'",
                        config->host);
    }
    const struct sockaddr *address = is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    if (fd < 0 || connect(fd, address, is_v4 ? sizeof v4 : sizeof v6) != 0) {
        int number = errno;
        if (fd >= 0) close(fd);
        return lm_error_errno(LUMEN_E_IO, number, "cannot connect to %s port %u", config->host,
                              config->port);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
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
