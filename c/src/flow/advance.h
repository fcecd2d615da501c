/* advance.h: what happens to a connection after a change, in one place. Handlers of completions,
 * returns and timers change a connection's state and mark it (lm_connection_mark); once a turn, and
 * before the thread sleeps, each marked connection is advanced. So no handler finds that another
 * one went on with its connection meanwhile. I/O thread only.
 */
#ifndef LM_FLOW_ADVANCE_H
#define LM_FLOW_ADVANCE_H

#include "flow/state.h"

/* Advances marked connections, in the order of their marks, until none is marked. */
void lm_advance_all(struct lm_io *io);

#endif
