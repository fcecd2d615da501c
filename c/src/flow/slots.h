/* slots.h: an admitted request holds a slot of the arena and, with max_in_flight, a place of the
 * whole server (places.h). Both are taken and given back here, in the order in which requests came
 * to wait for them. I/O thread only, but for lm_slots_answered,
 * lm_slots_leave_shm and lm_slots_settle.
 */
#ifndef LM_FLOW_SLOTS_H
#define LM_FLOW_SLOTS_H

#include "flow/state.h"

/* A slot for one more request in flight, or NULL. The last ones are for requests whose bytes are
 * here (LM_LIST_WAITING). */
struct lm_slot *lm_slots_take(struct lm_io *io, const struct lm_connection *connection,
                              size_t bytes);
/* Gives it back unused. */
void lm_slots_put_back(struct lm_io *io, struct lm_slot *slot);
/* A slot that is in use holds the models in force: nobody frees what it points to. */
void lm_slots_use_models(struct lm_io *io, struct lm_request *request);
/* The request counts as in flight from here to lm_slots_release. */
void lm_slots_charge(struct lm_io *io, struct lm_request *request);
/* Any thread that holds the request: it is answered, and another one may take its place. */
void lm_slots_answered(struct lm_request *request);
/* Any thread that holds the request: it was so many tokens. What else it had of its budgets is
 * given back, before its client may ask again. */
void lm_slots_settle(struct lm_request *request, uint64_t tokens);
/* The request is over, and does not count as in flight any more. */
void lm_slots_leave(struct lm_io *io, struct lm_request *request);
/* Gives the slot of one that is over back to the arena. */
void lm_slots_free(struct lm_io *io, struct lm_request *request);
/* Both. */
void lm_slots_release(struct lm_io *io, struct lm_request *request);

/* Called by the thread that has the slot, once the request's outputs are written or never will be:
 * its regions may go. It comes before the answer, so that a client finds gone what it has
 * unregistered. */
void lm_slots_leave_shm(struct lm_request *request);

#endif
