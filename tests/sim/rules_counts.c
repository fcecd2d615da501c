/* rules_counts.c: what is counted and written down: every word after a story, and every figure of a
 * row, with values that tell neighbours apart; and what is charged for how much.
 */
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "rules.h"

static struct talk one, two, three;

/* ---- words ---- */

static void deadlines(struct sim_plan *plan) {
    plan->header_ms = 1000;
    plan->reply_ms = 3000;
}

/* Each request comes to another end, on models that are not each other's neighbours. */
static void every_end(void) {
    static const uint8_t large[LM_NATIVE_REQUEST_BYTES] = {
        'L', 'M', 'N', '1', 1, [6] = 1, [16] = 1, [17] = SIM_MAX_REQUEST_BYTES >> 8};
    static const uint8_t shapes[LM_NATIVE_REQUEST_BYTES + 32] = {
        /* [1, 5], and not [1, 4] */
        'L',      'M',      'N',      '1',     1, [16] = 32, [24] = 1, [28] = LM_FLAG_SHAPES,
        [32] = 1, [36] = 2, [40] = 1, [44] = 5};
    static const uint8_t unknown[LM_NATIVE_REQUEST_BYTES] = {'L', 'M', 'N', '1', 9, [6] = 2};
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    talk_asks(&one, &(struct ask){.id = 1, .model = 3, .rows = 2});
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    talk_asks(&one, &(struct ask){.id = 2, .model = 1, .poison = true});
    (void)talk_gets(&one, 2, LM_STATUS_INFERENCE_FAILED);
    talk_asks(&one, &(struct ask){.id = 3, .model = 2, .rows = 5});
    (void)talk_gets(&one, 3, LM_STATUS_BAD_REQUEST);
    talk_asks(&one, &(struct ask){.id = 4, .model = SIM_MODELS});
    (void)talk_gets(&one, 4, LM_STATUS_UNKNOWN_MODEL);
    runtime_takes_ns = 40 * SIM_MS;
    talk_asks(&one, &(struct ask){.id = 5, .model = 3});
    pass(SIM_MS);
    talk_asks(&two, &(struct ask){.id = 6, .model = 0, .timeout_us = 20000});
    talk_asks(&three, &(struct ask){.id = 7, .model = 2});
    pass(SIM_MS);
    peer_client_close(three.peer, true);
    (void)talk_gets(&one, 5, LM_STATUS_OK);
    (void)talk_gets(&two, 6, LM_STATUS_DEADLINE);
    talk_open(&three);
    talk_requests(&three, "POST /v2/models/pair/infer", "", "{\"inputs\":3}");
    talk_answered(&three, 400, "inputs");
    talk_close(&three);
    talk_send(&one, shapes, sizeof shapes);
    (void)talk_gets(&one, 0, LM_STATUS_BAD_REQUEST);
    talk_send(&one, unknown, sizeof unknown);
    (void)talk_gets(&one, 0, LM_STATUS_BAD_REQUEST);
    talk_send(&one, large, sizeof large);
    (void)talk_gets(&one, 0, LM_STATUS_TOO_LARGE);
    SIM_CHECK(one.peer->shut_wr, "it goes on behind a payload that nobody will read");
    talk_asks(&two, &(struct ask){.id = 8, .model = 1, .most = 40}); /* and no more of it */
    pass(SIM_MS);
    talk_close(&one);
    talk_close(&two);
    pass(2 * SIM_S);
    counts("io.connections_accepted=4 io.connections_closed=4 io.requests=12 "
           "io.native_requests=11 io.http_requests=1 io.requests_error=5 "
           "io.requests_bad=3 io.requests_unknown_model=1 io.requests_too_large=1 "
           "io.requests_gone=1 io.bytes_in=2912 io.bytes_out=603 tiny.model_queued=1 "
           "tiny.model_bad=1 wide.model_queued=1 wide.model_bad=1 "
           "picture.model_queued=1 picture.model_bad=1 pair.model_queued=3 "
           "worker.requests_ok=2 worker.requests_error=2 worker.requests_bad=1 "
           "worker.requests_expired=1 worker.requests_gone=1 worker.rows=3 "
           "worker.runs=3 worker.bytes_out=567 tiny.model_expired=1 "
           "wide.model_failed=1 wide.model_runs=1 picture.model_gone=1 pair.model_ok=2 "
           "pair.model_unfit=1 pair.model_rows=3 pair.model_runs=2");
}

