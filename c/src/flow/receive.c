/* receive.c: from the socket to the slot. I/O thread only.
 *
 * Headers arrive in provided buffers, so that an idle connection holds none. Once a header is read
 * and admitted, the body is received straight into the slot's tensors; only the bytes that came
 * along with the header are copied. What may not be parsed yet waits outside of them (held.h).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "dialects/http.h"
#include "flow/access_log.h"

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

/* The shape block, where one came, must say what `rows` says. */
static bool shapes_agree(const struct lm_request *request, char *why, size_t why_bytes) {
    const uint8_t *at = request->prefix;
    uint32_t word;
    memcpy(&word, at, 4);
    if (word != request->model->input_count) {
        snprintf(why, why_bytes, "shape block: expected %u tensors, found %u",
                 request->model->input_count, word);
        return false;
    }
    for (uint32_t i = 0; i < request->model->input_count; i++) {
        const struct lm_tensor *tensor = &request->model->inputs[i];
        int64_t dims[LM_RANK_MAX];
        lm_tensor_shape(tensor, request->rows, dims);
        at += 4;
        memcpy(&word, at, 4);
        if (word != tensor->rank) {
            snprintf(why, why_bytes, "shape block: input %u: expected rank %u, found %u", i,
                     tensor->rank, word);
            return false;
        }
        for (uint32_t d = 0; d < tensor->rank; d++) {
            at += 4;
            memcpy(&word, at, 4);
            if (word == dims[d]) continue;
            snprintf(why, why_bytes, "shape block: input %u dimension %u: expected %lld, found %u",
                     i, d, (long long)dims[d], word);
            return false;
        }
    }
    return true;
}

/* Pushes what is ready, in order. The queue has a place for every slot, and can refuse a push all
 * the same while a worker is stopped in the middle of a pop (docs/CONCURRENCY.md): what is refused
 * waits here for the next turn of the loop. */
void lm_receive_hand_over(struct lm_io *io) {
    uint32_t job;
    while (lm_spsc_peek(&io->ready, &job) && lm_queue_push(&io->shared->queue, job)) {
        (void)lm_spsc_pop(&io->ready, &job);
        if (io->shared->workers_sleep) lm_waitset_wake_one(&io->shared->waitset);
    }
}

void lm_receive_submit(struct lm_io *io, struct lm_connection *connection,
                       struct lm_request *request) {
    char why[LM_TEXT_BYTES_MAX];
    connection->receiving = LM_NO_SLOT;
    connection->read_state = LM_READ_HEADER;
    if ((request->flags & LM_FLAG_SHAPES) && !shapes_agree(request, why, sizeof why)) {
        struct lm_native_reply reply = {.id = request->id, .status = LM_STATUS_BAD_REQUEST};
        lm_gate_count_refusal(io, LM_STATUS_BAD_REQUEST, request->model->index);
        lm_access_log_refused(io, connection, request, LM_STATUS_BAD_REQUEST, why);
        lm_io_release(io, request);
        lm_reply_own(io, connection, &reply, why);
        return;
    }
    lm_gate_whole(io, request);
    connection->in_flight++;
    request->with_worker = true;
    lm_add_single_writer_u64(&io->stats->io.model_queued[request->model->index], 1);
    if (request->dialect == LM_DIALECT_HTTP)
        connection->close_after_reply = !request->http.keep_alive;
    request->received_ns = lm_now_ns();
    /* Never full: there is a place for every slot. */
    bool kept = lm_spsc_push(&io->ready, lm_job_pack(io->index, request->slot->index));
    LM_ASSERT(kept);
    if (!io->inline_worker) lm_receive_hand_over(io);
}

/* A credential comes right behind the header, and is read with it: who asks is known before a slot
 * is taken. */
static size_t header_bytes(const struct lm_connection *connection) {
    struct lm_native_request request;
    char unused[LM_TEXT_BYTES_MAX];
    if (connection->header_used < LM_NATIVE_REQUEST_BYTES) return LM_NATIVE_REQUEST_BYTES;
    enum lm_native_verdict verdict =
        lm_native_parse(connection->header, &request, unused, sizeof unused);
    bool follows = verdict == LM_NATIVE_OK && (request.flags & LM_FLAG_CREDENTIAL) &&
                   request.payload_bytes >= LM_NATIVE_CREDENTIAL_BYTES;
    return LM_NATIVE_REQUEST_BYTES + (follows ? LM_NATIVE_CREDENTIAL_BYTES : 0);
}

