/* scenarios_sleep.c: workers that sleep and producers that wake them: jobs.c
 * with chain_wake, waitset.c, threads.c's lm_thread_ended, and the waiting inside queue_naive.c.
 *
 * A worker that has taken its job is busy for good: it may not come back for what it left behind,
 * so that a value nobody was woken for stays in the queue and is found there.
 */
#include <stdlib.h>
#include <string.h>

#include "flow/submit.h"
#include "flow/threads.h"
#include "machine.h"
#include "real.h"
#include "scenario.h"
#include "work/jobs.h"
#include "world.h"

struct plan {
    uint32_t queue;
    uint32_t producers, jobs_each, workers;
    uint32_t batch, most; /* of the blocking queues */
    uint32_t gather;      /* rows of a batch that workers put together themselves */
    bool hands_over;      /* one more job than the queue has places, each in its slot */
    bool stops;           /* workers take all they can until the producers' end ends them */
};

static const struct plan plans[] = {
    {.queue = LUMEN_QUEUE_MPMC, .producers = 1, .jobs_each = 2, .workers = 2},
    {.queue = LUMEN_QUEUE_MPMC, .producers = 2, .jobs_each = 1, .workers = 2},
    {.queue = LUMEN_QUEUE_SCQ, .producers = 2, .jobs_each = 1, .workers = 2},
    {.queue = LUMEN_QUEUE_SPSC, .producers = 1, .jobs_each = 1, .workers = 1},
    {.queue = LUMEN_QUEUE_MPMC, .producers = 1, .jobs_each = 1, .workers = 2, .stops = true},
    {.queue = LUMEN_QUEUE_NAIVE, .producers = 2, .jobs_each = 1, .workers = 2, .most = 1},
    {.queue = LUMEN_QUEUE_NAIVE,
     .producers = 1,
     .jobs_each = 1,
     .workers = 2,
     .most = 1,
     .stops = true},
    {.queue = LUMEN_QUEUE_BATCHED,
     .producers = 2,
     .jobs_each = 1,
     .workers = 2,
     .batch = 2,
     .most = 1},
    {.queue = LUMEN_QUEUE_BATCHED,
     .producers = 1,
     .jobs_each = 3,
     .workers = 2,
     .batch = 2,
     .most = 2},
    {.queue = LUMEN_QUEUE_MPMC, .producers = 2, .jobs_each = 1, .workers = 2, .stops = true},
    {.queue = LUMEN_QUEUE_MPMC, .producers = 1, .jobs_each = 3, .workers = 2, .gather = 2},
    {.queue = LUMEN_QUEUE_MPMC,
     .producers = 1,
     .jobs_each = 3,
     .workers = 2,
     .stops = true,
     .hands_over = true},
};

static const struct plan *plan;
static struct lm_shared shared;
static struct lm_io io;
static struct lm_model model;
static struct lm_request requests[8]; /* by job */
static struct lm_worker workers[MACHINE_THREADS_MAX];
static struct lm_stats_block blocks[MACHINE_THREADS_MAX];
static uint32_t taken[8], taken_count, pushed;

/* receive.c:submit through what is ready; a slot is used again when its job was taken. */
static void hand_over(uint32_t job) {
    enum { SLOTS = 2 };
    while (job >= taken_count + SLOTS) machine_block(&taken_count);
    if (!lm_spsc_push(&io.ready, job)) machine_fail("no place for what is ready");
    lm_submit_hand_over(&io);
    /* io.c:wait_for_work: refused pushes are tried again soon. */
    while (lm_spsc_depth(&io.ready) > 0) {
        machine_yield();
        lm_submit_hand_over(&io);
    }
}

/* Push, then wake one; and lm_thread_ended of the last I/O thread. */
static void produce(uint32_t producer) {
    for (uint32_t j = 0; j < plan->jobs_each; j++) {
        if (plan->hands_over) {
            hand_over(j);
            pushed++;
            continue;
        }
        if (!lm_queue_push(&shared.nodes[0].lines[0].queue, producer * plan->jobs_each + j)) {
            machine_fail("full with room for every job");
        }
        pushed++;
        if (shared.nodes[0].lines[0].workers_sleep) lm_waitset_wake_one(&shared.nodes[0].waitset);
    }
    /* io.c:drained: the end comes when no request is out any more. */
    while (plan->stops && taken_count < plan->producers * plan->jobs_each) {
        machine_block(&taken_count);
    }
    if (plan->stops) lm_thread_ended(&shared, LUMEN_ROLE_IO);
}

static void consume(uint32_t index) {
    uint32_t jobs[LM_BATCH_MAX], count;
    do {
        count = lm_queue_blocks(&shared.nodes[0].lines[0].queue)
                    ? lm_queue_pop_wait(&shared.nodes[0].lines[0].queue, jobs, plan->most)
                    : lm_jobs_next(&workers[index], jobs);
        for (uint32_t j = 0; j < count; j++) taken[jobs[j]]++;
        taken_count += count;
        machine_unblock(&taken_count, UINT32_MAX);
    } while (plan->stops && count > 0);
}

