/* rules_ends.c: the ends of connections: the client's, and the server's. */
#include <string.h>

#include "rules.h"

static struct talk one, two, three, four;

static const char raw_length[] = "Inference-Header-Content-Length: 0\r\n";

static void asks_tiny(struct talk *talk) {
    talk_requests(talk, "POST /v2/models/tiny/infer", raw_length, "0123456789abcdef");
}

/* Who sends no more has left: what waits for a worker is not run. */
static void the_end_of_a_stream(void) {
    runtime_takes_ns = 50 * SIM_MS;
    talk_open(&one);
    talk_open(&two);
    asks_tiny(&one);
    asks_tiny(&two);
    pass(SIM_MS);
    peer_client_finish(two.peer);
    talk_answered(&one, 200, "outputs");
    talk_ends(&two, 0, SIM_MS);
    SIM_CHECK(WORKER_WORD(runs) == 1 && WORKER_WORD(requests_gone) == 1, "a Run for nobody");
}

static void half_closers(struct sim_plan *plan) {
    plan->half_close = true;
}

static void the_half_of_a_stream(void) {
    runtime_takes_ns = 50 * SIM_MS;
    talk_open(&one);
    asks_tiny(&one);
    pass(SIM_MS);
    peer_client_finish(one.peer);
    talk_answered(&one, 200, "outputs");
    talk_ends(&one, 0, SIM_MS);
}

/* From the first word of an end each answer ends its connection; at the drain the others end, but
 * for those whose next request is here. */
static void sent_elsewhere(void) {
    runtime_takes_ns = 50 * SIM_MS;
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    talk_open(&four);
    asks_tiny(&one);
    talk_requests(&two, "GET /v2/health/live", "", "");
    talk_answered(&two, 200, "Connection: keep-alive");
    talk_requests(&four, "GET /v2/health/live", "", "");
    talk_answered(&four, 200, "Connection: keep-alive");
    lm_store_relaxed_u32(&sim_shared.phase, LM_PHASE_UNREADY);
    talk_answered(&one, 200, "Connection: close");
    asks_tiny(&two);
    talk_answered(&two, 200, "Connection: close");
    talk_requests(&three, "GET /v2/nothing", "", "");
    talk_answered(&three, 404, "Connection: close");
    asks_tiny(&four);
    engine_drain(SIM_S);
    talk_answered(&four, 200, "Connection: close");
    peer_client_finish(four.peer);
    talk_ends(&four, 0, SIM_MS);
    SIM_CHECK(IO_WORD(requests_refused) == 0 && WORKER_WORD(requests_ok) == 3, "a request lost");
}

static void one_at_a_turn(struct sim_plan *plan) {
    plan->switch_one_in = 1;
    sim_limits.parses_per_turn = 0;
}

/* Requests that came whole before the drain are answered, however many turns they take. */
static void all_that_had_come(void) {
    enum { COUNT = 9 };
    uint8_t pings[COUNT][LM_NATIVE_REQUEST_BYTES] = {0};
    talk_open(&one);
    for (uint8_t p = 0; p < COUNT; p++) {
        memcpy(pings[p], "LMN1\2", 5);
        pings[p][8] = p;
    }
    talk_send(&one, pings, sizeof pings);
    talk_reads(&one, LM_NATIVE_REPLY_BYTES, SIM_S);
    SIM_CHECK(one.in_bytes < COUNT * LM_NATIVE_REPLY_BYTES, "all of them in a turn");
    engine_drain(SIM_S);
    for (uint8_t p = 0; p < COUNT; p++) (void)talk_gets(&one, p, LM_STATUS_OK);
    talk_ends(&one, 0, SIM_MS);
}

const struct rule rules_of_ends[] = {
    {"the end of a stream", NULL, the_end_of_a_stream},
    {"the half of a stream", half_closers, the_half_of_a_stream},
    {"sent elsewhere", NULL, sent_elsewhere},
    {"all that had come", one_at_a_turn, all_that_had_come},
};
const size_t rules_of_ends_count = sizeof rules_of_ends / sizeof rules_of_ends[0];
