/* estimate.h: how long a request will wait for a worker, and how long its Run will take. I/O thread
 * only, and its own: the estimates cost no atomics, and with several I/O threads each takes the
 * others to be as busy as itself.
 *
 * The wait is estimated from the requests in flight: each is charged with the time that requests
 * of its model, encoding and size took of a worker lately, and the sum is shared out over the
 * workers. The estimate is of a Run on one core; one on several (work/width.h) is taken to be as
 * many times faster as at start, in what it teaches and in what is expected of it where nothing
 * else is in flight. Where more is in flight than the workers can run at once, the pace at which
 * requests leave is measured too, and the longer of the two estimates counts: a worker that does
 * not get its core is slower than its Runs.
 *
 * An estimate that refuses requests also prevents the Runs that would correct it. So it begins with
 * the time of the worker's warm-up, one Run raises it by less than a half, however long it took,
 * and from time to time one request that only its own model's estimate stands against is run as a
 * probe: if the probe takes less, its time is the new estimate. Probes come one at a time, four
 * times the estimate apart, so that the probes of a model that is as slow as estimated take at most
 * a fifth of one worker; and at least every LM_PROBE_MS_MAX, so that no estimate keeps requests out
 * for longer. Only a request whose body is here becomes a probe, and a probe that was not run costs
 * no pause: a client that sends slowly, or leaves, cannot use the probes up.
 */
#ifndef LM_FLOW_ESTIMATE_H
#define LM_FLOW_ESTIMATE_H

#include "flow/state.h"

/* Before the model's first request, by what one row took when it was warm. */
void lm_estimate_begin(struct lm_io *io, const struct lm_model *model);
/* The wait of a request that enters now. */
uint64_t lm_estimate_wait_ns(const struct lm_io *io);
/* The time of a worker for it. */
uint64_t lm_estimate_run_ns(const struct lm_io *io, const struct lm_demand *demand);
/* A Run that takes no longer than handing the request over to a worker would. */
bool lm_estimate_is_short(const struct lm_io *io, const struct lm_request *request);
/* A request may be run to test the estimate. */
bool lm_estimate_wants_probe(const struct lm_io *io, const struct lm_demand *demand);

/* A request counts from lm_estimate_charge to lm_estimate_discharge, */
void lm_estimate_charge(struct lm_io *io, struct lm_request *request);
void lm_estimate_discharge(struct lm_io *io, const struct lm_request *request);
/* but not while its body comes slowly, */
void lm_estimate_suspend(struct lm_io *io, struct lm_request *request);
/* until the body is whole; then the request may become a probe. */
void lm_estimate_resume(struct lm_io *io, struct lm_request *request);
/* One request leaves, and still counts in io->in_flight. Measures how often one does while the
 * workers have enough to do. */
void lm_estimate_pace(struct lm_io *io);

#endif
