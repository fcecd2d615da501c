/* test_http_chunks.c: chunked bodies, good and hostile, at the edge of an unreadable page, split
 * everywhere. Numbers like 25 are rows of the project's list of hostile inputs. */
#include "base/limits.h"
#include "check.h"
#include "wire/http_chunks.h"

enum { ROOM = 1 << 20, DATA_ROOM = 1 << 17 };

static struct check_guard guard;

struct answer {
    int verdict;
    uint32_t chunk_count;
    size_t used;
    size_t data_bytes;
    char why[160];
};

static char data[DATA_ROOM]; /* of the last feed_all() */

/* Feeds all of it, `piece` bytes at most at a time and the first `split` bytes apart. */
static struct answer feed_all(const char *text, size_t count, size_t split, size_t piece) {
    struct lm_http_chunks chunks = {0};
    struct answer answer;
    memset(&answer, 0, sizeof answer);
    do {
        size_t end = answer.used < split ? split : count, used;
        if (end - answer.used > piece) end = answer.used + piece;
        size_t given = end - answer.used;
        char *bytes = (char *)check_guard_tail(&guard, given);
        struct lm_slice slice;
        memcpy(bytes, text + answer.used, given);
        answer.verdict = lm_http_chunks_feed(&chunks, bytes, given, &used, &slice, answer.why,
                                             sizeof answer.why);
        CHECK(used <= given);
        CHECK((slice.at != NULL) == (answer.verdict == LM_HTTP_CHUNKS_DATA));
        CHECK((answer.why[0] != '\0') == (answer.verdict < 0));
        if (answer.verdict == LM_HTTP_CHUNKS_MORE) CHECK(used == given);
        if (slice.at) {
            CHECK(slice.bytes > 0 && slice.at >= bytes && slice.at + slice.bytes == bytes + used);
            CHECK(answer.data_bytes + slice.bytes <= DATA_ROOM);
            memcpy(data + answer.data_bytes, slice.at, slice.bytes);
            answer.data_bytes += slice.bytes;
        }
        answer.used += used;
    } while (answer.verdict >= 0 && answer.verdict != LM_HTTP_CHUNKS_DONE && answer.used < count);
    if (answer.verdict == LM_HTTP_CHUNKS_DATA) answer.verdict = LM_HTTP_CHUNKS_MORE;
    answer.chunk_count = chunks.chunk_count;

    size_t used;
    struct lm_slice slice;
    char again[160] = "";
    if (answer.verdict != LM_HTTP_CHUNKS_MORE) /* the last word is said again */
        CHECK(lm_http_chunks_feed(&chunks, "0", 1, &used, &slice, again, sizeof again) ==
                  answer.verdict &&
              used == 0 && (again[0] != '\0') == (answer.verdict < 0));
    return answer;
}

static struct answer check_all_splits(const char *text, size_t count) {
    static char whole_data[DATA_ROOM];
    struct answer whole = feed_all(text, count, 0, count + 1);
    memcpy(whole_data, data, whole.data_bytes);
    for (size_t split = 0; split <= count; split++) {
        struct answer answer = feed_all(text, count, split, count + 1);
        CHECK(memcmp(&answer, &whole, sizeof answer) == 0);
        CHECK(memcmp(data, whole_data, whole.data_bytes) == 0);
    }
    for (size_t piece = 1; piece < 4; piece++) {
        struct answer answer = feed_all(text, count, 0, piece);
        CHECK(memcmp(&answer, &whole, sizeof answer) == 0);
        CHECK(memcmp(data, whole_data, whole.data_bytes) == 0);
    }
    return whole;
}

#define TEXT(text) (text), sizeof(text) - 1

