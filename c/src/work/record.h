/* record.h: a worker's figures of the requests it answers: counters, the time of each stage, a row
 * of the telemetry file. Workers, and I/O threads that run models themselves.
 */
#ifndef LM_WORK_RECORD_H
#define LM_WORK_RECORD_H

#include "work/state.h"

/* A Run of the model has returned. */
void lm_record_run(struct lm_worker *worker, const struct lm_model *model);
/* The reply is composed: counts the request by its status. */
void lm_record_status(struct lm_worker *worker, struct lm_request *request);
/* The worker has sent what it could: records what each stage took. */
void lm_record_reply(struct lm_worker *worker, const struct lm_request *request, uint64_t sent_ns);

#endif
