/* decoder.c: see decoder.h. Finds out which format a file has; jpeg.c and png.c do the rest. */
#include "image/decoder.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "image/jpeg.h"
#include "image/png.h"
#include "lumen.h"

enum {
    /* Rows of the widest picture, and what the libraries need besides. */
    ROWS_BYTES = 16 << 20,
    /* Faulted in at start: what rows of usual pictures need. */
    HOT_BYTES = 256 << 10,
    /* Coefficients of four components, two bytes each. */
    WHOLE_PIXEL_BYTES = 8,
};

_Static_assert(LM_IMAGE_SLACK <= LM_BUMP_ALIGN, "the sink may read behind a row");

struct lm_image_decoder {
    struct lm_mapping mapping; /* all that follows, too */
    enum lm_image_format format;
    struct lm_jpeg jpeg;
    struct lm_png png;
};

int lm_image_decoder_open(struct lm_image_decoder **decoder_out, uint64_t max_whole_pixels) {
    struct lm_mapping mapping;
    size_t own = lm_align_up(sizeof **decoder_out, LM_BUMP_ALIGN), whole;
    if (!lm_mul_size(max_whole_pixels, WHOLE_PIXEL_BYTES, &whole) || whole > SIZE_MAX / 2 ||
        /* Small pages: of a huge one most would lie idle, in each decoder. */
        lm_mapping_reserve_on(&mapping, own + ROWS_BYTES + whole, LUMEN_HUGE_NONE) != 0)
        return lm_error(LUMEN_E_NOMEM,
                        "cannot map memory for %llu pixels of a progressive picture (lower "
                        "max_whole_pixels?)",
                        (unsigned long long)max_whole_pixels);
    lm_mapping_touch(&mapping, own + HOT_BYTES);
    struct lm_image_decoder *decoder = mapping.base;
    decoder->mapping = mapping;
    /* A picture is a JPEG or a PNG: they share the memory. */
    struct lm_bump memory = {.base = (uint8_t *)mapping.base + own, .bytes = mapping.bytes - own};
    ASAN_POISON_MEMORY_REGION(memory.base, memory.bytes);
    decoder->png.memory = memory;
    int code = lm_jpeg_open(&decoder->jpeg, memory);
    if (code) {
        lm_image_decoder_close(decoder);
        return code;
    }
    *decoder_out = decoder;
    return 0;
}

void lm_image_decoder_close(struct lm_image_decoder *decoder) {
    lm_jpeg_close(&decoder->jpeg);
    struct lm_mapping mapping = decoder->mapping;
    ASAN_UNPOISON_MEMORY_REGION(mapping.base, mapping.bytes);
    lm_mapping_close(&mapping);
}

static void refuse(const uint8_t *file, size_t bytes, char *why, size_t why_bytes) {
    const char *name = lm_image_format_name(file, bytes);
    if (bytes == 0) {
        snprintf(why, why_bytes, "expected a JPEG or PNG file, found no bytes");
    } else if (name) {
        snprintf(why, why_bytes, "expected a JPEG or PNG file, found %s", name);
    } else {
        char first[3 * 8 + 1] = "";
        for (size_t i = 0; i < bytes && i < 8; i++)
            snprintf(first + 3 * i, sizeof first - 3 * i, " %02x", file[i]);
        snprintf(why, why_bytes, "expected a JPEG or PNG file, found bytes that begin with%s",
                 first);
    }
}

bool lm_image_begin(struct lm_image_decoder *decoder, const struct lm_image_plan *plan,
                    const uint8_t *file, size_t bytes, struct lm_image_info *info_out, char *why,
                    size_t why_bytes) {
    LM_DEBUG_ASSERT(decoder->format == LM_IMAGE_NONE);
    struct lm_image_probe probe;
    lm_image_probe(&probe, file, bytes);
    *info_out = (struct lm_image_info){.format = probe.format,
                                       .orientation = plan->upright ? probe.orientation : 1};
    decoder->format = probe.format;
    switch (probe.format) {
    case LM_IMAGE_JPEG:
        return lm_jpeg_begin(&decoder->jpeg, plan, file, bytes, info_out, why, why_bytes);
    case LM_IMAGE_PNG:
        return lm_png_begin(&decoder->png, plan, file, bytes, info_out, why, why_bytes);
    case LM_IMAGE_NONE: break;
    }
    refuse(file, bytes, why, why_bytes);
    return false;
}

enum lm_image_step lm_image_step(struct lm_image_decoder *decoder, struct lm_image_rows *rows,
                                 uint64_t until_ns, char *why, size_t why_bytes) {
    LM_DEBUG_ASSERT(decoder->format != LM_IMAGE_NONE);
    return decoder->format == LM_IMAGE_JPEG
               ? lm_jpeg_step(&decoder->jpeg, rows, until_ns, why, why_bytes)
               : lm_png_step(&decoder->png, rows, until_ns, why, why_bytes);
}

void lm_image_end(struct lm_image_decoder *decoder) {
    if (decoder->format == LM_IMAGE_JPEG) lm_jpeg_end(&decoder->jpeg);
    if (decoder->format == LM_IMAGE_PNG) lm_png_end(&decoder->png);
    decoder->format = LM_IMAGE_NONE;
}
