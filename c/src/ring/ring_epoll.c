/* ring_epoll.c: ring.h over epoll, for systems that have no io_uring or refuse it. One instance per
 * I/O thread, used by that thread alone. Allocates at open only.
 *
 * 1. Each connection has an entry in a table, by its index: what is under way, and what its socket
 *    is known to be ready for. Its descriptor is registered once, edge-triggered, with the first
 *    operation of each generation; closing it takes it out of the set, and what epoll may still say
 *    about it carries the old generation and is dropped.
 * 2. An operation whose socket is ready joins a queue, else the event that makes it ready puts it
 *    there. lm_ring_wait tries the queue, and sleeps only when it is empty.
 * 3. A short read has emptied the socket and clears its readiness, as EAGAIN does: a request costs
 *    no call that finds nothing. What comes later makes a new edge. The exceptions announce
 *    themselves (LM_EPOLL_MORE_BEHIND): no edge would follow them.
 *
 * Sockets stay as they are, blocking: every call says MSG_DONTWAIT. The listener alone is made
 * non-blocking, since accept has no such flag.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "ring/ring_epoll.h"

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441 /* the same on all architectures; Linux 5.11 */
#endif

enum { POLL_PAUSES = 8 /* between two looks */ };

/* `base` is the first member. */
static struct lm_epoll *own(struct lm_ring *base) {
    return (struct lm_epoll *)base;
}

static int open_tables(struct lm_epoll *ring, uint32_t max_connections) {
    ring->entry_count = max_connections;
    int code =
        lm_mapping_reserve(&ring->entry_memory, max_connections * sizeof(struct lm_epoll_entry));
    if (!code)
        code = lm_mapping_reserve(&ring->sending_memory,
                                  max_connections * sizeof(struct lm_epoll_sending));
    ring->entries = ring->entry_memory.base;
    ring->sendings = ring->sending_memory.base;
    ring->queue_head = ring->queue_tail = LM_EPOLL_NO_ENTRY;
    /* The one that was given back last is taken first: it is in the cache. */
    for (uint32_t b = 0; b < LM_HEADER_BUFFERS; b++)
        ring->free_buffers[b] = (uint16_t)(LM_HEADER_BUFFERS - 1 - b);
    ring->free_count = LM_HEADER_BUFFERS;
    return code;
}

/* -1: the system call is not there, or a seccomp profile older than it says no. */
static int pwait2(struct lm_epoll *ring, uint64_t timeout_ns) {
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                               .tv_nsec = (long)(timeout_ns % 1000000000u)};
    return (int)syscall(SYS_epoll_pwait2, ring->epoll_fd, ring->events, LM_EPOLL_EVENTS, &timeout,
                        NULL, (size_t)0);
}

int lm_epoll_open(struct lm_ring **ring_out, const struct lm_uring_features *features,
                  uint32_t max_connections) {
    *ring_out = NULL;
    struct lm_epoll *ring = calloc(1, sizeof *ring);
    if (!ring) return lm_error(LUMEN_E_NOMEM, "no memory for a ring");
    for (uint32_t l = 0; l < LM_LISTENERS; l++) ring->listeners[l].fd = -1;
    ring->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int number = errno;
    int code = lm_ring_base_open(&ring->base, LUMEN_IO_EPOLL);
    if (ring->epoll_fd < 0) code = lm_error_errno(LUMEN_E_IO, number, "cannot create an epoll set");
    if (!code) code = open_tables(ring, max_connections);
    if (!code && (number = lm_epoll_add(ring, ring->base.wake_fd, EPOLLIN, LM_EPOLL_WAKER, 0)) != 0)
        code = lm_error_errno(LUMEN_E_IO, number, "cannot watch an eventfd");
    if (code) {
        lm_epoll_close(&ring->base);
        return code;
    }
    ring->has_pwait2 = !(features->masked & LM_MASK_EPOLL_PWAIT2) && pwait2(ring, 0) >= 0;
    snprintf(ring->base.detail, sizeof ring->base.detail, "edge-triggered, %s",
             ring->has_pwait2 ? "epoll_pwait2" : "epoll_wait");
    *ring_out = &ring->base;
    return 0;
}

void lm_epoll_close(struct lm_ring *base) {
    struct lm_epoll *ring = own(base);
    if (ring->epoll_fd >= 0) close(ring->epoll_fd);
    lm_mapping_close(&ring->entry_memory);
    lm_mapping_close(&ring->sending_memory);
    lm_ring_base_close(base);
    free(ring);
}

/* ---- starting operations ---- */

/* Notes an operation. A descriptor seen for the first time is registered when the queue is tried,
 * where a failure has a completion to go to. */