/* ---- who asks ---- */

static const char *const adas[] = {"tiny"};
static lumen_key_config keys[2] = {{.name = "ada", .models = adas, .model_count = 1},
                                   {.name = "bob", .rate = 0.001, .burst = 1}};

static void two_keys(struct sim_plan *plan) {
    static const char *const tokens[2] = {"token-of-ada", "token-of-bob"};
    for (int k = 0; k < 2; k++)
        crypto_hash_sha256(keys[k].sha256, (const unsigned char *)tokens[k], strlen(tokens[k]));
    plan->keys = keys;
    plan->key_count = 2;
}

/* Next row of a trace; fails when there is none. */
static struct lm_trace_record row_of(struct lm_trace *trace) {
    struct lm_trace_record row;
    SIM_CHECK(lm_trace_pop(trace, &row, 1) == 1, "a row is missing");
    return row;
}

static void no_row(struct lm_trace *trace) {
    struct lm_trace_record row;
    SIM_CHECK(lm_trace_pop(trace, &row, 1) == 0, "a row too many: %s, code %u",
              row.what ? row.what : "infer", row.code);
}

static void is_row(const struct lm_trace_record *row, const char *what, uint32_t code,
                   const char *key, uint32_t model, uint32_t bytes, bool is_http) {
    bool same = strcmp(row->what ? row->what : "a worker's", what) == 0 && row->code == code &&
                strcmp(row->client.key, key) == 0 && row->model == model && row->bytes == bytes &&
                row->is_http == is_http;
    SIM_CHECK(same, "the row of '%s': code %u key '%s' model %u bytes %u http %u", row->what,
              row->code, row->client.key, row->model, row->bytes, row->is_http);
    bool v4 = row->client.family == AF_INET && row->client.port == 4000 &&
              memcmp(row->client.address, (uint8_t[]){127, 0, 0, 1}, 4) == 0;
    bool v6 =
        row->client.family == AF_INET6 && row->client.port == 6001 &&
        memcmp(row->client.address, (uint8_t[16]){0x20, 1, 0xd, 0xb8, [7] = 1, [15] = 9}, 16) == 0;
    SIM_CHECK(is_http ? v6 : v4, "somebody else asked, from port %u", row->client.port);
}

static void authorised_natively(struct lm_trace *trace) {
    struct lm_trace_record row;
    uint8_t describe[64] = "LMN1\x03";
    talk_open(&one);
    describe[8] = 9;
    describe[16] = LM_NATIVE_CREDENTIAL_BYTES;
    describe[28] = LM_FLAG_CREDENTIAL;
    memcpy(describe + 32, "token-of-eve", 12);
    talk_send(&one, describe, sizeof describe);
    (void)talk_gets(&one, 9, LM_STATUS_UNAUTHORISED);
    row = row_of(trace);
    is_row(&row, "describe", LM_STATUS_UNAUTHORISED, "", LM_TRACE_NO_MODEL, 32, false);
    SIM_CHECK(row.id == 9 && strstr(row.why, "found none or an unknown one"), "'%s'", row.why);
    describe[16] = describe[28] = 0;
    talk_send(&one, describe, 32);
    (void)talk_gets(&one, 9, LM_STATUS_UNAUTHORISED);
    describe[16] = LM_NATIVE_CREDENTIAL_BYTES;
    describe[28] = LM_FLAG_CREDENTIAL;
    memcpy(describe + 32, "token-of-bob", 12);
    talk_send(&one, describe, 40);
    pass(700 * SIM_MS);
    talk_send(&one, describe + 40, 24);
    (void)talk_gets(&one, 9, LM_STATUS_OK);
    (void)row_of(trace);
    row = row_of(trace);
    is_row(&row, "describe", LM_STATUS_OK, "bob", LM_TRACE_NO_MODEL, 32, false);
    near_ns("describe in all", row.total_ns, 700 * SIM_MS, SIM_MS);
    near_ns("describe's start", row.started_ns + row.total_ns, sim_now_ns, SIM_MS);
    talk_pings(&one, 4); /* needs no key */
    (void)row_of(trace);
    talk_asks(&one, &(struct ask){.id = 10});
    (void)talk_gets(&one, 10, LM_STATUS_UNAUTHORISED);
    row = row_of(trace);
    is_row(&row, "infer", LM_STATUS_UNAUTHORISED, "", 0, 16, false);
}

