/* fuzz_picture.c: any bytes as a JPEG or PNG. In one step and in small ones the same rows come out
 * or the same sentence, and no more rows than there are; lenient and at a lower resolution, too. */
#include "fuzz.h"
#include "image/decoder.h"

static struct lm_image_decoder *decoder;
static struct lm_image_info info;

static struct outcome {
    enum lm_image_step step;
    uint32_t rows;
    uint64_t sum; /* of all rows */
    char why[256];
} outcome;

void lm_image_rows_put(struct lm_image_rows *rows, const uint8_t *rgb) {
    HOLDS(rows->end_row == info.height && outcome.rows < info.height);
    outcome.rows++;
    outcome.sum += fuzz_seed(rgb, 3 * (size_t)info.width);
}

static struct outcome decode(const struct lm_image_plan *plan, const uint8_t *input, size_t count,
                             uint64_t until_ns) {
    outcome = (struct outcome){.step = LM_IMAGE_FAILED};
    if (lm_image_begin(decoder, plan, input, count, &info, outcome.why, sizeof outcome.why)) {
        struct lm_image_rows rows = {.end_row = info.height};
        HOLDS((uint64_t)info.stored_width * info.stored_height <= plan->max_pixels);
        HOLDS(info.width >= 1 && info.width <= info.stored_width);
        HOLDS(info.height >= 1 && info.height <= info.stored_height);
        HOLDS(info.orientation >= 1 && info.orientation <= 8);
        do outcome.step = lm_image_step(decoder, &rows, until_ns, outcome.why, sizeof outcome.why);
        while (outcome.step == LM_IMAGE_MORE);
    }
    lm_image_end(decoder);
    HOLDS((outcome.step == LM_IMAGE_DONE) == (outcome.why[0] == '\0'));
    HOLDS(outcome.step == LM_IMAGE_FAILED || outcome.rows == info.height);
    return outcome;
}

static void close_decoder(void) {
    lm_image_decoder_close(decoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count) {
    struct lm_image_plan plan = {
        .upright = true, .max_pixels = 1 << 16, .max_whole_pixels = 1 << 16};
    plan.pixels.width = plan.pixels.height = 4;
    if (!decoder) {
        HOLDS(lm_image_decoder_open(&decoder, 1 << 16) == 0);
        atexit(close_decoder);
    }
    struct outcome whole = decode(&plan, input, count, UINT64_MAX);
    struct outcome sliced = decode(&plan, input, count, 0);
    HOLDS(whole.step == sliced.step && whole.rows == sliced.rows && whole.sum == sliced.sum);
    HOLDS(strcmp(whole.why, sliced.why) == 0);
    plan.fast = true;
    struct outcome fast = decode(&plan, input, count, 0);
    HOLDS((fast.step == LM_IMAGE_DONE) == (whole.step == LM_IMAGE_DONE));
    plan.lenient = true;
    struct outcome lenient = decode(&plan, input, count, UINT64_MAX);
    HOLDS(lenient.step == LM_IMAGE_DONE || whole.step == LM_IMAGE_FAILED);
    return 0;
}
