/* model_file.c: see model_file.h. */
#include "onnx/model_file.h"

#include <string.h>

#include "onnx/fields.h"

bool lm_model_file_hides_shape(const uint8_t *bytes, size_t count, const char *input) {
    struct lm_bytes model = {bytes, bytes + count}, graph, info, name, type, tensor, shape;
    if (!lm_onnx_find_field(&model, LM_ONNX_MODEL_GRAPH, &graph)) return false;
    while (lm_onnx_find_field(&graph, LM_ONNX_GRAPH_INPUT, &info)) {
        struct lm_bytes fields = info;
        size_t name_bytes = strlen(input);
        if (!lm_onnx_find_field(&fields, LM_ONNX_INFO_NAME, &name)) continue;
        if ((size_t)(name.end - name.at) != name_bytes || memcmp(name.at, input, name_bytes) != 0)
            continue;
        fields = info;
        return lm_onnx_find_field(&fields, LM_ONNX_INFO_TYPE, &type) &&
               lm_onnx_find_field(&type, LM_ONNX_TYPE_TENSOR, &tensor) &&
               !lm_onnx_find_field(&tensor, LM_ONNX_TYPE_SHAPE, &shape);
    }
    return false;
}

/* True when the file begins as ONNX models do, with the version of their form, and its fields do
 * not end where it ends. */
static bool is_cut_short(const uint8_t *bytes, size_t count) {
    struct lm_bytes rest = {bytes, bytes + count};
    struct lm_onnx_field field;
    if (bytes[0] != 0x08) return false;
    while (rest.at < rest.end) {
        if (!lm_onnx_read_field(&rest, &field)) return true;
    }
    return false;
}

static bool is_text(const uint8_t *bytes, size_t count) {
    for (size_t i = 0; i < count && i < 64; i++) {
        if ((bytes[i] < 0x20 && bytes[i] != '\n' && bytes[i] != '\r' && bytes[i] != '\t') ||
            bytes[i] >= 0x7f)
            return false;
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t count) {
    size_t i = 0;
    while (i < count && i < 64 && bytes[i] == 0) i++;
    return i == count || i == 64;
}

/* Weights in the form of safetensors: the length of a JSON header, then that header. */
static bool is_safetensors(const uint8_t *bytes, size_t count) {
    uint64_t header;
    if (count < 10 || bytes[8] != '{') return false;
    memcpy(&header, bytes, sizeof header);
    return header <= count - 8;
}

static const struct {
    const char *begin;
    uint32_t bytes;
    uint32_t at;
    const char *problem;
} known[] = {
    {"version https://git-lfs", 23, 0,
     "it is a Git LFS pointer, not the model: run 'git lfs pull' in its repository"},
    {"PK\003\004", 4, 0,
     "it is a zip archive, as PyTorch's .pt and .pth files are: export the model to ONNX "
     "(torch.onnx.export), or unpack the archive"},
    {"\200\002", 2, 0, "it is a Python pickle: export the model to ONNX"},
    {"\200\003", 2, 0, "it is a Python pickle: export the model to ONNX"},
    {"\200\004", 2, 0, "it is a Python pickle: export the model to ONNX"},
    {"\200\005", 2, 0, "it is a Python pickle: export the model to ONNX"},
    {"\037\213", 2, 0, "it is compressed with gzip: run gunzip first"},
    {"\3757zXZ", 5, 0, "it is compressed with xz: run unxz first"},
    {"\050\265\057\375", 4, 0, "it is compressed with zstd: run unzstd first"},
    {"BZh", 3, 0, "it is compressed with bzip2: run bunzip2 first"},
    {"ustar", 5, 257, "it is a tar archive: unpack it first"},
    {"\211HDF", 4, 0, "it is an HDF5 file, as Keras writes it: convert the model with tf2onnx"},
    {"TFL3", 4, 4, "it is a TensorFlow Lite model: convert it with tf2onnx"},
    {"GGUF", 4, 0, "it is a GGUF file, which holds a language model for llama.cpp, not ONNX"},
};

const char *lm_model_file_problem(const uint8_t *bytes, size_t count) {
    size_t blanks = 0;
    if (count == 0) return "it is empty";
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (count >= known[i].at + known[i].bytes &&
            memcmp(bytes + known[i].at, known[i].begin, known[i].bytes) == 0)
            return known[i].problem;
    }
    while (blanks < count && (bytes[blanks] == ' ' || bytes[blanks] == '\n')) blanks++;
    if (blanks < count && bytes[blanks] == '<' && is_text(bytes, count)) {
        return "it is an HTML or XML page, such as the error or login page of a download: get the "
               "file itself";
    }
    if (is_safetensors(bytes, count))
        return "it holds weights in the form of safetensors and no model: export the model to ONNX";
    if (is_zero(bytes, count)) return "it begins with zeros: was a download broken off?";
    if (is_cut_short(bytes, count))
        return "it begins as an ONNX model and is cut short or damaged: copy or download it again";
    if (is_text(bytes, count)) return "it is a text, not an ONNX model";
    return NULL;
}
