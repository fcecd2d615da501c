/* trace.h: a row per request, from the thread that answered it to whoever writes them down.
 *
 * A ring per worker and per I/O thread, one producer and one consumer, each record copied whole. A
 * full ring drops the row and counts it: tracing never slows a worker. Wait-free on both sides.
 */
#ifndef LM_PARTS_TRACE_H
#define LM_PARTS_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/limits.h"

enum { LM_TRACE_WHY_BYTES = 192, LM_TRACE_ID_BYTES = 64, LM_TRACE_NO_MODEL = UINT16_MAX };

/* The client that sent a request. */
struct lm_trace_client {
    uint16_t family;     /* AF_INET, AF_INET6, AF_UNIX; 0: not known */
    uint16_t port;       /* host order */
    uint8_t address[16]; /* the first 4, or all */
    char key[LM_KEY_NAME_BYTES_MAX];
};

/* The trace (W3C) that a request is part of, where it is one of those that are recorded. */
struct lm_trace_context {
    uint8_t trace[16];
    uint64_t span;   /* the request's; 0: it is not recorded */
    uint64_t parent; /* that the client has said; 0: none */
};

/* Which requests are recorded. */
struct lm_sampling {
    double share;        /* of those that are part of no trace yet */
    uint32_t per_second; /* at most, of all I/O threads; 0: none */
};

struct lm_trace_record {
    uint64_t id;
    uint64_t started_ns; /* CLOCK_MONOTONIC */
    uint64_t receive_ns, queue_ns, preprocess_ns, infer_ns, send_ns, total_ns;
    uint32_t bytes; /* of the payload */
    uint32_t rows;
    uint16_t model;
    uint16_t status;
    uint32_t batch_rows; /* of the Run it was part of */
    uint32_t width;      /* cores of that Run; 0: there was none */
    uint16_t expert;     /* 1 + the model that ran in its place; 0: none did */
    uint8_t queue;       /* LUMEN_QUEUE_* and LUMEN_ALLOCATOR_*, as they were then */
    uint8_t allocator;
    /* For the access log alone. */
    const char *dialect; /* its name; lives for ever */
    const char *what;    /* what an I/O thread answered; lives for ever. NULL: a worker's row */
    struct lm_trace_client client;
    char http_id[LM_TRACE_ID_BYTES]; /* the request's id as JSON says it; "": `id` */
    char why[LM_TRACE_WHY_BYTES];    /* "" where nothing went wrong */
    uint16_t code;                   /* what the client was told: HTTP's, or `status` */
    bool is_http;
    uint8_t kind;       /* enum lumen_span_kind */
    bool is_span_alone; /* another row is in the files */
    struct lm_trace_context context;
};

enum { LM_TRACE_RECORDS = 4096 };

struct lm_trace {
    struct lm_trace_record *records;
    LM_CACHE_ALIGNED lm_atomic_u64 tail; /* written by the producer */
    uint64_t head_seen;                  /* producer's copy of head */
    lm_atomic_u64 dropped;               /* written by the producer */
    LM_CACHE_ALIGNED lm_atomic_u64 head; /* written by the telemetry thread */
};

int lm_trace_open(struct lm_trace *trace);
void lm_trace_close(struct lm_trace *trace);
void lm_trace_push(struct lm_trace *trace, const struct lm_trace_record *record);
/* Copies at most `most` records out, oldest first; returns how many. */
uint32_t lm_trace_pop(struct lm_trace *trace, struct lm_trace_record *records_out, uint32_t most);

#endif
