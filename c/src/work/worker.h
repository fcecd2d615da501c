/* worker.h: a pinned thread that pops requests, runs their models and sends the replies; or no
 * thread, but what an I/O thread runs models with.
 */
#ifndef LM_WORK_WORKER_H
#define LM_WORK_WORKER_H

#include <pthread.h>

#include "flow/state.h"

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

/* Runs of one model with so many rows; the worker writes, any thread reads. */
struct lm_batch_count {
    lm_atomic_u64 rows; /* 0: the entry is free */
    lm_atomic_u64 runs;
    lm_atomic_u64 input_ns, infer_ns, output_ns; /* sums over them */
};

struct lm_worker {
    struct lm_shared *shared;
    struct lm_node *node;
    struct lm_line *line;      /* of the node, that it works with; NULL: an I/O thread's */
    lm_atomic_u32 line_number; /* of that; LM_NO_LINE: it is spare, until the control thread says
                                * which one it is to work with */
    struct lm_stats_block *stats;
    struct lm_batch_count (*batch_counts)[LM_BATCH_SIZES]; /* by the model's index */
    struct lm_trace trace;                                 /* used when a trace is asked for */
    struct lm_oip_parser *parser;                          /* of HTTP's bodies of JSON */
    struct lm_inflater *inflater;                          /* of those that are compressed */
    struct lm_image_desk *desk; /* image_body.h; NULL: no model takes pictures */
    /* While it reads a body: serves others that wait, for a slice of time, unless they have
     * pictures of more pixels. NULL: it is not to. */
    void (*between)(struct lm_worker *worker, uint64_t pixels_max);
    uint64_t between_ns; /* that this took while it read one body */
    uint32_t aside;      /* a job that it popped and serves next, */
    bool has_aside;      /* if so */
    uint32_t index;      /* its session in every model */
    int32_t cpu;         /* to pin to; -1: none */
    bool pinned;
    struct lm_real_time real_time; /* of its thread */
    pthread_t thread;
    bool thread_started;
    int start_code; /* 0 or LUMEN_E_*; read between the start barriers */
    char note[512]; /* what went wrong at start, or empty */
    LM_CACHE_ALIGNED lm_atomic_u64 busy_since_ns; /* 0: between two requests */
};

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

void *lm_worker_main(void *worker);
/* Opens what a worker needs besides its thread; the calling thread is the one that will use it. */
int lm_worker_open(struct lm_worker *worker);
void lm_worker_close(struct lm_worker *worker);
/* The worker's batches of a model, and its first Runs; on any thread, which is in an arena of Runs.
 * A model that fails leaves a note. Returns 0 or LUMEN_E_*. */
int lm_worker_take_model(struct lm_worker *worker, struct lm_model *model, char *note,
                         size_t note_bytes);
/* Another model gets the index of one that nobody asks for any more: no Run was counted. */
void lm_worker_forget_model(struct lm_worker *worker, uint32_t model);
/* No request of the model is left: frees what the threads have of it. Control thread. */
void lm_shared_leave_model(struct lm_shared *shared, struct lm_model *model);
/* Answers `count` requests, those of one model together where that model is batched. Afterwards
 * each has its outcome and is the caller's to give back. */
void lm_worker_serve(struct lm_worker *worker, const uint32_t *jobs, uint32_t count);

#endif
