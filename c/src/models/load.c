/* load.c: see load.h. A session per worker, and the reason where a model cannot be served. */
#include "models/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomics.h"
#include "base/error.h"
#include "models/experts_open.h"
#include "models/native_engine.h"
#include "models/process.h"
#include "models/reshape.h"
#include "models/rules.h"
#include "models/sequences_open.h"
#include "models/sizes.h"
#include "models/steps_plan.h"
#include "models/text_model.h"
#include "models/virtual.h"
#include "models/warmup.h"
#include "onnx/refusal.h"

static int in_range(const lumen_model_config *config, const char *setting, uint64_t found,
                    uint64_t least, uint64_t most) {
    if (found >= least && found <= most) return 0;
    return lm_error(LUMEN_E_INVALID, "model '%s': %s: expected %llu to %llu, found %llu",
                    config->name, setting, (unsigned long long)least, (unsigned long long)most,
                    (unsigned long long)found);
}

#define CHECK_SETTING(section, type, setting, least, most) \
    if (!code) code = in_range(config, #setting, config->setting, least, most);

static int check_config(const lumen_model_config *config) {
    size_t name_bytes = strlen(config->name);
    if (name_bytes < 1 || name_bytes >= LM_NAME_BYTES_MAX) {
        return lm_error(LUMEN_E_INVALID, "model name: expected 1 to %d bytes, found %zu",
                        LM_NAME_BYTES_MAX - 1, name_bytes);
    }
    int code = 0;
    LUMEN_MODEL_SETTINGS(CHECK_SETTING)
    if (code) return code;
    for (uint32_t d = 0; d < config->dim_count; d++) {
        if (config->dims[d].size >= 1 && config->dims[d].size <= INT32_MAX) continue;
        return lm_error(LUMEN_E_INVALID, "model '%s': dimension '%s': expected 1 to %d, found %u",
                        config->name, config->dims[d].name, INT32_MAX, config->dims[d].size);
    }
    return 0;
}

/* The sessions of all workers. What the first one must know of the graph is read from one that is
 * opened for that alone: where the graph is optimised already, this costs next to nothing. */
static int open_sessions(struct lm_model *model, const struct lm_ort *ort, const char *path,
                         uint32_t count) {
    bool is_optimised = model->source.optimised.bytes > 0;
    int code = is_optimised ? lm_ort_session_look(ort, &model->source, &model->sessions[0])
                            : lm_ort_session_open(ort, &model->source, &model->sessions[0]);
    if (code) return code;
    model->session_count = 1;
    lm_providers_count_nodes(&model->source.providers, ort, model->sessions[0]);
    code = lm_providers_check_nodes(&model->source.providers);
    if (!code) code = lm_model_read_signature(model, ort, path);
    /* Plans of memory are kept for each shape that ever came. */
    model->source.shapes_vary = model->free_count > 0;
    if (!code && (is_optimised || model->source.shapes_vary)) {
        lm_ort_session_close(ort, model->sessions[0]);
        model->sessions[0] = NULL;
        code = lm_ort_session_open(ort, &model->source, &model->sessions[0]);
    }
    for (uint32_t s = 1; !code && s < count; s++) {
        code = lm_model_open_session(model, ort, 0, s);
        if (!code) model->session_count++;
    }
    return code;
}

void lm_model_close_session(struct lm_model *model, const struct lm_ort *ort, uint32_t index) {
    if (index == 0 || model->sessions[index] != model->sessions[0])
        lm_ort_session_close(ort, model->sessions[index]);
    model->sessions[index] = NULL;
}

int lm_model_open_session(struct lm_model *model, const struct lm_ort *ort, uint32_t node,
                          uint32_t index) {
    if (model->sessions[0] && lm_providers_share(&model->source.providers)) {
        model->sessions[index] = model->sessions[0];
        return 0;
    }
    lm_model_close_session(model, ort, index);
    return lm_ort_session_open_on(ort, &model->source, &model->weights[node], NULL,
                                  &model->sessions[index]);
}

/* A list of names that fits none of the outputs belongs to another model. */
static int check_labels(const struct lm_model *model) {
    uint64_t classes = 0;
    if (model->labels.count == 0 || (model->text && model->string_outputs > 0)) return 0;
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        if (!output->shape_known || output->varies) return 0;
        if (output->is_whole && output->rows_free) return 0; /* of no known number of classes */
        uint64_t values = output->row_bytes / output->element_bytes;
        uint64_t last = output->rank ? (uint64_t)output->dims[output->rank - 1] : 1;
        if (model->labels.count == values || model->labels.count == last) return 0;
        if (values > classes) classes = values;
    }
    return lm_error(LUMEN_E_MODEL, "labels: expected a line for each of %llu classes, found %u",
                    (unsigned long long)classes, model->labels.count);
}

