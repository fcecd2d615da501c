/* ring_uring.c: ring.h over io_uring through liburing. One instance per I/O thread, used by that
 * thread alone.
 *
 * Features are probed by trying: set-up flags fall back one by one, multishot accept falls back to
 * one that is armed again after each connection, and a ring that the kernel refuses altogether, or
 * that has no buffer rings, is reported with the cause (seccomp, sysctl, old kernel, locked memory)
 * and the cure. LUMEN_URING_MASK hides features, so that each fall-back can be tested on any
 * kernel: defer_taskrun, single_issuer, coop_taskrun, submit_all, multishot_accept, buffer_rings,
 * registered_ring, setup and a few more; uring_features.c has the list.
 */

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/isolation.h"
#include "base/limits.h"
#include "ring/ring_backend.h"

/* Newer than liburing 2.3's headers on some systems. */
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1u << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1u << 13)
#endif

enum {
    HEADER_GROUP = 1,
    SUBMIT_TRIES = 1000,
    /* A body of this size is still arriving when its receive starts: poll first, copy once. */
    POLL_FIRST_BYTES = 256 << 10,
    LOCKED_SHARE = 64,       /* of the locked memory that a user may have, a ring's completions */
    POLL_PAUSES = 8,         /* between two looks at the clock */
    NO_SUCH_ACCEPT = 1 << 15 /* a flag that every kernel refuses: stands in for an old one */
};

struct listener {
    int fd;
    bool accepting;
    bool multishot; /* how it was armed */
};

struct lm_uring {
    struct lm_ring base;
    struct io_uring uring;
    struct io_uring_buf_ring *buffers;
    struct lm_mapping buffer_ring_memory;
    struct listener listeners[LM_LISTENERS];
    bool multishot_accept;
    bool hides_multishot_accept;
    bool registered;             /* its descriptor, with itself */
    bool tells_news;             /* a flag says when the kernel has completions to bring out */
    int failure;                 /* the kernel takes nothing any more: a negative errno */
    struct io_uring_sqe nowhere; /* where operations go from then on */
    uint64_t wake_value;
    uint64_t overflows;
};

static const struct {
    unsigned flag;
    uint32_t mask;
    const char *name;
} ladder[] = {
    /* In the order in which they are given up. */
    {IORING_SETUP_DEFER_TASKRUN, LM_MASK_DEFER_TASKRUN, "defer_taskrun"},
    {IORING_SETUP_SINGLE_ISSUER, LM_MASK_SINGLE_ISSUER, "single_issuer"},
    {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, LM_MASK_COOP_TASKRUN, "coop_taskrun"},
    {IORING_SETUP_SUBMIT_ALL, LM_MASK_SUBMIT_ALL, "submit_all"},
};
enum { LADDER_STEPS = sizeof ladder / sizeof ladder[0] };

/* `base` is the first member. */
static struct lm_uring *own(struct lm_ring *base) {
    return (struct lm_uring *)base;
}

static uint64_t pack(enum lm_op op, uint32_t index, uint32_t generation) {
    return ((uint64_t)op << 56) | ((uint64_t)(generation & 0xffffff) << 32) | index;
}

/* Orders the end of a ring's memory before its next use by another ring, for ThreadSanitizer, which
 * does not see liburing's calls; the kernel does so anyway. */
static lm_atomic_u32 rings_closed;

/* As the kernel, or one that knows less. */
static int try_setup(struct lm_uring *ring, const struct lm_uring_features *features,
                     unsigned sq_entries, struct io_uring_params *params) {
    if (features->masked & LM_MASK_SETUP) return -ENOSYS;
    for (int s = 0; s < LADDER_STEPS; s++) {
        if ((params->flags & ladder[s].flag) && (features->masked & ladder[s].mask)) return -EINVAL;
    }
    int code = io_uring_queue_init_params(sq_entries, &ring->uring, params);
    if (code) ring->uring.ring_fd = -1; /* newer versions of liburing leave a 0 behind */
    /* U1: acquire: a ring may lie where another thread's has lain; pairs with U2 */
    (void)lm_load_acquire_u32(&rings_closed);
    return code;
}

