/* ring_epoll_try.c: the operations of the epoll ring, tried when their sockets are ready. Runs
 * inside lm_ring_wait; never sleeps.
 */
#include <poll.h>
#include <sys/socket.h>

#include "ring/ring_epoll.h"

static struct lm_epoll_entry *dequeue(struct lm_epoll *ring) {
    struct lm_epoll_entry *entry = &ring->entries[ring->queue_head];
    entry->flags &= ~(uint32_t)LM_EPOLL_QUEUED;
    ring->queue_head = entry->next;
    ring->queue_count--;
    return entry;
}

static void complete(struct lm_epoll *ring, const struct lm_epoll_entry *entry, enum lm_op op,
                     int32_t result, struct lm_completion *completion) {
    *completion = (struct lm_completion){.op = op,
                                         .index = (uint32_t)(entry - ring->entries),
                                         .generation = entry->generation,
                                         .result = result,
                                         .buffer = LM_NO_BUFFER};
}

/* What a read of `asked` bytes says about the next one. */
static void learn_from_read(struct lm_epoll_entry *entry, ssize_t got, size_t asked) {
    bool empty = got < 0 ? errno == EAGAIN || errno == EWOULDBLOCK
                         : (size_t)got < asked && !(entry->flags & LM_EPOLL_MORE_BEHIND);
    if (empty) entry->flags &= ~(uint32_t)LM_EPOLL_READABLE;
}

/* true: there is a completion. */
static bool try_header(struct lm_epoll *ring, struct lm_epoll_entry *entry,
                       struct lm_completion *completion) {
    if (ring->free_count == 0) {
        entry->flags &= ~(uint32_t)LM_EPOLL_RECV_HEADER;
        complete(ring, entry, LM_OP_RECV_HEADER, -ENOBUFS, completion);
        return true;
    }
    int32_t buffer = ring->free_buffers[ring->free_count - 1];
    ssize_t got =
        recv(entry->fd, lm_ring_buffer(&ring->base, buffer), LM_HEADER_BUFFER_BYTES, MSG_DONTWAIT);
    learn_from_read(entry, got, LM_HEADER_BUFFER_BYTES);
    if (got < 0 && !(entry->flags & LM_EPOLL_READABLE)) return false;
    entry->flags &= ~(uint32_t)LM_EPOLL_RECV_HEADER;
    complete(ring, entry, LM_OP_RECV_HEADER, got < 0 ? -errno : (int32_t)got, completion);
    if (got > 0) {
        completion->buffer = buffer;
        ring->free_count--;
    }
    return true;
}

static bool try_body(struct lm_epoll *ring, struct lm_epoll_entry *entry,
                     struct lm_completion *completion) {
    size_t asked = entry->left < LM_EPOLL_TURN_BYTES ? entry->left : LM_EPOLL_TURN_BYTES;
    ssize_t got = recv(entry->fd, entry->memory, asked, MSG_DONTWAIT);
    learn_from_read(entry, got, asked);
    if (got > 0) {
        entry->memory += got;
        entry->left -= (uint32_t)got;
        entry->done += (uint32_t)got;
        if (entry->left > 0) return false;
    } else if (got < 0 && !(entry->flags & LM_EPOLL_READABLE)) {
        return false;
    }
    /* All is there, or no more will come: what came is told first, and the end the next time. */
    int32_t result = entry->done > 0 || got == 0 ? (int32_t)entry->done : -errno;
    entry->flags &= ~(uint32_t)LM_EPOLL_RECV_BODY;
    complete(ring, entry, LM_OP_RECV, result, completion);
    return true;
}

/* "Readable" was learned before the caller said how many bytes that takes: asks again. Where there
 * are too few, the one that makes them enough is an edge. */
