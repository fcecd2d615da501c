/* experts_open.c: see experts_open.h. A refusal names the virtual model, and both sides of what
 * differs. */
#include "models/experts_open.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "models/experts.h"
#include "models/experts_rule.h"
#include "models/features.h"
#include "models/runner.h"
#include "models/sizes.h"

enum { SHAPE_TEXT_BYTES = 160 };

/* ---- the same tensors ---- */

/* "FP32 [rows, 3, 224, 224]" */
static void write_shape(const struct lm_model *model, const struct lm_tensor *tensor, char *text) {
    if (tensor->any_rank) {
        snprintf(text, SHAPE_TEXT_BYTES, "%s of any shape", lm_dtype_name(tensor->dtype));
        return;
    }
    size_t used = (size_t)snprintf(text, SHAPE_TEXT_BYTES, "%s [", lm_dtype_name(tensor->dtype));
    for (uint32_t d = 0; d < tensor->rank && used < SHAPE_TEXT_BYTES; d++) {
        const char *comma = d ? ", " : "";
        int more = tensor->free[d] ? snprintf(text + used, SHAPE_TEXT_BYTES - used, "%s%.32s",
                                              comma, model->free_dims[tensor->free[d] - 1].name)
                   : d == 0 && tensor->rows_free
                       ? snprintf(text + used, SHAPE_TEXT_BYTES - used, "rows")
                       : snprintf(text + used, SHAPE_TEXT_BYTES - used, "%s%lld", comma,
                                  (long long)tensor->dims[d]);
        used += (size_t)more;
    }
    if (used < SHAPE_TEXT_BYTES)
        snprintf(text + used, SHAPE_TEXT_BYTES - used, "]%s",
                 tensor->shape_known ? "" : " (not known before a Run)");
}

static bool is_same(const struct lm_tensor *one, const struct lm_tensor *other) {
    return strcmp(one->name, other->name) == 0 && one->dtype == other->dtype &&
           one->any_rank == other->any_rank && one->rank == other->rank &&
           one->rows_free == other->rows_free && one->shape_known == other->shape_known &&
           (one->wrapped_rows == other->wrapped_rows || one->wrapped_rows == 0 ||
            other->wrapped_rows == 0) &&
           memcmp(one->dims, other->dims, one->rank * sizeof *one->dims) == 0 &&
           memcmp(one->free, other->free, one->rank * sizeof *one->free) == 0;
}

static int compare_tensors(const struct lm_model *one, const struct lm_model *last,
                           const char *what, bool of_outputs) {
    const struct lm_tensor *ones = of_outputs ? one->outputs : one->inputs;
    const struct lm_tensor *lasts = of_outputs ? last->outputs : last->inputs;
    uint32_t count = of_outputs ? one->output_count : one->input_count;
    uint32_t expected = of_outputs ? last->output_count : last->input_count;
    if (count != expected) {
        return lm_error(LUMEN_E_MODEL,
                        "experts need the same %ss: '%.64s' has %u of them, '%.64s' has %u", what,
                        last->name, expected, one->name, count);
    }
    for (uint32_t t = 0; t < count; t++) {
        char wanted[SHAPE_TEXT_BYTES], found[SHAPE_TEXT_BYTES];
        if (is_same(&ones[t], &lasts[t])) continue;
        write_shape(last, &lasts[t], wanted);
        write_shape(one, &ones[t], found);
        return lm_error(LUMEN_E_MODEL,
                        "experts need the same %ss: %s %u is '%.48s' %s for '%.64s', and '%.48s' "
                        "%s for '%.64s'",
                        what, what, t, lasts[t].name, wanted, last->name, ones[t].name, found,
                        one->name);
    }
    return 0;
}

