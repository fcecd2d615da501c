/* http2_send.c: see http2_send.h. */
#include "dialects/http2_send.h"

#include <errno.h>
#include <string.h>

#include "flow/reply.h"
#include "flow/transport.h"
#include "wire/http2_head.h"

/* A message for GOAWAY, with its frame, has room beside what else a turn may say. */
enum { FRAMES_ROOM = 512, WHY_BYTES_MAX = 200 };

bool lm_http2_has_room(const struct lm_http2_carrier *http2) {
    return sizeof http2->control - http2->control_used >= FRAMES_ROOM;
}

void lm_http2_put(struct lm_http2_carrier *http2, uint8_t type, uint8_t flags, uint32_t stream,
                  const uint8_t *payload, uint32_t bytes) {
    const size_t needed = LM_HTTP2_FRAME_BYTES + bytes;
    if (needed > sizeof http2->control - http2->control_used) return;
    uint8_t *at = http2->control + http2->control_used;
    lm_http2_write_frame(at, (struct lm_http2_frame){bytes, stream, type, flags});
    if (bytes) memcpy(at + LM_HTTP2_FRAME_BYTES, payload, bytes);
    http2->control_used = (uint16_t)(http2->control_used + needed);
}

void lm_http2_put_number(struct lm_http2_carrier *http2, uint8_t type, uint32_t stream,
                         uint32_t number) {
    uint8_t payload[4];
    lm_http2_put_u32(payload, number);
    lm_http2_put(http2, type, 0, stream, payload, sizeof payload);
}

void lm_http2_put_reset(struct lm_http2_carrier *http2, uint32_t stream,
                        enum lm_http2_error error) {
    if (error != LM_HTTP2_NO_ERROR && error != LM_HTTP2_REFUSED_STREAM) http2->resets++;
    lm_http2_put_number(http2, LM_HTTP2_RST_STREAM, stream, error);
}

void lm_http2_put_goaway(struct lm_http2_carrier *http2, enum lm_http2_error error,
                         const char *why) {
    uint8_t payload[8 + WHY_BYTES_MAX];
    const size_t bytes = strnlen(why, WHY_BYTES_MAX);
    if (http2->is_closing) return;
    http2->is_closing = true;
    lm_http2_put_u32(payload, http2->last_stream);
    lm_http2_put_u32(payload + 4, error);
    memcpy(payload + 8, why, bytes);
    lm_http2_put(http2, LM_HTTP2_GOAWAY, 0, 0, payload, (uint32_t)(8 + bytes));
}

void lm_http2_fail(struct lm_http2_carrier *http2, enum lm_http2_error error, const char *why) {
    http2->has_failed = true;
    lm_http2_put_goaway(http2, error, why);
}

/* ---- a batch ---- */

static void add_part(struct lm_http2_carrier *http2, void *base, size_t bytes) {
    http2->parts[http2->part_count++] = (struct iovec){base, bytes};
}

/* A frame's header, in memory that stays until it is sent. */
static void add_frame(struct lm_http2_carrier *http2, struct lm_http2_frame frame) {
    uint8_t *at = http2->heads + http2->heads_used;
    lm_http2_write_frame(at, frame);
    http2->heads_used += LM_HTTP2_FRAME_BYTES;
    add_part(http2, at, LM_HTTP2_FRAME_BYTES);
}

/* The head of a reply, which is at the message's beginning. Returns its bytes there; 0: the batch
 * is full. */
static size_t add_head(struct lm_http2_carrier *http2, struct lm_http2_stream *stream,
                       const struct msghdr *message, size_t all) {
    const char *head = message->msg_iov[0].iov_base;
    const char *end = memmem(head, message->msg_iov[0].iov_len, "\r\n\r\n", 4);
    uint8_t *at = http2->heads + http2->heads_used;
    const size_t room = sizeof http2->heads - http2->heads_used;
    if (room <= LM_HTTP2_FRAME_BYTES) return 0;
    const size_t head_bytes = (size_t)(end - head) + 4;
    const size_t bytes = lm_http2_reply_head(head, head_bytes, at + LM_HTTP2_FRAME_BYTES,
                                             room - LM_HTTP2_FRAME_BYTES);
    if (bytes == 0) return 0;
    const uint8_t ends = head_bytes == all ? LM_HTTP2_END_STREAM : 0;
    add_frame(http2, (struct lm_http2_frame){(uint32_t)bytes, stream->id, LM_HTTP2_HEADERS,
                                             (uint8_t)(LM_HTTP2_END_HEADERS | ends)});
    add_part(http2, at + LM_HTTP2_FRAME_BYTES, bytes);
    http2->heads_used = (uint16_t)(http2->heads_used + bytes);
    stream->head_sent = true;
    return head_bytes;
}

/* Bytes of a message from `at` on, which are at least so many. */
static void add_bytes(struct lm_http2_carrier *http2, const struct msghdr *message, size_t at,
                      size_t count) {
    for (size_t p = 0; p < message->msg_iovlen && count > 0; p++) {
        const struct iovec *part = &message->msg_iov[p];
        if (at >= part->iov_len) {
            at -= part->iov_len;
            continue;
        }
        const size_t bytes = part->iov_len - at < count ? part->iov_len - at : count;
        add_part(http2, (uint8_t *)part->iov_base + at, bytes);
        count -= bytes;
        at = 0;
    }
}

static size_t message_bytes(const struct msghdr *message) {
    size_t bytes = 0;
    for (size_t p = 0; p < message->msg_iovlen; p++) bytes += message->msg_iov[p].iov_len;
    return bytes;
}

