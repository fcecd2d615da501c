/* worker.c: see worker.h. */
#include "work/worker.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/topology.h"
#include "flow/reply.h"
#include "flow/slots.h"
#include "flow/threads.h"
#include "work/batch.h"
#include "work/encoding.h"
#include "work/infer.h"
#include "work/record.h"

/* ---- waiting for work ---- */

static bool pop_spinning(struct lm_node *node, uint32_t *job_out, uint32_t pauses) {
    for (uint32_t i = 0; i < pauses; i++) {
        if (lm_queue_pop(&node->queue, job_out)) return true;
        lm_cpu_relax();
    }
    return lm_queue_pop(&node->queue, job_out);
}

/* Sleeps until there may be work, or until a time; see waitset.h for why no work is missed. */
static bool pop_or_sleep(struct lm_worker *worker, uint32_t *job_out, uint64_t until_ns) {
    struct lm_node *node = worker->node;
    lm_waitset_prepare(&node->waitset, worker->index, lm_now_ns());
    bool found = lm_queue_pop(&node->queue, job_out);
    /* E3: acquire: every push; pairs with E1 in flow/threads.c and E2 in server_threads.c */
    if (found || lm_load_acquire_u32(&worker->shared->workers_stop)) {
        lm_waitset_cancel(&node->waitset, worker->index);
        return found;
    }
    lm_add_single_writer_u64(&worker->stats->worker.sleeps, 1);
    lm_waitset_sleep(&node->waitset, worker->index, until_ns);
    return false;
}

/* The next request, or false when the server ends. Non-blocking queues only. */
static bool next_job(struct lm_worker *worker, uint32_t *job_out) {
    struct lm_shared *shared = worker->shared;
    for (;;) {
        if (lm_queue_pop(&worker->node->queue, job_out)) return true;
        if (lm_load_acquire_u32(&shared->workers_stop)) return false; /* as E3 */
        switch ((enum lumen_idle)shared->config.idle) {
        case LUMEN_IDLE_SPIN: lm_cpu_relax(); break;
        case LUMEN_IDLE_YIELD: sched_yield(); break;
        case LUMEN_IDLE_ADAPTIVE:
            if (pop_spinning(worker->node, job_out, LM_SPIN_PAUSES)) return true;
            if (pop_or_sleep(worker, job_out, UINT64_MAX)) return true;
            break;
        case LUMEN_IDLE_PARK:
            if (pop_or_sleep(worker, job_out, UINT64_MAX)) return true;
            break;
        }
    }
}

static struct lm_request *request_of(const struct lm_node *node, uint32_t job) {
    return &node->ios[lm_job_io(job)].requests[lm_job_slot(job)];
}

/* Waits for one more job until a time; false: none came. */
static bool wait_for_more(struct lm_worker *worker, uint32_t *job_out, uint64_t until_ns) {
    const struct lm_shared *shared = worker->shared;
    struct lm_node *node = worker->node;
    while (lm_now_ns() < until_ns && !lm_load_acquire_u32(&shared->workers_stop)) { /* as E3 */
        if (lm_queue_pop(&node->queue, job_out)) return true;
        if (node->workers_sleep) {
            if (pop_or_sleep(worker, job_out, until_ns)) return true;
        } else {
            sched_yield(); /* a blocking queue has no timed wait for single values */
        }
    }
    return false;
}

/* Adds to the first job what is in the queue, at most a batch of jobs, and waits for more as long
 * as the model's entry says. Jobs of other models are taken along, but nobody waits beside them. */
static uint32_t gather_jobs(struct lm_worker *worker, uint32_t *jobs) {
    struct lm_node *node = worker->node;
    struct lm_request *first = request_of(node, jobs[0]);
    const struct lm_model *model = first->model;
    uint32_t count = 1, rows = first->sizes.rows;
    bool others = false;
    uint64_t until = model->batch_delay_ns ? lm_now_ns() + model->batch_delay_ns : 0;
    while (rows < model->batch_size && count < model->batch_size) {
        uint32_t job;
        bool found = lm_queue_pop(&node->queue, &job);
        if (!found && !others && until) found = wait_for_more(worker, &job, until);
        if (!found) break;
        jobs[count++] = job;
        if (request_of(node, job)->model == model) {
            rows += request_of(node, job)->sizes.rows;
        } else {
            others = true;
        }
    }
    return count;
}

/* One wake-up can stand for two jobs: its worker may have been about to find other work, or have
 * found the queue "empty" behind a stopped producer. Whoever found work and still sees some passes
 * the wake-up on, so that no job waits beside a sleeping worker. */