/* Tries all flags, then fewer and fewer; on ENOMEM smaller rings. */
static int set_up(struct lm_uring *ring, const struct lm_uring_features *features,
                  uint32_t max_connections) {
    char *detail = ring->base.detail;
    size_t room = sizeof ring->base.detail;
    unsigned sq_entries = LM_SQ_ENTRIES;
    unsigned cq_entries = LM_CQ_ENTRIES_MIN;
    /* Before Linux 5.12 and in new kernels rings count as locked memory, of which other processes
     * need a part, too. */
    const uint64_t most = lm_memory_lockable() / LOCKED_SHARE / sizeof(struct io_uring_cqe);
    while (cq_entries < 2 * max_connections && cq_entries < 65536 && 2 * cq_entries <= most)
        cq_entries *= 2;
    int step = 0;
    for (;;) {
        struct io_uring_params params = {.cq_entries = cq_entries,
                                         .flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP};
        int used = 0;
        detail[0] = '\0';
        for (int s = step; s < LADDER_STEPS; s++) {
            params.flags |= ladder[s].flag;
            used += snprintf(detail + used, room - (size_t)used, "%s%s", used ? " " : "",
                             ladder[s].name);
        }
        int code = try_setup(ring, features, sq_entries, &params);
        ring->tells_news = params.flags & IORING_SETUP_TASKRUN_FLAG;
        if (code == 0) return 0;
        if (code == -EINVAL && step < LADDER_STEPS) {
            step++;
        } else if (code == -ENOMEM && cq_entries > 256) {
            cq_entries /= 2;
            sq_entries = sq_entries > 64 ? sq_entries / 2 : sq_entries;
        } else {
            return lm_uring_refuse(code);
        }
    }
}

static int add_buffers(struct lm_uring *ring, const struct lm_uring_features *features) {
    int code =
        lm_mapping_open(&ring->buffer_ring_memory, LM_HEADER_BUFFERS * sizeof(struct io_uring_buf));
    if (code) return code;
    ring->buffers = ring->buffer_ring_memory.base;
    struct io_uring_buf_reg registration = {.ring_addr = (uintptr_t)ring->buffers,
                                            .ring_entries = LM_HEADER_BUFFERS,
                                            .bgid = HEADER_GROUP};
    code = features->masked & LM_MASK_BUFFER_RINGS
               ? -EINVAL
               : io_uring_register_buf_ring(&ring->uring, &registration, 0);
    if (code) {
        ring->buffers = NULL;
        if (code != -EINVAL) return lm_uring_refuse(code);
        return lm_error(LUMEN_E_UNSUPPORTED, "this kernel's io_uring has no buffer rings: expected "
                                             "Linux 6.1 or later");
    }
    io_uring_buf_ring_init(ring->buffers);
    for (int b = 0; b < LM_HEADER_BUFFERS; b++) {
        io_uring_buf_ring_add(ring->buffers, lm_ring_buffer(&ring->base, b), LM_HEADER_BUFFER_BYTES,
                              (unsigned short)b, LM_HEADER_BUFFERS - 1, b);
    }
    io_uring_buf_ring_advance(ring->buffers, LM_HEADER_BUFFERS);
    return 0;
}

static struct io_uring_sqe *next_sqe(struct lm_uring *ring) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);
    /* Full: hand over what is there. An operation is dropped only where the kernel takes nothing
     * any more, which the next wait says: it ends the thread. */
    int code = 0;
    for (uint32_t tries = 0; !sqe && tries < SUBMIT_TRIES; tries++) {
        code = io_uring_submit(&ring->uring);
        sqe = io_uring_get_sqe(&ring->uring);
    }
    if (sqe) return sqe;
    ring->failure = code < 0 ? code : -EBUSY;
    return &ring->nowhere;
}

