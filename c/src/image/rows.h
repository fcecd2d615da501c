/* rows.h: the row sink: takes the rows of a decoded picture in order and writes the finished
 * tensor, in one pass and without the whole picture in memory. The numbers are Pillow's: the
 * picture is turned upright, resized, cropped or padded, then normalised.
 *
 * A sink belongs to one thread: a worker, or an I/O thread that runs models itself. It allocates
 * nothing: a caller hands it memory for the weights of the last few sizes, which take longer to
 * make than a small picture to resize, and scratch for each picture.
 */
#ifndef LM_IMAGE_ROWS_H
#define LM_IMAGE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "image/geometry.h"
#include "image/resample.h"
#include "image/weights.h"

enum {
    LM_IMAGE_KEPT = 8,                    /* sets of weights; a picture has two */
    LM_IMAGE_KEPT_BYTES = 8 * (96 << 10), /* good for lm_image_rows_open */
};

struct lm_image_rows {
    /* The source rows that are wanted: lm_image_rows_put takes these, one after the other. */
    uint32_t first_row, end_row;
    /* The rest is the sink's own. */
    const struct lm_resample *kernel;
    const struct lm_image_plan *plan;
    struct lm_image_geometry geometry;
    void *tensor;
    struct lm_weights across, down; /* along stored rows, along stored columns */
    uint32_t next_row, made, total; /* source row; finished lines, of so many */
    uint32_t ring_rows;
    size_t ring_stride, block_stride;
    uint8_t *ring;            /* the last source rows, resized along themselves or not yet */
    uint8_t *grey;            /* a source row without its colours, where the tensor has none */
    uint8_t *line;            /* some of them combined */
    uint8_t *block;           /* finished lines that are not in the tensor yet */
    const uint8_t **tap_rows; /* what `down` takes */
    struct lm_image_kept {
        struct lm_image_side side;
        enum lm_filter filter;
        bool packed;
        uint64_t used; /* 0: never */
        struct lm_weights weights;
    } kept[LM_IMAGE_KEPT];
    uint8_t *kept_memory;
    size_t kept_bytes; /* for each of them */
    uint64_t uses;
};

/* `memory` stays the sink's, is aligned to 64, and may be NULL: then nothing is kept. */
void lm_image_rows_open(struct lm_image_rows *rows, void *memory, size_t bytes);

/* The scratch that a picture needs; 0 where lm_image_rows_begin would refuse it. */
size_t lm_image_rows_bytes(const struct lm_image_plan *plan, uint32_t width, uint32_t height,
                           uint32_t orientation);

/* The scratch that is enough for all pictures of at most plan->max_pixels. */
size_t lm_image_rows_bytes_max(const struct lm_image_plan *plan);

/* Begins a picture of stored sides and an EXIF orientation of 1..8; `tensor` and `scratch` are
 * aligned to 64. False where a side is 0 or above the limits, or the scratch is too small. */
bool lm_image_rows_begin(struct lm_image_rows *rows, const struct lm_image_plan *plan,
                         uint32_t width, uint32_t height, uint32_t orientation, void *tensor,
                         void *scratch, size_t scratch_bytes);

/* The next row, beginning with first_row: RGB bytes, of which LM_IMAGE_SLACK past the end may be
 * read. */
void lm_image_rows_put(struct lm_image_rows *rows, const uint8_t *rgb);

/* The tensor is finished. */
static inline bool lm_image_rows_done(const struct lm_image_rows *rows) {
    return rows->made == rows->total;
}

#endif
