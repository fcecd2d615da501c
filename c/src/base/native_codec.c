/* native_codec.c: see native_codec.h. Runs on I/O threads and, for replies, on workers. */
#include "base/native_codec.h"

#include <stdio.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the native protocol is little-endian; this code copies words as they are"
#endif

static uint16_t read_u16(const uint8_t *at) {
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint32_t read_u32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t read_u64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

bool lm_native_may_be_header(const uint8_t *bytes, size_t count) {
    size_t known = count < LM_NATIVE_MAGIC_BYTES ? count : LM_NATIVE_MAGIC_BYTES;
    return memcmp(bytes, LM_NATIVE_MAGIC, known) == 0;
}

static enum lm_native_verdict check(const struct lm_native_request *request, uint16_t reserved,
                                    char *why, size_t why_bytes) {
    uint32_t credential = request->flags & LM_FLAG_CREDENTIAL ? LM_NATIVE_CREDENTIAL_BYTES : 0;
    if (request->kind < LM_KIND_INFER || request->kind > LM_KIND_REGION) {
        snprintf(why, why_bytes,
                 "kind (byte 4): expected 1 infer, 2 ping, 3 describe or 4 region, found %u",
                 request->kind);
    } else if (request->flags & ~(LM_FLAG_CREDENTIAL | LM_FLAG_SHAPES | LM_FLAG_REGION)) {
        snprintf(why, why_bytes, "flags (byte 28): expected bits 0 to 2 only, found 0x%04x",
                 request->flags);
    } else if (reserved != 0) {
        snprintf(why, why_bytes, "reserved (byte 30): expected 0, found 0x%04x", reserved);
    } else if (request->kind != LM_KIND_INFER && (request->flags & ~LM_FLAG_CREDENTIAL)) {
        snprintf(why, why_bytes,
                 "flags (byte 28): expected bit 0 only in what is no inference, found 0x%04x",
                 request->flags);
    } else if (request->kind != LM_KIND_INFER && request->payload_bytes != credential) {
        snprintf(why, why_bytes,
                 "payload bytes (byte 16): expected %u in what is no inference, found %u",
                 credential, request->payload_bytes);
    } else if (request->kind == LM_KIND_INFER && request->encoding >= LM_ENCODING_JSON) {
        snprintf(why, why_bytes,
                 "encoding (byte 5): expected 0 tensors, 1 rgb8 or 2 image, found %u",
                 request->encoding);
    } else {
        return LM_NATIVE_OK;
    }
    return LM_NATIVE_BAD;
}

enum lm_native_verdict lm_native_parse(const uint8_t bytes[LM_NATIVE_REQUEST_BYTES],
                                       struct lm_native_request *request_out, char *why,
                                       size_t why_bytes) {
    if (!lm_native_may_be_header(bytes, LM_NATIVE_MAGIC_BYTES)) {
        snprintf(why, why_bytes, "magic (byte 0): expected LMN1, found 0x%02x 0x%02x 0x%02x 0x%02x",
                 bytes[0], bytes[1], bytes[2], bytes[3]);
        *request_out = (struct lm_native_request){.rows = 1};
        return LM_NATIVE_NO_FRAME;
    }
    uint32_t rows = read_u32(bytes + 24);
    *request_out = (struct lm_native_request){
        .kind = bytes[4],
        .encoding = bytes[5],
        .number = read_u16(bytes + 6),
        .id = read_u64(bytes + 8),
        .payload_bytes = read_u32(bytes + 16),
        .timeout_us = read_u32(bytes + 20),
        .rows = rows ? rows : 1,
        .flags = read_u16(bytes + 28),
    };
    return check(request_out, read_u16(bytes + 30), why, why_bytes);
}

void lm_native_write_reply(uint8_t bytes[LM_NATIVE_REPLY_BYTES],
                           const struct lm_native_reply *reply) {
    memcpy(bytes, "LMR1", 4);
    memcpy(bytes + 4, &reply->status, 2);
    memcpy(bytes + 6, &reply->flags, 2);
    memcpy(bytes + 8, &reply->id, 8);
    memcpy(bytes + 16, &reply->payload_bytes, 4);
    memcpy(bytes + 20, &reply->rows, 4);
    memcpy(bytes + 24, &reply->receive_us, 4);
    memcpy(bytes + 28, &reply->queue_us, 4);
    memcpy(bytes + 32, &reply->preprocess_us, 4);
    memcpy(bytes + 36, &reply->infer_us, 4);
    memcpy(bytes + 40, &reply->width, 2);
    memcpy(bytes + 42, &reply->expert, 2);
    memset(bytes + 44, 0, 4);
}
