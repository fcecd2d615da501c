/* tls.h: TLS as a transport: a connection whose bytes go through a session (tls/session.h). I/O
 * thread only, but for what says otherwise.
 *
 * The ring says when the socket has something. What is to be received is read when the connection
 * is advanced (tls_turn.h), straight to where it belongs: a page of held.h, or the slot. What is
 * sent is sealed here and sent at once; records that the socket does not take, the ring sends, and
 * until then the connection counts a request more in flight.
 */
#ifndef LM_FLOW_TLS_H
#define LM_FLOW_TLS_H

#include "flow/transport.h"
#include "parts/queue_spsc.h"
#include "tls/door.h"

/* Of an I/O thread. */
struct lm_tls_side {
    struct lm_tls_writer writer;
    size_t bytes_left;      /* that may be read in this turn, for others to have theirs */
    uint32_t open;          /* connections */
    struct lm_spsc greeted; /* descriptors of connections, from the thread of the handshakes */
};

/* Where the server speaks TLS, or an upstream does. Returns 0 or LUMEN_E_NOMEM. */
int lm_tls_open(struct lm_io *io);
void lm_tls_side_close(struct lm_io *io);

/* NULL: it does not speak TLS. */
static inline struct lm_tls_session *lm_tls_session_of(const struct lm_io *io,
                                                       const struct lm_connection *connection) {
    const bool has_one = connection->transport == LM_TRANSPORT_TLS && connection->fd >= 0;
    return has_one ? lm_tls_session_at(io->shared->sessions, connection->fd) : NULL;
}
/* The thread of the handshakes: an I/O thread gets a connection. `shared` is struct lm_shared. */
bool lm_tls_deliver(void *shared, uint32_t fd);
/* Asks the ring to say when the socket has something. */
void lm_tls_poll(struct lm_io *io, struct lm_connection *connection,
                 struct lm_tls_session *session);
/* The SHA-256 of the name in the client's certificate, also of a stream's; NULL: it has none. */
const uint8_t *lm_tls_subject(const struct lm_io *io, const struct lm_connection *connection);

/* The table's (transport.h). */
ssize_t lm_tls_send(struct lm_io *io, struct lm_connection *connection,
                    const struct msghdr *message);
bool lm_tls_start_send(struct lm_io *io, struct lm_connection *connection,
                       const struct msghdr *message);
bool lm_tls_start_header(struct lm_io *io, struct lm_connection *connection);
bool lm_tls_start_recv(struct lm_io *io, struct lm_connection *connection, void *memory,
                       size_t bytes);
bool lm_tls_withdraw(struct lm_io *io, struct lm_connection *connection);
void lm_tls_shut(struct lm_io *io, struct lm_connection *connection, int how);
void lm_tls_release(struct lm_io *io, struct lm_connection *connection);
int lm_tls_waiting(struct lm_io *io, const struct lm_connection *connection);
uint64_t lm_tls_deadline_ns(const struct lm_io *io, const struct lm_connection *connection);
bool lm_tls_has_rest(const struct lm_io *io, const struct lm_connection *connection);
void lm_tls_wake_at(struct lm_io *io, const struct lm_connection *connection, int bytes);

#endif
