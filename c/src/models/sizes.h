/* sizes.h: the free dimensions of a model: their largest sizes, from the configuration or by
 * default, and what a request of certain sizes is. Limits are set by the control thread while it
 * opens the model; afterwards any thread asks.
 */
#ifndef LM_MODELS_SIZES_H
#define LM_MODELS_SIZES_H

#include "models/model.h"

/* Gives every free dimension its largest size, and the rows: those of the
 * configuration, and defaults for the others. Returns 0, or LUMEN_E_* for a name of none. */
int lm_model_limit_sizes(struct lm_model *model, const lumen_model_config *config);
/* The index of the free dimension of that name; free_count: there is none. */
uint32_t lm_model_find_free(const struct lm_model *model, const char *name);
/* So many rows of the largest shape, and of the smallest. An input of any rank is a list. */
struct lm_sizes lm_model_largest(const struct lm_model *model, uint32_t rows);
struct lm_sizes lm_model_smallest(const struct lm_model *model, uint32_t rows);
/* Elements of all inputs in one row of these sizes; at least 1. */
uint64_t lm_model_row_elements(const struct lm_model *model, const struct lm_sizes *sizes);
/* The sizes of a row whose one input has so many bytes; false: they do not follow from that. */
bool lm_model_row_of_bytes(const struct lm_model *model, uint64_t bytes,
                           struct lm_sizes *sizes_out);

#endif