static struct lm_epoll_entry *start(struct lm_epoll *ring, int fd, uint32_t index,
                                    uint32_t generation, uint32_t operation) {
    LM_DEBUG_ASSERT(index < ring->entry_count);
    struct lm_epoll_entry *entry = &ring->entries[index];
    generation &= 0xffffff;
    bool known =
        (entry->flags & LM_EPOLL_REGISTERED) && entry->generation == generation && entry->fd == fd;
    if (!known && (entry->flags & (LM_EPOLL_RECV | LM_EPOLL_SEND | LM_EPOLL_CONNECT)) == 0) {
        LM_DEBUG_ASSERT(!(entry->flags & LM_EPOLL_QUEUED));
        /* A send that comes before the first event is tried: sockets are writable as a rule. */
        *entry =
            (struct lm_epoll_entry){.generation = generation, .fd = fd, .flags = LM_EPOLL_WRITABLE};
    }
    LM_DEBUG_ASSERT(entry->generation == generation && entry->fd == fd);
    LM_DEBUG_ASSERT(!(entry->flags & operation));
    entry->flags |= operation;
    return entry;
}

void lm_epoll_recv_header(struct lm_ring *base, int fd, uint32_t index, uint32_t generation) {
    struct lm_epoll *ring = own(base);
    struct lm_epoll_entry *entry = start(ring, fd, index, generation, LM_EPOLL_RECV_HEADER);
    if (lm_epoll_may_go_on(entry)) lm_epoll_enqueue(ring, entry);
}

void lm_epoll_recv(struct lm_ring *base, int fd, void *memory, size_t bytes, uint32_t index,
                   uint32_t generation) {
    struct lm_epoll *ring = own(base);
    struct lm_epoll_entry *entry = start(ring, fd, index, generation, LM_EPOLL_RECV_BODY);
    entry->memory = memory;
    entry->left = (uint32_t)bytes;
    entry->done = 0;
    if (lm_epoll_may_go_on(entry)) lm_epoll_enqueue(ring, entry);
}

void lm_epoll_poll(struct lm_ring *base, int fd, uint32_t index, uint32_t generation) {
    struct lm_epoll *ring = own(base);
    struct lm_epoll_entry *entry = start(ring, fd, index, generation, LM_EPOLL_POLL);
    if (lm_epoll_may_go_on(entry)) lm_epoll_enqueue(ring, entry);
}

void lm_epoll_send(struct lm_ring *base, int fd, const struct msghdr *message, uint32_t index,
                   uint32_t generation) {
    struct lm_epoll *ring = own(base);
    struct lm_epoll_entry *entry = start(ring, fd, index, generation, LM_EPOLL_SEND);
    ring->sendings[index] = (struct lm_epoll_sending){.message = message};
    if (lm_epoll_may_go_on(entry)) lm_epoll_enqueue(ring, entry);
}

/* Without waiting, whatever the socket is. Returns 0 or an errno. */
static int dial(int fd, const struct sockaddr *address, socklen_t bytes) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return errno;
    int error = connect(fd, address, bytes) == 0 ? 0 : errno;
    (void)fcntl(fd, F_SETFL, flags);
    return error;
}

void lm_epoll_connect(struct lm_ring *base, int fd, const struct sockaddr *address, socklen_t bytes,
                      uint32_t index, uint32_t generation) {
    struct lm_epoll *ring = own(base);
    struct lm_epoll_entry *entry = start(ring, fd, index, generation, LM_EPOLL_CONNECT);
    int error = dial(fd, address, bytes);
    entry->left = error == EINPROGRESS ? 0 : (uint32_t)error;
    if (error == EINPROGRESS) entry->flags &= ~(uint32_t)LM_EPOLL_WRITABLE;
    if (lm_epoll_may_go_on(entry)) lm_epoll_enqueue(ring, entry);
}

void lm_epoll_buffer_return(struct lm_ring *base, int32_t buffer) {
    struct lm_epoll *ring = own(base);
    LM_DEBUG_ASSERT(buffer >= 0 && ring->free_count < LM_HEADER_BUFFERS);
    ring->free_buffers[ring->free_count++] = (uint16_t)buffer;
}

void lm_epoll_cancel_recv(struct lm_ring *base, uint32_t index, uint32_t generation) {
    struct lm_epoll *ring = own(base);
    struct lm_epoll_entry *entry = &ring->entries[index];
    if (!(entry->flags & LM_EPOLL_RECV_BODY) || entry->generation != (generation & 0xffffff))
        return;
    entry->flags |= LM_EPOLL_CANCELLED;
    lm_epoll_enqueue(ring, entry);
}

void lm_epoll_accept(struct lm_ring *base, uint32_t index, int listen_fd) {
    struct lm_epoll *ring = own(base);
    struct lm_epoll_listener *listener = &ring->listeners[index];
    listener->accepting = true;
    /* Tried at once: an edge may have come while nobody accepted. */
    listener->ready = true;
    listener->error = 0;
    if (listener->fd == listen_fd) return;
    int flags = fcntl(listen_fd, F_GETFL);
    if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        listener->error = -errno;
        return;
    }
    int code = lm_epoll_add(ring, listen_fd, EPOLLIN, LM_EPOLL_LISTENER + index, 0);
    if (code && code != -EEXIST) { /* EEXIST: cancelled, and now armed again */
        listener->error = code;
    } else {
        listener->fd = listen_fd;
    }
}

