/* wide_trial.h: how much faster a model runs on several cores than on one. Before the server
 * starts, on a thread that is pinned to one of the cores.
 */
#ifndef LM_MODELS_WIDE_TRIAL_H
#define LM_MODELS_WIDE_TRIAL_H

#include "models/model.h"

/* One row: of the largest shape, or of one that takes at most about 20 ms. */
struct lm_wide_trial {
    OrtValue *values[2 * LM_TENSORS_MAX];
    void *memory[LM_TENSORS_MAX];
    void *outputs[LM_TENSORS_MAX]; /* of a model that the native engine runs */
    size_t output_bytes[LM_TENSORS_MAX];
    uint64_t narrow_ns; /* the best of some Runs on one core */
    uint64_t digest;    /* of the outputs of such a Run */
};

/* Runs the model on its first session, or on the native engine. Returns 0, or LUMEN_E_* where it
 * fails. */
int lm_wide_trial_open(struct lm_wide_trial *trial, const struct lm_model *model,
                       const struct lm_ort *ort);
void lm_wide_trial_close(struct lm_wide_trial *trial, const struct lm_model *model,
                         const struct lm_ort *ort);
/* Runs it on `wide` and as before in turns. `same_out`: the outputs were equal to the
 * bit. Returns 0 or LUMEN_E_*. */
int lm_wide_trial_run(struct lm_wide_trial *trial, const struct lm_model *model,
                      const struct lm_ort *ort, const struct lm_wide *wide, uint64_t *wide_ns_out,
                      bool *same_out);

#endif
