/* ring_epoll.h: the state of an epoll ring, for ring_epoll.c and ring_epoll_try.c alone. The thread
 * of the ring. */
#ifndef LM_RING_RING_EPOLL_H
#define LM_RING_RING_EPOLL_H

#include <errno.h>
#include <sys/epoll.h>

#include "base/error.h"
#include "base/limits.h"
#include "ring/ring_backend.h"

enum {
    /* What the socket is known to be ready for. */
    LM_EPOLL_READABLE = 1 << 0,
    LM_EPOLL_WRITABLE = 1 << 1,
    /* After a short read too: the stream's end, an error, an urgent byte. */
    LM_EPOLL_MORE_BEHIND = 1 << 2,
    LM_EPOLL_REGISTERED = 1 << 3,
    LM_EPOLL_QUEUED = 1 << 4,
    /* What is under way: at most one receive and one send. */
    LM_EPOLL_RECV_HEADER = 1 << 5,
    LM_EPOLL_RECV_BODY = 1 << 6,
    LM_EPOLL_SEND = 1 << 7,
    LM_EPOLL_POLL = 1 << 8,
    LM_EPOLL_CONNECT = 1 << 9,    /* alone; `left` is the errno that is known of it, or 0 */
    LM_EPOLL_CANCELLED = 1 << 10, /* the receive of a body, as is to be told */
    LM_EPOLL_RECV = LM_EPOLL_RECV_HEADER | LM_EPOLL_RECV_BODY | LM_EPOLL_POLL
};

enum {
    LM_EPOLL_NO_ENTRY = UINT32_MAX,
    LM_EPOLL_WAKER = UINT32_MAX,                  /* indices that are no connection's */
    LM_EPOLL_LISTENER = UINT32_MAX - LM_LISTENERS /* the first listener's */
};

struct lm_epoll_entry {
    uint8_t *memory; /* of a body: where the next byte goes */
    uint32_t left;   /* of a body */
    uint32_t done;
    uint32_t generation;
    uint32_t next; /* in the queue */
    int fd;
    uint32_t flags;
};

_Static_assert(sizeof(struct lm_epoll_entry) == 32, "two entries share a cache line");

struct lm_epoll_sending {
    const struct msghdr *message;
    size_t done;
};

struct lm_epoll_listener {
    int fd; /* -1: none is registered */
    bool accepting;
    bool ready;
    bool cancel_untold; /* to be told */
    int error;          /* likewise; 0: none */
};

struct lm_epoll {
    struct lm_ring base;
    int epoll_fd;
    uint32_t entry_count;
    struct lm_epoll_entry *entries;
    struct lm_epoll_sending *sendings; /* apart, since most connections never need theirs */
    struct lm_mapping entry_memory, sending_memory;
    uint32_t queue_head, queue_tail, queue_count;
    bool looked; /* at the kernel's events, in the last turn */
    bool woken;
    bool has_pwait2;
    struct lm_epoll_listener listeners[LM_LISTENERS];
    uint32_t free_count;
    uint16_t free_buffers[LM_HEADER_BUFFERS];
    struct epoll_event events[LM_EPOLL_EVENTS];
};

/* Registers a descriptor. Returns 0 or a negative errno. */
static inline int lm_epoll_add(struct lm_epoll *ring, int fd, uint32_t events, uint32_t index,
                               uint32_t generation) {
    struct epoll_event event = {.events = events | EPOLLET,
                                .data.u64 = (uint64_t)generation << 32 | index};
    return epoll_ctl(ring->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

/* Puts a connection behind those that wait to be tried. */
static inline void lm_epoll_enqueue(struct lm_epoll *ring, struct lm_epoll_entry *entry) {
    if (entry->flags & LM_EPOLL_QUEUED) return;
    uint32_t index = (uint32_t)(entry - ring->entries);
    entry->flags |= LM_EPOLL_QUEUED;
    entry->next = LM_EPOLL_NO_ENTRY;
    if (ring->queue_count++ == 0) {
        ring->queue_head = index;
    } else {
        ring->entries[ring->queue_tail].next = index;
    }
    ring->queue_tail = index;
}

/* Whether trying it makes sense. */
static inline bool lm_epoll_may_go_on(const struct lm_epoll_entry *entry) {
    return ((entry->flags & LM_EPOLL_RECV) && (entry->flags & LM_EPOLL_READABLE)) ||
           ((entry->flags & (LM_EPOLL_SEND | LM_EPOLL_CONNECT)) &&
            (entry->flags & LM_EPOLL_WRITABLE)) ||
           !(entry->flags & LM_EPOLL_REGISTERED);
}

/* Whether accepting would complete something. */
static inline bool lm_epoll_may_accept(const struct lm_epoll_listener *listener) {
    return listener->accepting && (listener->ready || listener->error);
}

/* Tries what is ready, each connection once. Returns the completions, at most `capacity`. */
uint32_t lm_epoll_try_all(struct lm_epoll *ring, struct lm_completion *completions,
                          uint32_t capacity);

#endif
