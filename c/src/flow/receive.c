/* receive.c: see receive.h. */
#include "flow/receive.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "flow/parking.h"
#include "flow/slot_wait.h"
#include "flow/transport.h"

/* Skips the parts that are full. true: the body is whole. */
static bool parts_complete(struct lm_request *request) {
    while (request->part_at < request->part_count && request->parts[request->part_at].iov_len == 0)
        request->part_at++;
    return request->part_at == request->part_count;
}

static void part_advance(struct lm_request *request, size_t bytes) {
    struct iovec *part = &request->parts[request->part_at];
    LM_DEBUG_ASSERT(bytes <= part->iov_len);
    part->iov_base = (uint8_t *)part->iov_base + bytes;
    part->iov_len -= bytes;
}

static size_t take_body(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                        size_t count) {
    struct lm_request *request = &io->requests[connection->in.receiving];
    size_t used = 0;
    while (used < count && !parts_complete(request)) {
        struct iovec *part = &request->parts[request->part_at];
        size_t taken = count - used < part->iov_len ? count - used : part->iov_len;
        memcpy(part->iov_base, bytes + used, taken);
        part_advance(request, taken);
        used += taken;
    }
    if (parts_complete(request)) lm_io_dialect(io, connection)->body_received(io, connection);
    return used;
}

static size_t take_discarded(struct lm_connection *connection, size_t count) {
    size_t taken = count < connection->in.discard_bytes ? count : connection->in.discard_bytes;
    connection->in.discard_bytes -= taken;
    if (connection->in.discard_bytes == 0 && connection->in.read_state == LM_READ_DISCARD) {
        connection->in.read_state = LM_READ_HEADER;
    }
    return taken;
}

/* Consumes what it may of the held buffer, and gives it back when all is consumed. One connection's
 * requests, which may be a hundred in a buffer, must not keep all others waiting. */
static void consume_buffer(struct lm_io *io, struct lm_connection *connection) {
    bool parsed = false;
    const uint8_t *bytes = lm_io_buffer(io, connection->buffer);
    while (connection->buffer_at < connection->buffer_end) {
        const uint8_t *at = bytes + connection->buffer_at;
        size_t count = (size_t)(connection->buffer_end - connection->buffer_at), taken = 0;
        if (connection->ended) return; /* meanwhile: lm_connection_drop_reading has the rest */
        switch ((enum lm_read_state)connection->in.read_state) {
        case LM_READ_HEADER:
            if (!lm_connection_may_parse(io, connection) || (parsed && io->parses_left == 0))
                return;
            io->parses_left -= parsed;
            parsed = true;
            taken = lm_io_dialect(io, connection)->take(io, connection, at, count);
            break;
        case LM_READ_PROLOGUE:
        case LM_READ_DESCRIPTOR:
            taken = lm_io_dialect(io, connection)->take(io, connection, at, count);
            if (taken == 0 && lm_io_dialect(io, connection)->carry)
                return; /* its client must read first */
            break;
        case LM_READ_BODY: taken = take_body(io, connection, at, count); break;
        case LM_READ_DISCARD: taken = take_discarded(connection, count); break;
        case LM_READ_LINGER: taken = count; break;
        case LM_READ_WAIT: return;
        }
        connection->buffer_at = (uint16_t)(connection->buffer_at + taken);
    }
    lm_io_buffer_return(io, connection->buffer);
    connection->buffer = LM_NO_BUFFER;
}

/* One that waits takes nothing, and is not marked: it marks its carrier when it goes on. */
static size_t give(struct lm_io *io, struct lm_connection *stream, const uint8_t *bytes,
                   size_t count) {
    switch ((enum lm_read_state)stream->in.read_state) {
    case LM_READ_HEADER:
    case LM_READ_PROLOGUE: return lm_io_dialect(io, stream)->take(io, stream, bytes, count);
    case LM_READ_BODY: return take_body(io, stream, bytes, count);
    case LM_READ_DISCARD: return take_discarded(stream, count);
    case LM_READ_WAIT: return 0;
    case LM_READ_LINGER:
    case LM_READ_DESCRIPTOR: break; /* nobody reads it */
    }
    return count;
}

