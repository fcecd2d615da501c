/* queue_scq.c: see queue_scq.h.
 *
 * Every atomic here is seq_cst, for one reason: "empty" is decided from several words. A producer
 * fills an entry and then looks at the threshold; a consumer lowers the threshold and then looks at
 * entries. With anything weaker each could miss the other, and a value would lie there unseen until
 * the next push. The same holds for the safe bit of an entry against the head. On x86 this costs
 * nothing but for the threshold's store, since all other writes are locked instructions anyway.
 */
#include "parts/queue_scq.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { INDEX_BITS = 17, SAFE_SHIFT = INDEX_BITS, LAP_SHIFT = INDEX_BITS + 1, ORDER_MAX = 16 };

static const uint64_t nothing = (1u << INDEX_BITS) - 1;

/* ---- one word of a ring ---- */

static uint64_t entry_make(uint64_t lap, uint64_t safe, uint64_t index) {
    return lap << LAP_SHIFT | safe << SAFE_SHIFT | index;
}

static uint64_t entry_index(uint64_t entry) {
    return entry & nothing;
}

static uint64_t entry_safe(uint64_t entry) {
    return entry >> SAFE_SHIFT & 1;
}

static uint64_t entry_lap(uint64_t entry) {
    return entry >> LAP_SHIFT;
}

/* Laps are compared around the end of their 46 bits: negative when `a` is the earlier one. */
static int64_t lap_distance(uint64_t a, uint64_t b) {
    return (int64_t)((a - b) << LAP_SHIFT);
}

static uint64_t lap_of(const struct lm_scq_ring *ring, uint64_t position) {
    return (position >> (ring->order + 1)) & (UINT64_MAX >> LAP_SHIFT);
}

/* Neighbouring positions lie a cache line apart, so that neighbours in time do not share one. */
static lm_atomic_u64 *entry_at(const struct lm_scq_ring *ring, uint64_t position) {
    uint32_t bits = ring->order + 1;
    uint64_t at = position & ((1ull << bits) - 1);
    if (bits > 3) at = (at >> (bits - 3) | at << 3) & ((1ull << bits) - 1);
    return &ring->entries[at];
}

/* ---- one ring ---- */

static int ring_open(struct lm_scq_ring *ring, uint32_t order, uint64_t laps) {
    uint64_t count = 2ull << order;
    ring->order = order;
    ring->entries =
        aligned_alloc(LM_CACHE_LINE, count * 8 < LM_CACHE_LINE ? LM_CACHE_LINE : count * 8);
    if (!ring->entries) return lm_error(LUMEN_E_NOMEM, "no memory for a queue");
    uint64_t start = (laps + 1) << (order + 1);
    uint64_t before = lap_of(ring, start - 1);
    /* relaxed, all: nobody else has the ring yet */
    for (uint64_t i = 0; i < count; i++) {
        lm_store_relaxed_u64(&ring->entries[i], entry_make(before, 1, nothing));
    }
    lm_store_relaxed_u64(&ring->head, start);
    lm_store_relaxed_u64(&ring->tail, start);
    lm_store_relaxed_u64(&ring->threshold, (uint64_t)-1);
    return 0;
}

/* The most consumers' looks that can find nothing while something is there. */
static uint64_t full_threshold(const struct lm_scq_ring *ring) {
    return (3ull << ring->order) - 1;
}

static void ring_push(struct lm_scq_ring *ring, uint64_t index) {
    for (;;) {
        uint64_t tail = lm_add_seq_cst_u64(&ring->tail, 1);
        lm_atomic_u64 *entry = entry_at(ring, tail);
        uint64_t lap = lap_of(ring, tail);
        uint64_t seen = lm_load_seq_cst_u64(entry);
        while (lap_distance(entry_lap(seen), lap) < 0 && entry_index(seen) == nothing &&
               (entry_safe(seen) || (int64_t)(lm_load_seq_cst_u64(&ring->head) - tail) <= 0)) {
            if (!lm_cas_seq_cst_u64(entry, &seen, entry_make(lap, 1, index))) continue;
            if (lm_load_seq_cst_u64(&ring->threshold) != full_threshold(ring)) {
                lm_store_seq_cst_u64(&ring->threshold, full_threshold(ring));
            }
            return;
        }
    }
}

