/* stats.h: the shared-memory statistics file, one block per thread, laid out as lumen_stats.h says.
 *
 * Each counter has one writer, the block's thread, which uses plain relaxed stores; any process may
 * read at any time without disturbing it. Blocks never share a cache line. */
#ifndef LM_PARTS_STATS_H
#define LM_PARTS_STATS_H

#include "base/memory.h"
#include "lumen_config.h"
#include "lumen_stats.h"
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

/* Stages that each model has histograms of as well, with wider buckets. */
enum lm_model_stage {
    LM_MODEL_STAGE_QUEUE,
    LM_MODEL_STAGE_INFER,
    LM_MODEL_STAGE_TOTAL,
    LM_MODEL_STAGE_COUNT
};

/* X(name, kind): written by the I/O thread that owns the block. Each refusal (requests_error and
 * requests_refused) is in exactly one of the reasons. */
#define LM_IO_FIELDS(X)                                                                      \
    X(connections_accepted, COUNTER)                                                         \
    X(connections_closed, COUNTER)                                                           \
    X(connections_refused, COUNTER)   /* no free entry in the table */                       \
    X(connections_evicted, COUNTER)   /* held a slot without moving while others waited */   \
    X(connections_timed_out, COUNTER) /* too slow, or idle for too long */                   \
    X(connections_crowded, COUNTER)   /* more from one address than may be */                \
    X(connections_open, GAUGE)                                                               \
    X(connections_parked, GAUGE)       /* of them: idle, without a descriptor */             \
    X(connections_unparked, COUNTER)   /* had something to say, and got one again */         \
    X(requests, COUNTER)               /* headers read whole, of every kind */               \
    X(native_requests, COUNTER)        /* of them: native frames */                          \
    X(http_requests, COUNTER)          /* of them: HTTP/1.1 */                               \
    X(http2_requests, COUNTER)         /* of them: streams of HTTP/2 */                      \
    X(grpc_requests, COUNTER)          /* of them: calls of gRPC */                          \
    X(requests_ok, COUNTER)            /* answered here: ping, describe, cached answers */   \
    X(requests_error, COUNTER)         /* status 1, 2, 3, 6 */                               \
    X(requests_bad, COUNTER)           /* of them: status 1 */                               \
    X(requests_unknown_model, COUNTER) /* of them: status 2 */                               \
    X(requests_too_large, COUNTER)     /* of them: status 3 */                               \
    X(requests_unauthorised, COUNTER)  /* of them: status 6 */                               \
    X(requests_refused, COUNTER)       /* status 4, 5, 7, 9 before they reached a worker */  \
    X(requests_overloaded, COUNTER)    /* of them: status 4 */                               \
    X(requests_late, COUNTER)          /* of them: status 5 */                               \
    X(requests_limited, COUNTER)       /* of them: status 7 */                               \
    X(requests_draining, COUNTER)      /* of them: status 9 */                               \
    X(requests_unready, COUNTER)       /* of them: asked for readiness, which is off */      \
    X(requests_gone, COUNTER)          /* the client left before its request was whole */    \
    X(in_flight, GAUGE)                /* requests that hold a slot */                       \
    X(bytes_in, COUNTER)                                                                     \
    X(bytes_out, COUNTER)                                                                    \
    X(regions, GAUGE)      /* of memory, shared with clients */                              \
    X(region_bytes, GAUGE) /* of them */                                                     \
    X(worker_hangs, GAUGE) /* 1: a model has not returned for longer than hang_seconds */    \
    X(slots_in_use, GAUGE)                                                                   \
    X(cache_hits, COUNTER)             /* requests answered from the response cache */       \
    X(cache_misses, COUNTER)           /* looked up there in vain */                         \
    X(cache_evictions, COUNTER)        /* answers that made room for others */               \
    X(cache_entries, GAUGE)            /* answers in it */                                   \
    X(cache_bytes, GAUGE)              /* of the memory that they take */                    \
    X(slot_waits, COUNTER)             /* requests that found no free slot and waited */     \
    X(body_waits, COUNTER)             /* requests that waited for their bytes instead */    \
    X(header_buffers_starved, COUNTER) /* header reads that found no free buffer */          \
    X(replies_queued, COUNTER)         /* replies that did not fit the socket at once */     \
    X(ring_overflows, COUNTER)                                                               \
    X(traces_dropped, COUNTER) /* rows of the access log: its thread was too slow */         \
    X(log_lines_lost, COUNTER) /* of access log and telemetry: could not be written */       \
    /* In the first one's block, written by the thread of the handshakes alone. */           \
    X(tls_full, COUNTER)            /* handshakes */                                         \
    X(tls_resumed, COUNTER)         /* the same, of clients that came back with a ticket */  \
    X(tls_plain, COUNTER)           /* failed: the client does not speak TLS */              \
    X(tls_refused, COUNTER)         /* failed: the client sent an alert */                   \
    X(tls_unknown_clients, COUNTER) /* failed: its certificate is missing or not trusted */  \
    X(tls_late, COUNTER)            /* failed: too slow, or in the way of others */          \
    X(tls_left, COUNTER)            /* failed: the client left in the middle */              \
    X(tls_failed, COUNTER)          /* failed: otherwise */                                  \
    X(tls_crowded, COUNTER)         /* not begun: more from one address than may be */       \
    X(upstream_requests, COUNTER)   /* whole requests for models of upstreams: */            \
    X(upstream_ok, COUNTER)         /* the answer was passed on, whatever it says */         \
    X(upstream_failed, COUNTER)     /* there was none, or not all of it */                   \
    X(upstream_gone, COUNTER)       /* the client left before it had its answer */           \
    X(upstream_fallen, COUNTER)     /* the next model of fallbacks has it now */             \
    X(upstream_spills, COUNTER)     /* of all: a model here was too busy, or too slow */     \
    X(upstream_bytes, COUNTER)      /* received from upstreams */                            \
    X(upstream_retries, COUNTER)    /* sent again: to another address, or over a new link */ \
    X(upstream_dials, COUNTER)      /* connections that were asked for */                    \
    X(upstream_undialed, COUNTER)   /* of them: not to be had */                             \
    X(upstream_ejections, COUNTER)  /* addresses left alone: their requests had failed */    \
    X(upstream_connections, GAUGE)                                                           \
    X(upstream_in_flight, GAUGE)

