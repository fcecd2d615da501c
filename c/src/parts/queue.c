/* queue.c: see queue.h. One switch per operation: the branch is always predicted the same way. No
 * switch has a default, so that a new type is a compiler warning in each. With LUMEN_QUEUE_INLINE
 * there is no queue. */
#include "parts/queue.h"

#include <string.h>

#include "base/error.h"

int lm_queue_open(struct lm_queue *queue, uint32_t type, uint32_t capacity, uint32_t batch_size,
                  uint64_t batch_delay_ns) {
    memset(queue, 0, sizeof *queue);
    queue->type = (enum lumen_queue_type)type;
    switch (queue->type) {
    case LUMEN_QUEUE_MPMC: return lm_mpmc_open(&queue->mpmc, capacity);
    case LUMEN_QUEUE_SCQ: return lm_scq_open(&queue->scq, capacity);
    case LUMEN_QUEUE_SPSC: return lm_spsc_open(&queue->spsc, capacity);
    case LUMEN_QUEUE_NAIVE: return lm_naive_open(&queue->naive, capacity, 1, 0);
    case LUMEN_QUEUE_BATCHED:
        return lm_naive_open(&queue->naive, capacity, batch_size, batch_delay_ns);
    case LUMEN_QUEUE_INLINE: break;
    }
    return lm_error(LUMEN_E_INVALID, "engine.queue_type: no queue of number %u", type);
}

void lm_queue_close(struct lm_queue *queue) {
    switch (queue->type) {
    case LUMEN_QUEUE_MPMC: lm_mpmc_close(&queue->mpmc); break;
    case LUMEN_QUEUE_SCQ: lm_scq_close(&queue->scq); break;
    case LUMEN_QUEUE_SPSC: lm_spsc_close(&queue->spsc); break;
    case LUMEN_QUEUE_NAIVE:
    case LUMEN_QUEUE_BATCHED: lm_naive_close(&queue->naive); break;
    case LUMEN_QUEUE_INLINE: break;
    }
}

bool lm_queue_push(struct lm_queue *queue, uint32_t value) {
    switch (queue->type) {
    case LUMEN_QUEUE_MPMC: return lm_mpmc_push(&queue->mpmc, value);
    case LUMEN_QUEUE_SCQ: return lm_scq_push(&queue->scq, value);
    case LUMEN_QUEUE_SPSC: return lm_spsc_push(&queue->spsc, value);
    case LUMEN_QUEUE_NAIVE:
    case LUMEN_QUEUE_BATCHED: return lm_naive_push(&queue->naive, value);
    case LUMEN_QUEUE_INLINE: break;
    }
    return false;
}

bool lm_queue_pop(struct lm_queue *queue, uint32_t *value_out) {
    switch (queue->type) {
    case LUMEN_QUEUE_MPMC: return lm_mpmc_pop(&queue->mpmc, value_out);
    case LUMEN_QUEUE_SCQ: return lm_scq_pop(&queue->scq, value_out);
    case LUMEN_QUEUE_SPSC: return lm_spsc_pop(&queue->spsc, value_out);
    case LUMEN_QUEUE_NAIVE:
    case LUMEN_QUEUE_BATCHED: return lm_naive_pop(&queue->naive, value_out, 1) == 1;
    case LUMEN_QUEUE_INLINE: break;
    }
    return false;
}

uint32_t lm_queue_depth(struct lm_queue *queue) {
    switch (queue->type) {
    case LUMEN_QUEUE_MPMC: return lm_mpmc_depth(&queue->mpmc);
    case LUMEN_QUEUE_SCQ: return lm_scq_depth(&queue->scq);
    case LUMEN_QUEUE_SPSC: return lm_spsc_depth(&queue->spsc);
    case LUMEN_QUEUE_NAIVE:
    case LUMEN_QUEUE_BATCHED: return lm_naive_depth(&queue->naive);
    case LUMEN_QUEUE_INLINE: break;
    }
    return 0;
}

bool lm_queue_blocks(const struct lm_queue *queue) {
    return queue->type == LUMEN_QUEUE_NAIVE || queue->type == LUMEN_QUEUE_BATCHED;
}

uint32_t lm_queue_pop_wait(struct lm_queue *queue, uint32_t *values_out, uint32_t most) {
    LM_DEBUG_ASSERT(lm_queue_blocks(queue));
    return lm_naive_pop_wait(&queue->naive, values_out, most);
}

void lm_queue_stop(struct lm_queue *queue) {
    if (lm_queue_blocks(queue)) lm_naive_stop(&queue->naive);
}

const char *lm_queue_name(uint32_t type) {
    switch ((enum lumen_queue_type)type) {
    case LUMEN_QUEUE_MPMC: return "mpmc";
    case LUMEN_QUEUE_SCQ: return "scq";
    case LUMEN_QUEUE_SPSC: return "spsc";
    case LUMEN_QUEUE_NAIVE: return "naive";
    case LUMEN_QUEUE_BATCHED: return "batched";
    case LUMEN_QUEUE_INLINE: return "inline";
    }
    return "?";
}
