/* test_image_decoder.c: slices, limits, ends in the middle, damage and mallocs. Pixels are compared
 * with Pillow's in test_decode.py. */
#include "base/error.h"
#include "pictures.h"

#ifndef __SANITIZE_ADDRESS__
/* Every call of the libraries is counted. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *at, size_t bytes);
void __libc_free(void *at);
static unsigned allocations;

void *malloc(size_t bytes) {
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    allocations++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *at, size_t bytes) {
    allocations++;
    return __libc_realloc(at, bytes);
}

void free(void *at) {
    allocations++;
    __libc_free(at);
}
#else
static const unsigned allocations;
#endif

enum { MEGA = 1 << 20 };

static struct lm_image_decoder *decoder;
static struct check_guard guard;
static char why[256];
static struct lm_image_info info;
static uint32_t steps;

static struct lm_image_plan default_plan(void) {
    struct lm_image_plan plan = {
        .upright = true, .max_pixels = 16 * MEGA, .max_whole_pixels = 4 * MEGA};
    plan.pixels.width = plan.pixels.height = 224;
    return plan;
}

/* Decodes to the sink: all at once, or as little as a step does. */
static enum lm_image_step decode(const struct lm_image_plan *plan, const uint8_t *file,
                                 size_t bytes, bool sliced) {
    enum lm_image_step step = LM_IMAGE_FAILED;
    why[0] = '\0';
    steps = sink.rows = 0;
    if (lm_image_begin(decoder, plan, file, bytes, &info, why, sizeof why)) {
        struct lm_image_rows rows = {.end_row = info.height};
        sink.row_bytes = 3 * (size_t)info.width;
        do {
            step = lm_image_step(decoder, &rows, sliced ? 0 : UINT64_MAX, why, sizeof why);
            steps++;
        } while (step == LM_IMAGE_MORE);
        if (step == LM_IMAGE_DONE) CHECK(sink.rows == info.height);
    }
    lm_image_end(decoder);
    CHECK((step == LM_IMAGE_DONE) == (why[0] == '\0'));
    return step;
}

static bool is_refused(const struct lm_image_plan *plan, const struct picture *picture,
                       const char *sentence) {
    if (decode(plan, picture->file, picture->bytes, false) == LM_IMAGE_FAILED &&
        strcmp(why, sentence) == 0)
        return true;
    fprintf(stderr, "expected: %s\nfound: %s\n", sentence, why);
    return false;
}

/* The file, with its last byte before an unreadable page. */
static const uint8_t *guarded(const struct picture *picture, size_t bytes) {
    return memcpy(check_guard_tail(&guard, bytes), picture->file, bytes);
}

/* ---- each kind of picture ---- */

/* In one step and in the smallest ones; left at each of them; nothing allocated. */
static void check_slices(const struct picture *picture, bool is_whole) {
    const struct lm_image_plan plan = default_plan();
    const uint8_t *file = guarded(picture, picture->bytes);
    size_t bytes = 3 * (size_t)picture->width * picture->height;
    uint8_t *expected = malloc(bytes);
    unsigned before = allocations;
    CHECK(decode(&plan, file, picture->bytes, false) == LM_IMAGE_DONE);
    CHECK(info.width == picture->width && info.height == picture->height && steps == 1);
    CHECK(info.is_whole == is_whole);
    memcpy(expected, sink.pixels, bytes);
    CHECK(decode(&plan, file, picture->bytes, true) == LM_IMAGE_DONE);
    CHECK(memcmp(expected, sink.pixels, bytes) == 0);
    uint32_t all = steps;
    CHECK(bytes < 150000 || all > 10);
    for (uint32_t given = 0; given < all; given += 1 + all / 50) {
        CHECK(lm_image_begin(decoder, &plan, file, picture->bytes, &info, why, sizeof why));
        struct lm_image_rows rows = {.end_row = info.height};
        sink.rows = 0;
        for (uint32_t i = 0; i < given; i++)
            CHECK(lm_image_step(decoder, &rows, 0, why, sizeof why) == LM_IMAGE_MORE);
        lm_image_end(decoder);
    }
    CHECK(decode(&plan, file, picture->bytes, true) == LM_IMAGE_DONE);
    CHECK(memcmp(expected, sink.pixels, bytes) == 0);
    CHECK(allocations == before);
    free(expected);
}

