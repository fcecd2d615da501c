/* experts_rule.h: what the rule of a virtual model (experts.h) says of values. Pure: any thread. */
#ifndef LM_MODELS_EXPERTS_RULE_H
#define LM_MODELS_EXPERTS_RULE_H

#include "models/model.h"

/* The expert for a feature of the request; what no comparison holds for, such as a NaN, is the
 * last one's. */
uint32_t lm_experts_choose(const struct lm_experts *experts, double value);

/* Of a virtual model: the expert for the row that asks for the latest, of rows of the input that
 * the rule looks at, which begin at `at`. */
uint32_t lm_experts_by_values(const struct lm_model *model, const struct lm_sizes *sizes,
                              const void *at);
/* Of a cascade: whether what expert `expert` has made, which begins at `output`, is sure enough in
 * each row. The last one's always is. */
bool lm_experts_is_sure(const struct lm_model *model, uint32_t expert, const struct lm_sizes *sizes,
                        const void *output);

/* The setting's word for a feature. */
const char *lm_feature_name(enum lumen_feature feature);
/* The name of what the rule looks at; NULL: of nothing that has one. */
const char *lm_experts_tensor(const struct lm_model *model);

#endif
