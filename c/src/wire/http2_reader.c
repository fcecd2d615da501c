/* http2_reader.c: see http2_reader.h. Runs on I/O threads. */
#include "wire/http2_reader.h"

#include <string.h>

/* Whose frames of a type may be. */
enum { OF_ANY, OF_CONNECTION, OF_STREAM, OF_OPENED, OF_BOTH };

enum { KINDS = LM_HTTP2_CONTINUATION + 1 };
static const struct {
    uint8_t of;
    uint8_t unit; /* bytes that are collected before they are read; 0: it is of another sort */
} kinds[KINDS] = {
    [LM_HTTP2_DATA] = {OF_OPENED, 0},
    [LM_HTTP2_HEADERS] = {OF_STREAM, 0},
    [LM_HTTP2_PRIORITY] = {OF_STREAM, 5}, /* nobody's business any more (RFC 9113) */
    [LM_HTTP2_RST_STREAM] = {OF_OPENED, 4},
    [LM_HTTP2_SETTINGS] = {OF_CONNECTION, LM_HTTP2_SETTING_BYTES},
    [LM_HTTP2_PUSH_PROMISE] = {OF_ANY, 0},
    [LM_HTTP2_PING] = {OF_CONNECTION, 8},
    [LM_HTTP2_GOAWAY] = {OF_CONNECTION, 0},
    [LM_HTTP2_WINDOW_UPDATE] = {OF_BOTH, 4},
    [LM_HTTP2_CONTINUATION] = {OF_STREAM, 0},
};

enum { GOAWAY_BYTES = 8 }; /* at least; what it adds is for people */

static uint32_t unit_of(const struct lm_http2_frame *frame) {
    if (frame->type == LM_HTTP2_GOAWAY) return GOAWAY_BYTES;
    return frame->type < KINDS ? kinds[frame->type].unit : 0;
}

size_t lm_http2_read_header(struct lm_http2_reader *reader, const uint8_t *bytes, size_t count) {
    const size_t missing = (size_t)(LM_HTTP2_FRAME_BYTES - reader->header_used);
    const size_t taken = count < missing ? count : missing;
    memcpy(reader->header + reader->header_used, bytes, taken);
    reader->header_used = (uint8_t)(reader->header_used + taken);
    if (taken < missing) return taken;
    reader->header_used = reader->small_used = 0;
    reader->frame = lm_http2_read_frame(reader->header);
    reader->left = reader->frame.bytes;
    reader->in_frame = true;
    reader->pad_known = false;
    return taken;
}

const char *lm_http2_why_misplaced(const struct lm_http2_reader *reader, uint32_t last_stream) {
    const struct lm_http2_frame *frame = &reader->frame;
    const uint8_t of = frame->type < KINDS ? kinds[frame->type].of : OF_ANY;
    const bool is_first = frame->stream == 0, is_idle = frame->stream > last_stream;
    const bool goes_on = frame->type == LM_HTTP2_CONTINUATION && frame->stream == reader->block_of;
    if (of == OF_CONNECTION && !is_first) return "expected stream 0";
    if ((of == OF_STREAM || of == OF_OPENED) && is_first) return "expected a stream";
    if ((of == OF_OPENED || of == OF_BOTH) && is_idle) return "of a stream that is not open";
    if (frame->type == LM_HTTP2_CONTINUATION && !reader->block_of) return "no header block goes on";
    if (reader->block_of && !goes_on) return "expected CONTINUATION of the header block";
    return NULL;
}

bool lm_http2_has_wrong_size(const struct lm_http2_frame *frame, uint32_t bytes_max) {
    const uint32_t unit = unit_of(frame);
    const bool is_padded = (frame->type == LM_HTTP2_DATA || frame->type == LM_HTTP2_HEADERS) &&
                           (frame->flags & LM_HTTP2_PADDED);
    if (frame->bytes > bytes_max || (is_padded && frame->bytes == 0)) return true;
    if (frame->type == LM_HTTP2_SETTINGS)
        return frame->flags & LM_HTTP2_ACK ? frame->bytes > 0 : frame->bytes % unit != 0;
    if (frame->type == LM_HTTP2_GOAWAY) return frame->bytes < GOAWAY_BYTES;
    return unit && frame->bytes != unit;
}

