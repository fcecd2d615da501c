/* model_load.c: reads what a model's tensors are, refuses what cannot be served with the reason,
 * and opens a session per worker. Control thread, before the server starts; see model.h. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "parts/model.h"
#include "parts/model_file.h"
#include "parts/model_refusal.h"

/* A free dimension's name in the graph; two of the same name have the same size in every Run. */
struct symbol {
    char name[LM_TENSOR_NAME_BYTES_MAX];
};

/* Names of a tensor's free dimensions: of the first one, and of another one that is free too. */
struct symbols {
    struct symbol first, other;
};

/* Names of the element types that ONNX Runtime numbers (ONNXTensorElementDataType), and cures. */
static const struct {
    int dtype;
    const char *name;
} not_served[] = {
    {ORT_STRING, "strings (train on numbers, such as integer labels, or map strings to numbers "
                 "outside of the model)"},
    {14, "complex64 numbers (use their real and imaginary parts)"},
    {15, "complex128 numbers (use their real and imaginary parts)"},
    {17, "float8e4m3fn numbers (cast them inside of the model)"},
    {18, "float8e4m3fnuz numbers (cast them inside of the model)"},
    {19, "float8e5m2 numbers (cast them inside of the model)"},
    {20, "float8e5m2fnuz numbers (cast them inside of the model)"},
    {21, "uint4 numbers (cast them inside of the model)"},
    {22, "int4 numbers (cast them inside of the model)"},
    {23, "float4e2m1 numbers (cast them inside of the model)"},
};

static int refuse_dtype(const struct lm_tensor *tensor, bool is_input) {
    const char *side = is_input ? "input" : "output", *name = NULL;
    for (size_t i = 0; i < sizeof not_served / sizeof not_served[0]; i++) {
        if (not_served[i].dtype == tensor->dtype) name = not_served[i].name;
    }
    if (name) {
        return lm_error(LUMEN_E_MODEL, "%s '%s': expected numbers or bools, found %s", side,
                        tensor->name, name);
    }
    return lm_error(LUMEN_E_MODEL, "%s '%s': expected numbers or bools, found ONNX element type %d",
                    side, tensor->name, tensor->dtype);
}

static int refuse_kind(const struct lm_tensor *tensor, bool is_input, int kind) {
    static const char *const kinds[] = {"nothing known", "a tensor",        "a sequence", "a map",
                                        "an opaque one", "a sparse tensor", "an optional"};
    const char *cure =
        kind == ORT_TYPE_SEQUENCE || kind == ORT_TYPE_MAP
            ? " (scikit-learn's classifiers: convert them with options={'zipmap': False})"
            : "";
    bool known = kind >= 0 && (size_t)kind < sizeof kinds / sizeof kinds[0];
    return lm_error(LUMEN_E_MODEL, "%s '%s': expected a tensor, found %s%s",
                    is_input ? "input" : "output", tensor->name,
                    known ? kinds[kind] : "something else", cure);
}

static int copy_name(const struct lm_ort *ort, char *name, char *destination) {
    size_t bytes = strlen(name) + 1;
    int code = 0;
    if (bytes > LM_TENSOR_NAME_BYTES_MAX) {
        code = lm_error(LUMEN_E_MODEL, "tensor name of %zu bytes, expected at most %d", bytes - 1,
                        LM_TENSOR_NAME_BYTES_MAX - 1);
    } else {
        memcpy(destination, name, bytes);
    }
    (void)lm_ort_check(ort, ort->api->AllocatorFree(ort->allocator, name), "freeing a name");
    return code;
}

