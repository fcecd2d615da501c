/* slot_wait.h: requests that found no slot: backpressure. I/O thread only.
 *
 * A body is received straight into its slot, so a client that announces one and sends it slowly
 * would hold the slot meanwhile. While slots are plenty it may. The last quarter of each class, and
 * of max_in_flight, goes to requests whose bytes are here: all of the body, or LM_HERE_BYTES of it.
 * A request that finds only those left, and has not come that far, waits for its bytes, not for a
 * slot (LM_LIST_EXPECTING): the kernel keeps them, says when there are enough (SO_RCVLOWAT), and
 * costs the server nothing until then. So the requests of clients that send always find a slot, or
 * wait for workers alone, however many do not. Where the kernel takes no more of a body than a part
 * (a new connection's buffer is small), the request waits for a slot that can be spared
 * (LM_LIST_WAITING_PART). Nothing here runs while there are slots to spare.
 */
#ifndef LM_FLOW_SLOT_WAIT_H
#define LM_FLOW_SLOT_WAIT_H

#include "flow/state.h"

/* A request found no slot (lm_admit_wait), and what came with its header is consumed. */
void lm_slot_wait_begin(struct lm_io *io, struct lm_connection *connection);
/* The socket of a request that waits for its bytes is readable. */
void lm_slot_wait_readable(struct lm_io *io, const struct lm_completion *completion);
/* Once a turn: tries again to get slots for requests whose bytes are here, in order. */
void lm_slot_wait_retry(struct lm_io *io);
/* A few times a second: tries again for those whose bytes the kernel does not take, and refuses
 * waiters beyond the bound. */
void lm_slot_wait_bound(struct lm_io *io);
/* The request has waited for its bytes for too long. */
void lm_slot_wait_expire(struct lm_io *io, struct lm_connection *connection);

/* Refuses a request that waits. */
void lm_slot_wait_turn_away(struct lm_io *io, struct lm_connection *connection,
                            enum lm_status status, const char *why);
/* The same where no slot that is left has so many bytes: they went with a model (annex.h). */
void lm_slot_wait_outgrown(struct lm_io *io, struct lm_connection *connection, size_t bytes);

#endif
