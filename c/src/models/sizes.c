/* sizes.c: see sizes.h. */
#include "models/sizes.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

struct lm_sizes lm_model_largest(const struct lm_model *model, uint32_t rows) {
    struct lm_sizes sizes = {.rows = rows};
    for (uint32_t f = 0; f < model->free_count; f++)
        sizes.free[model->free_dims[f].place] = model->free_dims[f].max;
    return sizes;
}

struct lm_sizes lm_model_smallest(const struct lm_model *model, uint32_t rows) {
    struct lm_sizes sizes = {.rows = rows};
    for (uint32_t f = 0; f < model->free_count; f++) sizes.free[model->free_dims[f].place] = 1;
    return sizes;
}

uint64_t lm_model_row_elements(const struct lm_model *model, const struct lm_sizes *sizes) {
    struct lm_sizes row = *sizes;
    uint64_t elements = 0;
    row.rows = 1;
    for (uint32_t i = 0; i < model->input_count; i++) {
        size_t bytes = 0;
        if (lm_tensor_bytes(&model->inputs[i], &row, &bytes))
            elements += bytes / model->inputs[i].element_bytes;
    }
    return elements ? elements : 1;
}

bool lm_model_row_of_bytes(const struct lm_model *model, uint64_t bytes,
                           struct lm_sizes *sizes_out) {
    const struct lm_tensor *input = &model->inputs[0];
    uint32_t places = 0;
    for (uint32_t d = 0; d < input->rank; d++) places += input->free[d] != 0;
    if (model->input_count != 1 || model->free_count != 1 || places != 1) return false;
    uint64_t size = bytes / input->row_bytes;
    *sizes_out = (struct lm_sizes){.rows = 1, .free = {(uint32_t)size}};
    return size >= 1 && size <= model->free_dims[0].max && size * input->row_bytes == bytes;
}

uint32_t lm_model_find_free(const struct lm_model *model, const char *name) {
    uint32_t f = 0;
    while (f < model->free_count && strcmp(model->free_dims[f].name, name) != 0) f++;
    return f;
}

/* ---- the largest sizes ---- */

static bool has_free(const struct lm_tensor *tensor, uint32_t f) {
    bool has = false;
    for (uint32_t d = 0; d < tensor->rank; d++) has = has || tensor->free[d] == f + 1;
    return has;
}

/* Token ids are rows of integers, and words may be strings: their length is a sentence's. Pairs of
 * numbers beside other sizes are the edges of a graph. */
static bool is_of_tokens(const struct lm_model *model, uint32_t f) {
    bool tokens = false;
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        bool ids = input->dtype == ORT_INT64 || input->dtype == ORT_INT32 || lm_is_string(input);
        bool are_edges = input->rank == 2 && input->dims[0] == 2 && model->free_count > 1;
        tokens = tokens || (ids && input->rank <= 2 && !are_edges && has_free(input, f));
    }
    return tokens;
}

/* The largest size at which no input exceeds LM_FREE_ROW_BYTES, all free dimensions being so
 * large; a power of two. Inputs of any rank have bounds of their own. */
static uint32_t size_by_bytes(const struct lm_model *model) {
    uint32_t size = LM_FREE_SIZE_MAX;
    for (;; size /= 2) {
        struct lm_sizes sizes = {.rows = 1};
        bool fits = true;
        for (uint32_t f = 0; f < model->free_count; f++)
            sizes.free[f] = model->free_dims[f].is_any_rank ? 0 : size;
        for (uint32_t i = 0; i < model->input_count; i++) {
            size_t bytes = SIZE_MAX;
            fits = fits && lm_tensor_bytes(&model->inputs[i], &sizes, &bytes) &&
                   bytes <= LM_FREE_ROW_BYTES;
        }
        if (fits || size == 1) return size;
    }
}

/* The most elements of the input of any rank that this bounds. */
static uint32_t elements_by_bytes(const struct lm_model *model, uint32_t f) {
    size_t each = LM_FREE_ROW_BYTES;
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        if (input->any_rank == f + 1)
            each = lm_is_string(input) ? LM_STRING_PLANNED_BYTES : input->element_bytes;
    }
    return (uint32_t)(LM_FREE_ROW_BYTES / each);
}

static int refuse_dimension(const struct lm_model *model, const char *setting, const char *name) {
    char known[512] = "";
    size_t used = 0;
    for (uint32_t f = 0; f < model->free_count && used < sizeof known; f++) {
        used += (size_t)snprintf(known + used, sizeof known - used, "%s'%.64s'", f ? ", " : "",
                                 model->free_dims[f].name);
    }
    if (model->rows_name[0] && used < sizeof known)
        snprintf(known + used, sizeof known - used, "%s'%.64s'", used ? ", " : "",
                 model->rows_name);
    return lm_error(LUMEN_E_INVALID, "%s: expected %s%s, found '%.64s'", setting,
                    known[0] ? "names of free dimensions: " : "none, since no dimension is free",
                    known, name);
}

/* ONNX Runtime passes over a name that the graph does not have. Where the name is used, its bytes
 * are in the file; where it is still free, the file is no ONNX graph any more. */
static int check_fixed(const struct lm_model *model, const lumen_model_config *config) {
    struct lm_mapping file;
    if (config->dim_count == 0) return 0;
    int code = lm_file_read(&file, config->path);
    for (uint32_t d = 0; !code && d < config->dim_count; d++) {
        const lumen_dim *dim = &config->dims[d];
        if (!dim->fixed) continue;
        bool is_free = lm_model_find_free(model, dim->name) < model->free_count ||
                       (model->rows_free && strcmp(dim->name, model->rows_name) == 0);
        if (is_free) {
            code = lm_error(LUMEN_E_INVALID,
                            "fix_dims: '%.64s' can be fixed by a name that an .onnx file gives it, "
                            "found %s",
                            dim->name,
                            strchr(dim->name, '[') ? "none (max_dims bounds it)" : "an .ort");
        } else if (!memmem(file.base, file.bytes, dim->name, strlen(dim->name))) {
            code = refuse_dimension(model, "fix_dims", dim->name);
        }
    }
    lm_mapping_close(&file);
    return code;
}

int lm_model_limit_sizes(struct lm_model *model, const lumen_model_config *config) {
    uint32_t size = size_by_bytes(model);
    uint32_t most = !model->rows_free ? 1 : model->free_count ? LM_FREE_ROWS : LM_ROWS_MAX;
    model->max_rows = model->rows_free && config->max_rows ? config->max_rows : most;
    for (uint32_t f = 0; f < model->free_count; f++) {
        struct lm_free_dim *dim = &model->free_dims[f];
        dim->by_default = true;
        dim->max = dim->is_any_rank         ? elements_by_bytes(model, f)
                   : is_of_tokens(model, f) ? LM_FREE_TOKENS
                                            : size;
    }
    for (uint32_t c = 0; c < config->dim_count; c++) {
        const lumen_dim *set = &config->dims[c];
        uint32_t f = lm_model_find_free(model, set->name);
        if (set->fixed) continue;
        if (f < model->free_count) {
            model->free_dims[f].max = set->size;
            model->free_dims[f].by_default = false;
        } else if (model->rows_name[0] && strcmp(set->name, model->rows_name) == 0) {
            model->max_rows = set->size;
        } else {
            return refuse_dimension(model, "max_dims", set->name);
        }
    }
    return check_fixed(model, config);
}
