/* info.h: what is known of a picture before its rows, and the limits that are checked then. Used on
 * the thread that decodes. */
#ifndef LM_IMAGE_INFO_H
#define LM_IMAGE_INFO_H

#include "image/geometry.h"
#include "image/probe.h"

struct lm_image_info {
    enum lm_image_format format;
    bool is_whole;  /* progressive or interlaced: the rows begin after all has been read */
    uint32_t width; /* of the rows: as stored, or smaller where the plan is `fast` */
    uint32_t height;
    uint32_t stored_width;
    uint32_t stored_height;
    uint32_t orientation; /* EXIF's, 1 to 8; 1 where the plan does not ask for it */
};

enum lm_image_step { LM_IMAGE_MORE, LM_IMAGE_DONE, LM_IMAGE_FAILED };

/* Whether the stored sides are within the plan's limits; else `why` is a sentence. */
bool lm_image_fits(const struct lm_image_plan *plan, const struct lm_image_info *info, char *why,
                   size_t why_bytes);

/* 8, 4 or 2 where rows of an eighth, a quarter or half of the stored sides are still as many and
 * as long as the plan resizes them to, else 1. */
uint32_t lm_image_shrink(const struct lm_image_plan *plan, const struct lm_image_info *info);

#endif