static void authorised_over_http(struct lm_trace *trace) {
    static const char *const bearers[] = {"Authorization: Bearer token-of-ada\r\n",
                                          "X-API-Key: token-of-bob\r\n",
                                          "Authorization: Bearer token-of-eve\r\n"};
    struct lm_trace_record row;
    talk_open(&two);
    talk_requests(&two, "GET /v2/models/pair", bearers[0], "");
    talk_answered(&two, 200, "\"pair\"");
    talk_requests(&two, "POST /v2/models/pair/infer", bearers[0], "0123456789");
    talk_answered(&two, 403, "may not use model 'pair'");
    talk_requests(&two, "GET /v2/models/pair", bearers[2], "");
    talk_answered(&two, 401, "WWW-Authenticate: Bearer\r\n");
    talk_requests(&two, "POST /v2/repository/models/pair/load", bearers[1], "{}");
    talk_answered(&two, 403, "admin key");
    talk_requests(&two, "GET /v2/health/live", "", "");
    talk_answered(&two, 200, "live");
    for (int n = 0; n < 2; n++) { /* one at once is all that this key may */
        char headers[128];
        snprintf(headers, sizeof headers, "Inference-Header-Content-Length: 0\r\n%s", bearers[1]);
        talk_requests(&two, "POST /v2/models/tiny/infer", headers, "0123456789abcdef");
        talk_answered(&two, n ? 429 : 200, n ? "the rate of this key allows" : "\"outputs\"");
    }
    row = row_of(trace);
    is_row(&row, "model_metadata", 200, "ada", 3, 0, true);
    row = row_of(trace);
    is_row(&row, "infer", 403, "ada", 3, 10, true);
    row = row_of(trace);
    is_row(&row, "model_metadata", 401, "", LM_TRACE_NO_MODEL, 0, true);
    (void)row_of(trace);
    (void)row_of(trace);
    row = row_of(trace);
    is_row(&row, "infer", 429, "bob", 0, 16, true);
    no_row(trace);
    row = row_of(&sim_shared.workers[0].trace);
    is_row(&row, "a worker's", 200, "bob", 0, 16, true);
}

static void authorised(void) {
    authorised_natively(&sim_shared.ios[0].trace);
    authorised_over_http(&sim_shared.ios[0].trace);
    char expected[1024];
    /* Of the bytes that go out, the models' description is a part. */
    snprintf(expected, sizeof expected,
             "io.connections_accepted=2 io.connections_open=2 io.requests=12 "
             "io.native_requests=5 io.http_requests=7 io.requests_ok=4 "
             "io.requests_error=6 io.requests_unauthorised=6 io.requests_refused=1 "
             "io.requests_limited=1 io.bytes_in=1056 io.bytes_out=%zu "
             "tiny.model_queued=1 tiny.model_refused=1 worker.requests_ok=1 "
             "worker.rows=1 worker.runs=1 worker.bytes_out=330 tiny.model_ok=1 "
             "tiny.model_rows=1 tiny.model_runs=1",
             1952 + sim_models.description_bytes);
    counts(expected);
}

/* ---- rows, replies and sums of times ---- */

static void two_in_a_batch(struct sim_plan *plan) {
    plan->batch_size = 4;
    plan->batch_delay_ns = SIM_MS;
}

static void is_time(const char *what, uint64_t found_ns, uint64_t expected_ns) {
    near_ns(what, found_ns, expected_ns, 100 * SIM_US);
}

/* A request that takes 300 ms to come, waits 500 ms for its worker and 1 ms
 * for more rows, and shares a Run of 800 ms. */
