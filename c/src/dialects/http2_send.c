/* http2_send.c: see http2_send.h. */
#include "dialects/http2_send.h"

#include <errno.h>
#include <string.h>

#include "dialects/grpc_reply.h"
#include "flow/reply.h"
#include "flow/transport.h"
#include "wire/http2_head.h"

/* For the headers of DATA and of trailers, and for those. */
enum {
    TRAILERS_PARTS = 2,
    REPLY_PARTS = 4 + TRAILERS_PARTS
}; /* its head's, and of DATA at least */
/* More would keep a reply of few bytes that comes later waiting. */
enum { BATCH_BYTES = 256 << 10 };
enum { CALL_ROOM = 2 * LM_HTTP2_FRAME_BYTES + LM_GRPC_TRAILERS_BYTES };

static void add_part(struct lm_http2_carrier *http2, void *base, size_t bytes) {
    http2->busy->parts[http2->busy->part_count++] = (struct iovec){base, bytes};
}

/* A frame's header, in memory that stays until it is sent. */
static void add_frame(struct lm_http2_carrier *http2, struct lm_http2_frame frame) {
    uint8_t *at = http2->busy->heads + http2->busy->heads_used;
    lm_http2_write_frame(at, frame);
    http2->busy->heads_used += LM_HTTP2_FRAME_BYTES;
    add_part(http2, at, LM_HTTP2_FRAME_BYTES);
}

/* The head of a reply, which is at the message's beginning. Returns its bytes there; 0: the batch
 * is full. */
static size_t add_head(struct lm_http2_carrier *http2, struct lm_http2_stream *stream,
                       const struct lm_request *request, size_t all) {
    const struct msghdr *message = &request->message;
    const char *head = message->msg_iov[0].iov_base;
    const char *end = memmem(head, message->msg_iov[0].iov_len, "\r\n\r\n", 4);
    uint8_t *at = http2->busy->heads + http2->busy->heads_used;
    const size_t room = sizeof http2->busy->heads - http2->busy->heads_used;
    if (room <= LM_HTTP2_FRAME_BYTES) return 0;
    const size_t head_bytes = (size_t)(end - head) + 4;
    const size_t bytes = lm_http2_reply_head(head, head_bytes, at + LM_HTTP2_FRAME_BYTES,
                                             room - LM_HTTP2_FRAME_BYTES);
    if (bytes == 0) return 0;
    const uint8_t ends = head_bytes == all && !request->in_pieces ? LM_HTTP2_END_STREAM : 0;
    add_frame(http2, (struct lm_http2_frame){(uint32_t)bytes, stream->id, LM_HTTP2_HEADERS,
                                             (uint8_t)(LM_HTTP2_END_HEADERS | ends)});
    add_part(http2, at + LM_HTTP2_FRAME_BYTES, bytes);
    http2->busy->heads_used = (uint16_t)(http2->busy->heads_used + bytes);
    stream->head_sent = true;
    return head_bytes;
}

static size_t message_bytes(const struct msghdr *message) {
    size_t bytes = 0;
    for (size_t p = 0; p < message->msg_iovlen; p++) bytes += message->msg_iov[p].iov_len;
    return bytes;
}

/* A call's reply becomes a message, with what stands before it. Returns how much of the reply is
 * said with that: nothing of a message, all of one that is a status alone. */
static size_t add_call_head(struct lm_io *io, struct lm_http2_carrier *http2,
                            struct lm_http2_stream *stream, struct lm_request *request) {
    const size_t room = sizeof http2->busy->heads - http2->busy->heads_used;
    uint8_t *at = http2->busy->heads + http2->busy->heads_used;
    if (room < LM_HTTP2_FRAME_BYTES + LM_GRPC_BLOCK_BYTES_MAX) return 0;
    const size_t bytes = lm_grpc_compose(io, stream, request, at + LM_HTTP2_FRAME_BYTES,
                                         room - LM_HTTP2_FRAME_BYTES < LM_GRPC_BLOCK_BYTES_MAX
                                             ? room - LM_HTTP2_FRAME_BYTES
                                             : LM_GRPC_BLOCK_BYTES_MAX);
    const bool is_message = stream->grpc.is_message;
    const uint8_t ends = is_message ? 0 : LM_HTTP2_END_STREAM;
    if (bytes) {
        add_frame(http2, (struct lm_http2_frame){(uint32_t)bytes, stream->id, LM_HTTP2_HEADERS,
                                                 (uint8_t)(LM_HTTP2_END_HEADERS | ends)});
        add_part(http2, at + LM_HTTP2_FRAME_BYTES, bytes);
        http2->busy->heads_used = (uint16_t)(http2->busy->heads_used + bytes);
    }
    stream->head_sent = true;
    return is_message ? 0 : message_bytes(&request->message);
}

