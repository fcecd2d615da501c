/* route.h: which expert of a virtual model runs a request: by a feature of its payload before the
 * Run, or by what the lighter expert's answer says of itself. The thread that runs the request
 * asks, since it has the payload in its cache next (docs/adr/0013). Allocates nothing.
 */
#ifndef LM_WORK_ROUTE_H
#define LM_WORK_ROUTE_H

#include "flow/request.h"

/* The body is read. Chooses the expert; of a cascade the first. */
void lm_route(struct lm_request *request);
/* The Run of the chosen expert gave this as output `experts.at`: true, where the next expert is to
 * run, which is chosen now. */
bool lm_route_goes_on(struct lm_request *request, const void *output);
/* The outputs of a Run in the request's own slot: the same. */
bool lm_route_goes_on_after(struct lm_request *request, const struct lm_ort *ort,
                            OrtValue *const *outputs);

#endif