/* What needs no session. */
static int begin(struct lm_model *model, const lumen_model_config *config, uint32_t index) {
    static lm_atomic_u64 generations;
    memset(model, 0, sizeof *model);
    int code = check_config(config);
    if (!code) code = lm_declared_open(&model->declared, config);
    if (!code) code = lm_labels_open(&model->labels, config->labels, config->label_bytes);
    if (code) {
        lm_declared_close(&model->declared);
        return code;
    }
    memcpy(model->name, config->name, strlen(config->name) + 1);
    memcpy(model->base, config->name, strcspn(config->name, ":"));
    model->version = config->version ? config->version : 1;
    model->index = index;
    model->generation = 1 + lm_count_relaxed_u64(&generations, 1); /* relaxed: just a number */
    model->caches = config->response_cache != 0;
    model->channel_order = config->channel_order;
    model->output_bytes_are_default = config->max_output_bytes == 0;
    model->max_output_bytes =
        model->output_bytes_are_default ? LM_OUTPUT_BYTES : config->max_output_bytes;
    model->width = config->intra_op_threads > 1 ? 1 : config->width;
    lm_wide_init(&model->wide);
    model->run = config->run;
    model->threads = config->intra_op_threads;
    return 0;
}

/* A virtual model takes the sessions of the models that it runs. */
static int check_parts(const struct lm_model *model) {
    for (uint32_t p = 0; p < lm_model_part_count(model); p++) {
        const struct lm_model *part = lm_model_part(model, p);
        const char *why = lm_runner_of(part)->not_part;
        if (why) return lm_error(LUMEN_E_MODEL, "'%.64s' %s", part->name, why);
    }
    return 0;
}

int lm_model_open_virtual(struct lm_model *model, const lumen_model_config *config, uint32_t index,
                          struct lm_model *const *models, uint32_t count) {
    int code = begin(model, config, index);
    if (code) return code;
    model->runner = config->steps ? LM_RUNNER_ENSEMBLE : LM_RUNNER_EXPERTS;
    code = config->steps ? lm_steps_open(model, models, count, config->steps)
                         : lm_experts_open(model, models, count, config->experts);
    if (!code) code = check_parts(model);
    if (config->steps && config->max_rows && config->max_rows < model->max_rows)
        model->max_rows = config->max_rows; /* its steps may take more */
    if (!code) code = lm_model_reshape(model);
    if (!code) code = check_labels(model);
    if (!code) return 0;
    char reason[768];
    snprintf(reason, sizeof reason, "%s", lm_error_last());
    lm_labels_close(&model->labels);
    lm_declared_close(&model->declared);
    lm_steps_close(model);
    lm_model_drop_tensors(model);
    return lm_error(code, "%s of '%s': %s", config->steps ? "steps" : "experts", config->name,
                    reason);
}

int lm_model_open_elsewhere(struct lm_model *model, const lumen_model_config *config,
                            uint32_t index) {
    int code = begin(model, config, index);
    if (code) return code;
    model->runner = LM_RUNNER_UPSTREAM;
    model->upstream = config->upstream;
    model->max_rows = 1;
    model->outputs_known = true;
    model->upstream_model = strdup(config->upstream_model);
    if (model->upstream_model) return 0;
    lm_labels_close(&model->labels);
    lm_declared_close(&model->declared);
    return lm_error(LUMEN_E_NOMEM, "no memory for model '%s'", config->name);
}

/* What a process of its own cannot run: its workers and it share the places of tensors, which must
 * be known before a Run. The sessions are that process's from here on. */
