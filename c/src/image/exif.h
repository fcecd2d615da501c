/* exif.h: the one thing that is read of a picture's EXIF data: how to turn it. Any thread. */
#ifndef LM_IMAGE_EXIF_H
#define LM_IMAGE_EXIF_H

#include <stddef.h>
#include <stdint.h>

/* The orientation, 1 to 8, in a TIFF header and its first directory: what follows "Exif\0\0" in a
 * JPEG's APP1, and a PNG's eXIf. 1, upright, for whatever is not well formed. An orientation in XMP
 * is not looked for. */
uint32_t lm_exif_orientation(const uint8_t *tiff, size_t bytes);

#endif
