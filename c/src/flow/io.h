/* io.h: the state of one I/O thread, and what all threads of the server share.
 *
 * The life of a request runs through accept.c, receive.c, admit.c, worker.c and reply.c; this
 * header declares the doors between them.
 */
#ifndef LM_FLOW_IO_H
#define LM_FLOW_IO_H

#include <pthread.h>

#include "base/memory.h"
#include "flow/connection.h"
#include "flow/held.h"
#include "flow/places.h"
#include "flow/request.h"
#include "parts/access.h"
#include "parts/address_table.h"
#include "parts/oip_metadata.h"
#include "parts/queue.h"
#include "parts/run_arena.h"
#include "parts/stats.h"
#include "parts/trace.h"
#include "parts/waitset.h"
#include "ring/fd_store.h"
#include "ring/ring.h"

struct lm_worker;

/* Unready: serves as before, but says that it will not for long. */
enum { LM_PHASE_RUNNING = 0, LM_PHASE_UNREADY = 1, LM_PHASE_DRAINING = 2 };

/* What HTTP answers of the server and its models; written at start. */
struct lm_http_documents {
    struct lm_oip_document page; /* HTML */
    struct lm_oip_document server;
    struct lm_oip_document index;
    struct lm_oip_document models[LUMEN_MODELS_MAX];
    struct lm_oip_document configs[LUMEN_MODELS_MAX];
    struct lm_oip_document ready[LUMEN_MODELS_MAX];
};

/* Read-only after start, but for the queue, the waitset and the atomics. */
struct lm_shared {
    struct lm_ort ort;
    struct lm_run_arenas run_arenas;
    struct lm_model *models;
    uint32_t model_count;
    uint32_t
        values_per_slot; /* tensors of all models: the width of a slot's table of wrapped values */
    char *description;   /* JSON */
    size_t description_bytes;
    struct lm_http_documents documents; /* what HTTP answers of the models */
    uint32_t metrics_port;              /* of another program part, 0: none; the page names it */
    lm_atomic_u64 access;               /* struct lm_access *: the table in force; reload.h */
    lm_atomic_u64 turns_asked;          /* of the I/O threads, by the control thread */
    uint32_t overload;                  /* LUMEN_OVERLOAD_* */
    /* 0: none. */
    uint64_t header_timeout_ns;
    uint64_t reply_timeout_ns;
    uint64_t idle_timeout_ns;
    uint64_t hang_ns; /* a worker that is busy for so long hangs */
    uint32_t body_bytes_per_s;
    uint32_t connections_max;
    lm_atomic_u64 connections_open;    /* of all I/O threads */
    struct lm_address_table addresses; /* that have a bound of connections, if any */
    struct lm_places places;           /* max_in_flight */
    uint64_t max_request_bytes;
    uint64_t default_timeout_ns; /* 0: none */
    uint32_t idle;               /* LUMEN_IDLE_* */
    bool workers_sleep;          /* in the waitset: they must be woken */
    bool io_shares_cores;        /* with workers, over which it has priority */
    uint64_t io_poll_ns;         /* how long an I/O thread looks for completions before it sleeps */
    uint32_t allocator_type;
    uint32_t io_backend;   /* LUMEN_IO_*, as asked for */
    uint32_t unparked_max; /* per I/O thread; 0: there are descriptors enough */
    struct lm_io *ios;
    uint32_t io_count;
    struct lm_worker *workers;
    uint32_t worker_count;
    struct lm_queue queue; /* of lm_job_pack(io, slot); unused when queue_type is inline */
    uint32_t queue_type;   /* LUMEN_QUEUE_* */
    bool traced;           /* workers record a row per request */
    bool access_logged;    /* so do I/O threads, with who asked and why not; access_log.h */
    struct lm_waitset waitset;
    struct lm_stats stats;
    lm_atomic_u32 phase;          /* LM_PHASE_*; written by the control thread */
    lm_atomic_u64 drain_until_ns; /* valid once phase is draining */
    lm_atomic_u32 workers_stop;   /* set when no I/O thread is left */
    lm_atomic_u64 ios_running;
    lm_atomic_u64 workers_running;
    pthread_mutex_t spawning;  /* held by the control thread while it starts threads */
    pthread_barrier_t started; /* every thread is set up */
    pthread_barrier_t go;      /* the control thread has looked at how that went */
};

