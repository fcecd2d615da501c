/* rules_clocks.c: when things end: each limit of time with a value that no other one has, counted
 * from where it is promised to count, and never ahead of it.
 */
#include <string.h>

#include "rules.h"

#define BRISK_NS (12 * SIM_MS) /* what is looked at every LM_TICK_MS */

static struct talk one, two;

static void all_limits(struct sim_plan *plan) {
    plan->header_ms = 1000;
    plan->reply_ms = 3000;
    plan->idle_ms = 7000;
    plan->body_bytes_per_s = 1000;
}

static void in(uint64_t ns) {
    talk_ends(&one, ns, ns + SLACK_NS);
}

/* ---- heads ---- */

/* From its first byte, whatever came before and whatever dribbles after it. */
static void a_native_header(void) {
    talk_open(&one);
    pass(2 * SIM_S);
    talk_text(&one, "L");
    pass(300 * SIM_MS);
    talk_text(&one, "MN1");
    pass(300 * SIM_MS);
    talk_text(&one, "\x01");
    in(400 * SIM_MS);
    talk_open(&one);
    talk_pings(&one, 1);
    pass(2 * SIM_S);
    talk_text(&one, "LMN1");
    pass(900 * SIM_MS);
    talk_text(&one, "\x01");
    in(100 * SIM_MS);
    SIM_CHECK(one.in_bytes == 0, "half a header is answered");
    counts("io.connections_accepted=2 io.connections_closed=2 io.connections_timed_out=2 "
           "io.requests=1 io.native_requests=1 io.requests_ok=1 io.bytes_in=42 io.bytes_out=48");
}

static void an_http_head(void) {
    static const char why[] = "the rest of the request did not come in time";
    talk_open(&one);
    pass(SIM_S);
    talk_text(&one, "GET /v2 HTTP/1.1\r\n");
    for (int n = 0; n < 3; n++) {
        pass(300 * SIM_MS);
        talk_text(&one, "X-A: 1\r\n");
    }
    uint64_t left_ns = sim_now_ns + 100 * SIM_MS;
    talk_answered(&one, 408, why);
    SIM_CHECK(sim_now_ns >= left_ns && sim_now_ns < left_ns + SLACK_NS, "at another time");
    talk_ends(&one, SIM_S, SIM_S + BRISK_NS);
    talk_open(&one);
    talk_text(&one, "LM"); /* as the native one begins */
    pass(600 * SIM_MS);
    left_ns = sim_now_ns + 400 * SIM_MS;
    talk_text(&one, "OVE /v2");
    talk_answered(&one, 408, why);
    SIM_CHECK(sim_now_ns >= left_ns && sim_now_ns < left_ns + SLACK_NS, "at another time");
    talk_close(&one);
    counts("io.connections_accepted=2 io.connections_closed=2 io.connections_timed_out=2 "
           "io.requests=2 io.http_requests=2 io.requests_error=2 io.requests_bad=2 io.bytes_in=51 "
           "io.bytes_out=392");
}

static void json_before_blobs(void) {
    talk_open(&one);
    talk_text(&one,
              "POST /v2/models/wide/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3600\r\n"
              "Inference-Header-Content-Length: 2400\r\n\r\n{");
    pass(500 * SIM_MS);
    uint64_t left_ns = sim_now_ns + 500 * SIM_MS;
    talk_text(&one, "\"inputs\":[");
    talk_answered(&one, 408, "did not come in time");
    SIM_CHECK(sim_now_ns >= left_ns && sim_now_ns < left_ns + SLACK_NS, "at another time");
    talk_close(&one);
}

/* ---- bodies: header_timeout, a second, and what the least rate needs for all of it ---- */

static void a_native_body(void) {
    talk_open(&one);
    pass(SIM_S);
    talk_asks(&one, &(struct ask){.id = 1, .model = 1, .rows = 3, .most = 100});
    pass(4 * SIM_S);
    talk_text(&one, "more of it");
    in(SIM_S);
    (void)talk_gets(&one, 1, LM_STATUS_BAD_REQUEST); /* it says why */
    counts("io.connections_accepted=1 io.connections_closed=1 io.connections_timed_out=1 "
           "io.requests=1 io.native_requests=1 io.requests_error=1 io.requests_bad=1 "
           "io.bytes_in=100 io.bytes_out=92 wide.model_bad=1");
}

