/* http2_streams.c: see http2_streams.h. */
#include "dialects/http2_streams.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "dialects/grpc_receive.h"
#include "dialects/grpc_reply.h"
#include "dialects/grpc_stream.h"
#include "dialects/http2_put.h"
#include "dialects/http2_shelf.h"
#include "flow/receive.h"
#include "flow/reply.h"
#include "wire/http2_head.h"

struct lm_http2_stream *lm_http2_stream_find(struct lm_http2_carrier *http2, uint32_t id) {
    for (uint32_t s = lm_http2_next(http2, 0); s < LM_HTTP2_PLACES; s = lm_http2_next(http2, s + 1))
        if (http2->busy->streams[s].id == id) return &http2->busy->streams[s];
    return NULL;
}

/* ---- opening ---- */

/* Streams that ended in this turn, or whose Run goes on, have their places still, and count no
 * more. */
static bool has_all_open(const struct lm_http2_carrier *http2) {
    uint32_t open = 0;
    if (http2->open < LM_HTTP2_STREAMS_MAX) return false;
    for (uint32_t s = lm_http2_next(http2, 0); s < LM_HTTP2_PLACES; s = lm_http2_next(http2, s + 1))
        if (!http2->busy->streams[s].is_done) open++;
    return open >= LM_HTTP2_STREAMS_MAX;
}

static struct lm_http2_stream *open_stream(struct lm_io *io, struct lm_connection *carrier,
                                           uint32_t id) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const uint64_t *used = lm_http2_busy(http2)->used;
    uint32_t place = 0;
    while (place < LM_HTTP2_PLACES && used[place / 64] >> place % 64 & 1) place++;
    if (place == LM_HTTP2_PLACES || has_all_open(http2) || http2->is_closing) return NULL;
    /* No more than there may be of others: a few connections do not take all. */
    if (http2->open + io->streams_open >= LM_STREAMS_MAX) return NULL;
    struct lm_connection *connection = lm_connection_open_stream(io, carrier);
    if (!connection) return NULL;
    connection->dialect = LM_DIALECT_HTTP;
    http2->busy->streams[place] = (struct lm_http2_stream){.id = id,
                                                           .connection = connection->index,
                                                           .generation = connection->generation,
                                                           .send_window = http2->initial_window,
                                                           .recv_window = LM_HTTP2_STREAM_WINDOW};
    http2->busy->used[place / 64] |= 1ull << place % 64;
    http2->open++;
    carrier->in_flight++;
    return &http2->busy->streams[place];
}

/* Fields behind a body: nobody reads them. */
static void take_trailers(struct lm_io *io, struct lm_connection *carrier,
                          struct lm_http2_stream *stream, bool ends) {
    if (!stream->has_ended && ends) {
        lm_http2_stream_end(io, carrier, stream);
        return;
    }
    lm_http2_put_reset(lm_http2_of(io, carrier), stream->id, LM_HTTP2_PROTOCOL_ERROR);
    lm_http2_stream_reset(io, stream);
}

static void begin(struct lm_io *io, struct lm_connection *carrier, uint32_t id,
                  const struct lm_http2_request *request, bool ends) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const struct lm_http2_side *side = io->http2;
    struct lm_http2_stream *stream = open_stream(io, carrier, id);
    if (!stream) {
        lm_http2_put_reset(http2, id, LM_HTTP2_REFUSED_STREAM);
        return;
    }
    stream->body_left = request->content;
    stream->is_chunked = request->is_chunked;
    stream->has_ended = stream->end_given = ends;
    if (request->is_grpc) {
        lm_grpc_begin(io, carrier, stream, side->head, request->bytes);
        if (ends) lm_grpc_end(io, carrier, stream);
        return;
    }
    struct lm_connection *connection = lm_http2_connection(io, stream);
    (void)lm_receive_give(io, connection, (const uint8_t *)side->head, request->bytes);
}

void lm_http2_stream_head(struct lm_io *io, struct lm_connection *carrier, uint32_t id,
                          const uint8_t *block, size_t bytes, bool ends) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    struct lm_http2_side *side = io->http2;
    struct lm_http2_stream *stream = lm_http2_stream_find(http2, id);
    struct lm_http2_request request;
    char why[LM_TEXT_BYTES_MAX];
    if (!lm_hpack_decode(&http2->hpack, block, bytes, &side->fields, why, sizeof why)) {
        lm_http2_fail(http2, LM_HTTP2_COMPRESSION_ERROR, why);
        return;
    }
    if (stream) {
        take_trailers(io, carrier, stream, ends);
        return;
    }
    if (id <= http2->last_stream) { /* of one that is closed, which its client may not know yet */
        lm_http2_put_reset(http2, id, LM_HTTP2_STREAM_CLOSED);
        return;
    }
    http2->last_stream = id;
    http2->causes++;
    enum lm_http2_verdict verdict =
        lm_http2_request_head(&side->fields, !ends, side->head, sizeof side->head, &request);
    if (verdict != LM_HTTP2_HEAD_GOOD) {
        lm_http2_put_reset(http2, id,
                           verdict == LM_HTTP2_HEAD_TOO_LARGE ? LM_HTTP2_ENHANCE_YOUR_CALM
                                                              : LM_HTTP2_PROTOCOL_ERROR);
    } else {
        begin(io, carrier, id, &request, ends);
    }
}

