/* upstream_receive.c: see upstream_receive.h. */
#include "dialects/upstream_receive.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "dialects/http2_state.h"
#include "dialects/upstream_hedge.h"
#include "dialects/upstream_reply.h"
#include "dialects/upstream_trunk.h"
#include "wire/http2_head.h"

/* Bounds on frames that bring no request on, as those for clients are. */
enum { NOISE_PER_SECOND = 1000, NOISE_PER_FRAME = 16 };
enum { PRIORITY_BYTES = 5 }; /* before a header block */

static bool is_done(const struct lm_upstream_trunk *trunk, const struct lm_link *link) {
    return lm_trunk_places_have(&trunk->over, link->stream.place);
}

/* The stream of the frame that is read, if its request can still be answered. */
static struct lm_link *stream_of(const struct lm_io *io, const struct lm_upstream_trunk *trunk) {
    struct lm_link *link = lm_carried_find(io, trunk, trunk->reader.frame.stream);
    return link && !is_done(trunk, link) ? link : NULL;
}

static void garbage(struct lm_io *io, struct lm_link *link, const char *why) {
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    snprintf(exchange->event, sizeof exchange->event, "its answer: %s", why);
    lm_stream_cut(io, link, LM_FAULT_GARBAGE, true);
}

/* ---- bodies ---- */

/* Its other side may send as many bytes anew as have gone on, half a window at a time. */
static void credit(struct lm_io *io, struct lm_upstream_trunk *trunk, struct lm_link *link) {
    struct lm_upstream_stream *stream = &link->stream;
    if (stream->has_ended || stream->owed < LM_UPSTREAM_WINDOW_BYTES / 2) return;
    if (!lm_trunk_put_number(trunk, LM_HTTP2_WINDOW_UPDATE, stream->id, stream->owed)) return;
    stream->recv_window += (int32_t)stream->owed;
    stream->owed = 0;
    lm_connection_mark(io, lm_link_connection(io, link));
}

/* An answer that is whole, or whose head can go alone, needs no byte more. */
static bool is_due(const struct lm_link *link, const struct lm_exchange *exchange) {
    const bool waits = link->framing == LM_HTTP_FRAMED_BY_LENGTH && link->left > 0;
    return link->stream.deferred > 0 || (!exchange->head_passed && !waits);
}

/* Gives on what is deferred. false: its client must read first. */
static bool pass_deferred(struct lm_io *io, struct lm_link *link) {
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    const size_t at = exchange->window_used, count = link->stream.deferred;
    link->stream.deferred = 0;
    const size_t taken = lm_upstream_take_body(io, link, exchange->window + at, count);
    if (link->slot == LM_NO_SLOT) return true; /* it was the end */
    if (exchange->head_passed && lm_connection_is_sending(lm_exchange_client(io, link->slot)))
        exchange->window_used = at + taken; /* from there it is sent */
    if (taken < count && exchange->window_used < at + taken) exchange->window_used = at + taken;
    link->stream.deferred = (uint32_t)(count - taken);
    return taken == count && exchange->head_passed;
}

/* The other side has said all. */
static void end_body(struct lm_io *io, struct lm_link *link) {
    const bool is_short = link->framing == LM_HTTP_FRAMED_BY_LENGTH && link->left > 0;
    if (is_short) {
        lm_stream_cut(io, link, LM_FAULT_CLOSED, true);
    } else {
        (void)lm_upstream_end_body(io, link);
    }
}

void lm_stream_go_on(struct lm_io *io, struct lm_link *link) {
    struct lm_upstream_trunk *trunk = lm_trunk_of(io, link);
    const uint32_t place = link->stream.place;
    bool waits = false;
    lm_trunk_places_put(&trunk->held, place, false);
    while (!waits && link->slot != LM_NO_SLOT && link->state == LM_LINK_ANSWERING &&
           !is_done(trunk, link)) {
        struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
        waits = link->sends || lm_connection_is_sending(lm_exchange_client(io, link->slot));
        if (waits) break;
        if (is_due(link, exchange)) {
            waits = !pass_deferred(io, link);
            continue;
        }
        if (exchange->head_passed) exchange->window_used = 0; /* else it gathers a short answer */
        if (!link->stream.has_ended) {
            if (exchange->head_passed) credit(io, trunk, link);
            break;
        }
        end_body(io, link);
        waits = link->slot != LM_NO_SLOT && !is_done(trunk, link);
    }
    lm_trunk_places_put(&trunk->held, place, waits);
}

