/* experts.h: the rule of a virtual model, which runs one of several models of the same tensors:
 * by a feature of the request, or one after the other until an answer is sure enough. Written by
 * the control thread at load, then read by any thread.
 */
#ifndef LM_MODELS_EXPERTS_H
#define LM_MODELS_EXPERTS_H

#include <stdbool.h>
#include <stdint.h>

#include "lumen.h"

struct lm_model;

struct lm_experts {
    uint32_t count; /* 0: the model runs its own sessions */
    enum lumen_feature feature;
    uint32_t at; /* the index of the input, of the output, or of the free dimension; free_count of
                  * the model: of the rows */
    const struct lm_model *models[LUMEN_EXPERTS_MAX]; /* from the lightest to the best */
    uint8_t places[LUMEN_EXPERTS_MAX];                /* of their counts in the statistics */
    double bounds[LUMEN_EXPERTS_MAX];
};

/* The lightest runs first, and what it says of itself decides. */
static inline bool lm_experts_cascade(const struct lm_experts *experts) {
    return experts->count > 0 && experts->feature >= LUMEN_FEATURE_PROBABILITY;
}

#endif
