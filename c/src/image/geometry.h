/* geometry.h: where the pixels of a picture go. lumen_uring/pictures/image_input.py has the same
 * geometry. Used on workers, and on I/O threads that run models themselves.
 */
#ifndef LM_IMAGE_GEOMETRY_H
#define LM_IMAGE_GEOMETRY_H

#include "models/image_plan.h"

/* One side of the upright picture: `in` pixels become `out`, of which `count` from `first` on go to
 * the tensor, from `at` on. */
struct lm_image_side {
    uint32_t in, out, first, count, at;
    bool reversed; /* the stored picture begins at the other end */
};

struct lm_image_geometry {
    struct lm_image_side x, y;
    bool turned;       /* stored rows are the upright picture's columns */
    bool across_first; /* stored rows are resized along themselves before they are combined */
};

/* Finds where the pixels of a stored picture go. False where a side is 0 or above the limits, or
 * the orientation is not 1..8. */
bool lm_image_geometry(const struct lm_image_plan *plan, uint32_t width, uint32_t height,
                       uint32_t orientation, struct lm_image_geometry *geometry);

#endif
