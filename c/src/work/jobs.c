/* jobs.c: see jobs.h. */
#include "work/jobs.h"

#include <sched.h>

#include "base/clock.h"

/* The server ends, or another line is in force. Whoever has read it in a sealed line finds all that
 * came to it. */
static bool must_leave(const struct lm_worker *worker) {
    /* E3: acquire: every push; pairs with E1 in flow/threads.c and E2 in server/threads.c */
    return lm_load_acquire_u32(&worker->shared->workers_stop) ||
           /* Q4: acquire: every push; pairs with Q3 in flow/node.c */
           lm_load_acquire_u32(&worker->line->sealed);
}

static bool pop(struct lm_worker *worker, uint32_t *job_out) {
    return lm_queue_pop(&worker->line->queue, job_out);
}

static bool pop_spinning(struct lm_worker *worker, uint32_t *job_out, uint32_t pauses) {
    for (uint32_t i = 0; i < pauses; i++) {
        if (pop(worker, job_out)) return true;
        lm_cpu_relax();
    }
    return pop(worker, job_out);
}

/* A job of another node that has enough of them. */
static bool steal(struct lm_worker *worker, uint32_t *job_out) {
    if (!lm_node_steal(worker->node, job_out)) return false;
    lm_add_single_writer_u64(&worker->stats->worker.requests_stolen, 1);
    return true;
}

/* Sleeps until there may be work, or until a time; see waitset.h for why no work is missed. */
static bool pop_or_sleep(struct lm_worker *worker, uint32_t *job_out, uint64_t until_ns) {
    struct lm_node *node = worker->node;
    lm_waitset_prepare(&node->waitset, worker->index, lm_now_ns());
    bool found = pop(worker, job_out) || steal(worker, job_out);
    if (found || must_leave(worker)) {
        lm_waitset_cancel(&node->waitset, worker->index);
        return found;
    }
    lm_add_single_writer_u64(&worker->stats->worker.sleeps, 1);
    lm_waitset_sleep(&node->waitset, worker->index, until_ns);
    return false;
}

/* The next request, or false when the worker must leave the line, which has none. Non-blocking
 * queues only. */
static bool next_job(struct lm_worker *worker, uint32_t *job_out) {
    for (;;) {
        if (pop(worker, job_out) || steal(worker, job_out)) return true;
        if (must_leave(worker)) return pop(worker, job_out);
        switch ((enum lumen_idle)worker->shared->config.idle) {
        case LUMEN_IDLE_SPIN: lm_cpu_relax(); break;
        case LUMEN_IDLE_YIELD: sched_yield(); break;
        case LUMEN_IDLE_ADAPTIVE:
            if (pop_spinning(worker, job_out, LM_SPIN_PAUSES)) return true;
            if (pop_or_sleep(worker, job_out, UINT64_MAX)) return true;
            break;
        case LUMEN_IDLE_PARK:
            if (pop_or_sleep(worker, job_out, UINT64_MAX)) return true;
            break;
        }
    }
}

/* Its answer has to come at once: its client has left, the server ends, or keeps models for it that
 * are to go. */
static bool is_waited_for(const struct lm_worker *worker, const struct lm_request *request) {
    const struct lm_shared *shared = worker->shared;
    /* relaxed: the next look sees it */
    return lm_load_relaxed_u32(&lm_io_connection(request->io, request->connection)->gone) ||
           lm_load_relaxed_u32(&shared->phase) == LM_PHASE_DRAINING ||
           lm_models_in_force(shared) != request->models;
}

/* Waits beside a request for one more job until a time; false: none came. */
static bool wait_for_more(struct lm_worker *worker, const struct lm_request *request,
                          uint32_t *job_out, uint64_t until_ns) {
    for (;;) {
        const uint64_t now_ns = lm_now_ns();
        if (now_ns >= until_ns || must_leave(worker) || is_waited_for(worker, request))
            return false;
        if (pop(worker, job_out)) return true;
        if (worker->line->workers_sleep) {
            const uint64_t look_ns = now_ns + LM_IDLE_TICK_MS * 1000000ull;
            if (pop_or_sleep(worker, job_out, until_ns < look_ns ? until_ns : look_ns)) return true;
        } else {
            sched_yield(); /* a blocking queue has no timed wait for single values */
        }
    }
}

/* Others would wait for its picture. */
static bool is_alone(const struct lm_request *request) {
    return request->pixels > LM_BATCH_PIXELS;
}

/* The latest end of a wait for more that leaves a request half the time that its deadline has
 * beyond its run: a worker wakes late, and a cost is an estimate. */
static uint64_t waits_until(const struct lm_request *request, uint64_t until_ns) {
    if (request->deadline_ns == UINT64_MAX) return until_ns;
    const uint64_t now_ns = lm_now_ns(), run_ns = request->cost_ns + request->cost_ns / 4;
    if (now_ns + run_ns >= request->deadline_ns) return now_ns;
    const uint64_t latest_ns = now_ns + (request->deadline_ns - run_ns - now_ns) / 2;
    return until_ns < latest_ns ? until_ns : latest_ns;
}

