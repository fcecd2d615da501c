/* model_file.c: see model_file.h. An ONNX model is a message of Protocol Buffers: fields, each with
 * a number and a kind, whose values may be messages again (onnx.proto). */
#include "parts/model_file.h"

#include <string.h>

struct bytes {
    const uint8_t *at;
    const uint8_t *end;
};

struct field {
    uint64_t number;
    struct bytes value; /* empty where the kind is a number */
};

enum { KIND_VARINT, KIND_64_BITS, KIND_BYTES, KIND_32_BITS = 5 };
/* Numbers of fields in onnx.proto: of ModelProto, GraphProto, ValueInfoProto, TypeProto, Tensor. */
enum { MODEL_GRAPH = 7, GRAPH_INPUT = 11, INFO_NAME = 1, INFO_TYPE = 2, TYPE_TENSOR = 1 };
enum { TENSOR_SHAPE = 2 };

static bool read_varint(struct bytes *from, uint64_t *value_out) {
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64 && from->at < from->end; shift += 7) {
        uint8_t byte = *from->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value_out = value;
            return true;
        }
    }
    return false;
}

/* Takes the next field; false when what follows is none, or ends before the field does. */
static bool read_field(struct bytes *from, struct field *field) {
    uint64_t key, size = 0;
    if (!read_varint(from, &key)) return false;
    *field = (struct field){.number = key >> 3};
    switch (key & 7) {
    case KIND_VARINT: return read_varint(from, &size);
    case KIND_64_BITS: size = 8; break;
    case KIND_32_BITS: size = 4; break;
    case KIND_BYTES:
        if (!read_varint(from, &size)) return false;
        break;
    default: return false;
    }
    if (size > (uint64_t)(from->end - from->at)) return false;
    field->value = (struct bytes){from->at, from->at + size};
    from->at += size;
    return true;
}

/* The next field of this number; false when there is none. */
static bool find_field(struct bytes *from, uint64_t number, struct bytes *value_out) {
    struct field field;
    while (from->at < from->end && read_field(from, &field)) {
        if (field.number != number) continue;
        *value_out = field.value;
        return true;
    }
    return false;
}

bool lm_model_file_hides_shape(const uint8_t *bytes, size_t count, const char *input) {
    struct bytes model = {bytes, bytes + count}, graph, info, name, type, tensor, shape;
    if (!find_field(&model, MODEL_GRAPH, &graph)) return false;
    while (find_field(&graph, GRAPH_INPUT, &info)) {
        struct bytes fields = info;
        size_t name_bytes = strlen(input);
        if (!find_field(&fields, INFO_NAME, &name)) continue;
        if ((size_t)(name.end - name.at) != name_bytes || memcmp(name.at, input, name_bytes) != 0)
            continue;
        fields = info;
        return find_field(&fields, INFO_TYPE, &type) && find_field(&type, TYPE_TENSOR, &tensor) &&
               !find_field(&tensor, TENSOR_SHAPE, &shape);
    }
    return false;
}

/* True when the file begins as ONNX models do, with the version of their form, and its fields do
 * not end where it ends. */
static bool is_cut_short(const uint8_t *bytes, size_t count) {
    struct bytes rest = {bytes, bytes + count};
    struct field field;
    if (bytes[0] != 0x08) return false;
    while (rest.at < rest.end) {
        if (!read_field(&rest, &field)) return true;
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

bool lm_model_file_loops(const uint8_t *bytes, size_t count) {
    /* The type of a node, in protobuf's form and in that of flatbuffers. */
    static const char *const marks[] = {"\"\004Loop", "\"\004Scan", "\004\0\0\0Loop",
                                        "\004\0\0\0Scan"};
    static const size_t mark_bytes[] = {6, 6, 8, 8};
    for (size_t m = 0; m < sizeof marks / sizeof marks[0]; m++) {
        if (memmem(bytes, count, marks[m], mark_bytes[m])) return true;
    }
    return false;
}
