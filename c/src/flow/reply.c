/* reply.c: see reply.h. */
#include "flow/reply.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "flow/answer_cache.h"
#include "flow/gate.h"
#include "flow/shadow.h"
#include "flow/slots.h"
#include "flow/transport.h"

bool lm_reply_move(struct msghdr *message, size_t sent) {
    while (message->msg_iovlen > 0 && sent >= message->msg_iov->iov_len) {
        sent -= message->msg_iov->iov_len;
        message->msg_iov++;
        message->msg_iovlen--;
    }
    if (message->msg_iovlen == 0) return true;
    message->msg_iov->iov_base = (uint8_t *)message->msg_iov->iov_base + sent;
    message->msg_iov->iov_len -= sent;
    return false;
}

static bool take_token(struct lm_connection *connection) {
    /* S1: acquire sees the socket after the last holder's bytes; pairs with S2 */
    return lm_exchange_acq_rel_u32(&connection->sender, 1) == 0;
}

static void give_token(struct lm_connection *connection) {
    /* S2: all bytes of this reply are with the kernel before another's; pairs with S1 */
    lm_store_release_u32(&connection->sender, 0);
}

enum lm_outcome lm_reply_try(struct lm_connection *connection, struct lm_request *request,
                             size_t *sent_bytes_out) {
    *sent_bytes_out = 0;
    const struct lm_transport *transport = lm_transport_of(request->io, connection);
    if (transport->io_thread_sends || !take_token(connection)) return LM_OUTCOME_UNSENT;
    ssize_t sent = transport->send(request->io, connection, &request->message);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
        give_token(connection);
        return LM_OUTCOME_BROKEN;
    }
    *sent_bytes_out = sent > 0 ? (size_t)sent : 0;
    if (!lm_reply_move(&request->message, *sent_bytes_out)) return LM_OUTCOME_PARTIAL;
    give_token(connection);
    return LM_OUTCOME_SENT;
}

/* ---- the I/O thread's side ---- */

static void start_sending(struct lm_io *io, struct lm_connection *connection,
                          struct lm_request *request) {
    connection->sending = request->slot->index;
    request->held_ns = io->now_ns;
    request->seen_ns = 0;
    if (!lm_transport_of(io, connection)->start_send(io, connection, &request->message))
        lm_connection_mark(io, connection);
}

static void append_reply(struct lm_io *io, struct lm_connection *connection,
                         struct lm_request *request) {
    uint32_t slot = request->slot->index;
    request->next_reply = LM_NO_SLOT;
    if (connection->reply_tail == LM_NO_SLOT) {
        connection->reply_head = slot;
    } else {
        io->requests[connection->reply_tail].next_reply = slot;
    }
    connection->reply_tail = slot;
    lm_add_single_writer_u64(&io->stats->io.replies_queued, 1);
}

void lm_reply_flush(struct lm_io *io, struct lm_connection *connection) {
    if (connection->reply_head == LM_NO_SLOT || connection->sending != LM_NO_SLOT) return;
    /* Taken by a worker: its request comes back through lm_reply_returned, which marks. */
    if (!take_token(connection)) return;
    struct lm_request *request = &io->requests[connection->reply_head];
    connection->reply_head = request->next_reply;
    if (connection->reply_head == LM_NO_SLOT) connection->reply_tail = LM_NO_SLOT;
    start_sending(io, connection, request);
}

void lm_reply_drop_waiting(struct lm_io *io, struct lm_connection *connection) {
    while (connection->reply_head != LM_NO_SLOT) {
        struct lm_request *request = &io->requests[connection->reply_head];
        connection->reply_head = request->next_reply;
        lm_slots_release(io, request);
    }
    connection->reply_tail = LM_NO_SLOT;
}

/* Keeps what is left of an own reply in a slot, and a body that is longer than any slot beside it;
 * NULL when there is no room. */
