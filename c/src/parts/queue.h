/* queue.h: the queue between I/O threads and workers, of the kind chosen at start.
 *
 * Two families. The non-blocking ones (mpmc, scq, spsc) say "empty" at once; workers then spin or
 * sleep in a waitset. The blocking ones (naive, batched) are waited for inside lm_queue_pop_wait.
 * docs/CONCURRENCY.md says what each promises.
 */
#ifndef LM_PARTS_QUEUE_H
#define LM_PARTS_QUEUE_H

#include "lumen.h"
#include "parts/queue_mpmc.h"
#include "parts/queue_naive.h"
#include "parts/queue_scq.h"
#include "parts/queue_spsc.h"

struct lm_queue {
    enum lumen_queue_type type;
    union {
        struct lm_mpmc mpmc;
        struct lm_scq scq;
        struct lm_spsc spsc;
        struct lm_naive naive; /* also LUMEN_QUEUE_BATCHED */
    };
};

/* `capacity` is a power of two. The batch's settings are for LUMEN_QUEUE_BATCHED. */
int lm_queue_open(struct lm_queue *queue, uint32_t type, uint32_t capacity, uint32_t batch_size,
                  uint64_t batch_delay_ns);
void lm_queue_close(struct lm_queue *queue);

/* false: full. */
bool lm_queue_push(struct lm_queue *queue, uint32_t value);
/* false: empty. */
bool lm_queue_pop(struct lm_queue *queue, uint32_t *value_out);
uint32_t lm_queue_depth(struct lm_queue *queue);

/* Consumers wait inside the queue, not in a waitset. */
bool lm_queue_blocks(const struct lm_queue *queue);
/* For blocking queues: waits, returns how many values came; 0 after lm_queue_stop. */
uint32_t lm_queue_pop_wait(struct lm_queue *queue, uint32_t *values_out, uint32_t most);
void lm_queue_stop(struct lm_queue *queue);

/* "?": there is no such type. */
const char *lm_queue_name(uint32_t type);

#endif
