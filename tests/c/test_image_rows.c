/* test_image_rows.c: every kernel this processor has gives the plain kernel's bits over random
 * sizes; the sink stays inside of the memory it is given, wants no row it does not need, and
 * refuses what is past its limits. tests/test_image_rows.py compares the bits with Pillow's. */
#include "check.h"
#include "image/rows.h"
#include "lumen.h"
#include "onnx/ort_api.h"

enum {
    SIDE_MAX = 120,
    TENSOR_BYTES = 3 * SIDE_MAX * SIDE_MAX * 4,
    SCRATCH_BYTES = 16 << 20,
    KEPT_BYTES = 256 << 10
};

static struct check_guard row_guard, tensor_guard, scratch_guard;
static uint8_t picture[3 * SIDE_MAX * SIDE_MAX], expected[TENSOR_BYTES];
static _Alignas(64) uint8_t kept_memory[KEPT_BYTES];
static struct lm_image_rows sink;

struct one {
    struct lm_image_plan plan;
    uint32_t width, height, orientation;
};

static uint32_t any_side(uint64_t *random) {
    static const uint32_t usual[] = {1, 2, 3, 5, 16, 17, 32, 48, 63, 64, 65};
    if (check_below(random, 3) == 0)
        return usual[check_below(random, sizeof usual / sizeof *usual)];
    return 1 + check_below(random, SIDE_MAX);
}

static struct one any_one(uint64_t *random) {
    static const int dtypes[] = {ORT_FLOAT, ORT_FLOAT16, ORT_UINT8, ORT_INT8};
    static const float mean[3] = {123.675f, 116.28f, 103.53f}, scale[3] = {0.017f, 0.018f, -3};
    struct one one = {.width = any_side(random),
                      .height = any_side(random),
                      .orientation = 1 + check_below(random, 8)};
    one.plan = (struct lm_image_plan){
        .resize = check_below(random, 2) ? any_side(random) : 0,
        .filter = (enum lm_filter)check_below(random, LM_FILTER_NEAREST + 1),
        .fit = (enum lm_fit)check_below(random, LM_FIT_LETTERBOX + 1),
        .pad_value = 114,
        .upright = true,
        .pixels = {.height = any_side(random),
                   .width = any_side(random),
                   .layout = check_below(random, 2) ? LM_LAYOUT_NCHW : LM_LAYOUT_NHWC,
                   .dtype = dtypes[check_below(random, 4)],
                   .is_grey = check_below(random, 4) == 0}};
    lm_rgb8_plan_init(&one.plan.pixels,
                      check_below(random, 2) ? LUMEN_CHANNELS_RGB : LUMEN_CHANNELS_BGR, mean,
                      scale);
    return one;
}

static void say_where(const struct one *one) {
    const struct lm_image_plan *plan = &one->plan;
    CHECK_AT("%s: %ux%u, orientation %u, to %ux%u, filter %d, fit %d, resize %u, dtype %d",
             sink.kernel ? sink.kernel->name : "", one->width, one->height, one->orientation,
             plan->pixels.width, plan->pixels.height, plan->filter, plan->fit, plan->resize,
             plan->pixels.dtype);
}

static size_t tensor_bytes(const struct one *one) {
    const struct lm_rgb8_plan *pixels = &one->plan.pixels;
    size_t channels = pixels->is_grey ? 1 : 3;
    return channels * pixels->height * pixels->width * lm_rgb8_value_bytes(pixels);
}

/* Rows, tensor and scratch end at unreadable pages, but for the row's slack. */
static void run(const struct one *one, uint8_t *tensor, uint8_t *scratch, size_t scratch_bytes) {
    CHECK(lm_image_rows_begin(&sink, &one->plan, one->width, one->height, one->orientation, tensor,
                              scratch, scratch_bytes));
    CHECK(sink.first_row < sink.end_row && sink.end_row <= one->height);
    uint8_t *row = check_guard_tail(&row_guard, 3 * (size_t)one->width + LM_IMAGE_SLACK);
    for (uint32_t y = sink.first_row; y < sink.end_row; y++) {
        CHECK(!lm_image_rows_done(&sink));
        memcpy(row, picture + 3 * (size_t)one->width * y, 3 * (size_t)one->width);
        lm_image_rows_put(&sink, row);
    }
    CHECK(lm_image_rows_done(&sink));
    lm_image_rows_put(&sink, row); /* one too many is not looked at */
}

