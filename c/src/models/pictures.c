/* pictures.c: whether a model takes pictures, as pixels (rgb8) or as files, and what becomes
 * of them. Control thread, at load; see model.h. */
#include <math.h>

#include "base/error.h"
#include "models/load.h"
#include "models/model.h"

/* The model's one input, where it holds an image a row: [N,3,H,W] or [N,H,W,3], or with one channel
 * in place of three. */
static bool plan_pixels(const struct lm_model *model, const lumen_model_config *config,
                        struct lm_rgb8_plan *plan) {
    const struct lm_tensor *tensor = &model->inputs[0];
    bool one_image_a_row =
        tensor->rank == 4 && !tensor->varies && (tensor->rows_free || tensor->dims[0] == 1);
    if (model->input_count != 1 || !one_image_a_row) return false;
    bool is_grey = tensor->dims[1] != 3 && tensor->dims[3] != 3;
    int64_t channels = is_grey ? 1 : 3;
    bool planar = tensor->dims[1] == channels;
    if (!planar && tensor->dims[3] != channels) return false;
    int64_t height = planar ? tensor->dims[2] : tensor->dims[1];
    int64_t width = planar ? tensor->dims[3] : tensor->dims[2];
    if (height > 65535 || width > 65535) return false;
    *plan = (struct lm_rgb8_plan){.height = (uint32_t)height,
                                  .width = (uint32_t)width,
                                  .dtype = tensor->dtype,
                                  .layout = planar ? LM_LAYOUT_NCHW : LM_LAYOUT_NHWC,
                                  .is_grey = is_grey};
    lm_rgb8_plan_init(plan, config->channel_order, config->mean, config->scale);
    return true;
}

static int check_image(const lumen_image_config *image) {
    const struct {
        const char *name;
        uint64_t found, least, most;
    } settings[] = {
        {"filter", image->filter, 0, LUMEN_FILTER_NEAREST},
        {"fit", image->fit, 0, LUMEN_FIT_LETTERBOX},
        {"resize", image->resize, 0, LM_IMAGE_SIDE_MAX},
        {"pad_value", image->pad_value, 0, UINT8_MAX},
        {"max_pixels", image->max_pixels, 1, UINT32_MAX},
        {"max_whole_pixels", image->max_whole_pixels, 1, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        if (settings[i].found >= settings[i].least && settings[i].found <= settings[i].most)
            continue;
        return lm_error(LUMEN_E_INVALID, "image: %s: expected %llu to %llu, found %llu",
                        settings[i].name, (unsigned long long)settings[i].least,
                        (unsigned long long)settings[i].most,
                        (unsigned long long)settings[i].found);
    }
    return 0;
}

/* The length of a picture's shorter side before the crop. Returns 0, with an error, where it would
 * be less than the tensor's. */
static uint32_t resize_of(const lumen_image_config *image, const struct lm_rgb8_plan *pixels) {
    uint32_t shorter = pixels->width < pixels->height ? pixels->width : pixels->height;
    double ratio = image->resize_ratio > 1 ? (double)image->resize_ratio : 1;
    uint32_t resize = image->resize ? image->resize : (uint32_t)rint(shorter * ratio);
    if (resize >= shorter && resize <= LM_IMAGE_SIDE_MAX) return resize;
    lm_error(LUMEN_E_MODEL,
             "image: resize: expected %u (the tensor's shorter side) to %d, found %u", shorter,
             LM_IMAGE_SIDE_MAX, resize);
    return 0;
}

int lm_model_plan_pictures(struct lm_model *model, const lumen_model_config *config) {
    const lumen_image_config *image = config->image;
    struct lm_rgb8_plan pixels;
    bool takes = plan_pixels(model, config, &pixels);
    bool has_files = takes && (pixels.dtype == ORT_FLOAT || pixels.dtype == ORT_FLOAT16 ||
                               pixels.dtype == ORT_UINT8 || pixels.dtype == ORT_INT8);
    model->input_plan.has_rgb8 =
        takes && !pixels.is_grey && (pixels.dtype == ORT_FLOAT || pixels.dtype == ORT_UINT8);
    if (model->input_plan.has_rgb8) model->input_plan.rgb8 = pixels;
    if (!image) return 0;
    int code = check_image(image);
    if (code) return code;
    if (!has_files) {
        return lm_error(
            LUMEN_E_MODEL,
            "image: expected one input of 3 channels, or of 1, and fixed sides, such as "
            "[N,3,224,224] (fix_dims gives free ones a size), of FP32, FP16, UINT8 or "
            "INT8");
    }
    uint32_t resize = image->fit == LUMEN_FIT_CROP ? resize_of(image, &pixels) : 0;
    if (image->fit == LUMEN_FIT_CROP && resize == 0) return LUMEN_E_MODEL;
    model->input_plan.has_images = true;
    model->input_plan.image = (struct lm_image_plan){.filter = (enum lm_filter)image->filter,
                                                     .fit = (enum lm_fit)image->fit,
                                                     .resize = resize,
                                                     .pad_value = (uint8_t)image->pad_value,
                                                     .upright = image->upright,
                                                     .fast = image->fast,
                                                     .lenient = image->lenient,
                                                     .max_pixels = image->max_pixels,
                                                     .max_whole_pixels = image->max_whole_pixels,
                                                     .pixels = pixels};
    return 0;
}