/* How much of a body may go into one frame now. */
static size_t data_room(const struct lm_http2_carrier *http2,
                        const struct lm_http2_stream *stream) {
    int64_t room = http2->frame_max;
    if (stream->send_window < room) room = stream->send_window;
    if (http2->send_window < room) room = http2->send_window;
    return room > 0 ? (size_t)room : 0;
}

/* A part of a stream's reply. false: it has none that may be sent now, or the batch is full. */
static bool add_reply(struct lm_io *io, struct lm_http2_carrier *http2, uint32_t place) {
    struct lm_http2_stream *stream = &http2->streams[place];
    const struct lm_connection *connection =
        stream->id && !stream->is_done ? lm_http2_connection(io, stream) : NULL;
    if (!connection || connection->sending == LM_NO_SLOT) return false;
    if (lm_load_relaxed_u32(&connection->gone)) return false; /* relaxed: this thread's own */
    const struct msghdr *message = &io->requests[connection->sending].message;
    /* Two parts for the head, one for DATA's header, and the message's. */
    if (http2->part_count + 3 + message->msg_iovlen > LM_HTTP2_BATCH_PARTS ||
        sizeof http2->heads - http2->heads_used < LM_HTTP2_FRAME_BYTES)
        return false;
    const size_t all = message_bytes(message);
    size_t used = stream->head_sent ? 0 : add_head(http2, stream, message, all);
    if (used == 0 && !stream->head_sent) return false;
    size_t count = all - used < data_room(http2, stream) ? all - used : data_room(http2, stream);
    if (sizeof http2->heads - http2->heads_used < LM_HTTP2_FRAME_BYTES) count = 0;
    if (count > 0) {
        const uint8_t ends = used + count == all ? LM_HTTP2_END_STREAM : 0;
        add_frame(http2, (struct lm_http2_frame){(uint32_t)count, stream->id, LM_HTTP2_DATA, ends});
        add_bytes(http2, message, used, count);
        http2->causes++;
        stream->send_window -= (int64_t)count;
        http2->send_window -= (int64_t)count;
    }
    if (used + count == 0) return false;
    http2->sent[http2->sent_count++] =
        (struct lm_http2_piece){place, (uint32_t)(used + count), used + count == all};
    return true;
}

/* Fills the batch: the connection's own frames, then a frame of each reply in turn. false: there is
 * nothing that may be sent now. */
static bool fill(struct lm_io *io, struct lm_http2_carrier *http2) {
    http2->part_count = http2->sent_count = http2->heads_used = 0;
    if (http2->control_used) {
        memcpy(http2->sending, http2->control, http2->control_used);
        add_part(http2, http2->sending, http2->control_used);
        http2->control_used = 0;
    }
    for (uint32_t n = 0; n < LM_HTTP2_STREAMS_MAX && http2->open > 0; n++) {
        if (http2->sent_count == LM_HTTP2_BATCH_FRAMES) break;
        const uint32_t place = (http2->turn + n) % LM_HTTP2_STREAMS_MAX;
        (void)add_reply(io, http2, place);
    }
    if (http2->sent_count)
        http2->turn = (http2->sent[http2->sent_count - 1].stream + 1) % LM_HTTP2_STREAMS_MAX;
    http2->message = (struct msghdr){.msg_iov = http2->parts, .msg_iovlen = http2->part_count};
    return http2->part_count > 0;
}

/* The batch is with the kernel, or never will be: its streams' replies are so much further. */
static void finish(struct lm_io *io, struct lm_http2_carrier *http2, int32_t error) {
    const uint32_t count = http2->sent_count;
    http2->sent_count = 0;
    for (uint32_t s = 0; s < count; s++) {
        struct lm_http2_piece sent = http2->sent[s];
        struct lm_http2_stream *stream = &http2->streams[sent.stream];
        const struct lm_connection *connection = lm_http2_connection(io, stream);
        if (!connection || connection->sending == LM_NO_SLOT) continue;
        if (sent.ends && !error) stream->is_done = true;
        const struct lm_completion completion = {.op = LM_OP_SEND,
                                                 .index = connection->index,
                                                 .generation = connection->generation,
                                                 .result = error ? error : (int32_t)sent.bytes};
        lm_reply_completed(io, &completion);
    }
}

static void send_by_ring(struct lm_io *io, struct lm_connection *carrier,
                         struct lm_http2_carrier *http2) {
    http2->sends = true;
    http2->sent_ns = io->now_ns;
    lm_ring_send(io->ring, carrier->fd, &http2->message, carrier->index, carrier->generation);
}

void lm_http2_flush(struct lm_io *io, struct lm_connection *carrier) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    while (!http2->sends && fill(io, http2)) {
        ssize_t sent = lm_transport_of(carrier)->send(carrier, &http2->message);
        if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
            finish(io, http2, -EPIPE);
            lm_connection_abort(io, carrier);
            return;
        }
        if (lm_reply_move(&http2->message, sent > 0 ? (size_t)sent : 0)) {
            finish(io, http2, 0);
        } else {
            carrier->in_flight++; /* the kernel reads it: the connection stays */
            send_by_ring(io, carrier, http2);
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
        completion->result > 0 && lm_reply_move(&http2->message, (size_t)completion->result);
    if (!is_whole && (again || completion->result > 0) && !is_gone) {
        send_by_ring(io, carrier, http2);
        return;
    }
    http2->sends = false;
    carrier->in_flight--;
    finish(io, http2, is_whole ? 0 : -EPIPE);
    if (!is_whole) lm_connection_abort(io, carrier);
}
