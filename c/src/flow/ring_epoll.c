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
 *    themselves (MORE_BEHIND): no edge would follow them.
 *
 * Sockets stay as they are, blocking: every call says MSG_DONTWAIT. The listener alone is made
 * non-blocking, since accept has no such flag.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "flow/ring_backend.h"

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441 /* the same on all architectures; Linux 5.11 */
#endif

enum {
    /* What the socket is known to be ready for. */
    READABLE = 1 << 0,
    WRITABLE = 1 << 1,
    MORE_BEHIND = 1 << 2, /* after a short read too: the stream's end, an error, an urgent byte */
    REGISTERED = 1 << 3,
    QUEUED = 1 << 4,
    /* What is under way: at most one receive and one send. */
    RECV_HEADER = 1 << 5,
    RECV_BODY = 1 << 6,
    SEND = 1 << 7
};

enum {
    NO_ENTRY = UINT32_MAX,
    LISTENER = UINT32_MAX, /* indices that are no connection's */
    WAKER = UINT32_MAX - 1,
    POLL_PAUSES = 8 /* between two looks */
};

struct entry {
    uint8_t *memory; /* of a body: where the next byte goes */
    uint32_t left;   /* of a body */
    uint32_t done;
    uint32_t generation;
    uint32_t next; /* in the queue */
    int fd;
    uint32_t flags;
};

_Static_assert(sizeof(struct entry) == 32, "two entries share a cache line");

struct sending {
    const struct msghdr *message;
    size_t done;
};

struct lm_epoll {
    struct lm_ring base;
    int epoll_fd;
    uint32_t entry_count;
    struct entry *entries;
    struct sending *sendings; /* apart, since most connections never need theirs */
    struct lm_mapping entry_memory, sending_memory;
    uint32_t queue_head, queue_tail, queue_count;
    bool looked; /* at the kernel's events, in the last turn */
    bool woken;
    bool has_pwait2;
    int listen_fd; /* -1: none is registered */
    bool accepting;
    bool accept_ready;
    int accept_error;   /* to be told; 0: none */
    bool cancel_untold; /* likewise */
    uint32_t free_count;
    uint16_t free_buffers[LM_HEADER_BUFFERS];
    struct epoll_event events[LM_EPOLL_EVENTS];
};

/* `base` is the first member. */
static struct lm_epoll *own(struct lm_ring *base) {
    return (struct lm_epoll *)base;
}