static bool try_poll(struct lm_epoll *ring, struct lm_epoll_entry *entry,
                     struct lm_completion *completion) {
    struct pollfd asked = {.fd = entry->fd, .events = POLLIN};
    int found = poll(&asked, 1, 0);
    if (found == 0) {
        entry->flags &= ~(uint32_t)LM_EPOLL_READABLE;
        return false;
    }
    entry->flags &= ~(uint32_t)LM_EPOLL_POLL;
    complete(ring, entry, LM_OP_READABLE, found < 0 ? -errno : 0, completion);
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

static bool try_send(struct lm_epoll *ring, struct lm_epoll_entry *entry,
                     struct lm_completion *completion) {
    struct lm_epoll_sending *sending = &ring->sendings[entry - ring->entries];
    struct iovec parts[LM_EPOLL_SEND_PARTS];
    struct msghdr message = *sending->message;
    message.msg_iov = parts;
    size_t asked = rest_of(sending->message, sending->done, parts, &message.msg_iovlen);
    ssize_t sent = sendmsg(entry->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
        sending->done += (size_t)sent;
        if ((size_t)sent < asked) entry->flags &= ~(uint32_t)LM_EPOLL_WRITABLE;
        size_t left = rest_of(sending->message, sending->done, parts, &message.msg_iovlen);
        if (left > 0 && sending->done < LM_SEND_BYTES_MAX) return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        entry->flags &= ~(uint32_t)LM_EPOLL_WRITABLE;
        return false;
    }
    int32_t result = sent >= 0 || sending->done > 0 ? (int32_t)sending->done : -errno;
    entry->flags &= ~(uint32_t)LM_EPOLL_SEND;
    complete(ring, entry, LM_OP_SEND, result, completion);
    return true;
}

static void try_connect(struct lm_epoll *ring, struct lm_epoll_entry *entry,
                        struct lm_completion *completion) {
    int error = (int)entry->left;
    socklen_t bytes = sizeof error;
    if (!error && getsockopt(entry->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    entry->flags &= ~(uint32_t)LM_EPOLL_CONNECT;
    complete(ring, entry, LM_OP_CONNECT, -error, completion);
}

/* Ends what is under way on a descriptor that epoll does not take. */
static uint32_t fail(struct lm_epoll *ring, struct lm_epoll_entry *entry, int32_t error,
                     struct lm_completion *completions, uint32_t capacity) {
    uint32_t count = 0;
    if (entry->flags & LM_EPOLL_RECV) {
        enum lm_op op = entry->flags & LM_EPOLL_RECV_HEADER ? LM_OP_RECV_HEADER
                        : entry->flags & LM_EPOLL_POLL      ? LM_OP_READABLE
                                                            : LM_OP_RECV;
        entry->flags &= ~(uint32_t)LM_EPOLL_RECV;
        complete(ring, entry, op, error, &completions[count++]);
    }
    if ((entry->flags & LM_EPOLL_SEND) && count < capacity) {
        entry->flags &= ~(uint32_t)LM_EPOLL_SEND;
        complete(ring, entry, LM_OP_SEND, error, &completions[count++]);
    }
    if (entry->flags & LM_EPOLL_CONNECT) {
        entry->flags &= ~(uint32_t)LM_EPOLL_CONNECT;
        complete(ring, entry, LM_OP_CONNECT, error, &completions[count++]);
    }
    if (entry->flags & LM_EPOLL_SEND) lm_epoll_enqueue(ring, entry);
    return count;
}

/* Returns the completions: at most `capacity`, which is not 0. */
static uint32_t try_entry(struct lm_epoll *ring, struct lm_epoll_entry *entry,
                          struct lm_completion *completions, uint32_t capacity) {
    if (!(entry->flags & LM_EPOLL_REGISTERED)) {
        uint32_t events = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP;
        int code = lm_epoll_add(ring, entry->fd, events, (uint32_t)(entry - ring->entries),
                                entry->generation);
        if (code) return fail(ring, entry, code, completions, capacity);
        entry->flags |= LM_EPOLL_REGISTERED;
    }
    uint32_t count = 0;
    if (entry->flags & LM_EPOLL_CANCELLED) {
        entry->flags &= ~(uint32_t)(LM_EPOLL_CANCELLED | LM_EPOLL_RECV_BODY);
        const int32_t result = entry->done > 0 ? (int32_t)entry->done : -ECANCELED;
        complete(ring, entry, LM_OP_RECV, result, &completions[count++]);
    } else if (entry->flags & LM_EPOLL_READABLE) {
        if (entry->flags & LM_EPOLL_RECV_HEADER) {
            count += try_header(ring, entry, &completions[count]);
        } else if (entry->flags & LM_EPOLL_RECV_BODY) {
            count += try_body(ring, entry, &completions[count]);
        } else if (entry->flags & LM_EPOLL_POLL) {
            count += try_poll(ring, entry, &completions[count]);
        }
    }
    if ((entry->flags & LM_EPOLL_CONNECT) && (entry->flags & LM_EPOLL_WRITABLE))
        try_connect(ring, entry, &completions[count++]);
    if ((entry->flags & LM_EPOLL_SEND) && (entry->flags & LM_EPOLL_WRITABLE) && count < capacity)
        count += try_send(ring, entry, &completions[count]);
    if (lm_epoll_may_go_on(entry)) lm_epoll_enqueue(ring, entry);
    return count;
}

static uint32_t try_accept(struct lm_epoll *ring, uint32_t index, struct lm_completion *completions,
                           uint32_t capacity) {
    struct lm_epoll_listener *listener = &ring->listeners[index];
    uint32_t count = 0;
    uint32_t most = capacity / 2 + 1;
    if (most > LM_EPOLL_TURN_ACCEPTS) most = LM_EPOLL_TURN_ACCEPTS;
    while (lm_epoll_may_accept(listener) && count < most) {
        int fd = listener->error ? -1 : accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
        int32_t result = listener->error ? listener->error : fd < 0 ? -errno : fd;
        if (result == -EAGAIN || result == -EWOULDBLOCK) {
            listener->ready = false;
            break;
        }
        listener->error = 0;
        listener->accepting = result >= 0;
        completions[count++] = (struct lm_completion){.op = LM_OP_ACCEPT,
                                                      .index = index,
                                                      .result = result,
                                                      .buffer = LM_NO_BUFFER,
                                                      .more = listener->accepting};
    }
    return count;
}

uint32_t lm_epoll_try_all(struct lm_epoll *ring, struct lm_completion *completions,
                          uint32_t capacity) {
    uint32_t count = 0;
    if (ring->woken && count < capacity) {
        ring->woken = false;
        completions[count++] = (struct lm_completion){.op = LM_OP_WAKE, .buffer = LM_NO_BUFFER};
    }
    for (uint32_t l = 0; l < LM_LISTENERS && count < capacity; l++) {
        struct lm_epoll_listener *listener = &ring->listeners[l];
        if (listener->cancel_untold)
            completions[count++] =
                (struct lm_completion){.op = LM_OP_CANCEL, .buffer = LM_NO_BUFFER};
        listener->cancel_untold = false;
        if (count < capacity) count += try_accept(ring, l, completions + count, capacity - count);
    }
    for (uint32_t turns = ring->queue_count; turns > 0 && count < capacity; turns--)
        count += try_entry(ring, dequeue(ring), completions + count, capacity - count);
    return count;
}