/* Consumers that ran ahead of all producers pull the tail after them. */
static void ring_catch_up(struct lm_scq_ring *ring, uint64_t tail, uint64_t head) {
    while (!lm_cas_seq_cst_u64(&ring->tail, &tail, head)) {
        head = lm_load_seq_cst_u64(&ring->head);
        tail = lm_load_seq_cst_u64(&ring->tail);
        if ((int64_t)(tail - head) >= 0) return;
    }
}

static bool threshold_spent(struct lm_scq_ring *ring) {
    return (int64_t)lm_add_seq_cst_u64(&ring->threshold, (uint64_t)-1) <= 0;
}

static bool ring_pop(struct lm_scq_ring *ring, uint64_t *index_out) {
    if ((int64_t)lm_load_seq_cst_u64(&ring->threshold) < 0) return false;
    for (;;) {
        uint64_t head = lm_add_seq_cst_u64(&ring->head, 1);
        lm_atomic_u64 *entry = entry_at(ring, head);
        uint64_t lap = lap_of(ring, head);
        uint64_t seen = lm_load_seq_cst_u64(entry);
        for (;;) {
            if (entry_lap(seen) == lap) {
                /* Ours: leave nothing behind. An "or" keeps a safe bit that changes meanwhile. */
                *index_out = entry_index(lm_or_seq_cst_u64(entry, nothing));
                return true;
            }
            if (lap_distance(entry_lap(seen), lap) >= 0) break;
            uint64_t marked = entry_index(seen) == nothing
                                  ? entry_make(lap, entry_safe(seen), nothing)
                                  : entry_make(entry_lap(seen), 0, entry_index(seen));
            if (lm_cas_seq_cst_u64(entry, &seen, marked)) break;
        }
        uint64_t tail = lm_load_seq_cst_u64(&ring->tail);
        if ((int64_t)(tail - (head + 1)) <= 0) {
            ring_catch_up(ring, tail, head + 1);
            (void)lm_add_seq_cst_u64(&ring->threshold, (uint64_t)-1);
            return false;
        }
        if (threshold_spent(ring)) return false;
    }
}

/* ---- the queue ---- */

int lm_scq_open_at(struct lm_scq *queue, uint32_t capacity, uint64_t laps) {
    memset(queue, 0, sizeof *queue);
    if (capacity < 2 || capacity > 1u << ORDER_MAX || (capacity & (capacity - 1)) != 0) {
        return lm_error(LUMEN_E_INVALID,
                        "queue capacity: expected a power of two, 2 to %u, found %u",
                        1u << ORDER_MAX, capacity);
    }
    queue->capacity = capacity;
    queue->values = calloc(capacity, sizeof *queue->values);
    uint32_t order = (uint32_t)__builtin_ctz(capacity);
    int code = queue->values ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for a queue");
    if (!code) code = ring_open(&queue->used, order, laps);
    if (!code) code = ring_open(&queue->free, order, laps);
    for (uint32_t i = 0; !code && i < capacity; i++) ring_push(&queue->free, i);
    if (code) lm_scq_close(queue);
    return code;
}

int lm_scq_open(struct lm_scq *queue, uint32_t capacity) {
    return lm_scq_open_at(queue, capacity, 0);
}

void lm_scq_close(struct lm_scq *queue) {
    free(queue->values);
    free(queue->used.entries);
    free(queue->free.entries);
    memset(queue, 0, sizeof *queue);
}

bool lm_scq_push(struct lm_scq *queue, uint32_t value) {
    uint64_t place;
    if (!ring_pop(&queue->free, &place)) return false;
    /* A plain word: whoever holds the place is alone with it, and the rings order the hand-over. */
    queue->values[place] = value;
    ring_push(&queue->used, place);
    return true;
}

bool lm_scq_pop(struct lm_scq *queue, uint32_t *value_out) {
    uint64_t place;
    if (!ring_pop(&queue->used, &place)) return false;
    *value_out = queue->values[place];
    ring_push(&queue->free, place);
    return true;
}

uint32_t lm_scq_depth(const struct lm_scq *queue) {
    /* relaxed: a snapshot for people; consumers that found nothing may be ahead of the tail */
    int64_t depth =
        (int64_t)(lm_load_relaxed_u64(&queue->used.tail) - lm_load_relaxed_u64(&queue->used.head));
    return depth > 0 ? (uint32_t)depth : 0;
}
