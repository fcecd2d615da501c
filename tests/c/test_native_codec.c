/* test_native_codec.c: the native protocol's headers, byte by byte. Requests are built from the
 * table in docs/PROTOCOL.md with shifts, and parsed at the edge of an unreadable page. */
#include "base/native_codec.h"
#include "check.h"

static struct check_guard guard;
static char why[128];

static void put(uint8_t *at, uint64_t value, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *at, uint32_t bytes) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; i++) value |= (uint64_t)at[i] << 8 * i;
    return value;
}

/* A good request: infer, tensors. */
static void good(uint8_t bytes[LM_NATIVE_REQUEST_BYTES]) {
    memset(bytes, 0, LM_NATIVE_REQUEST_BYTES);
    memcpy(bytes, "LMN1", 4);
    bytes[4] = LM_KIND_INFER;
    put(bytes + 16, 1024, 4);
}

static enum lm_native_verdict parse(const uint8_t bytes[LM_NATIVE_REQUEST_BYTES],
                                    struct lm_native_request *request) {
    uint8_t *at = check_guard_tail(&guard, LM_NATIVE_REQUEST_BYTES);
    memcpy(at, bytes, LM_NATIVE_REQUEST_BYTES);
    memset(why, 0, sizeof why);
    return lm_native_parse(at, request, why, sizeof why);
}

static void offsets(void) {
    uint8_t bytes[LM_NATIVE_REQUEST_BYTES];
    struct lm_native_request request;
    good(bytes);
    bytes[5] = LM_ENCODING_RGB8;
    put(bytes + 6, 0x0706, 2);
    put(bytes + 8, 0x0f0e0d0c0b0a0908, 8);
    put(bytes + 16, 0x13121110, 4);
    put(bytes + 20, 0x17161514, 4);
    put(bytes + 24, 0x1b1a1918, 4);
    put(bytes + 28, LM_FLAG_CREDENTIAL | LM_FLAG_SHAPES, 2);
    CHECK(parse(bytes, &request) == LM_NATIVE_OK);
    CHECK(why[0] == '\0');
    CHECK(request.kind == LM_KIND_INFER && request.encoding == LM_ENCODING_RGB8 &&
          request.number == 0x0706);
    CHECK(request.id == 0x0f0e0d0c0b0a0908 && request.payload_bytes == 0x13121110);
    CHECK(request.timeout_us == 0x17161514 && request.rows == 0x1b1a1918);
    CHECK(request.flags == (LM_FLAG_CREDENTIAL | LM_FLAG_SHAPES));
    put(bytes + 24, 0, 4);
    CHECK(parse(bytes, &request) == LM_NATIVE_OK && request.rows == 1); /* 0 means 1 */
    put(bytes + 8, UINT64_MAX, 8);
    put(bytes + 16, UINT32_MAX, 4);
    put(bytes + 20, UINT32_MAX, 4);
    put(bytes + 24, UINT32_MAX, 4);
    CHECK(parse(bytes, &request) == LM_NATIVE_OK);
    CHECK(request.id == UINT64_MAX && request.payload_bytes == UINT32_MAX &&
          request.rows == UINT32_MAX);
}

