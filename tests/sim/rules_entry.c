/* rules_entry.c: who may enter, and who waits for what: places, slots, descriptors, batches, rates,
 * and what a request is charged with.
 */
#include <stdlib.h>
#include <string.h>

#include "rules.h"

static struct talk one, two, three;

/* ---- descriptors and batches ---- */

static void three_descriptors(struct sim_plan *plan) {
    plan->descriptors = 3; /* the listener's and two */
}

/* A connection without a descriptor is accepted a little later, or when another one closes. */
static void no_descriptor(void) {
    talk_open(&one);
    talk_open(&two);
    pass(SIM_MS);
    talk_open(&three);
    pass(SIM_MS);
    SIM_CHECK(!three.peer->served, "a descriptor too many");
    peer_client_close(one.peer, false);
    pass(3 * SIM_MS);
    SIM_CHECK(three.peer->served, "it waits although a descriptor is free");
    talk_open(&one);
    pass(SIM_MS);
    sim_plan.descriptors = 4; /* some other part of the process has closed one */
    pass(50 * SIM_MS);
    SIM_CHECK(!one.peer->served, "it looks all the time");
    pass((LM_ACCEPT_PAUSE_MS + LM_IDLE_TICK_MS) * SIM_MS);
    SIM_CHECK(one.peer->served, "it does not look again");
}

static void one_per_address(struct sim_plan *plan) {
    plan->per_address = 1;
    plan->connections = 3;
    plan->header_ms = 500;
}

/* Two of one address, and one too many of all; each place is somebody else's when it is left. */
static void too_many_connections(void) {
    static struct talk four;
    talk_open(&one);
    talk_pings(&one, 1);
    talk_open(&two);
    talk_pings(&two, 2);
    talk_open(&three); /* from the address of the first */
    talk_ends(&three, 0, SIM_MS);
    talk_open(&three);
    talk_pings(&three, 3);
    talk_open(&four); /* there are three */
    talk_ends(&four, 0, SIM_MS);
    counts("io.connections_accepted=4 io.connections_closed=1 io.connections_refused=1 "
           "io.connections_crowded=1 io.connections_open=3 io.requests=3 io.native_requests=3 "
           "io.requests_ok=3 io.bytes_in=96 io.bytes_out=144");
    talk_close(&one);
    talk_close(&three);
    for (int n = 0; n < 2; n++) { /* the second one is of the first one's address */
        talk_open(&four);
        talk_pings(&four, 4);
    }
    talk_text(&four, "LMN1"); /* who is timed out has none any more either */
    talk_ends(&four, 500 * SIM_MS, 500 * SIM_MS + SLACK_NS);
    for (int n = 0; n < 2; n++) {
        talk_open(&one);
        talk_pings(&one, 5);
        if (n == 0) talk_close(&one);
    }
}

static void two_at_a_time(struct sim_plan *plan) {
    plan->slots = 8;
    sim_limits.pipeline_max = 2;
}

/* The next request of a full pipeline is read as soon as there is room, not at some later look. */
static void a_full_pipeline(void) {
    talk_open(&one);
    runtime_takes_ns = 40 * SIM_MS;
    uint64_t asked_ns = sim_now_ns;
    for (uint64_t n = 1; n <= 5; n++) talk_asks(&one, &(struct ask){.id = n});
    for (uint64_t n = 1; n <= 5; n++) (void)talk_gets(&one, n, LM_STATUS_OK);
    near_ns("five Runs", sim_now_ns - asked_ns, 200 * SIM_MS, SIM_MS);
    talk_asks(&one, &(struct ask){.id = 6});
    peer_client_finish(one.peer); /* it sends no more: its connection ends with its answer */
    talk_ends(&one, 40 * SIM_MS - SIM_US, 41 * SIM_MS);
    (void)talk_gets(&one, 6, LM_STATUS_OK);
}

static void four_in_a_batch(struct sim_plan *plan) {
    plan->batch_size = 4;
    plan->batch_delay_ns = 2 * SIM_MS;
}