static int read_dimensions(const struct lm_ort *ort, const OrtTensorTypeAndShapeInfo *info,
                           struct lm_tensor *tensor, struct symbols *names) {
    size_t rank = 0;
    const char *symbols[LM_RANK_MAX] = {0};
    OrtStatus *status = ort->api->GetTensorElementType(info, &tensor->dtype);
    if (!status) status = ort->api->GetDimensionsCount(info, &rank);
    if (!status && rank > LM_RANK_MAX) {
        return lm_error(LUMEN_E_MODEL, "tensor '%s': expected at most %d dimensions, found %zu",
                        tensor->name, LM_RANK_MAX, rank);
    }
    if (!status) status = ort->api->GetDimensions(info, tensor->dims, rank);
    if (!status) status = ort->api->GetSymbolicDimensions(info, symbols, rank);
    if (status) return lm_ort_check(ort, status, "reading a tensor's shape");
    tensor->rank = (uint32_t)rank;
    memset(names, 0, sizeof *names);
    for (uint32_t d = 0; d < tensor->rank; d++) {
        struct symbol *symbol = d == 0 ? &names->first : &names->other;
        if (tensor->dims[d] < 0 && symbols[d] && !symbol->name[0])
            snprintf(symbol->name, sizeof symbol->name, "%s", symbols[d]);
    }
    return 0;
}

/* Name, dtype and dimensions of one input or output, as the graph declares them. */
static int read_tensor(const struct lm_ort *ort, const OrtSession *session, bool is_input,
                       size_t at, struct lm_tensor *tensor, struct symbols *names) {
    const struct lm_ort_api *api = ort->api;
    char *name = NULL;
    OrtTypeInfo *type = NULL;
    memset(tensor, 0, sizeof *tensor);
    OrtStatus *status = is_input ? api->SessionGetInputName(session, at, ort->allocator, &name)
                                 : api->SessionGetOutputName(session, at, ort->allocator, &name);
    int code = lm_ort_check(ort, status, "reading a tensor's name");
    if (code) return code;
    code = copy_name(ort, name, tensor->name);
    if (code) return code;
    status = is_input ? api->SessionGetInputTypeInfo(session, at, &type)
                      : api->SessionGetOutputTypeInfo(session, at, &type);
    code = lm_ort_check(ort, status, "reading a tensor's type");
    if (code) return code;

    int kind = 0;
    const OrtTensorTypeAndShapeInfo *info = NULL;
    status = api->GetOnnxTypeFromTypeInfo(type, &kind);
    if (!status && kind == ORT_TYPE_TENSOR) status = api->CastTypeInfoToTensorInfo(type, &info);
    code = lm_ort_check(ort, status, "reading a tensor's type");
    if (!code && !info) code = refuse_kind(tensor, is_input, kind);
    if (!code) code = read_dimensions(ort, info, tensor, names);
    if (!code && lm_dtype_bytes(tensor->dtype) == 0) code = refuse_dtype(tensor, is_input);
    api->ReleaseTypeInfo(type);
    return code;
}

/* The size of a tensor from dimension `from` on; false when one is free or the product overflows.
 */
static bool fixed_bytes(const struct lm_tensor *tensor, uint32_t from, size_t *bytes_out) {
    size_t bytes = tensor->element_bytes;
    for (uint32_t d = from; d < tensor->rank; d++) {
        if (tensor->dims[d] < 0 || !lm_mul_size(bytes, (size_t)tensor->dims[d], &bytes))
            return false;
    }
    *bytes_out = bytes;
    return true;
}

static int refuse_free(const struct lm_tensor *tensor, uint32_t dimension,
                       const struct symbols *names) {
    const char *name = names->other.name;
    char option[2 * LM_TENSOR_NAME_BYTES_MAX];
    if (name[0]) {
        snprintf(option, sizeof option, "--dim_param %s --dim_value SIZE", name);
    } else {
        snprintf(option, sizeof option, "--input_name %s --input_shape SIZES", tensor->name);
    }
    return lm_error(LUMEN_E_MODEL,
                    "input '%s': dimension %u is free; expected fixed sizes for all but the first: "
                    "export with fixed sizes, or fix it with 'python -m "
                    "onnxruntime.tools.make_dynamic_shape_fixed %s IN.onnx OUT.onnx'",
                    tensor->name, dimension, option);
}

static int settle_input(struct lm_tensor *tensor, const struct symbols *names) {
    tensor->element_bytes = lm_dtype_bytes(tensor->dtype);
    tensor->rows_free = tensor->rank > 0 && tensor->dims[0] < 0;
    tensor->shape_known = true;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        if (tensor->dims[d] < 0 && d > 0) return refuse_free(tensor, d, names);
        if (tensor->dims[d] == 0)
            return lm_error(LUMEN_E_MODEL, "input '%s': dimension %u is 0", tensor->name, d);
    }
    if (!fixed_bytes(tensor, tensor->rows_free ? 1 : 0, &tensor->row_bytes)) {
        return lm_error(LUMEN_E_MODEL, "input '%s': its size overflows", tensor->name);
    }
    return 0;
}

