/* steps_plan.c: see steps_plan.h. */
#include "models/steps_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/steps.h"
#include "models/steps_tell.h"
#include "models/virtual.h"

/* A tensor that has a name in the ensemble. */
struct named {
    const char *name;
    const struct lm_tensor *tensor; /* as the first step that has it says */
    const struct lm_model *model;   /* whose it is */
    bool is_made;                   /* by a step; else the request brings it */
    bool is_taken;                  /* by a later step */
    bool is_judged;                 /* a cascade looks at it */
    bool has_rows;                  /* its first dimension is the request's rows */
    bool is_output;
    uint16_t value;
    /* Of its dimensions that are free sizes of a request: which of another's they are, 1 + that
     * one's place (0: of none, or of its own), and the most that a later step takes; 0: any. */
    uint16_t whose[LM_RANK_MAX];
    uint8_t which[LM_RANK_MAX];
    uint32_t most[LM_RANK_MAX];
};

struct plan {
    struct named named[LM_STEP_VALUES_MAX];
    uint32_t count;
    uint32_t max_rows; /* of the steps that take the request's rows */
};

/* Where a step's free sizes come from: a dimension of a named tensor; NULL: nobody knows. */
struct origin {
    struct named *named;
    uint8_t d;
};

struct origins {
    struct origin of[LM_FREE_DIMS_MAX];
};

static struct named *find(struct plan *plan, const char *name) {
    for (uint32_t n = 0; n < plan->count; n++)
        if (strcmp(plan->named[n].name, name) == 0) return &plan->named[n];
    return NULL;
}

static struct named *add(struct plan *plan, const char *name, const struct lm_model *model,
                         const struct lm_tensor *tensor) {
    if (plan->count == LM_STEP_VALUES_MAX) return NULL;
    struct named *named = &plan->named[plan->count++];
    *named = (struct named){.name = name, .tensor = tensor, .model = model};
    return named;
}

/* Every name on the left of a map is a tensor of the step's model. */
static int check_map(const lumen_step_tensor *map, uint32_t count, const struct lm_tensor *tensors,
                     uint32_t tensor_count, const char *what) {
    for (uint32_t m = 0; m < count; m++) {
        uint32_t t = 0;
        while (t < tensor_count && strcmp(tensors[t].name, map[m].tensor) != 0) t++;
        if (t < tensor_count) continue;
        char known[256] = "";
        size_t used = 0;
        for (t = 0; t < tensor_count && used < sizeof known; t++)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s'%.48s'", t ? ", " : "",
                                     tensors[t].name);
        return lm_error(LUMEN_E_INVALID, "expected %s of the model (%s), found '%.64s'", what,
                        known, map[m].tensor);
    }
    return 0;
}

/* Whether the two may be one tensor; a free dimension may be any size. */
static bool agree(const struct lm_tensor *one, const struct lm_tensor *other) {
    if (one->dtype != other->dtype) return false;
    if (!one->shape_known || !other->shape_known) return true;
    if (one->rank != other->rank) return false;
    for (uint32_t d = 0; d < one->rank; d++) {
        bool fixed = one->dims[d] >= 0 && other->dims[d] >= 0;
        if (fixed && one->dims[d] != other->dims[d]) return false;
    }
    return true;
}

static void write_shape(const struct lm_tensor *tensor, char *text, size_t bytes) {
    size_t used = (size_t)snprintf(text, bytes, "%s [", lm_dtype_name(tensor->dtype));
    for (uint32_t d = 0; d < tensor->rank && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", d ? ", " : "",
                                 (long long)tensor->dims[d]);
    if (used < bytes) snprintf(text + used, bytes - used, "]");
}

/* The ensemble's own tensor that a dimension's size is said by. */
static struct origin origin_of(struct plan *plan, struct named *named, uint8_t d) {
    if (!named->is_made) return (struct origin){named, d};
    if (!named->whose[d]) return (struct origin){NULL, 0};
    return (struct origin){&plan->named[named->whose[d] - 1], named->which[d]};
}

/* A step takes a tensor: its bounds are the ensemble's, also where an earlier step made it. What
 * nobody has set bounds only what the step is sent by the request itself. */