size_t lm_receive_give(struct lm_io *io, struct lm_connection *stream, const uint8_t *bytes,
                       size_t count) {
    size_t used = 0;
    while (used < count && !stream->ended) {
        const uint8_t state = stream->in.read_state;
        const size_t taken = give(io, stream, bytes + used, count - used);
        if (taken == 0 && stream->in.read_state == state) break;
        used += taken;
        lm_connection_mark(io, stream);
    }
    return stream->ended ? count : used;
}

bool lm_receive_place(struct lm_io *io, const struct lm_connection *stream,
                      struct iovec *place_out) {
    if (stream->ended || stream->in.read_state != LM_READ_BODY) return false;
    struct lm_request *request = &io->requests[stream->in.receiving];
    if (parts_complete(request)) return false;
    *place_out = request->parts[request->part_at];
    return true;
}

static void body_came(struct lm_io *io, struct lm_connection *connection, size_t bytes) {
    struct lm_request *request = &io->requests[connection->in.receiving];
    part_advance(request, bytes);
    if (parts_complete(request)) lm_io_dialect(io, connection)->body_received(io, connection);
}

void lm_receive_placed(struct lm_io *io, struct lm_connection *stream, size_t bytes) {
    body_came(io, stream, bytes);
    lm_connection_mark(io, stream);
}

/* The next bytes of a carrier may have a known place: then they are received there. */
static bool start_prologue(struct lm_io *io, struct lm_connection *connection) {
    const struct lm_dialect *dialect = lm_io_dialect(io, connection);
    const struct lm_transport *transport = lm_transport_of(io, connection);
    struct iovec place;
    if (dialect->place && dialect->place(io, connection, &place))
        return transport->start_recv(io, connection, place.iov_base, place.iov_len);
    return transport->start_header(io, connection);
}

static void arm(struct lm_io *io, struct lm_connection *connection) {
    const struct lm_transport *transport = lm_transport_of(io, connection);
    bool started = true;
    if (lm_connection_is_stream(connection) && connection->in.read_state != LM_READ_BODY) return;
    switch ((enum lm_read_state)connection->in.read_state) {
    case LM_READ_HEADER:
        if (!lm_connection_may_parse(io, connection) &&
            !lm_io_dialect(io, connection)->one_at_a_time)
            return;
        started = transport->start_header(io, connection);
        break;
    case LM_READ_PROLOGUE: started = start_prologue(io, connection); break;
    case LM_READ_DESCRIPTOR:
        lm_ring_poll(io->ring, connection->fd, connection->index, connection->generation);
        break;
    case LM_READ_BODY: {
        struct lm_request *request = &io->requests[connection->in.receiving];
        if (parts_complete(request)) { /* nothing to receive: every part is empty */
            lm_io_dialect(io, connection)->body_received(io, connection);
            lm_connection_mark(io, connection);
            return;
        }
        if (lm_connection_is_stream(connection)) return;
        struct iovec *part = &request->parts[request->part_at];
        started = transport->start_recv(io, connection, part->iov_base, part->iov_len);
        break;
    }
    case LM_READ_DISCARD:
    case LM_READ_LINGER: {
        size_t bytes = connection->in.discard_bytes < LM_SCRAP_BYTES ? connection->in.discard_bytes
                                                                     : LM_SCRAP_BYTES;
        started = transport->start_recv(io, connection, io->scrap, bytes);
        break;
    }
    case LM_READ_WAIT: return;
    }
    connection->recv_armed = true;
    if (!started) lm_connection_mark(io, connection);
}

/* Those that wait for one hold header buffers, which those that have one may need to come to an
 * end: only so many may. */
static bool get_descriptor(struct lm_io *io, struct lm_connection *connection) {
    if (io->lists[LM_LIST_UNPARKING].count == 0 && lm_parking_unpark(io, connection)) return true;
    if (io->lists[LM_LIST_UNPARKING].count >= LM_UNPARKING_MAX) {
        lm_add_single_writer_u64(&io->stats->io.connections_evicted, 1);
        lm_connection_abort(io, connection);
    } else {
        lm_connection_move(io, connection, LM_LIST_UNPARKING);
    }
    return false;
}