/* ---- bodies ---- */

/* All or nothing of a few bytes. */
static bool give_line(struct lm_io *io, struct lm_connection *connection, const char *line,
                      size_t bytes) {
    return lm_receive_give(io, connection, (const uint8_t *)line, bytes) == bytes;
}

/* Its client sends no more, and its request has all that came. */
static void pass_end(struct lm_io *io, struct lm_connection *carrier,
                     struct lm_http2_stream *stream) {
    struct lm_connection *connection = lm_http2_connection(io, stream);
    stream->end_given = !stream->is_chunked || give_line(io, connection, "0\r\n\r\n", 5);
    if (stream->grpc.method) lm_grpc_end(io, carrier, stream);
}

/* Bytes of its body, in order. Returns how many its request took. */
static size_t pass(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                   const uint8_t *bytes, size_t count) {
    struct lm_connection *connection = lm_http2_connection(io, stream);
    if (!connection || connection->ended) return count; /* it is answered */
    if (stream->grpc.method) return lm_grpc_take(io, carrier, stream, bytes, count);
    if (!stream->is_chunked) return lm_receive_give(io, connection, bytes, count);
    /* A request that takes a chunk's size takes the chunk. */
    char line[24];
    const int used = snprintf(line, sizeof line, "%zx\r\n", count);
    if (!give_line(io, connection, line, (size_t)used)) return 0;
    const size_t taken = lm_receive_give(io, connection, bytes, count);
    LM_DEBUG_ASSERT(taken == count);
    (void)give_line(io, connection, "\r\n", 2);
    return taken;
}

/* Of its body: what is not here, at most, and how much of that its request has a place for. */
static uint64_t bytes_left(const struct lm_http2_stream *stream) {
    const bool is_call = stream->grpc.method, is_long = lm_grpc_is_long(stream);
    const bool is_in = stream->grpc.stage == LM_GRPC_TENSORS || stream->grpc.stage == LM_GRPC_WHOLE;
    return is_call && is_in && !is_long ? stream->grpc.left : stream->body_left;
}
static uint64_t bytes_placed(const struct lm_io *io, const struct lm_http2_stream *stream,
                             const struct lm_connection *connection) {
    const bool is_in = stream->grpc.stage == LM_GRPC_TENSORS || stream->grpc.stage == LM_GRPC_WHOLE;
    if (connection->in.receiving == LM_NO_SLOT) return 0;
    if (stream->grpc.method) return is_in ? stream->grpc.left : 0;
    if (!stream->is_chunked) return stream->body_left;
    const struct lm_request *request = &io->requests[connection->in.receiving];
    return request->body.room - request->body.bytes;
}

/* Bytes of a message's head, as far as it has come: they go to the shelf if it has to wait. */
static uint32_t bytes_aside(const struct lm_http2_stream *stream) {
    const struct lm_grpc_call *grpc = &stream->grpc;
    if (!grpc->method || grpc->stage != LM_GRPC_HEAD) return 0;
    return lm_http2_get_u32(grpc->bytes + 1) - grpc->left;
}

/* Goes on with what waits on its shelf, says that no more will come, or that more may. */
static void settle(struct lm_io *io, struct lm_connection *carrier,
                   struct lm_http2_stream *stream) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    if (stream->shelf) {
        const size_t taken =
            pass(io, carrier, stream, lm_http2_shelved(http2, stream), stream->shelved);
        lm_http2_unshelve(http2, stream, taken);
    }
    const struct lm_connection *connection = lm_http2_connection(io, stream);
    if (!connection || connection->ended) return;
    if (stream->has_ended && !stream->end_given && !stream->shelf)
        pass_end(io, carrier, stream);
    else
        lm_http2_credit_stream(http2, stream, bytes_left(stream),
                               bytes_placed(io, stream, connection), bytes_aside(stream));
}

void lm_http2_stream_body(struct lm_io *io, struct lm_connection *carrier,
                          struct lm_http2_stream *stream, const uint8_t *bytes, size_t count) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const size_t taken = stream->shelf ? 0 : pass(io, carrier, stream, bytes, count);
    if (stream->body_left != UINT64_MAX) stream->body_left -= count;
    stream->recv_window -= (int64_t)count;
    if (taken == count || lm_http2_shelve(http2, stream, bytes + taken, count - taken)) return;
    struct lm_connection *connection = lm_http2_connection(io, stream);
    if (connection && !lm_connection_is_sending(connection))
        connection->in.cut_short = LM_STATUS_OVERLOADED;
    lm_http2_put_reset(http2, stream->id, LM_HTTP2_REFUSED_STREAM);
    lm_http2_stream_reset(io, stream);
}

