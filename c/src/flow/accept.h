/* accept.h: new connections on their I/O thread. Unix sockets are accepted by the first I/O thread
 * alone, which assigns them to all threads in turn. I/O thread only, but for
 * lm_accept_refuse_assigned.
 */
#ifndef LM_FLOW_ACCEPT_H
#define LM_FLOW_ACCEPT_H

#include "flow/state.h"

enum { LM_LISTENER_TCP, LM_LISTENER_UNIX, LM_LISTENER_GRPC /* another TCP port */ };

/* Takes the connections that the first I/O thread has assigned to this one. */
void lm_accept_take_assigned(struct lm_io *io);
/* Closes them, once its thread has ended. */
void lm_accept_refuse_assigned(struct lm_io *io);
/* One that speaks TLS is greeted. */
void lm_accept_greeted(struct lm_io *io, int fd);
/* Arms the accepts that are not armed. */
void lm_accept_arm(struct lm_io *io);
void lm_accept_completed(struct lm_io *io, const struct lm_completion *completion);

/* No more connections: nobody accepts any more. */
void lm_accept_close_listeners(struct lm_io *io);

#endif