/* The delay is the first one's: nobody begins it anew, and who fills the batch ends it. */
static void a_batch_waits(void) {
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    uint64_t asked_ns = sim_now_ns;
    talk_asks(&one, &(struct ask){.id = 1});
    pass(1200 * SIM_US);
    talk_asks(&two, &(struct ask){.id = 2, .rows = 2});
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    near_ns("the batch", sim_now_ns - asked_ns, 2100 * SIM_US, 150 * SIM_US);
    (void)talk_gets(&two, 2, LM_STATUS_OK);
    SIM_CHECK(WORKER_WORD(runs) == 1 && WORKER_WORD(batches) == 1, "two Runs");
    asked_ns = sim_now_ns;
    talk_asks(&one, &(struct ask){.id = 3});
    pass(2600 * SIM_US);
    talk_asks(&two, &(struct ask){.id = 4, .rows = 2});
    (void)talk_gets(&two, 4, LM_STATUS_OK);
    (void)talk_gets(&one, 3, LM_STATUS_OK);
    SIM_CHECK(WORKER_WORD(runs) == 3 && WORKER_WORD(batches) == 1, "one Run");
    asked_ns = sim_now_ns;
    talk_asks(&one, &(struct ask){.id = 5});
    talk_asks(&two, &(struct ask){.id = 6, .rows = 3});
    (void)talk_gets(&one, 5, LM_STATUS_OK);
    (void)talk_gets(&two, 6, LM_STATUS_OK);
    near_ns("a full batch", sim_now_ns - asked_ns, 100 * SIM_US, 100 * SIM_US);
    SIM_CHECK(WORKER_WORD(runs) == 4 && WORKER_WORD(batches) == 2, "two Runs");
}

/* ---- what may enter ---- */

/* The refusal that comes next names when an answer was expected. */
static void says_about(struct talk *talk, uint64_t expected_ns, uint64_t within_ns) {
    talk_reads(talk, LM_NATIVE_REPLY_BYTES + 50, SIM_S);
    near_ns("the estimate",
            number_after((char *)talk->in + LM_NATIVE_REPLY_BYTES, "about ") * SIM_US, expected_ns,
            within_ns);
}

/* A model's cost is learnt and charged by the row, whatever the request before it had. */
static void cost_by_the_row(void) {
    talk_open(&one);
    talk_open(&two);
    runtime_takes_ns = 80 * SIM_MS; /* 8 rows of 10 ms each */
    for (int n = 0; n < 60; n++) {
        talk_asks(&one, &(struct ask){.id = 1, .rows = 8});
        (void)talk_gets(&one, 1, LM_STATUS_OK);
    }
    runtime_takes_ns = 10 * SIM_MS;
    talk_asks(&one, &(struct ask){.id = 2, .timeout_us = 14000});
    (void)talk_gets(&one, 2, LM_STATUS_OK);
    runtime_takes_ns = 80 * SIM_MS;
    talk_asks(&one, &(struct ask){.id = 3, .rows = 8, .timeout_us = 110000});
    (void)talk_gets(&one, 3, LM_STATUS_OK);
    talk_asks(&one, &(struct ask){.id = 4, .rows = 8, .timeout_us = 70000});
    (void)talk_gets(&one, 4, LM_STATUS_OK); /* a probe */
    talk_asks(&one, &(struct ask){.id = 11, .rows = 8, .timeout_us = 93000});
    says_about(&one, 80 * SIM_MS, 2 * SIM_MS);
    (void)talk_gets(&one, 11, LM_STATUS_DEADLINE); /* a Run may take a quarter longer */
    talk_asks(&one, &(struct ask){.id = 5, .rows = 8, .timeout_us = 70000});
    (void)talk_gets(&one, 5, LM_STATUS_DEADLINE);
    pass(200 * SIM_MS);
    talk_asks(&one, &(struct ask){.id = 6, .rows = 8, .timeout_us = 70000});
    (void)talk_gets(&one, 6, LM_STATUS_DEADLINE);
    SIM_CHECK(IO_WORD(requests_late) == 3 && WORKER_WORD(requests_expired) == 0,
              "a worker was asked first");
    pass(150 * SIM_MS); /* four times the estimate after the probe */
    talk_asks(&one, &(struct ask){.id = 7, .rows = 8, .timeout_us = 70000});
    (void)talk_gets(&one, 7, LM_STATUS_OK);
    /* A request with the workers counts with its rows. */
    talk_asks(&one, &(struct ask){.id = 8, .rows = 4});
    pass(SIM_MS);
    talk_asks(&two, &(struct ask){.id = 9, .timeout_us = 45000});
    says_about(&two, 50 * SIM_MS, 2 * SIM_MS);
    (void)talk_gets(&two, 9, LM_STATUS_DEADLINE);
    talk_asks(&two, &(struct ask){.id = 10, .timeout_us = 62000});
    (void)talk_gets(&one, 8, LM_STATUS_OK);
}

