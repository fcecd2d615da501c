/* rules.c: see rules.h: how a story is told, and what of it is looked at. The stories are in
 * the files beside it.
 */
#include "rules.h"

#include <stdlib.h>
#include <string.h>

enum { ASK_BYTES_MAX = LM_NATIVE_REQUEST_BYTES + 16 * 1024 };

static struct client nobody = {.pace_ns = 1}; /* away: the simulated clients stay out of it */
static struct talk *awaited;
static uint32_t awaited_bytes;

static bool never(void) {
    return false;
}

/* Every story goes on while the thread has timers; without any, nothing would move the clock. */
void pass(uint64_t ns) {
    uint64_t until = sim_now_ns + ns;
    (void)schedule(never, until);
    if (sim_now_ns < until) sim_now_ns = until;
}

/* ---- one end of a connection ---- */

static void take(struct talk *talk) {
    int got;
    if (talk->deaf) return;
    while ((got = peer_client_receive(talk->peer, talk->in + talk->in_bytes,
                                      TALK_ROOM - talk->in_bytes)) > 0)
        talk->in_bytes += (uint32_t)got;
}

static bool has_ended(void) {
    take(awaited);
    return awaited->peer->server_closed || awaited->peer->client_reset;
}

static bool has_come(void) {
    take(awaited);
    return awaited->in_bytes >= awaited_bytes;
}

void talk_open(struct talk *talk) {
    talk->in_bytes = 0;
    talk->deaf = false;
    talk->peer = peer_connect(&nobody);
    SIM_CHECK(talk->peer, "nobody listens");
}

void talk_send(struct talk *talk, const void *bytes, size_t count) {
    uint32_t sent = peer_client_send(talk->peer, bytes, (uint32_t)count);
    SIM_CHECK(sent == count, "%u of %zu bytes fit the socket", sent, count);
}

void talk_text(struct talk *talk, const char *text) {
    talk_send(talk, text, strlen(text));
}

void talk_close(struct talk *talk) {
    peer_client_close(talk->peer, false);
    pass(SIM_MS);
}

void talk_ends(struct talk *talk, uint64_t least_ns, uint64_t most_ns) {
    uint64_t began_ns = sim_now_ns;
    awaited = talk;
    SIM_CHECK(schedule(has_ended, sim_now_ns + most_ns), "the connection is open after %llu us",
              (unsigned long long)most_ns / 1000);
    SIM_CHECK(sim_now_ns >= began_ns + least_ns, "the connection ended after %llu us, not %llu",
              (unsigned long long)(sim_now_ns - began_ns) / 1000,
              (unsigned long long)least_ns / 1000);
    take(talk);
}

void talk_reads(struct talk *talk, uint32_t count, uint64_t most_ns) {
    awaited = talk;
    awaited_bytes = count;
    SIM_CHECK(schedule(has_come, sim_now_ns + most_ns), "%u bytes came, not %u: '%.*s'",
              talk->in_bytes, count, (int)talk->in_bytes, (const char *)talk->in);
}

void talk_takes_nothing(struct talk *talk, uint64_t for_ns) {
    uint32_t before = talk->in_bytes;
    pass(for_ns);
    take(talk);
    SIM_CHECK(talk->in_bytes == before && !talk->peer->server_closed,
              "%u bytes came, and nothing should", talk->in_bytes - before);
}

/* ---- native requests ---- */

/* Writes it; returns how many bytes it has. */
static uint32_t write_ask(const struct ask *ask, uint8_t bytes[ASK_BYTES_MAX]) {
    static const uint32_t row_floats[SIM_MODELS] = {4, 300, 48, 2, 1};
    memset(bytes, 0, ASK_BYTES_MAX);
    memcpy(bytes, "LMN1", 4);
    uint32_t rows = ask->rows ? ask->rows : 1, flags = ask->flags;
    uint32_t payload = 4 * rows * row_floats[ask->model % SIM_MODELS];
    if (ask->model == 3) payload += 12;
    uint32_t credential = flags & LM_FLAG_CREDENTIAL ? LM_NATIVE_CREDENTIAL_BYTES : 0;
    payload += credential;
    bytes[4] = LM_KIND_INFER;
    memcpy(bytes + 6, &ask->model, 2);
    memcpy(bytes + 8, &ask->id, 8);
    memcpy(bytes + 16, &payload, 4);
    memcpy(bytes + 20, &ask->timeout_us, 4);
    memcpy(bytes + 24, &rows, 4);
    memcpy(bytes + 28, &flags, 2);
    const float poison = SIM_POISON, lie = SIM_LIE;
    if (ask->lies) memcpy(bytes + LM_NATIVE_REQUEST_BYTES + credential, &lie, sizeof lie);
    if (ask->poison) memcpy(bytes + LM_NATIVE_REQUEST_BYTES + credential, &poison, sizeof poison);
    return LM_NATIVE_REQUEST_BYTES + payload;
}

void talk_asks(struct talk *talk, const struct ask *ask) {
    uint8_t bytes[ASK_BYTES_MAX];
    uint32_t all = write_ask(ask, bytes);
    talk_send(talk, bytes, ask->most ? ask->most : all);
}

