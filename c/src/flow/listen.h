/* listen.h: the listening TCP sockets. Control thread, at start. */
#ifndef LM_FLOW_LISTEN_H
#define LM_FLOW_LISTEN_H

#include "flow/state.h"

/* With several I/O threads each has a listener on the port: `listener` is LM_LISTENER_TCP or
 * LM_LISTENER_GRPC. Says which port it is. */
int lm_listen_tcp(struct lm_shared *shared, uint32_t listener, const char *host, uint32_t port,
                  uint32_t *port_out);
/* A listener that is no I/O thread's. */
int lm_listen_alone(const struct lm_shared *shared, const char *host, uint32_t port, int *fd_out,
                    uint32_t *port_out);

#endif