static void learn(uint16_t model, uint32_t rows, uint64_t run_ns) {
    runtime_takes_ns = run_ns;
    for (int n = 0; n < 60; n++) {
        talk_asks(&one, &(struct ask){.id = 1, .model = model, .rows = rows});
        (void)talk_gets(&one, 1, LM_STATUS_OK);
    }
}

/* One Run that takes very long raises the estimate by less than a half; and no estimate keeps
 * requests out for more than ten seconds. */
static void an_estimate(void) {
    talk_open(&one);
    learn(0, 1, 10 * SIM_MS);
    runtime_takes_ns = 10 * SIM_S;
    uint64_t asked_ns = 0;
    for (uint64_t id = 2; id <= 4; id++) {
        asked_ns = sim_now_ns;
        talk_asks(&one, &(struct ask){.id = id, .timeout_us = id == 4 ? 11000 : 0});
        (void)talk_gets(&one, id, id == 4 ? LM_STATUS_DEADLINE : LM_STATUS_OK);
    }
    pass(asked_ns + 10020 * SIM_MS - sim_now_ns); /* the last one, a probe, has come back */
    talk_asks(&one, &(struct ask){.id = 5, .timeout_us = 11000});
    says_about(&one, 29700 * SIM_US, 500 * SIM_US);
    (void)talk_gets(&one, 5, LM_STATUS_DEADLINE);
    learn(1, 1, 3 * SIM_S);
    talk_asks(&one, &(struct ask){.id = 4, .model = 1, .timeout_us = 2990000});
    (void)talk_gets(&one, 4, LM_STATUS_OK); /* a probe, late but not overdue */
    pass(9900 * SIM_MS);
    talk_asks(&one, &(struct ask){.id = 5, .model = 1, .timeout_us = 2990000});
    (void)talk_gets(&one, 5, LM_STATUS_DEADLINE);
    pass(200 * SIM_MS);
    talk_asks(&one, &(struct ask){.id = 6, .model = 1, .timeout_us = 2990000});
    (void)talk_gets(&one, 6, LM_STATUS_OK);
}

/* In the queue a request may become one that cannot be answered in time: it is not run. */
static void late_in_the_queue(void) {
    talk_open(&one);
    talk_open(&two);
    learn(0, 8, 80 * SIM_MS);
    for (uint64_t id = 2; id < 22; id++) {
        runtime_takes_ns = 50 * SIM_MS; /* of a model that was quick up to now */
        talk_asks(&one, &(struct ask){.id = id, .model = 3});
        pass(SIM_MS);
        runtime_takes_ns = 80 * SIM_MS;
        talk_asks(&two, &(struct ask){.id = id, .rows = 8, .timeout_us = 111000});
        talk_reads(&two, LM_NATIVE_REPLY_BYTES + 50, SIM_S);
        if (id == 2)
            near_ns("left",
                    number_after((char *)two.in + LM_NATIVE_REPLY_BYTES, "passes in ") * SIM_US,
                    62 * SIM_MS, SIM_MS);
        (void)talk_gets(&two, id, LM_STATUS_DEADLINE);
        (void)talk_gets(&one, id, LM_STATUS_OK);
        if (id == 2)
            SIM_CHECK(WORKER_WORD(requests_expired) == 1 &&
                          WORKER_MODEL_WORD(0, model_expired) == 1 && IO_WORD(requests_late) == 0,
                      "other words");
        pass(SIM_S);
        learn(3, 1, SIM_US);
    }
    /* A request that was not run changes no estimate. */
    runtime_takes_ns = 80 * SIM_MS;
    talk_asks(&one, &(struct ask){.id = 30, .rows = 8, .timeout_us = 60000});
    (void)talk_gets(&one, 30, LM_STATUS_OK); /* a probe */
    talk_asks(&one, &(struct ask){.id = 31, .rows = 8, .timeout_us = 60000});
    says_about(&one, 80 * SIM_MS, 2 * SIM_MS);
}

static void two_workers(struct sim_plan *plan) {
    plan->worker_count = 2;
}