/* An output follows the rows only if its free first dimension bears the name of an input's. */
static void settle_output(struct lm_tensor *tensor, const struct symbol *first,
                          const struct symbol *input_firsts, uint32_t input_count) {
    tensor->element_bytes = lm_dtype_bytes(tensor->dtype);
    bool follows = false;
    for (uint32_t i = 0; i < input_count && first->name[0]; i++) {
        follows = follows || strcmp(first->name, input_firsts[i].name) == 0;
    }
    tensor->rows_free = follows;
    tensor->shape_known = fixed_bytes(tensor, follows ? 1 : 0, &tensor->row_bytes);
    /* ONNX Runtime reports a shape that it does not know at all as one of no dimensions. */
    if (tensor->rank == 0) tensor->shape_known = false;
    if (!tensor->shape_known) tensor->rows_free = false;
}

static int read_signature(struct lm_model *model, const struct lm_ort *ort) {
    const OrtSession *session = model->sessions[0];
    size_t input_count = 0, output_count = 0;
    OrtStatus *status = ort->api->SessionGetInputCount(session, &input_count);
    if (!status) status = ort->api->SessionGetOutputCount(session, &output_count);
    int code = lm_ort_check(ort, status, "counting tensors");
    if (code) return code;
    if (input_count < 1 || input_count > LM_TENSORS_MAX || output_count < 1 ||
        output_count > LM_TENSORS_MAX) {
        return lm_error(LUMEN_E_MODEL, "expected 1 to %d inputs and outputs, found %zu and %zu",
                        LM_TENSORS_MAX, input_count, output_count);
    }
    struct symbol input_firsts[LM_TENSORS_MAX];
    struct symbols names;
    model->input_count = (uint32_t)input_count;
    model->output_count = (uint32_t)output_count;
    model->outputs_known = true;
    for (uint32_t i = 0; i < model->input_count; i++) {
        struct lm_tensor *tensor = &model->inputs[i];
        code = read_tensor(ort, session, true, i, tensor, &names);
        if (!code) code = settle_input(tensor, &names);
        if (code) return code;
        input_firsts[i] = names.first;
        model->input_names[i] = tensor->name;
        model->rows_free = model->rows_free || tensor->rows_free;
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        struct lm_tensor *tensor = &model->outputs[i];
        code = read_tensor(ort, session, false, i, tensor, &names);
        if (code) return code;
        settle_output(tensor, &names.first, input_firsts, model->input_count);
        model->output_names[i] = tensor->name;
        model->outputs_known = model->outputs_known && tensor->shape_known;
    }
    return 0;
}

/* rgb8 requests are possible when the model has one image-like input: [N,3,H,W] or [N,H,W,3]. */
static void plan_rgb8(struct lm_model *model, const lumen_model_config *config) {
    const struct lm_tensor *tensor = &model->inputs[0];
    bool one_image_a_row = tensor->rank == 4 && (tensor->rows_free || tensor->dims[0] == 1);
    bool served = tensor->dtype == ORT_FLOAT || tensor->dtype == ORT_UINT8;
    if (model->input_count != 1 || !one_image_a_row || !served) return;
    bool planar = tensor->dims[1] == 3;
    if (!planar && tensor->dims[3] != 3) return;
    int64_t height = planar ? tensor->dims[2] : tensor->dims[1];
    int64_t width = planar ? tensor->dims[3] : tensor->dims[2];
    if (height > 65535 || width > 65535) return;
    model->has_rgb8 = true;
    model->rgb8 = (struct lm_rgb8_plan){.height = (uint32_t)height,
                                        .width = (uint32_t)width,
                                        .dtype = tensor->dtype,
                                        .layout = planar ? LM_LAYOUT_NCHW : LM_LAYOUT_NHWC};
    lm_rgb8_plan_init(&model->rgb8, config->channel_order, config->mean, config->scale);
}