static void a_row_of_the_trace(void) {
    uint8_t rest[16 * 2] = {0};
    struct lm_trace *trace = &sim_shared.workers[0].trace;
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    runtime_takes_ns = 800 * SIM_MS;
    uint64_t began_ns = sim_now_ns;
    talk_asks(&one, &(struct ask){.id = 41, .model = 0, .rows = 2, .most = 32});
    talk_asks(&three, &(struct ask){.id = 43, .model = 3});
    pass(300 * SIM_MS);
    talk_send(&one, rest, sizeof rest);
    pass(SIM_MS);
    talk_asks(&two, &(struct ask){.id = 42, .model = 0, .rows = 1});
    struct lm_native_reply reply = talk_gets(&one, 41, LM_STATUS_OK);
    SIM_CHECK(reply.rows == 2 && reply.payload_bytes == 32, "%u rows", reply.rows);
    is_time("the reply's receive", reply.receive_us * SIM_US, 300 * SIM_MS);
    is_time("the reply's queue", reply.queue_us * SIM_US, 501 * SIM_MS);
    is_time("the reply's preprocess", reply.preprocess_us * SIM_US, 0);
    is_time("the reply's infer", reply.infer_us * SIM_US, 800 * SIM_MS);
    (void)talk_gets(&two, 42, LM_STATUS_OK);
    SIM_CHECK(IO_WORD(bytes_in) == 64 + 48 + 52, "%llu bytes in",
              (unsigned long long)IO_WORD(bytes_in));
    struct lm_trace_record row = row_of(trace);
    SIM_CHECK(row.id == 43 && row.batch_rows == 1 && row.rows == 1, "another's row");
    is_time("the first one's queue", row.queue_ns, 0);
    row = row_of(trace);
    SIM_CHECK(row.id == 41 && row.rows == 2 && row.batch_rows == 3 && row.bytes == 32 &&
                  row.model == 0 && row.status == 0 && row.code == 0 && !row.what,
              "the row: id %llu rows %u of %u bytes %u", (unsigned long long)row.id, row.rows,
              row.batch_rows, row.bytes);
    is_time("started", row.started_ns, began_ns);
    is_time("receive", row.receive_ns, 300 * SIM_MS);
    is_time("queue", row.queue_ns, 501 * SIM_MS);
    is_time("preprocess", row.preprocess_ns, 0);
    is_time("infer", row.infer_ns, 800 * SIM_MS);
    is_time("send", row.send_ns, 0);
    is_time("total", row.total_ns, 1601 * SIM_MS);
    row = row_of(trace);
    SIM_CHECK(row.id == 42 && row.rows == 1 && row.batch_rows == 3 && row.bytes == 16, "a row");
    is_time("the other's receive", row.receive_ns, 0);
    no_row(trace);
    is_time("the model's queue", WORKER_MODEL_WORD(0, model_queue_ns), 1001 * SIM_MS);
    is_time("the model's infer", WORKER_MODEL_WORD(0, model_infer_ns), 1600 * SIM_MS);
    is_time("the model's total", WORKER_MODEL_WORD(0, model_ok_ns), 2901 * SIM_MS);
    static struct talk four;
    talk_open(&four);
    const char *text = talk_page(&four, "/v2/models/tiny/stats");
    is_time("success", number_after(strstr(text, "\"success\""), "\"ns\":"), 2901 * SIM_MS);
    is_time("queue", number_after(strstr(text, "\"queue\""), "\"ns\":"), 1001 * SIM_MS);
    is_time("input", number_after(strstr(text, "\"compute_input\""), "\"ns\":"), 0);
    is_time("infer", number_after(strstr(text, "\"compute_infer\""), "\"ns\":"), 1600 * SIM_MS);
    is_time("output", number_after(strstr(text, "\"compute_output\""), "\"ns\":"), 0);
    talk_asks(&one, &(struct ask){.id = 44, .model = 1, .poison = true});
    reply = talk_gets(&one, 44, LM_STATUS_INFERENCE_FAILED);
    SIM_CHECK(reply.rows == 0, "a failure with %u rows", reply.rows);
    is_time("the time of failures", WORKER_MODEL_WORD(1, model_failed_ns), 800 * SIM_MS);
    SIM_CHECK(WORKER_MODEL_WORD(1, model_ok_ns) == 0, "a failure's time is success's too");
    row = row_of(trace);
    SIM_CHECK(row.status == LM_STATUS_INFERENCE_FAILED && strstr(row.why, "poisoned"), "'%s'",
              row.why);
    talk_asks(&one, &(struct ask){.id = 45, .model = 1}); /* in the same slot */
    (void)talk_gets(&one, 45, LM_STATUS_OK);
    row = row_of(trace);
    SIM_CHECK(row.id == 45 && row.why[0] == '\0', "the last one's why: '%s'", row.why);
}

