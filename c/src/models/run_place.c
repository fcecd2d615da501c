/* run_place.c: see run_place.h. */
#include "models/run_place.h"

#include "base/atomics.h"

/* relaxed, both: a word of its own; who sees it late runs the model once more */
void lm_model_end_own_runs(struct lm_model *model, uint64_t computed_ns) {
    uint64_t computed_us = computed_ns / 1000;
    uint32_t word = computed_us < UINT32_MAX ? (uint32_t)computed_us : UINT32_MAX;
    lm_plain_store_relaxed_u32(&model->long_run_us, word ? word : 1);
}

uint32_t lm_model_long_run_us(const struct lm_model *model) {
    return lm_plain_load_relaxed_u32(&model->long_run_us); /* relaxed: as above */
}

const char *lm_model_run_name(const struct lm_model *model) {
    static const char *const names[] = {
        [LUMEN_RUN_AUTO] = "auto", [LUMEN_RUN_INLINE] = "inline", [LUMEN_RUN_WORKER] = "worker"};
    return names[lm_model_long_run_us(model) ? (uint32_t)LUMEN_RUN_WORKER : model->run];
}

const char *lm_model_run_why(const struct lm_model *model) {
    return lm_model_long_run_us(model) ? "one of its Runs took an I/O thread more than 1 ms"
                                       : model->run_why;
}
