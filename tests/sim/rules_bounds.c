/* rules_bounds.c: bounds that hold for each request and connection by itself: nothing of the one
 * before it counts, of two bounds the nearer one holds, and of too many that wait one is refused.
 */
#include <string.h>

#include "rules.h"

static struct talk one, two;

static void is_alive(struct talk *talk, const char *header) {
    talk_requests(talk, "GET /v2/health/live", "", "");
    talk_answered(talk, 200, header);
}

static void ten_seconds_old(struct sim_plan *plan) {
    plan->age_s = 10;
}

/* Its last answer comes within a tenth more. */
static void the_age_of_a_connection(void) {
    talk_open(&one);
    is_alive(&one, "Connection: keep-alive");
    pass(8 * SIM_S);
    is_alive(&one, "Connection: keep-alive");
    talk_close(&one);
    talk_open(&two); /* which has the place of the first one */
    pass(4 * SIM_S);
    is_alive(&two, "Connection: keep-alive");
    pass(5 * SIM_S);
    is_alive(&two, "Connection: keep-alive");
    pass(2 * SIM_S);
    is_alive(&two, "Connection: close");
}

static void larger_sockets(struct sim_plan *plan) {
    plan->socket_bytes = LM_SCRAP_BYTES;
}

/* A client that sends on gets more time only for a whole step. */
static void a_refused_body_that_comes_slowly(void) {
    static const uint8_t piece[LM_SCRAP_BYTES];
    talk_open(&one);
    talk_text(&one, "POST /v2/models/tiny/infer HTTP/1.1\r\nHost: localhost\r\n"
                    "Content-Length: 200000\r\n\r\n");
    talk_answered(&one, 413, "at most 12288 bytes");
    for (int n = 0; n < 2; n++) { /* the first one ends a step, the second one does not */
        pass(300 * SIM_MS);
        talk_send(&one, piece, sizeof piece);
    }
    talk_ends(&one, (LM_LINGER_MS - 310) * SIM_MS, (LM_LINGER_MS - 290) * SIM_MS);
}

/* HEAD has no body; the refusal behind it has one. */
static void after_a_head(void) {
    talk_open(&one);
    talk_requests(&one, "HEAD /v2", "", "");
    talk_reads(&one, 20, SIM_S);
    one.in_bytes = 0;
    talk_text(&one, "no request\r\n\r\n");
    talk_answered(&one, 400, "\"error\":\"");
}

/* A row of which the head and the JSON each say until when its answer is of use. */
static void ask_until(struct talk *talk, const char *head, uint32_t said_us) {
    char json[300], headers[200], body[400];
    snprintf(json, sizeof json,
             "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,4],\"datatype\":\"FP32\",\"parameters\":"
             "{\"binary_data_size\":16}}],\"parameters\":{\"timeout\":%u}}",
             said_us);
    snprintf(headers, sizeof headers,
             "Inference-Header-Content-Length: %zu\r\ngrpc-timeout: %s\r\n", strlen(json), head);
    snprintf(body, sizeof body, "%s0123456789abcdef", json);
    talk_requests(talk, "POST /v2/models/tiny/infer", headers, body);
}

static void two_deadlines(void) {
    static const struct {
        const char *head;
        uint32_t said_us, code;
    } cases[] = {{"20m", 500000, 503}, {"500m", 20000, 503}, {"500m", 500000, 200}};
    runtime_takes_ns = 50 * SIM_MS;
    talk_open(&one);
    talk_open(&two);
    for (uint64_t c = 0; c < 3; c++) {
        talk_asks(&one, &(struct ask){.id = c}); /* its worker is busy until then */
        pass(SIM_MS);
        ask_until(&two, cases[c].head, cases[c].said_us);
        talk_answered(&two, cases[c].code, cases[c].code == 200 ? "outputs" : "deadline");
        (void)talk_gets(&one, c, LM_STATUS_OK);
    }
}