struct lm_list {
    uint32_t head, tail, count;
};

/* How often a request leaves while the workers are busy; see gate.c. */
struct lm_pace {
    uint64_t since_ns; /* 0: they are not */
    uint64_t interval_ns;
    uint32_t left; /* since then */
};

/* About the requests on LM_LIST_WAITING; see gate.c and lm_receive_retry_waiting. */
struct lm_waiters {
    uint64_t due_ns;      /* none has an earlier deadline */
    uint64_t took_ns;     /* when this thread last took a place */
    size_t least_bytes;   /* none needs a smaller slot */
    size_t refused_bytes; /* in this round: a slot so large was not to be had */
    bool no_place;        /* in the last round: max_in_flight was reached */
    bool retrying;        /* a round is under way */
    bool released;        /* a slot, since the last round: it is for those who wait */
};

/* The estimated worker time of one model; see gate.c. */
struct lm_cost {
    uint64_t row_ns;        /* for one row, lately; 0: not known */
    uint64_t next_probe_ns; /* from then on a request may test the estimate */
    uint32_t measured;      /* the first few Runs */
    bool probing;           /* one that does so is with the workers */
};

struct lm_http_block;

/* What an I/O thread keeps for HTTP; see http.h. */
struct lm_http_side {
    struct lm_http_block *blocks;
    struct lm_oip_parser *parser;
    char *draft; /* for the statistics, which are written anew each time */
    size_t draft_bytes;
    uint16_t free_block;
    uint16_t blocks_used; /* the first so many have been used; the others are untouched */
};

struct lm_io {
    struct lm_shared *shared;
    struct lm_access *access; /* in force in this turn */
    struct lm_stats_block *stats;
    struct lm_ring *ring;
    struct lm_arena arena;
    struct lm_request *requests; /* one per slot */
    struct lm_binding *bindings; /* slot × model */
    OrtValue **values;           /* slot × values_per_slot */
    struct lm_mapping connection_memory;
    struct lm_connection *connections;
    uint32_t connection_capacity;
    uint32_t connections_used; /* entries from here on have never been touched */
    struct lm_list lists[LM_LIST_COUNT];
    uint32_t connections_open;
    struct lm_fd_store *fd_store; /* NULL: there are descriptors enough */
    uint32_t connections_parked;
    bool descriptor_freed; /* since none was found for one of them */
    uint64_t next_park_ns, next_unpark_ns;
    uint32_t unparked_max;        /* beyond it the idle ones are parked */
    uint32_t connections_wanting; /* a returning request may let them go on */
    struct lm_held held;          /* bytes that may not be parsed yet */
    struct lm_http_side http;
    uint32_t in_flight; /* requests that hold a slot */
    uint32_t suspended; /* of them, those whose bodies take their time; see gate.c */
    struct lm_waiters waiters;
    uint64_t work_ns; /* what the workers are expected to take for them; see gate.c */
    struct lm_cost costs[LUMEN_MODELS_MAX];
    struct lm_pace pace;
    bool turned_away;  /* a request in this turn: full, or too late */
    bool refused_full; /* a request since scarce.c last looked who might make room */
    uint64_t
        unseen_ns; /* how long what is seen now may have waited in its socket; 0 when at ease */
    uint32_t index;
    int listen_fds[LM_LISTENERS]; /* -1: none */
    uint32_t accepts_armed;       /* a bit per listener */
    uint32_t dealt_count; /* connections of the unix socket, by the thread that accepts them */
    bool draining;
    bool worker_hangs;  /* some worker has not come back for so long that the server is not ready */
    bool returns_stuck; /* a worker is in the middle of a return: look again soon, do not spin */
    uint32_t parses_left; /* requests that connections may parse in this turn, beyond one each */
    uint32_t buffers_returned; /* since starved connections were last retried */
    uint64_t accept_retry_ns;  /* 0: not paused */
    uint64_t next_eviction_ns;
    uint64_t next_sweep_ns;
    uint32_t sweep_at; /* where a sweep over several turns goes on; 0: none is under way */
    uint64_t next_starved_ns;
    uint32_t *deadlines; /* of each connection, in ticks; 0: none */
    uint64_t opened_ns;
    uint64_t now_ns;  /* taken once per turn of the loop */
    uint64_t seen_ns; /* what came before then is known */
    uint8_t *scrap;   /* where refused bytes go: the kernel may write there at any time */
    pthread_t thread;
    bool thread_started;
    int start_code; /* 0 or LUMEN_E_*, with start_error; read after the start barrier */
    char start_error[512];
    char park_error[256];   /* why connections cannot be parked that should be */
    struct lm_mpmc returns; /* slots coming back from workers */
    /* Runs models on this thread; NULL unless queue_type is inline. */
    struct lm_worker *inline_worker;
    /* Requests whose body is whole, before a worker has them. Both ends are this thread. */
    struct lm_spsc ready;
    struct lm_trace trace;    /* used when there is an access log */
    struct lm_spsc dealt;     /* connections that the first I/O thread accepted for this one */
    lm_atomic_u64 turns_seen; /* of shared->turns_asked */
    LM_CACHE_ALIGNED lm_atomic_u32 wants_returns; /* 1: asleep and waiting for a worker's return */
};