/* Bytes of an answer's body: to its client at once, or to the window until that reads. */
static void take_body(struct lm_io *io, struct lm_link *link, const uint8_t *bytes, size_t count) {
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    size_t taken = 0;
    const bool waits = link->sends || link->stream.deferred > 0 ||
                       lm_connection_is_sending(lm_exchange_client(io, link->slot));
    if (!waits) taken = lm_upstream_take_body(io, link, bytes, count);
    if (link->slot == LM_NO_SLOT) return;
    const size_t at = exchange->window_used + link->stream.deferred;
    LM_DEBUG_ASSERT(at + count - taken <= LM_UPSTREAM_WINDOW_BYTES); /* by what it may send */
    if (at + count - taken > LM_UPSTREAM_WINDOW_BYTES) {
        garbage(io, link, "more of it than was asked for");
        return;
    }
    memcpy(exchange->window + at, bytes + taken, count - taken);
    link->stream.deferred += (uint32_t)(count - taken);
}

static void stream_ended(struct lm_io *io, struct lm_upstream_trunk *trunk) {
    struct lm_link *link = lm_carried_find(io, trunk, trunk->reader.frame.stream);
    if (!link) return;
    link->stream.has_ended = true;
    if (is_done(trunk, link)) return;
    if (link->state == LM_LINK_OVER) {
        lm_stream_cut(io, link, LM_FAULT_CLOSED, false); /* nobody has waited for more */
    } else if (link->state == LM_LINK_ANSWERING) {
        lm_stream_go_on(io, link);
    } else {
        garbage(io, link, "expected a head, found its end");
    }
}

static size_t take_data(struct lm_io *io, struct lm_upstream_trunk *trunk, const uint8_t *bytes,
                        size_t count) {
    struct lm_link *link = stream_of(io, trunk);
    const struct lm_http2_data piece = lm_http2_read_data(&trunk->reader, bytes, count);
    const size_t taken = piece.before + piece.data + piece.behind;
    if (piece.is_wrong) {
        lm_trunk_fail(io, trunk, LM_HTTP2_PROTOCOL_ERROR, "DATA: more padding than payload");
        return taken;
    }
    trunk->owed += (uint32_t)taken;
    if (trunk->owed >= LM_TRUNK_WINDOW / 2 &&
        lm_trunk_put_number(trunk, LM_HTTP2_WINDOW_UPDATE, 0, trunk->owed))
        trunk->owed = 0;
    if (!link || link->slot == LM_NO_SLOT) return taken;
    link->moved_ns = io->now_ns;
    link->stream.owed += (uint32_t)taken;
    if (piece.data > 0) take_body(io, link, bytes + piece.before, piece.data);
    if (trunk->reader.left > 0 || !(trunk->reader.frame.flags & LM_HTTP2_END_STREAM))
        lm_stream_go_on(io, link);
    return taken;
}

/* ---- heads ---- */

static void take_block(struct lm_io *io, struct lm_upstream_trunk *trunk, struct lm_link *link,
                       const uint8_t *block, size_t bytes) {
    struct lm_http2_side *scratch = io->http2;
    struct lm_hpack hpack = {0}; /* its other side knows that there is no table */
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    struct lm_http_response response;
    const bool ends = trunk->reader.block_flags & LM_HTTP2_END_STREAM;
    if (!lm_hpack_decode(&hpack, block, bytes, &scratch->fields, exchange->event,
                         sizeof exchange->event)) {
        lm_trunk_fail(io, trunk, LM_HTTP2_COMPRESSION_ERROR,
                      "expected header blocks without a table");
        return;
    }
    const size_t head =
        lm_http2_answer_head(&scratch->fields, ends, scratch->head, sizeof scratch->head,
                             exchange->event, sizeof exchange->event);
    const int used = head == 0 ? -1
                               : lm_http_parse_response(scratch->head, head, false, &response,
                                                        exchange->event, sizeof exchange->event);
    link->has_answered = true;
    if (used <= 0) {
        lm_stream_cut(io, link, LM_FAULT_GARBAGE, true);
        return;
    }
    if (lm_upstream_take_answer(io, link, &response)) lm_stream_go_on(io, link);
}

