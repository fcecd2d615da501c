/* oip_models.h: models made by hand for the tests of the Open Inference Protocol. */
#ifndef TESTS_C_OIP_MODELS_H
#define TESTS_C_OIP_MODELS_H

#include "check.h"
#include "models/model.h"

/* dims[0] -1: rows. */
static inline struct lm_tensor oip_tensor(const char *name, int dtype, uint32_t rank,
                                          const int64_t *dims) {
    struct lm_tensor tensor = {.dtype = dtype, .rank = rank, .shape_known = true};
    snprintf(tensor.name, sizeof tensor.name, "%s", name);
    tensor.element_bytes = lm_dtype_bytes(dtype);
    tensor.row_bytes = tensor.element_bytes;
    for (uint32_t d = 0; d < rank; d++) {
        tensor.dims[d] = dims[d];
        if (dims[d] >= 0) tensor.row_bytes *= (size_t)dims[d];
    }
    tensor.rows_free = rank > 0 && dims[0] < 0;
    return tensor;
}

#define OIP_TENSOR(name, dtype, ...)                                            \
    oip_tensor(name, dtype, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
               (int64_t[]){__VA_ARGS__})

/* A model that was made before keeps its memory. */
static inline void oip_model(struct lm_model *model, const char *name, uint32_t max_rows) {
    struct lm_model old = *model;
    memset(model, 0, sizeof *model);
    if (!old.inputs) CHECK(lm_model_hold_tensors(&old, LM_TENSORS_MAX, LM_TENSORS_MAX) == 0);
    model->inputs = old.inputs;
    model->outputs = old.outputs;
    snprintf(model->name, sizeof model->name, "%s", name);
    snprintf(model->base, sizeof model->base, "%.*s", (int)strcspn(name, ":"), name);
    model->version = 1;
    model->max_rows = max_rows;
    model->rows_free = max_rows > 1;
    model->outputs_known = true;
    model->batch_size = 1;
    model->max_output_bytes = 4096;
}

/* Each of them, as those who have several take them. */
static inline struct lm_model *const *oip_pointers(struct lm_model *models, uint32_t count) {
    static struct lm_model *pointers[LUMEN_MODELS_MAX];
    for (uint32_t m = 0; m < count; m++) pointers[m] = &models[m];
    return pointers;
}

static inline void oip_input(struct lm_model *model, struct lm_tensor tensor) {
    model->inputs[model->input_count++] = tensor;
}

static inline void oip_output(struct lm_model *model, struct lm_tensor tensor) {
    model->outputs[model->output_count++] = tensor;
}

/* Calls of malloc and its like since the start. Sanitizers bring their own: there it stays 0. */
static uint64_t oip_allocations;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *malloc(size_t bytes) {
    oip_allocations++;
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
    oip_allocations++;
    return __libc_calloc(count, bytes);
}
void *realloc(void *block, size_t bytes) {
    oip_allocations++;
    return __libc_realloc(block, bytes);
}
#endif

#endif
