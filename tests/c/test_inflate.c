/* test_inflate.c: row 39: bodies that were compressed: whole, cut at each byte, flipped, of several
 * members, larger than their room; none is read or written beyond its end. */
#include <string.h>
#include <zlib.h>

#include "base/limits.h"
#include "check.h"
#include "wire/inflate.h"

enum { TEXT_BYTES = 4096, PACKED_MAX = 8192 };

static struct lm_inflater *inflater;
static struct check_guard data_guard, text_guard;
static char text[TEXT_BYTES], why[LM_TEXT_BYTES_MAX];

/* zlib's own, in one go. */
static size_t pack(enum lm_coding coding, const void *data, size_t bytes, uint8_t *to) {
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data,
                       .avail_in = (uInt)bytes,
                       .next_out = to,
                       .avail_out = PACKED_MAX};
    CHECK(deflateInit2(&stream, 6, Z_DEFLATED, coding == LM_CODING_GZIP ? 31 : 15, 8,
                       Z_DEFAULT_STRATEGY) == Z_OK);
    CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    CHECK(deflateEnd(&stream) == Z_OK);
    return stream.total_out;
}

/* Both ends lie at unreadable pages. */
static enum lm_status unpack(enum lm_coding coding, const uint8_t *data, size_t bytes, size_t room,
                             size_t *bytes_out, char **out) {
    uint8_t *copy = check_guard_tail(&data_guard, bytes);
    *out = (char *)check_guard_tail(&text_guard, room);
    memcpy(copy, data, bytes);
    why[0] = '\0';
    enum lm_status status =
        lm_inflate(inflater, coding, copy, bytes, *out, room, bytes_out, why, sizeof why);
    CHECK((status == LM_STATUS_OK) == (why[0] == '\0') && *bytes_out <= room);
    return status;
}

static void whole_and_cut(enum lm_coding coding) {
    uint8_t packed[PACKED_MAX];
    char *out;
    size_t got, bytes = pack(coding, text, TEXT_BYTES, packed);
    CHECK(unpack(coding, packed, bytes, TEXT_BYTES, &got, &out) == LM_STATUS_OK);
    CHECK(got == TEXT_BYTES && memcmp(out, text, got) == 0);
    for (size_t cut = 0; cut < bytes; cut++) {
        CHECK_AT("cut to %zu of %zu bytes", cut, bytes);
        CHECK(unpack(coding, packed, cut, TEXT_BYTES, &got, &out) == LM_STATUS_BAD_REQUEST);
        CHECK(strstr(why, "ends too early"));
    }
    CHECK_AT("no room for the last byte");
    CHECK(unpack(coding, packed, bytes, TEXT_BYTES - 1, &got, &out) == LM_STATUS_TOO_LARGE);
    CHECK(strstr(why, "4095 bytes that are taken"));
    packed[bytes] = 'x';
    CHECK_AT("a byte behind the end");
    CHECK(unpack(coding, packed, bytes + 1, TEXT_BYTES, &got, &out) == LM_STATUS_BAD_REQUEST);
    enum lm_coding other = coding == LM_CODING_GZIP ? LM_CODING_DEFLATE : LM_CODING_GZIP;
    CHECK_AT("under the other's name");
    CHECK(unpack(other, packed, bytes, TEXT_BYTES, &got, &out) == LM_STATUS_BAD_REQUEST);
    CHECK(strstr(why, "incorrect header check at byte 2"));
}

static void flipped(enum lm_coding coding, uint64_t *random) {
    uint8_t packed[PACKED_MAX];
    char *out;
    size_t got, bytes = pack(coding, text, TEXT_BYTES, packed);
    for (int round = 0; round < 2000; round++) {
        size_t bit = check_random(random) % (bytes * 8);
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK_AT("bit %zu", bit);
        /* Some bits of gzip's header mean nothing. deflate's Adler-32 misses some changes. */
        if (unpack(coding, packed, bytes, TEXT_BYTES, &got, &out) == LM_STATUS_OK &&
            coding == LM_CODING_GZIP)
            CHECK(got == TEXT_BYTES && memcmp(out, text, got) == 0);
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static void members(void) {
    uint8_t packed[PACKED_MAX];
    char *out;
    size_t got, bytes = pack(LM_CODING_GZIP, text, 1000, packed);
    bytes += pack(LM_CODING_GZIP, text + 1000, 0, packed + bytes);
    bytes += pack(LM_CODING_GZIP, text + 1000, 1096, packed + bytes);
    CHECK(unpack(LM_CODING_GZIP, packed, bytes, 2096, &got, &out) == LM_STATUS_OK);
    CHECK(got == 2096 && memcmp(out, text, got) == 0);
    bytes = pack(LM_CODING_DEFLATE, text, 1000, packed);
    bytes += pack(LM_CODING_DEFLATE, text, 1000, packed + bytes);
    CHECK(unpack(LM_CODING_DEFLATE, packed, bytes, 2000, &got, &out) == LM_STATUS_BAD_REQUEST);
}

static void bomb(void) {
    static const uint8_t zeros[1 << 20] = {0};
    uint8_t packed[PACKED_MAX];
    char *out;
    size_t got, bytes = pack(LM_CODING_GZIP, zeros, sizeof zeros, packed);
    CHECK(bytes < 2000);
    CHECK(unpack(LM_CODING_GZIP, packed, bytes, TEXT_BYTES, &got, &out) == LM_STATUS_TOO_LARGE);
}

static void names(void) {
    static const struct {
        const char *name;
        enum lm_coding coding;
    } cases[] = {{"", LM_CODING_NONE},          {"Identity", LM_CODING_NONE},
                 {"gzip", LM_CODING_GZIP},      {"GZIP", LM_CODING_GZIP},
                 {"x-gzip", LM_CODING_GZIP},    {"deflate", LM_CODING_DEFLATE},
                 {"br", LM_CODING_UNKNOWN},     {"gzip, gzip", LM_CODING_UNKNOWN},
                 {"deflat", LM_CODING_UNKNOWN}, {"gzip ", LM_CODING_UNKNOWN}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        CHECK_AT("'%s'", cases[c].name);
        CHECK(lm_coding_find(cases[c].name, strlen(cases[c].name)) == cases[c].coding);
    }
    CHECK(lm_coding_find(NULL, 0) == LM_CODING_NONE);
}

int main(void) {
    uint64_t random = check_seed();
    check_guard_open(&data_guard, PACKED_MAX);
    check_guard_open(&text_guard, PACKED_MAX);
    CHECK(lm_inflater_open(&inflater) == 0);
    for (size_t i = 0; i < TEXT_BYTES; i++) text[i] = (char)('0' + check_random(&random) % 10);
    for (enum lm_coding c = LM_CODING_GZIP; c <= LM_CODING_DEFLATE; c++) {
        whole_and_cut(c);
        flipped(c, &random);
    }
    members();
    bomb();
    names();
    lm_inflater_close(inflater);
    lm_inflater_close(NULL);
    check_guard_close(&data_guard);
    check_guard_close(&text_guard);
    return check_finish("test_inflate");
}
