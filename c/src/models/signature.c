/* signature.c: what a model's first session says of its inputs and outputs: names, types,
 * dimensions, and which of them are free. See model.h; models/load.c calls it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/load.h"
#include "models/model.h"
#include "models/sequences_open.h"
#include "models/sizes.h"
#include "onnx/model_file.h"

/* Names of a tensor's free dimensions in the graph; "" where it has none. Dimensions of the same
 * name have the same size in every Run. */
struct symbols {
    char of[LM_RANK_MAX][LM_TENSOR_NAME_BYTES_MAX];
    bool hidden; /* the graph has no shape for this input */
};

/* Names of the element types that ONNX Runtime numbers (ONNXTensorElementDataType), and cures. */
static const struct {
    int dtype;
    const char *name;
} not_served[] = {
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
        return lm_error(LUMEN_E_MODEL, "%s '%s': expected numbers, bools or strings, found %s",
                        side, tensor->name, name);
    }
    return lm_error(LUMEN_E_MODEL,
                    "%s '%s': expected numbers, bools or strings, found ONNX element type %d", side,
                    tensor->name, tensor->dtype);
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

/* Exporters write these where a dimension has no name: two such dimensions are independent.
 * PaddlePaddle's call each of them "?". */
static bool is_placeholder(const char *name) {
    static const char *const known[] = {"?",    "*",   "_",       "-1",      "None",
                                        "none", "unk", "unknown", "dynamic", "any"};
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        if (strcmp(name, known[k]) == 0) return true;
    }
    return false;
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
        if (tensor->dims[d] < 0 && symbols[d] && !is_placeholder(symbols[d]))
            snprintf(names->of[d], sizeof names->of[d], "%s", symbols[d]);
    }
    return 0;
}

/* Where a session lists a tensor. */
enum place { INPUT, OUTPUT, OPTIONAL };

/* Name, dtype and dimensions of one input or output, as the graph declares them. */
static int read_tensor(const struct lm_ort *ort, const OrtSession *session, enum place place,
                       size_t at, struct lm_tensor *tensor, struct symbols *names) {
    const bool is_input = place != OUTPUT;
    const struct lm_ort_api *api = ort->api;
    char *name = NULL;
    OrtTypeInfo *type = NULL;
    memset(tensor, 0, sizeof *tensor);
    OrtStatus *(*const name_of[])(const OrtSession *, size_t, OrtAllocator *, char **) = {
        [INPUT] = api->SessionGetInputName,
        [OUTPUT] = api->SessionGetOutputName,
        [OPTIONAL] = api->SessionGetOverridableInitializerName};
    OrtStatus *(*const type_of[])(const OrtSession *, size_t, OrtTypeInfo **) = {
        [INPUT] = api->SessionGetInputTypeInfo,
        [OUTPUT] = api->SessionGetOutputTypeInfo,
        [OPTIONAL] = api->SessionGetOverridableInitializerTypeInfo};
    OrtStatus *status = name_of[place](session, at, ort->allocator, &name);
    int code = lm_ort_check(ort, status, "reading a tensor's name");
    if (code) return code;
    code = copy_name(ort, name, tensor->name);
    if (code) return code;
    status = type_of[place](session, at, &type);
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
        model->free_dims[f].place = (uint8_t)f;
        model->free_count++;
    }
    tensor->free[d] = (uint8_t)(f + 1);
    tensor->varies = true;
    return 0;
}

/* Whether a dimension of this name stands at another place than the first. */
static bool stands_elsewhere(const struct lm_model *model, const struct symbols *names,
                             const char *name) {
    for (uint32_t i = 0; name[0] && i < model->input_count; i++) {
        for (uint32_t d = 1; d < model->inputs[i].rank; d++) {
            if (model->inputs[i].dims[d] < 0 && strcmp(name, names[i].of[d]) == 0) return true;
        }
    }
    return false;
}

/* Whether an input has a first dimension of its own beside free ones: it has no part of the rows,
 * as the edges [2, edges] of a graph of atoms. A list of fixed size is a parameter. */