/* The status of a call that went well. */
static void add_trailers(struct lm_io *io, struct lm_http2_carrier *http2,
                         const struct lm_http2_stream *stream) {
    uint8_t *at = http2->busy->heads + http2->busy->heads_used + LM_HTTP2_FRAME_BYTES;
    const size_t bytes = lm_grpc_trailers(io, at);
    add_frame(http2, (struct lm_http2_frame){(uint32_t)bytes, stream->id, LM_HTTP2_HEADERS,
                                             LM_HTTP2_END_HEADERS | LM_HTTP2_END_STREAM});
    add_part(http2, at, bytes);
    http2->busy->heads_used = (uint16_t)(http2->busy->heads_used + bytes);
}

/* Bytes of a message from `at` on, as many as parts have room and `count` at most, behind their
 * frame's header. Returns how many. */
static size_t add_bytes(struct lm_http2_carrier *http2, const struct msghdr *message, size_t at,
                        size_t count, uint32_t parts_max) {
    size_t added = 0;
    for (size_t p = 0; p < message->msg_iovlen && added < count; p++) {
        const struct iovec *part = &message->msg_iov[p];
        if (at >= part->iov_len) {
            at -= part->iov_len;
            continue;
        }
        if (http2->busy->part_count == parts_max) break;
        const size_t left = count - added;
        const size_t bytes = part->iov_len - at < left ? part->iov_len - at : left;
        add_part(http2, (uint8_t *)part->iov_base + at, bytes);
        added += bytes;
        at = 0;
    }
    return added;
}

/* How much of a body may go into one frame now. */
static size_t data_room(const struct lm_http2_carrier *http2,
                        const struct lm_http2_stream *stream) {
    int64_t room = http2->frame_max;
    if (stream->send_window < room) room = stream->send_window;
    if (http2->send_window < room) room = http2->send_window;
    return room > 0 ? (size_t)room : 0;
}

static size_t room_of(const struct lm_http2_carrier *http2) {
    return sizeof http2->busy->heads - http2->busy->heads_used;
}

/* The piece of a stream's reply that is in the batch; NULL: none is. */
static struct lm_http2_piece *piece_of(const struct lm_http2_carrier *http2, uint32_t place) {
    struct lm_http2_busy *busy = http2->busy;
    for (uint32_t s = 0; s < busy->sent_count; s++)
        if (busy->sent[s].stream == place) return &busy->sent[s];
    return NULL;
}

/* A part of a stream's reply, behind what the batch has of it. Returns its bytes; 0: it has none
 * that may be sent now, or the batch is full. */
static size_t add_reply(struct lm_io *io, struct lm_http2_carrier *http2, uint32_t place) {
    struct lm_http2_stream *stream = &http2->busy->streams[place];
    struct lm_http2_piece *piece = piece_of(http2, place);
    const struct lm_connection *connection =
        stream->id && !stream->is_done ? lm_http2_connection(io, stream) : NULL;
    if (!connection || connection->sending == LM_NO_SLOT) return 0;
    if (piece && piece->is_last) return 0;
    if (lm_load_relaxed_u32(&connection->gone)) return 0; /* relaxed: this thread's own */
    struct lm_request *request = &io->requests[connection->sending];
    const struct msghdr *message = &request->message;
    const bool is_call = stream->grpc.method;
    if (http2->busy->part_count + REPLY_PARTS > LM_HTTP2_BATCH_PARTS || room_of(http2) < CALL_ROOM)
        return 0;
    const size_t before = piece ? piece->bytes : 0;
    size_t all = message_bytes(message), used = before;
    if (is_call && !stream->grpc.is_composed) {
        used = add_call_head(io, http2, stream, request);
        if (!stream->grpc.is_composed) return 0;
        if (!used) all = message_bytes(message);
    } else if (!stream->head_sent) {
        used = add_head(http2, stream, request, all);
        if (!stream->head_sent) return 0;
    }
    size_t count = all - used < data_room(http2, stream) ? all - used : data_room(http2, stream);
    if (room_of(http2) < CALL_ROOM) count = 0;
    const bool is_long = lm_grpc_is_long(stream);
    const bool has_trailers = stream->grpc.is_message && !is_long;
    /* The last piece of a reply may hold nothing: then its frame says the end alone. */
    const bool is_end = all == 0 && !request->in_pieces && !is_call;
    if (count > 0 || is_end) {
        uint8_t *header = http2->busy->heads + http2->busy->heads_used;
        add_frame(http2, (struct lm_http2_frame){0});
        count = add_bytes(http2, message, used, count, LM_HTTP2_BATCH_PARTS - TRAILERS_PARTS);
        const bool ends = used + count == all && !is_call && !request->in_pieces;
        lm_http2_write_frame(header,
                             (struct lm_http2_frame){(uint32_t)count, stream->id, LM_HTTP2_DATA,
                                                     ends ? LM_HTTP2_END_STREAM : 0});
        http2->causes++;
        stream->send_window -= (int64_t)count;
        http2->send_window -= (int64_t)count;
    }
    const bool is_last = used + count == all;
    if (used + count == before && !is_end) return 0;
    if (is_last && has_trailers) add_trailers(io, http2, stream);
    if (!piece) piece = &http2->busy->sent[http2->busy->sent_count++];
    const bool has_more = (is_long && stream->grpc.is_message) || request->in_pieces;
    *piece =
        (struct lm_http2_piece){place, (uint32_t)(used + count), is_last, is_last && !has_more};
    return used + count - before + is_end;
}

