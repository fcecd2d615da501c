/* fields.h: reads an ONNX model, which is a message of Protocol Buffers: fields, each with a
 * number and a kind, whose values may be messages again (onnx.proto). Allocates nothing, and looks
 * at no byte of a value that nobody asks for: weights are stepped over. The bytes are not trusted.
 * Any thread.
 */
#ifndef LM_ONNX_FIELDS_H
#define LM_ONNX_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lm_bytes {
    const uint8_t *at;
    const uint8_t *end;
};

struct lm_onnx_field {
    uint64_t number;
    uint64_t word;         /* of a number; 0 of other kinds */
    struct lm_bytes value; /* NULL where the kind is a number */
};

/* Numbers of fields in onnx.proto, by the message that has them. */
enum {
    LM_ONNX_MODEL_IR_VERSION = 1,
    LM_ONNX_MODEL_GRAPH = 7,
    LM_ONNX_MODEL_FUNCTIONS = 25,
    LM_ONNX_GRAPH_NODE = 1,
    LM_ONNX_GRAPH_INITIALIZER = 5,
    LM_ONNX_GRAPH_INPUT = 11,
    LM_ONNX_NODE_INPUT = 1,
    LM_ONNX_NODE_OUTPUT = 2,
    LM_ONNX_NODE_OPERATOR = 4,
    LM_ONNX_NODE_DOMAIN = 7,
    LM_ONNX_TENSOR_NAME = 8,
    LM_ONNX_INFO_NAME = 1,
    LM_ONNX_INFO_TYPE = 2,
    LM_ONNX_TYPE_TENSOR = 1,
    LM_ONNX_TYPE_SHAPE = 2
};

/* Takes the next field; false when what follows is none, or ends before the field does. */
bool lm_onnx_read_field(struct lm_bytes *from, struct lm_onnx_field *field);
/* The next field of this number that has bytes: with another kind it is another field to Protocol
 * Buffers. False when there is none. */
bool lm_onnx_find_field(struct lm_bytes *from, uint64_t number, struct lm_bytes *value_out);

static inline size_t lm_bytes_count(struct lm_bytes bytes) {
    return (size_t)(bytes.end - bytes.at);
}

#endif
