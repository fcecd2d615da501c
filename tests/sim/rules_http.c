/* rules_http.c: HTTP exactly at its limits: sizes of bodies, places for heads in pieces, what is
 * said with a refusal, and what the rows and figures say of it.
 */
#include <stdlib.h>
#include <string.h>

#include "rules.h"

static struct talk one, two, three;

#define HOST " HTTP/1.1\r\nHost: localhost\r\n"
static const char row_json[] = "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,4],\"datatype\":\"FP32\","
                               "\"data\":[1,2,3,4]}]}";
static const char rows_json[] = "{\"id\":\"two\",\"inputs\":[{\"name\":\"x\",\"shape\":[2,4],"
                                "\"datatype\":\"FP32\",\"data\":[1,2,3,4,5,6,7,8]}]}";

/* ---- sizes ---- */

static void announce(uint32_t bytes, uint32_t code) {
    char text[200];
    talk_open(&one);
    snprintf(text, sizeof text, "POST /v2/models/no/infer" HOST "Content-Length: %u\r\n\r\n",
             bytes);
    talk_text(&one, text);
    talk_answered(&one, code, code == 413 ? "at most 12288 bytes" : "'no' is not found");
    talk_close(&one);
}

/* A body of so many bytes in two chunks: JSON and then spaces. */
static void send_chunks(const char *head, const char *json, uint32_t bytes) {
    static char text[2 * SIM_MAX_REQUEST_BYTES];
    uint32_t first = (uint32_t)strlen(json);
    talk_open(&one);
    talk_text(&one, head);
    snprintf(text, sizeof text, "%x\r\n%s\r\n%x\r\n%*s\r\n0\r\n\r\n", first, json, bytes - first,
             (int)(bytes - first), "");
    talk_text(&one, text);
}

static void bodies_at_the_limit(void) {
    static const char get[] = "GET /v2" HOST "Transfer-Encoding: chunked\r\n\r\n";
    static const char post[] =
        "POST /v2/models/tiny/infer" HOST "Transfer-Encoding: chunked\r\n\r\n";
    announce(SIM_MAX_REQUEST_BYTES, 404);
    announce(SIM_MAX_REQUEST_BYTES + 1, 413);
    send_chunks(get, row_json, SIM_MAX_REQUEST_BYTES);
    talk_answered(&one, 200, "\"sim\"");
    send_chunks(get, row_json, SIM_MAX_REQUEST_BYTES + 1);
    talk_answered(&one, 413, "the chunks hold more");
    send_chunks(post, rows_json, SIM_MAX_REQUEST_BYTES);
    talk_answered(&one, 200, "\"data\":[2,4,6,");
    struct lm_trace_record row;
    SIM_CHECK(lm_trace_pop(&sim_shared.workers[0].trace, &row, 1) == 1 &&
                  row.bytes == SIM_MAX_REQUEST_BYTES && row.rows == 2 && row.batch_rows == 2 &&
                  row.code == 200 && row.is_http && strcmp(row.http_id, "two") == 0,
              "the row of the chunks: %u bytes, %u rows, id '%s'", row.bytes, row.rows,
              row.http_id);
    send_chunks(post, rows_json, SIM_MAX_REQUEST_BYTES + 1);
    talk_answered(&one, 413, "the chunks hold more");
    talk_close(&one);
    talk_open(&one);
    talk_requests(&one, "GET /v2", "Content-Encoding: gzip\r\n", "12");
    talk_answered(&one, 415, "Accept-Encoding: identity\r\n");
    SIM_CHECK(IO_WORD(requests_bad) == 4 && IO_WORD(requests_error) == 5 &&
                  IO_WORD(requests_unknown_model) == 1 && WORKER_WORD(rows) == 2,
              "other words: %llu bad", (unsigned long long)IO_WORD(requests_bad));
}