/* Bytes that may not be parsed yet leave the header buffer, which others need. */
static void keep_bytes(struct lm_io *io, struct lm_connection *connection) {
    int32_t buffer = connection->buffer;
    uint16_t left = (uint16_t)(connection->buffer_end - connection->buffer_at);
    if (lm_held_is_page(buffer)) return;
    int32_t page = lm_held_keep(&io->held, connection->index,
                                lm_ring_buffer(io->ring, buffer) + connection->buffer_at, left);
    if (page < 0) {
        lm_add_single_writer_u64(&io->stats->io.connections_evicted, 1);
        lm_connection_abort(io, connection);
        return;
    }
    lm_io_buffer_return(io, buffer);
    connection->buffer = page;
    connection->buffer_at = 0;
    connection->buffer_end = left;
}

void lm_receive_continue(struct lm_io *io, struct lm_connection *connection) {
    bool starved = connection->list == LM_LIST_STARVED || connection->list == LM_LIST_UNPARKING ||
                   connection->list == LM_LIST_RESUMING;
    if (starved || (connection->buffer == LM_NO_BUFFER && connection->recv_armed)) return;
    if (connection->fd == LM_FD_PARKED && !get_descriptor(io, connection)) return;
    for (;;) {
        if (connection->buffer != LM_NO_BUFFER) consume_buffer(io, connection);
        if (!lm_connection_expects(connection) || connection->recv_armed || connection->ended)
            break;
        lm_slot_wait_begin(io, connection);
    }
    if (connection->ended) return;
    if (connection->buffer == LM_NO_BUFFER) {
        if (!connection->recv_armed) arm(io, connection);
        return;
    }
    keep_bytes(io, connection);
    if (connection->in.read_state == LM_READ_HEADER && lm_connection_may_parse(io, connection))
        lm_connection_move(io, connection, LM_LIST_RESUMING);
}

/* Behind the last answer. Whoever is still sending a refused body gets more time with each step. */
static void take_lingering(struct lm_io *io, struct lm_connection *connection, uint32_t bytes) {
    uint64_t before = connection->in.discard_bytes, after = before > bytes ? before - bytes : 0;
    connection->in.discard_bytes = after;
    if (after == 0) {
        lm_connection_abort(io, connection);
    } else if (before / LM_LINGER_STEP_BYTES != after / LM_LINGER_STEP_BYTES) {
        connection->timer_ns = io->now_ns + LM_LINGER_MS * 1000000ull;
        lm_connection_move(io, connection,
                           LM_LIST_LINGERING); /* at its end: in the order of time */
    }
}

static void received(struct lm_io *io, struct lm_connection *connection,
                     const struct lm_completion *completion) {
    uint32_t bytes = (uint32_t)completion->result;
    const bool is_own = lm_dialect_is_own(connection->dialect);
    lm_add_single_writer_u64(is_own ? &io->stats->io.upstream_bytes : &io->stats->io.bytes_in,
                             bytes);
    if (completion->op == LM_OP_RECV_HEADER) {
        connection->buffer = completion->buffer;
        connection->buffer_at = 0;
        connection->buffer_end = (uint16_t)bytes;
    } else if (connection->in.read_state == LM_READ_BODY) {
        body_came(io, connection, bytes);
    } else if (connection->in.read_state == LM_READ_DISCARD) {
        (void)take_discarded(connection, bytes);
    } else if (connection->in.read_state == LM_READ_LINGER && connection->write_shut) {
        take_lingering(io, connection, bytes);
    }
}

/* The client sends no more: requests that wait are not run for one that has left. */
static void end_of_stream(struct lm_io *io, struct lm_connection *connection) {
    if (lm_transport_unanswered(io, connection) > 0 && !connection->read_shut &&
        !lm_connection_may_half_close(io, connection)) {
        lm_connection_abort(io, connection);
    } else {
        lm_connection_end(io, connection);
    }
}

