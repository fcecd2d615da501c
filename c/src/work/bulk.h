/* bulk.h: requests of many texts, run by threads of their own beside the workers, which give way to
 * these: a worker that wakes for a request of few texts has its core at once, also in the middle of
 * a Run. So an index of many passages is built while people ask, and by all cores while they do
 * not. A worker reads such a request and hands it over (flow/bulk.h).
 */
#ifndef LM_WORK_BULK_H
#define LM_WORK_BULK_H

#include "work/state.h"

/* Worker: hands a request over that it has read. true: it is not the worker's any more, and must
 * not be looked at. */
bool lm_bulk_take(struct lm_worker *worker, uint32_t job);
/* The thread of a worker behind the others. */
void *lm_bulk_main(void *worker);

#endif
