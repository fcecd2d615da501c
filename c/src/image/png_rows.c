/* png_rows.c: see png_rows.h. libspng would convert rows, too, but takes a fifth longer for a grey
 * picture. */
#include "image/png_rows.h"

#include <string.h>

static uint32_t channels(uint8_t color_type) {
    static const uint8_t by_type[] = {[SPNG_COLOR_TYPE_GRAYSCALE] = 1,
                                      [SPNG_COLOR_TYPE_TRUECOLOR] = 3,
                                      [SPNG_COLOR_TYPE_INDEXED] = 1,
                                      [SPNG_COLOR_TYPE_GRAYSCALE_ALPHA] = 2,
                                      [SPNG_COLOR_TYPE_TRUECOLOR_ALPHA] = 4};
    return by_type[color_type];
}

/* An index past the end of a palette is black, as with Pillow. */
static void fill_colours(struct lm_png_rows *rows, const struct spng_plte *palette) {
    uint32_t count = palette ? palette->n_entries : 1u << rows->depth;
    for (uint32_t i = 0; i < count && i < 256; i++) {
        uint8_t *colour = rows->colours[i];
        if (palette) {
            colour[0] = palette->entries[i].red;
            colour[1] = palette->entries[i].green;
            colour[2] = palette->entries[i].blue;
        } else {
            memset(colour, (int)(255 * i / (count - 1)), 3);
        }
    }
}

void lm_png_rows_init(struct lm_png_rows *rows, const struct spng_ihdr *header,
                      const struct spng_plte *palette) {
    uint32_t count = channels(header->color_type), sample = header->bit_depth / 8u;
    bool has_colour = count >= 3;
    *rows = (struct lm_png_rows){.width = header->width,
                                 .row_bytes =
                                     ((size_t)header->width * count * header->bit_depth + 7) / 8,
                                 .is_rgb = count == 3 && header->bit_depth == 8,
                                 .depth = palette || header->bit_depth < 8 ? header->bit_depth : 0,
                                 .pixel = (uint8_t)(count * sample),
                                 .green = (uint8_t)(has_colour ? sample : 0),
                                 .blue = (uint8_t)(has_colour ? 2 * sample : 0)};
    if (rows->depth) fill_colours(rows, palette);
}

void lm_png_rows_expand(const struct lm_png_rows *rows, const uint8_t *stored, uint8_t *rgb) {
    uint32_t depth = rows->depth;
    if (depth == 0) {
        size_t pixel = rows->pixel, green = rows->green, blue = rows->blue;
        for (uint32_t x = 0; x < rows->width; x++, stored += pixel, rgb += 3) {
            rgb[0] = stored[0];
            rgb[1] = stored[green];
            rgb[2] = stored[blue];
        }
        return;
    }
    if (depth == 8) {
        for (uint32_t x = 0; x < rows->width; x++, rgb += 3)
            memcpy(rgb, rows->colours[stored[x]], 3);
        return;
    }
    uint32_t mask = (1u << depth) - 1;
    for (size_t bit = 0, end = (size_t)rows->width * depth; bit < end; bit += depth, rgb += 3) {
        uint32_t index = (uint32_t)stored[bit / 8] >> (8 - depth - bit % 8) & mask;
        memcpy(rgb, rows->colours[index], 3);
    }
}
