/* input_plan.c: see input_plan.h. */
#include "models/input_plan.h"

#include <string.h>

static bool same_pixels(const struct lm_rgb8_plan *one, const struct lm_rgb8_plan *other) {
    return one->is_grey == other->is_grey &&
           memcmp(one->source, other->source, sizeof one->source) == 0 &&
           memcmp(one->mean, other->mean, sizeof one->mean) == 0 &&
           memcmp(one->scale, other->scale, sizeof one->scale) == 0;
}

static bool same_image(const struct lm_image_plan *one, const struct lm_image_plan *other) {
    return one->resize == other->resize && one->filter == other->filter && one->fit == other->fit &&
           one->pad_value == other->pad_value && one->upright == other->upright &&
           one->fast == other->fast && one->lenient == other->lenient &&
           same_pixels(&one->pixels, &other->pixels);
}

bool lm_input_plan_is_same(const struct lm_input_plan *one, const struct lm_input_plan *other) {
    return one->has_images == other->has_images &&
           (!other->has_images || same_image(&one->image, &other->image)) &&
           (!other->has_rgb8 || same_pixels(&one->rgb8, &other->rgb8));
}

bool lm_input_plan_is_like(const struct lm_input_plan *one, const struct lm_input_plan *other) {
    return one->has_rgb8 == other->has_rgb8 && one->rgb8.height == other->rgb8.height &&
           one->rgb8.width == other->rgb8.width && one->has_images == other->has_images;
}
