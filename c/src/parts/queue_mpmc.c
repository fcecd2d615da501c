/* queue_mpmc.c: see queue_mpmc.h. push and pop run on I/O threads and workers. */
#include "parts/queue_mpmc.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int lm_mpmc_open_at(struct lm_mpmc *queue, uint32_t capacity, uint64_t start) {
    memset(queue, 0, sizeof *queue);
    if (capacity < 2 || (capacity & (capacity - 1)) != 0) {
        return lm_error(LUMEN_E_INVALID,
                        "queue capacity: expected a power of two of at least 2, found %u",
                        capacity);
    }
    queue->cells = aligned_alloc(LM_CACHE_LINE, capacity * sizeof *queue->cells);
    if (!queue->cells)
        return lm_error(LUMEN_E_NOMEM, "no memory for a queue of %u cells", capacity);
    memset(queue->cells, 0, capacity * sizeof *queue->cells);
    queue->mask = capacity - 1;
    for (uint64_t i = 0; i < capacity; i++) {
        /* relaxed: nobody else has the queue yet */
        lm_store_relaxed_u64(&queue->cells[(start + i) & queue->mask].sequence, start + i);
    }
    lm_store_relaxed_u64(&queue->tail, start);
    lm_store_relaxed_u64(&queue->head, start);
    return 0;
}

int lm_mpmc_open(struct lm_mpmc *queue, uint32_t capacity) {
    return lm_mpmc_open_at(queue, capacity, 0);
}

void lm_mpmc_close(struct lm_mpmc *queue) {
    free(queue->cells);
    queue->cells = NULL;
}

bool lm_mpmc_push(struct lm_mpmc *queue, uint32_t value) {
    /* relaxed: a stale position is caught by the cell's sequence or by the compare-and-swap */
    uint64_t tail = lm_load_relaxed_u64(&queue->tail);
    for (;;) {
        struct lm_mpmc_cell *cell = &queue->cells[tail & queue->mask];
        /* P1: sees the consumer's last read of the cell done; pairs with C2 of the lap before */
        uint64_t sequence = lm_load_acquire_u64(&cell->sequence);
        int64_t lag = (int64_t)(sequence - tail);
        if (lag == 0) {
            /* relaxed: only claims the cell, the sequence numbers order the data */
            if (lm_cas_weak_relaxed_u64(&queue->tail, &tail, tail + 1)) {
                cell->value = value;
                /* P2: publishes the value; pairs with C1 */
                lm_store_release_u64(&cell->sequence, tail + 1);
                return true;
            }
        } else if (lag < 0) {
            return false; /* the cell still holds the value of the lap before */
        } else {
            tail = lm_load_relaxed_u64(&queue->tail); /* relaxed: as above */
        }
    }
}

bool lm_mpmc_pop(struct lm_mpmc *queue, uint32_t *value_out) {
    /* relaxed: as in push */
    uint64_t head = lm_load_relaxed_u64(&queue->head);
    for (;;) {
        struct lm_mpmc_cell *cell = &queue->cells[head & queue->mask];
        /* C1: sees the value; pairs with P2 */
        uint64_t sequence = lm_load_acquire_u64(&cell->sequence);
        int64_t lag = (int64_t)(sequence - (head + 1));
        if (lag == 0) {
            /* relaxed: only claims the cell */
            if (lm_cas_weak_relaxed_u64(&queue->head, &head, head + 1)) {
                *value_out = cell->value;
                /* C2: gives the cell back for the next lap; pairs with P1 */
                lm_store_release_u64(&cell->sequence, head + queue->mask + 1);
                return true;
            }
        } else if (lag < 0) {
            return false;
        } else {
            head = lm_load_relaxed_u64(&queue->head); /* relaxed: as above */
        }
    }
}

uint32_t lm_mpmc_depth(const struct lm_mpmc *queue) {
    /* relaxed: a snapshot for people, nothing is decided by it */
    uint64_t head = lm_load_relaxed_u64(&queue->head);
    uint64_t tail = lm_load_relaxed_u64(&queue->tail);
    int64_t depth = (int64_t)(tail - head);
    return depth > 0 ? (uint32_t)depth : 0;
}
