/* trace.h: a row per request, from the worker that served it to whoever writes them down.
 *
 * A ring per worker, one producer and one consumer, each record copied whole. A full ring drops the
 * row and counts it: tracing never slows a worker. Wait-free on both sides.
 */
#ifndef LM_PARTS_TRACE_H
#define LM_PARTS_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"

struct lm_trace_record {
    uint64_t id;
    uint64_t started_ns; /* CLOCK_MONOTONIC */
    uint64_t receive_ns, queue_ns, preprocess_ns, infer_ns, send_ns, total_ns;
    uint32_t bytes; /* of the payload */
    uint32_t rows;
    uint16_t model;
    uint16_t status;
    uint32_t batch_rows; /* of the Run it was part of */
};

enum { LM_TRACE_RECORDS = 4096 };

struct lm_trace {
    struct lm_trace_record *records;
    LM_CACHE_ALIGNED lm_atomic_u64 tail; /* written by the worker */
    uint64_t head_seen;                  /* worker's copy of head */
    lm_atomic_u64 dropped;               /* written by the worker */
    LM_CACHE_ALIGNED lm_atomic_u64 head; /* written by the telemetry thread */
};

int lm_trace_open(struct lm_trace *trace);
void lm_trace_close(struct lm_trace *trace);
void lm_trace_push(struct lm_trace *trace, const struct lm_trace_record *record);
/* Copies at most `most` records out, oldest first; returns how many. */
uint32_t lm_trace_pop(struct lm_trace *trace, struct lm_trace_record *records_out, uint32_t most);

#endif
