/* onnx_graph.h: small ONNX models, written as bytes (onnx.proto), for tests of what Lumen reads of
 * them. One at a time, in static memory:
 *
 *     graph_begin();
 *     graph_input("x", ORT_FLOAT, "n,3");
 *     graph_node("Identity", "x", "y");
 *     graph_output("y", ORT_FLOAT, "n,3");
 *     graph_save(path);
 */
#ifndef TESTS_C_ONNX_GRAPH_H
#define TESTS_C_ONNX_GRAPH_H

#include "check.h"

enum { GRAPH_BYTES_MAX = 1 << 16, GRAPH_NAME_BYTES_MAX = 512 };

/* A message of Protocol Buffers that grows. */
struct graph_message {
    size_t used;
    uint8_t bytes[GRAPH_BYTES_MAX];
};

static struct graph_message graph_now;

static inline void graph_put_varint(struct graph_message *to, uint64_t value) {
    do {
        CHECK(to->used < sizeof to->bytes);
        to->bytes[to->used++] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
    } while (value >>= 7);
}

static inline void graph_put_number(struct graph_message *to, uint32_t field, uint64_t value) {
    graph_put_varint(to, field << 3);
    graph_put_varint(to, value);
}

static inline void graph_put_bytes(struct graph_message *to, uint32_t field, const void *bytes,
                                   size_t count) {
    graph_put_varint(to, field << 3 | 2);
    graph_put_varint(to, count);
    CHECK(count <= sizeof to->bytes - to->used);
    memcpy(to->bytes + to->used, bytes, count);
    to->used += count;
}

static inline void graph_put_text(struct graph_message *to, uint32_t field, const char *text) {
    graph_put_bytes(to, field, text, strlen(text));
}

static inline void graph_put(struct graph_message *to, uint32_t field,
                             const struct graph_message *message) {
    graph_put_bytes(to, field, message->bytes, message->used);
}

/* `dims` is as the graph declares them: "n,3" has a dimension of the name n, "?" one without a name
 * and a number; "" has none at all. */
static inline void graph_put_shape(struct graph_message *to, const char *dims) {
    static struct graph_message shape, dim;
    shape.used = 0;
    while (*dims) {
        char token[GRAPH_NAME_BYTES_MAX] = "";
        size_t bytes = strcspn(dims, ",");
        CHECK(bytes < sizeof token);
        memcpy(token, dims, bytes);
        dim.used = 0;
        if (token[0] >= '0' && token[0] <= '9') {
            graph_put_number(&dim, 1, strtoull(token, NULL, 10));
        } else if (token[0] != '?') {
            graph_put_text(&dim, 2, token);
        }
        graph_put(&shape, 1, &dim);
        dims += bytes + (dims[bytes] == ',');
    }
    graph_put(to, 2, &shape);
}

/* A type: a tensor's. `dims` NULL: of any shape. */
static inline void graph_put_tensor_type(struct graph_message *type, int dtype, const char *dims) {
    static struct graph_message tensor;
    tensor.used = 0;
    graph_put_number(&tensor, 1, (uint64_t)dtype);
    if (dims) graph_put_shape(&tensor, dims);
    type->used = 0;
    graph_put(type, 1, &tensor);
}

static inline void graph_put_value(uint32_t field, const char *name,
                                   const struct graph_message *type) {
    static struct graph_message value;
    value.used = 0;
    graph_put_text(&value, 1, name);
    graph_put(&value, 2, type);
    graph_put(&graph_now, field, &value);
}

static inline void graph_begin(void) {
    graph_now.used = 0;
    graph_put_text(&graph_now, 2, "test");
}

static inline void graph_input(const char *name, int dtype, const char *dims) {
    static struct graph_message type;
    graph_put_tensor_type(&type, dtype, dims);
    graph_put_value(11, name, &type);
}

static inline void graph_output(const char *name, int dtype, const char *dims) {
    static struct graph_message type;
    graph_put_tensor_type(&type, dtype, dims);
    graph_put_value(12, name, &type);
}

/* An operator with inputs "a,b" and one output. */
static inline void graph_node(const char *operation, const char *inputs, const char *output) {
    static struct graph_message node;
    node.used = 0;
    for (size_t bytes; *inputs; inputs += bytes + (inputs[bytes] == ',')) {
        bytes = strcspn(inputs, ",");
        graph_put_bytes(&node, 1, inputs, bytes);
    }
    graph_put_text(&node, 2, output);
    graph_put_text(&node, 4, operation);
    graph_put(&graph_now, 1, &node);
}

/* A constant of whole numbers of 64 bits: one dimension, or none where `count` is 0. */
static inline void graph_constant(const char *name, const int64_t *values, uint32_t count) {
    static struct graph_message tensor;
    tensor.used = 0;
    if (count) graph_put_number(&tensor, 1, count);
    graph_put_number(&tensor, 2, 7);
    graph_put_text(&tensor, 8, name);
    graph_put_bytes(&tensor, 9, values, (count ? count : 1) * sizeof *values);
    graph_put(&graph_now, 5, &tensor);
}

static inline void graph_save(const char *path) {
    static struct graph_message model, opset;
    model.used = opset.used = 0;
    graph_put_number(&model, 1, 8); /* the form's version */
    graph_put_number(&opset, 2, 17);
    graph_put(&model, 8, &opset);
    graph_put(&model, 7, &graph_now);
    check_write_file(path, model.bytes, model.used);
}

/* Writes a model of texts: the vector of a token is its id. */
static inline void graph_of_texts(const char *path) {
    static const int64_t last[] = {2};
    graph_begin();
    graph_input("input_ids", ORT_INT64, "n,tokens");
    graph_constant("last", last, 1);
    graph_node("Shape", "input_ids", "shape");
    graph_node("ConstantOfShape", "shape", "float");
    graph_node("CastLike", "input_ids,float", "ids");
    graph_node("Unsqueeze", "ids,last", "vectors");
    graph_output("vectors", ORT_FLOAT, "n,tokens,1");
    graph_save(path);
}

#endif
