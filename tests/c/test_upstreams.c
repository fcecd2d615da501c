/* test_upstreams.c: what a gateway reads and checks before any byte moves: the settings of
 * upstreams, heads of answers (row 51 of the project's list of hostile inputs), and requests and
 * answers in OpenAI's form (row 52). Splits and garbage: the fuzzers' corpora. */
#include "base/error.h"
#include <arpa/inet.h>

#include "check.h"
#include "formats/oip_request.h"
#include "formats/openai_request.h"
#include "formats/openai_usage.h"
#include "parts/upstreams.h"
#include "server/state.h"
#include "wire/http_response.h"
#include "wire/http_scan.h"

/* ---- settings ---- */

static lumen_upstream_config good(const lumen_upstream_address *address) {
    return (lumen_upstream_config){.name = "up",
                                   .addresses = address,
                                   .address_count = 1,
                                   .connections = 1,
                                   .in_flight = 8,
                                   .first_byte_ms = 50,
                                   .retries = 1,
                                   .retry_share = 0.25,
                                   .token_bytes = 2,
                                   .answer_tokens = 100};
}

static void expect_refusal(lumen_upstream_config config, const char *word) {
    struct lm_upstreams upstreams = {0};
    CHECK_AT("%s", word);
    CHECK(lm_upstreams_add(&upstreams, &config) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), word));
    CHECK(!strstr(lm_error_last(), "secret"));
    CHECK(upstreams.count == 0);
}

static void test_settings(void) {
    const lumen_upstream_address v4 = {.ip = "10.0.0.7", .host = "a:81", .path = "/p", .port = 81};
    const lumen_upstream_address v6 = {.ip = "::1", .host = "[::1]", .path = "", .port = 80};
    struct lm_upstreams upstreams = {0};
    lumen_upstream_config config = good(&v4);
    config.authorization = "Bearer secret";
    CHECK(lm_upstreams_add(&upstreams, &config) == 0);
    config = good(&v6);
    CHECK(lm_upstreams_add(&upstreams, &config) == 0);
    CHECK(upstreams.count == 2);
    CHECK(strcmp(upstreams.at[0]->authorization, "Authorization: Bearer secret\r\n") == 0);
    CHECK(strcmp(upstreams.at[1]->authorization, "") == 0);
    CHECK(strcmp(upstreams.at[0]->addresses[0].host, "Host: a:81\r\n") == 0);
    CHECK(upstreams.at[0]->first_byte_ns == 50000000 && upstreams.at[0]->retry_percent == 25);
    CHECK(upstreams.at[1]->addresses[0].socket.ss_family == AF_INET6);
    lm_upstreams_close(&upstreams);

    lumen_upstream_address bad = v4;
    config = good(&bad);
    bad.ip = "localhost";
    expect_refusal(config, "IPv4 or IPv6");
    bad = v4;
    bad.port = 0;
    expect_refusal(config, "port");
    bad = v4;
    bad.host = "a\r\nX: y";
    expect_refusal(config, "a host and a path");
    bad = v4;
    config.authorization = "Bearer secret\nX: y";
    expect_refusal(config, "without line ends");
    config = good(&v4);
    config.name = "";
    expect_refusal(config, "1 to 63 bytes");
    config = good(&v4);
    config.address_count = 0;
    expect_refusal(config, "addresses");
    config = good(&v4);
    config.in_flight = 0;
    expect_refusal(config, "in_flight");
    config = good(&v4);
    config.retry_share = 1.5;
    expect_refusal(config, "retry_share");
    config = good(&v4);
    config.token_bytes = 0;
    expect_refusal(config, "token_bytes");
    config = good(&v4);
    config.answer_tokens = 1u << 25;
    expect_refusal(config, "answer_tokens");
}

/* ---- addresses that come and go ---- */

static uint32_t used(const struct lm_upstream *upstream) {
    uint32_t count = 0;
    for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++)
        count += lm_upstream_address_is_used(&upstream->addresses[a]);
    return count;
}

/* The entry of a port; the number of its address tells whether it has been another's. */
static struct lm_upstream_address *entry_of(struct lm_upstream *upstream, uint32_t port) {
    for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++) {
        struct lm_upstream_address *address = &upstream->addresses[a];
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->socket;
        if (v4->sin_port == htons((uint16_t)port)) return address;
    }
    CHECK(false);
    return NULL;
}

