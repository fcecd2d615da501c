/* node.c: see node.h. Control thread only. */
#include "flow/node.h"

int lm_node_open(struct lm_node *node, const lumen_config *config, uint32_t slots) {
    bool sleeps = config->idle == LUMEN_IDLE_ADAPTIVE || config->idle == LUMEN_IDLE_PARK;
    uint32_t capacity = config->queue_capacity;
    lm_waitset_init(&node->waitset);
    lm_waitset_init(&node->resting);
    if (config->queue_type == LUMEN_QUEUE_INLINE) return 0;
    while (capacity < slots) capacity *= 2; /* a push never fails */
    int code = lm_queue_open(&node->queue, config->queue_type, capacity, config->batch_size,
                             config->batch_delay_us * 1000ull);
    node->workers_sleep = sleeps && !lm_queue_blocks(&node->queue);
    return code;
}

void lm_node_close(struct lm_node *node, const lumen_config *config) {
    if (config->queue_type != LUMEN_QUEUE_INLINE) lm_queue_close(&node->queue);
}
