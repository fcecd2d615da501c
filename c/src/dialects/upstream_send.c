/* upstream_send.c: see upstream_send.h. */
#include "dialects/upstream_send.h"

#include <errno.h>
#include <string.h>

#include "dialects/upstream_ask.h"
#include "dialects/upstream_trunk.h"
#include "flow/reply.h"
#include "flow/transport.h"

/* More would keep a request of few bytes that comes later waiting. */
enum { BATCH_BYTES = 256 << 10, REQUEST_PARTS = 8 };

/* ---- the batch ---- */

static void add_part(struct lm_upstream_trunk *trunk, void *base, size_t bytes) {
    trunk->parts[trunk->part_count++] = (struct iovec){base, bytes};
}

static bool has_room(const struct lm_upstream_trunk *trunk) {
    return trunk->part_count + REQUEST_PARTS <= LM_TRUNK_PARTS &&
           trunk->heads_used + 2 * LM_HTTP2_FRAME_BYTES <= (int)sizeof trunk->heads;
}

/* A frame's header, in memory that stays until it is sent. */
static uint8_t *add_header(struct lm_upstream_trunk *trunk) {
    uint8_t *at = trunk->heads + trunk->heads_used;
    trunk->heads_used += LM_HTTP2_FRAME_BYTES;
    add_part(trunk, at, LM_HTTP2_FRAME_BYTES);
    return at;
}

/* The next stream, whose number its place follows from. */
static uint32_t next_id(const struct lm_upstream_trunk *trunk, uint32_t place) {
    const uint32_t next = (trunk->last_stream + 1) / 2;
    return (next + (place - next) % LM_CARRIED_MAX) * 2 + 1;
}

static size_t add_head(struct lm_io *io, struct lm_upstream_trunk *trunk, struct lm_link *link) {
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    const size_t bytes = lm_upstream_write_block(io, link);
    trunk->last_stream = link->stream.id = next_id(trunk, link->stream.place);
    lm_http2_write_frame(add_header(trunk),
                         (struct lm_http2_frame){(uint32_t)bytes, link->stream.id, LM_HTTP2_HEADERS,
                                                 LM_HTTP2_END_HEADERS});
    add_part(trunk, exchange->window, bytes);
    return bytes;
}

/* How much of a body may go into one frame now. */
static size_t data_room(const struct lm_upstream_trunk *trunk, const struct lm_link *link) {
    int64_t room = trunk->frame_max;
    if (link->stream.send_window < room) room = link->stream.send_window;
    if (trunk->send_window < room) room = trunk->send_window;
    return room > 0 ? (size_t)room : 0;
}

/* So many bytes of the body at most. Returns how many. */
static size_t add_body(struct lm_upstream_trunk *trunk, struct lm_link *link, size_t most) {
    struct msghdr *message = &link->message;
    size_t added = 0;
    while (message->msg_iovlen > 0 && added < most) {
        const struct iovec *part = message->msg_iov;
        const size_t left = most - added;
        const size_t bytes = part->iov_len < left ? part->iov_len : left;
        add_part(trunk, part->iov_base, bytes);
        added += bytes;
        (void)lm_reply_move(message, bytes);
    }
    return added;
}

/* Adds as much of a stream's request as may be sent now. Returns the bytes. */
static size_t add_request(struct lm_io *io, struct lm_upstream_trunk *trunk, struct lm_link *link) {
    size_t bytes = 0, room;
    if (!link->stream.id) bytes = add_head(io, trunk, link);
    while (link->message.msg_iovlen > 0 && (room = data_room(trunk, link)) > 0 && has_room(trunk) &&
           bytes < BATCH_BYTES) {
        uint8_t *header = add_header(trunk);
        const size_t count = add_body(trunk, link, room);
        const uint8_t ends = link->message.msg_iovlen == 0 ? LM_HTTP2_END_STREAM : 0;
        lm_http2_write_frame(
            header, (struct lm_http2_frame){(uint32_t)count, link->stream.id, LM_HTTP2_DATA, ends});
        trunk->asked++;
        link->stream.send_window -= (int64_t)count;
        trunk->send_window -= (int64_t)count;
        bytes += count;
    }
    const bool waits = link->message.msg_iovlen > 0 && link->stream.send_window > 0;
    lm_trunk_places_put(&trunk->waiting, link->stream.place, waits);
    if (bytes > 0) link->moved_ns = io->now_ns;
    return bytes;
}