static const struct good {
    const char *text;
    size_t count;
    const char *data;
    uint32_t chunk_count;
    size_t rest; /* bytes that are not the body's */
} goods[] = {
    {TEXT("0\r\n\r\n"), "", 0, 0},
    {TEXT("5\r\nhello\r\n0\r\n\r\n"), "hello", 1, 0},
    {TEXT("1\r\na\r\n1\r\nb\r\n00\r\n\r\n"), "ab", 2, 0},
    {TEXT("a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n"), "01234567890123456789", 2, 0},
    {TEXT("0000000000000003\r\n\r\n\r\r\n0\r\n\r\n"), "\r\n\r", 1, 0},
    {TEXT("3;name=value\r\nabc\r\n0;last\r\n\r\n"), "abc", 1, 0},
    /* RFC 9112 7.1: a size is any number of digits, the last one any number of zeros */
    {TEXT("3\r\nabc\r\n000\r\n\r\n"), "abc", 1, 0},
    {TEXT("000000000000000000000003\r\nabc\r\n00000000000000000000\r\n\r\n"), "abc", 1, 0},
    /* RFC 9112 7.1.1: bad white space before an extension is passed over; a quoted value has any
       signs */
    {TEXT("3 \t;x\r\nabc\r\n0 ;\tlast\r\n\r\n"), "abc", 1, 0},
    {TEXT("3;x=\"caf\xc3\xa9\"\r\nabc\r\n0\r\nA: \xe9\x80\r\n\r\n"), "abc", 1, 0},
    {TEXT("3; q=\"a;\tb\"\r\nabc\r\n0\r\n\r\n"), "abc", 1, 0},
    {TEXT("3\r\nabc\r\n0\r\nExpires: never\r\nX-Y:\r\n\r\n"), "abc", 1, 0},
    {TEXT("0\r\nHosts: a\r\nContent-Lengthy: 1\r\nHos: b\r\n\r\n"), "", 0, 0},
    /* 36: the next request is not this one's business */
    {TEXT("3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"), "abc", 1, 18},
    {TEXT("5\r\n0\r\n\r\n\r\n0\r\n\r\n\0"), "0\r\n\r\n", 1, 1},
};

static void good_bodies(void) {
    for (size_t i = 0; i < sizeof goods / sizeof goods[0]; i++) {
        const struct good *good = &goods[i];
        CHECK_AT("good body %zu", i);
        struct answer answer = check_all_splits(good->text, good->count);
        CHECK(answer.verdict == LM_HTTP_CHUNKS_DONE);
        CHECK(answer.used == good->count - good->rest && answer.chunk_count == good->chunk_count);
        CHECK(answer.data_bytes == strlen(good->data));
        CHECK(memcmp(data, good->data, answer.data_bytes) == 0);
        for (size_t count = 0; count < answer.used; count++) /* missing its end */
            CHECK(feed_all(good->text, count, 0, count + 1).verdict == LM_HTTP_CHUNKS_MORE);
    }
}