/* Trailers say nothing that is passed on, and nobody reads the head of what is over. */
static bool is_skipped(const struct lm_link *link) {
    return !link || link->state != LM_LINK_ASKING;
}

/* Part of a header block that does not come at once: kept in the window of its stream. */
static void keep_fragment(struct lm_io *io, struct lm_upstream_trunk *trunk, struct lm_link *link,
                          const uint8_t *at, size_t bytes) {
    const struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    if (bytes > LM_UPSTREAM_WINDOW_BYTES - trunk->block_used) {
        garbage(io, link, "expected a head of at most 8192 bytes");
        return;
    }
    lm_upstream_win(io, link); /* the window is its own from here on */
    memcpy(exchange->window + trunk->block_used, at, bytes);
    trunk->block_used += (uint32_t)bytes;
}

/* Bytes of HEADERS or CONTINUATION: a block is read where it lies when all of it is there. */
static size_t take_headers(struct lm_io *io, struct lm_upstream_trunk *trunk, const uint8_t *bytes,
                           size_t count) {
    struct lm_http2_reader *reader = &trunk->reader;
    struct lm_link *link = stream_of(io, trunk);
    if (link && (link->sends || !lm_upstream_may_answer(io, link)) && count > 0)
        return 0; /* the kernel still reads its slot */
    const struct lm_http2_data piece = lm_http2_read_data(reader, bytes, count);
    const size_t taken = piece.before + piece.data + piece.behind;
    const size_t skipped = piece.data < trunk->skipped ? piece.data : trunk->skipped;
    const uint8_t *at = bytes + piece.before + skipped;
    const size_t fragment = piece.data - skipped;
    const bool is_whole = reader->left == 0;
    const bool ends = is_whole && (reader->frame.flags & LM_HTTP2_END_HEADERS);
    trunk->skipped -= (uint8_t)skipped;
    if (piece.is_wrong || (is_whole && trunk->skipped)) {
        lm_trunk_fail(io, trunk, LM_HTTP2_PROTOCOL_ERROR, "HEADERS: more padding than payload");
        return taken;
    }
    if (!is_skipped(link) && ends && trunk->block_used == 0) {
        take_block(io, trunk, link, at, fragment);
    } else if (!is_skipped(link)) {
        keep_fragment(io, trunk, link, at, fragment);
        if (ends && !is_done(trunk, link))
            take_block(io, trunk, link, lm_exchange_of(io, link->slot)->window, trunk->block_used);
    }
    if (ends) reader->block_of = trunk->block_used = 0;
    if (ends && (reader->block_flags & LM_HTTP2_END_STREAM)) stream_ended(io, trunk);
    return taken;
}

/* ---- frames of few bytes ---- */

static void take_window(struct lm_io *io, struct lm_upstream_trunk *trunk) {
    const uint32_t by = lm_http2_get_u32(trunk->reader.small) & 0x7fffffff;
    struct lm_link *link = stream_of(io, trunk);
    int64_t *window = trunk->reader.frame.stream == 0 ? &trunk->send_window
                      : link                          ? &link->stream.send_window
                                                      : NULL;
    if (!window) return;
    *window += by;
    if (by == 0 || *window > INT32_MAX) {
        lm_trunk_fail(io, trunk, LM_HTTP2_FLOW_CONTROL_ERROR,
                      "WINDOW_UPDATE: expected a window of 1 to 2^31 - 1");
    } else if (link && link->message.msg_iovlen > 0) {
        lm_stream_ask(io, link);
    }
}