/* Some rows alone: they are the same, and those behind them are not asked for. */
static void check_window(const struct picture *picture) {
    const struct lm_image_plan plan = default_plan();
    size_t row_bytes = 3 * (size_t)picture->width, bytes = row_bytes * picture->height;
    uint8_t *expected = malloc(bytes);
    CHECK(decode(&plan, picture->file, picture->bytes, false) == LM_IMAGE_DONE);
    memcpy(expected, sink.pixels, bytes);
    struct lm_image_rows rows = {.first_row = picture->height / 3, .end_row = picture->height / 2};
    sink.rows = 0;
    CHECK(lm_image_begin(decoder, &plan, picture->file, picture->bytes, &info, why, sizeof why));
    while (lm_image_step(decoder, &rows, 0, why, sizeof why) == LM_IMAGE_MORE) {
    }
    lm_image_end(decoder);
    CHECK(sink.rows == rows.end_row - rows.first_row);
    CHECK(memcmp(expected + row_bytes * rows.first_row, sink.pixels, row_bytes * sink.rows) == 0);
    free(expected);
}

/* Whatever is missing, it is said, unless the plan is lenient. */
static void check_beginnings(const struct picture *picture, const char *format) {
    struct lm_image_plan plan = default_plan();
    char begins[64];
    snprintf(begins, sizeof begins, "the %s ends ", format);
    for (size_t bytes = 8; bytes < picture->bytes; bytes++) {
        CHECK_AT("%zu of %zu bytes of a %s", bytes, picture->bytes, format);
        plan.lenient = false;
        CHECK(decode(&plan, guarded(picture, bytes), bytes, bytes & 1) == LM_IMAGE_FAILED);
        CHECK(strncmp(why, begins, strlen(begins)) == 0);
        plan.lenient = true;
        if (decode(&plan, guarded(picture, bytes), bytes, bytes & 1) == LM_IMAGE_DONE)
            CHECK(strcmp(format, "JPEG") == 0);
    }
}

static void test_jpegs(void) {
    static const struct jpeg_kind kinds[] = {
        {.components = 1},
        {.components = 3, .h_sampling = 2, .v_sampling = 2},
        {.components = 3, .h_sampling = 2, .v_sampling = 1, .restart_mcu = 3},
        {.components = 3, .h_sampling = 1, .v_sampling = 2},
        {.components = 3, .h_sampling = 4, .v_sampling = 1},
        {.components = 4},
        {.components = 1, .progressive = true},
        {.components = 3, .h_sampling = 2, .v_sampling = 2, .progressive = true},
        {.components = 4, .progressive = true, .restart_mcu = 5},
    };
    static const uint32_t sides[][2] = {{1, 1}, {17, 9}, {8, 300}, {301, 211}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (size_t s = 0; s < sizeof sides / sizeof sides[0]; s++) {
            struct picture picture = make_jpeg(sides[s][0], sides[s][1], &kinds[k]);
            CHECK_AT("JPEG %zu, %u x %u", k, picture.width, picture.height);
            check_slices(&picture, kinds[k].progressive);
            if (picture.height > 100) check_window(&picture);
            free_picture(&picture);
        }
        struct picture picture = make_jpeg(17, 19, &kinds[k]);
        check_beginnings(&picture, "JPEG");
        free_picture(&picture);
    }
}

static void test_pngs(void) {
    static const uint32_t sides[][2] = {{1, 1}, {2, 1}, {17, 9}, {8, 300}, {301, 211}};
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        for (int colour = 0; colour < 2; colour++) {
            uint8_t type = colour ? SPNG_COLOR_TYPE_TRUECOLOR : SPNG_COLOR_TYPE_GRAYSCALE;
            for (size_t s = 0; s < sizeof sides / sizeof sides[0]; s++) {
                struct picture picture = make_png(sides[s][0], sides[s][1], type, interlaced);
                CHECK_AT("PNG %d %d, %u x %u", interlaced, colour, picture.width, picture.height);
                check_slices(&picture, interlaced);
                if (picture.height > 100) check_window(&picture);
                free_picture(&picture);
            }
            struct picture picture = make_png(17, 19, type, interlaced);
            check_beginnings(&picture, "PNG");
            free_picture(&picture);
        }
    }
}

/* ---- limits ---- */

static void set_jpeg_sides(struct picture *picture, uint32_t width, uint32_t height) {
    for (size_t i = 2; i + 9 < picture->bytes; i++) {
        if (picture->file[i] != 0xff ||
            (picture->file[i + 1] != 0xc0 && picture->file[i + 1] != 0xc2))
            continue;
        uint8_t sides[] = {(uint8_t)(height >> 8), (uint8_t)height, (uint8_t)(width >> 8),
                           (uint8_t)width};
        memcpy(picture->file + i + 5, sides, sizeof sides);
        return;
    }
    CHECK(false);
}