void talk_asks_late(struct talk *talk, const struct ask *ask, uint64_t later_ns) {
    enum { BEFORE = 10 };
    uint8_t bytes[ASK_BYTES_MAX];
    uint32_t all = write_ask(ask, bytes);
    talk_send(talk, bytes, BEFORE);
    pass(later_ns);
    talk_send(talk, bytes + BEFORE, all - BEFORE);
}

static void drop(struct talk *talk, uint32_t count) {
    talk->in_bytes -= count;
    memmove(talk->in, talk->in + count, talk->in_bytes);
}

struct lm_native_reply talk_gets(struct talk *talk, uint64_t id, enum lm_status status) {
    struct lm_native_reply reply = {0};
    talk_reads(talk, LM_NATIVE_REPLY_BYTES, 60 * SIM_S);
    const uint8_t *at = talk->in;
    memcpy(&reply.status, at + 4, 2);
    memcpy(&reply.id, at + 8, 8);
    memcpy(&reply.payload_bytes, at + 16, 4);
    memcpy(&reply.rows, at + 20, 4);
    memcpy(&reply.receive_us, at + 24, 4);
    memcpy(&reply.queue_us, at + 28, 4);
    memcpy(&reply.preprocess_us, at + 32, 4);
    memcpy(&reply.infer_us, at + 36, 4);
    talk_reads(talk, LM_NATIVE_REPLY_BYTES + reply.payload_bytes, SIM_S);
    SIM_CHECK(reply.id == id && reply.status == (uint16_t)status,
              "the reply to %llu has status %u, expected %u to %llu: '%.*s'",
              (unsigned long long)reply.id, reply.status, status, (unsigned long long)id,
              (int)(reply.status ? reply.payload_bytes : 0),
              (const char *)talk->in + LM_NATIVE_REPLY_BYTES);
    drop(talk, LM_NATIVE_REPLY_BYTES + reply.payload_bytes);
    return reply;
}

void talk_pings(struct talk *talk, uint8_t id) {
    uint8_t bytes[LM_NATIVE_REQUEST_BYTES] = "LMN1";
    bytes[4] = LM_KIND_PING;
    bytes[8] = id;
    talk_send(talk, bytes, sizeof bytes);
    (void)talk_gets(talk, id, LM_STATUS_OK);
}

/* ---- HTTP ---- */

static uint32_t body_bytes(const char *head) {
    const char *line = strstr(head, "\r\nContent-Length: ");
    SIM_CHECK(line, "an answer without a length: %s", head);
    return (uint32_t)strtoul(line + 18, NULL, 10);
}

/* Waits for a whole answer; returns its bytes, which `in` begins with. */
static uint32_t await_answer(struct talk *talk) {
    talk_reads(talk, 20, 60 * SIM_S);
    talk->in[talk->in_bytes] = '\0';
    const char *head = (const char *)talk->in, *end = strstr(head, "\r\n\r\n");
    SIM_CHECK(end, "half a head: %s", head);
    uint32_t all = (uint32_t)(end + 4 - head) + body_bytes(head);
    talk_reads(talk, all, SIM_S);
    talk->in[talk->in_bytes] = '\0';
    return all;
}

void talk_answered(struct talk *talk, uint32_t code, const char *text) {
    char begins[32];
    uint32_t all = await_answer(talk);
    const char *head = (const char *)talk->in;
    uint8_t behind = talk->in[all];
    talk->in[all] = '\0'; /* what comes behind it is another one's */
    snprintf(begins, sizeof begins, "HTTP/1.1 %u ", code);
    SIM_CHECK(strncmp(head, begins, strlen(begins)) == 0 && strstr(head, text),
              "expected %u and '%s' in: %s", code, text, head);
    talk->in[all] = behind;
    drop(talk, all);
}

const char *talk_page(struct talk *talk, const char *path) {
    char line[128];
    snprintf(line, sizeof line, "GET %s", path);
    talk_requests(talk, line, "", "");
    (void)await_answer(talk);
    talk->in_bytes = 0; /* nothing comes behind it */
    return (const char *)talk->in;
}

void talk_requests(struct talk *talk, const char *line, const char *headers, const char *body) {
    char text[2048];
    snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n%s\r\n%s",
             line, strlen(body), headers, body);
    talk_text(talk, text);
}

/* ---- what is looked at ---- */

uint64_t number_after(const char *text, const char *before) {
    const char *at = strstr(text, before);
    SIM_CHECK(at, "no '%s' in %s", before, text);
    return strtoull(at + strlen(before), NULL, 10);
}

void near_ns(const char *what, uint64_t found_ns, uint64_t expected_ns, uint64_t within_ns) {
    SIM_CHECK(found_ns + within_ns >= expected_ns && found_ns <= expected_ns + within_ns,
              "%s: %llu us, expected %llu", what, (unsigned long long)found_ns / 1000,
              (unsigned long long)expected_ns / 1000);
}

static char said[4096];

