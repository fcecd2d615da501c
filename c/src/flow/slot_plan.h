/* slot_plan.h: which slots an arena gets, from the models it serves and the memory it may take.
 * Control thread, at start, and for a model that is loaded later. */
#ifndef LM_FLOW_SLOT_PLAN_H
#define LM_FLOW_SLOT_PLAN_H

#include "models/model.h"

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

/* The payload of one row of the largest shape, as tensors or as JSON. */
uint64_t lm_slot_plan_row_bytes(const struct lm_model *model);
/* The arena in which such rows of all models fit, with what lm_slot_plan leaves beside them. */
uint64_t lm_slot_plan_arena_bytes(struct lm_model *const *models, uint32_t model_count,
                                  const struct lm_slot_plan_limits *limits);

/* A model that comes when the slots are there: finds in model->late_row_bytes and late_text_bytes
 * the slots that it needs, and lowers its default sizes as lm_slot_plan does. Returns 0 or
 * LUMEN_E_INVALID. */
int lm_slot_plan_late(struct lm_model *model, const struct lm_slot_plan_limits *limits);
/* Its rows, once the largest slot has so many bytes. */
void lm_slot_plan_bound(struct lm_model *model, const struct lm_slot_plan_limits *limits,
                        size_t largest);
/* How many of an annex there are at most (annex.h). */
static inline uint32_t lm_slot_plan_annex(uint32_t worker_count) {
    uint32_t slots = LM_ANNEX_PER_WORKER * worker_count;
    return slots > LM_ANNEX_SLOTS ? slots : LM_ANNEX_SLOTS;
}

#endif