/* With a checksum that fits. */
static void set_png_sides(struct picture *picture, uint32_t width, uint32_t height) {
    uint8_t *header = picture->file + 12;
    for (int i = 0; i < 4; i++) {
        header[4 + i] = (uint8_t)(width >> (24 - 8 * i));
        header[8 + i] = (uint8_t)(height >> (24 - 8 * i));
    }
    uint32_t sum = UINT32_MAX;
    for (size_t i = 0; i < 17; i++) {
        sum ^= header[i];
        for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
    }
    for (int i = 0; i < 4; i++) header[17 + i] = (uint8_t)(~sum >> (24 - 8 * i));
}

static void test_sides(void) {
    const struct lm_image_plan plan = default_plan();
    struct picture jpeg = make_jpeg(16, 16, &(struct jpeg_kind){.components = 3});
    set_jpeg_sides(&jpeg, 65500, 65500);
    CHECK(
        is_refused(&plan, &jpeg,
                   "the JPEG has 65500 x 65500 pixels, at most 16777216 are served (max_pixels)"));
    set_jpeg_sides(&jpeg, 65501, 1);
    CHECK(is_refused(&plan, &jpeg,
                     "the JPEG cannot be decoded: Maximum supported image dimension is 65500 "
                     "pixels (libjpeg-turbo, in its header)"));
    free_picture(&jpeg);
    jpeg = make_jpeg(16, 16, &(struct jpeg_kind){.components = 3, .progressive = true});
    set_jpeg_sides(&jpeg, 4096, 1025);
    CHECK(is_refused(&plan, &jpeg,
                     "the JPEG is progressive and has 4096 x 1025 pixels, of which at most 4194304 "
                     "are served (max_whole_pixels)"));
    free_picture(&jpeg);
    struct picture png = make_png(16, 16, SPNG_COLOR_TYPE_TRUECOLOR, false);
    set_png_sides(&png, 40000, 40000);
    CHECK(is_refused(&plan, &png,
                     "the PNG has 40000 x 40000 pixels, at most 16777216 are served (max_pixels)"));
    set_png_sides(&png, 65501, 1);
    CHECK(
        is_refused(&plan, &png, "the PNG has 65501 x 1 pixels: expected 1 to 65500 on each side"));
    set_png_sides(&png, 16, 17);
    CHECK(is_refused(&plan, &png, "the PNG's pixels end after 15 of 17 rows"));
    free_picture(&png);
    png = make_png(16, 16, SPNG_COLOR_TYPE_TRUECOLOR, true);
    set_png_sides(&png, 4096, 1025);
    CHECK(is_refused(&plan, &png,
                     "the PNG is interlaced and has 4096 x 1025 pixels, of which at most 4194304 "
                     "are served (max_whole_pixels)"));
    free_picture(&png);
}

/* As many pixels as are served, and one more. */
static void test_most_pixels(void) {
    struct lm_image_plan plan = default_plan();
    for (int kind = 0; kind < 4; kind++) {
        bool is_whole = kind % 2;
        struct picture picture =
            kind < 2
                ? make_jpeg(20, 21, &(struct jpeg_kind){.components = 3, .progressive = is_whole})
                : make_png(20, 21, SPNG_COLOR_TYPE_TRUECOLOR, is_whole);
        for (uint64_t most = 419; most <= 420; most++) {
            enum lm_image_step expected = most < 420 ? LM_IMAGE_FAILED : LM_IMAGE_DONE;
            CHECK_AT("kind %d, %u pixels", kind, (unsigned)most);
            plan.max_pixels = most;
            plan.max_whole_pixels = 420;
            CHECK(decode(&plan, picture.file, picture.bytes, false) == expected);
            plan.max_pixels = 420;
            plan.max_whole_pixels = most;
            if (!is_whole) expected = LM_IMAGE_DONE;
            CHECK(decode(&plan, picture.file, picture.bytes, false) == expected);
        }
        free_picture(&picture);
    }
}

