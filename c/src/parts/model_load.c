/* model_load.c: reads what a model's tensors are, refuses what cannot be served with the reason,
 * and opens a session per worker. Control thread, before the server starts; see model.h. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "parts/model.h"
#include "parts/model_file.h"
#include "parts/model_refusal.h"

/* Names of a tensor's free dimensions in the graph; "" where it has none. Dimensions of the same
 * name have the same size in every Run. */
struct symbols {
    char of[LM_RANK_MAX][LM_TENSOR_NAME_BYTES_MAX];
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
    const char *cure = kind == ORT_TYPE_SEQUENCE || kind == ORT_TYPE_MAP
                           ? " (scikit-learn's classifiers: install onnx, or convert them with "
                             "options={'zipmap': False})"
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
        if (tensor->dims[d] < 0 && symbols[d])
            snprintf(names->of[d], sizeof names->of[d], "%s", symbols[d]);
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

/* Gives dimension d of an input its free dimension, a new one unless the graph repeats its name. */
static int take_free(struct lm_model *model, struct lm_tensor *tensor, uint32_t d,
                     const struct symbols *names) {
    char name[LM_TENSOR_NAME_BYTES_MAX];
    if (names->of[d][0]) {
        memcpy(name, names->of[d], sizeof name);
    } else {
        snprintf(name, sizeof name, "%.240s[%u]", tensor->name, d);
    }
    uint32_t f = lm_model_find_free(model, name);
    if (f == LM_FREE_DIMS_MAX) {
        return lm_error(LUMEN_E_MODEL,
                        "input '%s': dimension %u is free, and %d others of other names are: "
                        "expected at most %d beside the rows; give one a size with fix_dims",
                        tensor->name, d, LM_FREE_DIMS_MAX, LM_FREE_DIMS_MAX);
    }
    if (f == model->free_count) {
        memcpy(model->free_dims[f].name, name, sizeof name);
        model->free_count++;
    }
    tensor->free[d] = (uint8_t)(f + 1);
    tensor->varies = true;
    return 0;
}

/* The rows are the first free first dimension among the inputs. A name that also stands at another
 * place means more than rows: that is a free dimension like any other. */
static void find_rows(struct lm_model *model, const struct symbols *names) {
    for (uint32_t i = 0; i < model->input_count && !model->rows_name[0]; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        if (input->rank == 0 || input->dims[0] >= 0) continue;
        bool repeated = false;
        for (uint32_t o = 0; o < model->input_count; o++) {
            for (uint32_t d = 1; d < model->inputs[o].rank; d++)
                repeated = repeated || (names[i].of[0][0] && model->inputs[o].dims[d] < 0 &&
                                        strcmp(names[i].of[0], names[o].of[d]) == 0);
        }
        if (!repeated) memcpy(model->rows_name, names[i].of[0], sizeof model->rows_name);
    }
}

static bool is_rows(const struct lm_model *model, const char *name) {
    return !name[0] || strcmp(name, model->rows_name) == 0;
}

static int take_input(struct lm_model *model, struct lm_tensor *tensor,
                      const struct symbols *names) {
    tensor->element_bytes = lm_dtype_bytes(tensor->dtype);
    tensor->row_bytes = tensor->element_bytes;
    tensor->rows_free = tensor->rank > 0 && tensor->dims[0] < 0 && is_rows(model, names->of[0]);
    tensor->shape_known = true;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        if (tensor->dims[d] == 0)
            return lm_error(LUMEN_E_MODEL, "input '%s': dimension %u is 0", tensor->name, d);
        if (tensor->dims[d] > 0 &&
            !lm_mul_size(tensor->row_bytes, (size_t)tensor->dims[d], &tensor->row_bytes))
            return lm_error(LUMEN_E_MODEL, "input '%s': its size overflows", tensor->name);
        if (tensor->dims[d] > 0 || (d == 0 && tensor->rows_free)) continue;
        int code = take_free(model, tensor, d, names);
        if (code) return code;
    }
    return 0;
}

/* An output follows the sizes of a request if each of its free dimensions bears the name of an
 * input's: the first one that of the rows, or of another. */
