/* rules_own.c: what I/O threads run themselves, and for how long others wait for that. */
#include "rules.h"

static struct talk one, two;

static void own_runs(struct sim_plan *plan) {
    plan->own = true;
    plan->runs[1] = LUMEN_RUN_WORKER;
    plan->runs[2] = LUMEN_RUN_INLINE;
}

static uint64_t runs_of(uint32_t worker) {
    return lm_load_relaxed_u64(&sim_shared.workers[worker].stats->worker.runs);
}

/* So many requests of a model, one after the other. Returns how many of them worker 0 ran, which is
 * a thread; the others ran on the I/O thread. */
static uint64_t ask_many(uint16_t model, uint32_t count) {
    uint64_t before[2] = {runs_of(0), runs_of(1)};
    for (uint64_t n = 0; n < count; n++) {
        talk_asks(&one, &(struct ask){.id = n, .model = model});
        (void)talk_gets(&one, n, LM_STATUS_OK);
    }
    SIM_CHECK(runs_of(0) + runs_of(1) - before[0] - before[1] == count, "other Runs");
    return runs_of(0) - before[0];
}

/* The I/O thread runs a model while that takes no longer than a hand-over, and notices when that
 * changes; what is set for a model holds. */
static void short_runs(void) {
    talk_open(&one);
    SIM_CHECK(ask_many(0, 10) == 0 && ask_many(2, 10) == 0, "a worker ran what is short");
    SIM_CHECK(ask_many(1, 10) == 10, "the I/O thread ran what is the workers'");
    runtime_takes_ns = 4 * LM_SHORT_RUN_NS;
    (void)ask_many(0, 40);
    SIM_CHECK(ask_many(0, 10) == 10, "the I/O thread ran what takes long");
    SIM_CHECK(ask_many(2, 10) == 0, "a worker ran what is the I/O thread's");
    runtime_takes_ns = SIM_US;
    (void)ask_many(0, 60);
    SIM_CHECK(ask_many(0, 10) == 0, "a worker ran what is short again");
}

/* Others are served between the Runs of a turn and those of the next. */
static void a_turn_of_runs(void) {
    enum { BURST = 40 };
    talk_open(&one);
    talk_open(&two);
    runtime_takes_ns = 100 * SIM_US;
    for (uint64_t n = 0; n < BURST; n++) talk_asks(&one, &(struct ask){.id = n, .model = 2});
    pass(20 * SIM_US);
    uint64_t asked_ns = sim_now_ns;
    talk_pings(&two, 1);
    near_ns("an answer beside Runs", sim_now_ns - asked_ns, 0, 2 * (LM_OWN_RUNS_NS + 100 * SIM_US));
    for (uint64_t n = 0; n < BURST; n++) (void)talk_gets(&one, n, LM_STATUS_OK);
    near_ns("all of them", sim_now_ns - asked_ns, BURST * 100 * SIM_US, SIM_MS);
}

/* Asks for a Run of that model that takes `runtime_lies_ns`; returns what somebody else waits for
 * an answer that needs no worker, who asks right behind it. */
static uint64_t wait_beside_a_lie(uint16_t model) {
    talk_asks(&one, &(struct ask){.id = 7, .model = model, .lies = true});
    pass(30 * SIM_US); /* it has come */
    uint64_t asked_ns = sim_now_ns;
    talk_pings(&two, 1);
    uint64_t waited_ns = sim_now_ns - asked_ns;
    (void)talk_gets(&one, 7, LM_STATUS_OK);
    return waited_ns;
}

/* A model that was quick for ever takes long because a request says so. It is the only one that
 * others wait for: whatever the model does from then on, workers do it. */
static void a_model_that_lies(void) {
    talk_open(&one);
    talk_open(&two);
    runtime_lies_ns = 300 * SIM_MS;
    SIM_CHECK(ask_many(0, 40) == 0, "a worker ran what is short");
    near_ns("the first one", wait_beside_a_lie(0), 300 * SIM_MS, SIM_MS);
    SIM_CHECK(IO_MODEL_WORD(0, model_own) == 41, "other words");
    for (int n = 0; n < 5; n++) {
        near_ns("a later one", wait_beside_a_lie(0), 0, SIM_MS);
        SIM_CHECK(ask_many(0, 100) == 100, "the I/O thread runs it again");
    }
    pass(SIM_S);
    SIM_CHECK(IO_MODEL_WORD(0, model_own) == 41, "other words");
    near_ns("what is known of it", IO_MODEL_WORD(0, model_long_run_us) * SIM_US, 300 * SIM_MS,
            SIM_MS);
    SIM_CHECK(ask_many(3, 10) == 0 && IO_MODEL_WORD(3, model_long_run_us) == 0,
              "another model's Runs count");
    for (int n = 0; n < 2; n++) near_ns("what is set", wait_beside_a_lie(2), 300 * SIM_MS, SIM_MS);
    pass(SIM_S);
    SIM_CHECK(IO_MODEL_WORD(2, model_long_run_us) == 0, "what is set is judged");
}