static bool has_other_first(const struct lm_tensor *input) {
    bool free = false;
    for (uint32_t d = 1; d < input->rank; d++) free = free || input->dims[d] < 0;
    return input->rank > 0 && input->dims[0] > 1 && free;
}

/* The rows are the free first dimension of all inputs that have one. There are none where two
 * inputs give it different names, where its name also stands at another place, and where a further
 * input is larger without it: then it is a free dimension like any other. */
static void find_rows(struct lm_model *model, const struct symbols *names) {
    const char *found = NULL;
    bool agree = true;
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        const char *name = names[i].of[0];
        agree = agree && !has_other_first(input);
        if (input->rank == 0 || input->dims[0] >= 0) continue;
        agree = agree && (!found || !found[0] || !name[0] || strcmp(found, name) == 0);
        if (!found || !found[0]) found = name;
    }
    model->rows_free = found && agree && !stands_elsewhere(model, names, found);
    if (model->rows_free) memcpy(model->rows_name, found, sizeof model->rows_name);
}

static bool is_rows(const struct lm_model *model, const char *name) {
    return model->rows_free && (!name[0] || strcmp(name, model->rows_name) == 0);
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
    if (tensor->shape_known) return;
    tensor->rows_first = tensor->rows_free && tensor->dtype != ORT_STRING;
    tensor->rows_free = tensor->varies = false;
}

/* ONNX Runtime shows an input of any rank like a scalar; only the file tells them apart. */
static uint32_t find_hidden(const struct lm_model *model, const char *path, struct symbols *names) {
    struct lm_mapping file;
    uint32_t scalars = 0, found = 0;
    for (uint32_t i = 0; i < model->input_count; i++) scalars += model->inputs[i].rank == 0;
    if (scalars == 0 || lm_file_read(&file, path) != 0) return 0;
    for (uint32_t i = 0; i < model->input_count; i++) {
        names[i].hidden = model->inputs[i].rank == 0 &&
                          lm_model_file_hides_shape(file.base, file.bytes, model->inputs[i].name);
        found += names[i].hidden;
    }
    lm_mapping_close(&file);
    return found;
}

/* Gives each input of any rank an equal part of the places that the free dimensions leave. */
static int take_any_ranks(struct lm_model *model, const struct symbols *names, uint32_t count) {
    uint32_t place = model->free_count, most = count ? (LM_FREE_DIMS_MAX - place) / count : 0;
    for (uint32_t i = 0; count > 0 && i < model->input_count; i++) {
        struct lm_tensor *tensor = &model->inputs[i];
        struct lm_free_dim *dim = &model->free_dims[model->free_count];
        if (!names[i].hidden) continue;
        if (most == 0) {
            return lm_error(LUMEN_E_MODEL,
                            "input '%s' has no shape in the graph: %u such inputs and %u free "
                            "dimensions are more than %d in all; export the model with shapes",
                            tensor->name, count, place, LM_FREE_DIMS_MAX);
        }
        snprintf(dim->name, sizeof dim->name, "%.240s[...]", tensor->name);
        dim->is_any_rank = true;
        dim->place = (uint8_t)place;
        model->free_count++;
        model->any_rank = true;
        tensor->any_rank = (uint8_t)model->free_count;
        tensor->rank = most;
        tensor->varies = true;
        for (uint32_t d = 0; d < most; d++) {
            tensor->dims[d] = -1;
            tensor->free[d] = (uint8_t)(++place);
        }
    }
    return 0;
}

/* Of the graph's tensors some may be a sequence's: the model has the others. */
static int read_inputs(struct lm_model *model, const struct lm_ort *ort, const char *path,
                       struct symbols *names) {
    int code = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; !code && i < model->input_count; i++) {
        struct lm_tensor *tensor = &model->inputs[kept];
        code = read_tensor(ort, model->sessions[0], INPUT, i, tensor, &names[kept]);
        if (code) return code;
        if (model->sequences && lm_sequences_take_input(model->sequences, tensor, &code)) continue;
        model->input_names[kept++] = tensor->name;
    }
    if (code) return code;
    model->input_count = kept;
    uint32_t hidden = find_hidden(model, path, names);
    find_rows(model, names);
    for (uint32_t i = 0; !code && i < model->input_count; i++) {
        code = take_input(model, &model->inputs[i], &names[i]);
        model->string_inputs += lm_is_string(&model->inputs[i]);
    }
    return code ? code : take_any_ranks(model, names, hidden);
}

