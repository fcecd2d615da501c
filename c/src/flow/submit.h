/* submit.h: a request whose last byte is here goes to the workers. I/O thread only. */
#ifndef LM_FLOW_SUBMIT_H
#define LM_FLOW_SUBMIT_H

#include "flow/state.h"

/* The request that the connection was receiving is whole; the next one may be read. It is looked up
 * in the response cache, or goes to a worker. */
void lm_submit(struct lm_io *io, struct lm_connection *connection, struct lm_request *request);
/* It is to be run, by a worker or by this thread. */
void lm_submit_run(struct lm_io *io, struct lm_request *request);
/* Hands what is ready to the workers. */
void lm_submit_hand_over(struct lm_io *io);

#endif