/* Many are here before the first one shows what they take. */
static void many_that_lie(void) {
    enum { BURST = 20 };
    talk_open(&one);
    talk_open(&two);
    SIM_CHECK(ask_many(0, 40) == 0, "a worker ran what is short");
    runtime_lies_ns = 300 * SIM_MS;
    for (uint64_t n = 0; n < BURST; n++)
        talk_asks(&one, &(struct ask){.id = n, .model = 0, .lies = true});
    pass(30 * SIM_US);
    uint64_t asked_ns = sim_now_ns;
    talk_pings(&two, 1);
    near_ns("an answer beside them", sim_now_ns - asked_ns, 300 * SIM_MS, SIM_MS);
    for (uint64_t n = 0; n < BURST; n++) (void)talk_gets(&one, n, LM_STATUS_OK);
}

static void own_batches(struct sim_plan *plan) {
    own_runs(plan);
    plan->batch_size = 4;
}

/* A model that is set to run here takes no other one along, whose Run nobody would judge then. */
static void a_lie_beside_what_is_set(void) {
    talk_open(&one);
    talk_open(&two);
    SIM_CHECK(ask_many(0, 40) == 0 && ask_many(2, 10) == 0, "a worker ran what is short");
    runtime_lies_ns = 300 * SIM_MS;
    talk_asks(&one, &(struct ask){.id = 1, .model = 2});
    talk_asks(&one, &(struct ask){.id = 2, .model = 0, .lies = true});
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    (void)talk_gets(&one, 2, LM_STATUS_OK);
    near_ns("a later one", wait_beside_a_lie(0), 0, SIM_MS);
}

/* As long as may be, and a little longer. */
static void at_the_limit(void) {
    talk_open(&one);
    talk_open(&two);
    SIM_CHECK(ask_many(0, 40) == 0, "a worker ran what is short");
    runtime_lies_ns = LM_LONG_RUN_NS - 100 * SIM_US;
    (void)wait_beside_a_lie(0);
    (void)ask_many(0, 40);
    SIM_CHECK(ask_many(0, 10) == 0, "a worker runs what took no longer than it may");
    runtime_lies_ns = LM_LONG_RUN_NS - 20 * SIM_US;
    runtime_loses_ns = 100 * SIM_US; /* and what was computed before it does not count */
    for (int n = 0; n < 20; n++) (void)wait_beside_a_lie(0);
    runtime_loses_ns = 0;
    (void)ask_many(0, 40);
    SIM_CHECK(ask_many(0, 10) == 0, "a worker runs what computed no longer than it may");
    runtime_lies_ns = LM_LONG_RUN_NS + LM_LONG_RUN_NS / 2;
    (void)wait_beside_a_lie(0);
    SIM_CHECK(ask_many(0, 10) == 10, "the I/O thread runs what took longer than it may");
}

/* A thread that another one takes the core from computes nothing meanwhile. */
static void a_core_that_is_taken(void) {
    talk_open(&one);
    SIM_CHECK(ask_many(0, 40) == 0, "a worker ran what is short");
    for (int n = 0; n < 10; n++) {
        runtime_loses_ns = 20 * SIM_MS;
        (void)ask_many(0, 1);
        runtime_loses_ns = 0;
        (void)ask_many(0, 100);
    }
    SIM_CHECK(ask_many(0, 10) == 0 && IO_MODEL_WORD(0, model_long_run_us) == 0,
              "a worker runs the model of a thread that lost its core");
}

const struct rule rules_of_own[] = {
    {"short runs are the I/O thread's", own_runs, short_runs},
    {"so much of them in a turn", own_runs, a_turn_of_runs},
    {"a model that lies about its time", own_runs, a_model_that_lies},
    {"many that lie", own_runs, many_that_lie},
    {"a lie beside what is set", own_batches, a_lie_beside_what_is_set},
    {"a Run as long as may be", own_runs, at_the_limit},
    {"a core that is taken", own_runs, a_core_that_is_taken},
};
const size_t rules_of_own_count = sizeof rules_of_own / sizeof rules_of_own[0];