static const struct {
    const char *what;
    uint32_t at;
    uint32_t bytes;
    uint64_t value;
    uint32_t payload_bytes;
    uint8_t kind;
    enum lm_native_verdict verdict;
    const char *named; /* in the reason */
} cases[] = {
    {"bad magic", 0, 4, 0x31524d4c, 0, 1, LM_NATIVE_NO_FRAME, "byte 0"},
    {"an HTTP method", 0, 4, 0x54534f50, 0, 1, LM_NATIVE_NO_FRAME, "byte 0"},
    {"last byte of the magic", 3, 1, '2', 0, 1, LM_NATIVE_NO_FRAME, "byte 0"},
    {"kind 0", 4, 1, 0, 0, 1, LM_NATIVE_BAD, "byte 4"},
    {"kind 5", 4, 1, 5, 0, 1, LM_NATIVE_BAD, "byte 4"},
    {"kind 255", 4, 1, 255, 0, 1, LM_NATIVE_BAD, "byte 4"},
    {"image file", 5, 1, 2, 0, 1, LM_NATIVE_OK, ""},
    {"JSON", 5, 1, LM_ENCODING_JSON, 0, 1, LM_NATIVE_BAD, "byte 5"},
    {"encoding 255", 5, 1, 255, 0, 1, LM_NATIVE_BAD, "byte 5"},
    {"flags bit 3", 28, 2, 8, 0, 1, LM_NATIVE_BAD, "byte 28"},
    {"flags bit 15", 28, 2, 0x8000, 0, 1, LM_NATIVE_BAD, "byte 28"},
    {"all flags", 28, 2, 0xffff, 0, 1, LM_NATIVE_BAD, "byte 28"},
    {"reserved 1", 30, 2, 1, 0, 1, LM_NATIVE_BAD, "byte 30"},
    {"reserved high byte", 31, 1, 0x80, 0, 1, LM_NATIVE_BAD, "byte 30"},
    {"ping", 28, 2, 0, 0, 2, LM_NATIVE_OK, ""},
    {"describe", 28, 2, 0, 0, 3, LM_NATIVE_OK, ""},
    {"ping with a payload", 28, 2, 0, 1, 2, LM_NATIVE_BAD, "byte 16"},
    {"describe with a payload", 28, 2, 0, UINT32_MAX, 3, LM_NATIVE_BAD, "byte 16"},
    {"ping with its credential", 28, 2, LM_FLAG_CREDENTIAL, 32, 2, LM_NATIVE_OK, ""},
    {"ping that lacks its credential", 28, 2, LM_FLAG_CREDENTIAL, 0, 2, LM_NATIVE_BAD, "byte 16"},
    {"ping with more than a credential", 28, 2, LM_FLAG_CREDENTIAL, 33, 2, LM_NATIVE_BAD,
     "byte 16"},
    {"ping with 32 bytes, no flag", 28, 2, 0, 32, 2, LM_NATIVE_BAD, "byte 16"},
    {"ping with a shape block", 28, 2, LM_FLAG_SHAPES, 0, 2, LM_NATIVE_BAD, "byte 28"},
    {"describe with a shape block", 28, 2, LM_FLAG_SHAPES, 8, 3, LM_NATIVE_BAD, "byte 28"},
    {"infer with a shape block", 28, 2, LM_FLAG_SHAPES, 8, 1, LM_NATIVE_OK, ""},
    {"region", 28, 2, 0, 0, 4, LM_NATIVE_OK, ""},
    {"region with a payload", 28, 2, 0, 8, 4, LM_NATIVE_BAD, "byte 16"},
    {"region in a region", 28, 2, LM_FLAG_REGION, 0, 4, LM_NATIVE_BAD, "byte 28"},
    {"ping in a region", 28, 2, LM_FLAG_REGION, 0, 2, LM_NATIVE_BAD, "byte 28"},
    {"infer in a region", 28, 2, LM_FLAG_REGION, 32, 1, LM_NATIVE_OK, ""},
    {"infer with a credential", 28, 2, LM_FLAG_CREDENTIAL, 32, 1, LM_NATIVE_OK, ""},
};

/* 2, 3 */
static void verdicts(void) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t bytes[LM_NATIVE_REQUEST_BYTES];
        struct lm_native_request request;
        CHECK_AT("%s", cases[i].what);
        good(bytes);
        bytes[4] = cases[i].kind;
        put(bytes + 8, 77, 8);
        put(bytes + 16, cases[i].payload_bytes, 4);
        put(bytes + cases[i].at, cases[i].value, cases[i].bytes);
        CHECK(parse(bytes, &request) == cases[i].verdict);
        CHECK((why[0] == '\0') == (cases[i].verdict == LM_NATIVE_OK));
        CHECK(strstr(why, cases[i].named));
        CHECK(request.rows == 1);
        /* What an answer needs is there whenever the frame's end is known. */
        if (cases[i].verdict != LM_NATIVE_NO_FRAME)
            CHECK(request.id == 77 && request.payload_bytes == cases[i].payload_bytes);
    }
}

/* The first bytes tell as early as can be, and no byte past them is looked at. */
static void beginnings(void) {
    for (size_t count = 0; count <= LM_NATIVE_REQUEST_BYTES; count++) {
        uint8_t bytes[LM_NATIVE_REQUEST_BYTES];
        uint8_t *at = check_guard_tail(&guard, count);
        CHECK_AT("the first %zu bytes", count);
        good(bytes);
        memcpy(at, bytes, count);
        CHECK(lm_native_may_be_header(at, count));
        for (size_t wrong = 0; wrong < count; wrong++) {
            at[wrong] ^= 0x20;
            CHECK(lm_native_may_be_header(at, count) == (wrong >= 4));
            at[wrong] ^= 0x20;
        }
    }
}