static const struct lm_resample *plain_kernel(void) {
    uint32_t last = 0;
    while (lm_resample_kernel(last + 1)) last++;
    CHECK(strcmp(lm_resample_kernel(last)->name, "scalar") == 0);
    return lm_resample_kernel(last);
}

static void open_sink(const struct lm_resample *kernel, size_t kept_bytes) {
    lm_image_rows_open(&sink, kept_bytes ? kept_memory : NULL, kept_bytes);
    sink.kernel = kernel;
}

static void kernels(uint64_t *random) {
    static const size_t kept[] = {0, 16 << 10, KEPT_BYTES};
    uint8_t *scratch_end = check_guard_tail(&scratch_guard, 0);
    for (uint32_t round = 0; round < 3000; round++) {
        struct one one = any_one(random);
        size_t bytes = tensor_bytes(&one);
        for (size_t i = 0; i < 3 * (size_t)one.width * one.height; i++)
            picture[i] = (uint8_t)(check_random(random) >> (round % 2 ? 56 : 63));
        if (round % 2) memset(picture, 255, 3 * (size_t)one.width);
        open_sink(plain_kernel(), 0);
        say_where(&one);
        run(&one, expected, scratch_end - SCRATCH_BYTES, SCRATCH_BYTES);
        for (uint32_t kernel = 0; lm_resample_kernel(kernel); kernel++) {
            open_sink(lm_resample_kernel(kernel), kept[check_below(random, 3)]);
            say_where(&one);
            size_t need = lm_image_rows_bytes(&one.plan, one.width, one.height, one.orientation);
            CHECK(need > 0 && need % 64 == 0 && need <= SCRATCH_BYTES);
            if (kernel > 0) need = SCRATCH_BYTES; /* which is said of the first */
            uint8_t *tensor = check_guard_tail(&tensor_guard, bytes);
            for (uint32_t again = 0; again < 2; again++) { /* with weights that were kept */
                memset(tensor, 0xee, bytes);
                run(&one, tensor, scratch_end - need, need);
                CHECK(memcmp(tensor, expected, bytes) == 0);
            }
        }
    }
}

/* Pictures of changing sizes, each also with another filter: the weights that were kept are theirs.
 */
static void kept_weights(uint64_t *random) {
    uint8_t *scratch = check_guard_tail(&scratch_guard, SCRATCH_BYTES);
    struct one many[12];
    for (uint32_t i = 0; i < 12; i++) {
        many[i] = i % 2 ? many[i - 1] : any_one(random);
        many[i].plan.filter = (many[i].plan.filter + i % 2) % (LM_FILTER_NEAREST + 1);
    }
    for (size_t i = 0; i < sizeof picture; i++) picture[i] = (uint8_t)(check_random(random) >> 56);
    struct lm_image_rows keeping;
    open_sink(lm_resample_kernel(0), KEPT_BYTES);
    keeping = sink;
    for (uint32_t round = 0; round < 300; round++) {
        const struct one *one = &many[check_below(random, round < 100 ? 3 : 12)];
        size_t bytes = tensor_bytes(one);
        open_sink(lm_resample_kernel(0), 0);
        say_where(one);
        run(one, expected, scratch, SCRATCH_BYTES);
        sink = keeping;
        uint8_t *tensor = check_guard_tail(&tensor_guard, bytes);
        run(one, tensor, scratch, SCRATCH_BYTES);
        keeping = sink;
        CHECK(memcmp(tensor, expected, bytes) == 0);
    }
}

/* A crop takes the rows and columns that it needs; turned, they are others. */
static void windows(void) {
    static const float zero[3] = {0}, one[3] = {1, 1, 1};
    struct lm_image_plan plan = {.resize = 10,
                                 .fit = LM_FIT_CROP,
                                 .upright = true,
                                 .pixels = {.height = 10, .width = 10, .dtype = ORT_UINT8}};
    struct lm_image_geometry at;
    lm_rgb8_plan_init(&plan.pixels, LUMEN_CHANNELS_RGB, zero, one);
    CHECK_AT("windows");
    CHECK(lm_image_geometry(&plan, 40, 10, 1, &at));
    CHECK(at.x.in == 40 && at.x.out == 40 && at.x.first == 15 && at.x.count == 10);
    CHECK(at.y.in == 10 && at.y.out == 10 && at.y.first == 0 && !at.turned);
    uint8_t *scratch = check_guard_tail(&scratch_guard, SCRATCH_BYTES);
    uint8_t *tensor = check_guard_tail(&tensor_guard, 300);
    open_sink(lm_resample_kernel(0), 0);
    CHECK(lm_image_rows_begin(&sink, &plan, 40, 10, 1, tensor, scratch, SCRATCH_BYTES));
    CHECK(sink.first_row == 0 && sink.end_row == 10);
    CHECK(lm_image_rows_begin(&sink, &plan, 10, 40, 6, tensor, scratch, SCRATCH_BYTES));
    CHECK(sink.first_row == 15 && sink.end_row == 25 && sink.geometry.turned);
}