/* Asks with JSON of so many bytes, spaces behind it, before the row's blob. */
static void ask_with_json(const char *json, uint32_t bytes) {
    static const char row[] = "0123456789abcdef";
    static char text[LM_HTTP_JSON_BYTES_MAX + 1 + 400];
    int head = snprintf(text, 400,
                        "POST /v2/models/tiny/infer" HOST "Content-Length: %u\r\n"
                        "Inference-Header-Content-Length: %u\r\n\r\n%s",
                        bytes + 16, bytes, json);
    uint32_t json_bytes = (uint32_t)strlen(json);
    memset(text + head, ' ', bytes - json_bytes);
    memcpy(text + head + bytes - json_bytes, row, 16);
    talk_send(&one, text, (size_t)head + bytes - json_bytes + 16);
}

/* JSON before blobs is parsed as it comes up to a limit, and refused there; beyond it by a worker.
 */
static void json_at_the_limit(void) {
    static const char good[] = "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,4],\"datatype\":\"FP32\","
                               "\"parameters\":{\"binary_data_size\":16}}]}";
    static const char bad[] = "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,5],\"datatype\":\"FP32\","
                              "\"parameters\":{\"binary_data_size\":16}}]}";
    talk_open(&one);
    for (uint32_t more = 0; more < 2; more++) {
        ask_with_json(good, LM_HTTP_JSON_BYTES_MAX + more);
        talk_answered(&one, 200, "\"outputs\"");
        ask_with_json(bad, LM_HTTP_JSON_BYTES_MAX + more);
        talk_answered(&one, 400, "[1,5]");
        SIM_CHECK(IO_WORD(requests_bad) == 1 && WORKER_WORD(requests_bad) == more,
                  "%u bytes are parsed elsewhere", LM_HTTP_JSON_BYTES_MAX + more);
    }
}

/* The row of a request of which only the JSON is parsed before it has its slot. */
static void json_and_blobs(void) {
    static const char json[] =
        "{\"inputs\":[{\"name\":\"a\",\"shape\":[1,2],\"datatype\":\"FP32\","
        "\"parameters\":{\"binary_data_size\":8}},{\"name\":\"b\",\"shape\":"
        "[3],\"datatype\":\"FP32\",\"parameters\":{\"binary_data_size\":12}}]}";
    char headers[100], body[400];
    struct lm_trace_record row;
    talk_open(&one);
    snprintf(headers, sizeof headers, "Inference-Header-Content-Length: %zu\r\n", sizeof json - 1);
    snprintf(body, sizeof body, "%s%s", json, "01234567890123456789");
    talk_requests(&one, "POST /v2/models/pair/infer", headers, body);
    talk_answered(&one, 200, "\"outputs\"");
    SIM_CHECK(lm_trace_pop(&sim_shared.workers[0].trace, &row, 1) == 1 &&
                  row.bytes == strlen(body) && row.model == 3,
              "the row of a body with blobs: %u bytes", row.bytes);
}

/* Room is made for the classes of every row. */
static void classes_of_rows(void) {
    static const char json[] =
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[8,4],\"datatype\":\"FP32\",\"parameters\":"
        "{\"binary_data_size\":128}}],\"outputs\":[{\"name\":\"y\",\"parameters\":"
        "{\"classification\":4}}]}";
    char text[600];
    int head = snprintf(text, sizeof text,
                        "POST /v2/models/tiny/infer" HOST "Content-Length: %zu\r\n"
                        "Inference-Header-Content-Length: %zu\r\n\r\n%s",
                        sizeof json - 1 + 128, sizeof json - 1, json);
    float values[32];
    for (int v = 0; v < 32; v++) values[v] = (float)v;
    memcpy(text + head, values, sizeof values);
    talk_open(&one);
    talk_send(&one, text, (size_t)head + sizeof values);
    talk_answered(&one, 200, "\"shape\":[8,4],\"data\":[\"6.000000:3\",\"4.000000:2\"");
}