static void arm_wake(struct lm_uring *ring) {
    struct io_uring_sqe *sqe = next_sqe(ring);
    io_uring_prep_read(sqe, ring->base.wake_fd, &ring->wake_value, sizeof ring->wake_value, 0);
    sqe->user_data = pack(LM_OP_WAKE, 0, 0);
}

static void arm_accept(struct lm_uring *ring, uint32_t index) {
    struct io_uring_sqe *sqe = next_sqe(ring);
    struct listener *listener = &ring->listeners[index];
    listener->multishot = ring->multishot_accept;
    if (listener->multishot) {
        io_uring_prep_multishot_accept(sqe, listener->fd, NULL, NULL, SOCK_CLOEXEC);
        if (ring->hides_multishot_accept) sqe->ioprio |= NO_SUCH_ACCEPT;
    } else {
        io_uring_prep_accept(sqe, listener->fd, NULL, NULL, SOCK_CLOEXEC);
    }
    sqe->user_data = pack(LM_OP_ACCEPT, index, 0);
}

int lm_uring_open(struct lm_ring **ring_out, const struct lm_uring_features *features,
                  uint32_t max_connections) {
    *ring_out = NULL;
    struct lm_uring *ring = calloc(1, sizeof *ring);
    if (!ring) return lm_error(LUMEN_E_NOMEM, "no memory for a ring");
    ring->uring.ring_fd = -1;
    ring->multishot_accept = lm_uring_judge(features->kernel).verdict != LM_URING_ONE_SHOT_ACCEPT;
    ring->hides_multishot_accept = features->masked & LM_MASK_MULTISHOT_ACCEPT;
    int code = lm_ring_base_open(&ring->base, LUMEN_IO_URING);
    if (!code) code = set_up(ring, features, max_connections);
    if (!code) code = add_buffers(ring, features);
    if (code) {
        lm_uring_close(&ring->base);
        return code;
    }
    /* From 5.18; saves a lookup per call. */
    if (!(features->masked & LM_MASK_REGISTERED_RING))
        ring->registered = io_uring_register_ring_fd(&ring->uring) == 1;
    arm_wake(ring);
    /* Setting up may be allowed and entering not: better said now than at the first request. */
    code = io_uring_submit(&ring->uring);
    if (code < 0) {
        lm_uring_close(&ring->base);
        return lm_uring_refuse(code);
    }
    *ring_out = &ring->base;
    return 0;
}

void lm_uring_close(struct lm_ring *base) {
    struct lm_uring *ring = own(base);
    /* U2: acq_rel: what was written to the memory of this ring, and of those before; pairs with U1
     * and U2 */
    (void)lm_exchange_acq_rel_u32(&rings_closed, 1);
    if (ring->uring.ring_fd >= 0) io_uring_queue_exit(&ring->uring);
    lm_mapping_close(&ring->buffer_ring_memory);
    lm_ring_base_close(base);
    free(ring);
}

void lm_uring_describe(struct lm_ring *base) {
    const struct lm_uring *ring = own(base);
    size_t used = strlen(base->detail);
    snprintf(base->detail + used, sizeof base->detail - used, "%s%s%s", used ? " " : "",
             ring->multishot_accept ? "multishot_accept" : "one_shot_accept",
             ring->registered ? " registered_ring" : "");
}

void lm_uring_accept(struct lm_ring *base, uint32_t listener, int listen_fd) {
    struct lm_uring *ring = own(base);
    ring->listeners[listener] = (struct listener){.fd = listen_fd, .accepting = true};
    arm_accept(ring, listener);
}

static void cancel(struct lm_uring *ring, uint64_t user_data) {
    struct io_uring_sqe *sqe = next_sqe(ring);
    io_uring_prep_cancel64(sqe, user_data, 0);
    sqe->user_data = pack(LM_OP_CANCEL, 0, 0);
}