/* Fills the batch: the connection's own frames, then those of requests. false: there is nothing
 * that may be sent now. */
static bool fill(struct lm_io *io, struct lm_upstream_trunk *trunk) {
    size_t bytes = 0;
    trunk->part_count = trunk->heads_used = 0;
    if (trunk->control_used) {
        memcpy(trunk->sending, trunk->control, trunk->control_used);
        add_part(trunk, trunk->sending, trunk->control_used);
        trunk->control_used = 0;
    }
    for (uint32_t pass = 0, place = trunk->turn; pass < 2;) {
        place = lm_trunk_places_next(&trunk->waiting, place);
        if (place == LM_CARRIED_MAX) {
            place = 0;
            pass++;
            continue;
        }
        if (!has_room(trunk) || bytes >= BATCH_BYTES) break;
        const size_t added = add_request(io, trunk, lm_carried(io, trunk, place));
        if (added > 0) lm_trunk_places_put(&trunk->sent, place, true);
        bytes += added;
        trunk->turn = (uint8_t)(++place % LM_CARRIED_MAX);
    }
    trunk->message = (struct msghdr){.msg_iov = trunk->parts, .msg_iovlen = trunk->part_count};
    return trunk->part_count > 0;
}

/* Whether the ring sends what lies in the slots of the batch's requests. */
static void hold_slots(struct lm_io *io, struct lm_upstream_trunk *trunk, bool holds) {
    for (uint32_t p = lm_trunk_places_next(&trunk->sent, 0); p < LM_CARRIED_MAX;
         p = lm_trunk_places_next(&trunk->sent, p + 1))
        lm_carried(io, trunk, p)->sends = holds;
    trunk->sends = holds;
    if (!holds) trunk->sent = (struct lm_trunk_places){0};
}

static void send_later(struct lm_io *io, struct lm_connection *connection,
                       struct lm_upstream_trunk *trunk) {
    if (!lm_transport_of(io, connection)->start_send(io, connection, &trunk->message))
        lm_connection_mark(io, connection);
}

void lm_trunk_flush(struct lm_io *io, struct lm_connection *connection,
                    struct lm_upstream_trunk *trunk) {
    while (!trunk->sends && fill(io, trunk)) {
        const ssize_t sent = lm_transport_of(io, connection)->send(io, connection, &trunk->message);
        const bool again = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
        const bool is_broken = sent < 0 && !again;
        if (is_broken || lm_reply_move(&trunk->message, sent > 0 ? (size_t)sent : 0)) {
            hold_slots(io, trunk, false);
        } else {
            hold_slots(io, trunk, true);
            send_later(io, connection, trunk);
        }
        if (is_broken) {
            lm_connection_abort(io, connection);
            return;
        }
    }
}

void lm_trunk_sent(struct lm_io *io, struct lm_connection *connection,
                   struct lm_upstream_trunk *trunk, const struct lm_completion *completion) {
    const bool again = completion->result == -EINTR || completion->result == -EAGAIN;
    const bool is_gone = lm_load_relaxed_u32(&connection->gone); /* relaxed: this thread's own */
    lm_connection_mark(io, connection);
    const bool is_whole =
        completion->result > 0 && lm_reply_move(&trunk->message, (size_t)completion->result);
    if (!is_whole && (again || completion->result > 0) && !is_gone) {
        send_later(io, connection, trunk);
        return;
    }
    hold_slots(io, trunk, false);
    if (!is_whole) lm_connection_abort(io, connection);
}