static struct lm_request *keep_own(struct lm_io *io, struct lm_connection *connection,
                                   const struct iovec parts[2], bool body_is_shared) {
    const struct lm_arena_class *own = &io->arena.classes[0];
    const size_t head_bytes = lm_align_up(parts[0].iov_len, LM_SLOT_ALIGN);
    const struct lm_arena_class *largest = &io->arena.classes[io->arena.class_count - 1];
    const bool is_long = !body_is_shared && head_bytes + parts[1].iov_len > largest->slot_bytes;
    const size_t bytes = head_bytes + (body_is_shared || is_long ? 0 : parts[1].iov_len);
    struct lm_spill *spill = NULL;
    void *beside = NULL;
    if (is_long && lm_spill_take(&io->shared->spills, &spill, parts[1].iov_len, &beside) != 0)
        return NULL;
    /* The slots of requests are not for a client that reads nothing: only what can be spared. */
    bool fits = bytes <= own->slot_bytes && own->free_count > 0;
    struct lm_slot *slot =
        fits ? lm_arena_acquire(&io->arena, bytes) : lm_arena_acquire_spare(&io->arena, bytes);
    if (!slot) {
        lm_spill_join(&io->spills, &spill);
        return NULL;
    }
    struct lm_request *request = &io->requests[slot->index];
    request->spills = spill;
    request->io = io;
    request->slot = slot;
    request->model = NULL;
    request->in_pieces = false;
    lm_slots_use_models(io, request); /* the body may be a document of theirs */
    request->connection = connection->index;
    request->started_ns = io->now_ns;
    for (int p = 0; p < 2; p++) {
        request->reply[p] = parts[p];
        if (p == 1 && body_is_shared) break;
        request->reply[p].iov_base =
            p == 1 && is_long ? beside : lm_slot_alloc(slot, parts[p].iov_len);
        memcpy(request->reply[p].iov_base, parts[p].iov_base, parts[p].iov_len);
    }
    lm_request_set_message(request, parts[1].iov_len ? 2 : 1);
    return request;
}

void lm_reply_bytes(struct lm_io *io, struct lm_connection *connection, const void *head,
                    size_t head_bytes, const void *body, size_t body_bytes, bool body_is_shared) {
    const struct iovec parts[2] = {{(void *)(uintptr_t)head, head_bytes},
                                   {(void *)(uintptr_t)body, body_bytes}};
    size_t sent_bytes = 0;
    bool token = !lm_connection_is_sending(connection) && take_token(connection);
    if (token) {
        struct iovec copy[2] = {parts[0], parts[1]};
        struct msghdr message = {.msg_iov = copy, .msg_iovlen = body_bytes ? 2 : 1};
        const struct lm_transport *transport = lm_transport_of(io, connection);
        bool goes_on = true; /* some take a batch at a time */
        while (goes_on) {
            ssize_t sent = transport->send(io, connection, &message);
            if (sent > 0) sent_bytes += (size_t)sent;
            goes_on =
                sent > 0 && !lm_reply_move(&message, (size_t)sent) && transport->io_thread_sends;
        }
        lm_add_single_writer_u64(&io->stats->io.bytes_out, sent_bytes);
        if (sent_bytes == head_bytes + body_bytes) {
            give_token(connection);
            return;
        }
    }
    struct lm_request *request = keep_own(io, connection, parts, body_is_shared);
    if (!request) {
        /* Its socket is full and nothing is left to keep the answer in: it does not read, it goes.
         */
        if (token) give_token(connection);
        lm_add_single_writer_u64(&io->stats->io.connections_evicted, 1);
        lm_connection_abort(io, connection);
        return;
    }
    lm_reply_move(&request->message, sent_bytes);
    if (token) {
        start_sending(io, connection, request);
    } else {
        append_reply(io, connection, request);
        lm_connection_mark(io, connection);
    }
}

enum lm_outcome lm_reply_piece(struct lm_io *io, struct lm_connection *connection,
                               struct lm_request *request, bool is_first) {
    const struct lm_transport *transport = lm_transport_of(io, connection);
    if (is_first && (lm_connection_is_sending(connection) || !take_token(connection)))
        return LM_OUTCOME_UNSENT;
    bool is_whole = false, goes_on = true; /* some take a batch at a time */
    while (goes_on) {
        const ssize_t sent = transport->send(io, connection, &request->message);
        if (sent < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) break;
            give_token(connection);
            return LM_OUTCOME_BROKEN;
        }
        lm_add_single_writer_u64(&io->stats->io.bytes_out, (uint64_t)sent);
        is_whole = lm_reply_move(&request->message, (size_t)sent);
        goes_on = sent > 0 && !is_whole && transport->io_thread_sends;
    }
    if (!is_whole) return LM_OUTCOME_PARTIAL;
    if (!request->in_pieces) give_token(connection);
    return LM_OUTCOME_SENT;
}