void lm_uring_cancel_accept(struct lm_ring *base, uint32_t listener) {
    struct lm_uring *ring = own(base);
    ring->listeners[listener].accepting = false;
    cancel(ring, pack(LM_OP_ACCEPT, listener, 0));
    /* Now, since the caller may close the listener, and its number may be another's next. */
    io_uring_submit(&ring->uring);
}

void lm_uring_recv_header(struct lm_ring *base, int fd, uint32_t index, uint32_t generation) {
    struct io_uring_sqe *sqe = next_sqe(own(base));
    io_uring_prep_recv(sqe, fd, NULL, LM_HEADER_BUFFER_BYTES, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = HEADER_GROUP;
    sqe->ioprio |= IORING_RECVSEND_POLL_FIRST; /* an idle connection is the usual case */
    sqe->user_data = pack(LM_OP_RECV_HEADER, index, generation);
}

void lm_uring_recv(struct lm_ring *base, int fd, void *memory, size_t bytes, uint32_t index,
                   uint32_t generation) {
    struct io_uring_sqe *sqe = next_sqe(own(base));
    io_uring_prep_recv(sqe, fd, memory, bytes, MSG_WAITALL);
    if (bytes >= POLL_FIRST_BYTES) sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
    sqe->user_data = pack(LM_OP_RECV, index, generation);
}

void lm_uring_poll(struct lm_ring *base, int fd, uint32_t index, uint32_t generation) {
    struct io_uring_sqe *sqe = next_sqe(own(base));
    io_uring_prep_poll_add(sqe, fd, POLLIN);
    sqe->user_data = pack(LM_OP_READABLE, index, generation);
}

void lm_uring_send(struct lm_ring *base, int fd, const struct msghdr *message, uint32_t index,
                   uint32_t generation) {
    struct io_uring_sqe *sqe = next_sqe(own(base));
    io_uring_prep_sendmsg(sqe, fd, message, MSG_NOSIGNAL | MSG_WAITALL);
    sqe->user_data = pack(LM_OP_SEND, index, generation);
}

void lm_uring_connect(struct lm_ring *base, int fd, const struct sockaddr *address, socklen_t bytes,
                      uint32_t index, uint32_t generation) {
    struct io_uring_sqe *sqe = next_sqe(own(base));
    io_uring_prep_connect(sqe, fd, address, bytes);
    sqe->user_data = pack(LM_OP_CONNECT, index, generation);
}

bool lm_uring_is_submitted(const struct lm_ring *base) {
    const struct lm_uring *ring = (const struct lm_uring *)base;
    return io_uring_sq_ready(&ring->uring) == 0;
}

void lm_uring_cancel_recv_header(struct lm_ring *base, uint32_t index, uint32_t generation) {
    cancel(own(base), pack(LM_OP_RECV_HEADER, index, generation));
}

void lm_uring_cancel_recv(struct lm_ring *base, uint32_t index, uint32_t generation) {
    cancel(own(base), pack(LM_OP_RECV, index, generation));
}

void lm_uring_buffer_return(struct lm_ring *base, int32_t buffer) {
    struct lm_uring *ring = own(base);
    io_uring_buf_ring_add(ring->buffers, lm_ring_buffer(base, buffer), LM_HEADER_BUFFER_BYTES,
                          (unsigned short)buffer, LM_HEADER_BUFFERS - 1, 0);
    io_uring_buf_ring_advance(ring->buffers, 1);
}

static void unpack(const struct io_uring_cqe *cqe, struct lm_completion *completion) {
    *completion = (struct lm_completion){
        .op = (enum lm_op)(cqe->user_data >> 56),
        .index = (uint32_t)cqe->user_data,
        .generation = (uint32_t)(cqe->user_data >> 32) & 0xffffff,
        .result = cqe->res,
        .buffer = cqe->flags & IORING_CQE_F_BUFFER
                      ? (int32_t)(cqe->flags >> IORING_CQE_BUFFER_SHIFT)
                      : LM_NO_BUFFER,
        .more = cqe->flags & IORING_CQE_F_MORE,
    };
}

/* Keeps a one-shot accept going; finds out that a multishot one is not to be had. false: nothing
 * happened that the caller should know. */
static bool accepted(struct lm_uring *ring, struct lm_completion *completion) {
    struct listener *listener = &ring->listeners[completion->index];
    if (completion->more || !listener->accepting) return true;
    if (listener->multishot && completion->result == -EINVAL) {
        ring->multishot_accept = false;
        arm_accept(ring, completion->index);
        return false;
    }
    if (!listener->multishot && completion->result >= 0) {
        arm_accept(ring, completion->index);
        completion->more = true;
    } else {
        listener->accepting = false;
    }
    return true;
}

/* Whether a completion is there, or the kernel has one ready that only entering it brings out. */
static bool has_news(struct lm_uring *ring) {
    unsigned flags = IO_URING_READ_ONCE(*ring->uring.sq.kflags);
    return io_uring_cq_ready(&ring->uring) > 0 ||
           (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW));
}