static int compare(const struct lm_model *one, const struct lm_model *last) {
    int code = compare_tensors(one, last, "input", false);
    if (!code) code = compare_tensors(one, last, "output", true);
    if (code) return code;
    for (uint32_t f = 0; f < last->free_count; f++) {
        if (strcmp(one->free_dims[f].name, last->free_dims[f].name) == 0) continue;
        return lm_error(LUMEN_E_MODEL,
                        "experts need the same free dimensions: '%.64s' for '%.64s', and '%.64s' "
                        "for '%.64s'",
                        last->free_dims[f].name, last->name, one->free_dims[f].name, one->name);
    }
    if (lm_input_plan_is_same(&one->input_plan, &last->input_plan)) return 0;
    return lm_error(LUMEN_E_MODEL,
                    "experts need the same pictures: the settings image, mean, scale and "
                    "channel_order of '%.64s' and '%.64s' differ",
                    last->name, one->name);
}

/* ---- the rule ---- */

static int check_bounds(const struct lm_experts *experts) {
    bool ascend = !lm_experts_cascade(experts);
    for (uint32_t e = 0; e + 1 < experts->count; e++) {
        double bound = experts->bounds[e];
        if (!isfinite(bound)) {
            return lm_error(LUMEN_E_INVALID, "the bound of expert %u: expected a number, found %g",
                            e, bound);
        }
        if (ascend && e > 0 && !(bound > experts->bounds[e - 1])) {
            return lm_error(LUMEN_E_INVALID,
                            "the bound of expert %u: expected more than %g, which the one before "
                            "takes, found %g",
                            e, experts->bounds[e - 1], bound);
        }
    }
    return 0;
}

static int refuse_tensor(const struct lm_model *model, const char *what, const char *name,
                         const struct lm_tensor *tensors, uint32_t count) {
    char known[256] = "";
    size_t used = 0;
    for (uint32_t t = 0; t < count && used < sizeof known; t++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s'%.48s' (%s)", t ? ", " : "",
                                 tensors[t].name, lm_dtype_name(tensors[t].dtype));
    return lm_error(LUMEN_E_INVALID, "feature %s: expected %s of %s, found %s%.64s%s",
                    lm_feature_name(model->experts.feature), what, known, name ? "'" : "none named",
                    name ? name : "", name ? "'" : "");
}

/* The tensor of that name, or the only one. */
static uint32_t find(const struct lm_tensor *tensors, uint32_t count, const char *name) {
    if (!name) return count == 1 ? 0 : count;
    uint32_t t = 0;
    while (t < count && strcmp(tensors[t].name, name) != 0) t++;
    return t;
}

static bool is_sure(const struct lm_tensor *output) {
    struct lm_sizes one = {.rows = 1};
    for (uint32_t f = 0; f < LM_FREE_DIMS_MAX; f++) one.free[f] = 2;
    return output->shape_known && lm_values_of(output, &one, NULL).count >= 2;
}

/* Finds what the feature is of. */
static int find_tensor(struct lm_model *model, const char *name) {
    struct lm_experts *experts = &model->experts;
    const struct lm_tensor *tensors = model->inputs;
    uint32_t count = model->input_count;
    if (experts->feature == LUMEN_FEATURE_PIXELS) {
        if (model->input_plan.has_rgb8 || model->input_plan.has_images) return 0;
        return lm_error(LUMEN_E_INVALID, "feature pixels: expected models that take pictures");
    }
    if (experts->feature == LUMEN_FEATURE_SIZE) {
        bool is_rows = name && model->rows_free &&
                       (strcmp(name, "rows") == 0 || strcmp(name, model->rows_name) == 0);
        bool only = !name && model->free_count == 1;
        experts->at = only      ? 0
                      : is_rows ? model->free_count
                                : lm_model_find_free(model, name ? name : "");
        bool is_size =
            experts->at < model->free_count && !model->free_dims[experts->at].is_any_rank;
        if (is_rows || is_size) return 0;
        return lm_error(LUMEN_E_INVALID,
                        "feature size: expected the name of a free dimension of '%.64s' (as `lumen "
                        "inspect` shows them), found %s%.64s%s",
                        experts->models[experts->count - 1]->name, name ? "'" : "none",
                        name ? name : "", name ? "'" : "");
    }
    if (lm_experts_cascade(experts)) {
        tensors = model->outputs;
        count = model->output_count;
    }
    experts->at = find(tensors, count, name);
    if (experts->at < count &&
        (experts->feature != LUMEN_FEATURE_EDGES || !tensors[experts->at].any_rank) &&
        lm_feature_fits(experts->feature, tensors[experts->at].dtype, tensors[experts->at].rank) &&
        (!lm_experts_cascade(experts) || is_sure(&tensors[experts->at])))
        return 0;
    const char *what = lm_experts_cascade(experts)
                           ? "a float output of known shape with at least two values a row,"
                       : experts->feature == LUMEN_FEATURE_LENGTH ? "an input of strings (BYTES),"
                       : experts->feature == LUMEN_FEATURE_EDGES
                           ? "an input of numbers with two dimensions or more,"
                           : "an input of numbers,";
    return refuse_tensor(model, what, name, tensors, count);
}

