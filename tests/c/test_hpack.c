/* Header blocks (row 48): RFC 7541's own examples, what is malformed, and tables that are full. */
#include "wire/hpack.h"

#include <stdio.h>
#include <string.h>

#include "check.h"
#include "wire/hpack_text.h"

static struct lm_hpack_table table;
static struct lm_hpack hpack;
static struct lm_hpack_fields fields;
static char why[256];

static void begin(uint16_t size) {
    memset(&table, 0, sizeof table);
    hpack = (struct lm_hpack){.table = &table, .size = size, .limit = LM_HPACK_TABLE_BYTES};
}

/* Of hexadecimal digits, with blanks between them. */
static size_t bytes_of(const char *digits, uint8_t *bytes) {
    size_t count = 0;
    unsigned value;
    for (int used; sscanf(digits, " %2x%n", &value, &used) == 1; digits += used)
        bytes[count++] = (uint8_t)value;
    return count;
}

static bool decode(const char *digits) {
    static uint8_t block[65536];
    return lm_hpack_decode(&hpack, block, bytes_of(digits, block), &fields, why, sizeof why);
}

/* The fields as "name: value\n". */
static const char *text(void) {
    static char all[65536];
    size_t used = 0;
    all[0] = '\0';
    for (uint32_t f = 0; f < fields.count; f++) {
        const struct lm_hpack_field *field = &fields.list[f];
        used +=
            (size_t)snprintf(all + used, sizeof all - used, "%.*s: %.*s\n", (int)field->name.bytes,
                             field->name.at, (int)field->value.bytes, field->value.at);
    }
    return all;
}

static void expect(const char *digits, const char *expected, uint16_t used) {
    CHECK(decode(digits));
    CHECK(strcmp(text(), expected) == 0);
    CHECK(table.used == used);
    CHECK(!fields.too_large);
}

#define FIRST ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n"

static void requests(const char *first, const char *second, const char *third) {
    begin(LM_HPACK_TABLE_BYTES);
    expect(first, FIRST, 57);
    expect(second, FIRST "cache-control: no-cache\n", 110);
    expect(third,
           ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n"
           "custom-key: custom-value\n",
           164);
}

/* Appendix C.6: a table of 256 bytes, from which the oldest go. */
static void evictions(void) {
    begin(256);
    expect("4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b "
           "ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
           ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n"
           "location: https://www.example.com\n",
           222);
    expect("4883 640e ffc1 c0bf",
           ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n"
           "location: https://www.example.com\n",
           222);
    expect("88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad "
           "94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 "
           "65c0 03ed 4ee5 b106 3d50 07",
           ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n"
           "location: https://www.example.com\ncontent-encoding: gzip\nset-cookie: "
           "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n",
           215);
    CHECK(table.count == 3);
}

static void malformed(const char *digits, const char *says) {
    begin(LM_HPACK_TABLE_BYTES);
    CHECK(!decode(digits));
    CHECK_AT("%.24s: %.100s", digits, why);
    CHECK(strstr(why, says) != NULL);
}

static void refusals(void) {
    malformed("80", "expected an index from 1 on, found 0");
    malformed("be", "an index is beyond the table");
    malformed("ff ff ff ff 7f", "a number is too large");
    malformed("ff ff", "it ends within a number");
    malformed("40", "it ends before a string");
    malformed("40 01 61", "it ends before a string");
    malformed("40 03 61 62", "it ends within a string");
    malformed("41 ff ff ff ff ff ff", "a number is too large");
    malformed("3f e2 1f", "above what the server allows"); /* 4097 */
    malformed("82 20", "the table's size changes behind a field");
    malformed("41 81 00", "a string is not Huffman's code");          /* '0', padded with zeroes */
    malformed("41 81 ff", "a string is not Huffman's code");          /* eight bits of padding */
    malformed("41 84 ff ff ff ff", "a string is not Huffman's code"); /* the end of a string */
    begin(LM_HPACK_TABLE_BYTES);
    CHECK(decode("3f e1 1f 20 82")); /* 4096, then 0 */
    CHECK(hpack.size == 0);
    CHECK(decode("41 01 61"));
    CHECK(table.count == 0);
    begin(LM_HPACK_TABLE_BYTES);
    CHECK(lm_hpack_give_table(&hpack) == &table);
    CHECK(decode("41 01 61 82")); /* it may say to keep: nobody does */
    CHECK(strcmp(text(), ":authority: a\n:method: GET\n") == 0);
    CHECK(!decode("be"));
    CHECK(!decode("21"));
}