/* Sleeping and being woken costs more than many requests take: looks first. Reads two words of
 * shared memory; the kernel is entered once, with what there is to submit. */
static int poll_news(struct lm_uring *ring, uint64_t poll_ns) {
    uint64_t until = lm_now_ns() + poll_ns;
    int code = io_uring_sq_ready(&ring->uring) ? io_uring_submit(&ring->uring) : 0;
    while (code >= 0 && !has_news(ring) && lm_now_ns() < until) {
        for (int i = 0; i < POLL_PAUSES; i++) lm_cpu_relax();
    }
    return code;
}

int lm_uring_wait(struct lm_ring *base, uint64_t poll_ns, uint64_t timeout_ns,
                  struct lm_completion *completions, uint32_t capacity) {
    struct lm_uring *ring = own(base);
    struct io_uring_cqe *first = NULL;
    if (ring->failure) return ring->failure;
    if (poll_ns && ring->tells_news) {
        if (poll_ns > timeout_ns) poll_ns = timeout_ns;
        (void)poll_news(ring, poll_ns); /* an error comes again below */
        if (timeout_ns != UINT64_MAX) timeout_ns -= poll_ns;
    }
    struct __kernel_timespec timeout = {.tv_sec = (int64_t)(timeout_ns / 1000000000u),
                                        .tv_nsec = (int64_t)(timeout_ns % 1000000000u)};
    int code = timeout_ns == UINT64_MAX ? io_uring_submit_and_wait(&ring->uring, 1)
               : timeout_ns == 0
                   ? io_uring_submit_and_get_events(&ring->uring)
                   : io_uring_submit_and_wait_timeout(&ring->uring, &first, 1, &timeout, NULL);
    /* EBUSY: completions have to be reaped first, which comes next. */
    if (code < 0 && code != -ETIME && code != -EINTR && code != -EAGAIN && code != -EBUSY)
        return code;
    if (IO_URING_READ_ONCE(*ring->uring.sq.kflags) & IORING_SQ_CQ_OVERFLOW) ring->overflows++;

    unsigned head, seen = 0;
    uint32_t count = 0;
    struct io_uring_cqe *cqe;
    io_uring_for_each_cqe(&ring->uring, head, cqe) {
        if (count == capacity) break;
        seen++;
        unpack(cqe, &completions[count]);
        if (completions[count].op == LM_OP_WAKE) arm_wake(ring);
        if (completions[count].op == LM_OP_ACCEPT && !accepted(ring, &completions[count])) continue;
        count++;
    }
    io_uring_cq_advance(&ring->uring, seen);
    return (int)count;
}

uint64_t lm_uring_overflows(const struct lm_ring *base) {
    return ((const struct lm_uring *)base)->overflows;
}
