/* warmup.c: see warmup.h. */
#include "models/warmup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "models/model.h"
#include "models/runner.h"
#include "models/sequences.h"
#include "models/sizes.h"

enum { SHOWN_BYTES = 64 };

/* An input of a request. */
struct tensor {
    int64_t dims[LM_RANK_MAX];
    uint32_t rank;
    size_t count; /* of its elements */
    uint8_t *data;
    size_t bytes;
};

struct lm_warmup {
    char name[SHOWN_BYTES];
    uint32_t count;         /* how often */
    struct tensor *tensors; /* one for each input of the model */
};

struct lm_warmups {
    uint32_t count;
    struct lm_warmup all[];
};

struct lm_sizes lm_warmup_sizes(const struct lm_model *model, uint32_t rows) {
    struct lm_sizes sizes = lm_model_largest(model, rows);
    for (uint32_t place = 0; place < LM_FREE_DIMS_MAX; place++) {
        if (sizes.free[place] > LM_MODEST_DIM) sizes.free[place] = LM_MODEST_DIM;
    }
    return sizes;
}

uint64_t lm_warmup_largest_ns(const struct lm_model *model, uint64_t modest_ns) {
    const struct lm_sizes largest = lm_model_largest(model, 1), modest = lm_warmup_sizes(model, 1);
    const double times = (double)lm_model_row_elements(model, &largest) /
                         (double)lm_model_row_elements(model, &modest);
    return (uint64_t)((double)modest_ns * times);
}

static int read_shape(const struct lm_tensor *input, const lumen_warmup_tensor *config,
                      struct tensor *out) {
    bool fits = config->rank <= LM_RANK_MAX && (input->any_rank || config->rank == input->rank);
    out->count = 1;
    for (uint32_t d = 0; fits && d < config->rank; d++) {
        fits = config->shape[d] > 0 && lm_mul_size(out->count, config->shape[d], &out->count) &&
               (input->any_rank || input->dims[d] < 0 || input->dims[d] == config->shape[d]);
        out->dims[d] = config->shape[d];
    }
    out->rank = config->rank;
    if (fits) return 0;
    char expected[160] = "";
    size_t used = 0;
    for (uint32_t d = 0; d < input->rank && used < sizeof expected; d++)
        used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%lld", d ? ", " : "",
                                 (long long)input->dims[d]);
    return lm_error(LUMEN_E_MODEL,
                    "input '%.64s': expected a shape of sizes above 0 that is one of [%s], where "
                    "-1 is any, found one of %u",
                    input->name, input->any_rank ? "..." : expected, config->rank);
}

/* Whether the bytes are so many strings, each behind its length. */
static bool are_strings(const uint8_t *at, size_t left, size_t count) {
    for (; count > 0; count--) {
        uint32_t bytes;
        if (left < sizeof bytes) return false;
        memcpy(&bytes, at, sizeof bytes); /* little-endian, as we are */
        if (left - sizeof bytes < bytes) return false;
        at += sizeof bytes + bytes;
        left -= sizeof bytes + bytes;
    }
    return left == 0;
}

/* Floats of 0 to 1; of all other types 0 or 1. The same ones each time. */
static void fill_random(int dtype, uint8_t *data, size_t count, size_t each) {
    uint64_t random = 0x9e3779b97f4a7c15;
    for (size_t i = 0; i < count; i++, data += each) {
        const double value = lm_random_unit(&random);
        const float single = (float)value;
        const uint16_t half = dtype == ORT_FLOAT16 ? 0x3c00 : 0x3f80;
        if (dtype == ORT_FLOAT) {
            memcpy(data, &single, sizeof single);
        } else if (dtype == ORT_DOUBLE) {
            memcpy(data, &value, sizeof value);
        } else if (dtype == ORT_FLOAT16 || dtype == ORT_BFLOAT16) {
            if (random >> 63) memcpy(data, &half, sizeof half);
        } else {
            *data = (uint8_t)(random >> 63); /* of integers of any size: little-endian */
        }
    }
}

