/* transport.h: the table of transports, which carry a connection's bytes: TCP and unix sockets, and
 * connections that carry streams.
 * Sends, shutdowns and looks at a connection's socket that do not go through the ring go through
 * its transport.
 *
 * Called by the I/O thread; `send` also by a worker that holds the connection's token.
 */
#ifndef LM_FLOW_TRANSPORT_H
#define LM_FLOW_TRANSPORT_H

#include <sys/socket.h>

#include "flow/connection.h"

/* The client's side of a connection, as the kernel knows it. */
struct lm_transport_look {
    uint64_t acked_bytes, received_bytes;
    bool is_closed; /* it was reset */
    bool has_ended; /* it sends no more */
};

struct lm_transport {
    bool has_descriptors; /* the client may send descriptors along */
    /* Sends what it takes at once. Returns the bytes, or -1 with errno. */
    ssize_t (*send)(const struct lm_connection *connection, const struct msghdr *message);
    /* Ends a direction, or both (SHUT_*). */
    void (*shut)(const struct lm_connection *connection, int how);
    /* Bytes that have come and are not received yet; -1: it cannot say. */
    int (*waiting)(const struct lm_connection *connection);
    /* The socket is readable from so many bytes on. */
    void (*wake_at)(const struct lm_connection *connection, int bytes);
    /* NULL: the kernel does not say. */
    bool (*look)(const struct lm_connection *connection, struct lm_transport_look *look_out);
};

extern const struct lm_transport lm_transports[LM_TRANSPORT_COUNT];

static inline const struct lm_transport *lm_transport_of(const struct lm_connection *connection) {
    return &lm_transports[connection->transport];
}
static inline bool lm_transport_look(const struct lm_connection *connection,
                                     struct lm_transport_look *look_out) {
    const struct lm_transport *transport = lm_transport_of(connection);
    return transport->look && transport->look(connection, look_out);
}

#endif
