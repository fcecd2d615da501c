/* rules_slot_wait.c: requests that wait while few slots and places are free: for what, for how
 * long, which connection makes room; and what a turn does first.
 */
#include <string.h>

#include "rules.h"

static struct talk one, two, three;

static void one_place(struct sim_plan *plan) {
    plan->in_flight_max = 1;
    plan->overload = LUMEN_OVERLOAD_WAIT;
    plan->header_ms = 1000;
    plan->body_bytes_per_s = 1000;
}

/* One request has the only place for ten seconds; two more clients are connected. Returns the time.
 */
static uint64_t only_place_taken(void) {
    runtime_takes_ns = 10 * SIM_S;
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    talk_asks(&one, &(struct ask){.id = 1, .model = 1, .rows = 3});
    pass(100 * SIM_MS);
    return sim_now_ns;
}

/* A whole request waits for the only place until its own deadline, not 250 ms longer. */
static void a_whole_request_waits(void) {
    uint64_t asked_ns = only_place_taken();
    talk_asks(&two, &(struct ask){.id = 2, .model = 1, .rows = 3, .timeout_us = 700000});
    talk_asks(&three, &(struct ask){.id = 3, .model = 1, .rows = 3, .timeout_us = 400000});
    (void)talk_gets(&three, 3, LM_STATUS_DEADLINE);
    near_ns("the first deadline", sim_now_ns - asked_ns, 400 * SIM_MS + 4 * SIM_MS, 8 * SIM_MS);
    (void)talk_gets(&two, 2, LM_STATUS_DEADLINE);
    near_ns("the second deadline", sim_now_ns - asked_ns, 700 * SIM_MS + 4 * SIM_MS, 8 * SIM_MS);
    pass(SIM_MS); /* what was refused is read */
    counts("io.connections_accepted=3 io.connections_open=3 io.requests=3 io.native_requests=3 "
           "io.requests_refused=2 io.requests_late=2 io.in_flight=1 io.bytes_in=10896 "
           "io.bytes_out=180 io.slots_in_use=1 io.slot_waits=2 wide.model_queued=1 "
           "wide.model_refused=2");
}

/* Requests that wait are refused once the slots that they need are closed, as those of an annex are
 * when its model goes: nobody knows whether there will be such slots again. */
static void slots_that_go(void) {
    static const char json[] = "{\"inputs\": [{\"name\": \"x\", \"shape\": [1, 4], \"datatype\": "
                               "\"FP32\", \"data\": [1, 2, 3, 4]}]}";
    (void)only_place_taken();
    struct lm_arena *arena = &sim_shared.ios[0].arena;
    talk_asks(&two, &(struct ask){.id = 2, .model = 1, .rows = 3});
    talk_requests(&three, "POST /v2/models/tiny/infer", "", json);
    pass(SIM_MS);
    for (uint32_t c = 1; c < arena->class_count; c++) arena->classes[c].closed = true;
    talk_close(&one);
    (void)talk_gets(&two, 2, LM_STATUS_TOO_LARGE);
    talk_answered(&three, 413, "another model was unloaded");
}

/* A request without its body waits until its deadline, or as long as a body may take. */
static void a_body_that_does_not_come(void) {
    uint64_t asked_ns = only_place_taken();
    talk_asks(&two, &(struct ask){.id = 2, .model = 1, .rows = 3, .most = 32});
    talk_asks(&three,
              &(struct ask){.id = 3, .model = 1, .rows = 3, .most = 32, .timeout_us = 700000});
    (void)talk_gets(&three, 3, LM_STATUS_DEADLINE);
    near_ns("the deadline", sim_now_ns - asked_ns, 700 * SIM_MS + SLACK_NS / 2, SLACK_NS / 2);
    (void)talk_gets(&two, 2, LM_STATUS_OVERLOADED);
    near_ns("the patience", sim_now_ns - asked_ns, 5 * SIM_S + SLACK_NS / 2, SLACK_NS / 2);
    counts("io.connections_accepted=3 io.connections_open=3 io.requests=3 io.native_requests=3 "
           "io.requests_refused=2 io.requests_overloaded=1 io.requests_late=1 io.in_flight=1 "
           "io.bytes_in=3696 io.bytes_out=235 io.slots_in_use=1 io.body_waits=2 "
           "wide.model_queued=1 wide.model_refused=2");
}

