/* test_http_parser.c: request heads, good and hostile, at the edge of an unreadable page, split
 * everywhere. */
#include "base/limits.h"
#include "check.h"
#include "http_heads.h"
#include "wire/http_parser.h"
#include "wire/http_scan.h"

enum { ROOM = 3 * LM_HTTP_HEAD_BYTES_MAX, SLICES = 9 };

static struct check_guard guard;

/* What a call said, with places in place of pointers. */
struct answer {
    int verdict;
    char why[192];
    uint64_t numbers[8];
    uint64_t slices[SLICES][2];
};

static void place(struct answer *answer, uint32_t index, struct lm_slice slice, const char *bytes) {
    answer->slices[index][0] = slice.at ? 1 + (uint64_t)(slice.at - bytes) : 0;
    answer->slices[index][1] = slice.bytes;
    if (slice.at) CHECK(slice.at >= bytes && slice.at + slice.bytes <= bytes + answer->verdict);
}

static struct lm_http_head last; /* of ask(), while its bytes are in place */

static struct answer ask(const char *text, size_t count, size_t seen) {
    struct answer answer;
    char *bytes = (char *)check_guard_tail(&guard, count);
    memset(&answer, 0, sizeof answer);
    memcpy(bytes, text, count);
    answer.verdict = lm_http_parse_head(bytes, count, seen, &last, answer.why, sizeof answer.why);
    CHECK((answer.why[0] != '\0') == (answer.verdict < 0));
    CHECK(strlen(answer.why) < sizeof answer.why - 1); /* no sentence is cut off */
    for (const char *at = answer.why; *at; at++) CHECK(*at >= ' ' && *at < 0x7f);
    if (answer.verdict <= 0) {
        CHECK(answer.verdict < 0 || count < LM_HTTP_HEAD_BYTES_MAX);
        return answer;
    }
    CHECK((size_t)answer.verdict <= count && answer.verdict <= LM_HTTP_HEAD_BYTES_MAX);
    answer.numbers[0] = last.method;
    answer.numbers[1] = last.minor;
    answer.numbers[2] = last.keep_alive;
    answer.numbers[3] = last.chunked;
    answer.numbers[4] = last.has_length;
    answer.numbers[5] = last.expect_continue;
    answer.numbers[6] = last.content_length;
    answer.numbers[7] = (uint64_t)last.json_bytes;
    const struct lm_slice slices[SLICES] = {
        last.method_name,   last.target,          last.host,
        last.authorization, last.api_key,         last.content_encoding,
        last.origin,        last.accept_encoding, last.fetch_site};
    for (uint32_t i = 0; i < SLICES; i++) place(&answer, i, slices[i], bytes);
    return answer;
}

/* The first `split` bytes, then all: as if they had come at once. */
static void check_split(const char *text, size_t count, size_t split, const struct answer *whole) {
    struct answer answer = ask(text, split, 0);
    if (answer.verdict == 0) answer = ask(text, count, split);
    CHECK(memcmp(&answer, whole, sizeof answer) == 0);
}

/* Byte by byte. Returns how many it took until there was an answer. */
static size_t check_dribble(const char *text, size_t count, const struct answer *whole) {
    struct answer answer = ask(text, 0, 0);
    size_t given = 0;
    while (answer.verdict == 0 && given < count) {
        answer = ask(text, given + 1, given);
        given++;
    }
    CHECK(memcmp(&answer, whole, sizeof answer) == 0);
    return given;
}

static struct answer check_all_splits(const char *text, size_t count) {
    struct answer whole = ask(text, count, 0);
    for (size_t split = 0; split <= count; split++) check_split(text, count, split, &whole);
    size_t given = check_dribble(text, count, &whole);
    if (whole.verdict > 0) CHECK(given == (size_t)whole.verdict);
    return whole;
}

static bool slice_is(struct lm_slice slice, const char *text) {
    return slice.at && slice.bytes == strlen(text) && memcmp(slice.at, text, slice.bytes) == 0;
}