/* Requests that are nearly wrong, on one connection that goes on. */
static void nearly_wrong(void) {
    char headers[100];
    talk_open(&one);
    snprintf(headers, sizeof headers, "Inference-Header-Content-Length: %zu\r\n",
             sizeof row_json - 1);
    talk_requests(&one, "POST /v2/models/tiny/infer", headers, row_json);
    talk_answered(&one, 200, "\"data\":[2,4,6,8]");
    talk_requests(&one, "POST /v2/models/picture/infer", "Inference-Header-Content-Length: 0\r\n",
                  "12345");
    talk_answered(&one, 400, "takes 192 bytes of FP32 or 48 bytes of rgb8, found 5");
    talk_requests(&one, "GET /v2/models/tiny/versions/1", "", "");
    talk_answered(&one, 200, "\"tiny\"");
    talk_requests(&one, "GET /v2/models/tiny/versions/2", "", "");
    talk_answered(&one, 404, "version 2 is not at ready state");
    talk_text(&one, "POST /v2/models/tiny/infer" HOST "Inference-Header-Content-Length: 9\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n8\r\n{1234567\r\n0\r\n\r\n");
    talk_answered(&one, 400, "at most the chunks'");
    talk_open(&two); /* what is left of refused chunks is no request: it ends */
    talk_text(&two, "POST /v2/models/no/infer" HOST "Transfer-Encoding: chunked\r\n\r\n8\r\n{123");
    talk_answered(&two, 404, "Connection: close\r\n");
    SIM_CHECK(two.peer->shut_wr, "it goes on in the middle of a chunk");
    talk_requests(&one, "HEAD /v2", "", "");
    pass(SIM_MS);
    talk_reads(&one, 20, SIM_S);
    one.in[one.in_bytes] = '\0';
    const char *end = strstr((char *)one.in, "\r\n\r\n");
    SIM_CHECK(end && end[4] == '\0' && number_after((char *)one.in, "Content-Length: ") > 10,
              "HEAD is answered with: %s", one.in);
    one.in_bytes = 0;
    talk_text(&one, "POST /v2/models/tiny/infer HTTP/1.0\r\nConnection: keep-alive\r\n");
    snprintf(headers, sizeof headers, "Content-Length: %zu\r\n\r\n", sizeof row_json - 1);
    talk_text(&one, headers);
    talk_text(&one, row_json);
    talk_answered(&one, 200, "Connection: keep-alive\r\n");
}

/* ---- heads in pieces ---- */

static void two_blocks(struct sim_plan *plan) {
    plan->header_ms = 10000;
    sim_limits.http_blocks = 2;
}

/* The head that has held a block longest makes room for the next one; no other does. */
static void places_for_heads(void) {
    static struct talk four;
    struct talk *order[] = {&one, &two, &three, &four};
    for (int n = 0; n < 4; n++) {
        talk_open(order[n]);
        talk_text(order[n], "GET /v2/health/live" HOST);
        pass(10 * SIM_MS);
        if (n < 2) continue;
        talk_answered(order[n - 2], 408, "its place was needed");
        talk_takes_nothing(order[n - 1], 10 * SIM_MS);
    }
    talk_text(&four, "\r\n");
    talk_answered(&four, 200, "live");
    talk_text(&three, "\r\n");
    talk_answered(&three, 200, "live");
    SIM_CHECK(IO_WORD(connections_evicted) == 2 && IO_WORD(requests_bad) == 2 &&
                  IO_WORD(requests) == 4 && IO_WORD(requests_ok) == 2,
              "other words");
}

static void two_blocks_and_a_place(struct sim_plan *plan) {
    two_blocks(plan);
    plan->in_flight_max = 1;
    plan->overload = LUMEN_OVERLOAD_WAIT;
}

/* Requests that wait for a slot keep their blocks: a head in pieces finds none. */
static void no_place_for_a_head(void) {
    static const char json[] = "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,4],\"datatype\":\"FP32\","
                               "\"parameters\":{\"binary_data_size\":16}}]}";
    static struct talk four;
    char headers[100], body[300];
    snprintf(headers, sizeof headers, "Inference-Header-Content-Length: %zu\r\n", sizeof json - 1);
    snprintf(body, sizeof body, "%s0123456789abcdef", json);
    runtime_takes_ns = SIM_S;
    talk_open(&one);
    talk_asks(&one, &(struct ask){.id = 1});
    pass(SIM_MS);
    talk_open(&two);
    talk_requests(&two, "POST /v2/models/tiny/infer", headers, body);
    talk_open(&three);
    talk_requests(&three, "POST /v2/models/tiny/infer", headers, body);
    pass(SIM_MS);
    talk_open(&four);
    talk_text(&four, "GET /v2/health/live" HOST);
    talk_answered(&four, 503, "Retry-After: 1\r\n");
    SIM_CHECK(IO_WORD(requests_overloaded) == 1 && IO_WORD(requests_refused) == 1 &&
                  IO_WORD(requests_error) == 0 && IO_WORD(requests) == 4,
              "other words");
    talk_answered(&two, 200, "\"outputs\"");
    talk_answered(&three, 200, "\"outputs\"");
}

