/* pictures.c: what a picture's file costs on its way to a tensor: decoding, resizing and
 * normalising, as a worker does them. bench/peers/pictures.py runs it beside others.
 *
 *   pictures FILE SIDE FAST REPEATS   -> one line: the least and the median CPU time in µs, and how
 *                                        much more memory malloc holds after them (bytes)
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "image/decoder.h"
#include "onnx/ort_api.h"

enum { REPEATS_MAX = 10000 };

static struct lm_image_decoder *decoder;
static struct lm_image_rows rows;
static uint8_t *scratch, *tensor;
static size_t scratch_bytes;

static double cpu_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static _Noreturn void stop(const char *why) {
    fprintf(stderr, "pictures: %s\n", why);
    exit(1);
}

static void *take(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!memory) stop("no memory");
    return memory;
}

static uint8_t *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) stop("the file cannot be read");
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = take(*bytes);
    if (fread(data, 1, *bytes, file) != *bytes) stop("the file cannot be read");
    fclose(file);
    return data;
}

static void convert(const struct lm_image_plan *plan, const uint8_t *file, size_t bytes) {
    char why[512];
    struct lm_image_info info;
    if (!lm_image_begin(decoder, plan, file, bytes, &info, why, sizeof why)) stop(why);
    size_t needed = lm_image_rows_bytes(plan, info.width, info.height, info.orientation);
    if (needed > scratch_bytes) {
        free(scratch);
        scratch = take(needed);
        scratch_bytes = needed;
    }
    if (!lm_image_rows_begin(&rows, plan, info.width, info.height, info.orientation, tensor,
                             scratch, scratch_bytes))
        stop("the sink refuses it");
    if (lm_image_step(decoder, &rows, UINT64_MAX, why, sizeof why) != LM_IMAGE_DONE) stop(why);
    lm_image_end(decoder);
}

int main(int argc, char **argv) {
    static double took[REPEATS_MAX];
    if (argc != 5) stop("expected FILE SIDE FAST REPEATS");
    uint32_t side = (uint32_t)atoi(argv[2]), repeats = (uint32_t)atoi(argv[4]);
    if (side < 1 || repeats < 1 || repeats > REPEATS_MAX) stop("a number is out of range");
    size_t bytes;
    uint8_t *file = read_file(argv[1], &bytes);
    struct lm_image_plan plan = {
        .upright = true,
        .fast = atoi(argv[3]) != 0,
        .max_pixels = 1 << 28,
        .max_whole_pixels = 1 << 24,
        .pixels = {.height = side, .width = side, .dtype = ORT_FLOAT, .layout = LM_LAYOUT_NCHW}};
    lm_rgb8_plan_init(&plan.pixels, 0, (float[3]){123.675f, 116.28f, 103.53f},
                      (float[3]){0.017124754f, 0.017507003f, 0.017429194f});
    tensor = take((size_t)side * side * 12);
    if (lm_image_decoder_open(&decoder, plan.max_whole_pixels)) stop("no memory");
    lm_image_rows_open(&rows, take(LM_IMAGE_KEPT_BYTES), LM_IMAGE_KEPT_BYTES);
    convert(&plan, file, bytes);
    struct mallinfo2 before = mallinfo2();
    for (uint32_t r = 0; r < repeats; r++) {
        double began = cpu_us();
        convert(&plan, file, bytes);
        took[r] = cpu_us() - began;
    }
    struct mallinfo2 after = mallinfo2();
    qsort(took, repeats, sizeof took[0], ascending);
    printf("%.1f %.1f %zu\n", took[0], took[repeats / 2], after.uordblks - before.uordblks);
    lm_image_decoder_close(decoder);
    return 0;
}
