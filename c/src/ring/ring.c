/* ring.c: passes each call of ring.h on to the ring's backend. Everything runs on the ring's own
 * thread but for lm_ring_wake.
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

void lm_ring_connect(struct lm_ring *ring, int fd, const struct sockaddr *address, socklen_t bytes,
                     uint32_t index, uint32_t generation) {
    if (is_uring(ring)) {
        lm_uring_connect(ring, fd, address, bytes, index, generation);
    } else {
        lm_epoll_connect(ring, fd, address, bytes, index, generation);
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

void lm_ring_cancel_recv(struct lm_ring *ring, uint32_t index, uint32_t generation) {
    if (is_uring(ring)) {
        lm_uring_cancel_recv(ring, index, generation);
    } else {
        lm_epoll_cancel_recv(ring, index, generation);
    }
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