static void take_setting(struct lm_io *io, struct lm_upstream_trunk *trunk) {
    const struct lm_http2_setting setting = lm_http2_read_setting(&trunk->reader);
    enum lm_http2_error error;
    const char *why = lm_http2_why_wrong_setting(setting, &error);
    if (why) {
        lm_trunk_fail(io, trunk, error, why);
        return;
    }
    if (setting.id == LM_HTTP2_MAX_FRAME_SIZE)
        trunk->frame_max = setting.value < LM_HTTP2_FRAME_MAX ? setting.value : LM_HTTP2_FRAME_MAX;
    if (setting.id == LM_HTTP2_MAX_CONCURRENT_STREAMS) lm_trunk_limit(io, trunk, setting.value);
    if (setting.id != LM_HTTP2_INITIAL_WINDOW_SIZE) return;
    const int64_t more = (int64_t)setting.value - trunk->initial_window;
    trunk->initial_window = setting.value;
    for (uint32_t p = lm_trunk_places_next(&trunk->used, 0); p < LM_CARRIED_MAX;
         p = lm_trunk_places_next(&trunk->used, p + 1)) {
        struct lm_link *link = lm_carried(io, trunk, p);
        link->stream.send_window += more;
        if (link->stream.id && link->message.msg_iovlen > 0) lm_stream_ask(io, link);
    }
}

static void take_reset(struct lm_io *io, struct lm_upstream_trunk *trunk) {
    struct lm_link *link = stream_of(io, trunk);
    const uint32_t error = lm_http2_get_u32(trunk->reader.small);
    if (!link) return;
    const bool is_over =
        link->stream.has_ended; /* it has only no use for the rest of the request */
    link->stream.has_ended = true;
    link->message.msg_iovlen = 0;
    if (error == LM_HTTP2_REFUSED_STREAM && !link->has_answered) {
        if (trunk->open < trunk->open_max && trunk->open > 1)
            trunk->open_max = trunk->open - 1; /* it takes fewer than it has said */
        lm_stream_refuse(io, link);
    } else if (!is_over || link->slot == LM_NO_SLOT) {
        link->refusal = (int32_t)error;
        lm_stream_cut(io, link, LM_FAULT_RESET, false);
    }
}

static void take_goaway(struct lm_io *io, struct lm_upstream_trunk *trunk) {
    const uint32_t last = lm_http2_get_u32(trunk->reader.small) & 0x7fffffff;
    for (uint32_t p = lm_trunk_places_next(&trunk->used, 0); p < LM_CARRIED_MAX;
         p = lm_trunk_places_next(&trunk->used, p + 1)) {
        struct lm_link *link = lm_carried(io, trunk, p);
        const bool is_looked_at = link->stream.id && link->stream.id <= last;
        if (!is_looked_at && link->slot != LM_NO_SLOT) lm_stream_refuse(io, link);
    }
    lm_trunk_close(io, &io->upstream->links[trunk->link]);
}

static void take_small(struct lm_io *io, struct lm_upstream_trunk *trunk) {
    const struct lm_http2_frame *frame = &trunk->reader.frame;
    if (frame->type == LM_HTTP2_SETTINGS) take_setting(io, trunk);
    if (frame->type == LM_HTTP2_WINDOW_UPDATE) take_window(io, trunk);
    if (frame->type == LM_HTTP2_RST_STREAM) take_reset(io, trunk);
    if (frame->type == LM_HTTP2_GOAWAY) take_goaway(io, trunk);
    if (frame->type == LM_HTTP2_PING && !(frame->flags & LM_HTTP2_ACK))
        (void)lm_trunk_put(trunk, LM_HTTP2_PING, LM_HTTP2_ACK, 0, trunk->reader.small, 8);
}

/* ---- frames ---- */

static bool is_noisy(const struct lm_io *io, struct lm_upstream_trunk *trunk) {
    const struct lm_http2_frame *frame = &trunk->reader.frame;
    const bool is_answer =
        (frame->type == LM_HTTP2_DATA && frame->bytes > 0) || frame->type == LM_HTTP2_HEADERS;
    if (io->now_ns >= trunk->second_ns + 1000000000ull) {
        trunk->second_ns = io->now_ns;
        trunk->noise = trunk->asked = 0;
    }
    if (!is_answer) trunk->noise++;
    return trunk->noise > NOISE_PER_SECOND + NOISE_PER_FRAME * trunk->asked;
}

