/* traceparent.h: the field of W3C's Trace Context that says which trace a request is part of, and
 * which span of it has sent it. No state: any thread.
 */
#ifndef LM_WIRE_TRACEPARENT_H
#define LM_WIRE_TRACEPARENT_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/http_parser.h"

enum { LM_TRACE_ID_SIZE = 16, LM_TRACEPARENT_BYTES = 55, LM_TRACEPARENT_BYTES_MAX = 128 };

struct lm_traceparent {
    uint8_t trace[LM_TRACE_ID_SIZE];
    uint64_t span; /* its 16 digits as a number */
    bool is_sampled;
};

/* false: malformed. */
bool lm_traceparent_read(struct lm_slice value, struct lm_traceparent *parent_out);
/* Writes LM_TRACEPARENT_BYTES, and a zero behind them. */
void lm_traceparent_write(const struct lm_traceparent *parent, char text[LM_TRACEPARENT_BYTES + 1]);

#endif