enum { LM_SCRAP_BYTES = 64 << 10 };

static inline uint32_t lm_job_pack(uint32_t io, uint32_t slot) {
    return io << 16 | slot;
}
static inline uint32_t lm_job_io(uint32_t job) {
    return job >> 16;
}
static inline uint32_t lm_job_slot(uint32_t job) {
    return job & 0xffff;
}
_Static_assert(LM_SLOTS_MAX <= 1 << 16, "a job packs the slot in 16 bits");

/* io.c */
/* `io` is zeroed but for listen_fds. */
int lm_io_open(struct lm_io *io, struct lm_shared *shared, uint32_t index, uint32_t connections,
               const lumen_slot_class *classes, uint32_t class_count);
void lm_io_close(struct lm_io *io);
void *lm_io_main(void *io);
/* Called by each thread when it is set up: waits for all others, and for the control thread's word.
 */
void lm_thread_meet(struct lm_shared *shared);
/* Called by each thread as its last act; the last I/O thread lets the workers go. */
void lm_thread_ended(struct lm_shared *shared, uint32_t role);
static inline struct lm_binding *lm_io_binding(struct lm_io *io, uint32_t slot, uint32_t model) {
    return &io->bindings[(size_t)slot * io->shared->model_count + model];
}
static inline OrtValue **lm_io_values(struct lm_io *io, uint32_t slot, uint32_t model) {
    return &io->values[(size_t)slot * io->shared->values_per_slot +
                       io->shared->models[model].value_base];
}
static inline struct lm_connection *lm_io_connection(struct lm_io *io, uint32_t index) {
    return &io->connections[index];
}
/* Gives a request's slot back to the arena. */
void lm_io_release(struct lm_io *io, struct lm_request *request);
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

/* listen.c */
/* With several I/O threads each has a listener on the port. Returns the port that it is. */
int lm_listen_tcp(struct lm_shared *shared, const char *host, uint32_t port, uint32_t *port_out);

