/* fuzz_request.h: what the targets that read a request's JSON share: models, and the steps from any
 * bytes to their tensors. The first byte chooses the model, the rest is the text. What must hold:
 * no sanitizer speaks, and what was read is possible.
 */
#ifndef TESTS_FUZZ_FUZZ_REQUEST_H
#define TESTS_FUZZ_FUZZ_REQUEST_H

#include "base/cxx.h"
#include "fuzz.h"
extern "C" {
#include "formats/oip_request.h"
#include "models/strings.h"
}

constexpr size_t TEXT_MAX = 1 << 16;

/* A model of up to 4 rows; free sizes have one name and are at most 3. It has no tensors yet. */
inline void make_model(struct lm_model &model) {
    HOLDS(lm_model_hold_tensors(&model, 3, 2) == 0);
    snprintf(model.name, sizeof model.name, "m");
    model.max_rows = 4;
    model.max_output_bytes = 64;
    snprintf(model.free_dims[0].name, sizeof model.free_dims[0].name, "length");
    model.free_dims[0].max = 3;
}

inline struct lm_tensor make_tensor(const char *name, int dtype, uint32_t rank,
                                    const int64_t *dims) {
    struct lm_tensor made = {};
    snprintf(made.name, sizeof made.name, "%s", name);
    made.dtype = dtype;
    made.rank = rank;
    made.shape_known = true;
    made.element_bytes = made.row_bytes = lm_dtype_bytes(dtype);
    for (uint32_t d = 0; d < rank; d++) {
        made.dims[d] = dims[d];
        made.rows_free = made.rows_free || (d == 0 && dims[d] < 0);
        if (dims[d] > 0) made.row_bytes *= (size_t)dims[d];
        if (d == 0 || dims[d] > 0) continue;
        made.free[d] = 1;
        made.varies = true;
    }
    return made;
}

inline void add_input(struct lm_model &model, const char *name, int dtype, uint32_t rank,
                      const int64_t *dims) {
    const struct lm_tensor made = make_tensor(name, dtype, rank, dims);
    model.inputs[model.input_count++] = made;
    model.rows_free = model.rows_free || made.rows_free;
    model.string_inputs += lm_is_string(&made);
    if (made.varies) model.free_count = 1;
}

inline void add_output(struct lm_model &model, const char *name, int dtype, uint32_t rank,
                       const int64_t *dims) {
    model.outputs[model.output_count++] = make_tensor(name, dtype, rank, dims);
}

/* The same models with inputs of any rank, which share the sizes of a request. */
inline const struct lm_model *with_any_ranks(const struct lm_model *models, size_t count) {
    static struct lm_model copies[16];
    HOLDS(count <= sizeof copies / sizeof copies[0]);
    for (size_t m = 0; m < count && !copies[m].inputs; m++) {
        struct lm_model &copy = copies[m];
        copy = models[m];
        HOLDS(lm_model_hold_tensors(&copy, models[m].input_count, models[m].output_count) == 0);
        memcpy(copy.outputs, models[m].outputs, copy.output_count * sizeof copy.outputs[0]);
        copy.any_rank = true;
        copy.rows_free = false;
        for (uint32_t i = 0; i < copy.input_count; i++) {
            struct lm_tensor &input = copy.inputs[i];
            input = make_tensor(models[m].inputs[i].name, models[m].inputs[i].dtype, 0, nullptr);
            input.any_rank = (uint8_t)(i + 1);
            input.rank = LM_FREE_DIMS_MAX / copy.input_count;
            input.varies = true;
            snprintf(copy.free_dims[i].name, sizeof copy.free_dims[i].name, "any%u", i);
            copy.free_dims[i].is_any_rank = true;
            copy.free_dims[i].max = 3 * (i + 1);
            copy.free_dims[i].place = (uint8_t)(i * input.rank);
            for (uint32_t d = 0; d < input.rank; d++) {
                input.dims[d] = -1;
                input.free[d] = (uint8_t)(copy.free_dims[i].place + d + 1);
            }
        }
        copy.free_count = copy.input_count;
    }
    return copies;
}

/* The functions under test, and what else must hold of a request that was read, and of its
 * tensors. */
