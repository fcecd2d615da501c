/* protobuf.h: the wire format of Protocol Buffers: fields from bytes, and back. What it reads comes
 * from clients, so every length is checked before anything behind it is looked at. No state, no
 * memory: any thread.
 */
#ifndef LM_WIRE_PROTOBUF_H
#define LM_WIRE_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LM_PB_VARINT, LM_PB_FIXED64, LM_PB_BYTES, LM_PB_FIXED32 = 5 };
enum { LM_PB_VARINT_BYTES_MAX = 10 };

struct lm_pb_reader {
    const uint8_t *at, *end;
    bool is_bad; /* what is there is no field: nothing more is read */
};

struct lm_pb_field {
    uint32_t number;
    uint8_t type;   /* LM_PB_* */
    uint64_t value; /* of BYTES: how many */
    const uint8_t *bytes;
};

static inline struct lm_pb_reader lm_pb_reader(const void *bytes, size_t count) {
    return (struct lm_pb_reader){.at = bytes, .end = (const uint8_t *)bytes + count};
}

/* false: it does not end before `end`, or has more than 64 bits. */
static inline bool lm_pb_varint(const uint8_t **at, const uint8_t *end, uint64_t *out) {
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64 && *at < end; shift += 7) {
        const uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80) continue;
        if (shift == 63 && byte > 1) return false;
        *out = value;
        return true;
    }
    return false;
}

/* The next field; false: there is none, or the reader is bad. */
static inline bool lm_pb_next(struct lm_pb_reader *reader, struct lm_pb_field *out) {
    uint64_t tag = 0;
    if (reader->is_bad || reader->at == reader->end) return false;
    reader->is_bad = true;
    if (!lm_pb_varint(&reader->at, reader->end, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
        return false;
    *out = (struct lm_pb_field){.number = (uint32_t)(tag >> 3), .type = tag & 7};
    const size_t fixed = out->type == LM_PB_FIXED64 ? 8 : out->type == LM_PB_FIXED32 ? 4 : 0;
    const bool has_varint = out->type == LM_PB_VARINT || out->type == LM_PB_BYTES;
    if (!has_varint && !fixed) return false; /* groups, which nobody has sent for ten years */
    if (has_varint && !lm_pb_varint(&reader->at, reader->end, &out->value)) return false;
    const uint64_t bytes = out->type == LM_PB_BYTES ? out->value : fixed;
    if (bytes > (uint64_t)(reader->end - reader->at)) return false;
    out->bytes = reader->at;
    if (fixed) memcpy(&out->value, reader->at, fixed); /* little-endian, as this machine */
    reader->at += bytes;
    reader->is_bad = false;
    return true;
}

/* Appends to memory of fixed size; what does not fit is not written, and makes `is_full` true. */
struct lm_pb_writer {
    uint8_t *at, *end;
    bool is_full;
};

static inline void lm_pb_put(struct lm_pb_writer *writer, const void *bytes, size_t count) {
    writer->is_full = writer->is_full || count > (size_t)(writer->end - writer->at);
    if (writer->is_full || count == 0) return;
    memcpy(writer->at, bytes, count);
    writer->at += count;
}

static inline size_t lm_pb_varint_bytes(uint64_t value) {
    size_t bytes = 1;
    while (value >>= 7) bytes++;
    return bytes;
}

static inline void lm_pb_put_varint(struct lm_pb_writer *writer, uint64_t value) {
    uint8_t bytes[LM_PB_VARINT_BYTES_MAX];
    size_t used = 0;
    for (; value >= 0x80; value >>= 7) bytes[used++] = (uint8_t)(value | 0x80);
    bytes[used++] = (uint8_t)value;
    lm_pb_put(writer, bytes, used);
}

static inline void lm_pb_put_tag(struct lm_pb_writer *writer, uint32_t number, uint8_t type) {
    lm_pb_put_varint(writer, (uint64_t)number << 3 | type);
}

static inline void lm_pb_put_bytes(struct lm_pb_writer *writer, uint32_t number, const void *bytes,
                                   size_t count) {
    lm_pb_put_tag(writer, number, LM_PB_BYTES);
    lm_pb_put_varint(writer, count);
    lm_pb_put(writer, bytes, count);
}

/* A message within a message: its length, which stands before it, is known when it ends. */
static inline uint8_t *lm_pb_begin(struct lm_pb_writer *writer, uint32_t number) {
    static const uint8_t room[1];
    lm_pb_put_tag(writer, number, LM_PB_BYTES);
    lm_pb_put(writer, room, sizeof room);
    return writer->at;
}
static inline void lm_pb_end(struct lm_pb_writer *writer, uint8_t *start) {
    if (writer->is_full) return;
    const size_t bytes = (size_t)(writer->at - start), more = lm_pb_varint_bytes(bytes) - 1;
    static const uint8_t room[LM_PB_VARINT_BYTES_MAX];
    lm_pb_put(writer, room, more);
    if (writer->is_full) return;
    if (more) memmove(start + more, start, bytes);
    struct lm_pb_writer length = {.at = start - 1, .end = start + more};
    lm_pb_put_varint(&length, bytes);
}

#endif
