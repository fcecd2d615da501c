/* own.c: see own.h. */
#include "work/own.h"

#include "base/clock.h"
#include "base/error.h"
#include "flow/reply.h"
#include "models/run_place.h"
#include "work/worker.h"

static const struct lm_model *model_of(const struct lm_io *io, uint32_t job) {
    return io->requests[lm_job_slot(job)].model;
}

/* Whether its Runs must be short: it is here by their time, and there are workers. */
static bool is_judged(const struct lm_io *io, const struct lm_model *model) {
    return model->run == LUMEN_RUN_AUTO && io->node->thread_count > 0;
}

/* Whether the thread still runs what was chosen for it. Otherwise it goes to the workers. */
static bool keeps(struct lm_io *io, uint32_t job) {
    const struct lm_model *model = model_of(io, job);
    if (!is_judged(io, model) || !lm_model_long_run_us(model)) return true;
    bool kept = lm_spsc_push(&io->ready, job); /* there is a place for every slot */
    LM_ASSERT(kept);
    return false;
}

/* The next request that this thread runs, and what may share a batch with it. */
static uint32_t take(struct lm_io *io, uint32_t *jobs) {
    uint32_t count = 0, next;
    do {
        if (!lm_spsc_pop(&io->own, &jobs[0])) return 0;
    } while (!keeps(io, jobs[0]));
    const struct lm_model *model = model_of(io, jobs[count++]);
    while (count < model->batch_size && lm_spsc_peek(&io->own, &next) &&
           model_of(io, next) == model)
        (void)lm_spsc_pop(&io->own, &jobs[count++]);
    lm_add_single_writer_u64(&io->stats->models[model->index].io.model_own, count);
    return count;
}

/* Reading what the thread has computed costs a system call, as much as a hundredth of a small Run:
 * an older reading does as long as it is not much older than a Run may take. */
static void note_time(struct lm_io *io) {
    if (io->now_ns < io->computed_at_ns + LM_LONG_RUN_NS / 4) return;
    io->computed_at_ns = lm_now_ns();
    io->computed_ns = lm_thread_cpu_ns();
}

/* The CPU time of the thread since then, at least: between the reading and then it computed no
 * more than went by. */
static uint64_t computed_since(const struct lm_io *io, uint64_t began_ns) {
    uint64_t computed_ns = lm_thread_cpu_ns() - io->computed_ns;
    uint64_t before_ns = began_ns > io->computed_at_ns ? began_ns - io->computed_at_ns : 0;
    return computed_ns > before_ns ? computed_ns - before_ns : 0;
}

/* A model whose Run has taken so long is the workers'. */
static void judge(const struct lm_io *io, struct lm_model *model, uint64_t began_ns) {
    if (io->now_ns < began_ns + LM_LONG_RUN_NS || !is_judged(io, model)) return;
    uint64_t computed_ns = computed_since(io, began_ns);
    if (computed_ns < LM_LONG_RUN_NS) return;
    lm_model_end_own_runs(model, computed_ns);
}

void lm_own_run(struct lm_io *io) {
    uint32_t jobs[LM_BATCH_MAX], count;
    uint64_t until_ns = io->now_ns + LM_OWN_RUNS_NS;
    while (io->now_ns < until_ns && (count = take(io, jobs)) > 0) {
        const struct lm_request *first = &io->requests[lm_job_slot(jobs[0])];
        struct lm_model *model = lm_model_set_find(first->models, first->model->index);
        uint64_t began_ns = io->now_ns;
        note_time(io);
        lm_worker_serve(io->inline_worker, jobs, count);
        io->now_ns = lm_now_ns(); /* the models have taken their time */
        judge(io, model, began_ns);
        for (uint32_t j = 0; j < count; j++) lm_reply_returned(io, lm_job_slot(jobs[j]));
    }
}