void lm_epoll_cancel_accept(struct lm_ring *base, uint32_t index) {
    struct lm_epoll_listener *listener = &own(base)->listeners[index];
    listener->cancel_untold = true;
    listener->fd = -1; /* the number may be another's next */
    if (listener->accepting) listener->error = -ECANCELED;
}

/* ---- waiting ---- */

static void learn(struct lm_epoll *ring, const struct epoll_event *event) {
    uint32_t index = (uint32_t)event->data.u64;
    if (index == LM_EPOLL_WAKER) {
        /* Not read: with edges each write is told, and the count never fills up. */
        ring->woken = true;
        return;
    }
    if (index >= LM_EPOLL_LISTENER) {
        ring->listeners[index - LM_EPOLL_LISTENER].ready = true;
        return;
    }
    struct lm_epoll_entry *entry = &ring->entries[index];
    if (!(entry->flags & LM_EPOLL_REGISTERED) || entry->generation != event->data.u64 >> 32)
        return; /* of the index's last owner */
    if (event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI))
        entry->flags |= LM_EPOLL_READABLE | LM_EPOLL_MORE_BEHIND;
    if (event->events & EPOLLIN) entry->flags |= LM_EPOLL_READABLE;
    if (event->events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) entry->flags |= LM_EPOLL_WRITABLE;
    if (lm_epoll_may_go_on(entry)) lm_epoll_enqueue(ring, entry);
}

static int sleep_for(struct lm_epoll *ring, uint64_t timeout_ns) {
    if (timeout_ns > 0 && timeout_ns != UINT64_MAX && ring->has_pwait2)
        return pwait2(ring, timeout_ns);
    uint64_t ms = timeout_ns / 1000000u + (timeout_ns % 1000000u != 0);
    int timeout_ms = timeout_ns == UINT64_MAX ? -1 : ms < INT32_MAX ? (int)ms : INT32_MAX;
    return epoll_wait(ring->epoll_fd, ring->events, LM_EPOLL_EVENTS, timeout_ms);
}

/* Looks for events, at first without sleeping for poll_ns. Returns how many there were, or a
 * negative errno. */
static int look(struct lm_epoll *ring, uint64_t poll_ns, uint64_t timeout_ns) {
    int count = 0;
    if (poll_ns > timeout_ns) poll_ns = timeout_ns;
    if (poll_ns > 0) {
        uint64_t until = lm_now_ns() + poll_ns;
        do {
            count = sleep_for(ring, 0);
            for (int i = 0; count == 0 && i < POLL_PAUSES; i++) lm_cpu_relax();
        } while (count == 0 && lm_now_ns() < until);
        if (timeout_ns != UINT64_MAX) timeout_ns -= poll_ns;
    }
    if (count == 0) count = sleep_for(ring, timeout_ns);
    if (count < 0) return errno == EINTR ? 0 : -errno;
    for (int e = 0; e < count; e++) learn(ring, &ring->events[e]);
    return count;
}

static bool has_work(const struct lm_epoll *ring) {
    bool work = ring->queue_count > 0 || ring->woken;
    for (uint32_t l = 0; l < LM_LISTENERS; l++) {
        const struct lm_epoll_listener *listener = &ring->listeners[l];
        work = work || listener->cancel_untold || lm_epoll_may_accept(listener);
    }
    return work;
}

int lm_epoll_wait(struct lm_ring *base, uint64_t poll_ns, uint64_t timeout_ns,
                  struct lm_completion *completions, uint32_t capacity) {
    struct lm_epoll *ring = own(base);
    uint32_t count = lm_epoll_try_all(ring, completions, capacity);
    /* Every other turn is enough to be fair to those of whom nothing is known yet. */
    if (count > 0 && ring->looked) {
        ring->looked = false;
        return (int)count;
    }
    uint64_t begin = timeout_ns > 0 && timeout_ns != UINT64_MAX ? lm_now_ns() : 0;
    for (uint64_t left = timeout_ns;;) {
        int events = look(ring, poll_ns, count > 0 || has_work(ring) ? 0 : left);
        if (events < 0) return count > 0 ? (int)count : events;
        ring->looked = true;
        count += lm_epoll_try_all(ring, completions + count, capacity - count);
        /* Events that complete nothing are common: a new connection can be written to. */
        if (count > 0 || events == 0 || timeout_ns == 0) return (int)count;
        if (begin) {
            uint64_t spent = lm_now_ns() - begin;
            if (spent >= timeout_ns) return 0;
            left = timeout_ns - spent;
        }
    }
}
