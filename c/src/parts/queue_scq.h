/* queue_scq.h: a bounded lock-free queue of 32-bit values for several producers and consumers.
 *
 * After Ruslan Nikolaev, "A Scalable, Portable, and Memory-Efficient Lock-Free FIFO Queue" (DISC
 * 2019). A queue of values is two rings of small indexes: `free` holds the places of the value
 * table that nobody uses, `used` those that hold a value, in order. A push takes a place from
 * `free`, writes the value, appends the place to `used`; a pop goes the other way. One ring:
 *  1. Positions are claimed by fetch-and-add, which never fails and never waits.
 *  2. Each entry is one word: the lap it belongs to, a "safe" bit, and an index or nothing. A
 * producer fills an entry of an earlier lap that holds nothing; a consumer that comes before its
 * producer marks the entry, so that the late producer takes another position.
 *  3. The ring has twice as many entries as there are indexes, so that a producer always finds one.
 * A threshold, set by each producer and counted down by each consumer that found nothing, bounds
 *     how long a consumer looks before it says "empty".
 * Progress: lock-free. Some operation always finishes, wherever others are stopped. Memory is
 * fixed. Any thread may push or pop; one opens and closes.
 */
#ifndef LM_PARTS_QUEUE_SCQ_H
#define LM_PARTS_QUEUE_SCQ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"

/* A ring of `1 << order` indexes in twice as many entries. */
struct lm_scq_ring {
    lm_atomic_u64 *entries;
    uint32_t order;
    LM_CACHE_ALIGNED lm_atomic_u64 head;
    LM_CACHE_ALIGNED lm_atomic_u64 tail;
    LM_CACHE_ALIGNED lm_atomic_u64 threshold; /* as a signed number */
};

struct lm_scq {
    struct lm_scq_ring used;
    struct lm_scq_ring free;
    uint32_t *values;
    uint32_t capacity;
};

/* `capacity` is a power of two, 2..65536. Returns 0 or LUMEN_E_*. */
int lm_scq_open(struct lm_scq *queue, uint32_t capacity);
/* The same with the rings `laps` laps on, so that a test can begin just below wrap-around. */
int lm_scq_open_at(struct lm_scq *queue, uint32_t capacity, uint64_t laps);
void lm_scq_close(struct lm_scq *queue);

/* false: full. */
bool lm_scq_push(struct lm_scq *queue, uint32_t value);
/* false: empty. */
bool lm_scq_pop(struct lm_scq *queue, uint32_t *value_out);
uint32_t lm_scq_depth(const struct lm_scq *queue);

#endif
