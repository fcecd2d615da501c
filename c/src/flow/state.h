/* state.h: the state of one I/O thread, and what all share; whose thread writes, its files say. */
#ifndef LM_FLOW_STATE_H
#define LM_FLOW_STATE_H

#include <pthread.h>

#include "base/isolation.h"
#include "base/memory.h"
#include "flow/connection.h"
#include "flow/dialect.h"
#include "flow/fallbacks.h"
#include "flow/held.h"
#include "flow/model_set.h"
#include "flow/node.h"
#include "flow/places.h"
#include "flow/request.h"
#include "flow/waiters.h"
#include "onnx/run_arena.h"
#include "parts/access.h"
#include "parts/address_table.h"
#include "parts/annex.h"
#include "parts/errands.h"
#include "parts/load_meter.h"
#include "parts/shm_regions.h"
#include "parts/spill.h"
#include "parts/stats.h"
#include "parts/trace.h"
#include "parts/upstreams.h"
#include "ring/fd_store.h"
#include "ring/ring.h"

struct lm_tls_door;     /* tls/door.h */
struct lm_tls_sessions; /* tls/sessions.h */
struct lm_transport;    /* transport.h */
struct lm_worker;

/* Unready: serves as before, but says that it will not for long. */
enum { LM_PHASE_RUNNING = 0, LM_PHASE_UNREADY = 1, LM_PHASE_DRAINING = 2 };

/* Read-only after start, but for the nodes, the run arenas, the table of addresses and the atomics.
 * Threads have one number in the whole server; those of a node follow each other. */
struct lm_shared {
    lumen_config config; /* the settings; its pointers are NULL */
    const struct lm_dialect *dialects[LM_DIALECT_COUNT];
    const struct lm_transport *transports; /* the table (transports.h), by LM_TRANSPORT_* */
    struct lm_ort ort;
    struct lm_node nodes[LM_NODES_MAX];
    uint32_t node_count, io_count;
    struct lm_io *ios;
    struct lm_worker *workers;
    uint32_t worker_count; /* all that run models, or may */
    uint32_t thread_count; /* of them, the first: places for threads; the rest: I/O threads' */
    uint32_t active_count; /* control thread: of the places, the first, whose threads are to work */
    struct lm_bulk bulk;   /* the threads for many texts, which are workers behind these */
    struct lm_shadow_jobs shadows; /* requests that another version runs, after their answer */
    struct lm_run_arenas run_arenas;
    struct lm_common_memory *common; /* with the processes of models; NULL: none has one */
    lm_atomic_u64 models;            /* struct lm_model_set *: in force; model_set.h */
    lm_atomic_u64 access;            /* struct lm_access *: the table in force; reload.h */
    lm_atomic_u32 allocator_type;    /* LUMEN_ALLOCATOR_*: of slots that are taken from now on */
    lm_atomic_u32 by_time;     /* 1: I/O threads run what is short (engine.queue_type: auto) */
    lm_atomic_u64 turns_asked; /* of the I/O threads, by the control thread */
    uint64_t header_timeout_ns, reply_timeout_ns, idle_timeout_ns; /* 0: none */
    char keep_alive_lines[LM_HTTP_KEEP_ALIVE_BYTES]; /* of an answer, where it stays open */
    uint64_t hang_ns;                                /* a worker that is busy for so long hangs */
    lm_atomic_u64 connections_open;                  /* of all I/O threads */
    struct lm_address_table addresses;               /* that have a bound of connections, if any */
    struct lm_places places;                         /* max_in_flight */
    struct lm_shm_regions *shm;                      /* NULL: none may be registered */
    struct lm_tls_door *tls;                         /* NULL: no clients speak TLS */
    struct lm_tls_sessions *sessions;                /* NULL: neither do upstreams */
    struct lm_upstreams upstreams;                   /* written before the start */
    struct lm_budgets budgets;                       /* of keys and models */
    struct lm_fallbacks fallbacks;
    struct lm_errands *errands;             /* NULL: the control program answers no requests */
    lm_atomic_u32 is_held;                  /* 1: it says that the server is not ready */
    struct lm_spill_limit spills;           /* of answers that do not fit their slots */
    lm_atomic_u64 region_bytes;             /* shared with clients, of all I/O threads */
    uint64_t default_timeout_ns;            /* 0: none */
    lm_atomic_u64 queued[LUMEN_MODELS_MAX]; /* for a worker, of models with max_queued */
    struct lm_load_meter load;
    uint32_t real_time; /* priority of the threads; 0: they are ordinary */
    bool traced;        /* workers record a row per request */
    struct lm_sampling sampling;
    bool access_logged;            /* so do I/O threads, with who asked and why not; access_log.h */
    lm_atomic_u32 io_shares_cores; /* 1: with workers, over which it has priority */
    lm_atomic_u64 io_poll_ns; /* how long an I/O thread looks for completions before it sleeps */
    uint32_t unparked_max;    /* per I/O thread; 0: there are descriptors enough */
    struct lm_stats stats;
    lm_atomic_u32 phase;          /* LM_PHASE_*; written by the control thread */
    lm_atomic_u64 drain_until_ns; /* valid once phase is draining */
    lm_atomic_u32 workers_stop;   /* set when no I/O thread is left */
    lm_atomic_u64 ios_running, workers_running;
    pthread_mutex_t spawning;  /* held by the control thread while it starts threads */
    pthread_barrier_t started; /* every thread is set up */
    pthread_barrier_t go;      /* the control thread has looked at how that went */
};

