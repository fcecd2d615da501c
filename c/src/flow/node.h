/* node.h: what belongs to one NUMA node of the machine: the line between the threads on its cores,
 * and the seats where its idle workers sleep. What the whole server shares, threads too, is in
 * struct lm_shared (state.h). A server has one node, or as many as the plan says
 * (parts/placement.h).
 */
#ifndef LM_FLOW_NODE_H
#define LM_FLOW_NODE_H

#include "base/limits.h"
#include "lumen.h"
#include "parts/queue.h"
#include "parts/waitset.h"

struct lm_cpu_set;

/* The Run that uses the cores of sleeping workers, if there is one: work/width.h. The worker that
 * runs it writes this; one that wakes reads it, and may set `disturbed`. */
struct lm_width {
    LM_CACHE_ALIGNED lm_atomic_u32 taken; /* 1: a worker has the rest of this */
    lm_atomic_u32 owner;                  /* the worker whose Run is wide, plus 1; 0: none */
    lm_atomic_u32 disturbed;              /* 1: a helper has lost its core since */
    lm_atomic_u32 helper_count;
    lm_atomic_u32 tids[LM_WIDTH_MAX - 1];  /* of the helper threads */
    lm_atomic_u32 seats[LM_WIDTH_MAX - 1]; /* the sleeping workers whose cores they have */
};

/* A queue between the node's threads, and what goes with it. Another one takes its place when its
 * type or the number of workers changes (server/workers.c): I/O threads push to the one in force,
 * which each looks up once a turn. When all have turned, the old one is sealed; a worker that finds
 * it empty then goes to the one in force. */
struct lm_line {
    struct lm_queue queue; /* of lm_job_pack(io, slot); unused when queue_type is inline */
    bool workers_sleep;    /* in the waitset: they must be woken */
    uint32_t workers;      /* that work with it, the first ones of the node */
    uint32_t number;       /* of lines before it, from 0 on: it is lines[number % 2] */
    lm_atomic_u32 sealed;  /* 1: nobody pushes to it any more */
};

/* Read-only after start, but for the lines, the waitsets and the width. */
struct lm_node {
    uint32_t index;
    uint32_t io_count;     /* its I/O threads */
    uint32_t worker_count; /* its workers that run models, or may: */
    uint32_t thread_count; /* places for threads, and those of its I/O threads */
    int32_t memory;        /* the kernel's number of the node that its memory is on; -1: of any */
    const struct lm_cpu_set *cpus; /* where its threads stay that have no core; NULL: anywhere */
    uint32_t queue_capacity;
    uint32_t other_count;
    struct lm_node *others[LM_NODES_MAX - 1]; /* whose jobs it may take; the nearest first */
    lm_atomic_u64 line;                       /* struct lm_line *: in force */
    struct lm_line lines[2];                  /* by turns */
    struct lm_waitset waitset;                /* by the workers' numbers in the server */
    struct lm_waitset spare; /* the seats of workers that the line in force has no use for */
    struct lm_width width;
    struct lm_waitset resting; /* the seats of I/O threads; see rest.h */
};
/* What threads of one node write is on no line with what those of another do. */
_Static_assert(sizeof(struct lm_node) % LM_CACHE_LINE == 0, "nodes share no line");

/* Control thread, before the node's threads start: opens the first line, for so many workers, with
 * a place for each of `slots` slots, and the waitsets. Returns 0 or LUMEN_E_*. */
int lm_node_open(struct lm_node *node, const lumen_config *config, uint32_t workers,
                 uint32_t slots);
/* Control thread: opens the line that is not in force, for so many workers. Nobody has it: its last
 * worker has left it. Returns 0 or LUMEN_E_*. */
int lm_node_open_line(struct lm_node *node, const lumen_config *config, uint32_t workers);
/* Control thread: puts that line in force. */
void lm_node_publish_line(struct lm_node *node);
/* Control thread, once no I/O thread pushes to it: seals the line that is not in force. */
void lm_node_seal_line(struct lm_node *node);
/* No thread of the node runs. */
void lm_node_close(struct lm_node *node);

/* Any thread: the line in force. */
static inline struct lm_line *lm_node_line(const struct lm_node *node) {
    /* Q1: acquire: the line; pairs with Q2 in flow/node.c */
    return (struct lm_line *)(uintptr_t)lm_load_acquire_u64(&node->line);
}

/* How many Runs may go on at once. */
static inline uint32_t lm_node_parallel(const struct lm_node *node) {
    return node->thread_count ? lm_node_line(node)->workers : node->worker_count;
}

/* Its workers have more to do than one job each after this one: another node may help. */
static inline bool lm_node_is_deep(struct lm_node *node) {
    return lm_queue_depth(&lm_node_line(node)->queue) >= lm_node_parallel(node);
}

/* For a job in its queue. Where all workers of the node are awake and have enough to do, one of
 * another node helps: it announces its sleep before it looks at this queue's depth, as for its own
 * (waitset.h). */
static inline void lm_node_wake_worker(struct lm_node *node) {
    if (lm_waitset_wake_one(&node->waitset)) return;
    for (uint32_t o = 0; o < node->other_count; o++) {
        if (!lm_node_is_deep(node) || lm_waitset_wake_one(&node->others[o]->waitset)) return;
    }
}

/* A worker of the node that has nothing to do: a job of another, which is deep. false: none. */
static inline bool lm_node_steal(struct lm_node *node, uint32_t *job_out) {
    for (uint32_t o = 0; o < node->other_count; o++) {
        struct lm_node *other = node->others[o];
        if (lm_node_is_deep(other) && lm_queue_pop(&lm_node_line(other)->queue, job_out))
            return true;
    }
    return false;
}

static inline uint32_t lm_job_pack(uint32_t io, uint32_t slot) {
    return io << 16 | slot;
}
static inline uint32_t lm_job_io(uint32_t job) {
    return job >> 16;
}
static inline uint32_t lm_job_slot(uint32_t job) {
    return job & 0xffff;
}
_Static_assert(LM_SLOTS_MAX <= 1 << 16, "a job packs the slot in 16 bits");

#endif