static void four_places(struct sim_plan *plan) {
    plan->in_flight_max = 4;
    plan->overload = LUMEN_OVERLOAD_WAIT;
}

/* Three clients hold places and do not move. As many are refused as others need, a quarter of a
 * second after they last moved. */
static void who_does_not_move(void) {
    static struct talk slow[3];
    runtime_takes_ns = 2 * SIM_S;
    talk_open(&slow[0]);
    talk_open(&one);
    talk_open(&slow[1]);
    talk_open(&two);
    talk_open(&slow[2]);
    for (uint64_t n = 0; n < 3; n++) {
        talk_asks(&slow[n], &(struct ask){.id = n, .model = 1, .rows = 3, .most = 3000});
        pass(SIM_MS);
    }
    pass(SIM_S);
    talk_asks(&one, &(struct ask){.id = 11, .model = 0});
    pass(SIM_MS);
    uint64_t asked_ns = sim_now_ns;
    talk_asks(&two, &(struct ask){.id = 12, .model = 3});
    pass((LM_SLOW_WINDOW_MS - 2) * SIM_MS);
    SIM_CHECK(IO_WORD(connections_evicted) == 0, "somebody had no time to move");
    (void)talk_gets(&slow[0], 0, LM_STATUS_OVERLOADED);
    near_ns("making room", sim_now_ns - asked_ns, (LM_SLOW_WINDOW_MS + LM_EVICT_PERIOD_MS) * SIM_MS,
            (LM_EVICT_PERIOD_MS + 10) * SIM_MS);
    pass(500 * SIM_MS);
    counts("io.connections_accepted=5 io.connections_closed=1 io.connections_evicted=1 "
           "io.connections_open=4 io.requests=5 io.native_requests=5 "
           "io.requests_refused=1 io.requests_overloaded=1 io.in_flight=4 "
           "io.bytes_in=9100 io.bytes_out=116 io.slots_in_use=4 io.slot_waits=1 "
           "tiny.model_queued=1 wide.model_refused=1 pair.model_queued=1");
    (void)talk_gets(&one, 11, LM_STATUS_OK);
    (void)talk_gets(&two, 12, LM_STATUS_OK);
}

static void brief(struct sim_plan *plan) {
    one_place(plan);
    sim_limits.here_bytes = 1000;
}

/* So many bytes in the socket are enough to wait for a place, and no fewer; a body that is smaller
 * than that is awaited whole, and a credential is no part of it. */
static void bytes_that_are_enough(void) {
    static const uint8_t rest[4000];
    runtime_takes_ns = 2 * SIM_S;
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    talk_asks(&one, &(struct ask){.id = 1});
    pass(100 * SIM_MS);
    talk_asks(&two,
              &(struct ask){.id = 2, .model = 1, .rows = 3, .most = LM_NATIVE_REQUEST_BYTES + 999});
    pass(SIM_MS);
    SIM_CHECK(IO_WORD(body_waits) == 1 && IO_WORD(slot_waits) == 0, "too few bytes are enough");
    talk_send(&two, rest, 1);
    pass(SIM_MS);
    SIM_CHECK(IO_WORD(body_waits) == 1 && IO_WORD(slot_waits) == 1, "enough bytes are too few");
    talk_asks(&three, &(struct ask){.id = 3, .model = 2, .flags = LM_FLAG_CREDENTIAL});
    pass(SIM_MS);
    SIM_CHECK(IO_WORD(body_waits) == 1 && IO_WORD(slot_waits) == 2, "a whole body is not enough");
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    pass(SIM_MS);
    talk_send(&two, rest, 2600);
    (void)talk_gets(&two, 2, LM_STATUS_OK);
    (void)talk_gets(&three, 3, LM_STATUS_OK);
}

