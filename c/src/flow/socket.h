/* socket.h: TCP and unix sockets as transports (transport.h says what each function does). I/O
 * thread; lm_socket_send also a worker.
 */
#ifndef LM_FLOW_SOCKET_H
#define LM_FLOW_SOCKET_H

#include "flow/transport.h"

ssize_t lm_socket_send(struct lm_io *io, struct lm_connection *connection,
                       const struct msghdr *message);
bool lm_socket_start_send(struct lm_io *io, struct lm_connection *connection,
                          const struct msghdr *message);
bool lm_socket_start_header(struct lm_io *io, struct lm_connection *connection);
bool lm_socket_start_recv(struct lm_io *io, struct lm_connection *connection, void *memory,
                          size_t bytes);
bool lm_socket_withdraw(struct lm_io *io, struct lm_connection *connection);
void lm_socket_shut(struct lm_io *io, struct lm_connection *connection, int how);
void lm_socket_release(struct lm_io *io, struct lm_connection *connection);
int lm_socket_waiting(struct lm_io *io, const struct lm_connection *connection);
void lm_socket_wake_at(struct lm_io *io, const struct lm_connection *connection, int bytes);
bool lm_socket_look(const struct lm_connection *connection, struct lm_transport_look *look_out);

#endif
