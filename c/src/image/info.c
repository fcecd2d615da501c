/* info.c: see info.h. */
#include "image/info.h"

#include <stdio.h>

static const char *format_word(const struct lm_image_info *info) {
    return info->format == LM_IMAGE_PNG ? "PNG" : "JPEG";
}

bool lm_image_fits(const struct lm_image_plan *plan, const struct lm_image_info *info, char *why,
                   size_t why_bytes) {
    uint32_t width = info->stored_width, height = info->stored_height;
    uint64_t pixels = (uint64_t)width * height;
    const char *format = format_word(info);
    if (width == 0 || height == 0 || width > LM_IMAGE_SIDE_MAX || height > LM_IMAGE_SIDE_MAX) {
        snprintf(why, why_bytes, "the %s has %u x %u pixels: expected 1 to %d on each side", format,
                 width, height, LM_IMAGE_SIDE_MAX);
        return false;
    }
    if (pixels > plan->max_pixels) {
        snprintf(why, why_bytes, "the %s has %u x %u pixels, at most %llu are served (max_pixels)",
                 format, width, height, (unsigned long long)plan->max_pixels);
        return false;
    }
    if (info->is_whole && pixels > plan->max_whole_pixels) {
        snprintf(why, why_bytes,
                 "the %s is %s and has %u x %u pixels, of which at most %llu are served "
                 "(max_whole_pixels)",
                 format, info->format == LM_IMAGE_PNG ? "interlaced" : "progressive", width, height,
                 (unsigned long long)plan->max_whole_pixels);
        return false;
    }
    return true;
}

uint32_t lm_image_shrink(const struct lm_image_plan *plan, const struct lm_image_info *info) {
    struct lm_image_geometry geometry;
    if (!plan->fast || !lm_image_geometry(plan, info->stored_width, info->stored_height,
                                          info->orientation, &geometry))
        return 1;
    const struct lm_image_side *across = geometry.turned ? &geometry.y : &geometry.x;
    const struct lm_image_side *down = geometry.turned ? &geometry.x : &geometry.y;
    for (uint32_t by = 8; by > 1; by /= 2) {
        if (info->stored_width / by >= across->out && info->stored_height / by >= down->out)
            return by;
    }
    return 1;
}
