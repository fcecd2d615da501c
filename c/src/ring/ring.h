/* ring.h: what an I/O thread asks of the kernel, as operations that are started and complete later.
 *
 * One ring per I/O thread, made and used by that thread alone. An operation names its owner by an
 * index and a generation; both come back with the completion, so that a late one never hits the
 * next owner of the index. ring_uring.c implements this with io_uring, ring_epoll.c with epoll;
 * ring_open.c chooses, and the code above it cannot tell them apart. Descriptors are closed with
 * close(2), once none of their operations is under way; shutdown(2) ends those that are.
 */
#ifndef LM_RING_RING_H
#define LM_RING_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum lm_op {
    LM_OP_ACCEPT = 1,  /* index: the listener's; result: the new descriptor */
    LM_OP_RECV_HEADER, /* result: bytes in the provided buffer `buffer` */
    LM_OP_RECV,        /* result: bytes in the caller's memory */
    LM_OP_READABLE,    /* result: not negative */
    LM_OP_SEND,        /* result: bytes sent */
    LM_OP_CONNECT,     /* result: 0 */
    LM_OP_WAKE,        /* a worker rang */
    LM_OP_CANCEL
};

enum { LM_NO_BUFFER = -1 };

/* A ring accepts from so many listeners at a time; each has a number from 0. */
enum { LM_LISTENERS = 3 };

struct lm_completion {
    enum lm_op op;
    uint32_t index;
    uint32_t generation; /* 24 bits */
    int32_t result;      /* bytes or a descriptor, or a negative errno */
    int32_t buffer;      /* LM_NO_BUFFER, or one to give back with lm_ring_buffer_return */
    bool more;           /* the operation goes on by itself (multishot) */
};

struct lm_ring; /* opaque */

/* Creates the ring of the calling thread, for indices below max_connections. `backend` is
 * LUMEN_IO_*; auto takes io_uring where it is complete, else epoll, and lm_ring_note says why.
 * Returns 0, LUMEN_E_UNSUPPORTED with cause and cure, or another LUMEN_E*. */
int lm_ring_open(struct lm_ring **ring_out, uint32_t backend, uint32_t max_connections);
void lm_ring_close(struct lm_ring *ring);
/* "io_uring" or "epoll", the features in force, and one line about what could not be had, or "". */
const char *lm_ring_backend(const struct lm_ring *ring);
const char *lm_ring_detail(const struct lm_ring *ring);
const char *lm_ring_note(const struct lm_ring *ring);

/* Accepts until an error, which completes without `more`; `listener` is below LM_LISTENERS. */
void lm_ring_accept(struct lm_ring *ring, uint32_t listener, int listen_fd);
/* When it returns the listener may be closed. The accept completes with -ECANCELED. */
void lm_ring_cancel_accept(struct lm_ring *ring, uint32_t listener);
/* Completes with -ENOBUFS when bytes are there and no buffer is free. */
void lm_ring_recv_header(struct lm_ring *ring, int fd, uint32_t index, uint32_t generation);
/* Receives until `bytes` are there or the stream ends. */
void lm_ring_recv(struct lm_ring *ring, int fd, void *memory, size_t bytes, uint32_t index,
                  uint32_t generation);
/* Completes when the socket has as many bytes as its SO_RCVLOWAT says (TCP; others: any), or as
 * many as it will hold, or no more will come; a receive may follow, none may be under way beside
 * it. */
void lm_ring_poll(struct lm_ring *ring, int fd, uint32_t index, uint32_t generation);
/* Sends until all is sent or the stream breaks. `message` and what it points to stay as they are
 * until the completion. */
void lm_ring_send(struct lm_ring *ring, int fd, const struct msghdr *message, uint32_t index,
                  uint32_t generation);

/* Connects a socket that has none of this ring's operations under way. `address` stays as it is
 * until the completion. -EAGAIN: a unix socket whose listener has no room now (epoll; io_uring
 * waits for room). */
void lm_ring_connect(struct lm_ring *ring, int fd, const struct sockaddr *address, socklen_t bytes,
                     uint32_t index, uint32_t generation);

/* io_uring's alone: what is started there no longer needs its descriptor once it is submitted. */
bool lm_ring_holds_sockets(const struct lm_ring *ring);
/* Whether everything that was started is with the kernel. */
bool lm_ring_is_submitted(const struct lm_ring *ring);
/* The header receive completes, as a rule with -ECANCELED. Needs no descriptor. */
void lm_ring_cancel_recv_header(struct lm_ring *ring, uint32_t index, uint32_t generation);

/* The receive to memory completes, with what has come or with -ECANCELED. */
void lm_ring_cancel_recv(struct lm_ring *ring, uint32_t index, uint32_t generation);

uint8_t *lm_ring_buffer(struct lm_ring *ring, int32_t buffer);
void lm_ring_buffer_return(struct lm_ring *ring, int32_t buffer);

/* Submits what was started and waits for a completion, at most timeout_ns (UINT64_MAX: for ever);
 * looks for one for poll_ns of that before it sleeps. Returns how many were written to
 * `completions`, or a negative errno that ends the thread. */
int lm_ring_wait(struct lm_ring *ring, uint64_t poll_ns, uint64_t timeout_ns,
                 struct lm_completion *completions, uint32_t capacity);

/* From any thread: makes lm_ring_wait return with an LM_OP_WAKE. */
void lm_ring_wake(struct lm_ring *ring);

uint64_t lm_ring_overflows(const struct lm_ring *ring);

#endif
