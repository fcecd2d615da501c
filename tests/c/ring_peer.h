/* ring_peer.h: what the tests of ring.h share: the backends to try, and sockets to try them on. */
#ifndef TESTS_C_RING_PEER_H
#define TESTS_C_RING_PEER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/error.h"
#include "check.h"
#include "ring/ring.h"

/* A backend, and what LUMEN_URING_MASK hides from it. */
struct peer_variant {
    uint32_t backend;
    const char *mask;
};

static const struct peer_variant peer_variants[] = {
    {LUMEN_IO_URING, ""},
    {LUMEN_IO_URING, "multishot_accept"},
    {LUMEN_IO_URING, "defer_taskrun,single_issuer,registered_ring"},
    {LUMEN_IO_EPOLL, ""},
    {LUMEN_IO_EPOLL, "epoll_pwait2"},
};
enum { PEER_VARIANTS = sizeof peer_variants / sizeof peer_variants[0] };

/* NULL where this machine refuses the backend, after saying so. */
static inline struct lm_ring *peer_ring(const struct peer_variant *variant, uint32_t connections) {
    struct lm_ring *ring;
    setenv("LUMEN_URING_MASK", variant->mask, 1);
    int code = lm_ring_open(&ring, variant->backend, connections);
    if (code == LUMEN_E_UNSUPPORTED && variant->backend == LUMEN_IO_URING) {
        printf("io_uring is not tried: %s\n", lm_error_last());
        return NULL;
    }
    CHECK(code == 0);
    CHECK(strcmp(lm_ring_backend(ring),
                 variant->backend == LUMEN_IO_EPOLL ? "epoll" : "io_uring") == 0);
    return ring;
}

static inline int peer_listener(struct sockaddr_in *address_out) {
    socklen_t bytes = sizeof *address_out;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *address_out =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)address_out, bytes) == 0 && listen(fd, 128) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)address_out, &bytes) == 0);
    return fd;
}

static inline int peer_connect(const struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK(connect(fd, (const struct sockaddr *)address, sizeof *address) == 0);
    return fd;
}

/* Whether pairs are of unix sockets. */
static bool peer_is_unix;

/* A connected pair, over loop-back TCP as a rule; the ring's end first. */
static inline void peer_pair(int *ours, int *theirs) {
    struct sockaddr_in address;
    if (peer_is_unix) {
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        *ours = pair[0];
        *theirs = pair[1];
        return;
    }
    int listener = peer_listener(&address);
    *theirs = peer_connect(&address);
    *ours = accept(listener, NULL, NULL);
    CHECK(*ours >= 0);
    close(listener);
}

static inline void peer_send(int fd, const void *bytes, size_t count) {
    CHECK(send(fd, bytes, count, MSG_NOSIGNAL) == (ssize_t)count);
}

/* The next completion, which must be `op` of this owner; the watchdog ends a wait without end. */
static inline struct lm_completion peer_next(struct lm_ring *ring, enum lm_op op, uint32_t index,
                                             uint32_t generation) {
    struct lm_completion found;
    int count;
    do {
        count = lm_ring_wait(ring, 0, UINT64_MAX, &found, 1);
        CHECK(count >= 0);
    } while (count == 0);
    CHECK(found.op == op);
    CHECK(found.index == index && found.generation == generation);
    return found;
}

/* Nothing completes for a moment; a failure says what did, and for which line of the test. */
static inline void peer_quiet_at(struct lm_ring *ring, int line) {
    struct lm_completion found;
    for (int i = 0; i < 3; i++) {
        int count = lm_ring_wait(ring, 0, 2000000, &found, 1);
        if (count > 0)
            fprintf(stderr, "line %d: op %u of %u completed with %d\n", line, (unsigned)found.op,
                    found.index, found.result);
        CHECK(count == 0);
    }
}
#define peer_quiet(ring) peer_quiet_at(ring, __LINE__)

#endif
