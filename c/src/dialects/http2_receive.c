/* http2_receive.c: see http2_receive.h. */
#include "dialects/http2_receive.h"

#include <string.h>

#include "dialects/http2_put.h"
#include "dialects/http2_shelf.h"
#include "dialects/http2_streams.h"
#include "dialects/http_block.h"
#include "dialects/http_refuse.h"

/* Bounds on frames beside requests: a client may ping with each answer, widen windows with each few
 * bytes that it reads of a frame, and cancel what it gave up: all its calls, twice. */
enum {
    NOISE_PER_SECOND = 1000,
    NOISE_PER_CAUSE = 16,
    RESETS_PER_SECOND = 2 * LM_HTTP2_STREAMS_MAX
};

/* ---- frames of few bytes ---- */

static bool widen(int64_t *window, uint32_t by) {
    *window += by;
    return *window <= INT32_MAX;
}

static void take_window(struct lm_io *io, struct lm_http2_carrier *http2) {
    const uint32_t by = lm_http2_get_u32(http2->reader.small) & 0x7fffffff;
    if (http2->reader.frame.stream == 0) {
        if (by == 0 || !widen(&http2->send_window, by))
            lm_http2_fail(http2, LM_HTTP2_FLOW_CONTROL_ERROR,
                          "WINDOW_UPDATE: a window beyond 2^31 - 1");
        return;
    }
    struct lm_http2_stream *stream = lm_http2_stream_find(http2, http2->reader.frame.stream);
    if (!stream) return; /* closed, as its client does not know yet */
    if (by > 0 && widen(&stream->send_window, by)) return;
    lm_http2_put_reset(http2, stream->id, LM_HTTP2_FLOW_CONTROL_ERROR);
    lm_http2_stream_reset(io, stream);
}

static void take_setting(struct lm_http2_carrier *http2) {
    const struct lm_http2_setting setting = lm_http2_read_setting(&http2->reader);
    enum lm_http2_error error;
    const char *why = lm_http2_why_wrong_setting(setting, &error);
    if (why) {
        lm_http2_fail(http2, error, why);
        return;
    }
    if (setting.id == LM_HTTP2_MAX_FRAME_SIZE)
        http2->frame_max = setting.value < LM_HTTP2_SENT_MAX ? setting.value : LM_HTTP2_SENT_MAX;
    if (setting.id != LM_HTTP2_INITIAL_WINDOW_SIZE) return;
    const int64_t more = (int64_t)setting.value - http2->initial_window;
    http2->initial_window = setting.value;
    for (uint32_t s = lm_http2_next(http2, 0); s < LM_HTTP2_PLACES; s = lm_http2_next(http2, s + 1))
        http2->busy->streams[s].send_window += more;
}

static void take_ping(struct lm_http2_carrier *http2) {
    if (http2->reader.frame.flags & LM_HTTP2_ACK)
        lm_http2_take_pong(http2, http2->reader.small);
    else
        lm_http2_put(http2, LM_HTTP2_PING, LM_HTTP2_ACK, 0, http2->reader.small, 8);
}

static void take_reset(struct lm_io *io, struct lm_http2_carrier *http2) {
    struct lm_http2_stream *stream = lm_http2_stream_find(http2, http2->reader.frame.stream);
    http2->resets++;
    if (stream) lm_http2_stream_reset(io, stream);
}

/* Its payload is in `small`, of a setting for each one. */
static void take_small(struct lm_io *io, struct lm_http2_carrier *http2) {
    const uint8_t type = http2->reader.frame.type;
    if (type == LM_HTTP2_SETTINGS) take_setting(http2);
    if (type == LM_HTTP2_WINDOW_UPDATE) take_window(io, http2);
    if (type == LM_HTTP2_PING) take_ping(http2);
    if (type == LM_HTTP2_RST_STREAM) take_reset(io, http2);
}

/* ---- header blocks ---- */

static void take_block(struct lm_io *io, struct lm_connection *carrier, const uint8_t *block,
                       size_t bytes) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const uint32_t id = http2->reader.block_of;
    const bool ends = http2->reader.block_flags & LM_HTTP2_END_STREAM;
    http2->reader.block_of = 0;
    lm_http2_stream_head(io, carrier, id, block, bytes, ends);
    lm_http_block_give(io, carrier);
}

/* Room for so many bytes more of a header block that comes in pieces; NULL: the connection has
 * failed. */
static struct lm_http_block *room_for(struct lm_io *io, struct lm_connection *carrier,
                                      size_t bytes) {
    struct lm_http_block *block = lm_http_block(io, carrier);
    if (!block) block = lm_http_refuse_for_block(io, carrier);
    if (!block) lm_add_single_writer_u64(&io->stats->io.connections_evicted, 1);
    if (block && bytes <= LM_HTTP_HEAD_BYTES_MAX - block->used) return block;
    lm_http2_fail(lm_http2_of(io, carrier), LM_HTTP2_ENHANCE_YOUR_CALM,
                  block ? "a header block is too long" : "too many heads arrive in pieces");
    return NULL;
}

