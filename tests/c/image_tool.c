/* image_tool.c: makes tensors of pictures for tests in Python: reads jobs from standard input,
 * answers on standard output, until the input ends.
 *
 * A job is a line of words key=value, then `bytes` bytes: RGB pixels, or a JPEG or PNG file. The
 * answer is a line with a number and a word, then so many bytes: the tensor, or why there is none
 * where the word is not "done".
 *
 *   of the pixels   bytes, width, height, orientation
 *   of the file     bytes, file=1, step_ns (0: all in one step; then also how long one is)
 *   of the plan     fit, filter (as plan.h counts them), resize, pad_value, upright, fast, lenient,
 *                   max_pixels, max_whole_pixels
 *   of the tensor   tensor_width, tensor_height, nhwc, bgr, grey, dtype (ONNX's), mean0.., scale0..
 *   of the sink     kernel (0: the one that is used), kept (bytes), spare (scratch beyond its need)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "image/decoder.h"
#include "lumen.h"
#include "onnx/ort_api.h"

enum { PIXELS_MAX = 16 << 20 };

struct job {
    double bytes, width, height, orientation;
    double file, step_ns;
    double fit, filter, resize, pad_value, upright, fast, lenient, max_pixels, max_whole_pixels;
    double tensor_width, tensor_height, nhwc, bgr, grey, dtype, mean[3], scale[3];
    double kernel, kept, spare;
};

static _Noreturn void stop(const char *why, const char *what) {
    fprintf(stderr, "image_tool: %s: %s\n", why, what);
    exit(1);
}

static void *take(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!memory) stop("no memory", "for a job");
    return memory;
}

static void set(struct job *job, const char *key, double value) {
    struct {
        const char *key;
        double *to;
    } keys[] = {
        {"bytes", &job->bytes},
        {"width", &job->width},
        {"height", &job->height},
        {"orientation", &job->orientation},
        {"file", &job->file},
        {"step_ns", &job->step_ns},
        {"fit", &job->fit},
        {"filter", &job->filter},
        {"resize", &job->resize},
        {"pad_value", &job->pad_value},
        {"upright", &job->upright},
        {"fast", &job->fast},
        {"lenient", &job->lenient},
        {"max_pixels", &job->max_pixels},
        {"max_whole_pixels", &job->max_whole_pixels},
        {"tensor_width", &job->tensor_width},
        {"tensor_height", &job->tensor_height},
        {"nhwc", &job->nhwc},
        {"bgr", &job->bgr},
        {"grey", &job->grey},
        {"dtype", &job->dtype},
        {"mean0", &job->mean[0]},
        {"mean1", &job->mean[1]},
        {"mean2", &job->mean[2]},
        {"scale0", &job->scale[0]},
        {"scale1", &job->scale[1]},
        {"scale2", &job->scale[2]},
        {"kernel", &job->kernel},
        {"kept", &job->kept},
        {"spare", &job->spare},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(keys[i].key, key) != 0) continue;
        *keys[i].to = value;
        return;
    }
    stop("unknown key", key);
}

static bool read_job(struct job *job) {
    static char line[4096];
    *job = (struct job){.orientation = 1,
                        .upright = 1,
                        .max_pixels = PIXELS_MAX,
                        .max_whole_pixels = PIXELS_MAX,
                        .dtype = ORT_FLOAT,
                        .scale = {1, 1, 1}};
    if (!fgets(line, sizeof line, stdin)) return false;
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n")) {
        char *value = strchr(word, '=');
        if (!value) stop("no key=value", word);
        *value++ = 0;
        set(job, word, strtod(value, NULL));
    }
    return true;
}

static struct lm_image_plan plan_of(const struct job *job) {
    struct lm_image_plan plan = {.resize = (uint32_t)job->resize,
                                 .filter = (enum lm_filter)job->filter,
                                 .fit = (enum lm_fit)job->fit,
                                 .pad_value = (uint8_t)job->pad_value,
                                 .upright = job->upright != 0,
                                 .fast = job->fast != 0,
                                 .lenient = job->lenient != 0,
                                 .max_pixels = (uint64_t)job->max_pixels,
                                 .max_whole_pixels = (uint64_t)job->max_whole_pixels};
    float mean[3], scale[3];
    for (uint32_t c = 0; c < 3; c++) {
        mean[c] = (float)job->mean[c];
        scale[c] = (float)job->scale[c];
    }
    plan.pixels = (struct lm_rgb8_plan){.height = (uint32_t)job->tensor_height,
                                        .width = (uint32_t)job->tensor_width,
                                        .layout = job->nhwc != 0 ? LM_LAYOUT_NHWC : LM_LAYOUT_NCHW,
                                        .dtype = (int)job->dtype,
                                        .is_grey = job->grey != 0};
    lm_rgb8_plan_init(&plan.pixels, job->bgr != 0 ? LUMEN_CHANNELS_BGR : LUMEN_CHANNELS_RGB, mean,
                      scale);
    return plan;
}

/* The rows of an RGB picture, each handed over in memory of its own size. */
static bool put_rows(struct lm_image_rows *rows, const struct lm_image_plan *plan,
                     const struct job *job, const uint8_t *pixels, void *tensor) {
    uint32_t width = (uint32_t)job->width, height = (uint32_t)job->height,
             orientation = (uint32_t)job->orientation;
    size_t bytes = lm_image_rows_bytes(plan, width, height, orientation);
    bytes += bytes ? (size_t)job->spare : 0;
    void *scratch = take(bytes);
    uint8_t *row = take(3 * (size_t)width + LM_IMAGE_SLACK);
    bool begun =
        lm_image_rows_begin(rows, plan, width, height, orientation, tensor, scratch, bytes);
    for (uint32_t y = rows->first_row; begun && y < rows->end_row; y++) {
        memcpy(row, pixels + 3 * (size_t)width * y, 3 * (size_t)width);
        lm_image_rows_put(rows, row);
    }
    free(scratch);
    free(row);
    return begun;
}