static void take_bounds(struct plan *plan, const struct lm_model *model,
                        const struct lm_tensor *input, struct named *named,
                        struct origins *origins) {
    bool same_rank = named->tensor->rank == input->rank && named->tensor->shape_known;
    if (input->rows_free && named->has_rows && model->max_rows < plan->max_rows)
        plan->max_rows = model->max_rows;
    for (uint8_t d = 0; same_rank && d < input->rank; d++) {
        if (!input->free[d]) continue;
        const struct lm_free_dim *dim = model->free_dims;
        while (dim->place != input->free[d] - 1) dim++;
        struct origin origin = origin_of(plan, named, d);
        if (!origin.named) continue;
        origins->of[dim->place] = origin;
        uint32_t *most = &origin.named->most[origin.d];
        if (named->is_made && !dim->by_default && (*most == 0 || dim->max < *most))
            *most = dim->max;
    }
}

static int take_inputs(struct plan *plan, const struct lm_model *model, const lumen_step *config,
                       struct lm_step *step, struct origins *origins, bool *has_rows_out) {
    char one[128], other[128];
    bool has_rows = model->rows_free;
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        const char *name = lm_step_name(config->inputs, config->input_count, input->name);
        struct named *named = find(plan, name);
        if (input->any_rank)
            return lm_error(LUMEN_E_INVALID, "input '%.64s': expected a tensor of known rank",
                            input->name);
        if (!named) {
            named = add(plan, name, model, input);
            if (!named) break;
            named->has_rows = input->rows_free;
        }
        if (!agree(input, named->tensor)) {
            write_shape(input, one, sizeof one);
            write_shape(named->tensor, other, sizeof other);
            return lm_error(LUMEN_E_MODEL,
                            "input '%.48s': expected %s, found '%.48s' of '%.48s': %s", input->name,
                            one, name, named->model->name, other);
        }
        named->is_taken = true;
        if (input->rows_free && !named->has_rows) has_rows = false;
        take_bounds(plan, model, input, named, origins);
        step->sources[i] = (uint16_t)(named - plan->named);
    }
    *has_rows_out = has_rows;
    return plan->count < LM_STEP_VALUES_MAX
               ? 0
               : lm_error(LUMEN_E_INVALID, "expected fewer than %d tensors in all",
                          LM_STEP_VALUES_MAX);
}

static int make_outputs(struct plan *plan, const struct lm_model *model, const lumen_step *config,
                        struct lm_step *step, const struct origins *origins, bool has_rows) {
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        const char *name = lm_step_output_name(config, output->name);
        const struct named *before = *name ? find(plan, name) : NULL;
        if (before) {
            return lm_error(LUMEN_E_INVALID,
                            "output '%.48s': expected a name of its own, found '%.48s', which %s "
                            "'%.48s' has too (give it another under outputs)",
                            output->name, name, before->is_made ? "an output of" : "an input of",
                            before->model->name);
        }
        struct named *named = add(plan, name, model, output);
        if (!named)
            return lm_error(LUMEN_E_INVALID, "expected fewer than %d tensors in all",
                            LM_STEP_VALUES_MAX);
        named->is_made = true;
        named->is_judged = lm_experts_cascade(&model->experts) && model->experts.at == o;
        named->has_rows = output->rows_free && has_rows;
        for (uint32_t d = 0; output->shape_known && d < output->rank; d++) {
            const struct origin *origin =
                output->free[d] ? &origins->of[output->free[d] - 1] : NULL;
            if (!origin || !origin->named) continue;
            named->whose[d] = (uint16_t)(origin->named - plan->named + 1);
            named->which[d] = origin->d;
        }
        step->targets[o] = (uint16_t)(named - plan->named);
    }
    return 0;
}

static int plan_step(struct plan *plan, struct lm_model *const *models, uint32_t count,
                     const lumen_step *config, struct lm_step *step) {
    bool has_rows = false;
    struct origins origins = {0};
    if (config->model >= count || !models[config->model])
        return lm_error(LUMEN_E_INVALID, "expected a model below %u, found %u", count,
                        config->model);
    const struct lm_model *model = step->model = models[config->model];
    step->name = model->name;
    step->sessions = lm_model_is_virtual(model) ? NULL : model->sessions;
    step->input_names = model->input_names;
    step->input_count = model->input_count;
    if (model->steps)
        return lm_error(LUMEN_E_INVALID, "expected a model or experts, found '%.64s', an ensemble",
                        model->name);
    if (model->experts.count > 0 && model->experts.feature == LUMEN_FEATURE_PIXELS)
        return lm_error(LUMEN_E_INVALID,
                        "expected experts by another feature than pixels, found '%.64s': a step "
                        "has no pictures",
                        model->name);
    if (model->input_count > LM_STEP_TENSORS_MAX || model->output_count > LM_STEP_TENSORS_MAX)
        return lm_error(LUMEN_E_INVALID, "'%.64s': expected at most %d inputs and outputs each",
                        model->name, LM_STEP_TENSORS_MAX);
    int code = check_map(config->inputs, config->input_count, model->inputs, model->input_count,
                         "an input");
    if (!code)
        code = check_map(config->outputs, config->output_count, model->outputs, model->output_count,
                         "an output");
    if (!code) code = take_inputs(plan, model, config, step, &origins, &has_rows);
    return code ? code : make_outputs(plan, model, config, step, &origins, has_rows);
}