/* X(name, kind): written by the worker that owns the block. */
#define LM_WORKER_FIELDS(X)                                                               \
    X(requests_ok, COUNTER)                                                               \
    X(requests_error, COUNTER)      /* status 1, 3, 8 */                                  \
    X(requests_bad, COUNTER)        /* of them: status 1: its JSON or values */           \
    X(requests_too_large, COUNTER)  /* of them: status 3 */                               \
    X(requests_overloaded, COUNTER) /* status 4: a sequence was busy, or all were */      \
    X(requests_expired, COUNTER)    /* status 5: the deadline passed in the queue */      \
    X(requests_gone, COUNTER)       /* the client left before Run, or before its reply */ \
    X(rows, COUNTER)                                                                      \
    X(runs, COUNTER)                                                                      \
    X(batches, COUNTER)         /* Runs of several requests */                            \
    X(runs_wide, COUNTER)       /* Runs on several cores */                               \
    X(requests_stolen, COUNTER) /* of another node, which had enough to do */             \
    X(traces_dropped, COUNTER)  /* rows of the telemetry file */                          \
    X(batches_failed, COUNTER)  /* run again one by one */                                \
    X(bytes_out, COUNTER)                                                                 \
    X(sleeps, COUNTER)                                                                    \
    X(string_allocations, COUNTER) /* of tensors of strings, and of strings in them */    \
    X(arena_kept_bytes, GAUGE)     /* of its run arena, by blocks that outlive their Run */