static void small_sockets(struct sim_plan *plan) {
    plan->in_flight_max = 4;
    plan->socket_bytes = 2000;
    sim_limits.slot_waiters_max = 2;
}

/* Of requests that wait with all that their sockets hold the one that came first is refused. */
static void too_many_wait_in_part(void) {
    static struct talk slow[3], late[3];
    static char spaces[2000];
    memset(spaces, ' ', sizeof spaces);
    for (uint64_t n = 0; n < 3; n++) {
        talk_open(&slow[n]);
        talk_asks(&slow[n], &(struct ask){.id = n, .model = 1, .rows = 3, .most = 1000});
        pass(SIM_MS);
    }
    for (uint64_t n = 0; n < 3; n++) {
        talk_open(&late[n]);
        talk_text(&late[n], "POST /v2/models/tiny/infer HTTP/1.1\r\nHost: localhost\r\n"
                            "Content-Length: 12000\r\n\r\n");
        pass(SIM_MS);
        talk_send(&late[n], spaces, sizeof spaces);
        pass(SIM_MS);
        SIM_CHECK(IO_WORD(requests_overloaded) == (n == 2), "%llu were told",
                  (unsigned long long)IO_WORD(requests_overloaded));
    }
    talk_answered(&late[0], 503, "all slots are taken and too many requests wait");
    talk_takes_nothing(&late[2], SIM_MS);
}

static void one_asks_for_a_descriptor(struct sim_plan *plan) {
    plan->unparked_max = 1;
    sim_limits.unparking_max = 1;
}

/* A client that sends while it is parked holds a buffer until it has a descriptor: one may here. */
static void too_many_ask_for_a_descriptor(void) {
    static struct talk busy;
    const uint8_t ping[LM_NATIVE_REQUEST_BYTES] = "LMN1\2";
    talk_open(&one);
    talk_open(&two);
    talk_open(&busy);
    talk_text(&busy, "LMN1");
    pass(10 * SIM_MS);
    SIM_CHECK(IO_WORD(connections_parked) == 2, "others are parked");
    sim_plan.descriptors = fds_open;
    talk_send(&one, ping, sizeof ping);
    pass(SIM_MS);
    SIM_CHECK(IO_WORD(connections_evicted) == 0, "the first one may not wait");
    talk_send(&two, ping, sizeof ping);
    talk_ends(&two, 0, SIM_MS);
    SIM_CHECK(IO_WORD(connections_evicted) == 1, "other words");
    sim_plan.descriptors++;
    (void)talk_gets(&one, 0, LM_STATUS_OK);
}

/* A job that the workers' queue refuses is offered again while another thread may stand in a pop,
 * not at some later look. */
static void a_refused_push(void) {
    talk_open(&one);
    uint64_t asked_ns = sim_now_ns;
    sim_plan.full_one_in = 1;
    talk_asks(&one, &(struct ask){.id = 1});
    pass(2 * SIM_MS);
    SIM_CHECK(WORKER_WORD(runs) == 0, "it was pushed");
    sim_plan.full_one_in = 0;
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    near_ns("the answer", sim_now_ns - asked_ns, 2 * SIM_MS + LM_STUCK_TICK_NS, LM_STUCK_TICK_NS);
}

const struct rule rules_of_bounds[] = {
    {"the age of a connection", ten_seconds_old, the_age_of_a_connection},
    {"a refused body that comes slowly", larger_sockets, a_refused_body_that_comes_slowly},
    {"after a HEAD", NULL, after_a_head},
    {"two deadlines", NULL, two_deadlines},
    {"too many wait in part", small_sockets, too_many_wait_in_part},
    {"too many ask for a descriptor", one_asks_for_a_descriptor, too_many_ask_for_a_descriptor},
    {"a refused push", NULL, a_refused_push},
};
const size_t rules_of_bounds_count = sizeof rules_of_bounds / sizeof rules_of_bounds[0];