/* Marks what the ensemble answers with: what is named, or what no step takes. */
static int choose_outputs(struct plan *plan, const lumen_steps_config *config) {
    for (uint32_t o = 0; o < config->output_count; o++) {
        struct named *named = find(plan, config->outputs[o]);
        if (!named || !named->is_made)
            return lm_error(LUMEN_E_INVALID, "outputs: expected what a step makes, found '%.64s'",
                            config->outputs[o]);
        named->is_output = true;
    }
    for (uint32_t n = 0; config->output_count == 0 && n < plan->count; n++)
        plan->named[n].is_output =
            plan->named[n].is_made && !plan->named[n].is_taken && *plan->named[n].name;
    return 0;
}

/* Inputs first, outputs next, then what is handed on. Returns the number of all. */
static uint32_t number(struct plan *plan, uint32_t *inputs_out, uint32_t *outputs_out) {
    uint32_t value = 0;
    for (uint32_t n = 0; n < plan->count; n++)
        if (!plan->named[n].is_made) plan->named[n].value = (uint16_t)value++;
    *inputs_out = value;
    for (uint32_t n = 0; n < plan->count; n++)
        if (plan->named[n].is_output) plan->named[n].value = (uint16_t)value++;
    *outputs_out = value - *inputs_out;
    for (uint32_t n = 0; n < plan->count; n++) {
        struct named *named = &plan->named[n];
        if (named->is_made && !named->is_output && (named->is_taken || named->is_judged))
            named->value = (uint16_t)value++;
    }
    return value;
}

/* From places among the names to values, without outputs that nobody takes. Of a step some output
 * is taken: ONNX Runtime runs no model without. */
static int settle(const struct plan *plan, struct lm_step *step, uint32_t index) {
    for (uint32_t i = 0; i < step->model->input_count; i++)
        step->sources[i] = plan->named[step->sources[i]].value;
    for (uint32_t o = 0; o < step->model->output_count; o++) {
        const struct named *named = &plan->named[step->targets[o]];
        if (!named->is_output && !named->is_taken && !named->is_judged) continue;
        if (named->is_judged) step->judged = step->output_count;
        step->targets[step->output_count] = named->value;
        step->output_names[step->output_count++] = step->model->output_names[o];
    }
    if (step->output_count > 0) return 0;
    return lm_error(LUMEN_E_INVALID,
                    "step %u ('%.64s'): nothing takes an output of it: name one under outputs, or "
                    "leave the step out",
                    index, step->name);
}

/* ---- the ensemble's own tensors ---- */

/* The free dimension of the ensemble that is this one of a step's model: of one name there is one.
 */
static int take_free_dim(struct lm_model *model, const struct lm_model *of, uint32_t f,
                         uint32_t most, uint8_t *place_out) {
    struct lm_free_dim *dim = &model->free_dims[0];
    const struct lm_free_dim *wanted = &of->free_dims[f];
    while (dim < &model->free_dims[model->free_count] && strcmp(dim->name, wanted->name) != 0)
        dim++;
    if (dim == &model->free_dims[LM_FREE_DIMS_MAX])
        return lm_error(LUMEN_E_MODEL, "expected at most %d free dimensions in all steps' inputs",
                        LM_FREE_DIMS_MAX);
    if (dim == &model->free_dims[model->free_count]) {
        *dim = *wanted;
        dim->place = (uint8_t)model->free_count++;
    } else if (wanted->max < dim->max) {
        dim->max = wanted->max;
    }
    if (most && most < dim->max) {
        dim->max = most;
        dim->by_default = false;
    }
    *place_out = (uint8_t)(dim->place + 1);
    return 0;
}

