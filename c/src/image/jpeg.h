/* jpeg.h: one JPEG with libjpeg-turbo, in slices of time. Used by decoder.c, on the thread that
 * decodes.
 *
 * A baseline picture is decoded row by row. One in several scans (progressive, mostly) is first
 * read into its coefficients, a row of blocks at a time, then turned into rows.
 */
#ifndef LM_IMAGE_JPEG_H
#define LM_IMAGE_JPEG_H

#include <setjmp.h>

#include "image/info.h"
#include "image/jpeg_memory.h"
#include "image/rows.h"

struct lm_jpeg {
    struct lm_bump memory; /* the first member: jpeg_memory.h */
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    jmp_buf escape;
    const struct lm_image_plan *plan;
    struct lm_image_rows *rows;
    uint64_t until_ns;
    uint32_t shrink;  /* 1, or a side's divisor */
    uint8_t *rgb;     /* one row */
    uint8_t *cmyk;    /* one row of a picture with four components; else NULL */
    bool is_absorbed; /* in several scans: all of them are read */
    bool is_done;
    char text[JMSG_LENGTH_MAX]; /* libjpeg's own */
    enum lm_jpeg_fault {
        LM_JPEG_FAULT_LIBRARY = 1,
        LM_JPEG_FAULT_END,
        LM_JPEG_FAULT_MEMORY,
        LM_JPEG_FAULT_SCANS,
    } fault;
};

/* At start: takes what libjpeg allocates once. Returns 0 or LUMEN_E_NOMEM. */
int lm_jpeg_open(struct lm_jpeg *jpeg, struct lm_bump memory);
void lm_jpeg_close(struct lm_jpeg *jpeg);

/* Takes the orientation from *info_out and puts the sides there. False: `why` is a sentence. */
bool lm_jpeg_begin(struct lm_jpeg *jpeg, const struct lm_image_plan *plan, const uint8_t *file,
                   size_t bytes, struct lm_image_info *info_out, char *why, size_t why_bytes);
enum lm_image_step lm_jpeg_step(struct lm_jpeg *jpeg, struct lm_image_rows *rows, uint64_t until_ns,
                                char *why, size_t why_bytes);
void lm_jpeg_end(struct lm_jpeg *jpeg);

#endif
