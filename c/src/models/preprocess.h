/* preprocess.h: rgb8 pixels (H×W×3 bytes) to the tensor a model wants, in one pass.
 *
 * The kernel is chosen once, by what the processor has; all of them give the same bits. Planned
 * by the control thread, run by workers, and by I/O threads that run models themselves.
 */
#ifndef LM_MODELS_PREPROCESS_H
#define LM_MODELS_PREPROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lm_pixel_order { LM_LAYOUT_NCHW, LM_LAYOUT_NHWC };

/* Sixteen pixels become three vectors of 16 values: one of each plane, or (NHWC) thirds of the
 * run. Of vector v: which of the 48 bytes each value comes from, and its mean and scale. */
struct lm_rgb8_lanes {
    uint8_t pick[3][16];
    float mean[3][16];
    float scale[3][16];
};

struct lm_rgb8_plan {
    uint32_t height;
    uint32_t width;
    enum lm_pixel_order layout;
    /* ORT_FLOAT; ORT_FLOAT16: those, rounded to nearest even; ORT_UINT8: the bytes as they are;
     * ORT_INT8: the bytes minus 128. Mean and scale count for floats alone. */
    int dtype;
    /* The tensor has one channel: of a pixel, whose three bytes are alike by then. */
    bool is_grey;
    /* By plane of the model's tensor: which channel of the image, and (value - mean) * scale. */
    uint8_t source[3];
    float mean[3];
    float scale[3];
    struct lm_rgb8_lanes lanes;
};

/* Fills in the rest where height, width, layout, dtype and is_grey are set; mean and scale are in
 * the model's channel order, of which one channel takes the first. */
void lm_rgb8_plan_init(struct lm_rgb8_plan *plan, uint32_t channel_order, const float mean[3],
                       const float scale[3]);

/* Of one value of the tensor. */
size_t lm_rgb8_value_bytes(const struct lm_rgb8_plan *plan);

/* Converts `count` pixels, which are `first` and the following of one image. `pixels` may start at
 * any byte; `tensor` is the image's, aligned to 64. */
void lm_rgb8_run(const struct lm_rgb8_plan *plan, const uint8_t *pixels, void *tensor, size_t first,
                 size_t count);

/* Converts `rows` whole images. */
void lm_rgb8_convert(const struct lm_rgb8_plan *plan, const uint8_t *pixels, void *tensor,
                     uint32_t rows);

/* For tests and benchmarks: the kernels this processor can run, by name; NULL past the last. */
const char *lm_rgb8_kernel_name(uint32_t index);
void lm_rgb8_run_with(uint32_t kernel, const struct lm_rgb8_plan *plan, const uint8_t *pixels,
                      void *tensor, size_t first, size_t count);

#endif
