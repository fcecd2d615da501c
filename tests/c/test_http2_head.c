/* test_http2_head.c: heads of HTTP/1.1 as header blocks of HTTP/2. HPACK's reader finds in them
 * what the heads say, however long a string is. The other way round: tests/fuzz/fuzz_hpack.c. */
#include "check.h"
#include "wire/http2_head.h"

enum { ROOM = 20000 };

static char head[ROOM];
static uint8_t block[ROOM];
static struct lm_hpack_fields fields;

/* The field of this number has this name and value. */
static void has(uint32_t number, const char *name, const char *value) {
    CHECK(number < fields.count);
    const struct lm_hpack_field *field = &fields.list[number];
    CHECK(field->name.bytes == strlen(name) && memcmp(field->name.at, name, strlen(name)) == 0);
    CHECK(field->value.bytes == strlen(value) &&
          memcmp(field->value.at, value, strlen(value)) == 0);
}

static void decode(size_t bytes, uint32_t count) {
    struct lm_hpack hpack = {0}; /* no table */
    char why[LM_TEXT_BYTES_MAX] = "";
    const bool is_good = lm_hpack_decode(&hpack, block, bytes, &fields, why, sizeof why);
    CHECK_AT("%.100s", why);
    CHECK(is_good && !fields.too_large && fields.count == count);
}

/* A length has one byte before 127, three from there on. */
static void lengths(void) {
    static const uint32_t longs[] = {0, 1, 126, 127, 128, 254, 255, 256, 1000, 16000};
    static char value[ROOM / 2 + ROOM / 3];
    for (size_t n = 0; n < sizeof longs / sizeof *longs; n++) {
        memset(value, 'v', longs[n]);
        value[longs[n]] = '\0';
        const int bytes =
            snprintf(head, sizeof head, "HTTP/1.1 404 Not Found\r\nA: %s\r\n\r\n", value);
        const size_t used = lm_http2_reply_head(head, (size_t)bytes, block, sizeof block);
        decode(used, 2);
        CHECK_AT("a value of %u bytes", longs[n]);
        has(0, ":status", "404");
        has(1, "a", value);
        CHECK(lm_http2_reply_head(head, (size_t)bytes, block, used) == used);
        CHECK(lm_http2_reply_head(head, (size_t)bytes, block, used - 1) == 0);
    }
}

static void replies(void) {
    static const char reply[] = "HTTP/1.1 200 OK\r\nConnection: close\r\nKeep-Alive: timeout=5\r\n"
                                "Content-Length: 2\r\nX-Name: Value\r\n\r\n";
    decode(lm_http2_reply_head(reply, sizeof reply - 1, block, sizeof block), 3);
    has(0, ":status", "200");
    has(1, "content-length", "2");
    has(2, "x-name", "Value");
}

/* A request, and a key that nobody between keeps. */
static void requests(void) {
    static const char key[] = "Authorization: Bearer k\r\n";
    char path[200] = "/v1/";
    memset(path + 4, 'p', 123);
    const int bytes =
        snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: there\r\nA: b\r\n", path);
    const struct lm_slice pieces[] = {{head, (size_t)bytes}, {key, sizeof key - 1}};
    const size_t used = lm_http2_request_block(pieces, 2, true, block, sizeof block);
    decode(used, 6);
    has(0, ":method", "POST");
    has(1, ":scheme", "https");
    has(2, ":path", path);
    has(3, ":authority", "there");
    has(4, "a", "b");
    has(5, "authorization", "Bearer k");
    const size_t field = 1 + 1 + sizeof "authorization" - 1 + 1 + sizeof "Bearer k" - 1;
    CHECK(block[used - field] == 0x10); /* never kept */
    decode(lm_http2_request_block(pieces, 1, false, block, sizeof block), 5);
    has(1, ":scheme", "http");
}

int main(void) {
    check_watchdog(120, "heads of HTTP/2");
    lengths();
    replies();
    requests();
    return check_finish("test_http2_head");
}