/* The picture of a file. False: `why` says it. */
static bool put_file(struct lm_image_rows *rows, const struct lm_image_plan *plan,
                     const struct job *job, const uint8_t *file, void *tensor, char *why,
                     size_t why_bytes) {
    static struct lm_image_decoder *decoder;
    struct lm_image_info info;
    if (!decoder && lm_image_decoder_open(&decoder, PIXELS_MAX)) stop("no memory", "to decode");
    if (!lm_image_begin(decoder, plan, file, (size_t)job->bytes, &info, why, why_bytes)) {
        lm_image_end(decoder);
        return false;
    }
    size_t bytes = lm_image_rows_bytes(plan, info.width, info.height, info.orientation);
    void *scratch = take(bytes);
    enum lm_image_step step = LM_IMAGE_FAILED;
    if (lm_image_rows_begin(rows, plan, info.width, info.height, info.orientation, tensor, scratch,
                            bytes)) {
        uint64_t step_ns = (uint64_t)job->step_ns;
        do {
            uint64_t until_ns = step_ns ? lm_now_ns() + step_ns : UINT64_MAX;
            step = lm_image_step(decoder, rows, until_ns, why, why_bytes);
        } while (step == LM_IMAGE_MORE);
    }
    lm_image_end(decoder);
    free(scratch);
    return step == LM_IMAGE_DONE;
}

/* The answer's word; `why` may say more. */
static const char *run(struct lm_image_rows *rows, const struct job *job,
                       const struct lm_image_plan *plan, const uint8_t *data, void *tensor,
                       char *why, size_t why_bytes) {
    static void *kept;
    const struct lm_resample *kernel = lm_resample_kernel((uint32_t)job->kernel);
    if (!kernel) return "kernel";
    if (rows->kernel != kernel || job->kept != (double)(rows->kept_bytes * LM_IMAGE_KEPT)) {
        free(kept);
        kept = job->kept > 0 ? take((size_t)job->kept) : NULL;
        lm_image_rows_open(rows, kept, (size_t)job->kept);
        rows->kernel = kernel;
    }
    bool is_put = job->file != 0 ? put_file(rows, plan, job, data, tensor, why, why_bytes)
                                 : put_rows(rows, plan, job, data, tensor);
    if (!is_put) return "refused";
    return lm_image_rows_done(rows) ? "done" : "unfinished";
}

int main(void) {
    static struct lm_image_rows rows;
    struct job job;
    while (read_job(&job)) {
        struct lm_image_plan plan = plan_of(&job);
        uint8_t *data = take((size_t)job.bytes);
        if (fread(data, 1, (size_t)job.bytes, stdin) != (size_t)job.bytes)
            stop("the input ended", "in a job");
        size_t channels = plan.pixels.is_grey ? 1 : 3, bytes = channels * plan.pixels.height *
                                                               plan.pixels.width *
                                                               lm_rgb8_value_bytes(&plan.pixels);
        void *tensor = take(bytes);
        char why[256] = "";
        const char *answer = run(&rows, &job, &plan, data, tensor, why, sizeof why);
        bool is_done = strcmp(answer, "done") == 0;
        if (!is_done) bytes = strlen(why);
        printf("%zu %s\n", bytes, answer);
        fwrite(is_done ? tensor : why, 1, bytes, stdout);
        fflush(stdout);
        free(tensor);
        free(data);
    }
    return 0;
}