void lm_reply_rest(struct lm_io *io, struct lm_connection *connection, struct lm_request *request) {
    lm_add_single_writer_u64(&io->stats->io.replies_queued, 1);
    start_sending(io, connection, request);
}

/* The ring has sent a piece: the next one may come. */
static void piece_completed(struct lm_io *io, struct lm_connection *connection,
                            const struct lm_request *request, bool is_whole) {
    connection->sending = LM_NO_SLOT;
    if (!is_whole) {
        give_token(connection);
        lm_connection_abort(io, connection);
    }
    lm_connection_mark(io, lm_io_connection(io, request->fed_by));
    lm_connection_mark(io, connection);
}

/* The request is over; another version may run it still. */
static void end(struct lm_io *io, struct lm_request *request) {
    lm_slots_leave(io, request);
    if (!lm_shadow_take(io, request)) lm_slots_free(io, request);
}

void lm_reply_returned(struct lm_io *io, uint32_t slot) {
    struct lm_request *request = &io->requests[slot];
    request->with_worker = false;
    if (request->tokens) lm_gate_charge(io, request);
    if (request->keeping.for_cache) lm_answers_keep(io, request);
    if (request->outcome == LM_OUTCOME_OVERDUE) { /* its connection may be another one by now */
        lm_slots_release(io, request);
        return;
    }
    struct lm_connection *connection = lm_io_connection(io, request->connection);
    LM_DEBUG_ASSERT(connection->in_flight > 0);
    connection->in_flight--;
    if (request->last)
        connection->close_after_reply = true;           /* its head may say so since a moment */
    bool gone = lm_load_relaxed_u32(&connection->gone); /* relaxed: written by this thread */
    switch ((enum lm_outcome)request->outcome) {
    case LM_OUTCOME_PARTIAL:
        start_sending(io, connection, request);
        lm_add_single_writer_u64(&io->stats->io.replies_queued, 1);
        break;
    case LM_OUTCOME_UNSENT:
        if (gone) {
            lm_slots_release(io, request);
        } else {
            append_reply(io, connection, request);
        }
        break;
    case LM_OUTCOME_BROKEN:
        lm_slots_release(io, request);
        lm_connection_abort(io, connection);
        break;
    case LM_OUTCOME_SENT:
    case LM_OUTCOME_DROPPED:
    case LM_OUTCOME_OVERDUE: end(io, request); break;
    }
    lm_connection_mark(io, connection);
}

void lm_reply_sent(struct lm_io *io, const struct lm_completion *completion) {
    struct lm_connection *connection = lm_io_connection(io, completion->index);
    const struct lm_dialect *dialect = lm_io_dialect(io, connection);
    if (dialect->sent) {
        dialect->sent(io, connection, completion);
    } else {
        lm_reply_completed(io, completion);
    }
}

void lm_reply_completed(struct lm_io *io, const struct lm_completion *completion) {
    struct lm_connection *connection = lm_io_connection(io, completion->index);
    LM_ASSERT(connection->generation == completion->generation &&
              connection->sending != LM_NO_SLOT);
    struct lm_request *request = &io->requests[connection->sending];
    bool retry = completion->result == -EINTR || completion->result == -EAGAIN;
    /* Of a stream's last piece there may be nothing but its end. */
    bool whole = completion->result == 0 && request->message.msg_iovlen == 0;
    if (completion->result > 0) {
        lm_add_single_writer_u64(&io->stats->io.bytes_out, (uint64_t)completion->result);
        whole = lm_reply_move(&request->message, (size_t)completion->result);
        retry = !whole;
    }
    if (retry) {
        start_sending(io, connection, request);
        return;
    }
    if (request->in_pieces) {
        piece_completed(io, connection, request, whole);
        return;
    }
    if (whole && request->model) {
        uint64_t now = lm_now_ns();
        lm_histogram_record(&io->stats->stages[LM_STAGE_SEND], now - request->inferred_ns);
        lm_histogram_record(&io->stats->stages[LM_STAGE_TOTAL], now - request->started_ns);
        lm_model_histogram_record(
            &io->stats->models[request->model->index].stages[LM_MODEL_STAGE_TOTAL],
            now - request->started_ns);
    }
    connection->sending = LM_NO_SLOT;
    give_token(connection);
    end(io, request);
    if (!whole) lm_connection_abort(io, connection);
    lm_connection_mark(io, connection);
}