static void say(const char *of, const char *name, uint64_t value) {
    size_t used = strlen(said), bytes = strlen(name);
    bool is_time = bytes > 3 && strcmp(name + bytes - 3, "_ns") == 0;
    if (value == 0 || is_time || strcmp(name, "sleeps") == 0 || strcmp(name, "model_last_ms") == 0)
        return;
    snprintf(said + used, sizeof said - used, "%s%s.%s=%llu", used ? " " : "", of, name,
             (unsigned long long)value);
}

static void say_io(const struct lm_stats_block *block) {
#define SAY(word, kind) say("io", #word, lm_load_relaxed_u64(&block->io.word));
    LM_IO_FIELDS(SAY)
#undef SAY
    for (uint32_t m = 0; m < SIM_MODELS; m++) {
#define SAY(word, kind) \
    say(sim_models.models[m]->name, #word, lm_load_relaxed_u64(&block->models[m].io.word));
        LM_IO_MODEL_FIELDS(SAY)
#undef SAY
    }
}

static void say_worker(const struct lm_stats_block *block) {
#define SAY(word, kind) say("worker", #word, lm_load_relaxed_u64(&block->worker.word));
    LM_WORKER_FIELDS(SAY)
#undef SAY
    for (uint32_t m = 0; m < SIM_MODELS; m++) {
#define SAY(word, kind) \
    say(sim_models.models[m]->name, #word, lm_load_relaxed_u64(&block->models[m].worker.word));
        LM_MODEL_FIELDS(SAY)
#undef SAY
    }
}

void counts(const char *expected) {
    said[0] = '\0';
    say_io(sim_shared.ios[0].stats);
    say_worker(sim_shared.workers[0].stats);
    SIM_CHECK(strcmp(said, expected) == 0, "expected: %s\n     found:    %s", expected, said);
}

/* ---- running ---- */

static struct sim_plan calm(void) {
    return (struct sim_plan){.io_count = 1,
                             .worker_count = 1,
                             .queue_type = LUMEN_QUEUE_MPMC,
                             .idle = LUMEN_IDLE_PARK,
                             .allocator_type = LUMEN_ALLOCATOR_ARENA,
                             .overload = LUMEN_OVERLOAD_REFUSE,
                             .connections = 16,
                             .header_buffers = 64,
                             .descriptors = FDS_MAX,
                             .completions = 200,
                             .socket_bytes = 60000,
                             .run_ns_max = 1,
                             .batch_size = 1,
                             .in_flight_max = 1000,
                             .slots = 8,
                             .plain = true,
                             .drain_at_ns = UINT64_MAX};
}

static void run(const struct rule *rule, uint64_t seed) {
    sim_seed(seed);
    sim_rule = rule->name;
    sim_steps = 0;
    sim_plan = calm();
    sim_limits = (struct sim_limits){.http_blocks = 16,
                                     .pipeline_max = 64,
                                     .slot_waiters_max = 32,
                                     .unparking_max = 16,
                                     .linger_bytes_max = 2000,
                                     .expiries_per_turn = 16,
                                     .parses_per_turn = 256,
                                     .here_bytes = 256 << 10};
    if (rule->plan) rule->plan(&sim_plan);
    runtime_takes_ns = SIM_US;
    runtime_lies_ns = runtime_loses_ns = 0;
    pictures_slice_ns = 0;
    fibers_reset();
    rings_reset();
    network_reset();
    check_reset();
    engine_models();
    engine_open();
    engine_start();
    pass(SIM_MS);
    rule->tell();
    engine_drain(0);
    SIM_CHECK(schedule(engine_ended, sim_now_ns + 100 * SIM_S), "draining does not end");
    SIM_CHECK(IO_WORD(in_flight) + IO_WORD(slots_in_use) + IO_WORD(connections_open) == 0,
              "a gauge still stands after the end");
    engine_close();
    network_free();
    runtime_takes_ns = runtime_loses_ns = pictures_slice_ns = 0;
    sim_rule = NULL;
}

/* The order of turns differs with the seed; the rules do not. */
void rules_run(void) {
    enum { SEEDS = 3 };
    const struct {
        const struct rule *rules;
        size_t count;
    } all[] = {
        {rules_of_clocks, rules_of_clocks_count}, {rules_of_entry, rules_of_entry_count},
        {rules_of_counts, rules_of_counts_count}, {rules_of_ends, rules_of_ends_count},
        {rules_of_http, rules_of_http_count},     {rules_of_http2, rules_of_http2_count},
        {rules_of_own, rules_of_own_count},       {rules_of_pictures, rules_of_pictures_count},
        {rules_of_cache, rules_of_cache_count},   {rules_of_bounds, rules_of_bounds_count},
        {rules_of_shadow, rules_of_shadow_count}, {rules_of_slot_wait, rules_of_slot_wait_count}};
    size_t count = 0;
    for (size_t a = 0; a < sizeof all / sizeof all[0]; a++) {
        for (size_t r = 0; r < all[a].count; r++) {
            for (uint64_t seed = 1; seed <= SEEDS; seed++) run(&all[a].rules[r], seed);
        }
        count += all[a].count;
    }
    printf("sim: %zu rules, each with %d seeds\n", count, SEEDS);
}
