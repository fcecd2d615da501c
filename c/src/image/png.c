/* png.c: see png.h. */
#include "image/png.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

enum { PIXELS_PER_LOOK = 2048 }; /* between two looks at the clock */

/* ---- memory and input, as libspng calls for them ---- */

/* libspng's allocator has no argument of ours. */
static _Thread_local struct lm_bump *current;

static void *allocate(size_t bytes) {
    return lm_bump_alloc(current, bytes);
}

static void *allocate_zeroed(size_t count, size_t bytes) {
    size_t whole;
    void *at = lm_mul_size(count, bytes, &whole) ? allocate(whole) : NULL;
    return at ? memset(at, 0, whole) : NULL;
}

/* For lists of text and other chunks that libspng does not see. */
static void *reallocate(void *old, size_t bytes) {
    (void)old, (void)bytes;
    return NULL;
}

static void free_nothing(void *at) {
    (void)at;
}

/* Not SPNG_IO_EOF: libspng takes that for a checksum it may forget (SPNG_CRC_DISCARD). */
static int read_source(spng_ctx *context, void *source, void *into, size_t count) {
    (void)context;
    return lm_png_source_read(source, into, count) ? 0 : SPNG_IO_ERROR;
}

/* ---- one picture ---- */

static void explain(const struct lm_png *png, int code, char *why, size_t why_bytes) {
    char where[64];
    if (!png->stored) {
        snprintf(where, sizeof where, "in its header");
    } else if (png->is_interlaced) {
        snprintf(where, sizeof where, "in its interlaced rows");
    } else {
        snprintf(where, sizeof where, "after %u of %u rows", png->decoded, png->height);
    }
    if (code == SPNG_IO_ERROR) {
        snprintf(why, why_bytes, "the PNG ends %s%s", where,
                 png->is_decoded ? ", without an end chunk" : "");
    } else if (code == SPNG_EIDAT_TOO_SHORT) {
        snprintf(why, why_bytes, "the PNG's pixels end %s", where);
    } else if (code == SPNG_EMEM) {
        snprintf(why, why_bytes, "the PNG needs more than the %zu bytes of its decoder",
                 png->memory.bytes);
    } else {
        snprintf(why, why_bytes, "the PNG cannot be decoded: %s (libspng, %s)", spng_strerror(code),
                 where);
    }
}

static int open_context(struct lm_png *png, bool lenient) {
    struct spng_alloc memory = {allocate, reallocate, allocate_zeroed, free_nothing};
    png->context = spng_ctx_new2(&memory, 0);
    if (!png->context) return SPNG_EMEM;
    int code = 0;
    if (lenient) code = spng_set_crc_action(png->context, SPNG_CRC_USE, SPNG_CRC_USE);
    return code ? code : spng_set_png_stream(png->context, read_source, &png->source);
}

/* Reads up to the pixels. */
static int start(struct lm_png *png, const struct spng_ihdr *header) {
    struct spng_plte palette;
    bool is_indexed = header->color_type == SPNG_COLOR_TYPE_INDEXED;
    int code = spng_decode_image(png->context, NULL, 0, SPNG_FMT_RAW, SPNG_DECODE_PROGRESSIVE);
    if (!code && is_indexed) code = spng_get_plte(png->context, &palette);
    if (code) return code;
    lm_png_rows_init(&png->format, header, is_indexed ? &palette : NULL);
    size_t bytes = png->format.row_bytes * (png->is_interlaced ? png->height : 1);
    png->rgb = lm_bump_alloc(&png->memory, 3 * (size_t)header->width);
    png->stored = lm_bump_alloc(&png->memory, bytes);
    if (!png->rgb || !png->stored) return SPNG_EMEM;
    /* Of an interlaced picture, pixels of less than a byte are added to their neighbours. */
    if (png->is_interlaced && header->bit_depth < 8) memset(png->stored, 0, bytes);
    return 0;
}

bool lm_png_begin(struct lm_png *png, const struct lm_image_plan *plan, const uint8_t *file,
                  size_t bytes, struct lm_image_info *info_out, char *why, size_t why_bytes) {
    struct spng_ihdr header;
    current = &png->memory;
    lm_png_source_init(&png->source, file, bytes);
    int code = open_context(png, plan->lenient);
    if (!code) code = spng_get_ihdr(png->context, &header);
    if (!code) {
        info_out->width = info_out->stored_width = header.width;
        png->height = info_out->height = info_out->stored_height = header.height;
        png->is_interlaced = info_out->is_whole = header.interlace_method != 0;
        if (!lm_image_fits(plan, info_out, why, why_bytes)) return false;
        code = start(png, &header);
    }
    if (code) explain(png, code, why, why_bytes);
    return code == 0;
}

/* Decodes the next row, of an interlaced picture the next one of a pass, to its place. */
static int decode_row(struct lm_png *png) {
    size_t row_bytes = png->format.row_bytes;
    uint8_t *at = png->stored;
    int code = 0;
    if (png->is_interlaced) {
        struct spng_row_info row = {0};
        code = spng_get_row_info(png->context, &row);
        at += row_bytes * row.row_num;
    }
    if (!code) code = spng_decode_row(png->context, at, row_bytes);
    if (!code) png->decoded++;
    if (code != SPNG_EOI) return code;
    /* The last row. The file's end is asked for: one that lacks it may lack more. */
    png->decoded = png->height;
    png->is_decoded = true;
    return spng_decode_chunks(png->context);
}

static void put_row(struct lm_png *png) {
    const uint8_t *row = png->stored;
    if (png->is_interlaced) row += png->format.row_bytes * png->put;
    if (png->put++ < png->rows->first_row) return;
    if (!png->format.is_rgb) {
        lm_png_rows_expand(&png->format, row, png->rgb);
        row = png->rgb;
    }
    lm_image_rows_put(png->rows, row);
}

enum lm_image_step lm_png_step(struct lm_png *png, struct lm_image_rows *rows, uint64_t until_ns,
                               char *why, size_t why_bytes) {
    current = &png->memory;
    png->rows = rows;
    size_t unseen = 0;
    while (png->put < rows->end_row) {
        int code = png->is_decoded ? 0 : decode_row(png);
        if (code) {
            explain(png, code, why, why_bytes);
            return LM_IMAGE_FAILED;
        }
        if (!png->is_interlaced || png->is_decoded) put_row(png);
        unseen += png->format.width;
        if (unseen < PIXELS_PER_LOOK) continue;
        unseen = 0;
        if (lm_now_ns() >= until_ns) return LM_IMAGE_MORE;
    }
    return LM_IMAGE_DONE;
}

/* libspng has nothing outside of the memory. */
void lm_png_end(struct lm_png *png) {
    lm_bump_reset(&png->memory);
    *png = (struct lm_png){.memory = png->memory};
}
