/* native_engine.c: see native_engine.h.
 *
 * Equal means, for every row of the trial: with trees the same classes, sums bit by bit, and
 * probabilities within 4e-7; with dense layers each score within 1e-5 of the largest score of the
 * trial, and the same classes, but where two scores are as close as that.
 */
#include "models/native_engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "models/binding.h"
#include "models/layout.h"

enum {
    TRIAL_ROWS = 5,  /* of a request whose answers are compared */
    TRIALS = 6,      /* of such requests */
    TIMED_ROWS = 32, /* of the larger one of the two requests that are timed */
    TIMED_RUNS = 40, /* of each, unless that takes too long */
    TIMED_NS = 20000000,
    NAN_ONE_IN = 16 /* features of trees */
};
static const float dense_off = 1e-5f; /* of the trial's largest score */
static const float trees_off = 4e-7f; /* of probabilities, which are below 1: a few last bits */

/* What a trial works on, for up to `rows`. */
struct trial {
    const struct lm_model *model;
    const struct lm_ort *ort;
    uint32_t rows;
    float largest; /* score */
    uint64_t random;
    float *input;
    void *ours[2];
    void *theirs[2];
};

static uint32_t below(uint64_t *random, uint32_t bound) {
    return (uint32_t)((lm_random_next(random) >> 32) % bound);
}

/* ---- whether it fits ---- */

/* Exporters leave the first dimension of an output without a name. The engine's file says what it
 * is: a row for each row. Returns false where there is more that is not known. */
static bool learn_rows(const struct lm_model *model, struct lm_tensor *output) {
    if (output->shape_known) return true;
    if (!model->rows_free || output->rank == 0 || output->dims[0] >= 0) return false;
    for (uint32_t d = 1; d < output->rank; d++) {
        if (output->dims[d] < 0) return false;
    }
    output->shape_known = output->rows_free = true;
    return true;
}

static bool is_output(const struct lm_model *model, struct lm_tensor *output, int dtype,
                      uint64_t elements) {
    return output->dtype == dtype && learn_rows(model, output) && !output->varies &&
           output->rows_free == model->rows_free &&
           output->row_bytes == elements * output->element_bytes;
}

/* The engine's rows are those of the model. */
static bool fits(struct lm_model *model) {
    const struct lm_engine_header *header = model->engine.view.header;
    const struct lm_tensor *input = &model->inputs[0];
    uint32_t outputs = (header->score_output < 2 ? 1u : 0u) + (header->label_output < 2 ? 1u : 0u);
    if (model->input_count != 1 || model->free_count > 0 || input->dtype != ORT_FLOAT ||
        input->row_bytes != header->inputs * sizeof(float) || model->output_count != outputs ||
        header->score_output == header->label_output)
        return false;
    for (uint32_t o = 0; o < outputs; o++) {
        bool score = header->score_output == o;
        if (!score && header->label_output != o) return false;
        if (!is_output(model, &model->outputs[o], score ? ORT_FLOAT : ORT_INT64,
                       score ? header->scores : 1))
            return false;
    }
    model->outputs_known = true;
    return true;
}

/* Says why there is none; an error where one is asked for. */
static int without(struct lm_model *model, const char *why) {
    snprintf(model->engine_why, sizeof model->engine_why, "%s", why);
    lm_engine_close(&model->engine);
    if (model->engine_wish != LUMEN_ENGINE_NATIVE) return 0;
    return lm_error(LUMEN_E_MODEL, "engine: expected a model that the native engine runs: %s",
                    model->engine_why);
}

int lm_model_open_engine(struct lm_model *model, const lumen_model_config *config) {
    model->engine_wish = config->engine;
    if (config->engine == LUMEN_ENGINE_ORT) return without(model, "as set");
    const char *not_native = lm_runner_of(model)->not_native;
    if (config->isolation == LUMEN_ISOLATION_PROCESS)
        return without(model, "it runs in a process of its own");
    if (model->source.providers.count > 0) return without(model, "it has other providers");
    if (not_native) return without(model, not_native);
    if (!config->engine_path)
        return without(model, config->engine_why ? config->engine_why : "it has no native engine");
    if (lm_engine_open(&model->engine, config->engine_path, false))
        return without(model, lm_error_last());
    if (!fits(model)) return without(model, "its signature is not that of its graph");
    return 0;
}

/* ---- rows ---- */

