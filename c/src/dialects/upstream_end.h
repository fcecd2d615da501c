/* upstream_end.h: how a request that an upstream has comes to its end: its answer is passed whole,
 * it fails (then it goes to another address, or its client is told), or its client leaves. I/O
 * thread only.
 */
#ifndef LM_DIALECTS_UPSTREAM_END_H
#define LM_DIALECTS_UPSTREAM_END_H

#include "dialects/upstream_state.h"

/* A request begins: it counts as an upstream's from here to one of the ends below. false: there
 * are as many as there may be. */
bool lm_upstream_begin(struct lm_io *io, struct lm_connection *client, struct lm_request *request);
/* Sends it to an address. The client is told where that cannot be. */
void lm_upstream_start(struct lm_io *io, uint32_t slot);
/* Its budgets are charged what its answer says, or what can be told from what there is of it. */
void lm_upstream_settle(struct lm_io *io, uint32_t slot);
/* The last piece of its answer is with the kernel (SENT), or the ring sends it. */
void lm_upstream_finish(struct lm_io *io, uint32_t slot, enum lm_outcome outcome);
/* Its link is over. */
void lm_upstream_lose(struct lm_io *io, struct lm_link *link);
/* An answer of this status may be passed over: the request goes to another address, once its link
 * is over. */
bool lm_upstream_goes_on(struct lm_io *io, const struct lm_link *link,
                         const struct lm_http_response *response);

#endif
