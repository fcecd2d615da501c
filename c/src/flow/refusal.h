/* refusal.h: why a request is not let in, and how that is counted. I/O thread only. */
#ifndef LM_FLOW_REFUSAL_H
#define LM_FLOW_REFUSAL_H

#include "flow/state.h"

struct lm_refusal {
    enum lm_status status;
    uint32_t retry_after_s; /* when asking again makes sense */
    char why[LM_TEXT_BYTES_MAX];
};

/* Fills it in, with at least a second to wait. Returns false, for the caller to return. */
bool lm_refuse(struct lm_refusal *refusal, enum lm_status status, uint64_t retry_ns,
               const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Counts a refused request, for its model too where it named one (UINT32_MAX: none). */
void lm_refusal_count(struct lm_io *io, enum lm_status status, uint32_t model);

#endif