static const struct bad {
    const char *text;
    size_t count;
    size_t used; /* the bad byte comes after these */
    const char *why;
} bads[] = {
    /* 25 */
    {TEXT("\r\n"), 0, "a chunk's size in hexadecimal, found '\\x0d'"},
    {TEXT(";x\r\n"), 0, "found ';'"},
    {TEXT("0x5\r\nhello\r\n"), 1, "found 'x'"},
    {TEXT("5_0\r\n"), 1, "found '_'"},
    {TEXT("-1\r\n"), 0, "found '-'"},
    {TEXT("+5\r\n"), 0, "found '+'"},
    {TEXT("g\r\n"), 0, "found 'g'"},
    {TEXT(" 5\r\n"), 0, "found ' '"},
    {TEXT("5 \r\n"), 2, "found '\\x0d'"},
    {TEXT("5\t\r\n"), 2, "expected ';' after a blank behind a size, found '\\x0d'"},
    {TEXT("5 5\r\n"), 2, "found '5'"},
    {TEXT("11112222333344445\r\n"), 16, "below 2^63"},
    {TEXT("0011112222333344445\r\n"), 18, "below 2^63"},
    {TEXT("ffffffffffffffff\r\n"), 15, "below 2^63"},
    {TEXT("8000000000000000\r\n"), 15, "below 2^63"},
    {TEXT("5\nhello\n0\n\n"), 1, "found '\\x0a'"},
    {TEXT("5\r\rhello"), 2, "LF after CR, found '\\x0d'"},
    {TEXT("5\r\nhello0\r\n\r\n"), 8, "after chunk 1: expected CR after a chunk's data, found '0'"},
    {TEXT("5\r\nhello\n0\r\n\r\n"), 8, "found '\\x0a'"},
    {TEXT("5\r\nhello\r0\r\n\r\n"), 9, "LF after CR, found '0'"},
    {TEXT("4\r\nhello\r\n"), 7, "found 'o'"},
    {TEXT("6\r\nhello\r\n0\r\n\r\n"), 9, "found '\\x0a'"},
    {TEXT("5;x\ny\r\n"), 3, "found '\\x0a'"},
    {TEXT("5;\0\r\n"), 2, "found '\\x00'"},
    {TEXT("5;x\rhello"), 4, "found 'h'"},
    {TEXT("0\r\n\n"), 3, "found '\\x0a'"},
    {TEXT("0\r\n\r\r"), 4, "LF after CR"},
    /* 26, and RFC 9112 7.1.2 */
    {TEXT("0\r\nContent-Length: 5\r\n\r\n"), 17, "found 'content-length'"},
    {TEXT("0\r\nA: b\r\ntransfer-encoding: chunked\r\n\r\n"), 26, "found 'transfer-encoding'"},
    {TEXT("0\r\nHOST: evil\r\n\r\n"), 7, "found 'host'"},
    {TEXT("0\r\n: x\r\n\r\n"), 3, "found ':'"},
    {TEXT("0\r\nA : x\r\n\r\n"), 4, "found ' '"},
    {TEXT("0\r\nA\r\n\r\n"), 4, "found '\\x0d'"},
    {TEXT("0\r\n A: x\r\n\r\n"), 3, "found ' '"},
    {TEXT("0\r\nA: x\r\n folded\r\n\r\n"), 9, "found ' '"},
    {TEXT("0\r\nA: \x01\r\n\r\n"), 6, "found '\\x01'"},
    {TEXT("0\r\n\xe9: A\r\n\r\n"), 3, "found '\\xe9'"},
    {TEXT("0\r\nA: x\n\r\n"), 7, "found '\\x0a'"},
    {TEXT("0\r\nA: x\rB: y\r\n"), 8, "found 'B'"},
};

static void bad_bodies(void) {
    for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        CHECK_AT("bad body %zu: %s", i, bads[i].why);
        struct answer answer = check_all_splits(bads[i].text, bads[i].count);
        CHECK(answer.verdict == -400);
        CHECK(answer.used == bads[i].used);
        CHECK(strstr(answer.why, bads[i].why));
    }
}