/* The longest rows there are, within the memory of rows alone. */
static void test_long_sides(void) {
    const struct lm_image_plan plan = default_plan();
    for (int turned = 0; turned < 2; turned++) {
        uint32_t width = turned ? 3 : 65500, height = turned ? 65500 : 3;
        struct picture pictures[] = {
            make_jpeg(width, height,
                      &(struct jpeg_kind){.components = 3, .h_sampling = 2, .v_sampling = 2}),
            make_jpeg(width, height,
                      &(struct jpeg_kind){.components = 3, .h_sampling = 2, .v_sampling = 4}),
            make_jpeg(width, height, &(struct jpeg_kind){.components = 4}),
            make_jpeg(width, height, &(struct jpeg_kind){.components = 3, .progressive = true}),
            make_png(width, height, SPNG_COLOR_TYPE_TRUECOLOR, false),
            make_png(width, height, SPNG_COLOR_TYPE_TRUECOLOR, true),
        };
        for (size_t i = 0; i < sizeof pictures / sizeof pictures[0]; i++) {
            CHECK_AT("%zu, %u x %u", i, width, height);
            CHECK(decode(&plan, pictures[i].file, pictures[i].bytes, false) == LM_IMAGE_DONE);
            free_picture(&pictures[i]);
        }
    }
}

static void test_scans(void) {
    const struct lm_image_plan plan = default_plan();
    struct jpeg_kind kind = {.components = 3, .scans = 64};
    struct picture jpeg = make_jpeg(20, 20, &kind);
    check_slices(&jpeg, true);
    free_picture(&jpeg);
    kind.scans = 65;
    jpeg = make_jpeg(20, 20, &kind);
    CHECK(is_refused(&plan, &jpeg, "the JPEG has more than 64 scans"));
    free_picture(&jpeg);
}

/* A model's limit above what the decoder was opened for. */
static void test_memory(void) {
    struct lm_image_plan plan = default_plan();
    struct picture jpeg =
        make_jpeg(3000, 2000, &(struct jpeg_kind){.components = 3, .progressive = true});
    struct picture png = make_png(3000, 3000, SPNG_COLOR_TYPE_TRUECOLOR, true);
    struct lm_image_decoder *large = decoder;
    CHECK(lm_image_decoder_open(&decoder, 1 << 16) == 0);
    plan.max_whole_pixels = plan.max_pixels;
    CHECK(decode(&plan, jpeg.file, jpeg.bytes, false) == LM_IMAGE_FAILED);
    CHECK(strncmp(why, "the JPEG needs more than the ", 29) == 0);
    CHECK(decode(&plan, png.file, png.bytes, false) == LM_IMAGE_FAILED);
    CHECK(strncmp(why, "the PNG needs more than the ", 28) == 0);
    lm_image_decoder_close(decoder);
    CHECK(lm_image_decoder_open(&decoder, UINT64_MAX) == LUMEN_E_NOMEM);
    CHECK(lm_image_decoder_open(&decoder, UINT64_MAX / 64) == LUMEN_E_NOMEM);
    CHECK(strstr(lm_error_last(), "(lower max_whole_pixels?)"));
    decoder = large;
    CHECK(decode(&plan, jpeg.file, jpeg.bytes, false) == LM_IMAGE_DONE);
    free_picture(&jpeg);
    free_picture(&png);
}

/* ---- damage ---- */

static void test_warnings(void) {
    struct lm_image_plan plan = default_plan();
    struct picture jpeg = make_jpeg(64, 64, &(struct jpeg_kind){.components = 3});
    /* Two bytes more between the pixels and the end marker. */
    uint8_t *longer = malloc(jpeg.bytes + 2);
    memcpy(longer, jpeg.file, jpeg.bytes - 2);
    memcpy(longer + jpeg.bytes - 2, (const uint8_t[]){1, 2, 0xff, 0xd9}, 4);
    struct picture damaged = {.file = longer, .bytes = jpeg.bytes + 2};
    CHECK(decode(&plan, damaged.file, damaged.bytes, false) == LM_IMAGE_FAILED);
    CHECK(strstr(why, "extraneous bytes before marker 0xd9 (libjpeg-turbo, after 64 of 64 rows)"));
    plan.lenient = true;
    CHECK(decode(&plan, damaged.file, damaged.bytes, false) == LM_IMAGE_DONE);
    free(longer);
    free_picture(&jpeg);
    struct picture png = make_png(64, 64, SPNG_COLOR_TYPE_TRUECOLOR, false);
    png.file[29] ^= 1; /* of the header's checksum */
    CHECK(decode(&plan, png.file, png.bytes, false) == LM_IMAGE_DONE);
    plan.lenient = false;
    CHECK(is_refused(&plan, &png,
                     "the PNG cannot be decoded: invalid chunk checksum (libspng, in its header)"));
    free_picture(&png);
}