/* Fills the batch: the connection's own frames, then frames of replies in turn. false: there is
 * nothing that may be sent now. */
static bool fill(struct lm_io *io, struct lm_http2_carrier *http2) {
    if (!http2->busy) return false;
    http2->busy->part_count = http2->busy->sent_count = http2->busy->heads_used = 0;
    if (http2->busy->control_used) {
        memcpy(http2->busy->sending, http2->busy->control, http2->busy->control_used);
        add_part(http2, http2->busy->sending, http2->busy->control_used);
        http2->busy->control_used = 0;
    }
    uint32_t frames = 0, none = 0, place = http2->busy->turn;
    size_t bytes = 0;
    while (none < http2->open && frames < LM_HTTP2_BATCH_FRAMES && bytes < BATCH_BYTES) {
        place = lm_http2_next(http2, place);
        if (place == LM_HTTP2_PLACES) place = lm_http2_next(http2, 0);
        const size_t added = add_reply(io, http2, place++);
        none++;
        if (!added) continue;
        http2->busy->turn = place;
        bytes += added;
        frames++;
        none = 0;
    }
    http2->busy->message =
        (struct msghdr){.msg_iov = http2->busy->parts, .msg_iovlen = http2->busy->part_count};
    return http2->busy->part_count > 0;
}

/* The batch is with the kernel, or never will be: its streams' replies are so much further. */
static void finish(struct lm_io *io, struct lm_http2_carrier *http2, int32_t error) {
    const uint32_t count = http2->busy->sent_count;
    http2->busy->sent_count = 0;
    for (uint32_t s = 0; s < count; s++) {
        struct lm_http2_piece sent = http2->busy->sent[s];
        struct lm_http2_stream *stream = &http2->busy->streams[sent.stream];
        const struct lm_connection *connection = lm_http2_connection(io, stream);
        if (!connection || connection->sending == LM_NO_SLOT) continue;
        if (sent.is_last) stream->grpc.is_composed = false;
        if (sent.ends && !error) stream->is_done = true;
        const struct lm_completion completion = {.op = LM_OP_SEND,
                                                 .index = connection->index,
                                                 .generation = connection->generation,
                                                 .result = error ? error : (int32_t)sent.bytes};
        lm_reply_completed(io, &completion);
    }
}

static void send_later(struct lm_io *io, struct lm_connection *carrier,
                       struct lm_http2_carrier *http2) {
    http2->sends = true;
    http2->sent_ns = io->now_ns;
    if (!lm_transport_of(io, carrier)->start_send(io, carrier, &http2->busy->message))
        lm_connection_mark(io, carrier);
}

void lm_http2_flush(struct lm_io *io, struct lm_connection *carrier) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    while (!http2->sends && fill(io, http2)) {
        ssize_t sent = lm_transport_of(io, carrier)->send(io, carrier, &http2->busy->message);
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
            finish(io, http2, -EPIPE);
            lm_connection_abort(io, carrier);
            return;
        }
        if (lm_reply_move(&http2->busy->message, sent > 0 ? (size_t)sent : 0)) {
            finish(io, http2, 0);
        } else {
            carrier->in_flight++; /* the kernel reads it: the connection stays */
            send_later(io, carrier, http2);
        }
    }
}

void lm_http2_sent(struct lm_io *io, struct lm_connection *carrier,
                   const struct lm_completion *completion) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    const bool again = completion->result == -EINTR || completion->result == -EAGAIN;
    const bool is_gone = lm_load_relaxed_u32(&carrier->gone); /* relaxed: this thread's own */
    lm_connection_mark(io, carrier);
    const bool is_whole =
        completion->result > 0 && lm_reply_move(&http2->busy->message, (size_t)completion->result);
    if (!is_whole && (again || completion->result > 0) && !is_gone) {
        send_later(io, carrier, http2);
        return;
    }
    http2->sends = false;
    carrier->in_flight--;
    finish(io, http2, is_whole ? 0 : -EPIPE);
    if (!is_whole) lm_connection_abort(io, carrier);
}