static int move(struct lm_upstream *upstream, uint32_t first, uint32_t count, bool are_turned) {
    lumen_upstream_address addresses[LUMEN_UPSTREAM_ADDRESSES_MAX];
    lumen_upstream_config config = good(addresses);
    bool any_left_out = false;
    config.address_count = count;
    for (uint32_t a = 0; a < count; a++)
        addresses[a] = (lumen_upstream_address){
            .ip = "127.0.0.1", .host = "there", .path = "", .port = first + a};
    return lm_upstream_move(upstream, &config, are_turned, &any_left_out);
}

static void moves(void) {
    enum { MOST = LUMEN_UPSTREAM_ADDRESSES_MAX };
    const lumen_upstream_address v4 = {.ip = "127.0.0.1", .host = "there", .path = "", .port = 1};
    struct lm_upstreams upstreams = {0};
    const lumen_upstream_config config = good(&v4);
    CHECK(lm_upstreams_add(&upstreams, &config) == 0);
    struct lm_upstream *upstream = upstreams.at[0];
    CHECK(move(upstream, 1, MOST, true) == 0 && used(upstream) == MOST); /* one was there */
    CHECK(upstream->address_last == MOST);
    lm_store_relaxed_u64(&entry_of(upstream, 3)->links, 1);
    /* No entry is free until all threads have turned: those that went have them still. */
    CHECK(move(upstream, 2, MOST, true) == LUMEN_E_AGAIN && used(upstream) == MOST - 1);
    CHECK(move(upstream, 2, MOST, false) == LUMEN_E_AGAIN && upstream->address_last == MOST);
    CHECK(move(upstream, 2, MOST, true) == 0 && used(upstream) == MOST);
    CHECK(entry_of(upstream, MOST + 1)->number == MOST + 1);
    /* Nor is that of a connection; with others gone it is the last that is left. */
    CHECK(move(upstream, 100, 1, true) == LUMEN_E_AGAIN && used(upstream) == MOST);
    CHECK(move(upstream, 4, 1, true) == 0 && used(upstream) == 1);
    CHECK(move(upstream, 100, MOST, true) == LUMEN_E_AGAIN);
    CHECK(!lm_upstream_address_is_used(entry_of(upstream, 3)));
    lm_store_relaxed_u64(&entry_of(upstream, 3)->links, 0);
    CHECK(move(upstream, 100, MOST, false) == LUMEN_E_AGAIN); /* a thread may have chosen it */
    CHECK(move(upstream, 100, MOST, true) == 0 && used(upstream) == MOST);
    CHECK(move(upstream, 100, 0, true) == LUMEN_E_INVALID && used(upstream) == MOST);
    lm_upstreams_close(&upstreams);
}

/* The place of an address that went is another's once the server's I/O thread has turned since: it
 * may have chosen that address before. */
static void moves_of_a_server(void) {
    enum { MOST = LUMEN_UPSTREAM_ADDRESSES_MAX, TURNS = 3 };
    static lumen_server server;
    static struct lm_io io;
    lumen_upstream_address addresses[MOST];
    lumen_upstream_config config = good(addresses);
    uint32_t index = UINT32_MAX;
    for (uint32_t a = 0; a < MOST; a++)
        addresses[a] =
            (lumen_upstream_address){.ip = "127.0.0.1", .host = "there", .path = "", .port = 1 + a};
    config.address_count = MOST;
    server.shared.ios = &io;
    server.shared.io_count = 1;
    pthread_mutex_init(&server.control, NULL);
    CHECK(lumen_add_upstream(&server, &config, &index) == 0 && index == 0);
    CHECK(lumen_move_upstream(&server, 0, addresses, 1) == LUMEN_E_STATE);
    server.state = SERVER_RUNNING;
    for (uint32_t turn = 1; turn <= TURNS; turn++) {
        CHECK_AT("turn %u", turn);
        CHECK(lumen_move_upstream(&server, 0, addresses, 1) == 0); /* all others go */
        addresses[1].port = 100 + turn;
        CHECK(lumen_move_upstream(&server, 0, addresses, 2) == LUMEN_E_AGAIN);
        lm_store_release_u64(&io.turns_seen, turn);
        CHECK(lumen_move_upstream(&server, 0, addresses, 2) == 0);
        CHECK(used(server.shared.upstreams.at[0]) == 2);
    }
    pthread_mutex_destroy(&server.control);
    lm_upstreams_close(&server.shared.upstreams);
}

/* ---- heads of answers ---- */

static int parse(const char *text, struct lm_http_response *response) {
    char why[256];
    return lm_http_parse_response(text, strlen(text), false, response, why, sizeof why);
}