/* Whether the server is about to end: its clients are sent elsewhere with their next answers. */
static inline bool lm_shared_is_leaving(const struct lm_shared *shared) {
    return lm_load_relaxed_u32(&shared->phase) != LM_PHASE_RUNNING; /* relaxed: guards nothing */
}

/* Control thread: how many Runs may go on at once. */
static inline uint32_t lm_shared_parallel(const struct lm_shared *shared) {
    return shared->thread_count ? shared->active_count : shared->worker_count;
}

struct lm_list {
    uint32_t head, tail, count;
};

/* How often a request leaves while the workers are busy; see estimate.h. */
struct lm_pace {
    uint64_t since_ns; /* 0: they are not */
    uint64_t interval_ns;
    uint32_t left; /* since then */
};

/* Memory shared with a client; see region.h. */
struct lm_region {
    uint8_t *base; /* NULL: the entry is free */
    size_t bytes;
    uint64_t counted; /* in the limit of all regions */
    uint32_t uses;    /* requests in flight, and its connection; 0: to be unmapped */
};

struct lm_http_side;     /* dialects/http_block.h */
struct lm_http2_side;    /* dialects/http2_state.h */
struct lm_answer_cache;  /* answer_cache.h */
struct lm_tls_side;      /* tls.h */
struct lm_upstream_side; /* dialects/upstream_state.h */
struct lm_tracing;       /* tracing.c */