/* The first four bytes say which dialect it will be: LMN1, or HTTP whatever they are. */
static size_t take_greeting(struct lm_io *io, struct lm_connection *connection,
                            const uint8_t *bytes, size_t count) {
    uint16_t before = connection->header_used;
    size_t missing = (size_t)LM_NATIVE_MAGIC_BYTES - before;
    size_t taken = count < missing ? count : missing;
    uint64_t started_ns = connection->started_ns;
    memcpy(connection->header + before, bytes, taken);
    if (lm_native_may_be_header(connection->header, before + taken)) {
        if (before == 0) connection->started_ns = io->now_ns;
        connection->header_used = (uint16_t)(before + taken);
        if (connection->header_used == LM_NATIVE_MAGIC_BYTES)
            connection->dialect = LM_DIALECT_NATIVE;
        return taken;
    }
    connection->dialect = LM_DIALECT_HTTP;
    connection->header_used = 0;
    if (before == 0) return 0;
    /* A method that begins as the magic does: what is left of it comes next. */
    (void)lm_http_take_head(io, connection, connection->header, before);
    connection->started_ns = started_ns;
    return 0;
}

static size_t take_header(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                          size_t count) {
    if (connection->dialect == LM_DIALECT_OPEN) return take_greeting(io, connection, bytes, count);
    if (connection->dialect == LM_DIALECT_HTTP)
        return lm_http_take_head(io, connection, bytes, count);
    size_t missing = header_bytes(connection) - connection->header_used;
    size_t taken = count < missing ? count : missing;
    if (connection->header_used == 0) connection->started_ns = io->now_ns;
    memcpy(connection->header + connection->header_used, bytes, taken);
    connection->header_used = (uint16_t)(connection->header_used + taken);
    if (!lm_native_may_be_header(connection->header, connection->header_used)) {
        /* Another protocol's greeting may be shorter than a header: answer what is there. */
        memset(connection->header + connection->header_used, 0,
               LM_NATIVE_REQUEST_BYTES - connection->header_used);
        connection->header_used = LM_NATIVE_REQUEST_BYTES;
    }
    if (connection->header_used >= LM_NATIVE_REQUEST_BYTES &&
        connection->header_used == header_bytes(connection)) {
        lm_admit(io, connection);
    }
    return taken;
}

static size_t take_body(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                        size_t count) {
    struct lm_request *request = &io->requests[connection->receiving];
    size_t used = 0;
    while (used < count && !parts_complete(request)) {
        struct iovec *part = &request->parts[request->part_at];
        size_t taken = count - used < part->iov_len ? count - used : part->iov_len;
        memcpy(part->iov_base, bytes + used, taken);
        part_advance(request, taken);
        used += taken;
    }
    if (parts_complete(request)) lm_receive_submit(io, connection, request);
    return used;
}

static size_t take_discarded(struct lm_connection *connection, size_t count) {
    size_t taken = count < connection->discard_bytes ? count : connection->discard_bytes;
    connection->discard_bytes -= taken;
    if (connection->discard_bytes == 0 && connection->read_state == LM_READ_DISCARD) {
        connection->read_state = LM_READ_HEADER;
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
        switch (connection->read_state) {
        case LM_READ_HEADER:
            if (!lm_connection_may_parse(connection) || (parsed && io->parses_left == 0)) return;
            io->parses_left -= parsed;
            parsed = true;
            taken = take_header(io, connection, at, count);
            break;
        case LM_READ_BODY: taken = take_body(io, connection, at, count); break;
        case LM_READ_JSON: taken = lm_http_take_json(io, connection, at, count); break;
        case LM_READ_CHUNKS: taken = lm_http_take_chunks(io, connection, at, count); break;
        case LM_READ_DROP_CHUNKS: taken = lm_http_drop_chunks(io, connection, at, count); break;
        case LM_READ_DISCARD: taken = take_discarded(connection, count); break;
        case LM_READ_LINGER: taken = count; break;
        default: return; /* waits for a slot */
        }
        if (connection->buffer == LM_NO_BUFFER) return; /* the connection was ended meanwhile */
        connection->buffer_at = (uint16_t)(connection->buffer_at + taken);
    }
    lm_io_buffer_return(io, connection->buffer);
    connection->buffer = LM_NO_BUFFER;
}

