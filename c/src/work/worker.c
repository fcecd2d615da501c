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
#include "flow/rest.h"
#include "flow/slots.h"
#include "flow/threads.h"
#include "wire/http_date.h"
#include "work/batch.h"
#include "work/bulk.h"
#include "work/carrier.h"
#include "work/infer.h"
#include "work/jobs.h"
#include "work/record.h"
#include "work/rooms.h"
#include "work/route.h"
#include "work/width.h"
#include "work/worker_open.h"

/* ---- answering ---- */

/* It has waited for longer than its model lets it. */
static bool is_stale(const struct lm_request *request) {
    const uint64_t most_ns = request->model->queue_timeout_ns;
    return most_ns && request->popped_ns - request->received_ns > most_ns;
}

static void expire(struct lm_worker *worker, struct lm_request *request) {
    if (!lm_worker_may_answer(request)) return;
    char text[LM_TEXT_BYTES_MAX];
    request->preprocessed_ns = request->inferred_ns = request->popped_ns;
    if (is_stale(request)) {
        snprintf(text, sizeof text,
                 "Request timeout expired: it waited %llu us for a worker, of at most %llu "
                 "(queue_timeout_us of model '%s')",
                 (unsigned long long)((request->popped_ns - request->received_ns) / 1000),
                 (unsigned long long)(request->model->queue_timeout_ns / 1000),
                 request->model->name);
    } else if (request->popped_ns >= request->deadline_ns) {
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
    lm_add_single_writer_u64(&worker->stats->models[request->model->index].worker.model_expired, 1);
}

static void reply(struct lm_worker *worker, struct lm_request *request) {
    struct lm_io *io = request->io;
    if (request->outcome == LM_OUTCOME_OVERDUE) return;
    size_t sent_bytes;
    lm_slots_answered(request); /* first: whoever reads the reply may ask again at once */
    lm_slots_leave_shm(request);
    request->outcome =
        (uint8_t)lm_reply_try(lm_io_connection(io, request->connection), request, &sent_bytes);
    if (request->outcome != LM_OUTCOME_SENT) lm_batch_keep_reply(worker, request);
    lm_add_single_writer_u64(&worker->stats->worker.bytes_out, sent_bytes);
    lm_record_reply(worker, request, lm_now_ns());
}

/* Reads the body of a request, or where it is, before requests are grouped by their rows. */
static bool read_body(struct lm_worker *worker, struct lm_request *request) {
    char why[LM_TEXT_BYTES_MAX];
    enum lm_status status = lm_carrier_read(worker, request, why, sizeof why);
    const struct lm_connection *connection = lm_io_connection(request->io, request->connection);
    /* relaxed: as in is_wanted, which drops what nobody waits for */
    if (status == LM_STATUS_OK || lm_load_relaxed_u32(&connection->gone)) return true;
    if (!lm_worker_may_answer(request)) return false;
    lm_worker_compose_error(request, status, why);
    request->preprocessed_ns = request->inferred_ns = lm_now_ns();
    lm_record_status(worker, request);
    reply(worker, request);
    return false;
}

static bool is_late(struct lm_worker *worker, const struct lm_request *request) {
    return request->deadline_ns != UINT64_MAX &&
           request->popped_ns + request->cost_ns >= request->deadline_ns &&
           request->popped_ns + lm_width_cost_ns(worker, request) >= request->deadline_ns;
}

/* Its client has gone: then nobody is answered. */
static bool is_gone(struct lm_worker *worker, struct lm_request *request) {
    struct lm_connection *connection = lm_io_connection(request->io, request->connection);
    /* relaxed: missing it costs one Run, nothing else */
    if (!lm_load_relaxed_u32(&connection->gone)) return false;
    if (!lm_worker_may_answer(request)) return true;
    lm_add_single_writer_u64(&worker->stats->worker.requests_gone, 1);
    lm_add_single_writer_u64(&worker->stats->models[request->model->index].worker.model_gone, 1);
    request->outcome = LM_OUTCOME_DROPPED;
    return true;
}

/* true: the request is still worth a Run; otherwise it is answered or dropped here. */
static bool is_wanted(struct lm_worker *worker, struct lm_request *request) {
    if (is_gone(worker, request)) return false;
    if (!is_stale(request) && !is_late(worker, request)) return true;
    expire(worker, request);
    reply(worker, request);
    return false;
}

/* The same of one that was just popped: a body of JSON is read, and may name an earlier deadline.
 */
static bool is_ready(struct lm_worker *worker, struct lm_request *request) {
    if (!is_wanted(worker, request)) return false;
    bool is_read = lm_carrier_is_read(request);
    bool is_routed = request->model->experts.count > 0;
    if (!is_read && !is_routed) return true;
    worker->between_ns = 0;
    bool is_here = !is_read || (read_body(worker, request) && is_wanted(worker, request));
    if (is_here && is_routed) lm_route(request);
    request->worked_ns = lm_now_ns() - request->popped_ns - worker->between_ns;
    return is_here;
}

/* Requests of the same model that differ in their rows alone. */
static bool has_shape_of(const struct lm_request *request, const struct lm_request *other) {
    if (lm_request_optionals(request) || lm_request_optionals(other)) return false;
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
        bool fits = request->model == model && request->expert == first->expert &&
                    rows + request->sizes.rows <= model->batch_size && has_shape_of(request, first);
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

/* Runs a group that was begun at a time: as one batch, or one by one. Returns how many of it a
 * further expert is to run; the group is these. */
static uint32_t run_group(struct lm_worker *worker, struct lm_request **group, uint32_t count,
                          uint64_t began_ns) {
    uint32_t kept = 0;
    lm_run_arena_enter(&worker->shared->run_arenas, worker->index);
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
        if (done && request->goes_on) {
            group[kept++] = request;
        } else {
            reply(worker, request);
        }
    }
    /* relaxed: a gauge */
    lm_store_relaxed_u64(&worker->stats->worker.arena_kept_bytes, lm_run_arena_leave());
    return kept;
}

void lm_worker_serve(struct lm_worker *worker, uint32_t *jobs, uint32_t count) {
    struct lm_request *waiting[LM_BATCH_MAX], *group[LM_BATCH_MAX];
    uint32_t left = 0;
    bool strays = false;
    lm_width_reclaim(worker);
    uint64_t now = lm_now_ns();
    const uint64_t began_ns = now;
    const bool is_within = lm_load_relaxed_u64(&worker->busy_since_ns) != 0; /* relaxed: own word */
    lm_store_relaxed_u64(&worker->busy_since_ns, now); /* relaxed: a hint for the I/O threads */
    if (!is_within) lm_store_relaxed_u64(&worker->serving, count); /* relaxed: a gauge */
    for (uint32_t j = 0; j < count; j++) {
        struct lm_request *request = lm_worker_request(worker, jobs[j]);
        request->popped_ns = now;
        if (request->model->max_queued) /* relaxed: as in submit.c, which has counted it */
            (void)lm_sub_relaxed_u64(&worker->shared->queued[request->model->index], 1);
        request->in_batch = false;
        request->batch_rows = 0;
        request->width = 0;
        request->disturbed = false;
        request->expert = NULL;
        request->goes_on = request->converted = false;
        request->outcome = LM_OUTCOME_SENT;
        const bool ready = is_ready(worker, request);
        if (request->worked_ns) now = lm_now_ns();
        if (ready && lm_bulk_take(worker, jobs[j])) {
            jobs[j] = LM_NO_JOB;
        } else if (ready) {
            waiting[left++] = request;
        }
    }
    for (bool first = true; left > 0; first = false) {
        uint32_t taken = take_group(waiting, &left, group), kept = 0;
        if (!first) now = lm_now_ns();
        strays = strays || group[0]->model->strays;
        for (uint32_t g = 0; g < taken; g++) {
            /* Up to here it has waited, but for its own parsing. */
            group[g]->popped_ns = now - group[g]->worked_ns;
            if (first || is_wanted(worker, group[g])) group[kept++] = group[g];
        }
        while (kept) {
            kept = run_group(worker, group, kept, now);
            if (kept) now = lm_now_ns();
        }
    }
    if (strays && worker->pinned) (void)lm_thread_pin(worker->cpu);
    lm_store_relaxed_u64(&worker->busy_since_ns, 0); /* relaxed: as above */
    if (is_within) return; /* of a request whose picture is read: the time is that one's */
    lm_add_single_writer_u64(&worker->busy_ns, lm_now_ns() - began_ns);
    lm_store_relaxed_u64(&worker->serving, 0); /* relaxed: as above */
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

void lm_worker_finish(struct lm_worker *worker, uint32_t job) {
    struct lm_request *request = lm_worker_request(worker, job);
    const uint64_t now_ns = lm_now_ns();
    if (request->share.is_whole) {
        request->popped_ns = now_ns - request->worked_ns; /* up to here it has waited */
        if (is_wanted(worker, request)) (void)run_group(worker, &request, 1, now_ns);
    } else {
        request->inferred_ns = now_ns;
        request->worked_ns += now_ns - request->preprocessed_ns;
        if (!is_gone(worker, request)) {
            lm_infer_answer(worker, request, request->share.code);
            reply(worker, request);
        }
    }
    give_back(request->io, lm_job_slot(job));
}

/* As long as a slice of the picture, which gets half of the time so. What runs in a process of its
 * own may keep its worker for longer. */
static void serve_between(struct lm_worker *worker, uint64_t pixels_max) {
    struct lm_node *node = worker->node;
    struct lm_queue *queue = &worker->line->queue;
    uint64_t began_ns = lm_now_ns(), now_ns = began_ns, before_ns = worker->between_ns;
    uint32_t job, put_back = 0;
    if (!lm_jobs_may_go_back(queue)) return;
    while (now_ns < began_ns + LM_DECODE_SLICE_NS && put_back <= lm_queue_depth(queue) &&
           lm_queue_pop(queue, &job)) {
        const struct lm_request *request = lm_worker_request(worker, job);
        bool waits = request->pixels > pixels_max || lm_runner_of(request->model)->is_apart;
        if (waits && lm_queue_push(queue, job)) {
            put_back++;
            lm_jobs_wake_another(node, worker->line);
            continue;
        }
        lm_rest_end(node, worker->line);
        const uint32_t slot = lm_job_slot(job);
        lm_worker_serve(worker, &job, 1);
        if (job != LM_NO_JOB) give_back(request->io, slot);
        now_ns = lm_now_ns();
    }
    worker->between_ns = before_ns + now_ns - began_ns;
}

/* ---- the thread ---- */

static void serve_and_give_back(struct lm_worker *worker, uint32_t *jobs, uint32_t count) {
    if (count == 0) return;
    lm_rest_end(lm_worker_node_of(worker, jobs[0]), lm_worker_line_of(worker, jobs[0]));
    lm_worker_serve(worker, jobs, count);
    for (uint32_t j = 0; j < count; j++)
        if (jobs[j] != LM_NO_JOB)
            give_back(&worker->shared->ios[lm_job_io(jobs[j])], lm_job_slot(jobs[j]));
}

/* Once it is set up. false: it ends. */
static bool join(struct lm_worker *worker) {
    if (lm_worker_is_there(worker)) {
        lm_thread_meet(worker->shared);
        return worker->start_code == 0;
    }
    (void)lm_http_date_line(); /* its memory of this thread is taken now */
    /* H11: release: how that went; pairs with H12 in server/threads.c */
    lm_store_release_u32(&worker->presence, LM_WORKER_SET_UP);
    return worker->start_code == 0 && lm_jobs_begin_spare(worker);
}

void *lm_worker_main(void *argument) {
    struct lm_worker *worker = argument;
    struct lm_shared *shared = worker->shared;
    struct lm_rooms rooms;
    uint32_t jobs[LM_BATCH_MAX], count;
    char name[16];
    snprintf(name, sizeof name, "lumen-w/%u", worker->index);
    pthread_setname_np(pthread_self(), name);
    worker->stats->head.tid = (int32_t)syscall(SYS_gettid);
    lm_real_time_begin(&worker->real_time, shared->real_time);
    worker->start_code = lm_worker_open(worker);
    if (worker->start_code) snprintf(worker->note, sizeof worker->note, "%s", lm_error_last());
    worker->line = lm_node_line(worker->node);
    worker->between = serve_between;
    worker->finish = lm_worker_finish;
    bool serves = join(worker);
    while (serves && ((count = lm_jobs_next(worker, jobs)) > 0 || lm_jobs_change_line(worker))) {
        while (count > 0) {
            uint32_t placed = lm_rooms_enter(worker, &rooms, jobs, count);
            serve_and_give_back(worker, jobs, rooms.first);
            serve_and_give_back(worker, jobs + rooms.first, placed - rooms.first);
            count = lm_rooms_leave(worker, &rooms, jobs);
        }
        if (worker->real_time.priority) lm_real_time_check(&worker->real_time, lm_now_ns());
    }
    lm_thread_ended(shared, LUMEN_ROLE_WORKER);
    return NULL;
}
