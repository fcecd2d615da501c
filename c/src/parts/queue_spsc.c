/* queue_spsc.c: see queue_spsc.h. */
#include "parts/queue_spsc.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int lm_spsc_open_at(struct lm_spsc *queue, uint32_t capacity, uint64_t start) {
    memset(queue, 0, sizeof *queue);
    if (capacity < 2 || (capacity & (capacity - 1)) != 0) {
        return lm_error(LUMEN_E_INVALID,
                        "queue capacity: expected a power of two of at least 2, found %u",
                        capacity);
    }
    queue->values = calloc(capacity, sizeof *queue->values);
    if (!queue->values) {
        return lm_error(LUMEN_E_NOMEM, "no memory for a queue of %u cells", capacity);
    }
    queue->mask = capacity - 1;
    /* relaxed, both: nobody else has the queue yet */
    lm_store_relaxed_u64(&queue->tail, start);
    lm_store_relaxed_u64(&queue->head, start);
    queue->head_seen = start;
    queue->tail_seen = start;
    return 0;
}

int lm_spsc_open(struct lm_spsc *queue, uint32_t capacity) {
    return lm_spsc_open_at(queue, capacity, 0);
}

void lm_spsc_close(struct lm_spsc *queue) {
    free(queue->values);
    queue->values = NULL;
}

bool lm_spsc_push(struct lm_spsc *queue, uint32_t value) {
    uint64_t tail = lm_load_relaxed_u64(&queue->tail); /* relaxed: own word */
    if (tail - queue->head_seen > queue->mask) {
        /* P1: sees the consumer's last read of the cell done; pairs with C2 */
        queue->head_seen = lm_load_acquire_u64(&queue->head);
        if (tail - queue->head_seen > queue->mask) return false;
    }
    queue->values[tail & queue->mask] = value;
    /* P2: publishes the value; pairs with C1 */
    lm_store_release_u64(&queue->tail, tail + 1);
    return true;
}

bool lm_spsc_peek(struct lm_spsc *queue, uint32_t *value_out) {
    uint64_t head = lm_load_relaxed_u64(&queue->head); /* relaxed: own word */
    if (head == queue->tail_seen) {
        /* C1: sees the value; pairs with P2 */
        queue->tail_seen = lm_load_acquire_u64(&queue->tail);
        if (head == queue->tail_seen) return false;
    }
    *value_out = queue->values[head & queue->mask];
    return true;
}

bool lm_spsc_pop(struct lm_spsc *queue, uint32_t *value_out) {
    if (!lm_spsc_peek(queue, value_out)) return false;
    uint64_t head = lm_load_relaxed_u64(&queue->head); /* relaxed: own word */
    /* C2: gives the cell back; pairs with P1 */
    lm_store_release_u64(&queue->head, head + 1);
    return true;
}

uint32_t lm_spsc_depth(const struct lm_spsc *queue) {
    /* relaxed: a snapshot for people */
    int64_t depth =
        (int64_t)(lm_load_relaxed_u64(&queue->tail) - lm_load_relaxed_u64(&queue->head));
    return depth > 0 ? (uint32_t)depth : 0;
}