static void arm(struct lm_io *io, struct lm_connection *connection) {
    uint32_t index = connection->index, generation = connection->generation;
    switch (connection->read_state) {
    case LM_READ_HEADER:
        /* HTTP reads on while a request is in flight: the next one, or that the client has gone. */
        if (!lm_connection_may_parse(connection) && connection->dialect != LM_DIALECT_HTTP) return;
        lm_ring_recv_header(io->ring, connection->fd, index, generation);
        break;
    case LM_READ_JSON:
    case LM_READ_CHUNKS:
    case LM_READ_DROP_CHUNKS:
        lm_ring_recv_header(io->ring, connection->fd, index, generation);
        break;
    case LM_READ_BODY: {
        struct lm_request *request = &io->requests[connection->receiving];
        if (parts_complete(request)) { /* nothing to receive: every part is empty */
            lm_receive_submit(io, connection, request);
            lm_receive_continue(io, connection);
            return;
        }
        struct iovec *part = &request->parts[request->part_at];
        lm_ring_recv(io->ring, connection->fd, part->iov_base, part->iov_len, index, generation);
        break;
    }
    case LM_READ_DISCARD:
    case LM_READ_LINGER: {
        size_t bytes =
            connection->discard_bytes < LM_SCRAP_BYTES ? connection->discard_bytes : LM_SCRAP_BYTES;
        lm_ring_recv(io->ring, connection->fd, io->scrap, bytes, index, generation);
        break;
    }
    default: return;
    }
    connection->recv_armed = true;
}

/* Those that wait for one hold header buffers, which those that have one may need to come to an
 * end: only so many may. */
static bool get_descriptor(struct lm_io *io, struct lm_connection *connection) {
    if (io->lists[LM_LIST_UNPARKING].count == 0 && lm_connection_unpark(io, connection))
        return true;
    if (io->lists[LM_LIST_UNPARKING].count >= LM_UNPARKING_MAX) {
        lm_add_single_writer_u64(&io->stats->io.connections_evicted, 1);
        lm_connection_abort(io, connection);
    } else {
        lm_connection_move(io, connection, LM_LIST_UNPARKING);
    }
    return false;
}

void lm_receive_continue(struct lm_io *io, struct lm_connection *connection) {
    bool armed = connection->recv_armed || connection->ended;
    bool starved = connection->list == LM_LIST_STARVED || connection->list == LM_LIST_UNPARKING ||
                   connection->list == LM_LIST_RESUMING;
    if (starved || (connection->buffer == LM_NO_BUFFER && armed)) return;
    if (connection->fd == LM_FD_PARKED && !get_descriptor(io, connection)) return;
    for (;;) {
        if (connection->buffer != LM_NO_BUFFER) consume_buffer(io, connection);
        if (!lm_connection_expects(connection) || connection->recv_armed) break;
        lm_scarce_look(io, connection);
    }
    if (connection->buffer != LM_NO_BUFFER && !lm_held_keep(io, connection)) {
        lm_add_single_writer_u64(&io->stats->io.connections_evicted, 1);
        lm_connection_abort(io, connection);
    }
    if (connection->buffer != LM_NO_BUFFER && connection->read_state == LM_READ_HEADER &&
        lm_connection_may_parse(connection))
        lm_connection_move(io, connection, LM_LIST_RESUMING);
    if (connection->buffer != LM_NO_BUFFER || connection->recv_armed || connection->ended) return;
    arm(io, connection);
}

static void received(struct lm_io *io, struct lm_connection *connection,
                     const struct lm_completion *completion) {
    uint32_t bytes = (uint32_t)completion->result;
    lm_add_single_writer_u64(&io->stats->io.bytes_in, bytes);
    if (completion->op == LM_OP_RECV_HEADER) {
        connection->buffer = completion->buffer;
        connection->buffer_at = 0;
        connection->buffer_end = (uint16_t)bytes;
    } else if (connection->read_state == LM_READ_BODY) {
        struct lm_request *request = &io->requests[connection->receiving];
        part_advance(request, bytes);
        if (parts_complete(request)) lm_receive_submit(io, connection, request);
    } else if (connection->read_state == LM_READ_DISCARD) {
        (void)take_discarded(connection, bytes);
    } else if (connection->read_state == LM_READ_LINGER && connection->write_shut) {
        connection->discard_bytes -=
            bytes < connection->discard_bytes ? bytes : connection->discard_bytes;
        if (connection->discard_bytes == 0) lm_connection_abort(io, connection);
    }
}

