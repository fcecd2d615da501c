/* tree_check.c: see tree_check.h. */
#include "engine/tree_check.h"

#include <stdlib.h>

#include "base/error.h"
#include "engine/file.h"

enum { NODES_MAX = 1 << 16, DEPTH_MAX = 4096 };

static int check_leaf(const struct lm_engine_view *view, const struct lm_engine_node *node,
                      uint32_t index) {
    if (node->child != index - 1)
        return lm_error(LUMEN_E_MODEL, "leaf %u: expected the node before it, found %u", index,
                        node->child);
    if (!view->header->one_weight && node->value.item >= view->item_count)
        return lm_error(LUMEN_E_MODEL, "leaf %u: expected one of %llu items, found %u", index,
                        (unsigned long long)view->item_count, node->value.item);
    return 0;
}

/* `depths` has the depth of each node that a node before it leads to; 0: none does. */
static int check_tree(const struct lm_engine_view *view, uint32_t t, uint16_t *depths) {
    const struct lm_engine_tree *tree = &view->trees[t];
    uint32_t features = view->header->inputs, deepest = 0;
    if (tree->count < 2 || tree->count > NODES_MAX || tree->first % 8 != 0 ||
        tree->first > view->node_count || tree->count > view->node_count - tree->first ||
        tree->target >= view->header->targets)
        return lm_error(LUMEN_E_MODEL, "tree %u: expected nodes within %llu, found %u at %u", t,
                        (unsigned long long)view->node_count, tree->count, tree->first);
    const struct lm_engine_node *nodes = view->nodes + tree->first;
    const uint8_t *flags = view->flags + tree->first;
    for (uint32_t i = 0; i < tree->count; i++) depths[i] = 0;
    for (uint32_t i = 1; i < tree->count; i++) {
        uint32_t depth = depths[i], child = nodes[i].child;
        if (depth > deepest) deepest = depth;
        if (flags[i] & ~(LM_TREE_COMPARE | LM_TREE_NAN_IS_TRUE) ||
            (flags[i] & LM_TREE_COMPARE) > LM_COMPARE_NEQ)
            return lm_error(LUMEN_E_MODEL, "node %u of tree %u: flags %#x: not known", i, t,
                            flags[i]);
        if (nodes[i].feature == features) {
            int code = check_leaf(view, &nodes[i], i);
            if (code) return code;
            continue;
        }
        if (nodes[i].feature > features || child <= i || child + 1 >= tree->count ||
            depth >= DEPTH_MAX)
            return lm_error(LUMEN_E_MODEL,
                            "node %u of tree %u: expected a node behind it and one of %u features, "
                            "found %u and %u",
                            i, t, features, child, nodes[i].feature);
        for (uint32_t side = 0; side < 2; side++) {
            if (depths[child + side] < depth + 1) depths[child + side] = (uint16_t)(depth + 1);
        }
    }
    if (deepest == tree->depth) return 0;
    return lm_error(LUMEN_E_MODEL, "tree %u: expected a depth of %u, found %u", t, tree->depth,
                    deepest);
}

static int check_items(const struct lm_engine_view *view) {
    for (uint64_t i = 0; i < view->item_count; i++) {
        if ((view->items[i].target & ~LM_ITEM_LAST) < view->header->targets) continue;
        return lm_error(LUMEN_E_MODEL, "item %llu: expected one of %u targets, found %u",
                        (unsigned long long)i, view->header->targets,
                        view->items[i].target & ~LM_ITEM_LAST);
    }
    bool ends = view->item_count == 0 || view->items[view->item_count - 1].target & LM_ITEM_LAST;
    return ends ? 0 : lm_error(LUMEN_E_MODEL, "expected an end of the last leaf's items");
}

/* What the sums become, as forest_head.c makes it. */
static int check_head(const struct lm_engine_view *view) {
    const struct lm_engine_header *header = view->header;
    bool regressor = header->head == LM_HEAD_REGRESSOR;
    uint32_t scores = header->targets == 1 && !regressor ? 2 : header->targets;
    if (header->targets == 0 || header->targets > LM_ENGINE_CLASSES_MAX ||
        header->scores != scores || header->inputs >= UINT16_MAX ||
        (!regressor && header->head != LM_HEAD_CLASSIFIER) || header->post > LM_POST_SOFTMAX_ZERO ||
        header->compare > LM_COMPARE_MIXED)
        return lm_error(LUMEN_E_MODEL, "trees: head %u with %u targets and %u scores: not known",
                        header->head, header->targets, header->scores);
    if (!regressor && (header->targets < 2 || view->label_count != header->targets))
        return lm_error(LUMEN_E_MODEL, "labels: expected one for each of %u classes, found %u",
                        header->targets, view->label_count);
    if (regressor && header->label_output != LM_ENGINE_NONE)
        return lm_error(LUMEN_E_MODEL, "trees: expected no labels of a regression");
    if (view->base_count > 1 && view->base_count != header->targets)
        return lm_error(LUMEN_E_MODEL, "base values: expected %u, found %u", header->targets,
                        view->base_count);
    return 0;
}

int lm_trees_check(const struct lm_engine_view *view) {
    int code = check_head(view);
    if (code) return code;
    if (view->tree_count == 0) return lm_error(LUMEN_E_MODEL, "expected trees, found none");
    code = check_items(view);
    if (code) return code;
    uint16_t *depths = malloc(NODES_MAX * sizeof *depths);
    if (!depths) return lm_error(LUMEN_E_NOMEM, "no memory to check trees");
    for (uint32_t t = 0; !code && t < view->tree_count; t++) code = check_tree(view, t, depths);
    free(depths);
    return code;
}
