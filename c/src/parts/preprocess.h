/* preprocess.h: rgb8 images (H×W×3 bytes) to the tensor a model wants, in one pass.
 *
 * The kernel is chosen once, by what the processor has; all of them give the same bits. Planned
 * by the control thread, run by workers, and by I/O threads that run models themselves.
 */
#ifndef LM_PARTS_PREPROCESS_H
#define LM_PARTS_PREPROCESS_H

#include <stddef.h>
#include <stdint.h>

enum lm_pixel_order { LM_LAYOUT_NCHW, LM_LAYOUT_NHWC };

struct lm_rgb8_plan {
    uint32_t height;
    uint32_t width;
    enum lm_pixel_order layout;
    int dtype; /* ORT_FLOAT or ORT_UINT8 */
    /* By plane of the model's tensor: which channel of the image, and (value - mean) * scale.
     * An ORT_UINT8 tensor takes the bytes as they are. */
    uint8_t source[3];
    float mean[3];
    float scale[3];
};

/* Fills in source, mean and scale; mean and scale are in the model's channel order. */
void lm_rgb8_plan_init(struct lm_rgb8_plan *plan, uint32_t channel_order, const float mean[3],
                       const float scale[3]);

/* Converts `rows` images. `pixels` may start at any byte; `tensor` is aligned to 64. */
void lm_rgb8_convert(const struct lm_rgb8_plan *plan, const uint8_t *pixels, void *tensor,
                     uint32_t rows);

/* For tests and benchmarks: the kernels this processor can run, by name; NULL past the last. */
const char *lm_rgb8_kernel_name(uint32_t index);
/* Converts one image of `pixel_count` pixels to three planes with the named kernel. */
void lm_rgb8_planes_with(uint32_t kernel, const struct lm_rgb8_plan *plan, const uint8_t *pixels,
                         float *planes, size_t pixel_count);

#endif
