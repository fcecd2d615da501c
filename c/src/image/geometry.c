/* geometry.c: see geometry.h. */
#include "image/geometry.h"

#include <math.h>

/* Half a pixel goes to the even side, as Python's round(excess / 2) has it. */
static uint32_t half_of(uint32_t excess) {
    return excess / 2 + (excess % 4 == 3);
}

static void crop(struct lm_image_side *side, uint32_t out, uint32_t count) {
    side->out = out;
    side->first = half_of(out - count);
    side->count = count;
}

/* torchvision's Resize and CenterCrop; of a tensor that is not square the picture covers all. False
 * where the longer side gets too long. */
static bool fit_crop(const struct lm_image_plan *plan, struct lm_image_side *x,
                     struct lm_image_side *y) {
    uint64_t width = plan->pixels.width, height = plan->pixels.height;
    uint64_t shorter = width < height ? width : height;
    uint64_t resize = plan->resize > shorter ? plan->resize : shorter;
    uint64_t wide = width * resize / shorter, high = height * resize / shorter;
    if (x->in * high <= y->in * wide) {
        uint64_t longer = wide * y->in / x->in;
        high = longer > high ? longer : high;
    } else {
        uint64_t longer = high * x->in / y->in;
        wide = longer > wide ? longer : wide;
    }
    if (wide > LM_IMAGE_RESIZED_MAX || high > LM_IMAGE_RESIZED_MAX) return false;
    crop(x, (uint32_t)wide, (uint32_t)width);
    crop(y, (uint32_t)high, (uint32_t)height);
    return true;
}

/* Ultralytics' LetterBox; an odd pixel of the margin goes right and below. */
static void letterbox(struct lm_image_side *side, uint32_t tensor, double ratio) {
    double out = rint(side->in * ratio);
    side->out = out < 1 ? 1 : out > tensor ? tensor : (uint32_t)out;
    side->count = side->out;
    double margin = rint((tensor - side->out) / 2.0 - 0.1);
    side->at = margin > 0 ? (uint32_t)margin : 0;
}

/* Which pass comes first, which shows in the last bit: Pillow's rule since version 13; before, the
 * horizontal pass always did. */
static bool horizontal_first(const struct lm_image_side *x, const struct lm_image_side *y) {
    int64_t narrower = (int64_t)x->in - x->out, lower = (int64_t)y->in - y->out;
    return lower <= 0 || lower <= 2 * narrower;
}

static bool fit(const struct lm_image_plan *plan, struct lm_image_side *x,
                struct lm_image_side *y) {
    uint32_t width = plan->pixels.width, height = plan->pixels.height;
    switch (plan->fit) {
    case LM_FIT_STRETCH:
        x->out = x->count = width;
        y->out = y->count = height;
        break;
    case LM_FIT_CROP: return fit_crop(plan, x, y);
    case LM_FIT_LETTERBOX: {
        double ratio = fmin((double)height / y->in, (double)width / x->in);
        letterbox(x, width, ratio);
        letterbox(y, height, ratio);
        break;
    }
    }
    return true;
}

bool lm_image_geometry(const struct lm_image_plan *plan, uint32_t width, uint32_t height,
                       uint32_t orientation, struct lm_image_geometry *geometry) {
    /* By orientation: is the picture turned, is its x reversed, is its y. */
    static const bool turns[9][3] = {{0},       {0, 0, 0}, {0, 1, 0}, {0, 1, 1}, {0, 0, 1},
                                     {1, 0, 0}, {1, 1, 0}, {1, 1, 1}, {1, 0, 1}};
    if (width == 0 || height == 0 || width > LM_IMAGE_SIDE_MAX || height > LM_IMAGE_SIDE_MAX)
        return false;
    if (orientation < 1 || orientation > 8) return false;
    const bool *turn = turns[plan->upright ? orientation : 1];
    struct lm_image_side *x = &geometry->x, *y = &geometry->y;
    *x = (struct lm_image_side){.in = turn[0] ? height : width, .reversed = turn[1]};
    *y = (struct lm_image_side){.in = turn[0] ? width : height, .reversed = turn[2]};
    geometry->turned = turn[0];
    if (!fit(plan, x, y)) return false;
    geometry->across_first = horizontal_first(x, y) != geometry->turned;
    return true;
}