static void good_heads(void) {
    for (size_t i = 0; i < sizeof goods / sizeof goods[0]; i++) {
        const struct good *good = &goods[i];
        CHECK_AT("good head %zu", i);
        struct answer answer = check_all_splits(good->text, good->count);
        const char *end = strstr(good->text + 2, "\r\n\r\n"); /* past the empty line before it */
        CHECK(answer.verdict == end + 4 - good->text);
        ask(good->text, good->count, 0);
        CHECK(slice_is(last.method_name, good->method) && slice_is(last.target, good->target));
        CHECK(last.minor == good->minor && last.keep_alive == good->keep_alive);
        CHECK(last.chunked == good->chunked && last.expect_continue == good->expect);
        CHECK(last.has_length == (good->length >= 0));
        CHECK(last.content_length == (uint64_t)(good->length >= 0 ? good->length : 0));
        CHECK(last.json_bytes == good->json);
        CHECK((last.method == LM_HTTP_GET) == (strcmp(good->method, "GET") == 0));
        CHECK((last.method == LM_HTTP_HEAD) == (strcmp(good->method, "HEAD") == 0));
        CHECK((last.method == LM_HTTP_POST) == (strcmp(good->method, "POST") == 0));
    }
}

static void bad_heads(void) {
    for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        const struct bad *bad = &bads[i];
        CHECK_AT("bad head %zu: %s", i, bad->why);
        struct answer whole = check_all_splits(bad->text, bad->count);
        CHECK(whole.verdict == -bad->status);
        CHECK(strstr(whole.why, bad->why));
        size_t given = check_dribble(bad->text, bad->count, &whole);
        if (bad->after) CHECK(given == bad->after);
    }
}

static void values(void) {
    static const char text[] = "GET / HTTP/1.1\r\nhOST:h:8000\r\nAUTHORIZATION:  Bearer x y\t \r\n"
                               "x-Api-key: k\r\nContent-Encoding: gzip\r\nOrigin: http://o\r\n"
                               "Accept-Encoding: gzip, br\r\nAccept-Encoding: x\r\n\r\n";
    check_all_splits(text, sizeof text - 1);
    ask(text, sizeof text - 1, 0);
    CHECK(slice_is(last.host, "h:8000") && slice_is(last.authorization, "Bearer x y"));
    CHECK(slice_is(last.api_key, "k") && slice_is(last.content_encoding, "gzip"));
    CHECK(slice_is(last.origin, "http://o") && slice_is(last.accept_encoding, "gzip, br"));
    ask(TEXT(GET "\r\n"), 0);
    CHECK(!last.authorization.at && !last.api_key.at && !last.content_encoding.at);
    CHECK(!last.origin.at && !last.accept_encoding.at);
    CHECK(!last.fetch_site.at && !last.is_forwarded);
    static const struct {
        const char *value;
        uint8_t urgency;
    } priorities[] = {{"u=0", 1},  {"i, u=7", 8}, {"u=2;x=1 , i", 3}, {"u=1, u=5", 6},
                      {"u=8", 0},  {"u=", 0},     {"u=33", 0},        {"U=1", 0},
                      {"au=1", 0}, {"", 0},       {",,u=4,", 5},      {"u =1", 0}};
    for (size_t p = 0; p < sizeof priorities / sizeof *priorities; p++) {
        char head[128];
        int count = snprintf(head, sizeof head, GET "Priority: %s\r\n\r\n", priorities[p].value);
        CHECK_AT("Priority: %s", priorities[p].value);
        check_all_splits(head, (size_t)count);
        ask(head, (size_t)count, 0);
        CHECK(last.urgency == priorities[p].urgency);
    }
    ask(TEXT(GET "sec-Fetch-Site: cross-site \r\n\r\n"), 0);
    CHECK(slice_is(last.fetch_site, "cross-site") && !last.is_forwarded);
    static const char *const forwarding[] = {"Forwarded: for=_x", "via: 1.1 a",
                                             "X-Forwarded-For:", "X-REAL-IP: 192.0.2.1"};
    for (size_t f = 0; f < sizeof forwarding / sizeof forwarding[0]; f++) {
        char head[128];
        int bytes =
            snprintf(head, sizeof head, GET "%s\r\n%s\r\n\r\n", forwarding[f], forwarding[f]);
        ask(head, (size_t)bytes, 0);
        CHECK(last.is_forwarded);
    }
    ask(TEXT(GET "Forwarded-For: x\r\nX-Forwarded: x\r\n\r\n"), 0);
    CHECK(!last.is_forwarded);
    ask(TEXT(GET "Authorization:\r\n\r\n"), 0); /* empty is not absent */
    CHECK(last.authorization.at && last.authorization.bytes == 0);
}

