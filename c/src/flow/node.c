/* node.c: see node.h. Control thread only. */
#include "flow/node.h"

static int open_line(struct lm_node *node, struct lm_line *line, const lumen_config *config,
                     uint32_t workers, uint32_t number) {
    bool sleeps = config->idle == LUMEN_IDLE_ADAPTIVE || config->idle == LUMEN_IDLE_PARK;
    *line = (struct lm_line){.workers = workers, .number = number};
    line->queue.type = (enum lumen_queue_type)config->queue_type;
    if (config->queue_type == LUMEN_QUEUE_INLINE) return 0;
    int code = lm_queue_open(&line->queue, config->queue_type, node->queue_capacity,
                             config->batch_size, config->batch_delay_us * 1000ull);
    line->workers_sleep = sleeps && !lm_queue_blocks(&line->queue);
    return code;
}

int lm_node_open(struct lm_node *node, const lumen_config *config, uint32_t workers,
                 uint32_t slots) {
    node->queue_capacity = config->queue_capacity;
    while (node->queue_capacity < slots) node->queue_capacity *= 2; /* a push never fails */
    lm_waitset_init(&node->waitset);
    lm_waitset_init(&node->spare);
    lm_waitset_init(&node->resting);
    /* relaxed: no thread runs yet */
    lm_store_relaxed_u64(&node->line, (uintptr_t)&node->lines[0]);
    return open_line(node, &node->lines[0], config, workers, 0);
}

static struct lm_line *other_line(struct lm_node *node) {
    return &node->lines[lm_node_line(node) == &node->lines[0]];
}

int lm_node_open_line(struct lm_node *node, const lumen_config *config, uint32_t workers) {
    struct lm_line *line = other_line(node);
    lm_queue_close(&line->queue);
    return open_line(node, line, config, workers, lm_node_line(node)->number + 1);
}

void lm_node_publish_line(struct lm_node *node) {
    /* Q2: release: the line is open; pairs with Q1 in flow/node.h */
    lm_store_release_u64(&node->line, (uintptr_t)other_line(node));
}

void lm_node_seal_line(struct lm_node *node) {
    struct lm_line *line = other_line(node);
    /* Q3: release: every push; pairs with Q4 in work/jobs.c */
    lm_store_release_u32(&line->sealed, 1);
    lm_waitset_wake_all(&node->waitset);
    lm_queue_stop(&line->queue);
}

void lm_node_close(struct lm_node *node) {
    for (uint32_t l = 0; l < 2; l++) lm_queue_close(&node->lines[l].queue);
}
