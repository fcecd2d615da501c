/* declared.c: see declared.h. */
#include "models/declared.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"

/* A copy, or NULL for none; false: there is no memory. */
static bool copy(const char *text, char **out) {
    *out = text ? strdup(text) : NULL;
    return !text || *out;
}

static int check(const lumen_model_config *config) {
    if (config->declared_count > 2 * LM_TENSORS_MAX)
        return lm_error(LUMEN_E_INVALID, "declared tensors: expected at most %d, found %u",
                        2 * LM_TENSORS_MAX, config->declared_count);
    for (uint32_t t = 0; t < config->declared_count; t++) {
        const lumen_declared *one = &config->declared[t];
        if (one->format > LUMEN_FORMAT_NCHW)
            return lm_error(LUMEN_E_INVALID, "format of '%.64s': expected 0 to 2, found %u",
                            one->name, one->format);
        if (one->rank > LM_RANK_MAX)
            return lm_error(LUMEN_E_INVALID,
                            "reshape of '%.64s': expected at most %d dimensions, found %u",
                            one->name, LM_RANK_MAX, one->rank);
    }
    return 0;
}

int lm_declared_open(struct lm_declared *declared, const lumen_model_config *config) {
    *declared = (struct lm_declared){0};
    int code = check(config);
    if (code) return code;
    bool copied = copy(config->file_name, &declared->file_name);
    declared->tensors = calloc((size_t)config->declared_count + 1, sizeof *declared->tensors);
    copied = copied && declared->tensors;
    for (uint32_t t = 0; copied && t < config->declared_count; t++) {
        const lumen_declared *from = &config->declared[t];
        struct lm_declared_tensor *to = &declared->tensors[declared->count++];
        *to = (struct lm_declared_tensor){.format = from->format, .is_output = from->is_output};
        declared->no_rows = declared->no_rows || from->no_rows;
        copied = copy(from->name, &to->name) && copy(from->label_file, &to->label_file);
        if (!from->shape) continue;
        to->rank = from->rank;
        memcpy(to->dims, from->shape, from->rank * sizeof *to->dims);
        to->client = calloc(1, sizeof *to->client);
        copied = copied && to->client;
    }
    if (copied) return 0;
    lm_declared_close(declared);
    return lm_error(LUMEN_E_NOMEM, "no memory for what a configuration says of its tensors");
}

void lm_declared_close(struct lm_declared *declared) {
    for (uint32_t t = 0; t < declared->count; t++) {
        free(declared->tensors[t].name);
        free(declared->tensors[t].label_file);
        free(declared->tensors[t].client);
    }
    free(declared->tensors);
    free(declared->file_name);
    *declared = (struct lm_declared){0};
}

struct lm_declared_tensor *lm_declared_find(const struct lm_declared *declared, const char *name,
                                            bool is_output) {
    for (uint32_t t = 0; t < declared->count; t++) {
        struct lm_declared_tensor *one = &declared->tensors[t];
        if (one->is_output == is_output && strcmp(one->name, name) == 0) return one;
    }
    return NULL;
}
