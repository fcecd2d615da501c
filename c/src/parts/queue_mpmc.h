/* queue_mpmc.h: a bounded queue of 32-bit indexes for several producers and several consumers.
 *
 * After Dmitry Vyukov's bounded MPMC queue: a ring of cells, each with a sequence number.
 *  1. A producer that finds sequence == tail claims the cell by moving tail one on.
 *  2. It writes the value and publishes it with sequence = tail + 1.
 *  3. A consumer that finds sequence == head + 1 claims it by moving head, takes the value and
 * gives the cell back for the next lap with sequence = head + capacity. Progress: an operation that
 * finds the cell ready finishes whatever the others do, but a producer stopped between steps 1 and
 * 2 hides its own cell and those behind it until it goes on. So this is not lock-free in the strict
 * sense, and `pop` may say "empty" while a push is still in progress. With one producer there is no
 * such gap: then "empty" is exact and a push never waits. Any thread may push or pop; one opens and
 * closes.
 */
#ifndef LM_PARTS_QUEUE_MPMC_H
#define LM_PARTS_QUEUE_MPMC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"

struct lm_mpmc_cell {
    LM_CACHE_ALIGNED lm_atomic_u64 sequence; /* written by whoever owns the cell in this lap */
    uint32_t value;
};

struct lm_mpmc {
    struct lm_mpmc_cell *cells;
    uint64_t mask;
    LM_CACHE_ALIGNED lm_atomic_u64 tail; /* producers: next cell to claim */
    LM_CACHE_ALIGNED lm_atomic_u64 head; /* consumers: next cell to claim */
};

_Static_assert(sizeof(struct lm_mpmc_cell) == LM_CACHE_LINE, "a cell to a cache line");

/* `capacity` is a power of two of at least 2. Returns 0 or LUMEN_E_*. */
int lm_mpmc_open(struct lm_mpmc *queue, uint32_t capacity);
/* The same with both positions at `start`, so that a test can begin just below wrap-around. */
int lm_mpmc_open_at(struct lm_mpmc *queue, uint32_t capacity, uint64_t start);
void lm_mpmc_close(struct lm_mpmc *queue);

/* false: full. */
bool lm_mpmc_push(struct lm_mpmc *queue, uint32_t value);
/* false: empty, see above. */
bool lm_mpmc_pop(struct lm_mpmc *queue, uint32_t *value_out);
/* A snapshot; exact only while nobody else is at work. */
uint32_t lm_mpmc_depth(const struct lm_mpmc *queue);

#endif
