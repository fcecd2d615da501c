/* scenarios_line.c: another line takes the place of one that workers pop from, or sleep beside,
 * while an I/O thread pushes: node.c, reload.h, submit.c, and jobs.c and
 * change_line.
 *
 * No time limit ends a worker's sleep, so that a job which nobody was woken for is found at the
 * end.
 */
#include <string.h>

#include "flow/reload.h"
#include "flow/submit.h"
#include "flow/threads.h"
#include "machine.h"
#include "real.h"
#include "scenario.h"
#include "work/jobs.h"

enum { JOBS = 2 };

struct plan {
    uint32_t before, after, workers, workers_after;
};

static const struct plan plans[] = {
    {.before = LUMEN_QUEUE_MPMC, .after = LUMEN_QUEUE_MPMC, .workers = 1, .workers_after = 1},
    {.before = LUMEN_QUEUE_MPMC, .after = LUMEN_QUEUE_SPSC, .workers = 2, .workers_after = 1},
    {.before = LUMEN_QUEUE_NAIVE, .after = LUMEN_QUEUE_MPMC, .workers = 1, .workers_after = 1},
    {.before = LUMEN_QUEUE_MPMC, .after = LUMEN_QUEUE_NAIVE, .workers = 2, .workers_after = 1},
};

static const struct plan *plan;
static struct lm_shared shared;
static struct lm_io io;
static struct lm_arena arena;
static struct lm_model model;
static struct lm_request requests[JOBS];
static struct lm_worker workers[MACHINE_THREADS_MAX];
static struct lm_stats_block blocks[MACHINE_THREADS_MAX];
static uint32_t taken[JOBS], taken_count, turns, news;
static bool is_changed;

static void turn(void) {
    real_look(&io);
    lm_submit_hand_over(&io);
    turns++;
    machine_unblock(&turns, UINT32_MAX);
}

/* An I/O thread whose first turns bring a job each. */
static void bring(uint32_t unused) {
    (void)unused;
    for (uint32_t j = 0; j < JOBS; j++) {
        if (!lm_spsc_push(&io.ready, j)) machine_fail("no place for what is ready");
        turn();
    }
    for (uint32_t seen = 0; !is_changed || taken_count < JOBS; turn()) {
        if (seen == news) (void)machine_block_until_idle(&news);
        seen = news;
    }
}

static void tell(void) {
    news++;
    machine_unblock(&news, UINT32_MAX);
}

/* server/workers.c's order; and the end. */
static void change(uint32_t unused) {
    (void)unused;
    struct lm_node *node = &shared.nodes[0];
    lumen_config after = shared.config;
    after.queue_type = plan->after;
    if (lm_node_open_line(node, &after, plan->workers_after)) machine_fail("no line");
    lm_node_publish_line(node);
    uint64_t asked = lm_reload_ask(&shared);
    tell();
    for (uint32_t seen = turns; !lm_reload_all_turned(&shared, asked); seen = turns) {
        if (seen == turns) (void)machine_block_until_idle(&turns);
    }
    lm_node_seal_line(node);
    is_changed = true;
    tell();
    while (taken_count < JOBS) machine_block(&taken_count);
    lm_thread_ended(&shared, LUMEN_ROLE_IO);
}

static void work(uint32_t index) {
    uint32_t jobs[LM_BATCH_MAX], count;
    struct lm_worker *worker = &workers[index];
    while ((count = lm_jobs_next(worker, jobs)) > 0 || lm_jobs_change_line(worker)) {
        if (count == 0) continue;
        if (worker->line == &shared.nodes[0].lines[1] && index >= plan->workers_after)
            machine_fail("a worker that is not wanted took a job of the new line");
        for (uint32_t j = 0; j < count; j++) taken[jobs[j]]++;
        taken_count += count;
        machine_unblock(&taken_count, UINT32_MAX);
        tell();
    }
}

static void set_up(uint32_t variant, bool weak) {
    (void)weak;
    plan = &plans[variant];
    struct lm_node *node = &shared.nodes[0];
    memset(&shared, 0, sizeof shared);
    memset(&io, 0, sizeof io);
    memset(taken, 0, sizeof taken);
    lm_store_relaxed_u64(&shared.ios_running, 1);
    taken_count = turns = news = 0;
    is_changed = false;
    shared.config = (lumen_config){.idle = LUMEN_IDLE_PARK,
                                   .queue_type = plan->before,
                                   .queue_capacity = JOBS,
                                   .batch_size = 1};
    shared.node_count = shared.io_count = 1;
    shared.ios = &io;
    node->thread_count = node->worker_count = plan->workers;
    io.shared = &shared;
    io.node = node;
    io.requests = requests;
    io.annexes.arena = &arena;
    model.batch_size = 1;
    for (uint32_t r = 0; r < JOBS; r++)
        requests[r] = (struct lm_request){.model = &model, .sizes.rows = 1};
    if (lm_spsc_open(&io.ready, 2) || lm_node_open(node, &shared.config, node->thread_count, JOBS))
        machine_fail("no line");
    for (uint32_t w = 0; w < plan->workers; w++) {
        workers[w] = (struct lm_worker){
            .shared = &shared, .node = node, .line = node->lines, .stats = &blocks[w], .index = w};
        machine_add_thread(work, w);
    }
    machine_add_thread(bring, 0);
    machine_add_thread(change, 0);
}

static void check(void) {
    for (uint32_t t = 0; t < plan->workers + 2; t++) {
        if (!machine_finished(t)) machine_fail("thread %u has not ended", t);
    }
    for (uint32_t j = 0; j < JOBS; j++) {
        if (taken[j] != 1) machine_fail("job %u was taken %u times", j, taken[j]);
    }
    lm_spsc_close(&io.ready);
    lm_node_close(&shared.nodes[0]);
}

#define LINE(n, v, p, w, fp, fw) \
    {.name = n,                  \
     .set_up = set_up,           \
     .check = check,             \
     .variant = v,               \
     .preemptions = p,           \
     .weak_preemptions = w,      \
     .full_preemptions = fp,     \
     .full_weak_preemptions = fw}

const struct scenario scenarios_line[] = {
    LINE("line-mpmc", 0, 1, 0, 2, 1),
    LINE("line-mpmc-drawn", 0, SCENARIO_DRAWN, SCENARIO_SKIPPED, SCENARIO_DRAWN, SCENARIO_SKIPPED),
    LINE("line-to-spsc", 1, 0, SCENARIO_SKIPPED, 1, 0),
    LINE("line-to-spsc-drawn", 1, SCENARIO_DRAWN, SCENARIO_SKIPPED, SCENARIO_DRAWN, 0),
    LINE("line-from-naive", 2, 1, 0, 2, 1),
    LINE("line-to-naive", 3, 0, SCENARIO_SKIPPED, 1, 0),
};
const uint32_t scenarios_line_count = sizeof scenarios_line / sizeof scenarios_line[0];