/* A frame's payload of a block, whole and without padding: the block, or a part of it. */
static void take_fragment(struct lm_io *io, struct lm_connection *carrier, const uint8_t *at,
                          size_t bytes) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const bool is_last = http2->reader.frame.flags & LM_HTTP2_END_HEADERS;
    if (is_last && !lm_http_block(io, carrier)) {
        take_block(io, carrier, at, bytes);
        return;
    }
    struct lm_http_block *block = room_for(io, carrier, bytes);
    if (!block) return;
    memmove(block->bytes + block->used, at, bytes);
    block->used += (uint32_t)bytes;
    if (is_last) take_block(io, carrier, (const uint8_t *)block->bytes, block->used);
}

/* Of a connection that was too slow, which begins no more streams. */
static size_t skip_headers(struct lm_http2_carrier *http2, size_t count) {
    const size_t taken = count < http2->reader.left ? count : http2->reader.left;
    http2->reader.left -= (uint32_t)taken;
    if (http2->reader.left > 0 || !(http2->reader.frame.flags & LM_HTTP2_END_HEADERS)) return taken;
    /* The stream that the block opens is known as one that is over: its DATA is dropped. */
    if (http2->reader.block_of > http2->last_stream) http2->last_stream = http2->reader.block_of;
    http2->reader.block_of = 0;
    return taken;
}

/* The payload of HEADERS or CONTINUATION: read where it lies when all of it is there. */
static size_t take_headers(struct lm_io *io, struct lm_connection *carrier, const uint8_t *bytes,
                           size_t count) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const uint8_t *at = bytes;
    size_t all = http2->reader.frame.bytes;
    if (http2->is_cut) return skip_headers(http2, count);
    if (http2->reader.small_used == 0 && count >= all) {
        http2->reader.left = 0;
        if (!lm_http2_strip(&http2->reader.frame, &at, &all)) {
            lm_http2_fail(http2, LM_HTTP2_PROTOCOL_ERROR, "HEADERS: more padding than payload");
        } else {
            take_fragment(io, carrier, at, all);
        }
        return http2->reader.frame.bytes;
    }
    /* In pieces: put together in a block, behind the fragments before it. */
    const size_t taken = count < http2->reader.left ? count : http2->reader.left;
    struct lm_http_block *block = room_for(io, carrier, taken);
    if (!block) return taken;
    memcpy(block->bytes + block->used, bytes, taken);
    block->used += (uint32_t)taken;
    http2->reader.small_used = 1; /* part of it is there */
    http2->reader.left -= (uint32_t)taken;
    if (http2->reader.left > 0) return taken;
    http2->reader.small_used = 0;
    block->used -= (uint32_t)all;
    at = (const uint8_t *)block->bytes + block->used;
    if (!lm_http2_strip(&http2->reader.frame, &at, &all)) {
        lm_http2_fail(http2, LM_HTTP2_PROTOCOL_ERROR, "HEADERS: more padding than payload");
    } else {
        take_fragment(io, carrier, at, all);
    }
    return taken;
}

/* ---- bodies ---- */

static size_t take_data(struct lm_io *io, struct lm_connection *carrier, const uint8_t *bytes,
                        size_t count) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    struct lm_http2_stream *stream = lm_http2_stream_find(http2, http2->reader.frame.stream);
    const struct lm_http2_data piece = lm_http2_read_data(&http2->reader, bytes, count);
    const size_t taken = piece.before + piece.data + piece.behind;
    if (piece.is_wrong) {
        lm_http2_fail(http2, LM_HTTP2_PROTOCOL_ERROR, "DATA: more padding than payload");
        return taken;
    }
    if (stream && piece.is_first) {
        if (piece.whole > stream->body_left) {
            lm_http2_put_reset(http2, stream->id, LM_HTTP2_PROTOCOL_ERROR);
            lm_http2_stream_reset(io, stream);
        }
        stream->recv_window -= (int64_t)(piece.before + http2->reader.pad);
    }
    if (stream && piece.data > 0)
        lm_http2_stream_body(io, carrier, stream, bytes + piece.before, piece.data);
    lm_http2_credit_connection(http2, taken);
    if (http2->reader.left > 0) return taken;
    http2->reader.in_frame = false;
    if (stream && http2->reader.frame.flags & LM_HTTP2_END_STREAM)
        lm_http2_stream_end(io, carrier, stream);
    return taken;
}

/* ---- frames ---- */

/* A frame that the client may not send here; NULL: it may. */
static const char *why_misplaced(const struct lm_http2_carrier *http2) {
    const struct lm_http2_frame *frame = &http2->reader.frame;
    if (frame->type == LM_HTTP2_PUSH_PROMISE) return "clients push nothing";
    if (frame->type == LM_HTTP2_HEADERS && frame->stream % 2 == 0) return "expected an odd stream";
    return lm_http2_why_misplaced(&http2->reader, http2->last_stream);
}

