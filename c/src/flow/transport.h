/* transport.h: what a transport does, which carries a connection's bytes. transports.h is the table
 * of them.
 *
 * Called by the I/O thread; `send` also by a worker that holds the connection's token, but where
 * the I/O thread alone may send.
 */
#ifndef LM_FLOW_TRANSPORT_H
#define LM_FLOW_TRANSPORT_H

#include <sys/socket.h>

#include "flow/state.h"

/* The client's side of a connection, as the kernel knows it. */
struct lm_transport_look {
    uint64_t acked_bytes, received_bytes;
    bool is_closed; /* it was reset */
    bool has_ended; /* it sends no more */
};

struct lm_transport {
    bool has_descriptors; /* the client may send descriptors along */
    bool io_thread_sends; /* the I/O thread alone */
    bool may_park;        /* an idle one does without its descriptor (parking.h) */
    /* Sends what it takes at once. Returns the bytes, or -1 with errno. */
    ssize_t (*send)(struct lm_io *io, struct lm_connection *connection,
                    const struct msghdr *message);
    /* Three operations that complete as the ring's: LM_OP_SEND of a message, or a part of it;
     * LM_OP_RECV_HEADER into a buffer that it finds; LM_OP_RECV. false: the caller marks the
     * connection, which goes on with it when it is advanced. */
    bool (*start_send)(struct lm_io *io, struct lm_connection *connection,
                       const struct msghdr *message);
    bool (*start_header)(struct lm_io *io, struct lm_connection *connection);
    bool (*start_recv)(struct lm_io *io, struct lm_connection *connection, void *memory,
                       size_t bytes);
    /* Takes back a receive to memory (start_recv). true: at once; false: it completes, with what
     * has come or with -ECANCELED. */
    bool (*withdraw)(struct lm_io *io, struct lm_connection *connection);
    /* Ends a direction, or both (SHUT_*). */
    void (*shut)(struct lm_io *io, struct lm_connection *connection, int how);
    /* Nothing of it is under way: gives back what it has. */
    void (*release)(struct lm_io *io, struct lm_connection *connection);
    /* Bytes that have come and are not received yet; -1: it cannot say. */
    int (*waiting)(struct lm_io *io, const struct lm_connection *connection);
    /* The socket is readable from so many bytes on. */
    void (*wake_at)(struct lm_io *io, const struct lm_connection *connection, int bytes);
    /* Each of these may be NULL, where the transport has nothing to do. */
    /* Goes on with what was started, when the connection is advanced. */
    void (*advance)(struct lm_io *io, struct lm_connection *connection);
    /* The ring has sent something, or says that the socket has something. false: the transport did
     * not ask for that. */
    bool (*sent)(struct lm_io *io, const struct lm_completion *completion);
    bool (*readable)(struct lm_io *io, const struct lm_completion *completion);
    /* When the client must have moved for the transport to go on; then the connection is aborted.
     * 0: it waits for nothing of the client. */
    uint64_t (*deadline_ns)(const struct lm_io *io, const struct lm_connection *connection);
    /* Whether the ring still sends what no request holds any more; it counts as one in flight. */
    bool (*has_rest)(const struct lm_io *io, const struct lm_connection *connection);
    /* NULL: the kernel does not say. */
    bool (*look)(const struct lm_connection *connection, struct lm_transport_look *look_out);
};

static inline const struct lm_transport *lm_transport_of(const struct lm_io *io,
                                                         const struct lm_connection *connection) {
    return &io->shared->transports[connection->transport];
}
/* Requests of the connection that a client which has left would lose. */
static inline uint32_t lm_transport_unanswered(const struct lm_io *io,
                                               const struct lm_connection *connection) {
    const struct lm_transport *transport = lm_transport_of(io, connection);
    const bool has_rest = transport->has_rest && transport->has_rest(io, connection);
    return connection->in_flight - (has_rest ? 1u : 0u);
}
/* false: the kernel does not say. */
static inline bool lm_look_at_client(const struct lm_io *io, const struct lm_connection *connection,
                                     struct lm_transport_look *look_out) {
    const struct lm_transport *transport = lm_transport_of(io, connection);
    return transport->look && transport->look(connection, look_out);
}

#endif
