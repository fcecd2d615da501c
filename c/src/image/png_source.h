/* png_source.h: a PNG file as its critical chunks alone: header, palette, pixels, end.
 *
 * All others are left out: text, colour profiles and the like take memory and time to decompress,
 * and change no pixel. Used by png.c, on the thread that decodes.
 */
#ifndef LM_IMAGE_PNG_SOURCE_H
#define LM_IMAGE_PNG_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lm_png_source {
    const uint8_t *file;
    size_t bytes;
    size_t at;
    size_t chunk_left; /* of the chunk at `at`, with its checksum */
};

void lm_png_source_init(struct lm_png_source *source, const uint8_t *file, size_t bytes);

/* The next `count` bytes; false where the file ends before. */
bool lm_png_source_read(struct lm_png_source *source, uint8_t *into, size_t count);

#endif
