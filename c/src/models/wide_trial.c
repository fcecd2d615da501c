/* wide_trial.c: see wide_trial.h. */
#include "models/wide_trial.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "models/runner.h"
#include "models/sizes.h"
#include "models/warmup.h"

enum {
    RUNS = 7,
    RUNS_NS = 500000000, /* of them together, but at least one */
    LONG_NS = 20000000,  /* a Run that takes longer is tried on a smaller shape, if there is one */
    ONCE_NS = 100000000  /* of one that takes longer the first tells as much as the next would */
};

/* Numbers that differ, where any number is a sensible input; zeros elsewhere. */
static void fill(const struct lm_tensor *tensor, void *memory, size_t bytes) {
    float *numbers = memory;
    memset(memory, 0, bytes);
    if (tensor->dtype != ORT_FLOAT) return;
    for (size_t i = 0; i < bytes / sizeof *numbers; i++) numbers[i] = (float)(i % 251) / 256;
}

/* A sentence, of which several cores have something: an empty text is two tokens. */
static int fill_text(const struct lm_ort *ort, OrtValue *value) {
    static const char words[] = "a sentence of some words, as people write them into a search box";
    uint8_t wire[sizeof(uint32_t) + sizeof words - 1];
    const uint32_t bytes = sizeof words - 1;
    struct lm_ort_growth growth = {0};
    memcpy(wire, &bytes, sizeof bytes);
    memcpy(wire + sizeof bytes, words, bytes);
    return lm_ort_strings_fill(ort, value, 0, 1, wire, &growth);
}

/* FNV-1a, a word at a time. */
static uint64_t add_digest(uint64_t digest, const uint8_t *data, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, data + at, bytes - at < 8 ? bytes - at : 8);
        digest = (digest ^ word) * 0x100000001b3ull;
    }
    return digest;
}

enum { STRINGS_MAX = 4096 }; /* bytes of an output that are compared */

static int read_strings(const struct lm_ort *ort, const OrtValue *value, size_t count,
                        uint64_t *digest) {
    uint8_t wire[STRINGS_MAX];
    size_t bytes = 0;
    int code = lm_ort_strings_take(ort, value, 0, count, wire, sizeof wire, &bytes);
    if (code == 0) *digest = add_digest(*digest, wire, bytes);
    return code == LM_ORT_NO_ROOM ? 0 : code;
}

static int read_output(const struct lm_ort *ort, const struct lm_tensor *tensor, OrtValue *value,
                       uint64_t *digest) {
    OrtTensorTypeAndShapeInfo *info = NULL;
    size_t count = 0;
    void *data = NULL;
    OrtStatus *status = ort->api->GetTensorTypeAndShape(value, &info);
    if (!status) status = ort->api->GetTensorShapeElementCount(info, &count);
    bool is_string = lm_is_string(tensor);
    if (!status && !is_string) status = ort->api->GetTensorMutableData(value, &data);
    if (info) ort->api->ReleaseTensorTypeAndShapeInfo(info);
    int code = lm_ort_check(ort, status, "reading an output");
    if (!code && is_string) return read_strings(ort, value, count, digest);
    if (!code) *digest = add_digest(*digest, data, count * tensor->element_bytes);
    return code;
}

static bool is_in_place(const struct lm_model *model) {
    return lm_runner_of(model)->run_in_place && model->string_inputs == 0;
}

/* `wide`: NULL for a Run on one core. */
static int run_one(struct lm_wide_trial *trial, const struct lm_model *model,
                   const struct lm_ort *ort, const struct lm_wide *wide, uint64_t *took_ns,
                   uint64_t *digest) {
    const struct lm_sizes one = {.rows = 1};
    const struct lm_run run = {.ort = ort,
                               .cpu = -1,
                               .values = trial->values,
                               .inputs = trial->memory,
                               .outputs = trial->outputs,
                               .sizes = &one,
                               .wide = wide};
    OrtValue **outputs = trial->values + model->input_count;
    uint64_t began_ns = lm_now_ns();
    int code = lm_model_make_run(model, is_in_place(model), &run);
    *took_ns = lm_now_ns() - began_ns;
    *digest = 0xcbf29ce484222325ull;
    for (uint32_t o = 0; is_in_place(model) && o < model->output_count; o++)
        *digest = add_digest(*digest, trial->outputs[o], trial->output_bytes[o]);
    if (is_in_place(model)) return code;
    for (uint32_t o = 0; o < model->output_count; o++) {
        if (!code) code = read_output(ort, &model->outputs[o], outputs[o], digest);
        lm_ort_value_close(ort, outputs[o]);
        outputs[o] = NULL;
    }
    return code;
}

