/* worker.h: a pinned thread that pops requests, runs the model and sends the reply. */
#ifndef LM_FLOW_WORKER_H
#define LM_FLOW_WORKER_H

#include <pthread.h>

#include "flow/io.h"

struct lm_worker {
    struct lm_shared *shared;
    struct lm_stats_block *stats;
    uint32_t index;
    int32_t cpu;  /* to pin to; -1: none */
    int niceness; /* change asked for by the control thread, then reached */
    bool pinned;
    pthread_t thread;
    bool thread_started;
    char note[512]; /* what went wrong while warming up, or empty */
};

void *lm_worker_main(void *worker);

#endif
