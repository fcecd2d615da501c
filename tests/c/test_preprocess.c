/* test_preprocess.c: every kernel this processor has gives the same bits as a plain loop, touches
 * no byte beyond the image or the planes, and takes images that start anywhere. */
#include "check.h"
#include "lumen.h"
#include "parts/ort_api.h"
#include "parts/preprocess.h"

enum { PIXELS_MAX = 224 * 224 };

static struct check_guard source_guard, planes_guard;
static float expected[3 * PIXELS_MAX];

static const float means[][3] = {{0, 0, 0}, {123.675f, 116.28f, 103.53f}, {-1.5f, 0.1f, 255}};
static const float scales[][3] = {
    {1, 1, 1}, {0.0171247538f, 0.0175070028f, 0.0174291939f}, {1e-7f, -3, 1e6f}};
enum { SCALING_COUNT = 3 };

static void fill(uint8_t *bytes, size_t count, uint64_t *random) {
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)(check_random(random) >> 56);
}

/* What plane c of the tensor has for pixel i. */
static float reference(const uint8_t *pixels, size_t i, uint32_t c, uint32_t channel_order,
                       uint32_t scaling) {
    uint32_t channel = channel_order == LUMEN_CHANNELS_BGR ? 2 - c : c;
    float difference = (float)pixels[3 * i + channel] - means[scaling][c];
    return difference * scales[scaling][c];
}

/* One image of `count` pixels whose last byte is `slack` bytes before the unreadable page. */
static void one_image(uint32_t kernel, size_t count, size_t slack, uint32_t channel_order,
                      uint32_t scaling) {
    struct lm_rgb8_plan plan = {
        .height = 1, .width = (uint32_t)count, .layout = LM_LAYOUT_NCHW, .dtype = ORT_FLOAT};
    const uint8_t *pixels = check_guard_tail(&source_guard, 3 * count + slack);
    float *planes = (float *)(void *)check_guard_tail(&planes_guard, 3 * count * sizeof(float));
    CHECK_AT("kernel %s, %zu pixels, %zu bytes of slack, order %u, scaling %u",
             lm_rgb8_kernel_name(kernel), count, slack, channel_order, scaling);
    lm_rgb8_plan_init(&plan, channel_order, means[scaling], scales[scaling]);
    for (uint32_t c = 0; c < 3; c++) {
        for (size_t i = 0; i < count; i++)
            expected[c * count + i] = reference(pixels, i, c, channel_order, scaling);
    }
    memset(planes, 0xee, 3 * count * sizeof(float));
    lm_rgb8_planes_with(kernel, &plan, pixels, planes, count);
    CHECK(memcmp(planes, expected, 3 * count * sizeof(float)) == 0);
}

static void kernels(uint64_t *random) {
    uint32_t kernel = 0;
    for (; lm_rgb8_kernel_name(kernel); kernel++) {
        fill(check_guard_tail(&source_guard, 3 * PIXELS_MAX), 3 * PIXELS_MAX, random);
        for (uint32_t order = LUMEN_CHANNELS_RGB; order <= LUMEN_CHANNELS_BGR; order++) {
            for (uint32_t scaling = 0; scaling < SCALING_COUNT; scaling++) {
                /* The count moves the start through every alignment, the slack does so for one
                 * count. */
                for (size_t count = 0; count <= 70; count++)
                    one_image(kernel, count, 0, order, scaling);
                for (size_t slack = 1; slack <= 65; slack++)
                    one_image(kernel, 48, slack, order, scaling);
                one_image(kernel, PIXELS_MAX, 0, order, scaling);
            }
        }
    }
    CHECK(kernel >= 1 && strcmp(lm_rgb8_kernel_name(kernel - 1), "scalar") == 0);
}

/* Every byte value, so that no kernel widens as if bytes were signed. */
static void every_byte(void) {
    for (uint32_t kernel = 0; lm_rgb8_kernel_name(kernel); kernel++) {
        uint8_t *pixels = check_guard_tail(&source_guard, 3 * 256);
        for (uint32_t i = 0; i < 3 * 256; i++) pixels[i] = (uint8_t)(i / 3);
        one_image(kernel, 256, 0, LUMEN_CHANNELS_RGB, 0);
    }
}

static void convert(enum lm_pixel_order layout, int dtype, uint32_t order, uint32_t height,
                    uint32_t width, uint32_t rows) {
    struct lm_rgb8_plan plan = {.height = height, .width = width, .layout = layout, .dtype = dtype};
    size_t count = (size_t)height * width, element = dtype == ORT_FLOAT ? sizeof(float) : 1,
           bytes = 3 * count * rows * element;
    const uint8_t *pixels = check_guard_tail(&source_guard, 3 * count * rows);
    CHECK_AT("%s of dtype %d, order %u, %u rows of %ux%u",
             layout == LM_LAYOUT_NCHW ? "NCHW" : "NHWC", dtype, order, rows, height, width);
    lm_rgb8_plan_init(&plan, order, means[1], scales[1]);
    uint8_t *tensor = aligned_alloc(64, (bytes + 64 + 63) / 64 * 64);
    CHECK(tensor != NULL);
    memset(tensor, 0xee, bytes + 64);
    lm_rgb8_convert(&plan, pixels, tensor, rows);
    for (size_t at = 0; at < 3 * count * rows; at++) {
        size_t row = at / (3 * count), inside = at % (3 * count);
        size_t i = layout == LM_LAYOUT_NCHW ? inside % count : inside / 3;
        uint32_t c = (uint32_t)(layout == LM_LAYOUT_NCHW ? inside / count : inside % 3);
        const uint8_t *image = pixels + row * 3 * count;
        if (dtype == ORT_FLOAT) {
            float value = reference(image, i, c, order, 1);
            CHECK(memcmp(tensor + at * sizeof value, &value, sizeof value) == 0);
        } else {
            CHECK(tensor[at] == image[3 * i + (order == LUMEN_CHANNELS_BGR ? 2 - c : c)]);
        }
    }
    for (size_t i = 0; i < 64; i++) CHECK(tensor[bytes + i] == 0xee);
    free(tensor);
}

static void conversions(uint64_t *random) {
    static const uint32_t sizes[][2] = {{1, 1}, {3, 5}, {8, 8}, {7, 19}};
    fill(check_guard_tail(&source_guard, 3 * PIXELS_MAX), 3 * PIXELS_MAX, random);
    for (int planar = 0; planar < 2; planar++) {
        for (uint32_t order = LUMEN_CHANNELS_RGB; order <= LUMEN_CHANNELS_BGR; order++) {
            for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
                for (uint32_t rows = 0; rows <= 3; rows++) {
                    enum lm_pixel_order layout = planar ? LM_LAYOUT_NCHW : LM_LAYOUT_NHWC;
                    convert(layout, ORT_FLOAT, order, sizes[s][0], sizes[s][1], rows);
                    convert(layout, ORT_UINT8, order, sizes[s][0], sizes[s][1], rows);
                }
            }
        }
    }
}

int main(void) {
    uint64_t random = check_seed();
    check_guard_open(&source_guard, 3 * PIXELS_MAX);
    check_guard_open(&planes_guard, 3 * PIXELS_MAX * sizeof(float));
    kernels(&random);
    every_byte();
    conversions(&random);
    check_guard_close(&source_guard);
    check_guard_close(&planes_guard);
    return check_finish("test_preprocess");
}