size_t lm_http2_read_few(struct lm_http2_reader *reader, const uint8_t *bytes, size_t count,
                         bool *is_unit_out) {
    const bool is_said =
        reader->frame.type == LM_HTTP2_GOAWAY && reader->frame.bytes - reader->left >= GOAWAY_BYTES;
    const uint32_t unit = is_said ? 0 : unit_of(&reader->frame);
    const size_t missing = unit - reader->small_used;
    const size_t most = count < reader->left ? count : reader->left;
    const size_t taken = unit && most > missing ? missing : most;
    *is_unit_out = false;
    if (unit && taken > 0) {
        memcpy(reader->small + reader->small_used, bytes, taken);
        reader->small_used = (uint8_t)(reader->small_used + taken);
        *is_unit_out = reader->small_used == unit;
        if (*is_unit_out) reader->small_used = 0;
    }
    reader->left -= (uint32_t)taken;
    return taken;
}

struct lm_http2_data lm_http2_read_data(struct lm_http2_reader *reader, const uint8_t *bytes,
                                        size_t count) {
    struct lm_http2_data piece = {.is_first = !reader->pad_known};
    if (piece.is_first) {
        const bool is_padded =
            (reader->frame.flags & LM_HTTP2_PADDED) && reader->frame.type != LM_HTTP2_CONTINUATION;
        reader->pad = is_padded ? bytes[0] : 0; /* there is a byte, as the frame's size says */
        reader->pad_known = true;
        piece.before = is_padded;
        reader->left -= (uint32_t)piece.before;
        piece.is_wrong = reader->pad > reader->left;
        if (piece.is_wrong) return piece;
        piece.whole = reader->left - reader->pad;
        count -= piece.before;
    }
    if (reader->left > reader->pad) {
        const size_t data = reader->left - reader->pad;
        piece.data = count < data ? count : data;
        reader->left -= (uint32_t)piece.data;
        count -= piece.data;
    }
    if (reader->left <= reader->pad) {
        piece.behind = count < reader->left ? count : reader->left;
        reader->left -= (uint32_t)piece.behind;
    }
    return piece;
}

bool lm_http2_strip(const struct lm_http2_frame *frame, const uint8_t **at, size_t *bytes) {
    size_t before = 0, behind = 0;
    if (frame->type != LM_HTTP2_HEADERS) return true;
    if (frame->flags & LM_HTTP2_PADDED) {
        if (*bytes < 1) return false;
        behind = **at;
        before = 1;
    }
    if (frame->flags & LM_HTTP2_HAS_PRIORITY) before += 5;
    if (before + behind > *bytes) return false;
    *at += before;
    *bytes -= before + behind;
    return true;
}

const char *lm_http2_why_wrong_setting(struct lm_http2_setting setting,
                                       enum lm_http2_error *error_out) {
    *error_out = LM_HTTP2_PROTOCOL_ERROR;
    if (setting.id == LM_HTTP2_ENABLE_PUSH && setting.value > 1)
        return "ENABLE_PUSH: expected 0 or 1";
    if (setting.id == LM_HTTP2_MAX_FRAME_SIZE &&
        (setting.value < LM_HTTP2_FRAME_MIN || setting.value > 0xffffff))
        return "MAX_FRAME_SIZE: expected 16384 to 16777215";
    *error_out = LM_HTTP2_FLOW_CONTROL_ERROR;
    if (setting.id == LM_HTTP2_INITIAL_WINDOW_SIZE && setting.value > INT32_MAX)
        return "INITIAL_WINDOW_SIZE: expected less than 2^31";
    return NULL;
}