/* A batch that fails is run again one by one, and a bad request fails alone. */
static void a_batch_that_fails(void) {
    talk_open(&one);
    talk_open(&two);
    talk_asks(&one, &(struct ask){.id = 1, .rows = 2});
    pass(100 * SIM_US);
    talk_asks(&two, &(struct ask){.id = 2, .poison = true});
    (void)talk_gets(&two, 2, LM_STATUS_INFERENCE_FAILED);
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    struct lm_trace_record row = row_of(&sim_shared.workers[0].trace);
    SIM_CHECK(row.id == 1 && row.rows == 2 && row.batch_rows == 2, "%u of %u rows", row.rows,
              row.batch_rows);
    talk_close(&one);
    talk_close(&two);
    pass(SIM_S);
    counts("io.connections_accepted=2 io.connections_closed=2 io.requests=2 "
           "io.native_requests=2 io.bytes_in=112 tiny.model_queued=2 "
           "worker.requests_ok=1 worker.requests_error=1 worker.rows=2 worker.runs=3 "
           "worker.batches_failed=1 worker.bytes_out=136 tiny.model_ok=1 "
           "tiny.model_failed=1 tiny.model_rows=2 tiny.model_runs=3");
}

static void two_workers(struct sim_plan *plan) {
    plan->worker_count = 2;
}

/* Over both workers, whichever was the last. */
static void statistics(void) {
    talk_open(&one);
    talk_open(&two);
    talk_open(&three);
    for (uint64_t round = 1; round <= 4; round++) {
        runtime_takes_ns = (round % 2 ? 100 : 700) * SIM_MS;
        talk_asks(&one, &(struct ask){.id = 1, .model = 3, .rows = 2});
        pass(SIM_MS);
        runtime_takes_ns = 300 * SIM_MS;
        talk_asks(&three, &(struct ask){.id = 2, .model = 3});
        (void)talk_gets(&three, 2, LM_STATUS_OK);
        uint64_t last_ns = sim_now_ns;
        (void)talk_gets(&one, 1, LM_STATUS_OK);
        if (round % 2 == 0) last_ns = sim_now_ns;
        near_ns("the last answer",
                number_after(talk_page(&two, "/v2/models/pair/stats"), "\"last_inference\":") *
                    SIM_MS,
                last_ns, 2 * SIM_MS);
    }
    talk_asks(&one, &(struct ask){.id = 3, .model = 3, .poison = true});
    (void)talk_gets(&one, 3, LM_STATUS_INFERENCE_FAILED);
    talk_asks(&one, &(struct ask){.id = 4, .model = 0});
    (void)talk_gets(&one, 4, LM_STATUS_OK);
    const char *text = talk_page(&two, "/v2/models/pair/stats");
    SIM_CHECK(number_after(text, "\"success\":{\"count\":") == 8 &&
                  number_after(text, "\"fail\":{\"count\":") == 1 &&
                  number_after(text, "\"inference_count\":") == 12 &&
                  number_after(text, "\"execution_count\":") == 9,
              "the statistics: %s", text);
    near_ns("success", number_after(strstr(text, "\"success\""), "\"ns\":"), 2800 * SIM_MS, SIM_MS);
    near_ns("failures", number_after(strstr(text, "\"fail\""), "\"ns\":"), 300 * SIM_MS, SIM_MS);
    near_ns("infer", number_after(strstr(text, "\"compute_infer\""), "\"ns\":"), 2800 * SIM_MS,
            SIM_MS);
    text = strstr(talk_page(&two, "/figures"), "\"name\":\"pair\"");
    SIM_CHECK(number_after(text, "\"answered\":") == 8 && number_after(text, "\"failed\":") == 1 &&
                  number_after(text, "\"refused\":") == 0,
              "the figures: %s", text);
    near_ns("the figures' infer", number_after(text, "\"infer_ns\":"), 3100 * SIM_MS, SIM_MS);
    SIM_CHECK(number_after(text, "\"queue_ns\":") < SIM_MS, "the figures' queue: %s", text);
}