/* ONNX Runtime shows an input of any shape like a scalar; only the file tells them apart. */
static int check_shapes_declared(const struct lm_model *model, const char *path) {
    struct lm_mapping file;
    uint32_t at = 0;
    while (at < model->input_count && model->inputs[at].rank > 0) at++;
    if (at == model->input_count || lm_file_map(&file, path) != 0) return 0;
    int code = 0;
    for (; !code && at < model->input_count; at++) {
        if (model->inputs[at].rank > 0) continue;
        if (!lm_model_file_hides_shape(file.base, file.bytes, model->inputs[at].name)) continue;
        code = lm_error(LUMEN_E_MODEL,
                        "input '%s': expected a shape in the graph, found none: export the model "
                        "with the input's shape",
                        model->inputs[at].name);
    }
    lm_mapping_close(&file);
    return code;
}

static int check_config(const lumen_model_config *config) {
    size_t name_bytes = strlen(config->name);
    if (name_bytes < 1 || name_bytes >= LM_NAME_BYTES_MAX) {
        return lm_error(LUMEN_E_INVALID, "model name: expected 1 to %d bytes, found %zu",
                        LM_NAME_BYTES_MAX - 1, name_bytes);
    }
    if (config->intra_op_threads < 1 || config->intra_op_threads > 256) {
        return lm_error(LUMEN_E_INVALID,
                        "model '%s': intra_op_threads: expected 1 to 256, found %u", config->name,
                        config->intra_op_threads);
    }
    if (config->channel_order > LUMEN_CHANNELS_BGR) {
        return lm_error(LUMEN_E_INVALID, "model '%s': channel_order: expected 0 or 1, found %u",
                        config->name, config->channel_order);
    }
    return 0;
}

/* A list of names that fits none of the outputs belongs to another model. */
static int check_labels(const struct lm_model *model) {
    uint64_t classes = 0;
    if (model->labels.count == 0) return 0;
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        if (!output->shape_known) return 0;
        uint64_t values = output->row_bytes / output->element_bytes;
        uint64_t last = output->rank ? (uint64_t)output->dims[output->rank - 1] : 1;
        if (model->labels.count == values || model->labels.count == last) return 0;
        if (values > classes) classes = values;
    }
    return lm_error(LUMEN_E_MODEL, "labels: expected a line for each of %llu classes, found %u",
                    (unsigned long long)classes, model->labels.count);
}

int lm_model_open(struct lm_model *model, const struct lm_ort *ort,
                  const lumen_model_config *config, uint32_t index, uint32_t session_count) {
    memset(model, 0, sizeof *model);
    int code = check_config(config);
    if (code) return code;
    code = lm_labels_open(&model->labels, config->labels, config->label_bytes);
    if (code) return code;
    memcpy(model->name, config->name, strlen(config->name) + 1);
    model->index = index;
    model->channel_order = config->channel_order;
    model->max_output_bytes = config->max_output_bytes;
    code = lm_ort_source_open(&model->source, ort, config->path, config->cache_path,
                              (int)config->intra_op_threads);
    for (uint32_t s = 0; !code && s < session_count; s++) {
        code = lm_ort_session_open(ort, &model->source, &model->sessions[s]);
        if (!code) model->session_count++;
        if (!code && s == 0) code = read_signature(model, ort);
        if (!code && s == 0) code = check_shapes_declared(model, config->path);
        if (!code && s == 0) lm_model_try_rows(model, ort);
    }
    if (!code) code = check_labels(model);
    if (code) {
        lm_model_close(model, ort);
        char reason[768];
        lm_model_refusal(config->path, reason, sizeof reason);
        return lm_error(code, "model '%s' (%s) cannot be served: %s", config->name, config->path,
                        reason);
    }
    plan_rgb8(model, config);
    model->max_rows = !model->rows_free ? 1 : config->max_rows ? config->max_rows : LM_ROWS_MAX;
    return 0;
}

void lm_model_close(struct lm_model *model, const struct lm_ort *ort) {
    for (uint32_t s = 0; s < model->session_count; s++)
        lm_ort_session_close(ort, model->sessions[s]);
    lm_ort_source_close(&model->source);
    lm_labels_close(&model->labels);
    model->session_count = 0;
}
