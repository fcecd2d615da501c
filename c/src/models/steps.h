/* steps.h: the steps of an ensemble: a virtual model whose request is run by several models, each
 * on tensors of the request or of the steps before it. Written by the control thread at load
 * (steps_plan.h), then read by any thread.
 *
 * A tensor between two steps is ONNX Runtime's value, handed on as it is; what the last steps make
 * is written to the slot by the Run itself where its shape follows from the request's sizes.
 */
#ifndef LM_MODELS_STEPS_H
#define LM_MODELS_STEPS_H

#include "lumen.h"
#include "onnx/ort.h"

struct lm_model;

enum { LM_STEP_TENSORS_MAX = 64 /* in, or out of a step */, LM_STEP_VALUES_MAX = 256 };

struct lm_step {
    const struct lm_model *model;
    const char *name;            /* of it, and what else a Run needs: */
    OrtSession *const *sessions; /* NULL: experts that `model` runs */
    const char *const *input_names;
    uint32_t input_count;
    uint32_t output_count;
    /* Which value is each of its inputs: the ensemble's inputs come first, then its outputs, then
     * what is handed on between steps. */
    uint16_t sources[LM_STEP_TENSORS_MAX];
    uint16_t targets[LM_STEP_TENSORS_MAX]; /* the same of the outputs that somebody takes */
    const char *output_names[LM_STEP_TENSORS_MAX];
    uint32_t judged; /* of a cascade: which of the outputs says whether it is sure */
};

struct lm_steps {
    uint32_t count;
    uint32_t own_count; /* of the values, those of the ensemble's own tensors */
    uint32_t value_count;
    char *scheduling; /* JSON, as Triton's clients are told it */
    struct lm_step steps[LUMEN_STEPS_MAX];
};

/* Runs all steps on the sessions of that worker. `values` are the ensemble's, its inputs and then
 * its outputs; one that is NULL is made. `steps_ns`: as in lm_run. Returns 0, or LUMEN_E_* with a
 * sentence that names the step. */
int lm_steps_run(const struct lm_steps *steps, const struct lm_ort *ort, uint32_t worker,
                 OrtValue **values, uint64_t *steps_ns);

#endif
