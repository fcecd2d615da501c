/* trees.c: see trees.h. */
#include "engine/trees.h"

#include <string.h>

enum {
    TOGETHER = 8,    /* trees, whose places fit into registers */
    STEPS_A_LOOK = 4 /* steps between looks at whether all walks have ended */
};

static inline bool is_true(float value, float threshold, const uint32_t compare) {
    switch ((enum lm_engine_compare)compare) {
    case LM_COMPARE_LEQ: return value <= threshold;
    case LM_COMPARE_LT: return value < threshold;
    case LM_COMPARE_GTE: return value >= threshold;
    case LM_COMPARE_GT: return value > threshold;
    case LM_COMPARE_EQ: return value == threshold;
    case LM_COMPARE_NEQ: return value != threshold;
    case LM_COMPARE_MIXED: break;
    }
    return false;
}

/* One step of one walk. From a leaf it leads to that leaf. */
static inline uint32_t step(const struct lm_engine_node *nodes, uint32_t at, const float *row,
                            const uint32_t compare) {
    const struct lm_engine_node *node = &nodes[at];
    return node->child + !is_true(row[node->feature], node->value.threshold, compare);
}

/* The leaves of TOGETHER trees; `compare` is a constant where this is inlined. */
static inline __attribute__((always_inline)) void walk(const struct lm_engine_view *view,
                                                       const struct lm_engine_tree *const *trees,
                                                       const float *row,
                                                       const struct lm_engine_node **leaves,
                                                       const uint32_t compare) {
    const struct lm_engine_node *nodes[TOGETHER];
    uint32_t at[TOGETHER], depth = 0, features = view->header->inputs;
#pragma GCC unroll 8
    for (uint32_t t = 0; t < TOGETHER; t++) {
        nodes[t] = view->nodes + trees[t]->first;
        at[t] = 1;
        depth = trees[t]->depth > depth ? trees[t]->depth : depth;
    }
    while (depth > 0) {
        uint32_t steps = depth < STEPS_A_LOOK + 2 ? depth : STEPS_A_LOOK;
        for (uint32_t s = 0; s < steps; s++) {
#pragma GCC unroll 8
            for (uint32_t t = 0; t < TOGETHER; t++) at[t] = step(nodes[t], at[t], row, compare);
        }
        depth -= steps;
        bool ended = true;
#pragma GCC unroll 8
        for (uint32_t t = 0; t < TOGETHER; t++) ended &= nodes[t][at[t]].feature == features;
        if (ended) break;
    }
#pragma GCC unroll 8
    for (uint32_t t = 0; t < TOGETHER; t++) leaves[t] = &nodes[t][at[t]];
}

/* The same for one tree, where nodes compare in different ways or NaN has a way of its own. */
static const struct lm_engine_node *walk_carefully(const struct lm_engine_view *view,
                                                   const struct lm_engine_tree *tree,
                                                   const float *row) {
    const struct lm_engine_node *nodes = view->nodes + tree->first;
    const uint8_t *flags = view->flags + tree->first;
    uint32_t at = 1, features = view->header->inputs;
    while (nodes[at].feature != features) {
        float value = row[nodes[at].feature];
        bool taken = is_true(value, nodes[at].value.threshold, flags[at] & LM_TREE_COMPARE) ||
                     (value != value && flags[at] & LM_TREE_NAN_IS_TRUE);
        at = nodes[at].child + !taken;
    }
    return &nodes[at];
}

static void add(const struct lm_engine_view *view, const struct lm_engine_tree *tree,
                const struct lm_engine_node *leaf, float *sums, uint8_t *has) {
    if (view->header->one_weight) {
        sums[tree->target] += leaf->value.weight;
        has[tree->target] = 1;
        return;
    }
    const struct lm_engine_item *item = &view->items[leaf->value.item];
    for (;; item++) {
        uint32_t target = item->target & ~LM_ITEM_LAST;
        sums[target] += item->weight;
        has[target] = 1;
        if (item->target & LM_ITEM_LAST) return;
    }
}

static void sum_carefully(const struct lm_engine_view *view, const float *row, float *sums,
                          uint8_t *has) {
    for (uint32_t t = 0; t < view->tree_count; t++)
        add(view, &view->trees[t], walk_carefully(view, &view->trees[t], row), sums, has);
}

static inline __attribute__((always_inline)) void sum(const struct lm_engine_view *view,
                                                      const float *row, float *sums, uint8_t *has,
                                                      const uint32_t compare) {
    for (uint32_t first = 0; first < view->tree_count; first += TOGETHER) {
        const struct lm_engine_node *leaves[TOGETHER];
        const struct lm_engine_tree *trees[TOGETHER];
        uint32_t left = view->tree_count - first, count = left < TOGETHER ? left : TOGETHER;
        /* The last group may walk one tree several times. */
        for (uint32_t t = 0; t < TOGETHER; t++) trees[t] = &view->trees[first + t % count];
        walk(view, trees, row, leaves, compare);
        for (uint32_t t = 0; t < count; t++) add(view, trees[t], leaves[t], sums, has);
    }
}

static bool has_nan(const float *row, uint32_t count) {
    bool found = false;
    for (uint32_t i = 0; i < count; i++) found |= row[i] != row[i];
    return found;
}

void lm_trees_sum(const struct lm_engine_view *view, const float *row, float *sums, uint8_t *has) {
    const struct lm_engine_header *header = view->header;
    memset(sums, 0, header->targets * sizeof *sums);
    memset(has, 0, header->targets);
    uint32_t compare = header->compare;
    if (header->nan_is_true && has_nan(row, header->inputs)) compare = LM_COMPARE_MIXED;
    switch ((enum lm_engine_compare)compare) {
    case LM_COMPARE_LEQ: sum(view, row, sums, has, LM_COMPARE_LEQ); return;
    case LM_COMPARE_LT: sum(view, row, sums, has, LM_COMPARE_LT); return;
    case LM_COMPARE_GTE: sum(view, row, sums, has, LM_COMPARE_GTE); return;
    case LM_COMPARE_GT: sum(view, row, sums, has, LM_COMPARE_GT); return;
    case LM_COMPARE_EQ:
    case LM_COMPARE_NEQ: /* a leaf would lead elsewhere */
    case LM_COMPARE_MIXED: sum_carefully(view, row, sums, has); return;
    }
}