/* A number or a short list, of fixed size. */
static bool fits_optional(struct lm_tensor *tensor) {
    const int64_t elements = tensor->rank ? tensor->dims[0] : 1;
    tensor->element_bytes = lm_dtype_bytes(tensor->dtype);
    if (tensor->rank > 1 || elements < 1 || elements > LM_OPTIONAL_ELEMENTS_MAX ||
        lm_is_string(tensor))
        return false;
    tensor->row_bytes = (size_t)elements * tensor->element_bytes;
    tensor->shape_known = true;
    return true;
}

/* Initializers that the graph lists as inputs, too: a threshold, say. Where an exporter lists all
 * of its weights (one is a matrix, or there are many) none of them is for clients. */
static void read_optionals(struct lm_model *model, const struct lm_ort *ort, size_t count) {
    struct symbols names;
    if (model->sequences || count > LM_OPTIONALS_MAX || model->input_count + count > LM_TENSORS_MAX)
        return;
    for (size_t i = 0; i < count; i++) {
        struct lm_tensor *tensor = &model->inputs[model->input_count + i];
        if (read_tensor(ort, model->sessions[0], OPTIONAL, i, tensor, &names) ||
            !fits_optional(tensor))
            return;
        model->input_names[model->input_count + i] = tensor->name;
    }
    model->optional_count = (uint32_t)count;
}

/* `names` has room for those of one. */
static int read_outputs(struct lm_model *model, const struct lm_ort *ort, struct symbols *names) {
    int code = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; !code && i < model->output_count; i++) {
        struct lm_tensor *tensor = &model->outputs[kept];
        code = read_tensor(ort, model->sessions[0], OUTPUT, i, tensor, names);
        if (code) return code;
        if (model->sequences && lm_sequences_take_output(model->sequences, tensor, &code)) continue;
        take_output_shape(model, tensor, names);
        model->output_names[kept++] = tensor->name;
        model->outputs_known = model->outputs_known && tensor->shape_known;
        model->string_outputs += lm_is_string(tensor);
    }
    model->output_count = kept;
    return code;
}

int lm_model_read_signature(struct lm_model *model, const struct lm_ort *ort, const char *path) {
    const OrtSession *session = model->sessions[0];
    size_t input_count = 0, output_count = 0, optional_count = 0;
    OrtStatus *status = ort->api->SessionGetInputCount(session, &input_count);
    if (!status) status = ort->api->SessionGetOverridableInitializerCount(session, &optional_count);
    if (!status) status = ort->api->SessionGetOutputCount(session, &output_count);
    int code = lm_ort_check(ort, status, "counting tensors");
    if (code) return code;
    if (input_count < 1 || input_count > LM_TENSORS_MAX || output_count < 1 ||
        output_count > LM_TENSORS_MAX) {
        return lm_error(LUMEN_E_MODEL,
                        "expected 1 to %d inputs and as many outputs, found %zu and %zu",
                        LM_TENSORS_MAX, input_count, output_count);
    }
    const size_t held = input_count + (optional_count <= LM_OPTIONALS_MAX ? optional_count : 0);
    code = lm_model_hold_tensors(model, (uint32_t)held, (uint32_t)output_count);
    if (code) return code;
    model->input_count = (uint32_t)input_count;
    model->output_count = (uint32_t)output_count;
    model->outputs_known = true;
    struct symbols *names = calloc(input_count, sizeof *names);
    if (!names) return lm_error(LUMEN_E_NOMEM, "no memory for the names of dimensions");
    code = read_inputs(model, ort, path, names);
    if (!code) code = read_outputs(model, ort, names);
    if (!code) read_optionals(model, ort, optional_count);
    if (!code && model->sequences) code = lm_sequences_settle(model->sequences, model, ort);
    free(names);
    return code;
}