static int isolate(struct lm_model *model, const struct lm_ort *ort) {
    if (model->string_inputs > 0 || model->string_outputs > 0) {
        return lm_error(LUMEN_E_MODEL,
                        "isolation: process: its strings cannot be shared with another process "
                        "(set isolation: none)");
    }
    for (uint32_t o = 0; o < model->output_count; o++) {
        if (model->outputs[o].shape_known) continue;
        return lm_error(LUMEN_E_MODEL,
                        "isolation: process: the shape of output '%.64s' is not known before a "
                        "Run, which tells where it can be shared (set isolation: none)",
                        model->outputs[o].name);
    }
    lm_ort_session_close(ort, model->sessions[0]);
    model->sessions[0] = NULL;
    model->session_count = 0;
    model->width = 1;
    model->optional_count = 0;
    model->runner = LM_RUNNER_PROCESS;
    return 0;
}

/* A Run of such a model is one session's, and no cache, batch or other process knows its state. */
static int begin_sequences(struct lm_model *model, const lumen_model_config *config) {
    model->width = 1;
    model->runner = LM_RUNNER_SEQUENCES;
    return lm_sequences_open(&model->sequences, config->sequences);
}

int lm_model_open(struct lm_model *model, const struct lm_ort *ort,
                  const lumen_model_config *config, uint32_t index, uint32_t session_count) {
    int code = begin(model, config, index);
    if (code) return code;
    const bool isolated = config->isolation == LUMEN_ISOLATION_PROCESS;
    code = lm_ort_source_open(&model->source, ort, config);
    if (model->source.providers.count > 0) model->width = 1; /* their threads are their own */
    const uint32_t kinds = (config->sequences != NULL) << LUMEN_BESIDE_SEQUENCES |
                           isolated << LUMEN_BESIDE_PROCESS |
                           (model->source.providers.count > 0) << LUMEN_BESIDE_PROVIDERS |
                           (config->text != NULL) << LUMEN_BESIDE_TEXT;
    if (!code) code = lm_rules_check(config, kinds);
    if (!code && config->sequences) code = begin_sequences(model, config);
    if (!code) code = open_sessions(model, ort, config->path, isolated ? 1 : session_count);
    if (!code && config->text) code = lm_model_open_text(model, ort, config->text);
    if (!code) code = lm_model_limit_sizes(model, config);
    if (!code && model->sequences) model->max_rows = 1; /* a state has no more */
    if (!code && !model->sequences && !model->text) lm_model_try_sizes(model, ort);
    if (!code) code = lm_model_reshape(model);
    if (!code) code = check_labels(model);
    if (!code) code = lm_warmups_open(model, config);
    if (!code) code = lm_model_plan_pictures(model, config);
    if (!code) code = lm_model_open_engine(model, config);
    if (!code && isolated) code = isolate(model, ort);
    if (code) {
        lm_model_close(model, ort);
        char reason[768];
        lm_model_refusal(config->path, reason, sizeof reason);
        return lm_error(code, "model '%s' (%s) cannot be served: %s", config->name, config->path,
                        reason);
    }
    return 0;
}

void lm_model_close(struct lm_model *model, const struct lm_ort *ort) {
    for (uint32_t s = LM_RUNNERS_MAX; s-- > 0;) lm_model_close_session(model, ort, s);
    free(model->description.text);
    model->description.text = NULL;
    lm_warmups_close(model);
    lm_sequences_close(model->sequences, ort);
    model->sequences = NULL;
    lm_text_model_close(model->text);
    model->text = NULL;
    free(model->upstream_model);
    model->upstream_model = NULL;
    lm_process_close(model->process);
    model->process = NULL;
    lm_wide_close(&model->wide, ort);
    lm_engine_close(&model->engine);
    for (uint32_t n = 0; n < LM_NODES_MAX - 1; n++) {
        if (model->other_wides[n]) lm_wide_close(model->other_wides[n], ort);
        free(model->other_wides[n]);
        model->other_wides[n] = NULL;
    }
    for (uint32_t n = 0; n < LM_NODES_MAX; n++) lm_mapping_close(&model->weights[n]);
    lm_ort_source_close(&model->source);
    lm_labels_close(&model->labels);
    lm_declared_close(&model->declared);
    lm_steps_close(model);
    lm_model_drop_tensors(model);
    model->session_count = 0;
}