void lm_receive_completed(struct lm_io *io, const struct lm_completion *completion) {
    struct lm_connection *connection = lm_io_connection(io, completion->index);
    LM_ASSERT(connection->generation == completion->generation && connection->recv_armed);
    connection->recv_armed = false;
    if (connection->list == LM_LIST_IDLE) lm_connection_move(io, connection, LM_LIST_NONE);
    if (completion->result > 0 && !connection->ended) {
        received(io, connection, completion);
        lm_receive_continue(io, connection);
    } else {
        if (completion->buffer != LM_NO_BUFFER) lm_io_buffer_return(io, completion->buffer);
        bool lingers = connection->read_state == LM_READ_LINGER; /* which takes no buffer */
        if (completion->result == -ENOBUFS && !connection->ended && !lingers) {
            /* Not the connection's fault: it goes on when buffers have come back. */
            lm_add_single_writer_u64(&io->stats->io.header_buffers_starved, 1);
            lm_connection_move(io, connection, LM_LIST_STARVED);
        } else if (completion->result >= 0 || connection->ended) {
            lm_connection_end(io, connection); /* the client sends no more; it may still read */
        } else if (completion->result == -EINTR || completion->result == -EAGAIN ||
                   completion->result == -ENOBUFS) {
            lm_receive_continue(io, connection);
        } else {
            lm_connection_abort(io, connection);
        }
    }
    lm_connection_settle(io, connection);
}

/* A round looks at those that wait in their order, and ends where nothing is to be had any more.
 * All of them are looked at only when a deadline has passed. */
static void retry_waiting(struct lm_io *io, bool all) {
    struct lm_waiters *waiters = &io->waiters;
    uint32_t next;
    if (all) waiters->due_ns = UINT64_MAX;
    for (uint32_t i = io->lists[LM_LIST_WAITING].head; i != LM_NO_CONNECTION; i = next) {
        struct lm_connection *connection = lm_io_connection(io, i);
        bool nothing = waiters->no_place || waiters->refused_bytes <= waiters->least_bytes;
        if (nothing && !all) return;
        next = connection->next;
        if (connection->timer_ns <= io->now_ns) {
            lm_admit_refuse_waiting(io, connection, LM_STATUS_DEADLINE,
                                    "the deadline passed before a slot was free");
        } else if (!nothing) {
            lm_scarce_retry(io, connection);
        }
        if (connection->list == LM_LIST_WAITING) {
            if (connection->timer_ns < waiters->due_ns) waiters->due_ns = connection->timer_ns;
        } else {
            lm_receive_continue(io, connection);
            lm_connection_settle(io, connection);
        }
    }
    uint64_t soonest_ns = io->now_ns + LM_WAITING_NS;
    if (waiters->due_ns < soonest_ns) waiters->due_ns = soonest_ns;
}

void lm_receive_retry_waiting(struct lm_io *io) {
    struct lm_waiters *waiters = &io->waiters;
    bool due = io->now_ns >= waiters->due_ns;
    /* Another thread may have given a place back. */
    bool places = io->shared->io_count > 1 && io->shared->places.max;
    if (!due && !waiters->released && !places) return;
    waiters->released = waiters->no_place = false;
    waiters->refused_bytes = SIZE_MAX;
    waiters->retrying = true;
    retry_waiting(io, due);
    waiters->retrying = false;
}

void lm_receive_resume(struct lm_io *io) {
    struct lm_list *list = &io->lists[LM_LIST_RESUMING];
    uint32_t left = list->count < LM_RESUMED_PER_TURN ? list->count : LM_RESUMED_PER_TURN;
    for (; left > 0 && list->count > 0; left--) {
        struct lm_connection *connection = lm_io_connection(io, list->head);
        lm_connection_move(io, connection, LM_LIST_NONE);
        lm_receive_continue(io, connection);
        lm_connection_settle(io, connection);
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
        lm_receive_continue(io, connection); /* which may starve again, at the list's end */
        lm_connection_settle(io, connection);
    }
}

void lm_receive_retry_unparking(struct lm_io *io) {
    struct lm_list *list = &io->lists[LM_LIST_UNPARKING];
    if (!io->descriptor_freed && io->now_ns < io->next_unpark_ns) return;
    while (list->count > 0) {
        struct lm_connection *connection = lm_io_connection(io, list->head);
        if (!lm_connection_unpark(io, connection)) {
            io->descriptor_freed = false;
            io->next_unpark_ns = io->now_ns + LM_STARVED_RETRY_MS * 1000000ull;
            return;
        }
        lm_connection_move(io, connection, LM_LIST_NONE);
        lm_receive_continue(io, connection);
        lm_connection_settle(io, connection);
    }
}