static void four_or_refused(struct sim_plan *plan) {
    plan->in_flight_max = 4;
    sim_limits.slot_waiters_max = 2;
}

/* One refusal is no reason to make room; as many as come all the time are. */
static void refused_again_and_again(void) {
    static struct talk slow[3];
    runtime_takes_ns = 4 * SIM_S;
    for (uint64_t n = 0; n < 3; n++) {
        talk_open(&slow[n]);
        talk_asks(&slow[n], &(struct ask){.id = n, .model = 1, .rows = 3, .most = 3000});
        pass(SIM_MS);
    }
    talk_open(&one);
    talk_open(&two);
    talk_asks(&one, &(struct ask){.id = 10});
    pass(SIM_MS);
    talk_asks(&two, &(struct ask){.id = 11, .model = 3});
    (void)talk_gets(&two, 11, LM_STATUS_OVERLOADED);
    pass(SIM_S);
    SIM_CHECK(IO_WORD(connections_evicted) == 0, "one refusal makes room");
    for (int n = 0; n < 20 && IO_WORD(connections_evicted) == 0; n++) {
        talk_asks(&two, &(struct ask){.id = 12, .model = 3});
        pass(20 * SIM_MS);
    }
    SIM_CHECK(IO_WORD(connections_evicted) == 1 && IO_WORD(in_flight) == 3, "not one made room");
}

/* Of those who wait with bytes in a buffer so many may; then the oldest is told. */
static void too_many_wait(void) {
    static struct talk slow[3], late[3];
    for (uint64_t n = 0; n < 6; n++) {
        struct talk *talk = n < 3 ? &slow[n] : &late[n - 3];
        talk_open(talk);
        talk_asks(talk, &(struct ask){.id = n, .model = 1, .rows = 3, .most = 3000});
        pass(SIM_MS);
        SIM_CHECK(IO_WORD(requests_overloaded) == (n == 5), "%llu were told",
                  (unsigned long long)IO_WORD(requests_overloaded));
    }
    talk_reads(&late[0], LM_NATIVE_REPLY_BYTES + 30, SIM_S);
    SIM_CHECK(strncmp((char *)late[0].in + LM_NATIVE_REPLY_BYTES, "all slots are taken and", 23) ==
                  0,
              "another reason");
    (void)talk_gets(&late[0], 3, LM_STATUS_OVERLOADED);
}

/* A client that moves keeps its slot. Over HTTP the refusal is 503, where one can be sent. */
static void who_moves(void) {
    static struct talk slow[3];
    static const char head[] = "POST /v2/models/tiny/infer HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Length: 12000\r\n\r\n{";
    static char spaces[9000];
    memset(spaces, ' ', sizeof spaces);
    runtime_takes_ns = 2 * SIM_S;
    for (uint64_t n = 0; n < 3; n++) {
        talk_open(&slow[n]);
        talk_text(&slow[n], head);
        pass(SIM_MS);
    }
    talk_open(&one);
    talk_open(&two);
    talk_asks(&one, &(struct ask){.id = 11});
    pass(SIM_MS);
    talk_asks(&two, &(struct ask){.id = 12, .model = 3});
    pass(150 * SIM_MS);
    talk_send(&slow[0], spaces, LM_SLOW_WINDOW_BYTES);
    talk_send(&slow[1], spaces, LM_SLOW_WINDOW_BYTES / 2); /* which is not enough */
    talk_answered(&slow[1], 503, "Retry-After: 1\r\n");
    pass(100 * SIM_MS);
    SIM_CHECK(IO_WORD(connections_evicted) == 1 && IO_WORD(requests_overloaded) == 1 &&
                  IO_WORD(requests_refused) == 1 && IO_WORD(requests_bad) == 0,
              "other words");
    talk_takes_nothing(&slow[0], SIM_MS);
}

