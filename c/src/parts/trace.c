/* trace.c: see trace.h. */
#include "parts/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

_Static_assert((LM_TRACE_RECORDS & (LM_TRACE_RECORDS - 1)) == 0, "positions are masked");

int lm_trace_open(struct lm_trace *trace) {
    memset(trace, 0, sizeof *trace);
    trace->records = calloc(LM_TRACE_RECORDS, sizeof *trace->records);
    return trace->records ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for a trace");
}

void lm_trace_close(struct lm_trace *trace) {
    free(trace->records);
    trace->records = NULL;
}

void lm_trace_push(struct lm_trace *trace, const struct lm_trace_record *record) {
    uint64_t tail = lm_load_relaxed_u64(&trace->tail); /* relaxed: own word */
    if (tail - trace->head_seen == LM_TRACE_RECORDS) {
        /* T1: sees the consumer's copy of the record done; pairs with T4 */
        trace->head_seen = lm_load_acquire_u64(&trace->head);
        if (tail - trace->head_seen == LM_TRACE_RECORDS) {
            lm_add_single_writer_u64(&trace->dropped, 1);
            return;
        }
    }
    trace->records[tail & (LM_TRACE_RECORDS - 1)] = *record;
    /* T2: publishes the record; pairs with T3 */
    lm_store_release_u64(&trace->tail, tail + 1);
}

uint32_t lm_trace_pop(struct lm_trace *trace, struct lm_trace_record *records_out, uint32_t most) {
    uint64_t head = lm_load_relaxed_u64(&trace->head); /* relaxed: own word */
    /* T3: sees the records; pairs with T2 */
    uint64_t there = lm_load_acquire_u64(&trace->tail) - head;
    uint32_t count = there < most ? (uint32_t)there : most;
    for (uint32_t i = 0; i < count; i++) {
        records_out[i] = trace->records[(head + i) & (LM_TRACE_RECORDS - 1)];
    }
    /* T4: gives the places back; pairs with T1 */
    lm_store_release_u64(&trace->head, head + count);
    return count;
}
