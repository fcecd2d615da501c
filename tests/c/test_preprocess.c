/* test_preprocess.c: every kernel this processor has gives the same bits as a plain loop, touches
 * no byte beyond the image or the planes, and takes images that start anywhere. */
#include <math.h>

#include "check.h"
#include "lumen.h"
#include "models/preprocess.h"
#include "onnx/ort_api.h"

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
    lm_rgb8_run_with(kernel, &plan, pixels, planes, 0, count);
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

/* numpy's float16 of a float, worked out in double: rounded to nearest even. */
static uint16_t half_reference(float value) {
    double magnitude = fabs((double)value);
    int exponent = magnitude > 0 ? ilogb(magnitude) : -14;
    double step = ldexp(1, (exponent < -14 ? -14 : exponent) - 10);
    double rounded = rint(magnitude / step) * step;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (rounded >= 65536) return sign | 0x7c00;
    if (rounded < ldexp(1, -14)) return (uint16_t)(sign | (int)ldexp(rounded, 24));
    exponent = ilogb(rounded);
    int fraction = (int)ldexp(rounded, 10 - exponent) - 1024;
    return (uint16_t)(sign | (exponent + 15) << 10 | fraction);
}

static void is_value(const struct lm_rgb8_plan *plan, const uint8_t *tensor, size_t at,
                     uint8_t byte, float value) {
    uint16_t half = half_reference(value);
    if (plan->dtype == ORT_FLOAT) {
        CHECK(memcmp(tensor + 4 * at, &value, 4) == 0);
    } else if (plan->dtype == ORT_FLOAT16) {
        CHECK(memcmp(tensor + 2 * at, &half, 2) == 0);
    } else {
        CHECK(tensor[at] == (plan->dtype == ORT_INT8 ? (uint8_t)(byte - 128) : byte));
    }
}

/* The kernel's run over all but the first `skip` pixels of an image, or whole images. */
static void convert(uint32_t kernel, enum lm_pixel_order layout, int dtype, uint32_t scaling,
                    const uint32_t sides[2], size_t skip, uint32_t rows) {
    struct lm_rgb8_plan plan = {
        .height = sides[0], .width = sides[1], .layout = layout, .dtype = dtype};
    uint32_t order = scaling % 2 ? LUMEN_CHANNELS_BGR : LUMEN_CHANNELS_RGB;
    size_t count = (size_t)sides[0] * sides[1], room = 3 * count * rows;
    const uint8_t *pixels = check_guard_tail(&source_guard, room);
    lm_rgb8_plan_init(&plan, order, means[scaling], scales[scaling]);
    size_t bytes = room * lm_rgb8_value_bytes(&plan);
    uint8_t *tensor = check_guard_tail(&planes_guard, bytes);
    CHECK_AT("%s, %s of dtype %d, scaling %u, %u images of %ux%u from %zu on",
             lm_rgb8_kernel_name(kernel), layout == LM_LAYOUT_NCHW ? "NCHW" : "NHWC", dtype,
             scaling, rows, sides[0], sides[1], skip);
    memset(tensor, 0xee, bytes);
    if (rows == 1)
        lm_rgb8_run_with(kernel, &plan, pixels + 3 * skip, tensor, skip, count - skip);
    else
        lm_rgb8_convert(&plan, pixels, tensor, rows);
    for (size_t at = 0; at < room; at++) {
        size_t row = at / (3 * count), inside = at % (3 * count);
        size_t i = layout == LM_LAYOUT_NCHW ? inside % count : inside / 3;
        uint32_t c = (uint32_t)(layout == LM_LAYOUT_NCHW ? inside / count : inside % 3);
        const uint8_t *image = pixels + row * 3 * count;
        if (rows == 1 && i < skip) {
            CHECK(tensor[at * lm_rgb8_value_bytes(&plan)] == 0xee);
        } else {
            is_value(&plan, tensor, at, image[3 * i + plan.source[c]],
                     reference(image, i, c, order, scaling));
        }
    }
}

static void conversions(uint64_t *random) {
    static const uint32_t sizes[][2] = {{1, 1}, {3, 5}, {8, 8}, {7, 19}, {2, 16}};
    static const int dtypes[] = {ORT_FLOAT, ORT_FLOAT16, ORT_UINT8, ORT_INT8};
    fill(check_guard_tail(&source_guard, 3 * PIXELS_MAX), 3 * PIXELS_MAX, random);
    for (uint32_t kernel = 0; lm_rgb8_kernel_name(kernel); kernel++) {
        for (uint32_t scaling = 0; scaling < SCALING_COUNT; scaling++) {
            for (size_t s = 0; s < 5 * 4 * 2; s++) {
                enum lm_pixel_order layout = s % 2 ? LM_LAYOUT_NCHW : LM_LAYOUT_NHWC;
                int dtype = dtypes[s / 2 % 4];
                const uint32_t *sides = sizes[s / 8];
                for (uint32_t rows = 0; rows <= 3; rows++)
                    convert(kernel, layout, dtype, scaling, sides, 0, rows);
                for (size_t skip = 1; skip <= (size_t)sides[0] * sides[1]; skip += 7)
                    convert(kernel, layout, dtype, scaling, sides, skip, 1);
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