/* A slot that comes back is the next one's at once, in the order in which they came. */
static void one_after_another(void) {
    runtime_takes_ns = 30 * SIM_MS;
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    uint64_t asked_ns = sim_now_ns;
    talk_asks(&one, &(struct ask){.id = 1});
    pass(SIM_MS);
    talk_asks(&two, &(struct ask){.id = 2, .model = 3});
    pass(SIM_MS);
    talk_asks(&three, &(struct ask){.id = 3, .model = 1});
    (void)talk_gets(&two, 2, LM_STATUS_OK);
    near_ns("the second one's turn", sim_now_ns - asked_ns, 60 * SIM_MS, SIM_MS);
    (void)talk_gets(&three, 3, LM_STATUS_OK);
    near_ns("the third one's turn", sim_now_ns - asked_ns, 90 * SIM_MS, SIM_MS);
}

static void one_of_each(struct sim_plan *plan) {
    one_place(plan);
    sim_limits.pipeline_max = 1;
}

/* The place that comes back with a reply is not for the next request of that connection, which is
 * parsed in the same turn, while another one waits. */
static void nobody_overtakes(void) {
    runtime_takes_ns = 30 * SIM_MS;
    talk_open(&one);
    talk_open(&two);
    uint64_t asked_ns = sim_now_ns;
    talk_asks(&one, &(struct ask){.id = 1});
    talk_asks(&one, &(struct ask){.id = 3});
    pass(SIM_MS);
    talk_asks(&two, &(struct ask){.id = 2});
    (void)talk_gets(&two, 2, LM_STATUS_OK);
    near_ns("the waiting one's turn", sim_now_ns - asked_ns, 60 * SIM_MS, SIM_MS);
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    (void)talk_gets(&one, 3, LM_STATUS_OK);
    near_ns("the newcomer's turn", sim_now_ns - asked_ns, 90 * SIM_MS, SIM_MS);
}

enum { HEADERS = 40 };

static void two_buffers(struct sim_plan *plan) {
    plan->queue_type = LUMEN_QUEUE_INLINE;
    plan->connections = HEADERS + 1;
    plan->header_buffers = 2;
}

/* During a Run of the I/O thread more headers come than there are buffers. A connection without one
 * tries again when a buffer has come back, not at each turn. */
static void too_few_buffers(void) {
    static struct talk talks[HEADERS];
    runtime_takes_ns = 10 * SIM_MS;
    talk_open(&one);
    for (uint64_t n = 0; n < HEADERS; n++) talk_open(&talks[n]);
    talk_asks(&one, &(struct ask){.id = HEADERS});
    pass(SIM_MS);
    runtime_takes_ns = SIM_US;
    for (uint64_t n = 0; n < HEADERS; n++) talk_asks(&talks[n], &(struct ask){.id = n});
    for (uint64_t n = 0; n < HEADERS; n++) (void)talk_gets(&talks[n], n, LM_STATUS_OK);
    uint64_t starved = IO_WORD(header_buffers_starved);
    SIM_CHECK(starved >= HEADERS - 2 && starved <= 2 * HEADERS, "%llu receives found no buffer",
              (unsigned long long)starved);
}

static void short_heads(struct sim_plan *plan) {
    plan->header_ms = 100;
}

/* The end of a head wakes the thread when it is time to look at deadlines: what has come is
 * advanced first, and has no deadline any more. */
static void before_deadlines(void) {
    const struct lm_io *io = &sim_shared.ios[0];
    talk_open(&one);
    talk_open(&two);
    talk_pings(&one, 1); /* with the first one it looks at deadlines */
    talk_text(&two, "GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n");
    pass(io->next_sweep_ns - sim_now_ns - 10 * SIM_MS);
    talk_pings(&one, 2); /* then it sleeps beyond its next look */
    pass(100 * SIM_MS);
    talk_text(&two, "\r\n");
    talk_answered(&two, 200, "live");
}

