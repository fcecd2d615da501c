/* http_demand.h: requests for models that the control program loads on demand
 * (repository.max_loaded). A request whose path names a model that is not served waits, on a list
 * of its own (LM_LIST_ASKING), until the model is there, cannot be loaded, or the deadline has
 * passed. Those that wait for one name ask for it once. I/O thread.
 */
#ifndef LM_DIALECTS_HTTP_DEMAND_H
#define LM_DIALECTS_HTTP_DEMAND_H

#include "flow/state.h"
#include "formats/http_route.h"

struct lm_errand; /* parts/errands.h */

/* An inference request's head has come, and nobody serves its model. false: none is loaded on
 * demand here. */
bool lm_http_demand_take(struct lm_io *io, struct lm_connection *connection,
                         const struct lm_http_match *match);
/* Keeps what came behind the head of a request that waits for its model. false: it waits for
 * something else, or there is no room. */
bool lm_http_demand_keep(struct lm_io *io, const struct lm_connection *connection,
                         const uint8_t *bytes, size_t count);
/* Looks at those that wait for a model: whose is there goes on, whose deadline has passed is
 * refused.
 */
void lm_http_demand_look(struct lm_io *io);
/* The control program has loaded a model, or says why it cannot. */
void lm_http_demand_answered(struct lm_io *io, struct lm_errand *errand);

#endif