/* The work in flight is shared out over the workers. A slow body counts again, with all its rows,
 * when it is whole. */
static void cost_over_two_workers(void) {
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    learn(0, 8, 80 * SIM_MS);
    talk_asks(&one, &(struct ask){.id = 2, .rows = 8});
    talk_asks(&two, &(struct ask){.id = 3, .rows = 8, .most = 100});
    pass(400 * SIM_MS);
    (void)talk_gets(&one, 2, LM_STATUS_OK);
    talk_asks(&one, &(struct ask){.id = 4, .rows = 8});
    static const uint8_t rest[60] = {0};
    talk_send(&two, rest, sizeof rest);
    pass(SIM_MS);
    talk_asks(&three, &(struct ask){.id = 5, .timeout_us = 50000});
    says_about(&three, 90 * SIM_MS, 2 * SIM_MS);
    (void)talk_gets(&three, 5, LM_STATUS_DEADLINE);
    (void)talk_gets(&one, 4, LM_STATUS_OK);
    (void)talk_gets(&two, 3, LM_STATUS_OK);
}

static void two_cores_each(struct sim_plan *plan) {
    plan->worker_count = plan->width = 2;
}

static uint64_t runs_wide(void) {
    uint64_t sum = 0;
    for (uint32_t w = 0; w < sim_shared.worker_count; w++)
        sum += lm_load_relaxed_u64(&sim_shared.workers[w].stats->worker.runs_wide);
    return sum;
}

/* A probe has no cost, and the cores of a Run that is long all the same. */
static void probes_are_wide(void) {
    talk_open(&one);
    ((struct lm_model *)sim_models.models[0])->wide.only_long = true;
    learn(0, 8, 80 * SIM_MS);
    const uint64_t wide = runs_wide();
    for (uint64_t n = 2; n < 12; n++) {
        pass(SIM_S);
        talk_asks(&one, &(struct ask){.id = n, .rows = 8, .timeout_us = 70000});
        (void)talk_gets(&one, n, LM_STATUS_OK);
    }
    SIM_CHECK(runs_wide() == wide + 10, "a narrow probe");
}

static void two_in_five_seconds(struct sim_plan *plan) {
    plan->rate = 0.4; /* 20 at once: engine.c */
}

/* A client over its rate hears when there is a token again: over HTTP in whole seconds. */
static void rates(void) {
    static const char tensor[] = "0123456789abcdef";
    talk_open(&one);
    talk_open(&two);
    for (uint64_t n = 1; n <= 20; n++) {
        talk_asks(&one, &(struct ask){.id = n});
        (void)talk_gets(&one, n, LM_STATUS_OK);
    }
    talk_requests(&two, "POST /v2/models/tiny/infer", "Inference-Header-Content-Length: 0\r\n",
                  tensor);
    talk_answered(&two, 429, "Retry-After: 3\r\n");
    pass(SIM_S);
    talk_asks(&one, &(struct ask){.id = 21});
    talk_reads(&one, LM_NATIVE_REPLY_BYTES + 40, SIM_S);
    near_ns("the sentence",
            number_after((char *)one.in + LM_NATIVE_REPLY_BYTES, "try again in ") * SIM_MS,
            1500 * SIM_MS, 10 * SIM_MS);
    (void)talk_gets(&one, 21, LM_STATUS_RATE_LIMITED);
    pass(1490 * SIM_MS);
    talk_asks(&one, &(struct ask){.id = 22, .model = 3});
    (void)talk_gets(&one, 22, LM_STATUS_RATE_LIMITED);
    pass(20 * SIM_MS);
    talk_asks(&one, &(struct ask){.id = 23});
    (void)talk_gets(&one, 23, LM_STATUS_OK);
    SIM_CHECK(IO_WORD(requests_limited) == 3 && IO_WORD(requests_refused) == 3 &&
                  IO_MODEL_WORD(0, model_refused) == 2 && IO_MODEL_WORD(3, model_refused) == 1,
              "other words");
}

static void eight_places(struct sim_plan *plan) {
    plan->in_flight_max = 8;
    plan->slots = 32;
}

static void one_and_refused(struct sim_plan *plan) {
    plan->in_flight_max = 1;
    plan->switch_one_in = 2; /* also between a reply and the slot's return */
}