static void limits(void) {
    struct lm_image_plan plan = {.pixels = {.height = 2, .width = 2, .dtype = ORT_FLOAT}};
    uint8_t *scratch = check_guard_tail(&scratch_guard, SCRATCH_BYTES);
    static _Alignas(64) uint8_t tensor[64];
    CHECK_AT("limits");
    open_sink(lm_resample_kernel(0), 0);
    CHECK(lm_image_rows_bytes(&plan, 0, 1, 1) == 0 && lm_image_rows_bytes(&plan, 1, 0, 1) == 0);
    CHECK(lm_image_rows_bytes(&plan, LM_IMAGE_SIDE_MAX + 1, 1, 1) == 0);
    CHECK(lm_image_rows_bytes(&plan, 1, 1, 0) == 0 && lm_image_rows_bytes(&plan, 1, 1, 9) == 0);
    size_t need = lm_image_rows_bytes(&plan, LM_IMAGE_SIDE_MAX, 3, 1);
    CHECK(need > 0 && need < SCRATCH_BYTES);
    CHECK(lm_image_rows_begin(&sink, &plan, LM_IMAGE_SIDE_MAX, 3, 1, tensor, scratch, need));
    CHECK(!lm_image_rows_begin(&sink, &plan, LM_IMAGE_SIDE_MAX, 3, 1, tensor, scratch, need - 64));
    CHECK(!lm_image_rows_begin(&sink, &plan, 0, 3, 1, tensor, scratch, SCRATCH_BYTES));
    /* A line of one pixel would become too long before it is cropped. */
    plan.fit = LM_FIT_CROP;
    plan.resize = 1024;
    CHECK(lm_image_rows_bytes(&plan, LM_IMAGE_SIDE_MAX, 1, 1) == 0);
    CHECK(lm_image_rows_bytes(&plan, LM_IMAGE_SIDE_MAX, 4, 1) > 0);
}

/* No picture needs more scratch than was said before it was known. */
static void scratch_for_all(uint64_t *random) {
    static const uint32_t sides[] = {1, 28, 224, 299, 640, 1280};
    for (uint32_t round = 0; round < 100; round++) {
        struct one one = any_one(random);
        one.plan.pixels.width = sides[check_below(random, 6)];
        one.plan.pixels.height = sides[check_below(random, 6)];
        one.plan.max_pixels = (uint64_t)1 << check_below(random, 27);
        size_t most = lm_image_rows_bytes_max(&one.plan);
        for (uint32_t picture_index = 0; picture_index < 300; picture_index++) {
            one.width = 1 + (uint32_t)(check_random(random) >> 48) % LM_IMAGE_SIDE_MAX;
            one.width = 1 + one.width / (1 + check_below(random, 200));
            uint64_t high = one.plan.max_pixels / one.width;
            if (high == 0) continue;
            if (high > LM_IMAGE_SIDE_MAX) high = LM_IMAGE_SIDE_MAX;
            one.height =
                check_below(random, 2) ? (uint32_t)high : 1 + check_below(random, (uint32_t)high);
            one.orientation = 1 + check_below(random, 8);
            say_where(&one);
            CHECK(lm_image_rows_bytes(&one.plan, one.width, one.height, one.orientation) <= most);
        }
    }
}

int main(void) {
    uint64_t random = check_seed();
    check_guard_open(&row_guard, 3 * SIDE_MAX + LM_IMAGE_SLACK);
    check_guard_open(&tensor_guard, TENSOR_BYTES);
    check_guard_open(&scratch_guard, SCRATCH_BYTES);
    kernels(&random);
    kept_weights(&random);
    scratch_for_all(&random);
    windows();
    limits();
    check_guard_close(&row_guard);
    check_guard_close(&tensor_guard);
    check_guard_close(&scratch_guard);
    return check_finish("test_image_rows");
}
