/* tree_check.h: whether the trees of a file can be walked: every step leads further down, to a node
 * of the same tree, and ends at a leaf. For file.c. Control thread.
 */
#ifndef LM_ENGINE_TREE_CHECK_H
#define LM_ENGINE_TREE_CHECK_H

struct lm_engine_view;

/* Returns 0, or LUMEN_E_* with what was expected and found. */
int lm_trees_check(const struct lm_engine_view *view);

#endif
