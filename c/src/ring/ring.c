/* ring.c: chooses between the two backends of ring.h at start and passes each call on. Everything
 * runs on the ring's own thread but for lm_ring_wake.
 *
 * A process has one backend as a rule, so that the branches here always go the same way.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/error.h"
#include "base/limits.h"
#include "ring/ring_backend.h"

static bool is_uring(const struct lm_ring *ring) {
    return ring->backend == LUMEN_IO_URING;
}

int lm_ring_base_open(struct lm_ring *base, uint32_t backend) {
    base->backend = backend;
    base->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (base->wake_fd < 0) return lm_error_errno(LUMEN_E_IO, errno, "cannot create an eventfd");
    /* Parsers may look a cache line ahead. */
    return lm_mapping_open(&base->buffer_memory,
                           (size_t)LM_HEADER_BUFFERS * LM_HEADER_BUFFER_BYTES + LM_CACHE_LINE);
}

void lm_ring_base_close(struct lm_ring *base) {
    if (base->wake_fd >= 0) close(base->wake_fd);
    lm_mapping_close(&base->buffer_memory);
}

/* Opens io_uring and tries it. */
static int open_uring(struct lm_ring **ring_out, const struct lm_uring_features *features,
                      uint32_t max_connections) {
    struct lm_ring *ring;
    int code = lm_uring_open(&ring, features, max_connections);
    if (code) return code;
    code = lm_ring_check(ring);
    if (!code && (features->masked & LM_MASK_SELF_TEST)) {
        code = lm_error(LUMEN_E_UNSUPPORTED, "io_uring was set up, but LUMEN_URING_MASK makes its "
                                             "self-test fail");
    }
    if (code && code != LUMEN_E_AGAIN) {
        lm_uring_close(ring);
        return code;
    }
    lm_uring_describe(ring);
    if (features->masked)
        snprintf(ring->note, sizeof ring->note, "LUMEN_URING_MASK hides features of this kernel");
    *ring_out = ring;
    return 0;
}

int lm_ring_open(struct lm_ring **ring_out, uint32_t backend, uint32_t max_connections) {
    char why[sizeof(*ring_out)->note] = "";
    struct lm_uring_features features;
    *ring_out = NULL;
    int code = lm_uring_features_read(&features);
    if (code) return code;
    struct lm_uring_verdict_why judged = lm_uring_judge(features.kernel);
    bool avoid = judged.verdict == LM_URING_AVOID;
    if (backend == LUMEN_IO_URING || (backend == LUMEN_IO_AUTO && !avoid)) {
        code = open_uring(ring_out, &features, max_connections);
        if (!code && avoid) {
            snprintf((*ring_out)->note, sizeof why,
                     "io_uring was asked for, and this kernel's has known faults (%s)", judged.why);
        }
        if (code != LUMEN_E_UNSUPPORTED || backend == LUMEN_IO_URING) return code;
        snprintf(why, sizeof why, "epoll is used: %s%s", lm_error_last(),
                 features.masked ? " (LUMEN_URING_MASK is set)" : "");
    } else if (backend == LUMEN_IO_AUTO) {
        snprintf(why, sizeof why,
                 "epoll is used: io_uring of this kernel has known faults (%s); use Linux 6.1 or "
                 "later, or ask for it with io_backend: io_uring",
                 judged.why);
    }
    code = lm_epoll_open(ring_out, &features, max_connections);
    if (!code) memcpy((*ring_out)->note, why, sizeof why);
    return code;
}

void lm_ring_close(struct lm_ring *ring) {
    if (!ring) return;
    if (is_uring(ring)) {
        lm_uring_close(ring);
    } else {
        lm_epoll_close(ring);
    }
}

const char *lm_ring_backend(const struct lm_ring *ring) {
    return is_uring(ring) ? "io_uring" : "epoll";
}

const char *lm_ring_detail(const struct lm_ring *ring) {
    return ring->detail;
}