/* `head`, then `count` times `byte`, then `tail`. */
static size_t build(char *text, const char *head, char byte, size_t count, const char *tail) {
    size_t head_bytes = strlen(head), tail_bytes = strlen(tail);
    memcpy(text, head, head_bytes);
    memset(text + head_bytes, byte, count);
    memcpy(text + head_bytes + count, tail, tail_bytes);
    return head_bytes + count + tail_bytes;
}

/* Long ones: some splits, and byte by byte where it says how many bytes it takes. */
static void check_long(const char *text, size_t count, int verdict, size_t after) {
    struct answer whole = ask(text, count, 0);
    CHECK(whole.verdict == verdict);
    for (size_t split = 1; split < count; split += 997) check_split(text, count, split, &whole);
    CHECK(check_dribble(text, count, &whole) == after);
}

static void limits(void) { /* 31, 32, 33 */
    static char text[ROOM];
    size_t count = build(text, "", 'A', 20000, " / HTTP/1.1\r\n");
    check_long(text, count, -501, LM_HTTP_METHOD_BYTES_MAX + 1);
    count = build(text, "GET /", '?', LM_HTTP_TARGET_BYTES_MAX - 1, " HTTP/1.1\r\n" HOST "\r\n");
    check_long(text, count, (int)count, count);
    count = build(text, "GET /", '?', LM_HTTP_TARGET_BYTES_MAX, " HTTP/1.1\r\n" HOST "\r\n");
    check_long(text, count, -414, 4 + LM_HTTP_TARGET_BYTES_MAX + 1);
    count = build(text, GET "A:", 'b', LM_HTTP_LINE_BYTES_MAX - 2, "\r\n\r\n");
    check_long(text, count, (int)count, count);
    count = build(text, GET "A:", 'b', LM_HTTP_LINE_BYTES_MAX - 1, "\r\n\r\n");
    check_long(text, count, -431, sizeof GET - 1 + LM_HTTP_LINE_BYTES_MAX + 1);
    count = build(text, GET, 'b', LM_HTTP_LINE_BYTES_MAX + 9, ": x\r\n\r\n");
    check_long(text, count, -431, sizeof GET - 1 + LM_HTTP_LINE_BYTES_MAX + 1);

    /* The largest head, and one byte more. */
    char start[LM_HTTP_HEAD_BYTES_MAX / 2 + 64];
    for (size_t more = 0; more < 2; more++) {
        size_t start_bytes = build(start, GET "A:", 'b', LM_HTTP_LINE_BYTES_MAX - 2, "\r\nB:");
        start[start_bytes] = '\0';
        count =
            build(text, start, 'c', LM_HTTP_HEAD_BYTES_MAX - start_bytes - 4 + more, "\r\n\r\n");
        CHECK(count == LM_HTTP_HEAD_BYTES_MAX + more);
        check_long(text, count, more ? -431 : LM_HTTP_HEAD_BYTES_MAX, LM_HTTP_HEAD_BYTES_MAX);
    }
    for (uint32_t headers = LM_HTTP_HEADERS_MAX; headers <= LM_HTTP_HEADERS_MAX + 1; headers++) {
        count = build(text, GET, ' ', 0, "");
        for (uint32_t i = 1; i < headers; i++, count += 4) memcpy(text + count, "a:\r\n", 4);
        memcpy(text + count, "\r\n", 2);
        count += 2;
        check_long(text, count, headers > LM_HTTP_HEADERS_MAX ? -431 : (int)count, count);
    }
    count = build(text, "GET / HTTP/1.1\r\nHost:", 'h', LM_HTTP_HOST_BYTES_MAX, "\r\n\r\n");
    check_long(text, count, (int)count, count);
    count = build(text, "GET / HTTP/1.1\r\nHost:", 'h', LM_HTTP_HOST_BYTES_MAX + 1, "\r\n\r\n");
    check_long(text, count, -400, count - 2);
}