static void short_reason(void) {
    uint8_t bytes[LM_NATIVE_REQUEST_BYTES];
    struct lm_native_request request;
    char little[8] = "12345678"; /* with no terminator of its own */
    good(bytes);
    bytes[4] = 9;
    CHECK(lm_native_parse(bytes, &request, little, sizeof little - 1) == LM_NATIVE_BAD);
    CHECK(memcmp(little,
                 "kind (\0"
                 "8",
                 8) == 0);
}

static void reply(void) {
    static const struct lm_native_reply given = {.id = 0x0f0e0d0c0b0a0908,
                                                 .payload_bytes = 0x13121110,
                                                 .rows = 0x17161514,
                                                 .receive_us = 0x1b1a1918,
                                                 .queue_us = 0x1f1e1d1c,
                                                 .preprocess_us = 0x23222120,
                                                 .infer_us = 0x27262524,
                                                 .status = 0x0504,
                                                 .flags = 0x0706};
    uint8_t *bytes = check_guard_tail(&guard, LM_NATIVE_REPLY_BYTES);
    memset(bytes, 0xff, LM_NATIVE_REPLY_BYTES);
    lm_native_write_reply(bytes, &given);
    CHECK(memcmp(bytes, "LMR1", 4) == 0);
    for (uint32_t i = 4; i < LM_NATIVE_REPLY_BYTES; i++) CHECK(bytes[i] == (i < 40 ? i : 0));
}

static enum lm_native_verdict expected(const uint8_t *bytes) {
    uint64_t flags = get(bytes + 28, 2), payload = get(bytes + 16, 4);
    if (memcmp(bytes, "LMN1", 4) != 0) return LM_NATIVE_NO_FRAME;
    if (bytes[4] < 1 || bytes[4] > 4 || flags > 7 || get(bytes + 30, 2) != 0) return LM_NATIVE_BAD;
    if (bytes[4] == 1) return bytes[5] < LM_ENCODING_JSON ? LM_NATIVE_OK : LM_NATIVE_BAD;
    return payload == 32 * (flags & 1) && flags < 2 ? LM_NATIVE_OK : LM_NATIVE_BAD;
}

/* Random headers, most of them nearly right. */
static void fuzz(uint64_t *random) {
    uint32_t seen[3] = {0};
    for (uint32_t i = 0; i < 100000; i++) {
        uint8_t bytes[LM_NATIVE_REQUEST_BYTES];
        struct lm_native_request request;
        for (uint32_t b = 0; b < sizeof bytes; b++) bytes[b] = (uint8_t)check_below(random, 256);
        if (check_below(random, 16)) memcpy(bytes, "LMN1", 4);
        if (check_below(random, 16)) bytes[4] = (uint8_t)check_below(random, 5);
        if (check_below(random, 4)) bytes[5] = (uint8_t)check_below(random, 4);
        if (check_below(random, 8)) put(bytes + 28, check_below(random, 5), 4);
        if (check_below(random, 2)) put(bytes + 16, 32 * check_below(random, 2), 4);
        enum lm_native_verdict verdict = parse(bytes, &request);
        CHECK_AT("random header %u", i);
        CHECK(verdict == expected(bytes));
        CHECK((why[0] == '\0') == (verdict == LM_NATIVE_OK));
        CHECK(strlen(why) < sizeof why - 1); /* no reason is cut off */
        CHECK(request.rows != 0);
        seen[verdict]++;
        if (verdict == LM_NATIVE_NO_FRAME) continue;
        CHECK(request.id == get(bytes + 8, 8) && request.payload_bytes == get(bytes + 16, 4));
        CHECK(request.timeout_us == get(bytes + 20, 4) && request.number == get(bytes + 6, 2));
        CHECK(request.kind == bytes[4] && request.encoding == bytes[5] &&
              request.flags == get(bytes + 28, 2));
    }
    CHECK(seen[LM_NATIVE_OK] > 1000 && seen[LM_NATIVE_BAD] > 1000 &&
          seen[LM_NATIVE_NO_FRAME] > 1000);
}

int main(void) {
    uint64_t random = check_seed();
    check_guard_open(&guard, 64);
    offsets();
    verdicts();
    beginnings();
    short_reason();
    reply();
    fuzz(&random);
    check_guard_close(&guard);
    return check_finish("test_native_codec");
}
