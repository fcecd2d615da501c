/* fuzz_oip_request.cc: any bytes as an Open Inference Protocol request. The first byte chooses the
 * model, the rest is the text. What must hold: no sanitizer speaks, and what was read is possible.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/cxx.h"
extern "C" {
#include "parts/oip_request.h"
}

namespace {

constexpr size_t TEXT_MAX = 1 << 16;
constexpr int dtypes[] = {ORT_FLOAT, ORT_DOUBLE, ORT_INT8,  ORT_UINT8,  ORT_INT16, ORT_UINT16,
                          ORT_INT32, ORT_UINT32, ORT_INT64, ORT_UINT64, ORT_BOOL,  ORT_FLOAT16};
constexpr uint32_t MODELS = sizeof dtypes / sizeof dtypes[0];

struct lm_model models[MODELS];
struct lm_oip_parser *parser;

void check(bool condition) {
    if (!condition) abort();
}

struct lm_tensor tensor(const char *name, int dtype, uint32_t columns) {
    struct lm_tensor made = {};
    snprintf(made.name, sizeof made.name, "%s", name);
    made.dtype = dtype;
    made.rank = 2;
    made.dims[0] = -1;
    made.dims[1] = columns;
    made.rows_free = made.shape_known = true;
    made.element_bytes = lm_dtype_bytes(dtype);
    made.row_bytes = made.element_bytes * columns;
    return made;
}

/* The columns of both inputs are free, and of one name. */
void free_columns(struct lm_model &model) {
    snprintf(model.free_dims[0].name, sizeof model.free_dims[0].name, "columns");
    model.free_dims[0].max = 3;
    model.free_count = 1;
    for (uint32_t i = 0; i < model.input_count; i++) {
        struct lm_tensor &input = model.inputs[i];
        input.dims[1] = -1;
        input.row_bytes = input.element_bytes;
        input.free[1] = 1;
        input.varies = true;
    }
}

/* Input "a" has the model's type; "b" is there in every other model; every fourth has free columns.
 */
void make_models() {
    for (uint32_t m = 0; m < MODELS; m++) {
        snprintf(models[m].name, sizeof models[m].name, "m");
        models[m].max_rows = 4;
        models[m].rows_free = true;
        models[m].max_output_bytes = 64;
        models[m].inputs[0] = tensor("a", dtypes[m], 2);
        models[m].inputs[1] = tensor("b", ORT_FLOAT, 1);
        models[m].input_count = 1 + m % 2;
        models[m].outputs[0] = tensor("x", ORT_FLOAT, 5);
        models[m].outputs[1] = tensor("y", ORT_FLOAT16, 1);
        models[m].output_count = 1 + m % 2;
        if (m % 4 == 3) free_columns(models[m]);
    }
}

void check_read(const struct lm_model *model, const struct lm_oip_request *request) {
    check(request->sizes.rows >= 1 && request->sizes.rows <= model->max_rows);
    for (uint32_t f = 0; f < model->free_count; f++)
        check(request->sizes.free[f] >= 1 && request->sizes.free[f] <= model->free_dims[f].max);
    check(request->blob_count + request->value_count == model->input_count);
    check(request->requested_count >= 1 && request->requested_count <= model->output_count);
    check(request->id_bytes <= LM_OIP_ID_BYTES_MAX);
    for (uint32_t i = 0; i < request->id_bytes; i++) check((uint8_t)request->id[i] >= 0x20);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
    if (!parser) {
        make_models();
        check(lm_oip_parser_open(&parser, TEXT_MAX) == 0);
    }
    if (count < 1 || count > TEXT_MAX) return 0;
    const struct lm_model *model = &models[bytes[0] % MODELS];
    const size_t text_bytes = count - 1;
    /* Memory of exactly the promised size, so that a step too far is seen. */
    char *text = (char *)malloc(text_bytes + LM_OIP_PADDING);
    memcpy(text, bytes + 1, text_bytes);
    memset(text + text_bytes, ']', LM_OIP_PADDING);
    char why[LM_TEXT_BYTES_MAX] = "";
    struct lm_oip_request request;
    if (lm_oip_read(parser, text, text_bytes, model, &request, why, sizeof why) == LM_STATUS_OK) {
        void *inputs[LM_TENSORS_MAX] = {};
        check_read(model, &request);
        for (uint32_t i = 0; i < model->input_count; i++) {
            size_t input_bytes = 0;
            check(lm_tensor_bytes(&model->inputs[i], &request.sizes, &input_bytes));
            inputs[i] = malloc(input_bytes);
        }
        if (lm_oip_values(parser, &request, model, inputs, why, sizeof why)) check(why[0] != '\0');
        for (void *input : inputs) free(input);
    } else {
        check(why[0] != '\0');
    }
    free(text);
    return 0;
}