static int begin(struct lm_wide_trial *trial, const struct lm_model *model,
                 const struct lm_ort *ort, const struct lm_sizes *sizes) {
    uint64_t took_ns;
    int code = 0;
    memset(trial, 0, sizeof *trial);
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *tensor = &model->inputs[i];
        int64_t dims[LM_RANK_MAX];
        size_t bytes = 0;
        uint32_t rank = lm_tensor_shape(tensor, sizes, dims);
        if (lm_is_string(tensor)) {
            trial->values[i] = lm_ort_strings_open(ort, dims, rank); /* empty ones */
            if (!trial->values[i] || (model->text && fill_text(ort, trial->values[i])))
                return LUMEN_E_ORT;
            continue;
        }
        if (lm_tensor_bytes(tensor, sizes, &bytes)) trial->memory[i] = malloc(bytes);
        if (!trial->memory[i]) return lm_error(LUMEN_E_NOMEM, "no memory for a trial");
        fill(tensor, trial->memory[i], bytes);
        trial->values[i] = lm_ort_wrap(ort, trial->memory[i], bytes, dims, rank, tensor->dtype);
        if (!trial->values[i]) return LUMEN_E_ORT;
    }
    for (uint32_t o = 0; is_in_place(model) && o < model->output_count; o++) {
        size_t *bytes = &trial->output_bytes[o];
        if (lm_tensor_bytes(&model->outputs[o], sizes, bytes)) trial->outputs[o] = malloc(*bytes);
        if (!trial->outputs[o]) return lm_error(LUMEN_E_NOMEM, "no memory for a trial");
    }
    /* The first Run takes memory. */
    code = run_one(trial, model, ort, NULL, &took_ns, &trial->digest);
    trial->narrow_ns = took_ns;
    if (!code && took_ns < ONCE_NS)
        code = run_one(trial, model, ort, NULL, &trial->narrow_ns, &trial->digest);
    return code;
}

/* Halves every free dimension. false: each is 1. */
static bool halve(struct lm_sizes *sizes) {
    bool any = false;
    for (uint32_t place = 0; place < LM_FREE_DIMS_MAX; place++) {
        any = any || sizes->free[place] > 1;
        if (sizes->free[place] > 1) sizes->free[place] /= 2;
    }
    return any;
}

int lm_wide_trial_open(struct lm_wide_trial *trial, const struct lm_model *model,
                       const struct lm_ort *ort) {
    struct lm_sizes sizes = lm_warmup_sizes(model, 1);
    int code = begin(trial, model, ort, &sizes);
    if (!code && lm_warmup_largest_ns(model, trial->narrow_ns) <= LONG_NS) {
        lm_wide_trial_close(trial, model, ort);
        sizes = lm_model_largest(model, 1);
        code = begin(trial, model, ort, &sizes);
    }
    while (!code && trial->narrow_ns > LONG_NS && halve(&sizes)) {
        lm_wide_trial_close(trial, model, ort);
        code = begin(trial, model, ort, &sizes);
    }
    return code;
}

void lm_wide_trial_close(struct lm_wide_trial *trial, const struct lm_model *model,
                         const struct lm_ort *ort) {
    for (uint32_t i = 0; i < model->input_count; i++) {
        lm_ort_value_close(ort, trial->values[i]);
        free(trial->memory[i]);
    }
    for (uint32_t o = 0; o < model->output_count; o++) free(trial->outputs[o]);
}

int lm_wide_trial_run(struct lm_wide_trial *trial, const struct lm_model *model,
                      const struct lm_ort *ort, const struct lm_wide *wide, uint64_t *wide_ns_out,
                      bool *same_out) {
    uint64_t took_ns, digest, best_ns = UINT64_MAX, until_ns = lm_now_ns() + RUNS_NS;
    int code = run_one(trial, model, ort, wide, &took_ns, &digest);
    *same_out = digest == trial->digest;
    if (!code && took_ns >= ONCE_NS) best_ns = took_ns;
    for (int r = 0; !code && took_ns < ONCE_NS && r < RUNS && (r == 0 || lm_now_ns() < until_ns);
         r++) {
        code = run_one(trial, model, ort, wide, &took_ns, &digest);
        *same_out = *same_out && digest == trial->digest;
        if (took_ns < best_ns) best_ns = took_ns;
        if (!code) code = run_one(trial, model, ort, NULL, &took_ns, &digest);
        if (took_ns < trial->narrow_ns) trial->narrow_ns = took_ns;
    }
    *wide_ns_out = best_ns;
    return code;
}
