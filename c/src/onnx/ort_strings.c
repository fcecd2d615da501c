/* ort_strings.c: ONNX Runtime's tensors of strings, from and to their form on the wire; see ort.h.
 * Workers; tensors are made at start too. */
#include <string.h>

#include "base/error.h"
#include "onnx/ort.h"

OrtValue *lm_ort_strings_open(const struct lm_ort *ort, const int64_t *shape, size_t rank) {
    OrtValue *value = NULL;
    OrtStatus *status =
        ort->api->CreateTensorAsOrtValue(ort->allocator, shape, rank, ORT_STRING, &value);
    return lm_ort_check(ort, status, "making a tensor of strings") ? NULL : value;
}

/* Gives an element its size. A short string lies in the element itself; a longer one whose place
 * changes has taken memory. */
static OrtStatus *resize(const struct lm_ort *ort, OrtValue *value, size_t index, size_t bytes,
                         char **buffer_out, struct lm_ort_growth *growth) {
    const struct lm_ort_api *api = ort->api;
    bool is_long = bytes >= LM_ORT_STRING_BYTES / 2;
    char *before = NULL;
    OrtStatus *status =
        is_long ? api->GetResizedStringTensorElementBuffer(value, index, 0, &before) : NULL;
    if (!status) status = api->GetResizedStringTensorElementBuffer(value, index, bytes, buffer_out);
    if (status || !is_long || *buffer_out == before) return status;
    growth->count++;
    growth->bytes += bytes;
    return NULL;
}

int lm_ort_strings_fill(const struct lm_ort *ort, OrtValue *value, size_t first, size_t count,
                        const uint8_t *wire, struct lm_ort_growth *growth) {
    for (size_t i = first; i < first + count; i++) {
        uint32_t bytes;
        char *buffer = NULL;
        memcpy(&bytes, wire, sizeof bytes); /* little-endian, as we are */
        wire += sizeof bytes;
        int code =
            lm_ort_check(ort, resize(ort, value, i, bytes, &buffer, growth), "writing a string");
        if (code) return code;
        if (bytes) memcpy(buffer, wire, bytes);
        wire += bytes;
    }
    return 0;
}

int lm_ort_strings_measure(const struct lm_ort *ort, const OrtValue *value, size_t first,
                           size_t count, size_t *bytes_out) {
    *bytes_out = 0;
    for (size_t i = first; i < first + count; i++) {
        size_t bytes = 0;
        OrtStatus *status = ort->api->GetStringTensorElementLength(value, i, &bytes);
        int code = lm_ort_check(ort, status, "reading a string");
        if (code) return code;
        *bytes_out += sizeof(uint32_t) + bytes;
    }
    return 0;
}

int lm_ort_strings_take(const struct lm_ort *ort, const OrtValue *value, size_t first, size_t count,
                        uint8_t *wire, size_t room, size_t *bytes_out) {
    const uint8_t *start = wire;
    for (size_t i = first; i < first + count; i++) {
        size_t bytes = 0;
        OrtStatus *status = ort->api->GetStringTensorElementLength(value, i, &bytes);
        uint32_t length = (uint32_t)bytes;
        if (!status && (room < sizeof length || bytes > room - sizeof length))
            return LM_ORT_NO_ROOM;
        if (!status) memcpy(wire, &length, sizeof length);
        if (!status && bytes)
            status = ort->api->GetStringTensorElement(value, bytes, i, wire + sizeof length);
        int code = lm_ort_check(ort, status, "reading a string");
        if (code) return code;
        wire += sizeof length + bytes;
        room -= sizeof length + bytes;
    }
    *bytes_out = (size_t)(wire - start);
    return 0;
}