/* ---- what is said ---- */

static void one_in_flight(struct sim_plan *plan) {
    plan->in_flight_max = 2;
}

/* A client whose answer would come too late hears in how many seconds the workers are free, rounded
 * up. */
static void too_late(void) {
    static const char json[] =
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,4],\"datatype\":\"FP32\",\"parameters\":"
        "{\"binary_data_size\":16}}],\"parameters\":{\"timeout\":500000}}";
    static const char *const waits[] = {"Retry-After: 2\r\n", "Retry-After: 3\r\n"};
    char headers[100], body[300];
    snprintf(headers, sizeof headers, "Inference-Header-Content-Length: %zu\r\n", sizeof json - 1);
    snprintf(body, sizeof body, "%s0123456789abcdef", json);
    talk_open(&one);
    talk_open(&two);
    runtime_takes_ns = 1300 * SIM_MS;
    for (int n = 0; n < 60; n++) { /* as long as the estimate takes to learn it */
        talk_asks(&one, &(struct ask){.id = 1});
        (void)talk_gets(&one, 1, LM_STATUS_OK);
    }
    for (uint64_t n = 0; n < 2; n++) {
        talk_asks(&one, &(struct ask){.id = 2 + n});
        pass(SIM_MS);
        talk_requests(&two, "POST /v2/models/tiny/infer", headers, body);
        talk_answered(&two, 503, waits[n]);
    }
    SIM_CHECK(IO_WORD(requests_late) == 2, "other words");
}

static void refusals(void) {
    runtime_takes_ns = 100 * SIM_MS;
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    talk_asks(&one, &(struct ask){.id = 1});
    pass(SIM_MS);
    char body[300];
    snprintf(body, sizeof body, "%.*s,\"parameters\":{\"timeout\":30000}}",
             (int)sizeof row_json - 2, row_json);
    talk_requests(&two, "POST /v2/models/tiny/infer", "", body);
    pass(SIM_MS);
    talk_requests(&three, "POST /v2/models/pair/infer", "", row_json);
    talk_answered(&three, 503, "Retry-After: 1\r\n");
    talk_answered(&two, 503, "Retry-After: 1\r\n");
    talk_text(&three, "GET /v2/health/ready HTTP/1.1\r\nHost: evil\r\n\r\n");
    talk_answered(&three, 200, "ready");
    talk_text(&three, "GET /v2/health/live HTTP/1.1\r\nHost: evil\r\n\r\n");
    talk_answered(&three, 200, "live");
    talk_text(&three, "GET /v2 HTTP/1.1\r\nHost: evil\r\n\r\n");
    talk_answered(&three, 421, "found 'evil'");
    talk_close(&one);
    talk_close(&two);
    talk_close(&three);
    counts("io.connections_accepted=3 io.connections_closed=3 io.requests=6 "
           "io.native_requests=1 io.http_requests=5 io.requests_ok=2 "
           "io.requests_error=1 io.requests_bad=1 io.requests_refused=1 "
           "io.requests_overloaded=1 io.bytes_in=501 io.bytes_out=772 "
           "tiny.model_queued=2 pair.model_refused=1 worker.requests_ok=1 "
           "worker.requests_expired=1 worker.rows=1 worker.runs=1 worker.bytes_out=287 "
           "tiny.model_ok=1 tiny.model_expired=1 tiny.model_rows=1 tiny.model_runs=1");
}

/* ---- the figures of the page ---- */

static void narrow(struct sim_plan *plan) {
    plan->socket_bytes = 165;
}

/* Everything that came to nothing is in one word, what an I/O thread sent the rest of is in the
 * latencies too. */
