/* tls_turn.c: see tls_turn.h. */
#include "flow/tls_turn.h"

#include <errno.h>

#include "base/error.h"
#include "flow/accept.h"
#include "flow/receive.h"
#include "flow/reply.h"
#include "flow/tls.h"

enum { BYTES_PER_TURN = 1 << 20, RECORD_BYTES_LEAST = 2048 };

void lm_tls_begin_turn(struct lm_io *io) {
    if (io->tls) io->tls->bytes_left = BYTES_PER_TURN;
}

void lm_tls_take_greeted(struct lm_io *io) {
    uint32_t fd;
    while (io->tls && lm_spsc_pop(&io->tls->greeted, &fd)) lm_accept_greeted(io, (int)fd);
}

/* ---- reading ---- */

/* Bytes that were read complete as if the ring had received them. */
static void complete(struct lm_io *io, struct lm_connection *connection,
                     struct lm_tls_session *session, ssize_t got, int32_t page) {
    const struct lm_completion completion = {.op = session->wish.wants_page ? LM_OP_RECV_HEADER
                                                                            : LM_OP_RECV,
                                             .index = connection->index,
                                             .generation = connection->generation,
                                             .result = got < 0 ? -errno : (int32_t)got,
                                             .buffer = page};
    session->wish.is_open = false;
    lm_receive_completed(io, &completion);
}

/* Reads what was asked for, or asks the ring to say when there is something. */
static void read_wish(struct lm_io *io, struct lm_connection *connection,
                      struct lm_tls_session *session) {
    struct lm_tls_wish *wish = &session->wish;
    int32_t page = LM_NO_BUFFER;
    if (connection->ended) { /* its memory may be another's soon */
        errno = ECANCELED;
        complete(io, connection, session, -1, page);
        return;
    }
    if (io->tls->bytes_left == 0 && connection->list != LM_LIST_LINGERING) {
        lm_connection_move(io, connection, LM_LIST_RESUMING); /* others have their turn first */
        return;
    }
    if (wish->wants_page) page = lm_held_take(&io->held, connection->index);
    if (wish->wants_page && page < 0) {
        errno = ENOBUFS;
        complete(io, connection, session, -1, LM_NO_BUFFER);
        return;
    }
    void *memory = wish->wants_page ? lm_held_bytes(&io->held, page) : wish->memory;
    const ssize_t got = lm_tls_read(io->shared->sessions->openssl, session, memory, wish->bytes);
    if (got < 0 && errno == EAGAIN) {
        if (page != LM_NO_BUFFER) lm_held_return(&io->held, page);
        if (!session->waits_for_rest) lm_tls_poll(io, connection, session); /* else lm_tls_sent */
        return;
    }
    if (got > 0) { /* a record of one byte takes its time, too */
        const size_t charged = got > RECORD_BYTES_LEAST ? (size_t)got : RECORD_BYTES_LEAST;
        io->tls->bytes_left -= charged < io->tls->bytes_left ? charged : io->tls->bytes_left;
    }
    complete(io, connection, session, got, page);
}

bool lm_tls_readable(struct lm_io *io, const struct lm_completion *completion) {
    struct lm_connection *connection = lm_io_connection(io, completion->index);
    struct lm_tls_session *session = lm_tls_session_of(io, connection);
    if (!session) return false;
    session->may_read = true;
    session->is_polled = false;
    if (!session->wish.is_open) return false; /* a request waits for its bytes */
    LM_ASSERT(connection->generation == completion->generation && connection->recv_armed);
    lm_connection_mark(io, connection);
    return true;
}

/* ---- sending ---- */

/* Seals and sends a message, a batch after the other, as far as the socket takes them. */
static void send_message(struct lm_io *io, struct lm_connection *connection,
                         struct lm_tls_session *session) {
    /* relaxed: this thread's own */
    const bool is_gone = lm_load_relaxed_u32(&connection->gone);
    while (session->message && (!session->rest || is_gone)) {
        const struct msghdr *message = session->message;
        const ssize_t taken = is_gone ? -1 : lm_tls_send(io, connection, message);
        const struct lm_completion completion = {.op = LM_OP_SEND,
                                                 .index = connection->index,
                                                 .generation = connection->generation,
                                                 .result = taken < 0 ? -EPIPE : (int32_t)taken};
        session->message = NULL;
        lm_reply_sent(io, &completion);
    }
}

bool lm_tls_sent(struct lm_io *io, const struct lm_completion *completion) {
    struct lm_connection *connection = lm_io_connection(io, completion->index);
    struct lm_tls_session *session = lm_tls_session_of(io, connection);
    if (!session) return false;
    LM_ASSERT(connection->generation == completion->generation && session->rest);
    const bool again = completion->result == -EINTR || completion->result == -EAGAIN;
    const bool is_whole =
        completion->result > 0 && lm_tls_rest_sent(session, (size_t)completion->result);
    /* relaxed: this thread's own */
    const bool is_gone = lm_load_relaxed_u32(&connection->gone);
    if (!is_whole && (again || completion->result > 0) && !is_gone) {
        lm_ring_send(io->ring, connection->fd, &session->rest_message, connection->index,
                     connection->generation);
        return true;
    }
    connection->in_flight--;
    session->waits_for_rest = false;
    lm_connection_mark(io, connection);
    if (is_whole) return true;
    session->is_broken = true;
    lm_tls_rest_drop(session);
    lm_connection_abort(io, connection);
    return true;
}

void lm_tls_advance(struct lm_io *io, struct lm_connection *connection) {
    struct lm_tls_session *session = lm_tls_session_of(io, connection);
    if (!session) return;
    if (session->message) send_message(io, connection, session);
    const bool may_read = session->may_read || session->is_broken;
    if (session->wish.is_open && may_read && !session->is_polled && !session->waits_for_rest)
        read_wish(io, connection, session);
}