static void take_output_shape(const struct lm_model *model, struct lm_tensor *tensor,
                              const struct symbols *names) {
    tensor->element_bytes = lm_dtype_bytes(tensor->dtype);
    tensor->row_bytes = tensor->element_bytes;
    /* ONNX Runtime reports a shape that it does not know at all as one of no dimensions. */
    tensor->shape_known = tensor->rank > 0;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        const char *name = names->of[d];
        if (tensor->dims[d] >= 0) {
            if (!lm_mul_size(tensor->row_bytes, (size_t)tensor->dims[d], &tensor->row_bytes))
                tensor->shape_known = false;
            continue;
        }
        uint32_t f = name[0] ? lm_model_find_free(model, name) : model->free_count;
        if (d == 0 && model->rows_free && name[0] && is_rows(model, name)) {
            tensor->rows_free = true;
        } else if (f < model->free_count) {
            tensor->free[d] = (uint8_t)(f + 1);
            tensor->varies = true;
        } else {
            tensor->shape_known = false;
        }
    }
    if (!tensor->shape_known) tensor->rows_free = tensor->varies = false;
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
    struct symbols names[LM_TENSORS_MAX];
    model->input_count = (uint32_t)input_count;
    model->output_count = (uint32_t)output_count;
    model->outputs_known = true;
    for (uint32_t i = 0; i < model->input_count; i++) {
        code = read_tensor(ort, session, true, i, &model->inputs[i], &names[i]);
        if (code) return code;
        model->input_names[i] = model->inputs[i].name;
    }
    find_rows(model, names);
    for (uint32_t i = 0; i < model->input_count; i++) {
        code = take_input(model, &model->inputs[i], &names[i]);
        if (code) return code;
        model->rows_free = model->rows_free || model->inputs[i].rows_free;
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        struct lm_tensor *tensor = &model->outputs[i];
        code = read_tensor(ort, session, false, i, tensor, &names[0]);
        if (code) return code;
        take_output_shape(model, tensor, &names[0]);
        model->output_names[i] = tensor->name;
        model->outputs_known = model->outputs_known && tensor->shape_known;
    }
    return 0;
}

/* rgb8 requests are possible when the model has one image-like input: [N,3,H,W] or [N,H,W,3]. */
static void plan_rgb8(struct lm_model *model, const lumen_model_config *config) {
    const struct lm_tensor *tensor = &model->inputs[0];
    bool one_image_a_row =
        tensor->rank == 4 && !tensor->varies && (tensor->rows_free || tensor->dims[0] == 1);
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
    for (uint32_t d = 0; d < config->dim_count; d++) {
        if (config->dims[d].size >= 1 && config->dims[d].size <= INT32_MAX) continue;
        return lm_error(LUMEN_E_INVALID, "model '%s': dimension '%s': expected 1 to %d, found %u",
                        config->name, config->dims[d].name, INT32_MAX, config->dims[d].size);
    }
    return 0;
}

/* The sessions of all workers, and what the first one says of the graph. */
static int open_sessions(struct lm_model *model, const struct lm_ort *ort, uint32_t count) {
    int code = lm_ort_session_open(ort, &model->source, &model->sessions[0]);
    if (code) return code;
    model->session_count = 1;
    code = read_signature(model, ort);
    if (!code && model->free_count > 0) {
        /* Plans of memory are kept for each shape that ever came. */
        model->source.shapes_vary = true;
        lm_ort_session_close(ort, model->sessions[0]);
        model->sessions[0] = NULL;
        code = lm_ort_session_open(ort, &model->source, &model->sessions[0]);
    }
    for (uint32_t s = 1; !code && s < count; s++) {
        code = lm_ort_session_open(ort, &model->source, &model->sessions[s]);
        if (!code) model->session_count++;
    }
    return code;
}

/* A list of names that fits none of the outputs belongs to another model. */
static int check_labels(const struct lm_model *model) {
    uint64_t classes = 0;
    if (model->labels.count == 0) return 0;
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        if (!output->shape_known || output->varies) return 0;
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
    code = lm_ort_source_open(&model->source, ort, config);
    if (!code) code = open_sessions(model, ort, session_count);
    if (!code) code = check_shapes_declared(model, config->path);
    if (!code) code = lm_model_limit_sizes(model, config);
    if (!code) lm_model_try_sizes(model, ort);
    if (!code) code = check_labels(model);
    if (code) {
        lm_model_close(model, ort);
        char reason[768];
        lm_model_refusal(config->path, reason, sizeof reason);
        return lm_error(code, "model '%s' (%s) cannot be served: %s", config->name, config->path,
                        reason);
    }
    plan_rgb8(model, config);
    return 0;
}

void lm_model_close(struct lm_model *model, const struct lm_ort *ort) {
    for (uint32_t s = 0; s < model->session_count; s++)
        lm_ort_session_close(ort, model->sessions[s]);
    lm_ort_source_close(&model->source);
    lm_labels_close(&model->labels);
    model->session_count = 0;
}
