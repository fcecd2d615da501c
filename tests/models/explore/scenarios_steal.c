/* scenarios_steal.c: workers of a node without work help another, whose one worker has enough: the
 * jobs are handed over by submit.c, taken by jobs.c.
 *
 * The node's own worker takes one job, and is then in a Run that never ends. All others must be
 * found by the workers of the other node, whose sleep no time limit ends.
 */
#include <string.h>

#include "flow/submit.h"
#include "machine.h"
#include "real.h"
#include "scenario.h"
#include "work/jobs.h"

struct plan {
    uint32_t queue, thieves, jobs_each; /* of the thieves */
};

static const struct plan plans[] = {
    {.queue = LUMEN_QUEUE_MPMC, .thieves = 1, .jobs_each = 2},
    {.queue = LUMEN_QUEUE_MPMC, .thieves = 2, .jobs_each = 1},
    {.queue = LUMEN_QUEUE_SCQ, .thieves = 1, .jobs_each = 1},
};

enum { JOBS_MAX = 4 };

static const struct plan *plan;
static struct lm_shared shared;
static struct lm_io io;
static struct lm_model model;
static struct lm_request requests[JOBS_MAX]; /* by job */
static struct lm_worker workers[MACHINE_THREADS_MAX];
static struct lm_stats_block blocks[MACHINE_THREADS_MAX];
static uint32_t taken[JOBS_MAX];

/* One wake-up may stand for several jobs, and one job for several wake-ups. */
static void hand_over(uint32_t jobs) {
    for (uint32_t j = 0; j < jobs; j++) {
        if (!lm_spsc_push(&io.ready, lm_job_pack(0, j))) machine_fail("no place for what is ready");
        lm_submit_hand_over(&io);
    }
    while (lm_spsc_depth(&io.ready) > 0) { /* as in scenarios_sleep.c */
        machine_yield();
        lm_submit_hand_over(&io);
    }
}

static void work(uint32_t index) {
    uint32_t jobs[LM_BATCH_MAX], most = index == 0 ? 1 : plan->jobs_each;
    for (uint32_t j = 0; j < most; j++) {
        if (lm_jobs_next(&workers[index], jobs) != 1) machine_fail("not one job");
        taken[lm_job_slot(jobs[0])]++;
    }
}

static void open_node(uint32_t n, uint32_t threads) {
    struct lm_node *node = &shared.nodes[n];
    *node = (struct lm_node){.index = n,
                             .thread_count = threads,
                             .worker_count = threads,
                             .other_count = 1,
                             .others = {&shared.nodes[1 - n]},
                             .lines[0] = {.workers = threads, .workers_sleep = true}};
    lm_store_relaxed_u64(&node->line, (uintptr_t)&node->lines[0]);
    if (lm_queue_open(&node->lines[0].queue, plan->queue, JOBS_MAX, 1, 1000))
        machine_fail("no queue");
}

static void set_up(uint32_t variant, bool weak) {
    (void)weak;
    plan = &plans[variant];
    memset(&shared, 0, sizeof shared);
    memset(&io, 0, sizeof io);
    memset(taken, 0, sizeof taken);
    shared.config.idle = LUMEN_IDLE_PARK;
    shared.config.queue_type = plan->queue;
    shared.node_count = 2;
    shared.io_count = 1;
    shared.ios = &io;
    open_node(0, 1);
    open_node(1, plan->thieves);
    io.shared = &shared;
    io.node = &shared.nodes[0];
    io.line = &shared.nodes[0].lines[0];
    io.requests = requests;
    model.batch_size = 1;
    for (uint32_t r = 0; r < JOBS_MAX; r++)
        requests[r] = (struct lm_request){.model = &model, .sizes.rows = 1};
    if (lm_spsc_open(&io.ready, JOBS_MAX)) machine_fail("no queue");
    for (uint32_t w = 0; w <= plan->thieves; w++) {
        workers[w] = (struct lm_worker){.shared = &shared,
                                        .node = &shared.nodes[w > 0],
                                        .line = &shared.nodes[w > 0].lines[0],
                                        .stats = &blocks[w],
                                        .index = w};
        machine_add_thread(work, w);
    }
    machine_add_thread(hand_over, 1 + plan->thieves * plan->jobs_each);
}

static void check(void) {
    for (uint32_t t = 0; t <= plan->thieves + 1; t++) {
        if (!machine_finished(t)) machine_fail("thread %u hangs", t);
    }
    for (uint32_t j = 0; j < 1 + plan->thieves * plan->jobs_each && !machine_failure(); j++) {
        if (taken[j] != 1) machine_fail("job %u was taken %u times", j, taken[j]);
    }
    for (uint32_t n = 0; n < 2; n++) lm_queue_close(&shared.nodes[n].lines[0].queue);
    lm_spsc_close(&io.ready);
}

#define STEAL(n, v, p, w, fp, fw) \
    {.name = n,                   \
     .set_up = set_up,            \
     .check = check,              \
     .variant = v,                \
     .preemptions = p,            \
     .weak_preemptions = w,       \
     .full_preemptions = fp,      \
     .full_weak_preemptions = fw}

const struct scenario scenarios_steal[] = {
    STEAL("steal-mpmc-1t", 0, 1, 1, 3, 2),
    STEAL("steal-mpmc-2t", 1, 1, 0, 2, 1),
    STEAL("steal-scq-1t", 2, 2, 1, 3, 2),
};
const uint32_t scenarios_steal_count = sizeof scenarios_steal / sizeof scenarios_steal[0];
