/* tls.c: see tls.h. */
#include "flow/tls.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "flow/socket.h"
#include "flow/timers.h"

static const struct lm_openssl *openssl_of(const struct lm_io *io) {
    return io->shared->sessions->openssl;
}

int lm_tls_open(struct lm_io *io) {
    struct lm_tls_side *side = io->shared->sessions ? calloc(1, sizeof *side) : NULL;
    if (!io->shared->sessions) return 0;
    io->tls = side;
    if (!side) return lm_error(LUMEN_E_NOMEM, "no memory for TLS");
    return lm_spsc_open(&side->greeted, LM_ASSIGNED_MAX);
}

void lm_tls_side_close(struct lm_io *io) {
    uint32_t fd;
    if (!io->tls) return;
    while (io->tls->greeted.values && lm_spsc_pop(&io->tls->greeted, &fd)) {
        lm_tls_session_close(openssl_of(io), lm_tls_session_at(io->shared->sessions, (int)fd));
        close((int)fd);
    }
    lm_spsc_close(&io->tls->greeted);
    free(io->tls);
    io->tls = NULL;
}

bool lm_tls_deliver(void *shared_, uint32_t fd) {
    struct lm_shared *shared = shared_;
    /* relaxed: what is pushed too late, lm_tls_side_close closes */
    if (lm_load_relaxed_u32(&shared->phase) == LM_PHASE_DRAINING) return false;
    for (uint32_t tries = 0; tries < shared->io_count; tries++) {
        struct lm_io *to = &shared->ios[shared->tls->delivered++ % shared->io_count];
        if (!lm_spsc_push(&to->tls->greeted, fd)) continue;
        lm_ring_wake(to->ring);
        return true;
    }
    return false;
}

/* ---- receiving ---- */

void lm_tls_poll(struct lm_io *io, struct lm_connection *connection,
                 struct lm_tls_session *session) {
    session->is_polled = true;
    lm_ring_poll(io->ring, connection->fd, connection->index, connection->generation);
}

/* The socket does not tell of bytes that lie in OpenSSL's buffer. */
static bool start(struct lm_io *io, struct lm_connection *connection, bool wants_page, void *memory,
                  size_t bytes) {
    struct lm_tls_session *session = lm_tls_session_of(io, connection);
    session->wish = (struct lm_tls_wish){
        .is_open = true, .wants_page = wants_page, .memory = memory, .bytes = bytes};
    if (session->may_read || session->is_broken) return false;
    lm_tls_poll(io, connection, session);
    return true;
}

bool lm_tls_start_header(struct lm_io *io, struct lm_connection *connection) {
    return start(io, connection, true, NULL, LM_HEADER_BUFFER_BYTES);
}

bool lm_tls_start_recv(struct lm_io *io, struct lm_connection *connection, void *memory,
                       size_t bytes) {
    return start(io, connection, false, memory, bytes);
}

/* It goes on as one into a buffer. */
bool lm_tls_withdraw(struct lm_io *io, struct lm_connection *connection) {
    struct lm_tls_wish *wish = &lm_tls_session_of(io, connection)->wish;
    wish->wants_page = true;
    wish->memory = NULL;
    wish->bytes = LM_HEADER_BUFFER_BYTES;
    return true;
}

int lm_tls_waiting(struct lm_io *io, const struct lm_connection *connection) {
    const int bytes = lm_socket_waiting(io, connection);
    const size_t more = lm_tls_buffered(openssl_of(io), lm_tls_session_of(io, connection));
    return bytes < 0 ? bytes : bytes + (int)more;
}

void lm_tls_wake_at(struct lm_io *io, const struct lm_connection *connection, int bytes) {
    const int here = (int)lm_tls_buffered(openssl_of(io), lm_tls_session_of(io, connection));
    lm_socket_wake_at(io, connection, bytes > here ? bytes - here : 1);
}

/* ---- sending ---- */

ssize_t lm_tls_send(struct lm_io *io, struct lm_connection *connection,
                    const struct msghdr *message) {
    struct lm_tls_session *session = lm_tls_session_of(io, connection);
    const bool had_rest = session->rest != NULL;
    const ssize_t taken = lm_tls_write(openssl_of(io), session, &io->tls->writer, message);
    if (session->rest && !had_rest) {
        connection->in_flight++; /* it stays until the ring has sent them */
        session->blocked_ns = io->now_ns;
        lm_ring_send(io->ring, connection->fd, &session->rest_message, connection->index,
                     connection->generation);
    }
    return taken;
}

bool lm_tls_start_send(struct lm_io *io, struct lm_connection *connection,
                       const struct msghdr *message) {
    lm_tls_session_of(io, connection)->message = message;
    return false;
}

bool lm_tls_has_rest(const struct lm_io *io, const struct lm_connection *connection) {
    const struct lm_tls_session *session = lm_tls_session_of(io, connection);
    return session && session->rest;
}

/* The client must read the records that wait for it, and, between requests, finish a record that it
 * has begun. */
uint64_t lm_tls_deadline_ns(const struct lm_io *io, const struct lm_connection *connection) {
    const struct lm_tls_session *session = lm_tls_session_of(io, connection);
    const uint8_t state = connection->in.read_state;
    const bool is_between = state == LM_READ_HEADER || state == LM_READ_PROLOGUE;
    if (!session) return 0;
    if (session->rest) return lm_timer_after(session->blocked_ns, io->shared->reply_timeout_ns);
    if (session->partial_ns && is_between && !connection->in_flight)
        return lm_timer_after(session->partial_ns, io->shared->header_timeout_ns);
    return 0;
}

/* ---- the end ---- */

void lm_tls_shut(struct lm_io *io, struct lm_connection *connection, int how) {
    struct lm_tls_session *session = lm_tls_session_of(io, connection);
    if (how == SHUT_WR) lm_tls_say_end(openssl_of(io), session);
    if (how == SHUT_RD) session->read_shut = true;
    shutdown(connection->fd, how);
}

void lm_tls_release(struct lm_io *io, struct lm_connection *connection) {
    struct lm_tls_session *session = lm_tls_session_of(io, connection);
    lm_tls_say_end(openssl_of(io), session);
    lm_tls_session_close(openssl_of(io), session);
    io->tls->open--;
    lm_tls_session_put(io->shared->sessions, connection->fd, NULL);
    close(connection->fd);
}

const uint8_t *lm_tls_subject(const struct lm_io *io, const struct lm_connection *connection) {
    if (!io->shared->sessions || connection->fd < 0) return NULL;
    /* A stream has its carrier's descriptor. */
    const struct lm_tls_session *session = lm_tls_session_at(io->shared->sessions, connection->fd);
    return session && session->has_subject ? session->subject : NULL;
}
