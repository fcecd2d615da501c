/* fields.c: see fields.h. */
#include "onnx/fields.h"

enum { KIND_VARINT, KIND_64_BITS, KIND_BYTES, KIND_32_BITS = 5 };

static bool read_varint(struct lm_bytes *from, uint64_t *value_out) {
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

bool lm_onnx_read_field(struct lm_bytes *from, struct lm_onnx_field *field) {
    uint64_t key, size = 0;
    if (!read_varint(from, &key)) return false;
    *field = (struct lm_onnx_field){.number = key >> 3};
    switch (key & 7) {
    case KIND_VARINT: return read_varint(from, &field->word);
    case KIND_64_BITS: size = 8; break;
    case KIND_32_BITS: size = 4; break;
    case KIND_BYTES:
        if (!read_varint(from, &size)) return false;
        break;
    default: return false;
    }
    if (size > lm_bytes_count(*from)) return false;
    field->value = (struct lm_bytes){from->at, from->at + size};
    from->at += size;
    return true;
}

bool lm_onnx_find_field(struct lm_bytes *from, uint64_t number, struct lm_bytes *value_out) {
    struct lm_onnx_field field;
    while (from->at < from->end && lm_onnx_read_field(from, &field)) {
        if (field.number != number || !field.value.at) continue;
        *value_out = field.value;
        return true;
    }
    return false;
}
