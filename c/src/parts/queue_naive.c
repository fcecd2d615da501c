/* queue_naive.c: see queue_naive.h. */
#include "parts/queue_naive.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

int lm_naive_open(struct lm_naive *queue, uint32_t capacity, uint32_t batch_size,
                  uint64_t batch_delay_ns) {
    memset(queue, 0, sizeof *queue);
    if (capacity < 2 || (capacity & (capacity - 1)) != 0) {
        return lm_error(LUMEN_E_INVALID,
                        "queue capacity: expected a power of two of at least 2, found %u",
                        capacity);
    }
    pthread_mutex_init(&queue->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&queue->not_empty, &monotonic);
    pthread_condattr_destroy(&monotonic);
    queue->mask = capacity - 1;
    queue->batch_size = batch_size;
    queue->batch_delay_ns = batch_delay_ns;
    queue->values = calloc(capacity, sizeof *queue->values);
    queue->pushed_ns = calloc(capacity, sizeof *queue->pushed_ns);
    if (queue->values && queue->pushed_ns) return 0;
    lm_naive_close(queue);
    return lm_error(LUMEN_E_NOMEM, "no memory for a queue of %u cells", capacity);
}

void lm_naive_close(struct lm_naive *queue) {
    if (queue->mask) {
        pthread_cond_destroy(&queue->not_empty);
        pthread_mutex_destroy(&queue->lock);
    }
    free(queue->values);
    free(queue->pushed_ns);
    memset(queue, 0, sizeof *queue);
}

bool lm_naive_push(struct lm_naive *queue, uint32_t value) {
    uint64_t now = queue->batch_size > 1 ? lm_now_ns() : 0;
    pthread_mutex_lock(&queue->lock);
    bool room = queue->tail - queue->head <= queue->mask;
    if (room) {
        queue->values[queue->tail & queue->mask] = value;
        queue->pushed_ns[queue->tail & queue->mask] = now;
        queue->tail++;
        pthread_cond_signal(&queue->not_empty);
    }
    pthread_mutex_unlock(&queue->lock);
    return room;
}

static uint32_t take(struct lm_naive *queue, uint32_t *values_out, uint32_t most) {
    uint32_t taken = 0;
    while (taken < most && queue->head != queue->tail)
        values_out[taken++] = queue->values[queue->head++ & queue->mask];
    return taken;
}

uint32_t lm_naive_pop(struct lm_naive *queue, uint32_t *values_out, uint32_t most) {
    pthread_mutex_lock(&queue->lock);
    uint32_t taken = take(queue, values_out, most);
    pthread_mutex_unlock(&queue->lock);
    return taken;
}

/* Whether a batch may go now; otherwise until when to wait (UINT64_MAX: for a push). Locked. */
static bool batch_ready(const struct lm_naive *queue, uint64_t *until_ns_out) {
    uint64_t count = queue->tail - queue->head;
    *until_ns_out = UINT64_MAX;
    if (queue->stopped || (count > 0 && count >= queue->batch_size)) return true;
    if (count == 0) return false;
    *until_ns_out = queue->pushed_ns[queue->head & queue->mask] + queue->batch_delay_ns;
    return lm_now_ns() >= *until_ns_out;
}

uint32_t lm_naive_pop_wait(struct lm_naive *queue, uint32_t *values_out, uint32_t most) {
    uint64_t until;
    pthread_mutex_lock(&queue->lock);
    while (!batch_ready(queue, &until)) {
        if (until == UINT64_MAX) {
            pthread_cond_wait(&queue->not_empty, &queue->lock);
        } else {
            struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
                                  .tv_nsec = (long)(until % 1000000000u)};
            pthread_cond_timedwait(&queue->not_empty, &queue->lock, &at);
        }
    }
    uint32_t taken = take(queue, values_out, most < queue->batch_size ? most : queue->batch_size);
    /* One signal may have stood for several values, and another consumer may sleep beside them. */
    if (queue->head != queue->tail) pthread_cond_signal(&queue->not_empty);
    pthread_mutex_unlock(&queue->lock);
    return taken;
}

void lm_naive_stop(struct lm_naive *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->stopped = true;
    pthread_cond_broadcast(&queue->not_empty);
    pthread_mutex_unlock(&queue->lock);
}

uint32_t lm_naive_depth(struct lm_naive *queue) {
    pthread_mutex_lock(&queue->lock);
    uint32_t depth = (uint32_t)(queue->tail - queue->head);
    pthread_mutex_unlock(&queue->lock);
    return depth;
}
