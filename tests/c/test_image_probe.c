/* test_image_probe.c: EXIF orientations in all forms, and what a file's first bytes tell. Inputs
 * end at an unreadable page. */
#include "check.h"
#include "image/exif.h"
#include "image/probe.h"

static struct check_guard guard;

/* ---- EXIF ---- */

struct tiff {
    uint8_t bytes[256];
    size_t count;
    bool big;
};

static void add(struct tiff *tiff, uint32_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        size_t shift = 8 * (tiff->big ? bytes - 1 - i : i);
        tiff->bytes[tiff->count++] = (uint8_t)(value >> shift);
    }
}

static void add_entry(struct tiff *tiff, uint32_t tag, uint32_t type, uint32_t count,
                      uint32_t value) {
    add(tiff, tag, 2);
    add(tiff, type, 2);
    add(tiff, count, 4);
    add(tiff, value, 2);
    add(tiff, 0, 2);
}

/* A header, a directory of one other entry and the orientation. */
static struct tiff orientation_tiff(bool big, uint32_t value) {
    struct tiff tiff = {.big = big};
    add(&tiff, big ? 'M' << 8 | 'M' : 'I' << 8 | 'I', 2);
    add(&tiff, 42, 2);
    add(&tiff, 8, 4);
    add(&tiff, 2, 2);
    add_entry(&tiff, 0x010f, 2, 1, 'x');
    add_entry(&tiff, 0x0112, 3, 1, value);
    add(&tiff, 0, 4);
    return tiff;
}

static uint32_t read_tiff(const struct tiff *tiff, size_t bytes) {
    uint8_t *at = check_guard_tail(&guard, bytes);
    memcpy(at, tiff->bytes, bytes);
    return lm_exif_orientation(at, bytes);
}

static void test_orientations(void) {
    for (int big = 0; big < 2; big++) {
        for (uint32_t value = 0; value < 300; value++) {
            struct tiff tiff = orientation_tiff(big, value);
            CHECK(read_tiff(&tiff, tiff.count) == (value >= 1 && value <= 8 ? value : 1));
        }
        /* Cut anywhere: upright, until the entry is whole. */
        struct tiff tiff = orientation_tiff(big, 6);
        for (size_t bytes = 0; bytes <= tiff.count; bytes++)
            CHECK(read_tiff(&tiff, bytes) == (bytes >= 34 ? 6 : 1));
    }
}

static void test_odd_tiffs(void) {
    /* Where each stands in the little-endian form, and what is put there instead. */
    static const struct {
        size_t at;
        uint8_t value;
    } odd[] = {
        {0, 'M'}, {0, 'X'}, {1, 'M'},   {2, 43}, {3, 1},  {4, 7},  {4, 255}, {5, 1},
        {7, 255}, {8, 1},   {22, 0x13}, {24, 4}, {24, 1}, {26, 0}, {26, 2},  {29, 1},
    };
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct tiff tiff = orientation_tiff(false, 6);
        tiff.bytes[odd[i].at] = odd[i].value;
        CHECK_AT("byte %zu is %u", odd[i].at, odd[i].value);
        CHECK(read_tiff(&tiff, tiff.count) == 1);
    }
    /* More entries than there are bytes for: those that are there are read. */
    struct tiff tiff = orientation_tiff(false, 6);
    tiff.bytes[8] = tiff.bytes[9] = 255;
    CHECK(read_tiff(&tiff, tiff.count) == 6);
    /* The first of two counts. */
    tiff = orientation_tiff(false, 6);
    tiff.bytes[8] = 3;
    tiff.count -= 4;
    add_entry(&tiff, 0x0112, 3, 1, 3);
    CHECK(read_tiff(&tiff, tiff.count) == 6);
}

static void test_any_tiff(void) {
    uint64_t random = check_seed();
    for (int round = 0; round < 100000; round++) {
        struct tiff tiff = orientation_tiff(round & 1, 6);
        for (uint32_t n = check_below(&random, 6); n > 0; n--)
            tiff.bytes[check_below(&random, 40)] = (uint8_t)check_random(&random);
        uint32_t found = read_tiff(&tiff, check_below(&random, (uint32_t)tiff.count + 1));
        CHECK(found >= 1 && found <= 8);
    }
}

/* ---- files ---- */

static struct lm_image_probe probe(const uint8_t *file, size_t bytes) {
    struct lm_image_probe found;
    uint8_t *at = check_guard_tail(&guard, bytes);
    memcpy(at, file, bytes);
    lm_image_probe(&found, at, bytes);
    CHECK(found.orientation >= 1 && found.orientation <= 8);
    return found;
}

static void put_tiff(uint8_t *file, size_t *count, uint32_t value) {
    struct tiff tiff = orientation_tiff(true, value);
    memcpy(file + *count, tiff.bytes, tiff.count);
    *count += tiff.count;
}

/* SOI, a comment, the orientation, a table, fill bytes, a frame of 300 x 513, a scan. Returns where
 * the frame's sides end. */