/* listen_unix.c */
/* A unix socket's file; `inode` 0: not ours, or not any more. */
struct lm_unix_file {
    char path[LM_UNIX_PATH_BYTES_MAX]; /* "": none is asked for */
    uint64_t device, inode;
};
/* The listener is the first I/O thread's, see accept.c. Replaces a file that nobody listens on. */
int lm_listen_unix(struct lm_shared *shared, struct lm_unix_file *file, uint32_t mode);
/* Removes the file if it is still ours. May be called twice. */
void lm_unlink_unix(struct lm_unix_file *file);

/* accept.c */
enum { LM_LISTENER_TCP = 0, LM_LISTENER_UNIX = 1 };
/* Takes the connections that the first I/O thread has dealt to this one. */
void lm_accept_take_dealt(struct lm_io *io);
/* The same once its thread has ended. */
void lm_accept_refuse_dealt(struct lm_io *io);
void lm_accept_arm(struct lm_io *io);
void lm_accept_completed(struct lm_io *io, const struct lm_completion *completion);

/* receive.c */
/* Goes on with what can be read: bytes already here, then the next receive. */
void lm_receive_continue(struct lm_io *io, struct lm_connection *connection);
void lm_receive_completed(struct lm_io *io, const struct lm_completion *completion);
/* The last byte is here: the request is ready for a worker. */
void lm_receive_submit(struct lm_io *io, struct lm_connection *connection,
                       struct lm_request *request);
/* Hands what is ready to the workers. */
void lm_receive_hand_over(struct lm_io *io);
/* Retries the requests that wait for a slot, in order. */
void lm_receive_retry_waiting(struct lm_io *io);
/* Goes on with those that had their share of an earlier turn, in order. */
void lm_receive_resume(struct lm_io *io);
/* Retries the header reads that found no buffer, if one has come back since. */
void lm_receive_retry_starved(struct lm_io *io);
/* Looks for descriptors for those that have bytes and none, if one has become free since. */
void lm_receive_retry_unparking(struct lm_io *io);

/* admit.c: decides over a header that is read whole. Sets the connection's read state. */
void lm_admit(struct lm_io *io, struct lm_connection *connection);
/* For every dialect. Fills the request that a slot was found for; its body is next. */
struct lm_request *lm_admit_begin(struct lm_io *io, struct lm_connection *connection,
                                  const struct lm_model *model, struct lm_slot *slot, uint32_t rows,
                                  uint64_t timeout_us);
/* No slot for the request: scarce.c has it when what came with its header is consumed. */
void lm_admit_wait(struct lm_io *io, struct lm_connection *connection, uint64_t timeout_us);
/* timeout_us 0: the server's default. */
uint64_t lm_admit_deadline(const struct lm_io *io, const struct lm_connection *connection,
                           uint64_t timeout_us);
/* Answers a request that waits for a slot with a refusal. */
void lm_admit_refuse_waiting(struct lm_io *io, struct lm_connection *connection,
                             enum lm_status status, const char *why);

/* gate.c: whether a request may enter. */
struct lm_refusal {
    enum lm_status status;
    uint32_t retry_after_s; /* when asking again makes sense */
    char why[LM_TEXT_BYTES_MAX];
};
int lm_gate_open(struct lm_shared *shared, const lumen_config *config);
void lm_gate_close(struct lm_shared *shared);
int lm_gate_add_model(struct lm_shared *shared, uint32_t model, const lumen_model_config *config);
/* Counts a refused request, for its model too where it named one. */
void lm_gate_count_refusal(struct lm_io *io, enum lm_status status, uint32_t model);
/* Before the body is known: the key's models, rates, how many are in flight. */
bool lm_gate_enter(struct lm_io *io, const struct lm_model *model, uint32_t key,
                   struct lm_refusal *refusal);
/* Whether the answer is expected before the deadline. */
bool lm_gate_in_time(struct lm_io *io, const struct lm_model *model, uint32_t rows,
                     uint64_t deadline_ns, struct lm_refusal *refusal);
/* How long a request that enters now is expected to wait for a worker. */
uint64_t lm_gate_wait_ns(const struct lm_io *io);
/* A slot for one more request in flight, or NULL. The last ones are for those whose bytes are here.
 */
