/* slot_plan.h: which slots an arena gets, from the models it serves and the memory it may take.
 * Control thread, at start. */
#ifndef LM_PARTS_SLOT_PLAN_H
#define LM_PARTS_SLOT_PLAN_H

#include "parts/model.h"

struct lm_slot_plan_limits {
    uint64_t arena_bytes; /* of this arena */
    uint64_t max_request_bytes;
    uint32_t slot_count_max; /* for requests: what the queue holds */
    uint32_t worker_count;
};

/* Fills `classes` by growing size, the first being the I/O thread's own replies. Lowers each
 * model's max_rows to what its largest slot takes. Returns 0 or LUMEN_E_INVALID with what would be
 * needed. */
int lm_slot_plan(struct lm_model *const *models, uint32_t model_count,
                 const struct lm_slot_plan_limits *limits,
                 lumen_slot_class classes[LUMEN_SLOT_CLASSES_MAX], uint32_t *class_count_out);
/* The same of one model that comes when the slots are there, of which the largest has so many
 * bytes. */
int lm_slot_plan_fit(struct lm_model *model, const struct lm_slot_plan_limits *limits,
                     size_t largest);

#endif