/* After each Run a figure tells the bytes that the runtime keeps of a worker's arena. */
static void what_runs_keep(void) {
    static const uint64_t told[] = {1024, 2048, 0, 0};
    SIM_CHECK(lm_run_arenas_open(&sim_shared.run_arenas, &sim_shared.ort, 1) == 0, "no arena");
    talk_open(&one);
    for (uint64_t n = 0; n < 4; n++) {
        runtime_keeps_bytes = n < 2 ? 1000 : 0; /* a multiple of a cache line is taken */
        if (n == 2) runtime_frees();
        talk_asks(&one, &(struct ask){.id = n});
        (void)talk_gets(&one, n, LM_STATUS_OK);
        pass(SIM_MS);
        SIM_CHECK(WORKER_WORD(arena_kept_bytes) == told[n], "%llu bytes are kept after Run %llu",
                  (unsigned long long)WORKER_WORD(arena_kept_bytes), (unsigned long long)n);
    }
    lm_run_arenas_close(&sim_shared.run_arenas, &sim_shared.ort);
}

static void shared_core(struct sim_plan *plan) {
    plan->in_flight_max = 1;
    plan->io_shares_cores = true;
}

/* After a turn that refused a request the thread rests: what it sees next may have waited, and what
 * comes later has not. */
static void after_an_overload(void) {
    const struct lm_io *io = &sim_shared.ios[0];
    runtime_takes_ns = SIM_S;
    talk_open(&one);
    talk_open(&two);
    for (int round = 0; round < 2; round++) {
        talk_asks(&one, &(struct ask){.id = 1});
        pass(SIM_MS);
        SIM_CHECK(io->unseen_ns == 0, "what came to a thread at ease has waited");
        talk_asks(&two, &(struct ask){.id = 2});
        (void)talk_gets(&two, 2, LM_STATUS_OVERLOADED);
        pass(SIM_MS);
        SIM_CHECK(io->unseen_ns > 0, "what came while the thread rested has not waited");
        talk_pings(&two, 3);
        pass(SIM_MS);
        SIM_CHECK(io->unseen_ns == 0, "requests go on to count from before they came");
        (void)talk_gets(&one, 1, LM_STATUS_OK);
    }
}

static void parked(struct sim_plan *plan) {
    plan->unparked_max = 1;
}

/* Idle ones beyond the first are parked, half a header is not idle; who speaks is unparked. */
static void who_is_parked(void) {
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    talk_text(&three, "LMN1");
    pass(10 * SIM_MS);
    SIM_CHECK(IO_WORD(connections_parked) == 2 && IO_WORD(connections_unparked) == 0,
              "%llu are parked", (unsigned long long)IO_WORD(connections_parked));
    talk_pings(&one, 1);
    pass(10 * SIM_MS);
    SIM_CHECK(IO_WORD(connections_parked) == 2 && IO_WORD(connections_unparked) == 1,
              "%llu were unparked", (unsigned long long)IO_WORD(connections_unparked));
    talk_close(&one);
    talk_close(&two);
    pass(10 * SIM_MS);
    SIM_CHECK(IO_WORD(connections_parked) == 0 && IO_WORD(connections_open) == 1,
              "somebody is left");
}

const struct rule rules_of_slot_wait[] = {
    {"who is parked", parked, who_is_parked},
    {"what Runs keep", NULL, what_runs_keep},
    {"after an overload", shared_core, after_an_overload},
    {"a whole request waits for a slot", one_place, a_whole_request_waits},
    {"slots that go", one_place, slots_that_go},
    {"a body that does not come", one_place, a_body_that_does_not_come},
    {"one after another", one_place, one_after_another},
    {"nobody overtakes", one_of_each, nobody_overtakes},
    {"too few buffers", two_buffers, too_few_buffers},
    {"before deadlines", short_heads, before_deadlines},
    {"who does not move", four_places, who_does_not_move},
    {"bytes that are enough", brief, bytes_that_are_enough},
    {"refused again and again", four_or_refused, refused_again_and_again},
    {"too many wait", four_or_refused, too_many_wait},
    {"who moves", four_places, who_moves},
};
const size_t rules_of_slot_wait_count = sizeof rules_of_slot_wait / sizeof rules_of_slot_wait[0];
