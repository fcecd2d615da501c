/* scenarios_rest.c: an I/O thread that rests while the workers have enough to do, and the workers
 * that take what it waits for: rest.c and waitset.c as they are, jobs.c.
 *
 * The workers leave fewer jobs than there are workers, so that the rest must end by a wake-up; its
 * time limit counts only when no thread can go on without it (world.c).
 */
#include <string.h>

#include "flow/rest.h"
#include "machine.h"
#include "real.h"
#include "scenario.h"
#include "work/jobs.h"

struct plan {
    uint32_t queue, workers;
};

static const struct plan plans[] = {
    {.queue = LUMEN_QUEUE_MPMC, .workers = 1},
    {.queue = LUMEN_QUEUE_MPMC, .workers = 2},
    {.queue = LUMEN_QUEUE_SCQ, .workers = 1},
};

static const struct plan *plan;
static struct lm_shared shared;
static struct lm_io io;
static struct lm_model model;
static struct lm_request requests[4]; /* by job */
static struct lm_worker workers[MACHINE_THREADS_MAX];
static struct lm_stats_block blocks[MACHINE_THREADS_MAX];

static void rest(uint32_t unused) {
    (void)unused;
    lm_rest(&io, 0);
}

/* All workers but one take one job, the last all others. */
static void work(uint32_t index) {
    uint32_t jobs[LM_BATCH_MAX], most = index == 0 ? plan->workers + 1 : 1;
    for (uint32_t j = 0; j < most; j++) {
        if (lm_jobs_next(&workers[index], jobs) != 1) machine_fail("not one job");
        lm_rest_end(&shared.nodes[0], &shared.nodes[0].lines[0]);
    }
}

static void set_up(uint32_t variant, bool weak) {
    (void)weak;
    plan = &plans[variant];
    memset(&shared, 0, sizeof shared);
    memset(&io, 0, sizeof io);
    lm_waitset_init(&shared.nodes[0].waitset);
    lm_waitset_init(&shared.nodes[0].resting);
    shared.config.idle = LUMEN_IDLE_PARK;
    shared.config.queue_type = plan->queue;
    shared.io_count = 1;
    shared.ios = &io;
    shared.nodes[0].worker_count = plan->workers;
    shared.nodes[0].lines[0].workers = plan->workers;
    shared.nodes[0].lines[0].workers_sleep = true;
    lm_store_relaxed_u64(&shared.nodes[0].line, (uintptr_t)&shared.nodes[0].lines[0]);
    io.line = &shared.nodes[0].lines[0];
    io.shared = &shared;
    io.node = &shared.nodes[0];
    io.requests = requests;
    io.in_flight = 2 * plan->workers;
    model.batch_size = 1;
    for (uint32_t r = 0; r < 4; r++)
        requests[r] = (struct lm_request){.model = &model, .sizes.rows = 1};
    if (lm_spsc_open(&io.ready, 2) ||
        lm_queue_open(&shared.nodes[0].lines[0].queue, plan->queue, 2 * plan->workers, 1, 1000))
        machine_fail("no queue");
    for (uint32_t j = 0; j < 2 * plan->workers; j++) {
        if (!lm_queue_push(&shared.nodes[0].lines[0].queue, j))
            machine_fail("full with room for every job");
    }
    for (uint32_t w = 0; w < plan->workers; w++) {
        workers[w] = (struct lm_worker){.shared = &shared,
                                        .node = &shared.nodes[0],
                                        .line = &shared.nodes[0].lines[0],
                                        .stats = &blocks[w],
                                        .index = w};
        machine_add_thread(work, w);
    }
    machine_add_thread(rest, 0);
}

static void check(void) {
    for (uint32_t t = 0; t <= plan->workers; t++) {
        if (!machine_finished(t)) machine_fail("thread %u hangs", t);
    }
    if (io.unseen_ns >= LM_REST_NS) machine_fail("the rest ended by its limit alone");
    lm_queue_close(&shared.nodes[0].lines[0].queue);
    lm_spsc_close(&io.ready);
}

#define REST(n, v, p, w, fp, fw) \
    {.name = n,                  \
     .set_up = set_up,           \
     .check = check,             \
     .variant = v,               \
     .preemptions = p,           \
     .weak_preemptions = w,      \
     .full_preemptions = fp,     \
     .full_weak_preemptions = fw}

const struct scenario scenarios_rest[] = {
    REST("rest-mpmc-1w", 0, 4, 3, 8, 6),
    REST("rest-mpmc-2w", 1, 2, 1, 3, 2),
    REST("rest-scq-1w", 2, 3, 2, 5, 4),
};
const uint32_t scenarios_rest_count = sizeof scenarios_rest / sizeof scenarios_rest[0];