static void set_up(uint32_t variant, bool weak) {
    (void)weak;
    plan = &plans[variant];
    lm_waitset_init(&shared.nodes[0].waitset);
    shared.config.idle = LUMEN_IDLE_PARK;
    shared.config.queue_type = plan->queue;
    shared.node_count = 1;
    shared.io_count = plan->producers;
    shared.nodes[0].lines[0].workers_sleep =
        plan->queue != LUMEN_QUEUE_NAIVE && plan->queue != LUMEN_QUEUE_BATCHED;
    shared.nodes[0].lines[0].workers = plan->workers;
    lm_store_relaxed_u64(&shared.nodes[0].line, (uintptr_t)&shared.nodes[0].lines[0]);
    io.line = &shared.nodes[0].lines[0];
    memset(&shared.workers_stop, 0, sizeof shared.workers_stop);
    lm_store_relaxed_u64(&shared.ios_running, plan->producers);
    memset(taken, 0, sizeof taken);
    pushed = taken_count = 0;
    shared.ios = &io;
    io.shared = &shared;
    io.node = &shared.nodes[0];
    io.requests = requests;
    model.batch_size = plan->gather ? plan->gather : 1;
    model.batch_delay_ns = plan->gather ? 1000 : 0;
    for (uint32_t r = 0; r < 8; r++)
        requests[r] = (struct lm_request){.model = &model, .sizes.rows = 1};
    if (plan->hands_over && lm_spsc_open(&io.ready, 2)) machine_fail("no queue");
    uint32_t capacity = plan->producers * plan->jobs_each > 2 && !plan->hands_over ? 4 : 2;
    if (lm_queue_open(&shared.nodes[0].lines[0].queue, plan->queue, capacity,
                      plan->batch ? plan->batch : 1, 1000))
        machine_fail("no queue");
    for (uint32_t w = 0; w < plan->workers; w++) {
        workers[w] = (struct lm_worker){.shared = &shared,
                                        .node = &shared.nodes[0],
                                        .line = &shared.nodes[0].lines[0],
                                        .stats = &blocks[w],
                                        .index = w};
        machine_add_thread(consume, w);
    }
    for (uint32_t p = 0; p < plan->producers; p++) machine_add_thread(produce, p);
}

static void check(void) {
    uint32_t value;
    for (uint32_t p = 0; p < plan->producers; p++) {
        if (!machine_finished(plan->workers + p)) machine_fail("producer %u hangs", p);
    }
    for (uint32_t w = 0; plan->stops && w < plan->workers; w++) {
        if (!machine_finished(w)) machine_fail("worker %u sleeps on after the end", w);
    }
    uint32_t idle = 0;
    for (uint32_t w = 0; w < plan->workers; w++) idle += !machine_finished(w);
    if (!machine_failure() && lm_queue_depth(&shared.nodes[0].lines[0].queue) > 0 &&
        (idle > 0 || plan->stops)) {
        machine_fail("lost wake-up: %u jobs wait, %u workers sleep",
                     lm_queue_depth(&shared.nodes[0].lines[0].queue), idle);
    }
    while (!machine_failure() && !lm_queue_blocks(&shared.nodes[0].lines[0].queue) &&
           lm_queue_pop(&shared.nodes[0].lines[0].queue, &value)) {
        taken[value]++;
    }
    for (uint32_t j = 0; j < pushed && plan->jobs_each * plan->producers == pushed; j++) {
        if (plan->queue != LUMEN_QUEUE_BATCHED && taken[j] != 1) {
            machine_fail("job %u was taken %u times", j, taken[j]);
        }
    }
    lm_queue_close(&shared.nodes[0].lines[0].queue);
    if (plan->hands_over) lm_spsc_close(&io.ready);
}

#define SLEEP(n, v, fails, p, w, fp, fw) \
    {.name = n,                          \
     .set_up = set_up,                   \
     .check = check,                     \
     .variant = v,                       \
     .must_fail = fails,                 \
     .preemptions = p,                   \
     .weak_preemptions = w,              \
     .full_preemptions = fp,             \
     .full_weak_preemptions = fw}

const struct scenario scenarios_sleep[] = {
    SLEEP("sleep-mpmc-1p", 0, NULL, 2, 1, 3, 2),
    SLEEP("sleep-mpmc-1p-drawn", 0, NULL, SCENARIO_DRAWN, 1, SCENARIO_DRAWN, 1),
    SLEEP("sleep-mpmc-2p", 1, NULL, 2, 1, 3, 2),
    SLEEP("sleep-mpmc-2p-drawn", 1, NULL, SCENARIO_DRAWN, 1, SCENARIO_DRAWN, 1),
    SLEEP("sleep-gather", 10, NULL, 1, 1, 3, 1),
    SLEEP("sleep-gather-drawn", 10, NULL, SCENARIO_DRAWN, 0, SCENARIO_DRAWN, 1),
    SLEEP("sleep-scq-2p", 2, NULL, 1, 1, 2, 2),
    SLEEP("sleep-spsc", 3, NULL, 3, 2, 5, 4),
    SLEEP("hand-over", 11, NULL, 1, 0, 2, 1),
    SLEEP("stop-mpmc", 4, NULL, 2, 1, 3, 2),
    SLEEP("stop-mpmc-2p", 9, NULL, 1, 0, 2, 1),
    SLEEP("stop-naive", 6, NULL, 3, 1, 5, 1),
    SLEEP("wait-naive", 5, NULL, 3, 1, 5, 1),
    SLEEP("wait-batched", 8, NULL, 3, 1, 5, 1),
    SLEEP("wait-batched-hand-on", 7, NULL, 3, 1, 5, 1),
};
const uint32_t scenarios_sleep_count = sizeof scenarios_sleep / sizeof scenarios_sleep[0];