struct lm_slot *lm_gate_slot(struct lm_io *io, const struct lm_connection *connection,
                             size_t bytes);
/* Gives it back unused. */
void lm_gate_slot_back(struct lm_io *io, struct lm_slot *slot);
/* A request joins those that wait for a slot. */
void lm_gate_wait(struct lm_io *io, struct lm_connection *connection);
/* Before the first request: the workers are set up. */
void lm_gate_begin(struct lm_io *io);
/* The request counts as in flight from here to there. */
void lm_gate_charge(struct lm_io *io, struct lm_request *request);
void lm_gate_discharge(struct lm_io *io, struct lm_request *request);
/* Any thread that holds the request: it is answered, and another one may take its place. */
void lm_gate_answered(struct lm_request *request);
/* Its body comes so slowly that it is no work for the workers yet. */
void lm_gate_suspend(struct lm_io *io, struct lm_request *request);
/* Its body is here: the request is for a worker now. */
void lm_gate_whole(struct lm_io *io, struct lm_request *request);

/* scarce.c: slots while there are few */
/* Goes on with a request that found no slot, once what came with its header is consumed. */
void lm_scarce_look(struct lm_io *io, struct lm_connection *connection);
void lm_scarce_readable(struct lm_io *io, const struct lm_completion *completion);
/* Tries again to get a slot for a request whose bytes are here. */
void lm_scarce_retry(struct lm_io *io, struct lm_connection *connection);
/* How many bytes are still to come of it. */
uint64_t lm_scarce_bytes_expected(const struct lm_connection *connection);
/* It has waited for its bytes for too long. */
void lm_scarce_expire(struct lm_io *io, struct lm_connection *connection);
/* Whoever holds what others wait for and does not move makes room. */
void lm_scarce_evict(struct lm_io *io);
/* Bodies that take their time are no work for the workers yet. */
void lm_scarce_suspend(struct lm_io *io);

/* http_documents.c: after the models are known. */
int lm_http_documents_open(struct lm_shared *shared, const char *version, uint32_t port);
void lm_http_documents_close(struct lm_shared *shared);

/* http_receive.c */
int lm_http_open(struct lm_io *io);
void lm_http_close(struct lm_io *io);

/* timers.c */
/* Sets the connection's deadline from what it is doing. Called after every change. */
void lm_timer_update(struct lm_io *io, const struct lm_connection *connection);
/* Ends those whose deadline has passed, those that lingered, and those that others wait for. */
void lm_timers_expire(struct lm_io *io);

/* reply.c */
void lm_reply_outputs(struct lm_request *request, const void *const *data, const size_t *bytes,
                      size_t shape_block_bytes);
void lm_reply_text(struct lm_request *request, enum lm_status status, const char *text);
/* Sends what fits, without waiting, on the worker that holds the request. */
enum lm_outcome lm_reply_try(struct lm_connection *connection, struct lm_request *request,
                             size_t *sent_bytes_out);
/* The I/O thread's own answers, whatever they say: a head, and a body that lives as long as the
 * server (`body_is_shared`) or is copied when it does not fit the socket at once. */
void lm_reply_bytes(struct lm_io *io, struct lm_connection *connection, const void *head,
                    size_t head_bytes, const void *body, size_t body_bytes, bool body_is_shared);
/* The native ones: a body of `bytes` that outlives the connection, or a sentence. */
void lm_reply_own(struct lm_io *io, struct lm_connection *connection,
                  const struct lm_native_reply *reply, const char *body);
void lm_reply_returned(struct lm_io *io, uint32_t slot);
void lm_reply_completed(struct lm_io *io, const struct lm_completion *completion);
/* Starts the next waiting reply if the token is free. */
void lm_reply_flush(struct lm_io *io, struct lm_connection *connection);
/* Drops the replies that wait. */
void lm_reply_drop_waiting(struct lm_io *io, struct lm_connection *connection);

#endif