void lm_http2_stream_end(struct lm_io *io, struct lm_connection *carrier,
                         struct lm_http2_stream *stream) {
    if (stream->has_ended) return; /* it was reset */
    stream->has_ended = true;
    if (stream->body_left == UINT64_MAX || stream->body_left == 0) {
        settle(io, carrier, stream);
        return;
    }
    lm_http2_put_reset(lm_http2_of(io, carrier), stream->id, LM_HTTP2_PROTOCOL_ERROR);
    lm_http2_stream_reset(io, stream);
}

void lm_http2_stream_reset(struct lm_io *io, struct lm_http2_stream *stream) {
    struct lm_connection *connection = lm_http2_connection(io, stream);
    stream->has_ended = stream->end_given = stream->is_done = true;
    if (connection) lm_connection_abort(io, connection);
}

/* ---- what became of them ---- */

static bool is_being_sent(const struct lm_http2_carrier *http2, uint32_t place) {
    for (uint32_t s = 0; http2->sends && s < http2->busy->sent_count; s++)
        if (http2->busy->sent[s].stream == place) return true;
    return false;
}

/* A step may begin; otherwise it may once what is said before has made room. */
static bool has_room(struct lm_io *io, struct lm_connection *carrier) {
    const struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const bool is_there = lm_http2_has_room(http2);
    if (!is_there && !http2->sends) lm_connection_mark(io, carrier);
    return is_there;
}

/* Why a call ends before its answer does. */
static const char *why_cut(struct lm_io *io, const struct lm_connection *carrier) {
    if (lm_shared_is_leaving(io->shared)) return "the server ends";
    if (lm_connection_is_old(io, carrier))
        return "its connection is older than server.max_connection_age_seconds";
    return "the call stood still for too long";
}

/* Its entry in the table of connections is free. */
static void close_stream(struct lm_io *io, struct lm_connection *carrier,
                         struct lm_http2_stream *stream) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const uint32_t place = (uint32_t)(stream - http2->busy->streams);
    /* An answer may come before the end of a body, which then need not be sent. */
    const bool is_cut = !carrier->ended && (!stream->is_done || !stream->has_ended);
    if (is_cut && !has_room(io, carrier)) return;
    if (is_cut && stream->grpc.method)
        lm_grpc_finish(io, carrier, stream, LM_GRPC_UNAVAILABLE, why_cut(io, carrier));
    if (is_cut && !(stream->is_done && stream->has_ended))
        lm_http2_put_reset(http2, stream->id,
                           stream->is_done ? LM_HTTP2_NO_ERROR : LM_HTTP2_INTERNAL_ERROR);
    if (stream->grpc.method) lm_grpc_forget(io, carrier, stream);
    if (stream->shelf) lm_http2_unshelve(http2, stream, stream->shelved);
    *stream = (struct lm_http2_stream){0};
    http2->busy->used[place / 64] &= ~(1ull << place % 64);
    http2->open--;
    carrier->in_flight--;
}

static void look(struct lm_io *io, struct lm_connection *carrier, uint32_t place) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    struct lm_http2_stream *stream = &http2->busy->streams[place];
    struct lm_connection *connection = lm_http2_connection(io, stream);
    const bool sends = is_being_sent(http2, place);
    if (!connection) {
        if (!sends) close_stream(io, carrier, stream);
        return;
    }
    if (has_room(io, carrier)) settle(io, carrier, stream);
    if (stream->grpc.method && !carrier->ended && has_room(io, carrier))
        lm_grpc_look(io, carrier, stream);
    /* relaxed: this thread's own */
    const bool is_gone = lm_load_relaxed_u32(&connection->gone) || carrier->ended;
    if (carrier->ended && !lm_load_relaxed_u32(&connection->gone))
        lm_connection_abort(io, connection);
    if (is_gone && !sends && connection->sending != LM_NO_SLOT) {
        const struct lm_completion completion = {.op = LM_OP_SEND,
                                                 .index = connection->index,
                                                 .generation = connection->generation,
                                                 .result = -EPIPE};
        lm_reply_completed(io, &completion);
    } else if (is_gone && sends && connection->in.cut_short != LM_STATUS_OK &&
               !lm_load_relaxed_u32(&carrier->gone)) { /* relaxed: as above */
        lm_connection_abort(io, carrier); /* its client reads nothing, and the slot is wanted */
    } else if (connection->write_shut && !connection->ended) {
        lm_connection_end(io, connection);
    }
}

void lm_http2_streams_drop(struct lm_io *io, struct lm_connection *carrier, bool halves_alone) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    for (uint32_t s = lm_http2_next(http2, 0); s < LM_HTTP2_PLACES;
         s = lm_http2_next(http2, s + 1)) {
        struct lm_http2_stream *stream = &http2->busy->streams[s];
        if (stream->is_done || (halves_alone && stream->has_ended)) continue;
        if (halves_alone && lm_http2_has_room(http2))
            lm_http2_put_reset(http2, stream->id, LM_HTTP2_REFUSED_STREAM);
        lm_http2_stream_reset(io, stream);
    }
}

void lm_http2_streams_look(struct lm_io *io, struct lm_connection *carrier) {
    const struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    for (uint32_t s = lm_http2_next(http2, 0); s < LM_HTTP2_PLACES; s = lm_http2_next(http2, s + 1))
        look(io, carrier, s);
}
