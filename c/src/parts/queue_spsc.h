/* queue_spsc.h: a bounded queue of 32-bit indexes for one producer and one consumer. Wait-free.
 *
 * A ring with two positions, each written by one side alone:
 *  1. The producer looks at its copy of the consumer's position, and at the position itself only
 * when the copy says "full"; it writes the value and publishes it by moving the tail.
 *  2. The consumer does the same the other way round and gives the cell back by moving the head.
 * The cached copies keep the two cache lines apart while the queue is neither full nor empty. One
 * thread pushes, one thread peeks and pops.
 */
#ifndef LM_PARTS_QUEUE_SPSC_H
#define LM_PARTS_QUEUE_SPSC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"

struct lm_spsc {
    uint32_t *values;
    uint64_t mask;
    LM_CACHE_ALIGNED lm_atomic_u64 tail; /* written by the producer */
    uint64_t head_seen;                  /* producer's copy of head */
    LM_CACHE_ALIGNED lm_atomic_u64 head; /* written by the consumer */
    uint64_t tail_seen;                  /* consumer's copy of tail */
};

/* `capacity` is a power of two of at least 2. Returns 0 or LUMEN_E_*. */
int lm_spsc_open(struct lm_spsc *queue, uint32_t capacity);
/* The same with both positions at `start`, so that a test can begin just below wrap-around. */
int lm_spsc_open_at(struct lm_spsc *queue, uint32_t capacity, uint64_t start);
void lm_spsc_close(struct lm_spsc *queue);

/* false: full. The producer alone. */
bool lm_spsc_push(struct lm_spsc *queue, uint32_t value);
/* false: empty. The consumer alone. */
bool lm_spsc_pop(struct lm_spsc *queue, uint32_t *value_out);
/* The next value, which stays. The consumer alone. */
bool lm_spsc_peek(struct lm_spsc *queue, uint32_t *value_out);
uint32_t lm_spsc_depth(const struct lm_spsc *queue);

#endif
