/* lumen_traces.h: requests that are recorded one by one, as spans of traces (W3C's Trace Context).
 *
 * A request is recorded where its client's traceparent says so, or else at random. What took how
 * long of it is taken from here by whoever exports it.
 */
#ifndef LUMEN_TRACES_H
#define LUMEN_TRACES_H

#include <stdint.h>

#include "lumen.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LUMEN_SPAN_NAME_BYTES = 256, LUMEN_SPANS_KEPT = 4096 };

/* The part that answered a request. */
enum lumen_span_kind {
    LUMEN_SPAN_RUN,      /* a model of this server */
    LUMEN_SPAN_KEPT,     /* the response cache */
    LUMEN_SPAN_UPSTREAM, /* an upstream; infer_ns is until the first byte of its answer */
    LUMEN_SPAN_STEP      /* no request's: a step of the ensemble that `parent` is the span of */
};

/* A request that is answered. Its times follow each other. */
typedef struct lumen_span {
    uint8_t trace[16];
    uint64_t span;
    uint64_t parent;        /* 0: it begins the trace */
    uint64_t started_ns;    /* when its first byte came, since 1970 */
    uint64_t receive_ns;    /* until its last byte */
    uint64_t queue_ns;      /* until a worker took it, or until it could go on to its upstream */
    uint64_t preprocess_ns; /* until its tensors were ready */
    uint64_t infer_ns;      /* until its answer was there */
    uint64_t send_ns;       /* until that was with the kernel */
    uint64_t total_ns;
    uint32_t bytes; /* of its payload */
    uint32_t rows;
    uint32_t batch_rows; /* of the Run that it was part of; 0: of none */
    uint32_t width;      /* cores of that Run */
    uint32_t status;     /* LUMEN_STATUS_*, as the native protocol has them */
    uint32_t code;       /* what its client was told: HTTP's, or the status */
    uint32_t kind;       /* enum lumen_span_kind */
    uint32_t is_http;    /* 1: or gRPC */
    char model[LUMEN_SPAN_NAME_BYTES];
    char dialect[32]; /* that its client speaks: "http", "native", ... */
} lumen_span;

/* Has requests recorded: a share of 0.0 to 1.0 of those that are part of no trace yet, at most so
 * many a second of all, 1 to 1000000. Before lumen_start. Returns 0, or LUMEN_E_INVALID with what
 * was expected, or LUMEN_E_STATE. */
LUMEN_API int lumen_set_traces(lumen_server *server, double share, uint32_t per_second);
/* Takes those that were answered since, oldest first, at most `most`: LUMEN_SPANS_KEPT wait, and
 * further ones are lost. `lost_out`: how many were, so far. Any one thread; once lumen_wait has
 * returned 0 all are there. */
LUMEN_API int lumen_take_spans(lumen_server *server, lumen_span *spans, uint32_t most,
                               uint32_t *count_out, uint64_t *lost_out);

#ifdef __cplusplus
}
#endif
#endif
