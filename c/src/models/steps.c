/* steps.c: see steps.h. */
#include "models/steps.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "models/model.h"
#include "models/step_experts.h"

/* Runs the step's experts until one is sure. Outputs that are NULL are made. */
static int run_experts(const struct lm_step *step, const struct lm_ort *ort, uint32_t worker,
                       const OrtValue *const *inputs, OrtValue **outputs) {
    const struct lm_experts *experts = &step->model->experts;
    OrtValue *made[LM_STEP_TENSORS_MAX];
    uint32_t expert = 0;
    bool is_sure = false;
    int code = lm_step_choose(step, ort, inputs, &expert);
    for (; !code && !is_sure; expert++) {
        for (uint32_t o = 0; o < step->output_count; o++) made[o] = outputs[o];
        code = lm_ort_run(ort, experts->models[expert]->sessions[worker], step->input_names, inputs,
                          step->input_count, step->output_names, made, step->output_count);
        if (!code) code = lm_step_judge(step, ort, expert, made, &is_sure);
        /* What the next one makes anew. */
        for (uint32_t o = 0; o < step->output_count && (code || !is_sure); o++) {
            if (!outputs[o]) lm_ort_value_close(ort, made[o]);
        }
    }
    for (uint32_t o = 0; !code && o < step->output_count; o++) outputs[o] = made[o];
    return code;
}

static int run_step(const struct lm_step *step, const struct lm_ort *ort, uint32_t worker,
                    OrtValue **all) {
    const OrtValue *inputs[LM_STEP_TENSORS_MAX];
    OrtValue *outputs[LM_STEP_TENSORS_MAX];
    for (uint32_t i = 0; i < step->input_count; i++) inputs[i] = all[step->sources[i]];
    for (uint32_t o = 0; o < step->output_count; o++) outputs[o] = all[step->targets[o]];
    int code = step->sessions
                   ? lm_ort_run(ort, step->sessions[worker], step->input_names, inputs,
                                step->input_count, step->output_names, outputs, step->output_count)
                   : run_experts(step, ort, worker, inputs, outputs);
    for (uint32_t o = 0; !code && o < step->output_count; o++) all[step->targets[o]] = outputs[o];
    return code;
}

int lm_steps_run(const struct lm_steps *steps, const struct lm_ort *ort, uint32_t worker,
                 OrtValue **values, uint64_t *steps_ns) {
    OrtValue *all[LM_STEP_VALUES_MAX];
    int code = 0;
    for (uint32_t v = 0; v < steps->value_count; v++)
        all[v] = v < steps->own_count ? values[v] : NULL;
    if (steps_ns) *steps_ns++ = lm_now_ns();
    for (uint32_t s = 0; !code && s < steps->count; s++) {
        char reason[512];
        code = run_step(&steps->steps[s], ort, worker, all);
        if (steps_ns) steps_ns[s] = lm_now_ns();
        if (!code) continue;
        snprintf(reason, sizeof reason, "%s", lm_error_last());
        code = lm_error(code, "step %u ('%.64s'): %s", s, steps->steps[s].name, reason);
    }
    for (uint32_t v = 0; v < steps->own_count; v++) values[v] = all[v];
    for (uint32_t v = steps->own_count; v < steps->value_count; v++)
        lm_ort_value_close(ort, all[v]);
    return code;
}