/* Both scans agree with the definition, whatever the place, and touch nothing past the end. */
static void scans(uint64_t *random) {
    for (uint32_t i = 0; i < 20000; i++) {
        size_t count = check_below(random, 70);
        char *bytes = (char *)check_guard_tail(&guard, count);
        memset(bytes, 'x', count);
        for (uint32_t n = check_below(random, 4); count && n > 0; n--)
            bytes[check_below(random, (uint32_t)count)] = (char)check_random(random);
        char lowest = check_below(random, 2) ? ' ' : '!';
        bool in_field = check_below(random, 2);
        const char *end = bytes + count, *expected = bytes;
        while (expected < end) {
            int byte = (uint8_t)*expected;
            if (!((byte >= lowest && byte <= '~') || (in_field && (byte == 9 || byte >= 0x80))))
                break;
            expected++;
        }
        CHECK(lm_http_plain_end_scalar(bytes, end, lowest, in_field) == expected);
        CHECK(lm_http_plain_end(bytes, end, lowest, in_field) == expected);
    }
}

/* Good and bad heads with a few bytes changed, moved or doubled; answers stay split-proof. */
static void mutations(uint64_t *random) {
    static const char likely[] = "\r\n\r\n :\t,;/%0159GHhtTP.\0\x7f\x80\xff";
    uint32_t good_count = sizeof goods / sizeof goods[0], bad_count = sizeof bads / sizeof bads[0];
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < (CHECK_UNDER_TSAN ? 5000 : 40000); i++) {
        char text[512];
        bool good = check_below(random, 4) > 0;
        uint32_t index = check_below(random, good ? good_count : bad_count);
        size_t count = good ? goods[index].count : bads[index].count;
        memcpy(text, good ? goods[index].text : bads[index].text, count);
        for (uint32_t n = 1 + check_below(random, 3); n > 0 && count > 1; n--) {
            uint32_t at = check_below(random, (uint32_t)count);
            uint32_t bytes = check_below(random, 8);
            char byte = check_below(random, 2) ? likely[check_below(random, sizeof likely)]
                                               : (char)check_random(random);
            if (bytes > count - at) bytes = (uint32_t)count - at;
            switch (check_below(random, 4)) {
            case 0: text[at] = byte; break;
            case 1: /* one more */
                memmove(text + at + 1, text + at, count++ - at);
                text[at] = byte;
                break;
            case 2: /* a few less */
                count -= bytes;
                memmove(text + at, text + at + bytes, count - at);
                break;
            default: /* a few twice */
                memmove(text + at + bytes, text + at, count - at);
                count += bytes;
            }
        }
        CHECK_AT("mutation %u of %s head %u", i, good ? "good" : "bad", index);
        struct answer whole = ask(text, count, 0);
        accepted += whole.verdict > 0;
        for (uint32_t n = 0; n < 4; n++)
            check_split(text, count, check_below(random, (uint32_t)count + 1), &whole);
        if (i % 16 == 0) check_dribble(text, count, &whole);
    }
    CHECK(accepted > 500);
}

/* A client's bytes in a sentence: 24 bytes of it, each visible or as two digits. */
static void quotes(void) {
    static const struct {
        const char *found;
        size_t bytes;
        const char *text;
    } cases[] = {
        {"", 0, "''"},
        {"a b~!", 5, "'a b~!'"},
        {"\t\n\x1f\x7f\x80\xff\0", 7, "'\\x09\\x0a\\x1f\\x7f\\x80\\xff\\x00'"},
        {"'\\\"", 3, "'\\x27\\x5c\"'"},
        {"abcdefghijklmnopqrstuvwx", 24, "'abcdefghijklmnopqrstuvwx'"},
        {"abcdefghijklmnopqrstuvwxy", 25, "'abcdefghijklmnopqrstuvwx'..."},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        CHECK_AT("%s", cases[c].text);
        struct lm_slice found = {cases[c].found, cases[c].bytes};
        CHECK(strcmp(lm_http_quote(found).text, cases[c].text) == 0);
    }
    char longest[64];
    memset(longest, '\n', sizeof longest);
    CHECK(strlen(lm_http_quote((struct lm_slice){longest, 64}).text) == 24 * 4 + 5);
}

