/* span_store.h: requests that are recorded, on their way from the telemetry thread to whoever
 * exports them. Neither is on the way of a request: a lock is between the two.
 */
#ifndef LM_WORK_SPAN_STORE_H
#define LM_WORK_SPAN_STORE_H

#include <pthread.h>

#include "lumen_traces.h"

struct lm_span_store {
    pthread_mutex_t lock;
    lumen_span *spans;  /* a ring of LUMEN_SPANS_KEPT; NULL: nothing is recorded */
    uint32_t at, count; /* the oldest, and how many there are */
    uint64_t lost;
};

/* Returns 0 or LUMEN_E_NOMEM. */
int lm_span_store_open(struct lm_span_store *store);
void lm_span_store_close(struct lm_span_store *store);
/* Telemetry thread. */
void lm_span_store_add(struct lm_span_store *store, const lumen_span *span);
/* Any thread. Returns how many were taken. */
uint32_t lm_span_store_take(struct lm_span_store *store, lumen_span *spans, uint32_t most,
                            uint64_t *lost_out);

#endif