static bool is_preferred(const struct lm_model *model, uint32_t rows) {
    return model->preferred[(rows - 1) / 64] >> (rows - 1) % 64 & 1;
}

/* Adds to the first job what is in the queue, at most a batch of jobs, and waits for more as long
 * as the model's entry and the deadlines say, unless the rows are as many as it prefers. Jobs of
 * other models are taken along, but nobody waits beside them. */
static uint32_t gather_jobs(struct lm_worker *worker, uint32_t *jobs) {
    struct lm_line *line = lm_worker_line_of(worker, jobs[0]);
    struct lm_request *first = lm_worker_request(worker, jobs[0]);
    const struct lm_model *model = first->model;
    uint32_t count = 1, rows = first->sizes.rows;
    bool others = false;
    bool waits = model->batch_delay_ns && line == worker->line;
    uint64_t until = waits ? lm_now_ns() + model->batch_delay_ns : 0;
    /* The first one's answer is due then, whatever it is. */
    const uint64_t stale_ns = first->received_ns + model->queue_timeout_ns;
    if (model->queue_timeout_ns && until > stale_ns) until = stale_ns;
    if (until) until = waits_until(first, until);
    if (is_alone(first)) return 1;
    while (rows < model->batch_size && count < model->batch_size) {
        uint32_t job;
        bool found = lm_queue_pop(&line->queue, &job);
        if (!found && !others && until && !is_preferred(model, rows))
            found = wait_for_more(worker, first, &job, until);
        if (!found) break;
        if (is_alone(lm_worker_request(worker, job))) {
            worker->next_job = job;
            worker->has_next_job = true;
            break;
        }
        jobs[count++] = job;
        const struct lm_request *more = lm_worker_request(worker, job);
        if (more->model == model) {
            rows += more->sizes.rows;
            if (until) until = waits_until(more, until);
        } else {
            others = true;
        }
    }
    return count;
}

void lm_jobs_wake_another(struct lm_node *node, struct lm_line *line) {
    /* Also one of another node: it may have found this queue shallower than it was, since who pops
     * from an SCQ that is empty moves its head on for a moment. */
    if (line->workers_sleep && lm_queue_depth(&line->queue) > 0) lm_node_wake_worker(node);
}

uint32_t lm_jobs_next(struct lm_worker *worker, uint32_t *jobs) {
    struct lm_queue *queue = &worker->line->queue;
    if (worker->has_next_job) {
        worker->has_next_job = false;
        jobs[0] = worker->next_job;
        return 1;
    }
    if (lm_queue_blocks(queue)) {
        uint32_t count = lm_queue_pop_wait(queue, jobs, LM_BATCH_MAX);
        return count == 1 && queue->type == LUMEN_QUEUE_NAIVE ? gather_jobs(worker, jobs) : count;
    }
    if (!next_job(worker, jobs)) return 0;
    struct lm_node *node = lm_worker_node_of(worker, jobs[0]);
    struct lm_line *line = lm_worker_line_of(worker, jobs[0]);
    lm_jobs_wake_another(node, line);
    uint32_t count = gather_jobs(worker, jobs);
    if (count > 1)
        lm_jobs_wake_another(node, line); /* a wake-up may have come while it waited for more */
    return count;
}

/* ---- another line ---- */

/* Sleeps until the control thread has a line for the worker; NULL: the server ends. */
static struct lm_line *wait_for_line(struct lm_worker *worker) {
    struct lm_node *node = worker->node;
    for (;;) {
        lm_waitset_prepare(&node->spare, worker->index, lm_now_ns());
        /* H4: acquire: the line that it names; pairs with H5 in server/workers.c */
        uint32_t number = lm_load_acquire_u32(&worker->line_number);
        bool is_over = lm_load_acquire_u32(&worker->shared->workers_stop); /* as E3 */
        if (number != LM_NO_LINE || is_over) {
            lm_waitset_cancel(&node->spare, worker->index);
            /* That one, even if another is in force since: the control thread counts on it. */
            return is_over ? NULL : &node->lines[number % 2];
        }
        lm_waitset_sleep(&node->spare, worker->index, UINT64_MAX);
    }
}

bool lm_jobs_begin_spare(struct lm_worker *worker) {
    worker->line = wait_for_line(worker);
    return worker->line != NULL;
}

bool lm_jobs_change_line(struct lm_worker *worker) {
    struct lm_line *line = lm_node_line(worker->node);
    if (lm_load_acquire_u32(&worker->shared->workers_stop)) return false; /* as E3 */
    bool is_spare = worker->index >= line->workers;
    /* H6: release: the last use of the line before; pairs with H7 in server/workers.c */
    lm_store_release_u32(&worker->line_number, is_spare ? LM_NO_LINE : line->number);
    if (is_spare) line = wait_for_line(worker);
    if (line) worker->line = line;
    return line != NULL;
}