static void begin_frame(struct lm_io *io, struct lm_upstream_trunk *trunk) {
    struct lm_http2_reader *reader = &trunk->reader;
    const struct lm_http2_frame *frame = &reader->frame;
    const char *why = lm_http2_why_misplaced(reader, trunk->last_stream);
    struct lm_link *link = stream_of(io, trunk);
    if (frame->type == LM_HTTP2_PUSH_PROMISE) why = "it was asked to push nothing";
    if (frame->type == LM_HTTP2_HEADERS &&
        (frame->stream > trunk->last_stream || frame->stream % 2 == 0))
        why = "HEADERS of a stream that is not open";
    if (lm_http2_has_wrong_size(frame, LM_HTTP2_FRAME_MIN)) {
        lm_trunk_fail(io, trunk, LM_HTTP2_FRAME_SIZE_ERROR,
                      "a frame's payload has another size than its type");
    } else if (why) {
        lm_trunk_fail(io, trunk, LM_HTTP2_PROTOCOL_ERROR, why);
    } else if (is_noisy(io, trunk)) {
        lm_trunk_fail(io, trunk, LM_HTTP2_ENHANCE_YOUR_CALM, "too many frames beside answers");
    } else if (frame->type == LM_HTTP2_HEADERS) {
        reader->block_of = frame->stream;
        reader->block_flags = frame->flags;
        trunk->skipped = frame->flags & LM_HTTP2_HAS_PRIORITY ? PRIORITY_BYTES : 0;
    } else if (frame->type == LM_HTTP2_DATA && link && link->slot != LM_NO_SLOT) {
        link->stream.recv_window -= (int32_t)frame->bytes;
        if (link->stream.recv_window < 0) {
            garbage(io, link, "more of it than was asked for");
        } else if (link->state != LM_LINK_ANSWERING) {
            garbage(io, link, "expected a head, found a body");
        }
    }
}

static size_t take_payload(struct lm_io *io, struct lm_upstream_trunk *trunk, const uint8_t *bytes,
                           size_t count) {
    struct lm_http2_reader *reader = &trunk->reader;
    const uint8_t type = reader->frame.type;
    const bool is_block = type == LM_HTTP2_HEADERS || type == LM_HTTP2_CONTINUATION;
    size_t taken = 0;
    bool is_unit = false;
    if (type == LM_HTTP2_DATA) {
        taken = take_data(io, trunk, bytes, count);
    } else if (is_block) {
        taken = take_headers(io, trunk, bytes, count);
    } else {
        taken = lm_http2_read_few(reader, bytes, count, &is_unit);
    }
    if (is_unit) take_small(io, trunk);
    if (reader->left > 0) return taken;
    reader->in_frame = false;
    if (type == LM_HTTP2_SETTINGS && !(reader->frame.flags & LM_HTTP2_ACK))
        (void)lm_trunk_put(trunk, LM_HTTP2_SETTINGS, LM_HTTP2_ACK, 0, NULL, 0);
    if (type == LM_HTTP2_DATA && (reader->frame.flags & LM_HTTP2_END_STREAM))
        stream_ended(io, trunk);
    return taken;
}

size_t lm_trunk_take(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                     size_t count) {
    const struct lm_link *link = lm_link_of(io, connection);
    if (!link || connection->ended) return count;
    struct lm_upstream_trunk *trunk = lm_trunk_of(io, link);
    struct lm_http2_reader *reader = &trunk->reader;
    if (trunk->has_failed) return count;
    if (!lm_trunk_has_room(trunk)) return 0; /* it reads nothing, and is not read either */
    trunk->heard_ns = io->now_ns;
    lm_connection_mark(io, connection); /* there may be something to say */
    if (reader->in_frame) return take_payload(io, trunk, bytes, count);
    const size_t taken = lm_http2_read_header(reader, bytes, count);
    if (reader->in_frame) begin_frame(io, trunk);
    if (reader->in_frame && reader->left == 0 && !trunk->has_failed)
        (void)take_payload(io, trunk, bytes + taken, 0);
    return taken;
}