static void two_threads(struct sim_plan *plan) {
    plan->io_count = 2;
}

/* Each I/O thread counts its own; the page shows the sum. */
static void words_of_threads(void) {
    uint64_t asked[2] = {0, 0};
    for (uint64_t n = 0; n < 12; n++) {
        talk_open(&one);
        asked[one.peer->io]++;
        talk_asks(&one, &(struct ask){.id = n, .model = 3, .rows = 7});
        (void)talk_gets(&one, n, LM_STATUS_BAD_REQUEST);
        talk_close(&one);
    }
    for (uint32_t i = 0; i < 2; i++) {
        const struct lm_stats_block *stats = sim_shared.ios[i].stats;
        const struct lm_io_counters *io = &stats->io;
        SIM_CHECK(lm_load_relaxed_u64(&io->requests) == asked[i] &&
                      lm_load_relaxed_u64(&io->connections_closed) == asked[i] &&
                      lm_load_relaxed_u64(&stats->models[3].io.model_bad) == asked[i] &&
                      asked[i] > 0,
                  "I/O thread %u has counted another one's", i);
    }
    talk_open(&two);
    const char *text = strstr(talk_page(&two, "/figures"), "\"name\":\"pair\"");
    SIM_CHECK(number_after(text, "\"refused\":") == 12, "the figures: %s", text);
}

static void cached(struct sim_plan *plan) {
    plan->cache_bytes = plan->io_count * 65536;
}

/* The same request again is answered from the cache: no Run, in words and rows of its own. */
static void an_answer_twice(void) {
    talk_open(&one);
    talk_asks(&one, &(struct ask){.id = 1, .model = 3, .rows = 2});
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    pass(SIM_S); /* the slot is back */
    talk_asks(&one, &(struct ask){.id = 2, .model = 3, .rows = 2});
    (void)talk_gets(&one, 2, LM_STATUS_OK);
    struct lm_trace_record row = row_of(&sim_shared.ios[0].trace);
    SIM_CHECK(row.id == 2 && row.rows == 2 && row.model == 3 && row.status == LM_STATUS_OK &&
                  !row.what && row.width == 0 && row.infer_ns == 0 && row.total_ns > 0,
              "another row: request %llu", (unsigned long long)row.id);
    talk_asks(&one, &(struct ask){.id = 3, .model = 3, .rows = 1}); /* other sizes */
    (void)talk_gets(&one, 3, LM_STATUS_OK);
    SIM_CHECK(IO_WORD(cache_hits) == 1 && IO_MODEL_WORD(3, model_ok) == 1 &&
                  IO_MODEL_WORD(3, model_cache_hits) == 1 &&
                  IO_MODEL_WORD(3, model_cache_misses) == 2 && IO_WORD(requests_ok) == 1 &&
                  WORKER_WORD(runs) == 2 && WORKER_MODEL_WORD(3, model_ok) == 2,
              "other words");
    SIM_CHECK(IO_MODEL_WORD(3, model_cache_miss_ns) > 0 &&
                  IO_MODEL_WORD(3, model_ok_ns) == row.total_ns,
              "other times");
}

const struct rule rules_of_counts[] = {
    {"an answer twice", cached, an_answer_twice},
    {"words of threads", two_threads, words_of_threads},
    {"every end", deadlines, every_end},
    {"authorised", two_keys, authorised},
    {"a row of the trace", two_in_a_batch, a_row_of_the_trace},
    {"a batch that fails", two_in_a_batch, a_batch_that_fails},
    {"statistics", two_workers, statistics},
};
const size_t rules_of_counts_count = sizeof rules_of_counts / sizeof rules_of_counts[0];