/* A picture without its own tables does not get those of the picture before it. */
static void test_tables(void) {
    const struct lm_image_plan plan = default_plan();
    struct picture whole = make_jpeg(64, 64, &(struct jpeg_kind){.components = 3});
    struct picture bare =
        make_jpeg(64, 64, &(struct jpeg_kind){.components = 3, .no_tables = true});
    CHECK(decode(&plan, whole.file, whole.bytes, false) == LM_IMAGE_DONE);
    CHECK(is_refused(&plan, &bare,
                     "the JPEG cannot be decoded: Quantization table 0x00 was not defined "
                     "(libjpeg-turbo, in its header)"));
    CHECK(decode(&plan, whole.file, whole.bytes, false) == LM_IMAGE_DONE);
    free_picture(&whole);
    free_picture(&bare);
}

static void test_other_files(void) {
    const struct lm_image_plan plan = default_plan();
    struct picture file = {.file = (uint8_t *)"GIF89a", .bytes = 6};
    CHECK(is_refused(&plan, &file, "expected a JPEG or PNG file, found a GIF"));
    file = (struct picture){.file = (uint8_t *)"\0\1\2\3\4\5\6\7\10", .bytes = 9};
    CHECK(is_refused(&plan, &file,
                     "expected a JPEG or PNG file, found bytes that begin with 00 01 02 03 04 05 "
                     "06 07"));
    file.bytes = 0;
    CHECK(is_refused(&plan, &file, "expected a JPEG or PNG file, found no bytes"));
}

/* Damaged anywhere: an answer, and the next picture is whole. */
static void test_any_damage(void) {
    struct lm_image_plan plan = default_plan();
    uint64_t random = check_seed();
    struct picture pictures[] = {
        make_jpeg(40, 30, &(struct jpeg_kind){.components = 3, .h_sampling = 2, .v_sampling = 2}),
        make_jpeg(40, 30, &(struct jpeg_kind){.components = 3, .progressive = true}),
        make_png(40, 30, SPNG_COLOR_TYPE_TRUECOLOR, false),
        make_png(40, 30, SPNG_COLOR_TYPE_GRAYSCALE, true),
    };
    plan.max_pixels = plan.max_whole_pixels = 1 << 16;
    for (int round = 0; round < 4000; round++) {
        const struct picture *picture = &pictures[round % 4];
        uint8_t *file = check_guard_tail(&guard, picture->bytes);
        memcpy(file, picture->file, picture->bytes);
        for (uint32_t n = 1 + check_below(&random, 4); n > 0; n--)
            file[check_below(&random, (uint32_t)picture->bytes)] = (uint8_t)check_random(&random);
        plan.lenient = check_below(&random, 2);
        plan.fast = check_below(&random, 2);
        decode(&plan, file, picture->bytes, check_below(&random, 2));
    }
    for (size_t i = 0; i < 4; i++) {
        plan.lenient = plan.fast = false;
        CHECK(decode(&plan, pictures[i].file, pictures[i].bytes, false) == LM_IMAGE_DONE);
        free_picture(&pictures[i]);
    }
}

static void test_fast(void) {
    struct lm_image_plan plan = default_plan();
    plan.fast = true;
    static const struct {
        uint32_t width, height, tensor_width, tensor_height, shrunk_width, shrunk_height;
    } cases[] = {
        {640, 480, 320, 240, 320, 240}, {640, 480, 320, 241, 640, 480},
        {641, 481, 160, 120, 161, 121}, {640, 480, 1, 1, 80, 60},
        {639, 480, 320, 240, 639, 480},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct picture jpeg =
            make_jpeg(cases[i].width, cases[i].height, &(struct jpeg_kind){.components = 3});
        plan.pixels.width = cases[i].tensor_width;
        plan.pixels.height = cases[i].tensor_height;
        CHECK_AT("case %zu", i);
        CHECK(decode(&plan, jpeg.file, jpeg.bytes, true) == LM_IMAGE_DONE);
        CHECK(info.width == cases[i].shrunk_width && info.height == cases[i].shrunk_height);
        CHECK(info.stored_width == cases[i].width && info.stored_height == cases[i].height);
        free_picture(&jpeg);
    }
}

int main(void) {
    check_guard_open(&guard, 2 * MEGA);
    sink_open(64 * MEGA);
    CHECK(lm_image_decoder_open(&decoder, 8 * MEGA) == 0);
    test_jpegs();
    test_pngs();
    test_sides();
    test_most_pixels();
    test_long_sides();
    test_scans();
    test_memory();
    test_warnings();
    test_tables();
    test_other_files();
    test_any_damage();
    test_fast();
    lm_image_decoder_close(decoder);
    free(sink.pixels);
    return check_finish("image_decoder");
}