static int fill(const struct lm_tensor *input, const lumen_warmup_tensor *config,
                struct tensor *out) {
    size_t bytes = 0;
    bool has_bytes = config->fill == LUMEN_FILL_BYTES;
    if (config->fill > LUMEN_FILL_BYTES)
        return lm_error(LUMEN_E_INVALID, "input '%.64s': fill: expected 0 to %d, found %u",
                        input->name, LUMEN_FILL_BYTES, config->fill);
    if (lm_is_string(input) && config->fill == LUMEN_FILL_RANDOM)
        return lm_error(LUMEN_E_INVALID, "input '%.64s': expected zeros or a file for its strings",
                        input->name);
    if (!lm_mul_size(out->count, input->element_bytes, &bytes) || bytes > LM_WARMUP_BYTES_MAX)
        return lm_error(LUMEN_E_INVALID, "input '%.64s': expected at most %d bytes", input->name,
                        LM_WARMUP_BYTES_MAX);
    bool fits = lm_is_string(input) ? !has_bytes || are_strings((const uint8_t *)config->data,
                                                                (size_t)config->bytes, out->count)
                                    : !has_bytes || config->bytes == bytes;
    if (!fits)
        return lm_error(LUMEN_E_INVALID,
                        "input '%.64s': expected a file of %s%zu bytes%s for its shape, found %llu",
                        input->name, lm_is_string(input) ? "at least " : "", bytes,
                        lm_is_string(input) ? " (each string behind its length, four bytes)" : "",
                        (unsigned long long)config->bytes);
    out->bytes = has_bytes ? (size_t)config->bytes : bytes;
    out->data = calloc(1, out->bytes + 1);
    if (!out->data) return lm_error(LUMEN_E_NOMEM, "no memory for a warm-up request");
    if (has_bytes) memcpy(out->data, config->data, out->bytes);
    if (config->fill == LUMEN_FILL_RANDOM)
        fill_random(input->dtype, out->data, out->count, input->element_bytes);
    return 0;
}

/* A model with sequences says these itself, as in a sequence's first and only request. */
static bool is_sequences_own(const struct lm_sequences *sequences, const char *name) {
    for (uint32_t c = 0; sequences && c < LM_CONTROL_COUNT; c++) {
        if (strcmp(sequences->controls[c].tensor.name, name) == 0) return true;
    }
    for (uint32_t s = 0; sequences && s < sequences->state_count; s++) {
        if (strcmp(sequences->states[s].input, name) == 0) return true;
    }
    return false;
}

static int take(const struct lm_model *model, const lumen_warmup *config, struct lm_warmup *out) {
    snprintf(out->name, sizeof out->name, "%s", config->name);
    out->count = config->count;
    out->tensors = calloc(model->input_count, sizeof *out->tensors);
    if (!out->tensors) return lm_error(LUMEN_E_NOMEM, "no memory for a warm-up request");
    for (uint32_t c = 0; c < config->input_count; c++) {
        uint32_t i = 0;
        if (is_sequences_own(model->sequences, config->inputs[c].name)) continue;
        while (i < model->input_count && strcmp(model->inputs[i].name, config->inputs[c].name) != 0)
            i++;
        if (i == model->input_count || out->tensors[i].data)
            return lm_error(LUMEN_E_MODEL, "expected an input of the model, once, found '%.64s'",
                            config->inputs[c].name);
        int code = read_shape(&model->inputs[i], &config->inputs[c], &out->tensors[i]);
        if (!code) code = fill(&model->inputs[i], &config->inputs[c], &out->tensors[i]);
        if (code) return code;
    }
    for (uint32_t i = 0; i < model->input_count; i++) {
        if (!out->tensors[i].data)
            return lm_error(LUMEN_E_MODEL, "expected all inputs, found none for '%.64s'",
                            model->inputs[i].name);
    }
    return 0;
}

