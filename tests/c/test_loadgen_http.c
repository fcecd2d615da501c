/* test_loadgen_http.c: the heads of HTTP replies as the load generator reads them: whole, byte by
 * byte, and never past their end, which is an unreadable page. */
#include "check.h"
#include "load/loadgen.h"

static struct check_guard guard;

static const struct {
    const char *head;
    uint32_t code; /* 0: refused */
    uint64_t body_bytes;
    bool closes;
} cases[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, 5, false},
    {"HTTP/1.1 200\r\ncontent-length:5\r\n\r\n", 200, 5, false},
    {"HTTP/1.1 200 \r\nCONTENT-LENGTH: \t 5 \t\r\nX: y\r\n\r\n", 200, 5, false},
    {"HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", 429, 0, false},
    {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n", 200, 1, true},
    {"HTTP/1.1 200 OK\r\nCONNECTION: a,\tClose ,b\r\nContent-Length: 1\r\n\r\n", 200, 1, true},
    {"HTTP/1.1 200 OK\r\nConnection: closed\r\nContent-Length: 1\r\n\r\n", 200, 1, false},
    {"HTTP/1.1 200 OK\r\nX-Connection: close\r\nContent-Length: 1\r\n\r\n", 200, 1, false},
    {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", 200, 1, true},
    {"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\n", 200, 1, false},
    {"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 7\r\n\r\n", 200, 7, false},
    {"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\n", 200, 999999999999999, false},
    {"HTTP/1.1 204 No Content\r\n\r\n", 204, 0, false},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, 0, false},
    {"HTTP/1.1 200 OK\r\nEmpty:\r\nContent-Length: 2\r\n\r\n", 200, 2, false},
    {"HTTP/1.1 200 OK\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 8\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000000\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\ntransfer-ENCODING: chunked\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 100 Continue\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n", 0, 0, false},
    {"HTTP/1.2 200 OK\r\nContent-Length: 1\r\n\r\n", 0, 0, false},
    {"HTTP/2 200\r\nContent-Length: 1\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 20 OK\r\nContent-Length: 1\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 2000\r\nContent-Length: 1\r\n\r\n", 0, 0, false},
    {"HTTP/1.1\r\n\r\n", 0, 0, false},
    {"LMR1 and so on\r\n\r\n", 0, 0, false},
    {"\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 1\r\n\r\n", 0, 0, false},
    {"HTTP/1.1 200 OK\r\n: no name\r\nContent-Length: 1\r\n\r\n", 0, 0, false},
};

static const uint8_t *at_the_edge(const char *bytes, size_t count) {
    uint8_t *at = check_guard_tail(&guard, count);
    memcpy(at, bytes, count);
    return at;
}

static void whole_and_cut(void) {
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        size_t bytes = strlen(cases[c].head);
        struct lm_load_http_reply reply;
        CHECK_AT("%.100s", cases[c].head);
        int used = lm_load_http_parse(at_the_edge(cases[c].head, bytes), bytes, &reply);
        CHECK(used == (cases[c].code ? (int)bytes : -1));
        for (size_t cut = 0; cut < bytes; cut++)
            CHECK(lm_load_http_parse(at_the_edge(cases[c].head, cut), cut, &reply) == 0);
        if (used < 0) continue;
        (void)lm_load_http_parse((const uint8_t *)cases[c].head, bytes, &reply);
        CHECK(reply.code == cases[c].code && reply.body_bytes == cases[c].body_bytes);
        CHECK(reply.closes == cases[c].closes);
    }
}

/* A body follows in the same bytes: however the pieces fall, the head ends where it ends. */
static void in_pieces(uint64_t *random) {
    static uint8_t head[LM_LOAD_HTTP_HEAD_BYTES];
    for (uint32_t round = 0; round < 3000; round++) {
        size_t c = check_below(random, sizeof cases / sizeof cases[0]);
        char stream[300];
        int bytes = snprintf(stream, sizeof stream, "%sHTTP/1.1 body\r\n\r\n", cases[c].head);
        size_t most = 1 + check_below(random, (uint32_t)bytes), at = 0, taken_bytes = 0;
        /* A request that could not be sent whole has ended the connection, whatever the reply says.
         */
        const bool has_ended = check_below(random, 2) == 0;
        struct lm_load_connection connection = {.head = head, .last = has_ended};
        CHECK_AT("pieces of at most %zu: %.100s", most, cases[c].head);
        ssize_t taken = 0;
        while (!connection.head_done && at < (size_t)bytes && taken >= 0) {
            size_t left = (size_t)bytes - at, piece = 1 + check_below(random, (uint32_t)most);
            if (piece > left) piece = left;
            taken = lm_load_http.take_head(&connection, at_the_edge(stream + at, piece), piece);
            CHECK(taken <= (ssize_t)piece);
            at += piece;
            if (taken > 0) taken_bytes += (size_t)taken;
        }
        CHECK((taken >= 0) == (cases[c].code != 0));
        if (taken < 0) continue;
        CHECK(connection.head_done && taken_bytes == strlen(cases[c].head));
        CHECK(connection.body_left == cases[c].body_bytes);
        CHECK(connection.last == (has_ended || cases[c].closes));
        CHECK(connection.status == lm_load_http_status(cases[c].code));
    }
}

static void longest(void) {
    static char text[LM_LOAD_HTTP_HEAD_BYTES + 8];
    static uint8_t head[LM_LOAD_HTTP_HEAD_BYTES];
    for (size_t bytes = LM_LOAD_HTTP_HEAD_BYTES - 1; bytes <= LM_LOAD_HTTP_HEAD_BYTES + 1;
         bytes++) {
        struct lm_load_connection connection = {.head = head};
        struct lm_load_http_reply reply;
        bool fits = bytes <= LM_LOAD_HTTP_HEAD_BYTES;
        memset(text, 'x', sizeof text);
        memcpy(text, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX:", 38);
        memcpy(text + bytes - 4, "\r\n\r\n", 4);
        CHECK_AT("%zu bytes", bytes);
        const uint8_t *at = at_the_edge(text, bytes);
        CHECK(lm_load_http_parse(at, bytes, &reply) == (fits ? (int)bytes : -1));
        CHECK(lm_load_http.take_head(&connection, at, 4000) == 4000);
        CHECK(lm_load_http.take_head(&connection, at + 4000, bytes - 4000) ==
              (fits ? (ssize_t)bytes - 4000 : -1));
        CHECK(connection.head_done == fits);
    }
}

static void statuses(void) {
    static const uint16_t expected[][2] = {{200, 0},  {400, 1},  {401, 6},  {403, 6},  {404, 2},
                                           {413, 3},  {429, 7},  {500, 8},  {503, 4},  {204, 15},
                                           {201, 15}, {302, 15}, {405, 15}, {504, 15}, {999, 15}};
    for (size_t s = 0; s < sizeof expected / sizeof expected[0]; s++)
        CHECK(lm_load_http_status(expected[s][0]) == expected[s][1]);
}

int main(void) {
    uint64_t random = check_seed();
    check_guard_open(&guard, 2 * LM_LOAD_HTTP_HEAD_BYTES);
    whole_and_cut();
    in_pieces(&random);
    longest();
    statuses();
    check_guard_close(&guard);
    return check_finish("test_loadgen_http");
}