static int take_input(struct lm_model *model, const struct named *named) {
    struct lm_tensor *input = &model->inputs[named->value];
    *input = *named->tensor;
    snprintf(input->name, sizeof input->name, "%s", named->name);
    model->string_inputs += lm_is_string(input);
    model->rows_free = model->rows_free || input->rows_free;
    for (uint32_t d = 0; d < input->rank; d++) {
        if (!input->free[d]) continue;
        uint32_t f = 0;
        while (named->model->free_dims[f].place != input->free[d] - 1) f++;
        int code = take_free_dim(model, named->model, f, named->most[d], &input->free[d]);
        if (code) return code;
    }
    return 0;
}

static void take_output(struct lm_model *model, const struct named *named, uint32_t inputs) {
    struct lm_tensor *output = &model->outputs[named->value - inputs];
    *output = *named->tensor;
    snprintf(output->name, sizeof output->name, "%s", named->name);
    bool has_free = false;
    for (uint32_t d = 0; d < output->rank; d++) has_free = has_free || output->free[d];
    /* Free sizes of a step need not be the request's. */
    if (has_free || (output->rows_free && !named->has_rows)) {
        output->shape_known = output->rows_free = false;
        memset(output->free, 0, sizeof output->free);
    }
    model->string_outputs += lm_is_string(output);
    model->outputs_known = model->outputs_known && output->shape_known;
}

static int take_signature(struct lm_model *model, const struct plan *plan, uint32_t inputs,
                          uint32_t outputs) {
    int code = lm_model_hold_tensors(model, inputs, outputs);
    if (code) return code;
    model->input_count = inputs;
    model->output_count = outputs;
    model->outputs_known = true;
    model->max_rows = plan->max_rows;
    for (uint32_t n = 0; !code && n < plan->count; n++) {
        const struct named *named = &plan->named[n];
        if (named->is_made) {
            if (named->is_output) take_output(model, named, inputs);
            continue;
        }
        code = take_input(model, named);
        if (named->has_rows)
            memcpy(model->rows_name, named->model->rows_name, sizeof model->rows_name);
    }
    if (!model->rows_free) model->max_rows = 1;
    for (uint32_t i = 0; i < inputs; i++) model->input_names[i] = model->inputs[i].name;
    for (uint32_t o = 0; o < outputs; o++) model->output_names[o] = model->outputs[o].name;
    return code;
}

/* Pictures become the one input as the model has it that takes this. */
static void take_pictures(struct lm_model *model, const struct plan *plan) {
    const struct lm_model *of = plan->named[0].model; /* the first step's first input */
    if (model->input_count != 1 || of->input_count != 1) return;
    model->channel_order = of->channel_order;
    model->input_plan = of->input_plan;
}

int lm_steps_open(struct lm_model *model, struct lm_model *const *models, uint32_t count,
                  const lumen_steps_config *config) {
    uint32_t inputs = 0, outputs = 0;
    if (config->count < 1 || config->count > LUMEN_STEPS_MAX)
        return lm_error(LUMEN_E_INVALID, "expected 1 to %d steps, found %u", LUMEN_STEPS_MAX,
                        config->count);
    struct plan *plan = calloc(1, sizeof *plan);
    struct lm_steps *steps = model->steps = calloc(1, sizeof *steps);
    int code = plan && steps ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for its steps");
    if (plan) plan->max_rows = LM_ROWS_MAX;
    for (uint32_t s = 0; !code && s < config->count; s++) {
        char reason[768];
        code = plan_step(plan, models, count, &config->steps[s], &steps->steps[s]);
        if (!code) continue;
        snprintf(reason, sizeof reason, "%s", lm_error_last());
        code = lm_error(code, "step %u: %s", s, reason);
    }
    if (!code) code = choose_outputs(plan, config);
    if (!code) {
        steps->count = config->count;
        steps->value_count = number(plan, &inputs, &outputs);
        steps->own_count = inputs + outputs;
        for (uint32_t s = 0; !code && s < steps->count; s++)
            code = settle(plan, &steps->steps[s], s);
        if (!code) code = take_signature(model, plan, inputs, outputs);
    }
    if (!code) code = lm_steps_tell(steps, config);
    if (!code) take_pictures(model, plan);
    if (code) lm_steps_close(model);
    free(plan);
    return code;
}

void lm_steps_close(struct lm_model *model) {
    if (model->steps) free(model->steps->scheduling);
    free(model->steps);
    model->steps = NULL;
}