/* X(name, kind): a word per model, written by the worker that owns the block. Times are sums over
 * the requests of model_ok, one word for all stages: no reader sees them disagree about their
 * number. */
#define LM_MODEL_FIELDS(X)                                                              \
    X(model_ok, COUNTER)                                                                \
    X(model_failed, COUNTER)  /* status 8 */                                            \
    X(model_unfit, COUNTER)   /* status 1, 3, 4: its JSON, its values, its sequence */  \
    X(model_expired, COUNTER) /* status 5: the deadline passed in the queue */          \
    X(model_gone, COUNTER)    /* the client left before Run */                          \
    X(model_rows, COUNTER)                                                              \
    X(model_tokens, COUNTER) /* of texts, special ones too: what was computed */        \
    X(model_runs, COUNTER)                                                              \
    X(model_ok_ns, COUNTER)     /* first byte of the header to the reply's hand-over */ \
    X(model_failed_ns, COUNTER) /* the same, of model_failed */                         \
    X(model_queue_ns, COUNTER)                                                          \
    X(model_preprocess_ns, COUNTER)                                                     \
    X(model_infer_ns, COUNTER)                                                          \
    X(model_send_ns, COUNTER)                                                           \
    X(model_last_ms, GAUGE) /* unix time of the last answer */

/* X(name, kind): a word per model, written by the I/O thread that owns the block. */
#define LM_IO_MODEL_FIELDS(X)                                                                     \
    X(model_queued, COUNTER)  /* whole requests: for the workers or the response cache */         \
    X(model_refused, COUNTER) /* status 4, 5, 7, 9 before a worker answered */                    \
    X(model_overdue, COUNTER) /* of them: a worker had it, and did not return */                  \
    X(model_bad, COUNTER)     /* status 1, 3: it names the model and does not fit it */           \
    X(model_ok, COUNTER)      /* answered from the response cache */                              \
    X(model_ok_ns, COUNTER)   /* of them: first byte of the header to the reply's hand-over */    \
    X(model_unfit, COUNTER)   /* status 1, 3: a cached answer that does not fit what was asked */ \
    X(model_cache_hits, COUNTER)    /* the same as model_ok, under a name of its own */           \
    X(model_cache_misses, COUNTER)  /* looked up there in vain */                                 \
    X(model_cache_hit_ns, COUNTER)  /* looking up, and taking the outputs out */                  \
    X(model_cache_miss_ns, COUNTER) /* looking up, and keeping the answer */                      \
    X(model_restarts, COUNTER) /* of its process, if it has one; the first I/O thread counts */   \
    X(model_own, COUNTER)      /* requests that the I/O thread ran itself */                      \
    /* Of requests that an upstream had, as a worker counts them; their answers are model_ok. */  \
    X(model_failed, COUNTER)                                                                      \
    X(model_failed_ns, COUNTER)                                                                   \
    X(model_gone, COUNTER)                                                                        \
    X(model_queue_ns, COUNTER)                                                                    \
    X(model_infer_ns, COUNTER)                                                                    \
    X(model_send_ns, COUNTER)                                                                     \
    X(model_last_ms, GAUGE)     /* of an answer of the response cache's, too */                   \
    X(model_long_run_us, GAUGE) /* of a Run after which none does; 0: none; the first one's */    \
    /* Of a version that runs copies of requests which another one has answered: */               \
    X(model_shadow_ok, COUNTER)                                                                   \
    X(model_shadow_failed, COUNTER)                                                               \
    X(model_shadow_skipped, COUNTER)  /* too few slots were free, or too many copies waited */    \
    X(model_shadow_unfit, COUNTER)    /* not run: its tensors or its kind are others */           \
    X(model_shadow_rows, COUNTER)     /* of model_shadow_ok */                                    \
    X(model_shadow_apart, COUNTER)    /* of them: another class, or another value than a float */ \
    X(model_shadow_cpu_ns, COUNTER)   /* of the Runs */                                           \
    X(model_shadow_difference, GAUGE) /* the largest of two floats, in billionths */