struct request_reader {
    decltype(&lm_oip_read) read;
    enum lm_status (*strings_bytes)(struct lm_oip_parser *parser,
                                    const struct lm_oip_request *request,
                                    const struct lm_model *model, size_t bytes_out[], char *why,
                                    size_t why_bytes);
    decltype(&lm_oip_values) values;
    void (*check_read)(const struct lm_model *model, const struct lm_oip_request *request);
    void (*check_values)(const struct lm_model *model, const struct lm_oip_request *request,
                         void *const *inputs, const size_t *string_bytes);
};

inline void check_sizes(const struct lm_model *model, const struct lm_oip_request *request) {
    HOLDS(request->sizes.rows >= 1 && request->sizes.rows <= model->max_rows);
    for (uint32_t f = 0; !model->any_rank && f < model->free_count; f++)
        HOLDS(request->sizes.free[f] >= 1 && request->sizes.free[f] <= model->free_dims[f].max);
    for (uint32_t i = 0; model->any_rank && i < model->input_count; i++) {
        size_t bytes = 0;
        HOLDS(lm_tensor_bytes(&model->inputs[i], &request->sizes, &bytes));
        HOLDS(bytes >= 1 && bytes <= model->free_dims[i].max * model->inputs[i].element_bytes);
    }
}

/* Strings fill what was asked for to the last byte. */
inline void check_strings(const struct lm_model *model, const struct lm_oip_request *request,
                          void *const *inputs, const size_t *string_bytes) {
    char why[LM_TEXT_BYTES_MAX] = "";
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        if (!lm_is_string(input) || string_bytes[i] == 0) continue;
        const uint8_t *at = (const uint8_t *)inputs[i], *end = at + string_bytes[i];
        size_t least = 0;
        HOLDS(lm_tensor_bytes(input, &request->sizes, &least));
        HOLDS(lm_strings_walk("a", &at, end, least / input->element_bytes, why, sizeof why));
        HOLDS(at == end);
    }
}

/* Memory is of exactly the promised size, so that a step too far is seen. */
inline enum lm_status read_tensors(const request_reader &reader, struct lm_oip_parser *parser,
                                   const struct lm_model *model,
                                   const struct lm_oip_request *request, char *why,
                                   size_t why_bytes) {
    void *inputs[LM_TENSORS_MAX] = {};
    size_t string_bytes[LM_TENSORS_MAX];
    enum lm_status status =
        reader.strings_bytes(parser, request, model, string_bytes, why, why_bytes);
    if (status != LM_STATUS_OK) return status;
    for (uint32_t i = 0; i < model->input_count; i++) {
        size_t bytes = string_bytes[i];
        if (!lm_is_string(&model->inputs[i]))
            HOLDS(lm_tensor_bytes(&model->inputs[i], &request->sizes, &bytes));
        inputs[i] = malloc(bytes);
    }
    status = reader.values(parser, request, model, inputs, why, why_bytes);
    if (status == LM_STATUS_OK) {
        check_strings(model, request, inputs, string_bytes);
        reader.check_values(model, request, inputs, string_bytes);
    }
    for (void *input : inputs) free(input);
    return status;
}

inline int fuzz_request(const request_reader &reader, const struct lm_model *models, size_t count,
                        const uint8_t *bytes, size_t bytes_count) {
    static struct lm_oip_parser *parser;
    if (!parser) HOLDS(lm_oip_parser_open(&parser, TEXT_MAX) == 0);
    if (bytes_count < 1 || bytes_count > TEXT_MAX) return 0;
    const struct lm_model *model = &models[bytes[0] % count];
    if (bytes[0] >= 128) model = &with_any_ranks(models, count)[bytes[0] % count];
    const size_t text_bytes = bytes_count - 1;
    char *text = (char *)malloc(text_bytes + LM_OIP_PADDING);
    memcpy(text, bytes + 1, text_bytes);
    memset(text + text_bytes, ']', LM_OIP_PADDING);
    char why[LM_TEXT_BYTES_MAX] = "";
    struct lm_oip_request request;
    struct lm_oip_lists lists;
    lm_oip_request_hold(&request, &lists);
    enum lm_status status = reader.read(parser, text, text_bytes, model, &request, why, sizeof why);
    if (status == LM_STATUS_OK) {
        check_sizes(model, &request);
        reader.check_read(model, &request);
        status = read_tensors(reader, parser, model, &request, why, sizeof why);
    }
    HOLDS(status == LM_STATUS_OK || why[0] != '\0');
    free(text);
    return 0;
}

#endif