static void a_refused_body(void) {
    uint8_t bytes[LM_NATIVE_REQUEST_BYTES] = "LMN1\x01\x00\x09";
    const uint32_t payload = 4000;
    memcpy(bytes + 16, &payload, 4);
    talk_open(&one);
    pass(SIM_S);
    talk_send(&one, bytes, sizeof bytes);
    (void)talk_gets(&one, 0, LM_STATUS_UNKNOWN_MODEL);
    in(6 * SIM_S - SIM_MS);
    talk_open(&one);
    talk_text(
        &one,
        "POST /v2/models/no/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n");
    talk_answered(&one, 404, "'no' is not found");
    in(4 * SIM_S - SIM_MS);
    SIM_CHECK(one.in_bytes == 0, "a request is answered twice");
    SIM_CHECK(IO_WORD(requests_unknown_model) == 2 && IO_WORD(requests_error) == 2,
              "a refused request is counted twice");
}

static void send_chunk(struct talk *talk, uint32_t count) {
    static char bytes[5000];
    snprintf(bytes, sizeof bytes, "%x\r\n%*s", count, (int)count, "");
    talk_text(talk, bytes);
}

static void chunked_bodies(void) {
    talk_open(&one);
    talk_text(&one, "GET /v2 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    pass(SIM_S);
    uint64_t left_ns = sim_now_ns + 3 * SIM_S;
    send_chunk(&one, 2000);
    talk_answered(&one, 408, "did not come in time");
    SIM_CHECK(sim_now_ns >= left_ns && sim_now_ns < left_ns + SLACK_NS, "at another time");
    talk_close(&one);
    talk_open(&one);
    talk_text(&one, "POST /v2/models/wide/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
                    "chunked\r\n\r\n");
    pass(SIM_S);
    left_ns = sim_now_ns + 4 * SIM_S;
    send_chunk(&one, 3000);
    talk_answered(&one, 408, "did not come in time");
    SIM_CHECK(sim_now_ns >= left_ns && sim_now_ns < left_ns + SLACK_NS, "at another time");
    talk_close(&one);
    SIM_CHECK(IO_WORD(connections_timed_out) == 2 && IO_WORD(requests_bad) == 2, "other words");
}

/* ---- replies, and nothing at all ---- */

static void narrow(struct sim_plan *plan) {
    all_limits(plan);
    plan->socket_bytes = 165; /* the request fits, its reply does not */
}

/* Its Run is no time that the client takes. */
static void a_reply(void) {
    talk_open(&one);
    runtime_takes_ns = 2500 * SIM_MS;
    talk_asks(&one, &(struct ask){.id = 1, .rows = 8});
    one.deaf = true;
    in(5500 * SIM_MS);
    counts("io.connections_accepted=1 io.connections_closed=1 io.connections_timed_out=1 "
           "io.requests=1 io.native_requests=1 io.bytes_in=160 io.replies_queued=1 "
           "tiny.model_queued=1 worker.requests_ok=1 worker.rows=8 worker.runs=1 "
           "worker.bytes_out=165 tiny.model_ok=1 tiny.model_rows=8 tiny.model_runs=1");
    talk_open(&one);
    one.deaf = true;
    talk_text(&one, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    pass(300 * SIM_MS);
    SIM_CHECK(IO_WORD(slots_in_use) == 1 && IO_WORD(in_flight) == 0, "an own reply is in flight");
    in(2700 * SIM_MS);
}

/* From the last reply on; who waits for one is not idle. */
static void nothing_at_all(void) {
    talk_open(&one);
    in(7 * SIM_S);
    talk_open(&one);
    pass(3 * SIM_S);
    talk_pings(&one, 1);
    in(7 * SIM_S - SIM_MS);
    talk_open(&one);
    runtime_takes_ns = 20 * SIM_S;
    talk_asks(&one, &(struct ask){.id = 2});
    (void)talk_gets(&one, 2, LM_STATUS_OK);
    in(7 * SIM_S - SIM_MS);
    SIM_CHECK(IO_WORD(connections_timed_out) == 3 && IO_WORD(connections_evicted) == 0,
              "other words");
}

static void inline_thread(struct sim_plan *plan) {
    plan->queue_type = LUMEN_QUEUE_INLINE;
    plan->idle_ms = 7000;
}

/* A thread that runs the model itself counts from the Run's end too. */
static void nothing_after_a_run_inline(void) {
    talk_open(&one);
    runtime_takes_ns = 5 * SIM_S;
    talk_asks(&one, &(struct ask){.id = 1});
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    in(7 * SIM_S - SIM_MS);
    SIM_CHECK(IO_WORD(connections_timed_out) == 1, "other words");
}

/* Half-closed after its last reply; until a second has gone by, or so many bytes have come. */
static void after_the_last_reply(void) {
    static const uint8_t junk[2000] = "LMN9";
    for (int round = 0; round < 2; round++) {
        talk_open(&one);
        talk_pings(&one, 3);
        talk_send(&one, junk, 4);
        (void)talk_gets(&one, 0, LM_STATUS_BAD_REQUEST);
        SIM_CHECK(one.peer->shut_wr, "the client is not told that there is no more");
        if (round == 0) {
            talk_ends(&one, SIM_S - SIM_MS, SIM_S + BRISK_NS);
            continue;
        }
        pass(500 * SIM_MS);
        talk_send(&one, junk, sim_limits.linger_bytes_max - 1);
        talk_takes_nothing(&one, 100 * SIM_MS);
        talk_send(&one, junk, 1);
        talk_ends(&one, 0, SIM_MS);
    }
}

/* ---- models that do not return ---- */

static void server_deadline(struct sim_plan *plan) {
    plan->default_timeout_ns = 200 * SIM_MS;
    plan->hang_ms = 600;
}

/* Between 50 ms after the deadline, which counts from the first byte, and one look more; the slot
 * stays with the worker. */
static void overdue(void) {
    static const char json[] = "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,4],\"datatype\":\"FP32\","
                               "\"data\":[1,2,3,4]}],\"parameters\":{\"timeout\":900000}}";
    char text[400];
    uint64_t asked_ns;
    runtime_takes_ns = 3 * SIM_S;
    talk_open(&one);
    talk_open(&two);
    asked_ns = sim_now_ns;
    talk_asks_late(&one, &(struct ask){.id = 1}, 100 * SIM_MS);
    (void)talk_gets(&one, 1, LM_STATUS_DEADLINE);
    SIM_CHECK(sim_now_ns >= asked_ns + 250 * SIM_MS &&
                  sim_now_ns < asked_ns + 250 * SIM_MS + SLACK_NS,
              "overdue after %llu us", (unsigned long long)(sim_now_ns - asked_ns) / 1000);
    asked_ns = sim_now_ns;
    talk_asks_late(&one, &(struct ask){.id = 2, .model = 3, .timeout_us = 800000}, 600 * SIM_MS);
    (void)talk_gets(&one, 2, LM_STATUS_DEADLINE);
    SIM_CHECK(sim_now_ns >= asked_ns + 850 * SIM_MS &&
                  sim_now_ns < asked_ns + 850 * SIM_MS + SLACK_NS,
              "overdue after %llu us", (unsigned long long)(sim_now_ns - asked_ns) / 1000);
    counts("io.connections_accepted=2 io.connections_open=2 io.requests=2 io.native_requests=2 "
           "io.requests_refused=2 io.requests_late=2 io.in_flight=2 io.bytes_in=100 "
           "io.bytes_out=198 io.worker_hangs=1 io.slots_in_use=2 tiny.model_queued=1 "
           "tiny.model_refused=1 tiny.model_overdue=1 pair.model_queued=1 pair.model_refused=1 "
           "pair.model_overdue=1");
    pass(4 * SIM_S);
    snprintf(text, sizeof text,
             "POST /v2/models/tiny/infer HTTP/1.1\r\nHost: localhost\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             sizeof json - 1, json);
    asked_ns = sim_now_ns;
    talk_send(&two, text, 100);
    pass(150 * SIM_MS);
    talk_text(&two, text + 100);
    talk_answered(&two, 503, "Retry-After: 1\r\n");
    SIM_CHECK(sim_now_ns >= asked_ns + 950 * SIM_MS &&
                  sim_now_ns < asked_ns + 950 * SIM_MS + SLACK_NS,
              "overdue after %llu us", (unsigned long long)(sim_now_ns - asked_ns) / 1000);
}

static void is_ready(bool yes) {
    talk_text(&two, "GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n");
    talk_answered(&two, yes ? 200 : 503, yes ? "{\"ready\":true}" : "a model does not return");
    SIM_CHECK(IO_WORD(worker_hangs) == !yes, "the gauge of hanging workers is wrong");
}

static void a_worker_hangs(void) {
    runtime_takes_ns = 2 * SIM_S;
    talk_open(&one);
    talk_open(&two);
    is_ready(true);
    talk_asks(&one, &(struct ask){.id = 1});
    pass(590 * SIM_MS);
    is_ready(true);
    pass(10 * SIM_MS + SLACK_NS);
    is_ready(false);
    pass(1400 * SIM_MS - SLACK_NS + SLACK_NS);
    is_ready(true);
    pass(5 * SIM_S); /* and between two requests nobody hangs */
    is_ready(true);
    SIM_CHECK(IO_WORD(requests_unready) == 1 && IO_WORD(requests_late) == 1 &&
                  IO_WORD(requests_refused) == 2 && IO_WORD(requests_error) == 0 &&
                  IO_WORD(requests_draining) == 0,
              "other words");
}

/* ---- the end ---- */

static void pipeline_of_two(struct sim_plan *plan) {
    (void)plan;
    sim_limits.pipeline_max = 2;
}

/* A reset client is noticed also while its pipeline is full, and its requests are not run. */
static void gone_with_a_full_pipeline(void) {
    runtime_takes_ns = 2 * SIM_S;
    talk_open(&one);
    for (uint64_t n = 1; n <= 4; n++) talk_asks(&one, &(struct ask){.id = n});
    pass(100 * SIM_MS);
    peer_client_close(one.peer, true);
    pass(5 * SIM_S);
    counts("io.connections_accepted=1 io.connections_closed=1 io.requests=2 "
           "io.native_requests=2 io.bytes_in=192 tiny.model_queued=2 "
           "worker.requests_ok=1 worker.requests_gone=1 worker.rows=1 worker.runs=1 "
           "tiny.model_ok=1 tiny.model_gone=1 tiny.model_rows=1 tiny.model_runs=1");
}

/* An idle connection ends at once. Requests in flight are answered, new ones are refused, and half
 * a request is cut off at the limit. */
static void draining(void) {
    static struct talk three, four;
    runtime_takes_ns = 300 * SIM_MS;
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    talk_open(&four);
    talk_pings(&one, 1);
    talk_asks(&two, &(struct ask){.id = 2});
    talk_asks(&three, &(struct ask){.id = 3, .model = 1, .most = 100});
    talk_asks(&four, &(struct ask){.id = 4, .model = 3, .most = 40});
    pass(SIM_MS);
    uint64_t began_ns = sim_now_ns;
    engine_drain(SIM_S);
    talk_ends(&one, 0, SIM_MS);
    talk_asks(&two, &(struct ask){.id = 5, .model = 3});
    talk_reads(&two, LM_NATIVE_REPLY_BYTES, SIM_MS);
    (void)talk_gets(&two, 5, LM_STATUS_SHUTTING_DOWN);
    (void)talk_gets(&two, 2, LM_STATUS_OK);
    near_ns("the answer", sim_now_ns - began_ns, 300 * SIM_MS, 3 * SIM_MS);
    talk_ends(&two, 0, SIM_MS);
    static const uint8_t rest[4] = {0};
    talk_send(&four, rest, sizeof rest);
    talk_ends(&three, 650 * SIM_MS, 720 * SIM_MS);
    near_ns("the limit", sim_now_ns - began_ns, SIM_S + 3 * SIM_MS, 5 * SIM_MS);
    pass(SIM_MS);
    counts("io.connections_accepted=4 io.connections_closed=4 io.requests=5 "
           "io.native_requests=5 io.requests_ok=1 io.requests_refused=3 "
           "io.requests_draining=3 io.bytes_in=272 io.bytes_out=123 "
           "tiny.model_queued=1 wide.model_refused=1 pair.model_refused=2 "
           "worker.requests_ok=1 worker.rows=1 worker.runs=1 worker.bytes_out=64 "
           "tiny.model_ok=1 tiny.model_rows=1 tiny.model_runs=1");
}

/* The end comes in the middle of a header: its client may finish it, and is answered. */
static void draining_in_a_header(void) {
    uint8_t ping[LM_NATIVE_REQUEST_BYTES] = "LMN1\2";
    talk_open(&one);
    talk_send(&one, ping, 10);
    pass(SIM_MS);
    engine_drain(SIM_S);
    talk_takes_nothing(&one, 300 * SIM_MS);
    talk_send(&one, ping + 10, sizeof ping - 10);
    (void)talk_gets(&one, 0, LM_STATUS_OK);
    talk_ends(&one, 0, SIM_MS);
}

/* A request's time begins with its first byte, whatever it waits for then. */
static void a_start(void) {
    talk_open(&one);
    talk_asks_late(&one, &(struct ask){.id = 1}, 200 * SIM_MS);
    struct lm_native_reply reply = talk_gets(&one, 1, LM_STATUS_OK);
    near_ns("receiving", reply.receive_us * SIM_US, 200 * SIM_MS, 3 * SIM_MS);
}

const struct rule rules_of_clocks[] = {
    {"gone with a full pipeline", pipeline_of_two, gone_with_a_full_pipeline},
    {"draining", NULL, draining},
    {"draining in a header", NULL, draining_in_a_header},
    {"a start", NULL, a_start},
    {"a native header", all_limits, a_native_header},
    {"an HTTP head", all_limits, an_http_head},
    {"JSON before blobs", all_limits, json_before_blobs},
    {"a native body", all_limits, a_native_body},
    {"a refused body", all_limits, a_refused_body},
    {"chunked bodies", all_limits, chunked_bodies},
    {"a reply that nobody reads", narrow, a_reply},
    {"nothing at all", all_limits, nothing_at_all},
    {"nothing after a Run, inline", inline_thread, nothing_after_a_run_inline},
    {"after the last reply", NULL, after_the_last_reply},
    {"overdue", server_deadline, overdue},
    {"a worker hangs", server_deadline, a_worker_hangs},
};
const size_t rules_of_clocks_count = sizeof rules_of_clocks / sizeof rules_of_clocks[0];