/* Values at the thresholds and beside them, and sometimes NaN. */
static void fill_features(struct trial *trial, float *row) {
    const struct lm_engine_view *view = &trial->model->engine.view;
    uint32_t inputs = view->header->inputs;
    for (uint32_t i = 0; i < inputs; i++) row[i] = (float)below(&trial->random, 4001) / 1000 - 2;
    for (uint32_t i = 0; i < 4 * inputs; i++) {
        const struct lm_engine_node *node =
            &view->nodes[below(&trial->random, (uint32_t)view->node_count)];
        float at = node->value.threshold;
        if (node->feature >= inputs) continue;
        uint32_t side = below(&trial->random, 4);
        row[node->feature] = side == 0 ? nextafterf(at, INFINITY) : side == 1 ? at - 0.5f : at;
    }
    for (uint32_t i = 0; i < inputs; i++) {
        if (below(&trial->random, NAN_ONE_IN) == 0) row[i] = NAN;
    }
}

static void fill(struct trial *trial, uint32_t rows) {
    const struct lm_engine_header *header = trial->model->engine.view.header;
    for (uint32_t r = 0; r < rows; r++) {
        float *row = trial->input + (size_t)r * header->inputs;
        if (header->kind == LM_ENGINE_TREES) {
            fill_features(trial, row);
            continue;
        }
        for (uint32_t i = 0; i < header->inputs; i++)
            row[i] = (float)below(&trial->random, 2001) / 1000 - 1;
    }
}

/* ---- whether it answers as ONNX Runtime does ---- */

static int run_theirs(struct trial *trial, uint32_t rows, uint64_t *took_ns) {
    const struct lm_model *model = trial->model;
    struct lm_sizes sizes = {.rows = rows};
    void *inputs[1] = {trial->input};
    const struct lm_layout layout = {.inputs = inputs, .outputs = trial->theirs};
    OrtValue *values[3] = {NULL};
    struct lm_binding binding = {0};
    int code = lm_model_bind(model, trial->ort, &layout, &sizes, &binding, values);
    uint64_t began_ns = lm_now_ns();
    if (!code) code = lm_model_run(model, trial->ort, 0, values);
    *took_ns = lm_now_ns() - began_ns;
    for (uint32_t o = 0; !code && o < model->output_count; o++) {
        size_t bytes = 0;
        if (lm_output_is_wrapped(&model->outputs[o], rows)) continue;
        lm_tensor_bytes(&model->outputs[o], &sizes, &bytes);
        code = lm_model_take_output(trial->ort, &model->outputs[o], &values[1 + o],
                                    trial->theirs[o], bytes);
    }
    lm_model_unbind(model, trial->ort, &binding, values);
    return code;
}

static uint64_t run_ours(struct trial *trial, uint32_t rows) {
    uint64_t began_ns = lm_now_ns();
    lm_engine_run(&trial->model->engine, 0, trial->input, trial->ours, rows, NULL);
    return lm_now_ns() - began_ns;
}

/* How far apart two scores may be. */
static float allowed(const struct trial *trial) {
    const struct lm_engine_header *header = trial->model->engine.view.header;
    if (header->kind == LM_ENGINE_DENSE) return trial->largest * dense_off;
    return header->post == LM_POST_NONE ? 0 : trees_off;
}

/* Finds the largest score in as many rows as there is room for. */
static int find_largest(struct trial *trial) {
    const struct lm_engine_header *header = trial->model->engine.view.header;
    uint64_t took_ns;
    fill(trial, trial->rows);
    int code = run_theirs(trial, trial->rows, &took_ns);
    if (code || header->score_output > 1) return code;
    const float *scores = trial->theirs[header->score_output];
    for (size_t s = 0; s < (size_t)trial->rows * header->scores; s++)
        trial->largest = fmaxf(trial->largest, fabsf(scores[s]));
    return 0;
}

/* Whether a row's two largest scores are so close that either class may be the first. */
static bool is_close(const float *row, uint32_t count, float off) {
    float first = -INFINITY, second = -INFINITY;
    for (uint32_t s = 0; s < count; s++) {
        second = fmaxf(second, fminf(first, row[s]));
        first = fmaxf(first, row[s]);
    }
    return first - second <= 2 * off;
}

static bool same_row(const struct trial *trial, uint32_t r) {
    const struct lm_engine_header *header = trial->model->engine.view.header;
    uint32_t scores = header->score_output, labels = header->label_output;
    bool close = false;
    if (scores < 2) {
        const float *ours = (const float *)trial->ours[scores] + (size_t)r * header->scores;
        const float *theirs = (const float *)trial->theirs[scores] + (size_t)r * header->scores;
        float off = allowed(trial);
        for (uint32_t s = 0; s < header->scores; s++) {
            bool both_nan = isnan(ours[s]) && isnan(theirs[s]);
            if (!both_nan && !(ours[s] == theirs[s]) && !(fabsf(ours[s] - theirs[s]) <= off))
                return false;
        }
        close = header->kind == LM_ENGINE_DENSE && is_close(theirs, header->scores, off);
    }
    return labels > 1 || close ||
           ((int64_t *)trial->ours[labels])[r] == ((int64_t *)trial->theirs[labels])[r];
}

