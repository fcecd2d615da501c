/* png.h: one PNG with libspng, in slices of time. Used by decoder.c, on the thread that decodes.
 *
 * libspng sees the chunks that make pixels, and nothing else of the file. An interlaced picture's
 * rows come in seven passes: it is put together in memory first.
 */
#ifndef LM_IMAGE_PNG_H
#define LM_IMAGE_PNG_H

#include <spng.h>

#include "image/bump.h"
#include "image/info.h"
#include "image/png_rows.h"
#include "image/png_source.h"
#include "image/rows.h"

struct lm_png {
    struct lm_bump memory;
    struct spng_ctx *context;
    struct lm_png_source source;
    struct lm_image_rows *rows;
    struct lm_png_rows format;
    uint32_t height;
    uint32_t decoded; /* rows */
    uint32_t put;     /* rows that have gone to the sink, or before its first */
    bool is_decoded;
    bool is_interlaced;
    uint8_t *stored; /* a row, or all of an interlaced picture */
    uint8_t *rgb;    /* a row */
};

/* Takes the orientation from *info_out and puts the sides there. False: `why` is a sentence. */
bool lm_png_begin(struct lm_png *png, const struct lm_image_plan *plan, const uint8_t *file,
                  size_t bytes, struct lm_image_info *info_out, char *why, size_t why_bytes);
enum lm_image_step lm_png_step(struct lm_png *png, struct lm_image_rows *rows, uint64_t until_ns,
                               char *why, size_t why_bytes);
void lm_png_end(struct lm_png *png);

#endif