static size_t make_jpeg(uint8_t *file, uint8_t frame, size_t *count_out) {
    static const uint8_t before[] = {0xff, 0xd8, 0xff, 0xfe, 0,   4,   'h', 'i', 0xff,
                                     0xe1, 0,    48,   'E',  'x', 'i', 'f', 0,   0};
    static const uint8_t after[] = {0xff, 0xc4, 0, 3, 9, 0xff, 0xff, 0xff};
    static const uint8_t sides[] = {0, 11, 8, 2, 1, 1, 44, 1, 1, 0x11, 0};
    static const uint8_t scan[] = {0xff, 0xda, 0, 8, 1, 1, 0, 0, 63, 0, 0xff, 0xc0, 0, 9};
    size_t count = sizeof before;
    memcpy(file, before, sizeof before);
    put_tiff(file, &count, 8);
    memset(file + count, 0, 2);
    count += 2;
    memcpy(file + count, after, sizeof after);
    count += sizeof after;
    file[count++] = frame;
    memcpy(file + count, sides, sizeof sides);
    size_t known = count + 7;
    count += sizeof sides;
    memcpy(file + count, scan, sizeof scan);
    *count_out = count + sizeof scan;
    return known;
}

static void test_jpegs(void) {
    uint8_t file[256];
    size_t count, known = make_jpeg(file, 0xc0, &count);
    for (size_t bytes = 0; bytes <= count; bytes++) {
        struct lm_image_probe found = probe(file, bytes);
        CHECK_AT("%zu bytes", bytes);
        CHECK(found.format == (bytes >= 3 ? LM_IMAGE_JPEG : LM_IMAGE_NONE));
        CHECK(found.has_sides == (bytes >= known));
        CHECK(found.width == (bytes >= known ? 300 : 0));
        CHECK(found.height == (bytes >= known ? 513 : 0));
        CHECK(found.orientation == (bytes >= 18 + 34 ? 8 : 1));
        CHECK(!found.is_whole);
    }
    CHECK_AT("frames");
    for (unsigned frame = 0xc0; frame <= 0xcf; frame++) {
        make_jpeg(file, (uint8_t)frame, &count);
        struct lm_image_probe found = probe(file, count);
        CHECK(found.has_sides == (frame != 0xc4 && frame != 0xc8 && frame != 0xcc));
        CHECK(found.is_whole == (frame == 0xc2 || frame == 0xc6 || frame == 0xca || frame == 0xce));
    }
    /* The first of two orientations counts: the segment, with another one, once more in front. */
    make_jpeg(file, 0xc0, &count);
    memmove(file + 8 + 50, file + 8, count - 8);
    memcpy(file + 8, file + 8 + 50, 50);
    file[8 + 10 + 10 + 12 + 9] = 3;
    CHECK(probe(file, count + 50).orientation == 3 && probe(file, count + 50).has_sides);
    /* A segment shorter than its own length field ends the search. */
    make_jpeg(file, 0xc0, &count);
    file[5] = 1;
    CHECK(!probe(file, count).has_sides);
}

static size_t put_chunk(uint8_t *file, size_t at, const char *type, size_t bytes) {
    uint8_t head[8] = {0, 0, (uint8_t)(bytes >> 8), (uint8_t)bytes};
    memcpy(head + 4, type, 4);
    memcpy(file + at, head, sizeof head);
    memset(file + at + 8, 0, bytes + 4);
    return at + 8 + bytes + 4;
}

static void test_pngs(void) {
    uint8_t file[512] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    size_t at = put_chunk(file, 8, "IHDR", 13);
    memcpy(file + 16, (const uint8_t[]){0, 1, 0, 2, 0, 0, 1, 3, 8, 2, 0, 0, 1}, 13);
    at = put_chunk(file, at, "IDAT", 100);
    size_t exif = at + 8;
    at = put_chunk(file, at, "eXIf", 38);
    put_tiff(file, &exif, 5);
    at = put_chunk(file, at, "IEND", 0);
    for (size_t bytes = 0; bytes <= at; bytes++) {
        struct lm_image_probe found = probe(file, bytes);
        CHECK_AT("%zu bytes", bytes);
        CHECK(found.format == (bytes >= 8 ? LM_IMAGE_PNG : LM_IMAGE_NONE));
        CHECK(found.has_sides == (bytes >= 29) && found.is_whole == (bytes >= 29));
        CHECK(found.width == (bytes >= 29 ? 65538 : 0) && found.height == (bytes >= 29 ? 259 : 0));
        CHECK(found.orientation == (bytes >= at - 12 ? 5 : 1));
    }
    CHECK_AT("lengths");
    for (unsigned length = 0; length < 256; length++) {
        memset(file + 33, (int)length, 4);
        probe(file, at);
    }
    file[15] = 'X';
    CHECK(!probe(file, at).has_sides && probe(file, at).format == LM_IMAGE_PNG);
}

static void test_any_file(void) {
    uint64_t random = check_seed();
    uint8_t file[256];
    size_t count;
    for (int round = 0; round < 100000; round++) {
        make_jpeg(file, 0xc0, &count);
        for (uint32_t n = check_below(&random, 6); n > 0; n--)
            file[check_below(&random, (uint32_t)count)] = (uint8_t)check_random(&random);
        probe(file, check_below(&random, (uint32_t)count + 1));
    }
}

static void test_names(void) {
    CHECK(strcmp(lm_image_format_name((const uint8_t *)"GIF89a", 6), "a GIF") == 0);
    CHECK(strcmp(lm_image_format_name((const uint8_t *)"RIFF....WEBP", 12), "a WebP") == 0);
    CHECK(lm_image_format_name((const uint8_t *)"RIFF....WEB", 11) == NULL);
    CHECK(lm_image_format_name(NULL, 0) == NULL);
}

int main(void) {
    check_guard_open(&guard, 4096);
    test_orientations();
    test_odd_tiffs();
    test_any_tiff();
    test_jpegs();
    test_pngs();
    test_any_file();
    test_names();
    return check_finish("image_probe");
}