static void limits(void) { /* 25, 26 */
    static char text[ROOM];
    size_t count = 0;
    for (uint32_t i = 0; i < LM_HTTP_CHUNKS_MAX; i++, count += 6)
        memcpy(text + count, "1\r\nx\r\n", 6);
    memcpy(text + count, "0\r\n\r\n", 5);
    struct answer answer = feed_all(text, count + 5, 0, ROOM);
    CHECK(answer.verdict == LM_HTTP_CHUNKS_DONE && answer.data_bytes == LM_HTTP_CHUNKS_MAX);
    memcpy(text + count, "1\r\nx", 4);
    answer = feed_all(text, count + 4, 0, ROOM);
    CHECK(answer.verdict == -400 && answer.used == count + 2 && strstr(answer.why, "65536"));

    /* Extensions of all chunks count together. */
    memcpy(text, "1;\r\nx\r\n1;", 9);
    for (uint32_t more = 0; more < 2; more++) {
        memset(text + 9, 'e', LM_HTTP_EXTENSION_BYTES_MAX + more);
        count = 9 + LM_HTTP_EXTENSION_BYTES_MAX + more;
        memcpy(text + count, "\r\nx\r\n0\r\n\r\n", 10);
        answer = feed_all(text, count + 10, 0, 1000);
        CHECK(answer.verdict == (more ? -400 : LM_HTTP_CHUNKS_DONE));
        CHECK(answer.used == (more ? count - 1 : count + 10));
    }
    /* So do blanks, and zeros beyond the 16 digits of a size. */
    for (uint32_t more = 0; more < 2; more++) {
        memset(text, '0', 16 + LM_HTTP_EXTENSION_BYTES_MAX + more);
        count = 16 + LM_HTTP_EXTENSION_BYTES_MAX + more;
        memcpy(text + count, "\r\n\r\n", 4);
        answer = feed_all(text, count + 4, 0, 1000);
        CHECK(answer.verdict == (more ? -400 : LM_HTTP_CHUNKS_DONE));
        memset(text + 1, ' ', LM_HTTP_EXTENSION_BYTES_MAX - 1 + more);
        count = LM_HTTP_EXTENSION_BYTES_MAX + more;
        memcpy(text + count, ";x\r\n\r\n", 6);
        answer = feed_all(text, count + 6, 0, 1000);
        CHECK(answer.verdict == (more ? -400 : LM_HTTP_CHUNKS_DONE));
    }
    /* A trailer's name may be long: its length is not counted beyond 255. */
    for (size_t name = 254; name < 261; name++) {
        memcpy(text, "0\r\n", 3);
        memset(text + 3, 'n', name);
        memcpy(text + 3 + name, ":x\r\n\r\n", 6);
        answer = feed_all(text, 3 + name + 6, 0, 1000);
        CHECK(answer.verdict == LM_HTTP_CHUNKS_DONE);
    }
    memcpy(text, "0\r\nA:", 5);
    for (uint32_t more = 0; more < 2; more++) {
        size_t value = LM_HTTP_TRAILER_BYTES_MAX - 3 + more; /* "A:" and CR are trailers' too */
        memset(text + 5, 't', value);
        memcpy(text + 5 + value, "\r\n\r\n", 4);
        answer = feed_all(text, 5 + value + 4, 0, 1000);
        CHECK(answer.verdict == (more ? -400 : LM_HTTP_CHUNKS_DONE));
    }
}

static void huge_chunk(void) {
    struct lm_http_chunks chunks = {0};
    struct lm_slice slice;
    size_t used;
    char why[64];
    CHECK(lm_http_chunks_feed(&chunks, "7fffffffffffffff\r\nabc", 21, &used, &slice, why,
                              sizeof why) == LM_HTTP_CHUNKS_DATA);
    CHECK(used == 21 && slice.bytes == 3 && chunks.left == INT64_MAX - 3);
    CHECK(lm_http_chunks_feed(&chunks, "", 0, &used, &slice, why, sizeof why) ==
          LM_HTTP_CHUNKS_MORE);
}

static void mutations(uint64_t *random) {
    static const char likely[] = "\r\n\r\n0015;:aAgG \t\0\x7f\x80\xff";
    uint32_t good_count = sizeof goods / sizeof goods[0], done = 0;
    for (uint32_t i = 0; i < (CHECK_UNDER_TSAN ? 2000 : 20000); i++) {
        char text[256];
        uint32_t index = check_below(random, good_count);
        size_t count = goods[index].count;
        memcpy(text, goods[index].text, count);
        for (uint32_t n = 1 + check_below(random, 3); n > 0; n--)
            text[check_below(random, (uint32_t)count)] = likely[check_below(random, sizeof likely)];
        CHECK_AT("mutation %u of good body %u", i, index);
        done += check_all_splits(text, count).verdict == LM_HTTP_CHUNKS_DONE;
    }
    CHECK(done > 100);
}

int main(void) {
    uint64_t random = check_seed();
    check_guard_open(&guard, ROOM);
    good_bodies();
    bad_bodies();
    limits();
    huge_chunk();
    mutations(&random);
    check_guard_close(&guard);
    return check_finish("test_http_chunks");
}