static void figures(void) {
    runtime_takes_ns = 30 * SIM_MS;
    talk_open(&one);
    talk_open(&two);
    talk_asks(&one, &(struct ask){.id = 1, .rows = 8}); /* whose reply is larger than the socket */
    one.deaf = true;
    pass(40 * SIM_MS);
    one.deaf = false;
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    pass(SIM_MS);
    SIM_CHECK(WORKER_WORD(bytes_out) == 165 && IO_WORD(bytes_out) == 11, "%llu and %llu bytes out",
              (unsigned long long)WORKER_WORD(bytes_out), (unsigned long long)IO_WORD(bytes_out));
    const struct lm_histogram *sends = &sim_shared.ios[0].stats->stages[LM_STAGE_SEND];
    uint32_t since = lm_histogram_bucket(10 * SIM_MS), sent = 0;
    for (uint32_t b = since - 2; b <= since + 2; b++)
        sent += (uint32_t)lm_load_relaxed_u64(&sends->buckets[b]);
    SIM_CHECK(sent == 1, "no reply that took 10 ms to be sent");
    SIM_CHECK(IO_WORD(replies_queued) == 1, "other words");
    talk_asks(&one, &(struct ask){.id = 2, .poison = true});
    (void)talk_gets(&one, 2, LM_STATUS_INFERENCE_FAILED);
    runtime_takes_ns = 60 * SIM_MS;
    talk_asks(&one, &(struct ask){.id = 3});
    pass(SIM_MS);
    talk_asks(&two, &(struct ask){.id = 4, .timeout_us = 25000});
    (void)talk_gets(&two, 4, LM_STATUS_DEADLINE);
    (void)talk_gets(&one, 3, LM_STATUS_OK);
    for (uint64_t id = 5; id < 7; id++) {
        talk_asks(&two, &(struct ask){.id = id, .flags = 4});
        (void)talk_gets(&two, id, LM_STATUS_BAD_REQUEST);
        pass(SIM_MS);
    }
    talk_open(&three);
    const char *tiny = strstr(talk_page(&three, "/figures"), "\"name\":\"tiny\"");
    SIM_CHECK(tiny && number_after(tiny, "\"answered\":") == 2 &&
                  number_after(tiny, "\"failed\":") == 1 && number_after(tiny, "\"refused\":") == 3,
              "the figures: %s", tiny);
    uint64_t sum = 0;
    char *at = strstr(tiny, "\"latency\":[") + 11, *end = strchr(at, ']');
    while (at < end) sum += strtoull(at, &at, 10), at++;
    SIM_CHECK(sum == 4, "%llu latencies of 4 replies", (unsigned long long)sum);
    near_ns("infer", number_after(tiny, "\"infer_ns\":"), 120 * SIM_MS, SIM_MS);
    near_ns("queue", number_after(tiny, "\"queue_ns\":"), 59 * SIM_MS, SIM_MS);
}

/* A reply that waits behind another one counts as one whose own bytes wait. */
static void replies_that_wait(void) {
    runtime_takes_ns = 10 * SIM_MS;
    talk_open(&one);
    for (uint64_t id = 1; id < 4; id++) {
        talk_asks(&one, &(struct ask){.id = id, .rows = 8});
        pass(SIM_MS);
    }
    pass(100 * SIM_MS);
    SIM_CHECK(IO_WORD(replies_queued) == 3, "%llu replies wait",
              (unsigned long long)IO_WORD(replies_queued));
    for (uint64_t id = 1; id < 4; id++) (void)talk_gets(&one, id, LM_STATUS_OK);
    SIM_CHECK(IO_WORD(replies_queued) == 3, "other words");
}

const struct rule rules_of_http[] = {
    {"bodies at the limit", NULL, bodies_at_the_limit},
    {"JSON and blobs", NULL, json_and_blobs},
    {"JSON at the limit", NULL, json_at_the_limit},
    {"too late", NULL, too_late},
    {"nearly wrong", NULL, nearly_wrong},
    {"classes of rows", NULL, classes_of_rows},
    {"places for heads", two_blocks, places_for_heads},
    {"no place for a head", two_blocks_and_a_place, no_place_for_a_head},
    {"refusals", one_in_flight, refusals},
    {"the figures of the page", narrow, figures},
    {"replies that wait", narrow, replies_that_wait},
};
const size_t rules_of_http_count = sizeof rules_of_http / sizeof rules_of_http[0];