static void test_heads(void) {
    struct lm_http_response response;
    const char plain[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\n";
    CHECK(parse(plain, &response) == (int)sizeof plain - 1);
    CHECK(response.status == 200 && response.framing == LM_HTTP_FRAMED_BY_LENGTH);
    CHECK(response.length == 5 && response.keep_alive);
    CHECK(parse("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &response) > 0);
    CHECK(response.framing == LM_HTTP_FRAMED_BY_CHUNKS && response.keep_alive);
    CHECK(parse("HTTP/1.1 200\r\n\r\n", &response) > 0);
    CHECK(response.framing == LM_HTTP_FRAMED_BY_CLOSE && !response.keep_alive);
    CHECK(parse("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", &response) > 0);
    CHECK(!response.keep_alive);
    CHECK(parse("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: a, CLOSE\r\n\r\n", &response) >
          0);
    CHECK(!response.keep_alive);
    CHECK(parse("HTTP/1.1 204 No\r\nKeep-Alive: max=3, timeout=7\r\n\r\n", &response) > 0);
    CHECK(response.framing == LM_HTTP_FRAMED_BY_LENGTH && response.length == 0);
    CHECK(response.keep_alive_s == 7);
    /* Both framings: the chunks count, and the connection is not used again. */
    CHECK(parse("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                &response) > 0);
    CHECK(response.framing == LM_HTTP_FRAMED_BY_CHUNKS && !response.keep_alive);
    CHECK(parse("HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", &response) > 0);
    CHECK(response.retry_after);
    CHECK(parse("HTTP/1.1 200 OK\r\nA: b\r\n", &response) == 0);
    CHECK(parse("HT", &response) == 0);
    CHECK(parse("HTTP/1.1 99 x\r\n\r\n", &response) < 0);
    CHECK(parse("HTTP/1.1 600 x\r\n\r\n", &response) < 0);
    CHECK(parse("ICY 200 OK", &response) < 0);
    CHECK(parse("HTTP/1.1 200 OK\r\nA b\r\n\r\n", &response) < 0);
    CHECK(parse("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", &response) < 0);
}

static void test_fields(void) {
    struct lm_http_response response;
    struct lm_http_field field;
    CHECK(parse("HTTP/1.1 200 OK\r\nDate: x\r\nA: \t1 \r\nconnection: close\r\nB:\r\n"
                "Content-Length: 0\r\nSet-Cookie: c\r\nTE: x\r\n\r\n",
                &response) > 0);
    struct lm_slice left = response.fields;
    CHECK(lm_http_next_passed(&left, &field));
    CHECK(lm_slice_is(field.name, "a") && lm_slice_is(field.value, "1"));
    CHECK(lm_http_next_passed(&left, &field));
    CHECK(lm_slice_is(field.name, "b") && field.value.bytes == 0);
    CHECK(!lm_http_next_passed(&left, &field));
}

/* ---- requests ---- */

static enum lm_status read_text(struct lm_openai_parser *parser, const char *text,
                                struct lm_openai_request *asked) {
    static char padded[8192 + LM_OIP_PADDING];
    char why[256];
    memcpy(padded, text, strlen(text) + 1);
    return lm_openai_read(parser, padded, strlen(text), asked, why, sizeof why);
}

static void test_requests(void) {
    struct lm_openai_parser *parser;
    struct lm_openai_request asked;
    CHECK(lm_openai_parser_open(&parser, 8192) == 0);
    const char text[] = "{\"a\": {\"model\": \"x\"}, \"model\": \"gpt\\/4\", \"stream\": true, "
                        "\"max_completion_tokens\": 77, \"b\": [1, {}]}";
    CHECK(read_text(parser, text, &asked) == LM_STATUS_OK);
    CHECK(asked.model_bytes == 5 && memcmp(asked.model, "gpt/4", 5) == 0);
    CHECK(asked.name_bytes == 8 && memcmp(text + asked.name_at, "\"gpt\\/4\"", 8) == 0);
    CHECK(asked.streams && asked.tokens_max == 77);
    CHECK(read_text(parser, "{\"model\":\"m\",\"stream\":false,\"max_tokens\":\"9\"}", &asked) ==
          LM_STATUS_OK);
    CHECK(!asked.streams && asked.tokens_max == 0);
    CHECK(read_text(parser, "{\"model\":\"m\",\"max_tokens\":99999999999999999999}", &asked) ==
          LM_STATUS_OK);
    CHECK(asked.tokens_max == UINT32_MAX);
    char name[600] = "{\"model\":\"";
    memset(name + strlen(name), 'n', 400);
    strcat(name, "\"}");
    CHECK(read_text(parser, name, &asked) == LM_STATUS_OK);
    CHECK(asked.model_bytes == LM_NAME_BYTES_MAX); /* of none that is served */
    CHECK(read_text(parser, "{\"model\":\"m\"", &asked) == LM_STATUS_BAD_REQUEST);
    CHECK(read_text(parser, "{\"model\":\"m\",\"model\":\"m\"}", &asked) == LM_STATUS_BAD_REQUEST);
    CHECK(read_text(parser, "{\"mod\\u0065l\":\"m\"}", &asked) == LM_STATUS_BAD_REQUEST);
    lm_openai_parser_close(parser);
    CHECK(lm_openai_parser_open(&parser, 0) == LUMEN_E_INVALID);
}

/* However a count is written, a budget takes no less than its upstream may read. */
static void test_counts(void) {
    static const struct {
        const char *field;
        uint64_t tokens, answers;
    } cases[] = {
        {"\"max_tokens\":1e3", 1000, 1},
        {"\"max_tokens\":0.5,\"n\":3", 1, 3},
        {"\"max_tokens\":null,\"n\":null", 0, 1},
        {"\"max_tokens\":-5", 0, 1},
        {"\"max_tokens\":42949672959,\"n\":536870912000", UINT32_MAX, UINT32_MAX},
        {"\"max_tokens\":900,\"max_completion_tokens\":7", 900, 1},
        {"\"max_tokens\":900,\"max_tokens\":7", 900, 1},
        {"\"max_output_tokens\":12", 12, 1},
        {"\"max_completion_tokens\":12", 12, 1},
        {"\"n\":2,\"best_of\":5", 0, 5},
        {"\"max_tokens\":0.00000000000000000000000000000000000000000000000000000000000000001e99",
         UINT32_MAX, 1},
    };
    struct lm_openai_parser *parser;
    struct lm_openai_request asked;
    CHECK(lm_openai_parser_open(&parser, 8192) == 0);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        char text[256];
        snprintf(text, sizeof text, "{\"model\":\"m\",%s}", cases[c].field);
        CHECK_AT("case %zu", c);
        CHECK(read_text(parser, text, &asked) == LM_STATUS_OK);
        CHECK(asked.tokens_max == cases[c].tokens && asked.answers == cases[c].answers);
    }
    lm_openai_parser_close(parser);
}

/* ---- what an answer says ---- */

static struct lm_usage_reader fed(const char *text, size_t piece) {
    struct lm_usage_reader reader = {0};
    const size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes; at += piece)
        lm_usage_feed(&reader, text + at, bytes - at < piece ? bytes - at : piece);
    return reader;
}

static void test_usages(void) {
    static const struct {
        const char *text;
        uint64_t tokens, events;
    } cases[] = {
        {"{\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,\"total_tokens\":21}}", 21, 0},
        {"{\"usage\" : { \"prompt_tokens\" : 9 , \"completion_tokens\" : 12 } }", 21, 0},
        {"{\"usage\":{\"input_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":99,"
         "\"total_tokens\":5},\"output_tokens\":3}}",
         10, 0},
        {"{\"text\":\"\\\"usage\\\":{\\\"total_tokens\\\":5}\"}", 0, 0},
        {"{\"usage\":null,\"x\":{\"total_tokens\":4}}", 0, 0},
        {"{\"usage\":\"usage\",\"usage\":{\"total_tokens\":4}}", 4, 0},
        {"{\"a\":\"\"usage\":{\"note\":\"a } and \\\" \",\"total_tokens\":8},\"b\":[1]}", 8, 0},
        {"data: {\"usage\":{\"total_tokens\":1}}\n\ndata: {\"usage\":{\"total_tokens\":6}}\n\n"
         "data: [DONE]\n\n",
         6, 3},
        {": ping\n\nevent: x\r\ndata: 1\r\n\r\ndatum: 2\n\n data: 3\n\ndata:\n\n", 0, 2},
        {"{\"usage\":{\"total_tokens\":99999999999999999999}}", 0, 0},
        {"{\"usage\":{\"total_tokens\":3", 0, 0},
        {"\"usag\",\"usage\",\"usage\":{\"total_tokens\":2}", 2, 0},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (size_t piece = 1; piece < 40; piece++) {
            const struct lm_usage_reader reader = fed(cases[c].text, piece);
            CHECK_AT("case %zu, pieces of %zu: %llu", c, piece, (unsigned long long)reader.tokens);
            if (c != 9) CHECK(reader.tokens == cases[c].tokens);
            CHECK(reader.is_known == (reader.tokens > 0) && reader.events == cases[c].events);
        }
    }
}

int main(void) {
    moves();
    moves_of_a_server();
    test_settings();
    test_heads();
    test_fields();
    test_requests();
    test_counts();
    test_usages();
    return check_finish("test_upstreams");
}
