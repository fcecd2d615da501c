/* stats.h: the shared-memory statistics file, one block per thread, laid out as lumen.h documents.
 *
 * Each counter has one writer, the block's thread, which uses plain relaxed stores; any process may
 * read at any time without disturbing it. Blocks never share a cache line.
 */
#ifndef LM_PARTS_STATS_H
#define LM_PARTS_STATS_H

#include "base/memory.h"
#include "lumen.h"
#include "parts/histogram.h"

enum lm_stage {
    LM_STAGE_RECEIVE, /* first byte of the header to last byte of the body */
    LM_STAGE_QUEUE,   /* published to popped */
    LM_STAGE_PREPROCESS,
    LM_STAGE_INFER,
    LM_STAGE_SEND,  /* reply composed to handed to the kernel whole */
    LM_STAGE_TOTAL, /* first byte of the header to the end of send */
    LM_STAGE_COUNT
};

/* X(name, kind): written by the I/O thread that owns the block. */
#define LM_IO_FIELDS(X)                                                                  \
    X(connections_accepted, COUNTER)                                                     \
    X(connections_closed, COUNTER)                                                       \
    X(connections_refused, COUNTER) /* no free entry in the table */                     \
    X(connections_evicted, COUNTER) /* held a slot without moving while others waited */ \
    X(connections_open, GAUGE)                                                           \
    X(requests, COUNTER)         /* headers read whole, of every kind */                 \
    X(requests_ok, COUNTER)      /* answered here: ping, describe */                     \
    X(requests_error, COUNTER)   /* status 1, 2, 3 */                                    \
    X(requests_refused, COUNTER) /* status 4, 5, 9 before they reached a worker */       \
    X(requests_gone, COUNTER)    /* the client left before its request was whole */      \
    X(bytes_in, COUNTER)                                                                 \
    X(bytes_out, COUNTER)                                                                \
    X(slots_in_use, GAUGE)                                                               \
    X(slot_waits, COUNTER)             /* requests that found no free slot and waited */ \
    X(header_buffers_starved, COUNTER) /* header reads that found no free buffer */      \
    X(replies_queued, COUNTER)         /* replies that did not fit the socket at once */ \
    X(ring_overflows, COUNTER)

/* X(name, kind): written by the worker that owns the block. */
#define LM_WORKER_FIELDS(X)                                                            \
    X(requests_ok, COUNTER)                                                            \
    X(requests_error, COUNTER)   /* status 8 */                                        \
    X(requests_expired, COUNTER) /* status 5: the deadline passed in the queue */      \
    X(requests_gone, COUNTER)    /* the client left before Run, or before its reply */ \
    X(rows, COUNTER)                                                                   \
    X(runs, COUNTER)                                                                   \
    X(batches, COUNTER)        /* Runs of several requests */                          \
    X(traces_dropped, COUNTER) /* rows of the telemetry file */                        \
    X(batches_failed, COUNTER) /* run again one by one */                              \
    X(bytes_out, COUNTER)                                                              \
    X(sleeps, COUNTER)

#define LM_STATS_MEMBER(name, kind) lm_atomic_u64 name;
struct lm_io_counters {
    LM_IO_FIELDS(LM_STATS_MEMBER)
};
struct lm_worker_counters {
    LM_WORKER_FIELDS(LM_STATS_MEMBER)
};

struct lm_stats_block {
    LM_CACHE_ALIGNED lumen_stats_block head;
    union {
        struct lm_io_counters io;
        struct lm_worker_counters worker;
    };
    struct lm_histogram stages[LM_STAGE_COUNT];
};

struct lm_stats {
    struct lm_mapping memory;
    lumen_stats_header *header;
    struct lm_stats_block *blocks; /* I/O threads first, then workers */
    uint32_t io_count;
    char path[64];
};

/* Creates /dev/shm/lumen-<port>, mode 0600; an old file of that name is replaced. Where there is no
 * /dev/shm the block lives in private memory and the path is empty. Returns 0 or LUMEN_E_*. */
int lm_stats_open(struct lm_stats *stats, uint32_t port, uint32_t io_count, uint32_t worker_count);
void lm_stats_close(struct lm_stats *stats);
struct lm_stats_block *lm_stats_io_block(struct lm_stats *stats, uint32_t index);
struct lm_stats_block *lm_stats_worker_block(struct lm_stats *stats, uint32_t index);
void lm_stats_set_state(struct lm_stats *stats, uint32_t state);

#endif
