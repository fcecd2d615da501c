/* queue_naive.h: a bounded queue under a mutex, with condition variables. Blocking: the baseline
 * that the others are measured against, and the queue that hands over whole batches.
 *
 * Linearizable and FIFO, since every operation happens inside the lock. A thread stopped while it
 * holds the lock stops everybody.
 */
#ifndef LM_PARTS_QUEUE_NAIVE_H
#define LM_PARTS_QUEUE_NAIVE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct lm_naive {
    pthread_mutex_t lock;
    pthread_cond_t not_empty; /* waits on CLOCK_MONOTONIC */
    uint32_t *values;
    uint64_t *pushed_ns; /* when each value came; kept only if a batch is ever waited for */
    uint32_t mask;
    uint64_t head, tail;
    uint32_t batch_size; /* a waiting consumer is woken when so many are there */
    uint64_t batch_delay_ns;
    bool stopped;
};

/* `capacity` is a power of two of at least 2; batch_size 1: every value is handed over at once.
 * Returns 0 or LUMEN_E_*. */
int lm_naive_open(struct lm_naive *queue, uint32_t capacity, uint32_t batch_size,
                  uint64_t batch_delay_ns);
void lm_naive_close(struct lm_naive *queue);

/* false: full. */
bool lm_naive_push(struct lm_naive *queue, uint32_t value);
/* Takes at most `most` values that are there now, without waiting for a batch. */
uint32_t lm_naive_pop(struct lm_naive *queue, uint32_t *values_out, uint32_t most);
/* Waits for a batch: batch_size values, or fewer once the oldest has waited batch_delay_ns. Returns
 * how many (at most `most`); 0 after lm_naive_stop, when nothing is left. */
uint32_t lm_naive_pop_wait(struct lm_naive *queue, uint32_t *values_out, uint32_t most);
void lm_naive_stop(struct lm_naive *queue);
uint32_t lm_naive_depth(struct lm_naive *queue);

#endif
