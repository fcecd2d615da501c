/* ring_inner.h: what ring_sim.c (what an I/O thread calls) and ring_kernel.c (what the kernel does)
 * share.
 */
#ifndef TESTS_SIM_RING_INNER_H
#define TESTS_SIM_RING_INNER_H

#include "sim.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { RINGS_MAX = 2, OPS_MAX = 256, CQ_MAX = 1024, BUFFERS_MAX = 64, PARTS_MAX = 64 };

struct op {
    enum lm_op kind;
    struct peer *peer;
    uint32_t index, generation;
    uint8_t *memory;
    size_t bytes, done;
    const struct msghdr *message;
    struct iovec parts[PARTS_MAX]; /* as they were at the start: they have to stay */
    size_t part_count;
    bool submitted, cancelled;
    bool early; /* a poll that tells of too few bytes */
    uint64_t not_before_ns;
};

struct done {
    struct lm_completion completion;
    struct peer *peer; /* whose operation it was; for an accept, the new one */
    uint64_t at_ns;
};

struct lm_ring {
    struct lm_io *io;
    bool open;
    struct op ops[OPS_MAX];
    uint32_t op_count;
    struct done later[CQ_MAX]; /* done, not yet told */
    uint32_t later_count;
    struct done told[CQ_MAX]; /* in the completion queue */
    uint32_t told_count;
    bool accept_armed, accept_submitted, accept_cancelled;
    uint64_t accept_told_ns; /* in order: never earlier than the last one */
    bool wake_rung;
    uint8_t *memory;
    bool buffer_out[BUFFERS_MAX]; /* ours; otherwise the kernel's */
    uint64_t overflows;
};

extern struct lm_ring rings[RINGS_MAX];

/* ring_kernel.c */
uint64_t ring_delay_ns(void);
void ring_tell_later(struct lm_ring *ring, const struct lm_completion *completion,
                     struct peer *peer, uint64_t at_ns);

#endif