/* A client may ask again as soon as it has its answer, over both protocols. */
static void again_at_once(void) {
    static const char tensor[] = "0123456789abcdef";
    talk_open(&one);
    talk_open(&two);
    for (uint64_t n = 0; n < 20; n++) {
        talk_asks(&one, &(struct ask){.id = n});
        (void)talk_gets(&one, n, LM_STATUS_OK);
        talk_requests(&two, "POST /v2/models/tiny/infer", "Inference-Header-Content-Length: 0\r\n",
                      tensor);
        talk_answered(&two, 200, "\"outputs\"");
    }
}

/* All places are to be had by those whose bytes are here, and one more is told how many there are.
 */
static void places(void) {
    talk_open(&one);
    talk_open(&two);
    runtime_takes_ns = SIM_S;
    for (uint64_t n = 1; n <= 8; n++) talk_asks(&one, &(struct ask){.id = n});
    pass(10 * SIM_MS);
    SIM_CHECK(lm_places_taken(&sim_shared.places) == 8, "%u places are taken",
              lm_places_taken(&sim_shared.places));
    talk_asks(&two, &(struct ask){.id = 9, .model = 3});
    talk_reads(&two, LM_NATIVE_REPLY_BYTES + 40, SIM_S);
    SIM_CHECK(number_after((char *)two.in + LM_NATIVE_REPLY_BYTES, "full: ") == 8,
              "another number");
    (void)talk_gets(&two, 9, LM_STATUS_OVERLOADED);
    for (uint64_t n = 1; n <= 8; n++) (void)talk_gets(&one, n, LM_STATUS_OK);
    talk_asks(&two, &(struct ask){.id = 10, .model = 3});
    (void)talk_gets(&two, 10, LM_STATUS_OK);
    pass(SIM_S);
    counts("io.connections_accepted=2 io.connections_open=2 io.requests=10 "
           "io.native_requests=10 io.requests_refused=1 io.requests_overloaded=1 "
           "io.bytes_in=488 io.bytes_out=115 tiny.model_queued=8 pair.model_queued=1 "
           "pair.model_refused=1 worker.requests_ok=9 worker.rows=9 worker.runs=9 "
           "worker.bytes_out=580 tiny.model_ok=8 tiny.model_rows=8 tiny.model_runs=8 "
           "pair.model_ok=1 pair.model_rows=1 pair.model_runs=1");
}

static void pairs_of_rows(struct sim_plan *plan) {
    plan->batch_size = 2;
    plan->batch_delay_ns = SIM_MS;
}

/* Each request of a batch is charged with its rows of the Run. */
static void cost_in_a_batch(void) {
    talk_open(&one);
    talk_open(&two);
    runtime_takes_ns = 20 * SIM_MS;
    for (int n = 0; n < 40; n++) {
        talk_asks(&one, &(struct ask){.id = 1});
        talk_asks(&two, &(struct ask){.id = 2});
        (void)talk_gets(&one, 1, LM_STATUS_OK);
        (void)talk_gets(&two, 2, LM_STATUS_OK);
    }
    SIM_CHECK(WORKER_WORD(batches) == 40, "no batches");
    talk_asks(&one, &(struct ask){.id = 3, .timeout_us = 11000});
    (void)talk_gets(&one, 3, LM_STATUS_OK); /* a probe, which takes longer */
    talk_asks(&one, &(struct ask){.id = 4, .timeout_us = 11000});
    says_about(&one, 10 * SIM_MS, 2 * SIM_MS);
}

const struct rule rules_of_entry[] = {
    {"cost in a batch", pairs_of_rows, cost_in_a_batch},
    {"no descriptor", three_descriptors, no_descriptor},
    {"a full pipeline", two_at_a_time, a_full_pipeline},
    {"too many connections", one_per_address, too_many_connections},
    {"a batch waits", four_in_a_batch, a_batch_waits},
    {"cost by the row", NULL, cost_by_the_row},
    {"cost over two workers", two_workers, cost_over_two_workers},
    {"an estimate", NULL, an_estimate},
    {"late in the queue", NULL, late_in_the_queue},
    {"probes are wide", two_cores_each, probes_are_wide},
    {"rates", two_in_five_seconds, rates},
    {"again at once", one_and_refused, again_at_once},
    {"places", eight_places, places},
};
const size_t rules_of_entry_count = sizeof rules_of_entry / sizeof rules_of_entry[0];