#define LM_STATS_MEMBER(name, kind) lm_atomic_u64 name;
struct lm_io_counters {
    LM_IO_FIELDS(LM_STATS_MEMBER)
};
struct lm_worker_counters {
    LM_WORKER_FIELDS(LM_STATS_MEMBER)
};
struct lm_io_model_counters {
    LM_IO_MODEL_FIELDS(LM_STATS_MEMBER)
};
struct lm_worker_model_counters {
    LM_MODEL_FIELDS(LM_STATS_MEMBER)
    /* model_ok of a virtual model, by the expert that answered. */
    lm_atomic_u64 model_experts[LUMEN_EXPERTS_MAX];
};

/* All that one thread counts of one model, side by side: a request touches few lines and one page,
 * however many models there are. */
struct lm_model_row {
    union {
        LM_CACHE_ALIGNED struct lm_io_model_counters io;
        struct lm_worker_model_counters worker;
    };
    struct lm_model_histogram stages[LM_MODEL_STAGE_COUNT];
};

struct lm_stats_block {
    LM_CACHE_ALIGNED lumen_stats_block head;
    union {
        struct lm_io_counters io;
        struct lm_worker_counters worker;
    };
    struct lm_histogram stages[LM_STAGE_COUNT];
    /* The last member: of models that there are not yet, the file has no pages. */
    struct lm_model_row models[LUMEN_MODELS_MAX];
};

struct lm_stats {
    struct lm_mapping memory;
    lumen_stats_header *header;
    uint8_t *blocks; /* of block_bytes each: I/O threads first, then workers */
    uint32_t io_count;
    uint32_t block_bytes;
    int fd;         /* of the file, locked; -1: none */
    char path[64];  /* of the file; "" where nothing but this process can read it */
    char note[256]; /* why it is not where readers look, or "" */
};
/* Creates /dev/shm/lumen-<port>, mode 0600, and holds a lock on it; a file that nobody holds is
 * replaced. Where that cannot be, the figures are in a file of another name or in memory, and
 * `note` says so. Beside the workers so many may come later. Returns 0 or LUMEN_E_NOMEM. */
int lm_stats_open(struct lm_stats *stats, uint32_t port, uint32_t io_count, uint32_t worker_count,
                  uint32_t later_count, const char *const *model_names, uint32_t model_count);
/* One worker more, with that number, which readers see once it is shown; one model more, of the
 * next index, before requests name it. Return 0, or LUMEN_E_NOMEM where /dev/shm has no room. */
int lm_stats_hold_worker(struct lm_stats *stats, uint32_t index, struct lm_stats_block **block_out);
void lm_stats_show_worker(struct lm_stats *stats);
int lm_stats_add_model(struct lm_stats *stats, const char *name);
/* Gives the row of a model that nobody asks for any more to another one: its figures begin at 0,
 * and readers see either model whole (lumen_stats_header.naming). */
void lm_stats_rename_model(struct lm_stats *stats, uint32_t model, const char *name);
/* The index of a name that was given, or LUMEN_MODELS_MAX; and, any thread: an index's name. */
uint32_t lm_stats_find_model(const struct lm_stats *stats, const char *name);
const char *lm_stats_model_name(const struct lm_stats *stats, uint32_t model);
/* Gives each model that a virtual one runs a place for its counts: that which it had, if any. */
void lm_stats_name_experts(struct lm_stats *stats, uint32_t model, const uint32_t *experts,
                           uint32_t count, uint8_t *places_out);
void lm_stats_close(struct lm_stats *stats);
struct lm_stats_block *lm_stats_io_block(struct lm_stats *stats, uint32_t index);
struct lm_stats_block *lm_stats_worker_block(struct lm_stats *stats, uint32_t index);
void lm_stats_set_state(struct lm_stats *stats, uint32_t state);

#endif
