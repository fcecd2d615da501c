/* submit.h: a request whose last byte is here goes to the workers. I/O thread only. */
#ifndef LM_FLOW_SUBMIT_H
#define LM_FLOW_SUBMIT_H

#include "flow/state.h"

/* The request that the connection was receiving is ready for a worker; the next one may be read. */
void lm_submit(struct lm_io *io, struct lm_connection *connection, struct lm_request *request);
/* Hands what is ready to the workers. */
void lm_submit_hand_over(struct lm_io *io);

#endif