/* Hosts as RFC 3986 has them, up to their last byte. */
static void hosts(void) {
    static const char *const good[] = {"",
                                       "a",
                                       "%41",
                                       "a%41",
                                       "%41b",
                                       "a.b-c_d~e",
                                       "(a)*+,;=!$&'",
                                       "a:",
                                       "a:80",
                                       ":80",
                                       "1.2.3.4",
                                       "[::1]",
                                       "[::1]:80",
                                       "[::]:",
                                       "[::ffff:1.2.3.4]",
                                       "[v1.a]",
                                       "[vAf.a:b]:1",
                                       "[V0.~]"};
    static const char *const bad[] = {"%",
                                      "%4",
                                      "a%4",
                                      "a%",
                                      "a%4g",
                                      "a%g4",
                                      "a b",
                                      "a/b",
                                      "a@b",
                                      "a:b",
                                      "a:80:",
                                      "a]",
                                      "[::1",
                                      "[::1]a",
                                      "[]",
                                      "[1.2.3.4]",
                                      "[::1%25eth0]",
                                      "[v.a]",
                                      "[v1.]",
                                      "[v1a]",
                                      "[vg.a]",
                                      "[v1.a",
                                      "[1:2:3:4:5:6:7:8:9]",
                                      "\x80",
                                      "a\t"};
    for (size_t g = 0; g < sizeof good / sizeof good[0]; g++) {
        char *at = (char *)check_guard_tail(&guard, strlen(good[g]));
        memcpy(at, good[g], strlen(good[g]));
        CHECK_AT("host %s", good[g]);
        CHECK(lm_http_host_is_valid((struct lm_slice){at, strlen(good[g])}));
    }
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
        char *at = (char *)check_guard_tail(&guard, strlen(bad[b]));
        memcpy(at, bad[b], strlen(bad[b]));
        CHECK_AT("host %s", bad[b]);
        CHECK(!lm_http_host_is_valid((struct lm_slice){at, strlen(bad[b])}));
    }
}

/* Numbers up to a bound, of which every digit may be the one too many. */
static void numbers(void) {
    static const struct {
        const char *text;
        uint64_t largest, value; /* UINT64_MAX: refused */
    } cases[] = {
        {"0", 9, 0},
        {"9", 9, 9},
        {"10", 9, UINT64_MAX},
        {"0009", 9, 9},
        {"123", 123, 123},
        {"123", 124, 123},
        {"124", 123, UINT64_MAX},
        {"129", 123, UINT64_MAX},
        {"130", 129, UINT64_MAX},
        {"", 9, UINT64_MAX},
        {"1a", 99, UINT64_MAX},
        {"/", 99, UINT64_MAX},
        {":", 99, UINT64_MAX},
        {"-1", 99, UINT64_MAX},
        {" 1", 99, UINT64_MAX},
        {"9223372036854775807", INT64_MAX, INT64_MAX},
        {"9223372036854775808", INT64_MAX, UINT64_MAX},
        {"18446744073709551617", INT64_MAX, UINT64_MAX},
        {"99999999999999999999999", INT64_MAX, UINT64_MAX},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        uint64_t value = 77;
        struct lm_slice text = {cases[c].text, strlen(cases[c].text)};
        CHECK_AT("'%s' up to %llu", cases[c].text, (unsigned long long)cases[c].largest);
        bool good = lm_http_decimal(text, cases[c].largest, &value);
        CHECK(good == (cases[c].value != UINT64_MAX) && (!good || value == cases[c].value));
    }
    CHECK(lm_http_hex_value('0') == 0 && lm_http_hex_value('9') == 9);
    CHECK(lm_http_hex_value('a') == 10 && lm_http_hex_value('F') == 15);
}

static void short_reason(void) {
    char little[9] = "12345678";
    struct lm_http_head head;
    CHECK(lm_http_parse_head("\x17", 1, 0, &head, little, sizeof little - 2) == -400);
    CHECK(memcmp(little,
                 "byte 0\0"
                 "8",
                 8) == 0);
}

int main(void) {
    uint64_t random = check_seed();
    check_guard_open(&guard, ROOM);
    good_heads();
    bad_heads();
    values();
    limits();
    scans(&random);
    mutations(&random);
    quotes();
    hosts();
    numbers();
    short_reason();
    check_guard_close(&guard);
    return check_finish("test_http_parser");
}
