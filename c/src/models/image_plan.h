/* image_plan.h: what becomes of pictures of any size before one model sees them. Read-only once a
 * model is loaded: any thread. */
#ifndef LM_MODELS_IMAGE_PLAN_H
#define LM_MODELS_IMAGE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "models/preprocess.h"

enum {
    LM_IMAGE_SIDE_MAX = 65500,     /* of a JPEG */
    LM_IMAGE_RESIZED_MAX = 1 << 24 /* a side before the crop */
};

enum lm_filter { LM_FILTER_BILINEAR, LM_FILTER_BICUBIC, LM_FILTER_BOX, LM_FILTER_NEAREST };

enum lm_fit {
    LM_FIT_STRETCH,
    LM_FIT_CROP,     /* shorter side to `resize`, then the middle: torchvision's roundings */
    LM_FIT_LETTERBOX /* the whole picture, `pad_value` around it: Ultralytics' roundings */
};

struct lm_image_plan {
    uint32_t resize; /* LM_FIT_CROP: the tensor's shorter side before the crop; 0: as the tensor */
    enum lm_filter filter;
    enum lm_fit fit;
    uint8_t pad_value;
    bool upright; /* turn pictures as their EXIF orientation says */
    bool fast;    /* decode at a lower resolution where a picture is at least twice the target */
    bool lenient; /* a decoder's warning is no error */
    uint64_t max_pixels;
    uint64_t max_whole_pixels;
    struct lm_rgb8_plan pixels; /* the tensor: its sides, order of channels, mean, scale, dtype */
};

#endif