void lm_receive_completed(struct lm_io *io, const struct lm_completion *completion) {
    struct lm_connection *connection = lm_io_connection(io, completion->index);
    LM_ASSERT(connection->generation == completion->generation && connection->recv_armed);
    connection->recv_armed = false;
    if (connection->list == LM_LIST_IDLE) lm_connection_move(io, connection, LM_LIST_NONE);
    lm_connection_mark(io, connection);
    const struct lm_dialect *dialect = lm_io_dialect(io, connection);
    if (completion->op == LM_OP_RECV && dialect->placed)
        dialect->placed(io, connection, completion->result > 0 ? (size_t)completion->result : 0);
    if (completion->result > 0 && !connection->ended) {
        received(io, connection, completion);
        return;
    }
    if (completion->buffer != LM_NO_BUFFER) lm_io_buffer_return(io, completion->buffer);
    bool lingers = connection->in.read_state == LM_READ_LINGER; /* which takes no buffer */
    if (connection->ended) return;
    if (completion->result == -ENOBUFS && !lingers) {
        /* Not the connection's fault: it goes on when buffers have come back. */
        lm_add_single_writer_u64(&io->stats->io.header_buffers_starved, 1);
        lm_connection_move(io, connection, LM_LIST_STARVED);
    } else if (completion->result == 0) {
        end_of_stream(io, connection);
    } else if (completion->result != -EINTR && completion->result != -EAGAIN &&
               completion->result != -ENOBUFS && completion->result != -ECANCELED) {
        lm_connection_abort(io, connection);
    }
}

void lm_receive_readable(struct lm_io *io, const struct lm_completion *completion) {
    struct lm_connection *connection = lm_io_connection(io, completion->index);
    LM_ASSERT(connection->generation == completion->generation && connection->recv_armed);
    connection->recv_armed = false;
    lm_connection_mark(io, connection); /* which asks again, where nothing came of this */
    if (connection->ended || completion->result == -EINTR || completion->result == -EAGAIN) return;
    if (completion->result < 0) {
        lm_connection_abort(io, connection);
    } else {
        lm_io_dialect(io, connection)->descriptor(io, connection);
    }
}

void lm_receive_resume(struct lm_io *io) {
    struct lm_list *list = &io->lists[LM_LIST_RESUMING];
    uint32_t left = list->count < LM_RESUMED_PER_TURN ? list->count : LM_RESUMED_PER_TURN;
    for (; left > 0 && list->count > 0; left--) {
        struct lm_connection *connection = lm_io_connection(io, list->head);
        lm_connection_move(io, connection, LM_LIST_NONE);
        lm_connection_mark(io, connection);
    }
}

void lm_receive_retry_starved(struct lm_io *io) {
    struct lm_list *starved = &io->lists[LM_LIST_STARVED];
    uint32_t left = starved->count;
    /* As many as there are buffers for. All of them after a while: the last buffer may have come
     * back between the kernel's "none" and the moment it was heard, and nobody is left to return
     * another. */
    if (io->now_ns < io->next_starved_ns && io->buffers_returned < left)
        left = io->buffers_returned;
    if (left == 0) return;
    io->buffers_returned = 0;
    io->next_starved_ns = io->now_ns + LM_STARVED_RETRY_MS * 1000000ull;
    for (; left > 0 && starved->count > 0; left--) {
        struct lm_connection *connection = lm_io_connection(io, starved->head);
        lm_connection_move(io, connection, LM_LIST_NONE);
        lm_connection_mark(io, connection); /* it may starve again, at the list's end */
    }
}

void lm_receive_retry_unparking(struct lm_io *io) {
    struct lm_list *list = &io->lists[LM_LIST_UNPARKING];
    if (!io->descriptor_freed && io->now_ns < io->next_unpark_ns) return;
    while (list->count > 0) {
        struct lm_connection *connection = lm_io_connection(io, list->head);
        if (!lm_parking_unpark(io, connection)) {
            io->descriptor_freed = false;
            io->next_unpark_ns = io->now_ns + LM_STARVED_RETRY_MS * 1000000ull;
            return;
        }
        lm_connection_move(io, connection, LM_LIST_NONE);
        lm_connection_mark(io, connection);
    }
}