/* Whether its client sends more than it has asked for; see the bounds above. */
static bool is_noisy(struct lm_io *io, struct lm_http2_carrier *http2) {
    const bool is_request = http2->reader.frame.type == LM_HTTP2_HEADERS;
    const bool is_body = http2->reader.frame.type == LM_HTTP2_DATA && http2->reader.frame.bytes > 0;
    if (io->now_ns >= http2->second_ns + 1000000000ull) {
        http2->second_ns = io->now_ns;
        http2->causes = http2->noise = http2->resets = 0;
    }
    if (!is_request && !is_body) http2->noise++;
    return http2->noise > NOISE_PER_SECOND + NOISE_PER_CAUSE * http2->causes ||
           http2->resets > RESETS_PER_SECOND;
}

/* DATA beyond a window, or behind the end of its stream. */
static void check_data(struct lm_io *io, struct lm_http2_carrier *http2) {
    struct lm_http2_stream *stream = lm_http2_stream_find(http2, http2->reader.frame.stream);
    if (http2->reader.frame.bytes > http2->recv_window) {
        lm_http2_fail(http2, LM_HTTP2_FLOW_CONTROL_ERROR,
                      "DATA: more than the connection's window");
        return;
    }
    if (!stream || stream->is_done) return; /* it is dropped */
    const bool is_over = stream->has_ended;
    if (!is_over && http2->reader.frame.bytes <= stream->recv_window) return;
    lm_http2_put_reset(http2, stream->id,
                       is_over ? LM_HTTP2_STREAM_CLOSED : LM_HTTP2_FLOW_CONTROL_ERROR);
    lm_http2_stream_reset(io, stream);
}

static void begin_frame(struct lm_io *io, struct lm_http2_carrier *http2) {
    const struct lm_http2_frame *frame = &http2->reader.frame;
    const char *why = why_misplaced(http2);
    if (lm_http2_has_wrong_size(frame, LM_HTTP2_FRAME_MAX)) {
        lm_http2_fail(http2, LM_HTTP2_FRAME_SIZE_ERROR,
                      "a frame's payload has another size than its type");
    } else if (why) {
        lm_http2_fail(http2, LM_HTTP2_PROTOCOL_ERROR, why);
    } else if (is_noisy(io, http2)) {
        lm_http2_fail(http2, LM_HTTP2_ENHANCE_YOUR_CALM, "too many frames beside requests");
    } else if (frame->type == LM_HTTP2_HEADERS) {
        http2->reader.block_of = frame->stream;
        http2->reader.block_flags = frame->flags;
    } else if (frame->type == LM_HTTP2_DATA) {
        check_data(io, http2);
    } else if (frame->type == LM_HTTP2_SETTINGS && (frame->flags & LM_HTTP2_ACK)) {
        http2->is_acked = true;
        lm_http2_give_table(http2);
    }
}

static size_t take_header(struct lm_io *io, struct lm_connection *carrier, const uint8_t *bytes,
                          size_t count) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    if (http2->reader.header_used == 0) carrier->in.started_ns = io->now_ns;
    const size_t taken = lm_http2_read_header(&http2->reader, bytes, count);
    if (http2->reader.in_frame) begin_frame(io, http2);
    return taken;
}

static size_t take_few(struct lm_io *io, struct lm_http2_carrier *http2, const uint8_t *bytes,
                       size_t count) {
    bool is_unit;
    const size_t taken = lm_http2_read_few(&http2->reader, bytes, count, &is_unit);
    if (is_unit) take_small(io, http2);
    return taken;
}

/* A frame's payload, or the end of it. */
static size_t take_payload(struct lm_io *io, struct lm_connection *carrier, const uint8_t *bytes,
                           size_t count) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const uint8_t type = http2->reader.frame.type;
    if (type == LM_HTTP2_DATA) return take_data(io, carrier, bytes, count);
    const bool is_block = type == LM_HTTP2_HEADERS || type == LM_HTTP2_CONTINUATION;
    const size_t taken =
        is_block ? take_headers(io, carrier, bytes, count) : take_few(io, http2, bytes, count);
    if (http2->reader.left > 0) return taken;
    http2->reader.in_frame = false;
    if (type == LM_HTTP2_SETTINGS && !(http2->reader.frame.flags & LM_HTTP2_ACK))
        lm_http2_put(http2, LM_HTTP2_SETTINGS, LM_HTTP2_ACK, 0, NULL, 0);
    return taken;
}

size_t lm_http2_take_frame(struct lm_io *io, struct lm_connection *carrier, const uint8_t *bytes,
                           size_t count) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    if (http2->reader.in_frame) return take_payload(io, carrier, bytes, count);
    const size_t taken = take_header(io, carrier, bytes, count);
    if (http2->reader.in_frame && http2->reader.left == 0 && !http2->has_failed)
        (void)take_payload(io, carrier, bytes + taken, 0);
    return taken;
}