/* ---- the model ---- */

/* The last expert's, but for what it owns. */
static int copy_signature(struct lm_model *model, const struct lm_model *last) {
    int code = lm_model_hold_tensors(model, last->input_count, last->output_count);
    if (code) return code;
    model->input_count = last->input_count;
    model->output_count = last->output_count;
    memcpy(model->inputs, last->inputs, last->input_count * sizeof *last->inputs);
    memcpy(model->outputs, last->outputs, last->output_count * sizeof *last->outputs);
    for (uint32_t i = 0; i < model->input_count; i++) model->input_names[i] = model->inputs[i].name;
    for (uint32_t o = 0; o < model->output_count; o++)
        model->output_names[o] = model->outputs[o].name;
    /* Where one graph lies about its rows, ONNX Runtime allocates the output of all. */
    for (uint32_t o = 0; o < model->output_count; o++) {
        for (uint32_t e = 0; e < model->experts.count; e++) {
            uint32_t rows = model->experts.models[e]->outputs[o].wrapped_rows;
            if (rows) model->outputs[o].wrapped_rows = rows;
        }
    }
    model->rows_free = last->rows_free;
    memcpy(model->rows_name, last->rows_name, sizeof model->rows_name);
    memcpy(model->free_dims, last->free_dims, sizeof model->free_dims);
    model->free_count = last->free_count;
    model->any_rank = last->any_rank;
    model->outputs_known = last->outputs_known;
    model->string_inputs = last->string_inputs;
    model->string_outputs = last->string_outputs;
    model->max_rows = last->max_rows;
    model->channel_order = last->channel_order;
    model->input_plan = last->input_plan;
    model->max_output_bytes = last->max_output_bytes;
    model->output_bytes_are_default = last->output_bytes_are_default;
    return 0;
}

int lm_experts_open(struct lm_model *model, struct lm_model *const *models, uint32_t count,
                    const lumen_experts_config *config) {
    struct lm_experts *experts = &model->experts;
    if (config->feature > LUMEN_FEATURE_MARGIN)
        return lm_error(LUMEN_E_INVALID, "feature: expected 0 to %d, found %u",
                        LUMEN_FEATURE_MARGIN, config->feature);
    if (config->count < 2 || config->count > LUMEN_EXPERTS_MAX)
        return lm_error(LUMEN_E_INVALID, "expected 2 to %d experts, found %u", LUMEN_EXPERTS_MAX,
                        config->count);
    experts->feature = (enum lumen_feature)config->feature;
    experts->count = config->count;
    for (uint32_t e = 0; e < config->count; e++) {
        uint32_t index = config->experts[e].model;
        if (index >= count || !models[index])
            return lm_error(LUMEN_E_INVALID, "expert %u: expected a model below %u, found %u", e,
                            count, index);
        if (lm_model_is_virtual(models[index]))
            return lm_error(LUMEN_E_INVALID,
                            "expert %u: expected a model of its own, found '%.64s', which runs "
                            "others",
                            e, models[index]->name);
        experts->models[e] = models[index];
        experts->bounds[e] = config->experts[e].bound;
    }
    const struct lm_model *last = experts->models[config->count - 1];
    int code = check_bounds(experts);
    for (uint32_t e = 0; !code && e + 1 < config->count; e++)
        code = compare(experts->models[e], last);
    if (!code) code = copy_signature(model, last);
    return code ? code : find_tensor(model, config->tensor);
}