/* A field of `bytes` in all, as it counts in the table, kept under the name "a". */
static size_t kept_field(uint8_t *block, size_t bytes, char letter) {
    const size_t value = bytes - LM_HPACK_OVERHEAD - 1;
    size_t used = 0;
    block[used++] = 0x40;
    block[used++] = 1;
    block[used++] = 'a';
    if (value < 127) {
        block[used++] = (uint8_t)value;
    } else {
        block[used++] = 127;
        block[used++] = (uint8_t)(0x80 | ((value - 127) & 0x7f));
        block[used++] = (uint8_t)((value - 127) >> 7);
    }
    memset(block + used, letter, value);
    return used + value;
}

/* The ring of bytes goes round many times, and each entry is found whole. */
static void rings(void) {
    static uint8_t block[8192];
    begin(LM_HPACK_TABLE_BYTES);
    for (uint32_t round = 0; round < 1000; round++) {
        const size_t bytes = 33 + round * 37 % 900;
        const char letter = (char)('a' + round % 26);
        size_t count = kept_field(block, bytes, letter);
        CHECK(lm_hpack_decode(&hpack, block, count, &fields, why, sizeof why));
        CHECK(table.used <= LM_HPACK_TABLE_BYTES);
        CHECK(decode("be"));
        CHECK(fields.list[0].value.bytes == bytes - 33);
        for (size_t v = 0; v < fields.list[0].value.bytes; v++)
            CHECK(fields.list[0].value.at[v] == letter);
    }
    for (uint32_t entry = 0; entry < 200; entry++) CHECK(decode("40 00 00"));
    CHECK(table.count == LM_HPACK_ENTRIES);
    CHECK(decode("40 01 61 00")); /* 33 bytes: two of 32 go */
    CHECK(table.count == LM_HPACK_ENTRIES - 1);
    size_t count = kept_field(block, LM_HPACK_TABLE_BYTES, 'x'); /* alone it fits */
    CHECK(lm_hpack_decode(&hpack, block, count, &fields, why, sizeof why));
    CHECK(table.count == 1);
    CHECK(table.used == LM_HPACK_TABLE_BYTES);
    CHECK(decode("be"));
    CHECK(fields.list[0].value.bytes == LM_HPACK_TABLE_BYTES - LM_HPACK_OVERHEAD - 1);
    count = kept_field(block, LM_HPACK_TABLE_BYTES + 1, 'x');
    CHECK(lm_hpack_decode(&hpack, block, count, &fields, why, sizeof why));
    CHECK(table.count == 0);
    CHECK(table.used == 0);
}

/* Fields beyond the bounds of a head are left out, and the table stays in step with the client's.
 */
static void large_heads(void) {
    static uint8_t block[65536];
    size_t count = 0;
    begin(LM_HPACK_TABLE_BYTES);
    for (uint32_t field = 0; field < 30; field++)
        count += kept_field(block + count, 1000, (char)('a' + field % 26));
    CHECK(lm_hpack_decode(&hpack, block, count, &fields, why, sizeof why));
    CHECK(fields.too_large);
    CHECK(table.count == 4);
    CHECK(decode("be bf"));
    CHECK(!fields.too_large);
    CHECK(fields.list[0].value.at[0] == 'd' && fields.list[1].value.at[0] == 'c');
    for (count = 0; count <= LM_HTTP_HEADERS_MAX; count++) block[count] = 0x82;
    CHECK(lm_hpack_decode(&hpack, block, count, &fields, why, sizeof why));
    CHECK(fields.too_large);
    CHECK(fields.count == LM_HTTP_HEADERS_MAX);
    /* 12,000 times 'e', 5 bits each, to be kept: longer than a table, twice also than a head. */
    for (int times = 0; times < 2; times++) {
        const uint32_t coded = 7500;
        count = 0;
        for (int field = 0; field <= times; field++) {
            block[count++] = 0x41;
            block[count++] = 0xff;
            block[count++] = (uint8_t)(0x80 | ((coded - 127) & 0x7f));
            block[count++] = (uint8_t)((coded - 127) >> 7);
            static const uint8_t letters[] = {0x29, 0x4a, 0x52, 0x94, 0xa5}; /* eight of them */
            for (uint32_t b = 0; b < coded; b++) block[count++] = letters[b % 5];
        }
        CHECK(decode("40 01 61 00"));
        CHECK(lm_hpack_decode(&hpack, block, count, &fields, why, sizeof why));
        CHECK(fields.too_large == (times == 1));
        CHECK(table.count == 0);
        CHECK(fields.list[0].value.bytes == 12000);
        CHECK(fields.list[0].value.at[0] == 'e' && fields.list[0].value.at[11999] == 'e');
    }
}

int main(void) {
    check_watchdog(120, "header blocks");
    requests("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
             "8286 84be 5808 6e6f 2d63 6163 6865",
             "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65");
    requests("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", "8286 84be 5886 a8eb 1064 9cbf",
             "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf");
    evictions();
    refusals();
    rings();
    large_heads();
    return check_finish("test_hpack");
}