static void chain_wake(struct lm_node *node) {
    if (node->workers_sleep && lm_queue_depth(&node->queue) > 0) {
        lm_waitset_wake_one(&node->waitset);
    }
}

/* The next requests to serve together; 0 when the server ends. */
static uint32_t next_jobs(struct lm_worker *worker, uint32_t *jobs) {
    struct lm_node *node = worker->node;
    if (lm_queue_blocks(&node->queue)) {
        uint32_t count = lm_queue_pop_wait(&node->queue, jobs, LM_BATCH_MAX);
        return count == 1 && worker->shared->config.queue_type == LUMEN_QUEUE_NAIVE
                   ? gather_jobs(worker, jobs)
                   : count;
    }
    if (!next_job(worker, jobs)) return 0;
    chain_wake(node);
    uint32_t count = gather_jobs(worker, jobs);
    if (count > 1) chain_wake(node); /* a wake-up may have come while it waited for more */
    return count;
}

/* ---- answering ---- */

static void expire(struct lm_worker *worker, struct lm_request *request) {
    if (!lm_worker_may_answer(request)) return;
    char text[LM_TEXT_BYTES_MAX];
    request->preprocessed_ns = request->inferred_ns = request->popped_ns;
    if (request->popped_ns >= request->deadline_ns) {
        snprintf(text, sizeof text, "the deadline passed %llu us ago, in the queue",
                 (unsigned long long)((request->popped_ns - request->deadline_ns) / 1000));
    } else {
        snprintf(text, sizeof text,
                 "the deadline passes in %llu us, before the model can answer (about %llu us)",
                 (unsigned long long)((request->deadline_ns - request->popped_ns) / 1000),
                 (unsigned long long)(request->cost_ns / 1000));
    }
    lm_worker_compose_error(request, LM_STATUS_DEADLINE, text);
    lm_add_single_writer_u64(&worker->stats->worker.requests_expired, 1);
    lm_add_single_writer_u64(&worker->stats->worker.model_expired[request->model->index], 1);
}

static void reply(struct lm_worker *worker, struct lm_request *request) {
    struct lm_io *io = request->io;
    if (request->outcome == LM_OUTCOME_OVERDUE) return;
    size_t sent_bytes;
    lm_slots_answered(request); /* first: whoever reads the reply may ask again at once */
    request->outcome =
        (uint8_t)lm_reply_try(lm_io_connection(io, request->connection), request, &sent_bytes);
    if (request->outcome != LM_OUTCOME_SENT) lm_batch_keep_reply(worker, request);
    lm_add_single_writer_u64(&worker->stats->worker.bytes_out, sent_bytes);
    lm_record_reply(worker, request, lm_now_ns());
}

/* Reads the body of a request, before requests are grouped by their rows. */
static bool read_body(struct lm_worker *worker, struct lm_request *request) {
    char why[LM_TEXT_BYTES_MAX];
    enum lm_status status = lm_encodings[request->encoding].read(worker, request, why, sizeof why);
    if (status == LM_STATUS_OK) return true;
    if (!lm_worker_may_answer(request)) return false;
    lm_worker_compose_error(request, status, why);
    request->preprocessed_ns = request->inferred_ns = lm_now_ns();
    lm_record_status(worker, request);
    reply(worker, request);
    return false;
}

static bool is_late(const struct lm_request *request) {
    return request->deadline_ns != UINT64_MAX &&
           request->popped_ns + request->cost_ns >= request->deadline_ns;
}

/* true: the request is still worth a Run; otherwise it is answered or dropped here. */
static bool is_wanted(struct lm_worker *worker, struct lm_request *request) {
    struct lm_connection *connection = lm_io_connection(request->io, request->connection);
    /* relaxed: missing it costs one Run, nothing else */
    if (lm_load_relaxed_u32(&connection->gone)) {
        if (!lm_worker_may_answer(request)) return false;
        lm_add_single_writer_u64(&worker->stats->worker.requests_gone, 1);
        lm_add_single_writer_u64(&worker->stats->worker.model_gone[request->model->index], 1);
        request->outcome = LM_OUTCOME_DROPPED;
        return false;
    }
    if (!is_late(request)) return true;
    expire(worker, request);
    reply(worker, request);
    return false;
}

/* The same of one that was just popped: a body of JSON is read, and may name an earlier deadline.
 */
