/* tls_turn.h: what the I/O thread does for connections that speak TLS in its turns. I/O thread
 * only.
 */
#ifndef LM_FLOW_TLS_TURN_H
#define LM_FLOW_TLS_TURN_H

#include "flow/state.h"

/* Before connections are looked at. */
void lm_tls_begin_turn(struct lm_io *io);
/* Takes the connections that the thread of the handshakes has delivered. */
void lm_tls_take_greeted(struct lm_io *io);
/* Carries out what was started of a connection: reads, and sends. It is advanced. */
void lm_tls_advance(struct lm_io *io, struct lm_connection *connection);
/* The ring has sent records, or says that the socket has something. false: it is of something else.
 */
bool lm_tls_sent(struct lm_io *io, const struct lm_completion *completion);
bool lm_tls_readable(struct lm_io *io, const struct lm_completion *completion);

#endif
