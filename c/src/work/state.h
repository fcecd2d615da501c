/* state.h: the state of a worker: a pinned thread that pops requests, runs their models and sends
 * the replies; or no thread, but what an I/O thread runs models with. The other headers of this
 * folder declare operations on it. Its thread alone writes it, but for what says otherwise.
 */
#ifndef LM_WORK_STATE_H
#define LM_WORK_STATE_H

#include <pthread.h>

#include "flow/state.h"
#include "models/binding.h"
#include "models/runner.h"

/* Room for the rows of several requests side by side, for one model of one worker. */
struct lm_batch {
    struct lm_mapping memory;
    void **inputs; /* and the outputs behind them */
    void **outputs;
    OrtValue **values; /* wrapped tensors for 1, 2, ... batch_size rows; with free dimensions for
                        * one shape at a time: */
    struct lm_binding binding;
};

#define LM_NO_LINE UINT32_MAX

/* At the start, and once a worker that came later is counted in; a place without a thread, of which
 * a later change may make a worker; its thread is set up, or could not be. */
enum { LM_WORKER_THERE = 0, LM_WORKER_ABSENT = 1, LM_WORKER_SET_UP = 2 };

/* Runs of one model with so many rows; the worker writes, any thread reads. */
struct lm_batch_count {
    lm_atomic_u64 rows; /* 0: the entry is free */
    lm_atomic_u64 runs;
    lm_atomic_u64 input_ns, infer_ns, output_ns; /* sums over them */
};

struct lm_worker {
    struct lm_shared *shared;
    struct lm_node *node;
    struct lm_line *line;         /* of the node, that it works with; NULL: an I/O thread's */
    lm_atomic_u32 line_number;    /* of that; LM_NO_LINE: it is spare, until the control thread says
                                   * which one it is to work with */
    lm_atomic_u32 presence;       /* LM_WORKER_* */
    struct lm_stats_block *stats; /* NULL of such a place */
    struct lm_batch_count (*batch_counts)[LM_BATCH_SIZES]; /* by the model's index */
    struct lm_trace trace;                                 /* used when a trace is asked for */
    struct lm_oip_parser *parser;                          /* of HTTP's bodies of JSON */
    struct lm_inflater *inflater;                          /* of those that are compressed */
    struct lm_image_desk *desk; /* image_body.h; NULL: no model takes pictures */
    /* While it reads a body: serves others that wait, for a slice of time, unless they have
     * pictures of more pixels. NULL: it is not to. */
    void (*between)(struct lm_worker *worker, uint64_t pixels_max);
    /* Answers a request whose texts have been run, and gives it back (worker.h). */
    void (*finish)(struct lm_worker *worker, uint32_t job);
    uint64_t between_ns; /* that this took while it read one body */
    uint32_t next_job;   /* a job that it has popped and serves next */
    bool has_next_job;
    uint64_t steps_ns[1 + LUMEN_STEPS_MAX]; /* of its last Run of an ensemble, as in lm_run */
    uint32_t index;                         /* its session in every model */
    int32_t cpu;                            /* to pin to; -1: none */
    bool pinned;
    struct lm_real_time real_time; /* of its thread */
    pthread_t thread;
    bool thread_started;
    int start_code; /* 0 or LUMEN_E_*; read between the start barriers */
    char note[512]; /* what went wrong at start, or empty */
    LM_CACHE_ALIGNED lm_atomic_u64 busy_since_ns; /* 0: between two requests */
    lm_atomic_u64 busy_ns;                        /* all times before, together */
    lm_atomic_u64 serving;                        /* requests that it has popped */
};

/* Any thread: whether there is one, with its part of the statistics. */
static inline bool lm_worker_is_there(const struct lm_worker *worker) {
    /* H9: acquire: its statistics; pairs with H10 in server/threads.c */
    return lm_load_acquire_u32(&worker->presence) == LM_WORKER_THERE;
}

static inline struct lm_request *lm_worker_request(const struct lm_worker *worker, uint32_t job) {
    return &worker->shared->ios[lm_job_io(job)].requests[lm_job_slot(job)];
}
/* Whose line the job was in: its own, or one that it helps. */
static inline struct lm_node *lm_worker_node_of(const struct lm_worker *worker, uint32_t job) {
    return worker->shared->ios[lm_job_io(job)].node;
}
static inline struct lm_line *lm_worker_line_of(const struct lm_worker *worker, uint32_t job) {
    struct lm_node *node = lm_worker_node_of(worker, job);
    return node == worker->node ? worker->line : lm_node_line(node);
}

/* The model's session that it runs. Threads beside the workers, which come behind them, share
 * theirs. */
static inline uint32_t lm_worker_session(const struct lm_worker *worker,
                                         const struct lm_model *model) {
    const uint32_t workers = worker->shared->worker_count;
    if (worker->index < workers) return worker->index;
    const uint32_t session = worker->index - workers;
    return session < model->session_count && model->sessions[session] ? session : 0;
}

/* The part of a Run that its thread decides. */
static inline struct lm_run lm_worker_run(struct lm_worker *worker, const struct lm_model *model) {
    return (struct lm_run){.ort = &worker->shared->ort,
                           .worker = worker->index,
                           .session = lm_worker_session(worker, model),
                           .cpu = worker->pinned ? worker->cpu : -1,
                           .steps_ns = worker->steps_ns};
}

/* The answer is known: false when the I/O thread has given up waiting and answered itself. */
static inline bool lm_worker_may_answer(struct lm_request *request) {
    if (lm_request_claim(request)) return true;
    request->outcome = LM_OUTCOME_OVERDUE;
    return false;
}

/* Composes a reply that says what went wrong; the access log says it too. */
static inline void lm_worker_compose_error(struct lm_request *request, enum lm_status status,
                                           const char *text) {
    lm_request_set_why(request, text);
    lm_request_dialect(request)->compose_error(request, status, text);
}

#endif