static bool is_ready(struct lm_worker *worker, struct lm_request *request) {
    if (!is_wanted(worker, request)) return false;
    if (!lm_encodings[request->encoding].read) return true;
    if (!read_body(worker, request)) return false;
    request->worked_ns = lm_now_ns() - request->popped_ns;
    return is_wanted(worker, request);
}

/* Requests of the same model that differ in their rows alone. */
static bool has_shape_of(const struct lm_request *request, const struct lm_request *other) {
    return memcmp(request->sizes.free, other->sizes.free, sizeof request->sizes.free) == 0;
}

/* Moves the first request and all that fit into one batch with it from `waiting` to `group`. */
static uint32_t take_group(struct lm_request **waiting, uint32_t *count,
                           struct lm_request **group) {
    const struct lm_request *first = waiting[0];
    const struct lm_model *model = first->model;
    uint32_t taken = 0, kept = 0, rows = 0;
    for (uint32_t w = 0; w < *count; w++) {
        struct lm_request *request = waiting[w];
        bool fits = request->model == model && rows + request->sizes.rows <= model->batch_size &&
                    has_shape_of(request, first);
        if (taken == 0 || fits) {
            group[taken++] = request;
            rows += request->sizes.rows;
        } else {
            waiting[kept++] = request;
        }
    }
    *count = kept;
    return taken;
}

/* Runs a group that was begun at a time: as one batch, or one by one. */
static void run_group(struct lm_worker *worker, struct lm_request **group, uint32_t count,
                      uint64_t began_ns) {
    lm_run_arena_enter(&worker->node->run_arenas, worker->index);
    bool done = count > 1 && lm_batch_run(worker, group, count);
    for (uint32_t g = 0; g < count; g++) {
        struct lm_request *request = group[g];
        /* Alone, or one by one after a batch that failed: a bad request fails by itself. */
        if (!done) {
            if (count > 1) began_ns = lm_now_ns();
            lm_infer(worker, request);
        }
        uint64_t took_ns = request->inferred_ns - began_ns;
        request->worked_ns += done ? took_ns * request->sizes.rows / request->batch_rows : took_ns;
        reply(worker, request);
    }
    /* relaxed: a gauge */
    lm_store_relaxed_u64(&worker->stats->worker.arena_kept_bytes, lm_run_arena_leave());
}

void lm_worker_serve(struct lm_worker *worker, const uint32_t *jobs, uint32_t count) {
    struct lm_request *waiting[LM_BATCH_MAX], *group[LM_BATCH_MAX];
    uint32_t left = 0;
    uint64_t now = lm_now_ns();
    lm_store_relaxed_u64(&worker->busy_since_ns, now); /* relaxed: a hint for the I/O threads */
    for (uint32_t j = 0; j < count; j++) {
        struct lm_request *request = request_of(worker->node, jobs[j]);
        request->popped_ns = now;
        request->in_batch = false;
        request->batch_rows = 0;
        request->outcome = LM_OUTCOME_SENT;
        if (is_ready(worker, request)) waiting[left++] = request;
        if (request->worked_ns) now = lm_now_ns();
    }
    for (bool first = true; left > 0; first = false) {
        uint32_t taken = take_group(waiting, &left, group), kept = 0;
        if (!first) now = lm_now_ns();
        for (uint32_t g = 0; g < taken; g++) {
            /* Up to here it has waited, but for its own parsing. */
            group[g]->popped_ns = now - group[g]->worked_ns;
            if (first || is_wanted(worker, group[g])) group[kept++] = group[g];
        }
        if (kept) run_group(worker, group, kept, now);
    }
    lm_store_relaxed_u64(&worker->busy_since_ns, 0); /* relaxed: as above */
}

/* Hands the slot back to its I/O thread, which is woken only when it has a use for it now. */
static void give_back(struct lm_io *io, uint32_t slot) {
    enum lm_outcome outcome = (enum lm_outcome)io->requests[slot].outcome;
    bool pushed = lm_mpmc_push(&io->returns, slot);
    LM_ASSERT(pushed); /* the ring has a place for every slot */
    /* W2: release shows the push, decides which worker rings; pairs with I1 in io.c */
    bool wanted = lm_exchange_acq_rel_u32(&io->wants_returns, 0) == 1;
    if (wanted || (outcome != LM_OUTCOME_SENT && outcome != LM_OUTCOME_DROPPED &&
                   outcome != LM_OUTCOME_OVERDUE)) {
        lm_ring_wake(io->ring);
    }
}

/* ---- set-up ---- */