/* What went wrong, with the name of the request before it. */
static int said_of(const struct lm_warmup *warmup, int code) {
    char reason[512];
    snprintf(reason, sizeof reason, "%s", lm_error_last());
    return lm_error(code, "warm-up request '%s': %s", warmup->name, reason);
}

int lm_warmups_open(struct lm_model *model, const lumen_model_config *config) {
    if (config->warmup_count == 0) return 0;
    if (config->warmup_count > LUMEN_WARMUPS_MAX)
        return lm_error(LUMEN_E_INVALID, "warm-up requests: expected at most %d, found %u",
                        LUMEN_WARMUPS_MAX, config->warmup_count);
    struct lm_warmups *warmups =
        calloc(1, sizeof *warmups + config->warmup_count * sizeof *warmups->all);
    if (!warmups) return lm_error(LUMEN_E_NOMEM, "no memory for warm-up requests");
    model->warmups = warmups;
    for (uint32_t w = 0; w < config->warmup_count; w++) {
        warmups->count++;
        int code = take(model, &config->warmups[w], &warmups->all[w]);
        if (code) return said_of(&warmups->all[w], code);
    }
    return 0;
}

void lm_warmups_close(struct lm_model *model) {
    struct lm_warmups *warmups = model->warmups;
    for (uint32_t w = 0; warmups && w < warmups->count; w++) {
        struct lm_warmup *one = &warmups->all[w];
        for (uint32_t i = 0; one->tensors && i < model->input_count; i++)
            free(one->tensors[i].data);
        free(one->tensors);
    }
    free(warmups);
    model->warmups = NULL;
}

static OrtValue *value_of(const struct lm_ort *ort, const struct lm_tensor *input,
                          const struct tensor *tensor) {
    struct lm_ort_growth growth = {0};
    if (!lm_is_string(input))
        return lm_ort_wrap(ort, tensor->data, tensor->bytes, tensor->dims, tensor->rank,
                           input->dtype);
    OrtValue *value = lm_ort_strings_open(ort, tensor->dims, tensor->rank);
    /* Zeros are empty strings: their lengths. */
    if (value && lm_ort_strings_fill(ort, value, 0, tensor->count, tensor->data, &growth) != 0) {
        lm_ort_value_close(ort, value);
        return NULL;
    }
    return value;
}

static int run_one(const struct lm_model *model, const struct lm_ort *ort, uint32_t session,
                   const struct lm_warmup *warmup) {
    OrtValue *values[2 * LM_TENSORS_MAX] = {0};
    int code = 0;
    for (uint32_t i = 0; !code && i < model->input_count; i++) {
        values[i] = value_of(ort, &model->inputs[i], &warmup->tensors[i]);
        if (!values[i]) code = LUMEN_E_ORT;
    }
    for (uint32_t r = 0; !code && r < warmup->count; r++) {
        code = lm_model_run(model, ort, session, values);
        for (uint32_t o = 0; o < model->output_count; o++) {
            lm_ort_value_close(ort, values[model->input_count + o]);
            values[model->input_count + o] = NULL;
        }
    }
    for (uint32_t i = 0; i < model->input_count; i++) lm_ort_value_close(ort, values[i]);
    return code;
}

int lm_warmups_run(const struct lm_model *model, const struct lm_ort *ort, uint32_t session) {
    for (uint32_t w = 0; model->warmups && w < model->warmups->count; w++) {
        const struct lm_warmup *one = &model->warmups->all[w];
        if (run_one(model, ort, session, one) == 0) continue;
        char reason[512];
        snprintf(reason, sizeof reason, "%s", lm_error_last());
        return lm_error(LUMEN_E_MODEL, "model '%s': warm-up request '%s': %s", model->name,
                        one->name, reason);
    }
    return 0;
}
