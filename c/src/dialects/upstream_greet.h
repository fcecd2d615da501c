/* upstream_greet.h: a connection to an upstream on its way: it is connected, greeted where it
 * speaks TLS, and has a request from there on, or many. I/O thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_GREET_H
#define LM_DIALECTS_UPSTREAM_GREET_H

#include "dialects/upstream_state.h"

/* A connection is there, or cannot be had. */
void lm_upstream_connected(struct lm_io *io, const struct lm_completion *completion);
/* Goes on with a greeting, as far as the other side has said something. */
void lm_upstream_greet(struct lm_io *io, struct lm_connection *connection);

#endif