/* Returns 0, LUMEN_E_ORT, or 1 where some answer differs. */
static int compare(struct trial *trial) {
    uint32_t rows = trial->rows < TRIAL_ROWS ? trial->rows : TRIAL_ROWS;
    for (uint32_t t = 0; t < TRIALS; t++) {
        uint64_t took_ns;
        uint32_t count = t % 2 ? rows : 1;
        fill(trial, count);
        int code = run_theirs(trial, count, &took_ns);
        if (code) return code;
        run_ours(trial, count);
        for (uint32_t r = 0; r < count; r++) {
            if (!same_row(trial, r)) return 1;
        }
    }
    return 0;
}

/* ---- whether it is faster ---- */

/* The best of several runs of each, in turns. */
static int time_both(struct trial *trial, uint32_t rows, uint64_t *ours_ns, uint64_t *theirs_ns) {
    uint64_t until_ns = lm_now_ns() + TIMED_NS, took_ns;
    *ours_ns = *theirs_ns = UINT64_MAX;
    fill(trial, rows);
    for (uint32_t run = 0; run < TIMED_RUNS && (run < 2 || lm_now_ns() < until_ns); run++) {
        int code = run_theirs(trial, rows, &took_ns);
        if (code) return code;
        if (took_ns < *theirs_ns) *theirs_ns = took_ns;
        took_ns = run_ours(trial, rows);
        if (took_ns < *ours_ns) *ours_ns = took_ns;
    }
    return 0;
}

static int decide(struct lm_model *model, struct trial *trial) {
    uint64_t ours_ns, theirs_ns, many_ours_ns, many_theirs_ns;
    int code = time_both(trial, 1, &ours_ns, &theirs_ns);
    if (!code) code = time_both(trial, trial->rows, &many_ours_ns, &many_theirs_ns);
    if (code) return code;
    bool faster = ours_ns < theirs_ns && many_ours_ns <= many_theirs_ns;
    if (faster || model->engine_wish == LUMEN_ENGINE_NATIVE) {
        model->runner = LM_RUNNER_NATIVE;
        model->run_ns = ours_ns > 0 ? ours_ns : 1;
    }
    snprintf(model->engine_why, sizeof model->engine_why,
             "%sa row takes %.1f us, %u rows %.1f us; ONNX Runtime %.1f and %.1f us",
             model->engine_wish == LUMEN_ENGINE_NATIVE ? "as set: " : "", (double)ours_ns / 1000,
             trial->rows, (double)many_ours_ns / 1000, (double)theirs_ns / 1000,
             (double)many_theirs_ns / 1000);
    return 0;
}

static int open_trial(struct trial *trial) {
    const struct lm_model *model = trial->model;
    const struct lm_sizes sizes = {.rows = trial->rows};
    size_t bytes = 0;
    lm_tensor_bytes(&model->inputs[0], &sizes, &bytes);
    trial->input = calloc(1, bytes);
    bool held = trial->input != NULL;
    for (uint32_t o = 0; o < model->output_count; o++) {
        lm_tensor_bytes(&model->outputs[o], &sizes, &bytes);
        trial->ours[o] = calloc(1, bytes);
        trial->theirs[o] = calloc(1, bytes);
        held = held && trial->ours[o] && trial->theirs[o];
    }
    return held ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for a trial");
}

static void close_trial(struct trial *trial) {
    free(trial->input);
    for (uint32_t o = 0; o < 2; o++) {
        free(trial->ours[o]);
        free(trial->theirs[o]);
    }
}

int lm_model_choose_engine(struct lm_model *model, const struct lm_ort *ort) {
    if (!model->engine.view.header) return 0;
    struct trial trial = {.model = model, .ort = ort, .rows = 1, .random = 0x9e3779b97f4a7c15u};
    bool fewer = model->max_rows > 0 && model->max_rows < TIMED_ROWS; /* 0: not known yet */
    if (model->rows_free) trial.rows = fewer ? model->max_rows : TIMED_ROWS;
    int code = open_trial(&trial);
    if (!code) code = find_largest(&trial);
    if (!code) code = compare(&trial);
    if (!code) code = decide(model, &trial);
    close_trial(&trial);
    if (code == 1) return without(model, "its answers differ from ONNX Runtime's");
    if (code) return without(model, lm_error_last());
    if (!lm_runner_of(model)->is_engine) lm_engine_close(&model->engine);
    return 0;
}
