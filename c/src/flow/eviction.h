/* eviction.h: a connection that holds a slot and hardly moves loses it when less than the reserve
 * of slot_wait.h is free, and others wait. I/O thread only.
 */
#ifndef LM_FLOW_EVICTION_H
#define LM_FLOW_EVICTION_H

#include "flow/state.h"

/* While slots are taken: a few times a second, looks whether one must be freed. */
void lm_eviction_run(struct lm_io *io);
/* Requests whose bodies come slowly are no work for the workers yet. */
void lm_eviction_suspend(struct lm_io *io);

#endif