static int add(struct lm_epoll *ring, int fd, uint32_t events, uint32_t index,
               uint32_t generation) {
    struct epoll_event event = {.events = events | EPOLLET,
                                .data.u64 = (uint64_t)generation << 32 | index};
    return epoll_ctl(ring->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static int open_tables(struct lm_epoll *ring, uint32_t max_connections) {
    ring->entry_count = max_connections;
    int code = lm_mapping_reserve(&ring->entry_memory, max_connections * sizeof(struct entry));
    if (!code)
        code = lm_mapping_reserve(&ring->sending_memory, max_connections * sizeof(struct sending));
    ring->entries = ring->entry_memory.base;
    ring->sendings = ring->sending_memory.base;
    ring->queue_head = ring->queue_tail = NO_ENTRY;
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
    ring->listen_fd = -1;
    ring->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int number = errno;
    int code = lm_ring_base_open(&ring->base, LUMEN_IO_EPOLL);
    if (ring->epoll_fd < 0) code = lm_error_errno(LUMEN_E_IO, number, "cannot create an epoll set");
    if (!code) code = open_tables(ring, max_connections);
    if (!code && (number = add(ring, ring->base.wake_fd, EPOLLIN, WAKER, 0)) != 0)
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

static void enqueue(struct lm_epoll *ring, struct entry *entry) {
    if (entry->flags & QUEUED) return;
    uint32_t index = (uint32_t)(entry - ring->entries);
    entry->flags |= QUEUED;
    entry->next = NO_ENTRY;
    if (ring->queue_count++ == 0) {
        ring->queue_head = index;
    } else {
        ring->entries[ring->queue_tail].next = index;
    }
    ring->queue_tail = index;
}

static struct entry *dequeue(struct lm_epoll *ring) {
    struct entry *entry = &ring->entries[ring->queue_head];
    entry->flags &= ~(uint32_t)QUEUED;
    ring->queue_head = entry->next;
    ring->queue_count--;
    return entry;
}

static bool may_go_on(const struct entry *entry) {
    return ((entry->flags & (RECV_HEADER | RECV_BODY)) && (entry->flags & READABLE)) ||
           ((entry->flags & SEND) && (entry->flags & WRITABLE)) || !(entry->flags & REGISTERED);
}

/* Notes an operation. A descriptor seen for the first time is registered when the queue is tried,
 * where a failure has a completion to go to. */
static struct entry *start(struct lm_epoll *ring, int fd, uint32_t index, uint32_t generation,
                           uint32_t operation) {
    LM_DEBUG_ASSERT(index < ring->entry_count);
    struct entry *entry = &ring->entries[index];
    generation &= 0xffffff;
    bool known = (entry->flags & REGISTERED) && entry->generation == generation && entry->fd == fd;
    if (!known && (entry->flags & (RECV_HEADER | RECV_BODY | SEND)) == 0) {
        LM_DEBUG_ASSERT(!(entry->flags & QUEUED));
        /* A send that comes before the first event is tried: sockets are writable as a rule. */
        *entry = (struct entry){.generation = generation, .fd = fd, .flags = WRITABLE};
    }
    LM_DEBUG_ASSERT(entry->generation == generation && entry->fd == fd);
    LM_DEBUG_ASSERT(!(entry->flags & operation));
    entry->flags |= operation;
    return entry;
}

void lm_epoll_recv_header(struct lm_ring *base, int fd, uint32_t index, uint32_t generation) {
    struct lm_epoll *ring = own(base);
    struct entry *entry = start(ring, fd, index, generation, RECV_HEADER);
    if (may_go_on(entry)) enqueue(ring, entry);
}

void lm_epoll_recv(struct lm_ring *base, int fd, void *memory, size_t bytes, uint32_t index,
                   uint32_t generation) {
    struct lm_epoll *ring = own(base);
    struct entry *entry = start(ring, fd, index, generation, RECV_BODY);
    entry->memory = memory;
    entry->left = (uint32_t)bytes;
    entry->done = 0;
    if (may_go_on(entry)) enqueue(ring, entry);
}

void lm_epoll_send(struct lm_ring *base, int fd, const struct msghdr *message, uint32_t index,
                   uint32_t generation) {
    struct lm_epoll *ring = own(base);
    struct entry *entry = start(ring, fd, index, generation, SEND);
    ring->sendings[index] = (struct sending){.message = message};
    if (may_go_on(entry)) enqueue(ring, entry);
}

void lm_epoll_buffer_return(struct lm_ring *base, int32_t buffer) {
    struct lm_epoll *ring = own(base);
    LM_DEBUG_ASSERT(buffer >= 0 && ring->free_count < LM_HEADER_BUFFERS);
    ring->free_buffers[ring->free_count++] = (uint16_t)buffer;
}

void lm_epoll_accept(struct lm_ring *base, int listen_fd) {
    struct lm_epoll *ring = own(base);
    ring->accepting = true;
    /* Tried at once: an edge may have come while nobody accepted. */
    ring->accept_ready = true;
    ring->accept_error = 0;
    if (ring->listen_fd == listen_fd) return;
    int flags = fcntl(listen_fd, F_GETFL);
    if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        ring->accept_error = -errno;
        return;
    }
    int code = add(ring, listen_fd, EPOLLIN, LISTENER, 0);
    if (code && code != -EEXIST) { /* EEXIST: cancelled, and now armed again */
        ring->accept_error = code;
    } else {
        ring->listen_fd = listen_fd;
    }
}

void lm_epoll_cancel_accept(struct lm_ring *base) {
    struct lm_epoll *ring = own(base);
    ring->cancel_untold = true;
    ring->listen_fd = -1; /* the number may be another's next */
    if (ring->accepting) ring->accept_error = -ECANCELED;
}

/* ---- trying them ---- */

static void complete(struct lm_epoll *ring, const struct entry *entry, enum lm_op op,
                     int32_t result, struct lm_completion *completion) {
    *completion = (struct lm_completion){.op = op,
                                         .index = (uint32_t)(entry - ring->entries),
                                         .generation = entry->generation,
                                         .result = result,
                                         .buffer = LM_NO_BUFFER};
}

/* What a read of `asked` bytes says about the next one. */
static void learn_from_read(struct entry *entry, ssize_t got, size_t asked) {
    bool empty = got < 0 ? errno == EAGAIN || errno == EWOULDBLOCK
                         : (size_t)got < asked && !(entry->flags & MORE_BEHIND);
    if (empty) entry->flags &= ~(uint32_t)READABLE;
}

/* true: there is a completion. */
static bool try_header(struct lm_epoll *ring, struct entry *entry,
                       struct lm_completion *completion) {
    if (ring->free_count == 0) {
        entry->flags &= ~(uint32_t)RECV_HEADER;
        complete(ring, entry, LM_OP_RECV_HEADER, -ENOBUFS, completion);
        return true;
    }
    int32_t buffer = ring->free_buffers[ring->free_count - 1];
    ssize_t got =
        recv(entry->fd, lm_ring_buffer(&ring->base, buffer), LM_HEADER_BUFFER_BYTES, MSG_DONTWAIT);
    learn_from_read(entry, got, LM_HEADER_BUFFER_BYTES);
    if (got < 0 && !(entry->flags & READABLE)) return false;
    entry->flags &= ~(uint32_t)RECV_HEADER;
    complete(ring, entry, LM_OP_RECV_HEADER, got < 0 ? -errno : (int32_t)got, completion);
    if (got > 0) {
        completion->buffer = buffer;
        ring->free_count--;
    }
    return true;
}

static bool try_body(struct lm_epoll *ring, struct entry *entry, struct lm_completion *completion) {
    size_t asked = entry->left < LM_EPOLL_TURN_BYTES ? entry->left : LM_EPOLL_TURN_BYTES;
    ssize_t got = recv(entry->fd, entry->memory, asked, MSG_DONTWAIT);
    learn_from_read(entry, got, asked);
    if (got > 0) {
        entry->memory += got;
        entry->left -= (uint32_t)got;
        entry->done += (uint32_t)got;
        if (entry->left > 0) return false;
    } else if (got < 0 && !(entry->flags & READABLE)) {
        return false;
    }
    /* All is there, or no more will come: what came is told first, an error the next time. */
    int32_t result = entry->done > 0 || got == 0 ? (int32_t)entry->done : -errno;
    entry->flags &= ~(uint32_t)RECV_BODY;
    complete(ring, entry, LM_OP_RECV, result, completion);
    return true;
}

/* What of a message comes after `done` bytes, bounded; returns the bytes. */
static size_t rest_of(const struct msghdr *message, size_t done, struct iovec *parts,
                      size_t *part_count_out) {
    size_t count = 0, bytes = 0;
    for (size_t p = 0;
         p < message->msg_iovlen && count < LM_EPOLL_SEND_PARTS && bytes < LM_EPOLL_TURN_BYTES;
         p++) {
        const struct iovec *part = &message->msg_iov[p];
        if (done >= part->iov_len) {
            done -= part->iov_len;
            continue;
        }
        size_t room = LM_EPOLL_TURN_BYTES - bytes, left = part->iov_len - done;
        parts[count] = (struct iovec){(uint8_t *)part->iov_base + done, left < room ? left : room};
        bytes += parts[count++].iov_len;
        done = 0;
    }
    *part_count_out = count;
    return bytes;
}

static bool try_send(struct lm_epoll *ring, struct entry *entry, struct lm_completion *completion) {
    struct sending *sending = &ring->sendings[entry - ring->entries];
    struct iovec parts[LM_EPOLL_SEND_PARTS];
    struct msghdr message = *sending->message;
    message.msg_iov = parts;
    size_t asked = rest_of(sending->message, sending->done, parts, &message.msg_iovlen);
    ssize_t sent = sendmsg(entry->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
        sending->done += (size_t)sent;
        if ((size_t)sent < asked) entry->flags &= ~(uint32_t)WRITABLE;
        size_t left = rest_of(sending->message, sending->done, parts, &message.msg_iovlen);
        if (left > 0 && sending->done < LM_SEND_BYTES_MAX) return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        entry->flags &= ~(uint32_t)WRITABLE;
        return false;
    }
    int32_t result = sent >= 0 || sending->done > 0 ? (int32_t)sending->done : -errno;
    entry->flags &= ~(uint32_t)SEND;
    complete(ring, entry, LM_OP_SEND, result, completion);
    return true;
}

/* Ends what is under way on a descriptor that epoll does not take. */
static uint32_t fail(struct lm_epoll *ring, struct entry *entry, int32_t error,
                     struct lm_completion *completions, uint32_t capacity) {
    uint32_t count = 0;
    if (entry->flags & (RECV_HEADER | RECV_BODY)) {
        enum lm_op op = entry->flags & RECV_HEADER ? LM_OP_RECV_HEADER : LM_OP_RECV;
        entry->flags &= ~(uint32_t)(RECV_HEADER | RECV_BODY);
        complete(ring, entry, op, error, &completions[count++]);
    }
    if ((entry->flags & SEND) && count < capacity) {
        entry->flags &= ~(uint32_t)SEND;
        complete(ring, entry, LM_OP_SEND, error, &completions[count++]);
    }
    if (entry->flags & SEND) enqueue(ring, entry);
    return count;
}

/* Returns the completions: at most `capacity`, which is not 0. */
static uint32_t try_entry(struct lm_epoll *ring, struct entry *entry,
                          struct lm_completion *completions, uint32_t capacity) {
    if (!(entry->flags & REGISTERED)) {
        uint32_t events = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP;
        int code =
            add(ring, entry->fd, events, (uint32_t)(entry - ring->entries), entry->generation);
        if (code) return fail(ring, entry, code, completions, capacity);
        entry->flags |= REGISTERED;
    }
    uint32_t count = 0;
    if (entry->flags & READABLE) {
        if (entry->flags & RECV_HEADER) {
            count += try_header(ring, entry, &completions[count]);
        } else if (entry->flags & RECV_BODY) {
            count += try_body(ring, entry, &completions[count]);
        }
    }
    if ((entry->flags & SEND) && (entry->flags & WRITABLE) && count < capacity)
        count += try_send(ring, entry, &completions[count]);
    if (may_go_on(entry)) enqueue(ring, entry);
    return count;
}

static uint32_t try_accept(struct lm_epoll *ring, struct lm_completion *completions,
                           uint32_t capacity) {
    uint32_t count = 0;
    uint32_t most = capacity / 2 + 1;
    if (most > LM_EPOLL_TURN_ACCEPTS) most = LM_EPOLL_TURN_ACCEPTS;
    while (ring->accepting && (ring->accept_ready || ring->accept_error) && count < most) {
        int fd = ring->accept_error ? -1 : accept4(ring->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        int32_t result = ring->accept_error ? ring->accept_error : fd < 0 ? -errno : fd;
        if (result == -EAGAIN || result == -EWOULDBLOCK) {
            ring->accept_ready = false;
            break;
        }
        ring->accept_error = 0;
        ring->accepting = result >= 0;
        completions[count++] = (struct lm_completion){
            .op = LM_OP_ACCEPT, .result = result, .buffer = LM_NO_BUFFER, .more = ring->accepting};
    }
    return count;
}

/* Tries what is ready, each connection once. */
static uint32_t try_all(struct lm_epoll *ring, struct lm_completion *completions,
                        uint32_t capacity) {
    uint32_t count = 0;
    if (ring->woken && count < capacity) {
        ring->woken = false;
        completions[count++] = (struct lm_completion){.op = LM_OP_WAKE, .buffer = LM_NO_BUFFER};
    }
    if (ring->cancel_untold && count < capacity) {
        ring->cancel_untold = false;
        completions[count++] = (struct lm_completion){.op = LM_OP_CANCEL, .buffer = LM_NO_BUFFER};
    }
    if (count < capacity) count += try_accept(ring, completions + count, capacity - count);
    for (uint32_t turns = ring->queue_count; turns > 0 && count < capacity; turns--)
        count += try_entry(ring, dequeue(ring), completions + count, capacity - count);
    return count;
}

/* ---- waiting ---- */

static void learn(struct lm_epoll *ring, const struct epoll_event *event) {
    uint32_t index = (uint32_t)event->data.u64;
    if (index == WAKER) {
        /* Not read: with edges each write is told, and the count never fills up. */
        ring->woken = true;
        return;
    }
    if (index == LISTENER) {
        ring->accept_ready = true;
        return;
    }
    struct entry *entry = &ring->entries[index];
    if (!(entry->flags & REGISTERED) || entry->generation != event->data.u64 >> 32)
        return; /* of the index's last owner */
    if (event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI))
        entry->flags |= READABLE | MORE_BEHIND;
    if (event->events & EPOLLIN) entry->flags |= READABLE;
    if (event->events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) entry->flags |= WRITABLE;
    if (may_go_on(entry)) enqueue(ring, entry);
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
    if (poll_ns > 0 && timeout_ns > 0) {
        uint64_t until = lm_now_ns() + poll_ns;
        do {
            count = sleep_for(ring, 0);
            for (int i = 0; count == 0 && i < POLL_PAUSES; i++) lm_cpu_relax();
        } while (count == 0 && lm_now_ns() < until);
    }
    if (count == 0) count = sleep_for(ring, timeout_ns);
    if (count < 0) return errno == EINTR ? 0 : -errno;
    for (int e = 0; e < count; e++) learn(ring, &ring->events[e]);
    return count;
}

static bool has_work(const struct lm_epoll *ring) {
    return ring->queue_count > 0 || ring->woken || ring->cancel_untold ||
           (ring->accepting && (ring->accept_ready || ring->accept_error));
}

int lm_epoll_wait(struct lm_ring *base, uint64_t poll_ns, uint64_t timeout_ns,
                  struct lm_completion *completions, uint32_t capacity) {
    struct lm_epoll *ring = own(base);
    uint32_t count = try_all(ring, completions, capacity);
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
        count += try_all(ring, completions + count, capacity - count);
        /* Events that complete nothing are common: a new connection can be written to. */
        if (count > 0 || events == 0 || timeout_ns == 0) return (int)count;
        if (begin) {
            uint64_t spent = lm_now_ns() - begin;
            if (spent >= timeout_ns) return 0;
            left = timeout_ns - spent;
        }
    }
}
