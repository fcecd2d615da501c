/* node.h: what belongs to one NUMA node of the machine: the threads on its cores, the queue between
 * them, the seats where idle workers sleep, and the memory that Runs allocate from. What the whole
 * server shares is in struct lm_shared (state.h). A server has one node, whatever the machine is.
 */
#ifndef LM_FLOW_NODE_H
#define LM_FLOW_NODE_H

#include "base/limits.h"
#include "lumen.h"
#include "parts/queue.h"
#include "parts/run_arena.h"
#include "parts/waitset.h"

struct lm_io;
struct lm_worker;

/* Read-only after start, but for the queue, the waitset and the arenas. */
struct lm_node {
    struct lm_io *ios;
    uint32_t io_count;
    uint32_t worker_count;
    struct lm_worker *workers;
    bool workers_sleep;    /* in the waitset: they must be woken */
    struct lm_queue queue; /* of lm_job_pack(io, slot); unused when queue_type is inline */
    struct lm_waitset waitset;
    struct lm_run_arenas run_arenas;
};

/* Control thread, before the node's threads start: opens the queue, with a place for each of
 * `slots` slots, and the waitset. Returns 0 or LUMEN_E_*. */
int lm_node_open(struct lm_node *node, const lumen_config *config, uint32_t slots);
/* No thread of the node runs. */
void lm_node_close(struct lm_node *node, const lumen_config *config);

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