struct lm_io {
    struct lm_shared *shared;
    struct lm_node *node;
    struct lm_access *access;    /* in force in this turn */
    struct lm_model_set *models; /* likewise */
    struct lm_line *line;        /* likewise, of the node */
    bool by_time;                /* likewise: it runs what is short */
    struct lm_stats_block *stats;
    struct lm_ring *ring;
    struct lm_arena arena;
    struct lm_annexes annexes;   /* of models that came later */
    struct lm_request *requests; /* one per slot */
    struct lm_mapping connection_memory;
    struct lm_connection *connections;
    uint32_t connection_capacity, connections_used; /* those behind were never touched */
    struct lm_list lists[LM_LIST_COUNT];
    uint32_t marked_head, marked_tail; /* connections that lm_advance_all goes on with */
    uint32_t connections_open, streams_open, connections_parked;
    uint32_t dialed_open, dialed_max; /* connections that this thread has opened, and may */
    struct lm_fd_store *fd_store;     /* NULL: there are descriptors enough */
    bool descriptor_freed;            /* since none was found for one of them */
    uint64_t next_park_ns, next_unpark_ns;
    uint32_t unparked_max;        /* beyond it the idle ones are parked */
    uint32_t connections_wanting; /* a returning request may let them go on */
    struct lm_held held;          /* bytes that may not be parsed yet */
    struct lm_http_side *http;
    struct lm_http2_side *http2;
    struct lm_tls_side *tls;           /* NULL: the server does not speak TLS */
    struct lm_upstream_side *upstream; /* NULL: there are no upstreams */
    struct lm_tracing *tracing;        /* NULL: nobody asks for traces */
    uint32_t errands_out;              /* connections that wait for the control program's answer */
    struct lm_answer_cache *answers;   /* NULL: server.response_cache_bytes is 0 */
    struct lm_region regions[LM_REGIONS_MAX];
    uint32_t regions_mapped, regions_unused;
    struct lm_spill *spills; /* of answers that are sent: to be unmapped */
    uint64_t region_bytes;   /* of them */
    uint32_t in_flight;      /* requests that hold a slot */
    uint32_t suspended;      /* of them, those whose bodies take their time; see estimate.h */
    struct lm_waiters waiters;
    uint64_t work_ns; /* what the workers are expected to take for them; see estimate.h */
    struct lm_pace pace;
    bool turned_away;   /* a request in this turn: full, or too late */
    bool refused_full;  /* a request since eviction.c last looked who might make room */
    uint64_t unseen_ns; /* how long what is seen now may have waited unseen; 0 when at ease */
    uint32_t index, traffic_turn, shadow_turn, shadows_out; /* traffic.h, shadow.h */
    int listen_fds[LM_LISTENERS];                           /* -1: none */
    uint32_t accepts_armed;                                 /* a bit per listener */
    uint32_t assigned_count; /* connections of the unix socket, by the thread that accepts them */
    bool draining, leaving;
    bool worker_hangs;  /* some worker has not come back for so long that the server is not ready */
    bool returns_stuck; /* a worker is in the middle of a return: look again soon, do not spin */
    uint32_t parses_left; /* requests that connections may parse in this turn, beyond one each */
    uint32_t buffers_returned; /* since starved connections were last retried */
    uint64_t accept_retry_ns;  /* 0: not paused */
    uint64_t next_eviction_ns, next_sweep_ns, next_watch_ns, next_starved_ns;
    uint32_t sweep_at; /* where a sweep over several turns goes on; 0: none is under way */
    uint32_t *deadlines, *opened;        /* of each connection, in ticks; 0 and NULL: none */
    uint64_t opened_ns, access_since_ns; /* when it began; first saw `access` */
    uint64_t now_ns, seen_ns; /* taken once per turn of the loop; what came before then is known */
    uint8_t *scrap;           /* where refused bytes go: the kernel may write there at any time */
    struct lm_real_time real_time;
    pthread_t thread;
    bool thread_started;
    int start_code; /* 0 or LUMEN_E_*, with start_error; read after the start barrier */
    char start_error[512];
    char park_error[256];   /* why connections cannot be parked that should be */
    struct lm_mpmc returns; /* slots coming back from workers */
    /* Runs models on this thread; NULL: workers' threads run all of them. */
    struct lm_worker *inline_worker;
    struct lm_spsc ready;  /* requests, before a worker has them; both ends are this thread */
    struct lm_spsc own;    /* the same, for this thread's inline_worker */
    lm_atomic_u64 busy_ns; /* its turns, without what it slept */
    uint64_t computed_ns, computed_at_ns; /* of this thread, up to when */
    struct lm_trace trace;                /* used when there is an access log */
    struct lm_spsc assigned;  /* connections that the first I/O thread accepted for this one */
    lm_atomic_u64 turns_seen; /* of shared->turns_asked */
    LM_CACHE_ALIGNED lm_atomic_u32 wants_returns; /* 1: asleep and waiting for a worker's return */
};

enum { LM_SCRAP_BYTES = 64 << 10 };

/* Any thread. */
static inline struct lm_model_set *lm_models_in_force(const struct lm_shared *shared) {
    /* G1: acquire: what the set holds; pairs with G2 in flow/shared.c */
    return (struct lm_model_set *)(uintptr_t)lm_load_acquire_u64(&shared->models);
}
static inline const struct lm_dialect *lm_io_dialect(const struct lm_io *io,
                                                     const struct lm_connection *connection) {
    return io->shared->dialects[connection->dialect];
}
/* Requests of a connection with the workers, at most. */
static inline uint32_t lm_io_in_flight_max(const struct lm_io *io,
                                           const struct lm_connection *connection) {
    return lm_io_dialect(io, connection)->one_at_a_time ? 1 : LM_PIPELINE_MAX;
}
static inline const struct lm_dialect *lm_request_dialect(const struct lm_request *request) {
    return request->io->shared->dialects[request->dialect];
}
static inline struct lm_connection *lm_io_connection(struct lm_io *io, uint32_t index) {
    return &io->connections[index];
}
/* A header buffer, or a page of held.h. */
static inline const uint8_t *lm_io_buffer(const struct lm_io *io, int32_t buffer) {
    return lm_held_is_page(buffer) ? lm_held_bytes(&io->held, buffer)
                                   : lm_ring_buffer(io->ring, buffer);
}
static inline void lm_io_buffer_return(struct lm_io *io, int32_t buffer) {
    if (lm_held_is_page(buffer)) {
        lm_held_return(&io->held, buffer);
        return;
    }
    io->buffers_returned++;
    lm_ring_buffer_return(io->ring, buffer);
}

#endif
