/* pictures.h: JPEG and PNG files for tests, written by the libraries' own encoders, and a sink that
 * keeps all rows. A test that includes this replaces image/rows.c. */
#ifndef TESTS_C_PICTURES_H
#define TESTS_C_PICTURES_H

#include <spng.h>

#include "check.h"
#include "image/decoder.h"
#include "image/jpeg_memory.h" /* jpeglib.h */

/* ---- pixels and files ---- */

struct picture {
    uint32_t width, height;
    uint8_t *file; /* malloc's */
    size_t bytes;
};

/* A gradient with some noise, the same for the same seed. */
static inline uint8_t *picture_pixels(uint32_t width, uint32_t height, uint32_t channels) {
    size_t count = (size_t)width * height * channels;
    uint8_t *pixels = malloc(count);
    uint64_t random = 88172645463325252u;
    for (size_t i = 0; i < count; i++) {
        size_t x = i / channels % width, y = i / channels / width;
        pixels[i] = (uint8_t)(x * (i % channels + 1) + y * 2 + check_below(&random, 24));
    }
    return pixels;
}

struct jpeg_kind {
    int components; /* 1, 3 or 4 */
    int h_sampling, v_sampling;
    bool progressive;
    bool no_tables;       /* the abbreviated form */
    uint32_t scans;       /* so many, of a script of one coefficient each; 0: the encoder's */
    uint32_t restart_mcu; /* an interval, in blocks of samples */
};

static inline struct picture make_jpeg(uint32_t width, uint32_t height,
                                       const struct jpeg_kind *kind) {
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    struct picture made = {.width = width, .height = height};
    unsigned long bytes = 0;
    static jpeg_scan_info script[256];
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &made.file, &bytes);
    info.image_width = width;
    info.image_height = height;
    info.input_components = kind->components;
    info.in_color_space = kind->components == 1   ? JCS_GRAYSCALE
                          : kind->components == 3 ? JCS_RGB
                                                  : JCS_CMYK;
    jpeg_set_defaults(&info);
    info.comp_info[0].h_samp_factor = kind->h_sampling ? kind->h_sampling : 1;
    info.comp_info[0].v_samp_factor = kind->v_sampling ? kind->v_sampling : 1;
    info.restart_interval = kind->restart_mcu;
    if (kind->progressive) jpeg_simple_progression(&info);
    if (kind->scans > 0) {
        /* The first scan has all components' means, then one coefficient of one component each. */
        script[0] = (jpeg_scan_info){.comps_in_scan = kind->components};
        for (int i = 0; i < kind->components; i++) script[0].component_index[i] = i;
        for (uint32_t i = 1; i < kind->scans; i++) {
            int at = 1 + (int)(i - 1) % 63;
            script[i] = (jpeg_scan_info){.comps_in_scan = 1, .Ss = at, .Se = at};
            script[i].component_index[0] = (int)(i - 1) / 63;
        }
        info.scan_info = script;
        info.num_scans = (int)kind->scans;
    }
    if (kind->no_tables) jpeg_suppress_tables(&info, TRUE);
    jpeg_start_compress(&info, !kind->no_tables);
    uint8_t *pixels = picture_pixels(width, height, (uint32_t)kind->components);
    while (info.next_scanline < height) {
        JSAMPROW row = pixels + (size_t)info.next_scanline * width * (size_t)kind->components;
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    free(pixels);
    made.bytes = bytes;
    return made;
}

static inline struct picture make_png(uint32_t width, uint32_t height, uint8_t color_type,
                                      bool interlaced) {
    struct picture made = {.width = width, .height = height};
    uint32_t channels = color_type == SPNG_COLOR_TYPE_TRUECOLOR ? 3 : 1;
    struct spng_ihdr header = {.width = width,
                               .height = height,
                               .bit_depth = 8,
                               .color_type = color_type,
                               .interlace_method = interlaced};
    spng_ctx *context = spng_ctx_new(SPNG_CTX_ENCODER);
    uint8_t *pixels = picture_pixels(width, height, channels);
    int code = 0;
    spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
    spng_set_ihdr(context, &header);
    CHECK(spng_encode_image(context, pixels, (size_t)width * height * channels, SPNG_FMT_PNG,
                            SPNG_ENCODE_FINALIZE) == 0);
    made.file = spng_get_png_buffer(context, &made.bytes, &code);
    CHECK(made.file && code == 0);
    spng_ctx_free(context);
    free(pixels);
    return made;
}

static inline void free_picture(struct picture *picture) {
    free(picture->file);
    *picture = (struct picture){0};
}

/* ---- the sink ---- */

static struct {
    uint8_t *pixels; /* room for all rows of a test's pictures */
    size_t room;
    size_t row_bytes;
    uint32_t rows;
} sink;

void lm_image_rows_put(struct lm_image_rows *rows, const uint8_t *rgb) {
    (void)rows;
    size_t at = sink.row_bytes * sink.rows++;
    CHECK(at + sink.row_bytes <= sink.room);
    memcpy(sink.pixels + at, rgb, sink.row_bytes);
}

static inline void sink_open(size_t room) {
    sink.pixels = malloc(room);
    sink.room = room;
}

#endif
