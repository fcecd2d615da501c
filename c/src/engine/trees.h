/* trees.h: sums over the leaves that rows reach in an ensemble of trees.
 *
 * Several trees are walked side by side, a step each in turn, without branches: a walk waits for
 * memory at each step, and so several of them wait together. The leaves are added in the order of
 * the trees, as ONNX Runtime adds them: sums are equal bit by bit. Any thread.
 */
#ifndef LM_ENGINE_TREES_H
#define LM_ENGINE_TREES_H

#include "engine/file.h"

/* Adds up one row. `row` has the features, and NaN behind them; `sums` an element a target;
 * `has` whether a leaf of the row had that target. Both are written whole. */
void lm_trees_sum(const struct lm_engine_view *view, const float *row, float *sums, uint8_t *has);

/* trees_head.c: makes a row of the model's scores and its class of the sums, which it changes.
 * Returns the class. */
uint32_t lm_trees_finish(const struct lm_engine_view *view, float *sums, uint8_t *has,
                         float *scores);

#endif
