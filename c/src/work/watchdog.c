/* watchdog.c: see watchdog.h. */
#include "work/watchdog.h"

#include "flow/eviction.h"
#include "flow/refusal.h"
#include "models/process.h"
#include "models/run_place.h"
#include "work/state.h"

/* A request whose worker does not come back is answered here. Its slot stays with the worker. */
static void answer_overdue(struct lm_io *io, struct lm_request *request) {
    static const char why[] = "the deadline passed, and the model has not returned";
    struct lm_connection *connection = lm_io_connection(io, request->connection);
    if (!lm_request_claim(request)) return; /* its worker is about to */
    request->with_worker = false;
    connection->in_flight--;
    lm_refusal_count(io, LM_STATUS_DEADLINE, request->model->index);
    lm_add_single_writer_u64(&io->stats->models[request->model->index].io.model_overdue, 1);
    lm_connection_mark(io, connection);
    if (lm_load_relaxed_u32(&connection->gone)) return; /* relaxed: written by this thread */
    lm_request_dialect(request)->answer(io, connection, request, LM_STATUS_DEADLINE, why);
}

/* Workers look at deadlines before a Run. What is long past its own is with a worker that does not
 * return, or behind such a one. */
static void answer_all_overdue(struct lm_io *io) {
    for (uint32_t s = 0; s < io->arena.slot_count; s++) {
        struct lm_request *request = &io->requests[s];
        if (!request->with_worker) continue;
        uint64_t due_ns = lm_load_relaxed_u64(&request->overdue_ns); /* relaxed: as written */
        if (due_ns == UINT64_MAX || io->now_ns <= due_ns + LM_OVERDUE_NS) continue;
        answer_overdue(io, request);
    }
}

static bool some_worker_hangs(const struct lm_io *io) {
    const struct lm_shared *shared = io->shared;
    if (!shared->hang_ns) return false;
    for (uint32_t w = 0; w < io->shared->worker_count; w++) {
        /* relaxed: a hint */
        uint64_t since_ns = lm_load_relaxed_u64(&io->shared->workers[w].busy_since_ns);
        if (since_ns && io->now_ns > since_ns + shared->hang_ns) return true;
    }
    return false;
}

/* One I/O thread counts for all. */
static void count_for_all(struct lm_io *io) {
    for (uint32_t m = 0; io->index == 0 && m < io->models->count; m++) {
        const struct lm_model *model = io->models->models[m];
        /* relaxed, all: a counter, a gauge */
        lm_store_relaxed_u64(&io->stats->models[model->index].io.model_long_run_us,
                             lm_model_long_run_us(model));
        if (model->process)
            lm_store_relaxed_u64(&io->stats->models[model->index].io.model_restarts,
                                 lm_process_number(model->process) - 1);
    }
}

void lm_watchdog_run(struct lm_io *io) {
    if (io->now_ns < io->next_watch_ns) return;
    io->next_watch_ns = io->now_ns + LM_SWEEP_PERIOD_MS * 1000000ull;
    io->worker_hangs = some_worker_hangs(io);
    lm_store_relaxed_u64(&io->stats->io.worker_hangs, io->worker_hangs); /* relaxed: a gauge */
    count_for_all(io);
    if (io->in_flight) answer_all_overdue(io);
    if (io->in_flight) lm_eviction_suspend(io);
}