const char *lm_ring_note(const struct lm_ring *ring) {
    return ring->note;
}

void lm_ring_accept(struct lm_ring *ring, uint32_t listener, int listen_fd) {
    LM_ASSERT(listener < LM_LISTENERS);
    if (is_uring(ring)) {
        lm_uring_accept(ring, listener, listen_fd);
    } else {
        lm_epoll_accept(ring, listener, listen_fd);
    }
}

void lm_ring_cancel_accept(struct lm_ring *ring, uint32_t listener) {
    LM_ASSERT(listener < LM_LISTENERS);
    if (is_uring(ring)) {
        lm_uring_cancel_accept(ring, listener);
    } else {
        lm_epoll_cancel_accept(ring, listener);
    }
}

void lm_ring_recv_header(struct lm_ring *ring, int fd, uint32_t index, uint32_t generation) {
    if (is_uring(ring)) {
        lm_uring_recv_header(ring, fd, index, generation);
    } else {
        lm_epoll_recv_header(ring, fd, index, generation);
    }
}

void lm_ring_recv(struct lm_ring *ring, int fd, void *memory, size_t bytes, uint32_t index,
                  uint32_t generation) {
    size_t bounded = bytes < LM_RECV_BYTES_MAX ? bytes : LM_RECV_BYTES_MAX;
    if (is_uring(ring)) {
        lm_uring_recv(ring, fd, memory, bounded, index, generation);
    } else {
        lm_epoll_recv(ring, fd, memory, bounded, index, generation);
    }
}

void lm_ring_poll(struct lm_ring *ring, int fd, uint32_t index, uint32_t generation) {
    if (is_uring(ring)) {
        lm_uring_poll(ring, fd, index, generation);
    } else {
        lm_epoll_poll(ring, fd, index, generation);
    }
}

void lm_ring_send(struct lm_ring *ring, int fd, const struct msghdr *message, uint32_t index,
                  uint32_t generation) {
    if (is_uring(ring)) {
        lm_uring_send(ring, fd, message, index, generation);
    } else {
        lm_epoll_send(ring, fd, message, index, generation);
    }
}

bool lm_ring_holds_sockets(const struct lm_ring *ring) {
    return is_uring(ring);
}

bool lm_ring_is_submitted(const struct lm_ring *ring) {
    return !is_uring(ring) || lm_uring_is_submitted(ring);
}

void lm_ring_cancel_recv_header(struct lm_ring *ring, uint32_t index, uint32_t generation) {
    if (is_uring(ring)) lm_uring_cancel_recv_header(ring, index, generation);
}

uint8_t *lm_ring_buffer(struct lm_ring *ring, int32_t buffer) {
    return (uint8_t *)ring->buffer_memory.base + (size_t)buffer * LM_HEADER_BUFFER_BYTES;
}

void lm_ring_buffer_return(struct lm_ring *ring, int32_t buffer) {
    if (is_uring(ring)) {
        lm_uring_buffer_return(ring, buffer);
    } else {
        lm_epoll_buffer_return(ring, buffer);
    }
}

int lm_ring_wait(struct lm_ring *ring, uint64_t poll_ns, uint64_t timeout_ns,
                 struct lm_completion *completions, uint32_t capacity) {
    return is_uring(ring) ? lm_uring_wait(ring, poll_ns, timeout_ns, completions, capacity)
                          : lm_epoll_wait(ring, poll_ns, timeout_ns, completions, capacity);
}

void lm_ring_wake(struct lm_ring *ring) {
    uint64_t one = 1;
    ssize_t written = write(ring->wake_fd, &one, sizeof one);
    (void)written; /* EAGAIN would mean 2^64-2 wake-ups wait already */
}

uint64_t lm_ring_overflows(const struct lm_ring *ring) {
    return is_uring(ring) ? lm_uring_overflows(ring) : 0;
}
