/* png_rows.h: a PNG's rows, as they are stored, to RGB. Alpha is dropped, and of 16 bits the upper
 * eight are taken. Used by png.c, on the thread that decodes. */
#ifndef LM_IMAGE_PNG_ROWS_H
#define LM_IMAGE_PNG_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <spng.h>

struct lm_png_rows {
    uint32_t width;
    size_t row_bytes;           /* as stored */
    bool is_rgb;                /* stored as they are wanted */
    uint8_t depth;              /* of samples that are looked up in `colours`, else 0 */
    uint8_t pixel, green, blue; /* bytes of a pixel; where two of its samples are */
    uint8_t colours[256][3];    /* of a palette, or the greys of less than eight bits */
};

/* `palette` of an indexed picture, else NULL. */
void lm_png_rows_init(struct lm_png_rows *rows, const struct spng_ihdr *header,
                      const struct spng_plte *palette);
void lm_png_rows_expand(const struct lm_png_rows *rows, const uint8_t *stored, uint8_t *rgb);

#endif
