/* admit.h: a request is admitted: a slot was found for it, or it waits for one. For every dialect.
 * I/O thread only.
 */
#ifndef LM_FLOW_ADMIT_H
#define LM_FLOW_ADMIT_H

#include "flow/state.h"

/* timeout_us 0: the server's default. */
uint64_t lm_admit_deadline_ns(const struct lm_io *io, const struct lm_connection *connection,
                              uint64_t timeout_us);
/* Fills the request that a slot was found for; its body is next. */
struct lm_request *lm_admit_begin(struct lm_io *io, struct lm_connection *connection,
                                  const struct lm_demand *demand, struct lm_slot *slot);
/* No slot for the request: slot_wait.c has it when the bytes that came with its header are
 * consumed. */
void lm_admit_wait(struct lm_io *io, struct lm_connection *connection, uint64_t timeout_us);

#endif
