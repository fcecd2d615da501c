/* probe.h: what a file's first bytes say of the picture in it, without a library.
 *
 * An I/O thread asks it of what has arrived, for the request's cost; a worker of the whole file.
 * The time is bounded by the number of bytes.
 */
#ifndef LM_IMAGE_PROBE_H
#define LM_IMAGE_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lm_image_format { LM_IMAGE_NONE, LM_IMAGE_JPEG, LM_IMAGE_PNG };

struct lm_image_probe {
    enum lm_image_format format; /* NONE: neither, or not known within these bytes */
    bool has_sides;              /* the header that holds them is among the bytes */
    bool
        is_whole; /* a JPEG's PROGRESSIVE or a PNG's interlaced: needs the whole picture's memory */
    uint32_t width; /* as stored, before the orientation */
    uint32_t height;
    uint32_t orientation; /* 1 to 8, as far as the bytes tell */
};

void lm_image_probe(struct lm_image_probe *probe, const uint8_t *file, size_t bytes);

/* The name of a file's format where it is a well-known one, else NULL: for a refusal. */
const char *lm_image_format_name(const uint8_t *file, size_t bytes);

#endif