/* Runs a model twice on zeros of the largest shape, so that ONNX Runtime's own memory is there
 * before the first request.
 */
static int warm_model(struct lm_worker *worker, const struct lm_model *model) {
    struct lm_ort *ort = &worker->shared->ort;
    struct lm_slot slot = {0};
    struct lm_layout layout;
    struct lm_binding binding = {0};
    OrtValue *values[2 * LM_TENSORS_MAX] = {0};
    const struct lm_sizes sizes = lm_model_largest(model, 1);
    if (!lm_model_slot_bytes(model, &sizes, &slot.bytes)) return 0;
    slot.base = aligned_alloc(LM_SLOT_ALIGN, slot.bytes);
    if (!slot.base) return lm_error(LUMEN_E_NOMEM, "no memory to warm model '%s' up", model->name);
    memset(slot.base, 0, slot.bytes);
    lm_model_layout(model, &slot, LM_ENCODING_TENSORS, &sizes, &layout);
    int code = lm_model_bind(model, ort, &layout, &sizes, &binding, values);
    for (int run = 0; !code && run < 2; run++) {
        uint64_t began_ns = lm_now_ns();
        code = lm_model_run(model, ort, worker->index, values);
        worker->warm_ns[model->index] = code ? 0 : lm_now_ns() - began_ns;
        lm_infer_drop_outputs(worker->shared, model, 1, values + model->input_count);
    }
    lm_model_unbind(model, ort, &binding, values);
    free(slot.base);
    return code ? code : lm_batch_warm(worker, model);
}

int lm_worker_open(struct lm_worker *worker) {
    struct lm_shared *shared = worker->shared;
    if (worker->cpu >= 0) worker->pinned = lm_thread_pin(worker->cpu) == 0;
    worker->stats->head.cpu = worker->pinned ? worker->cpu : -1;
    int code = shared->traced ? lm_trace_open(&worker->trace) : 0;
    if (code) return code;
    code = lm_oip_parser_open(&worker->parser, shared->config.max_request_bytes);
    if (code) return code;
    const struct lm_model_set *set = lm_models_in_force(shared);
    worker->batches = calloc(set->count, sizeof *worker->batches);
    if (!worker->batches) return lm_error(LUMEN_E_NOMEM, "no memory for a worker");
    for (uint32_t m = 0; m < set->count; m++) {
        const struct lm_model *model = &set->models[m];
        code = lm_batch_open(&worker->batches[m], &shared->ort, model);
        if (code) return code;
        /* Zeros may be no sensible input for it: worth a note, not a refusal. */
        lm_run_arena_enter(&worker->node->run_arenas, worker->index);
        int failed = warm_model(worker, model);
        /* relaxed: a gauge */
        lm_store_relaxed_u64(&worker->stats->worker.arena_kept_bytes, lm_run_arena_leave());
        if (failed) {
            snprintf(worker->note, sizeof worker->note, "model '%s' fails on an input of zeros: %s",
                     model->name, lm_error_last());
        }
    }
    return 0;
}

void lm_worker_close(struct lm_worker *worker) {
    struct lm_shared *shared = worker->shared;
    const struct lm_model_set *set = lm_models_in_force(shared);
    for (uint32_t m = 0; worker->batches && m < set->count; m++) {
        lm_batch_close(&worker->batches[m], &shared->ort, &set->models[m]);
    }
    free(worker->batches);
    lm_oip_parser_close(worker->parser);
    worker->parser = NULL;
    worker->batches = NULL;
    lm_trace_close(&worker->trace);
}

void *lm_worker_main(void *argument) {
    struct lm_worker *worker = argument;
    struct lm_shared *shared = worker->shared;
    uint32_t jobs[LM_BATCH_MAX], count;
    char name[16];
    snprintf(name, sizeof name, "lumen-w/%u", worker->index);
    pthread_setname_np(pthread_self(), name);
    worker->stats->head.tid = (int32_t)syscall(SYS_gettid);
    worker->start_code = lm_worker_open(worker);
    if (worker->start_code) snprintf(worker->note, sizeof worker->note, "%s", lm_error_last());
    lm_thread_meet(shared);
    while ((count = next_jobs(worker, jobs)) > 0) {
        lm_worker_serve(worker, jobs, count);
        for (uint32_t j = 0; j < count; j++) {
            give_back(&worker->node->ios[lm_job_io(jobs[j])], lm_job_slot(jobs[j]));
        }
    }
    lm_thread_ended(shared, LUMEN_ROLE_WORKER);
    return NULL;
}
