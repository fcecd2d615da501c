/* http_stats.h: GET /v2/models/stats and /v2/models/M/stats: what the threads have counted of each
 * model, summed for the answer. I/O thread. */
#ifndef LM_DIALECTS_HTTP_STATS_H
#define LM_DIALECTS_HTTP_STATS_H

#include "flow/state.h"

/* Answers the call that the connection has. Of one model, or of few, they are of the moment; of
 * more than LM_PAGE_MODELS, of the last second. */
void lm_http_answer_stats(struct lm_io *io, struct lm_connection *connection);

#endif
