/* jpeg.c: see jpeg.h. Every call of libjpeg runs inside `guarded`: its errors jump out of there. */
#include "image/jpeg.h"

#include <jerror.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "image/jpeg_text.h"

#ifndef LIBJPEG_TURBO_VERSION
#error "Lumen's pixels are libjpeg-turbo's: install its header (Debian: libjpeg-dev)"
#endif

enum { PIXELS_PER_LOOK = 4096 }; /* between two looks at the clock */

/* ---- errors and input, as libjpeg calls them ---- */

static _Noreturn void escape(struct lm_jpeg *jpeg, enum lm_jpeg_fault fault) {
    jpeg->fault = fault;
    longjmp(jpeg->escape, 1);
}

static void on_error(j_common_ptr info) {
    struct lm_jpeg *jpeg = info->client_data;
    if (info->err->msg_code == JERR_OUT_OF_MEMORY) escape(jpeg, LM_JPEG_FAULT_MEMORY);
    if (info->err->msg_code == JERR_INPUT_EOF) escape(jpeg, LM_JPEG_FAULT_END);
    lm_jpeg_text(info, jpeg->text);
    escape(jpeg, LM_JPEG_FAULT_LIBRARY);
}

/* level -1: a warning, after which libjpeg would go on with guessed pixels. */
static void on_message(j_common_ptr info, int level) {
    const struct lm_jpeg *jpeg = info->client_data;
    if (level < 0 && !jpeg->plan->lenient) on_error(info);
}

static void reset_errors(j_common_ptr info) {
    info->err->msg_code = 0;
}

static void on_source(j_decompress_ptr info) {
    (void)info;
}

/* The file has come to its end too early: the end marker, as often as libjpeg wants more. */
static boolean fill_input(j_decompress_ptr info) {
    static const JOCTET end[] = {0xff, JPEG_EOI};
    const struct lm_jpeg *jpeg = info->client_data;
    if (!jpeg->plan->lenient) ERREXIT(info, JERR_INPUT_EOF);
    info->src->next_input_byte = end;
    info->src->bytes_in_buffer = sizeof end;
    return TRUE;
}

static void skip_input(j_decompress_ptr info, long count) {
    struct jpeg_source_mgr *source = info->src;
    if (count <= 0) return;
    size_t here = (size_t)count < source->bytes_in_buffer ? (size_t)count : source->bytes_in_buffer;
    source->next_input_byte += here;
    source->bytes_in_buffer -= here;
}

/* False: libjpeg, or `work` itself, has escaped. */
static bool guarded(struct lm_jpeg *jpeg, void (*work)(struct lm_jpeg *jpeg)) {
    if (setjmp(jpeg->escape)) return false;
    work(jpeg);
    return true;
}

/* Writes the sentence that says what is wrong with the file, and where. */
static void explain(const struct lm_jpeg *jpeg, char *why, size_t why_bytes) {
    const struct jpeg_decompress_struct *info = &jpeg->info;
    bool in_header = jpeg->rgb == NULL, in_scans = info->buffered_image && !jpeg->is_absorbed;
    char where[64];
    if (in_header) {
        snprintf(where, sizeof where, "in its header");
    } else if (in_scans) {
        snprintf(where, sizeof where, "in scan %d", info->input_scan_number);
    } else {
        snprintf(where, sizeof where, "after %u of %u rows", info->output_scanline,
                 info->output_height);
    }
    switch (jpeg->fault) {
    case LM_JPEG_FAULT_LIBRARY:
        snprintf(why, why_bytes, "the JPEG cannot be decoded: %s (libjpeg-turbo, %s)", jpeg->text,
                 where);
        break;
    case LM_JPEG_FAULT_END:
        snprintf(why, why_bytes, "the JPEG ends %s%s", where,
                 in_header || in_scans || info->output_scanline < info->output_height
                     ? ""
                     : ", without an end marker");
        break;
    case LM_JPEG_FAULT_MEMORY:
        snprintf(why, why_bytes, "the JPEG needs more than the %zu bytes of its decoder",
                 jpeg->memory.bytes);
        break;
    case LM_JPEG_FAULT_SCANS:
        snprintf(why, why_bytes, "the JPEG has more than %d scans", LM_IMAGE_SCANS_MAX);
        break;
    }
}

/* ---- at start ---- */

/* libjpeg's own memory manager allocates here, for the last time. */
static void create(struct lm_jpeg *jpeg) {
    jpeg_create_decompress(&jpeg->info);
}

int lm_jpeg_open(struct lm_jpeg *jpeg, struct lm_bump memory) {
    memset(jpeg, 0, sizeof *jpeg);
    jpeg->memory = memory;
    struct jpeg_decompress_struct *info = &jpeg->info;
    jpeg->errors = (struct jpeg_error_mgr){
        .error_exit = on_error, .emit_message = on_message, .reset_error_mgr = reset_errors};
    info->err = &jpeg->errors;
    info->client_data = jpeg;
    if (!guarded(jpeg, create))
        return lm_error(LUMEN_E_NOMEM, "cannot open libjpeg-turbo: %s", jpeg->text);
    lm_jpeg_memory_set(info);
    jpeg->source = (struct jpeg_source_mgr){.init_source = on_source,
                                            .fill_input_buffer = fill_input,
                                            .skip_input_data = skip_input,
                                            .resync_to_restart = jpeg_resync_to_restart,
                                            .term_source = on_source};
    info->src = &jpeg->source;
    return 0;
}

void lm_jpeg_close(struct lm_jpeg *jpeg) {
    if (jpeg->info.mem) jpeg_destroy_decompress(&jpeg->info);
}

/* ---- one picture ---- */

static void read_header(struct lm_jpeg *jpeg) {
    jpeg_read_header(&jpeg->info, TRUE);
}

static bool has_space(const struct jpeg_decompress_struct *info) {
    return info->num_components == 1 || info->num_components == 3 || info->num_components == 4;
}

static void start(struct lm_jpeg *jpeg) {
    struct jpeg_decompress_struct *info = &jpeg->info;
    bool has_black = info->num_components == 4;
    info->out_color_space = has_black ? JCS_CMYK : JCS_RGB;
    info->buffered_image = jpeg_has_multiple_scans(info);
    info->scale_num = 8 / jpeg->shrink;
    info->scale_denom = 8;
    jpeg_start_decompress(info);
    void *(*alloc)(j_common_ptr, int, size_t) = info->mem->alloc_small;
    size_t width = info->output_width;
    jpeg->cmyk = has_black ? alloc((j_common_ptr)info, JPOOL_IMAGE, width * 4) : NULL;
    jpeg->rgb = alloc((j_common_ptr)info, JPOOL_IMAGE, width * 3);
}

bool lm_jpeg_begin(struct lm_jpeg *jpeg, const struct lm_image_plan *plan, const uint8_t *file,
                   size_t bytes, struct lm_image_info *info_out, char *why, size_t why_bytes) {
    struct jpeg_decompress_struct *info = &jpeg->info;
    jpeg->plan = plan;
    jpeg->source.next_input_byte = file;
    jpeg->source.bytes_in_buffer = bytes;
    if (!guarded(jpeg, read_header)) {
        explain(jpeg, why, why_bytes);
        return false;
    }
    if (!has_space(info)) {
        snprintf(why, why_bytes, "the JPEG has %d colour components: expected 1, 3 or 4",
                 info->num_components);
        return false;
    }
    info_out->is_whole = jpeg_has_multiple_scans(info);
    info_out->stored_width = info->image_width;
    info_out->stored_height = info->image_height;
    if (!lm_image_fits(plan, info_out, why, why_bytes)) return false;
    jpeg->shrink = lm_image_shrink(plan, info_out);
    if (!guarded(jpeg, start)) {
        explain(jpeg, why, why_bytes);
        return false;
    }
    info_out->width = info->output_width;
    info_out->height = info->output_height;
    return true;
}

/* Reads the scans, a row of blocks at a time. */
static void absorb(struct lm_jpeg *jpeg) {
    struct jpeg_decompress_struct *info = &jpeg->info;
    for (int state = JPEG_ROW_COMPLETED; state != JPEG_REACHED_EOI;) {
        state = jpeg_consume_input(info);
        if (info->input_scan_number > LM_IMAGE_SCANS_MAX) escape(jpeg, LM_JPEG_FAULT_SCANS);
        if (state == JPEG_ROW_COMPLETED && lm_now_ns() >= jpeg->until_ns) return;
    }
    jpeg->is_absorbed = jpeg_start_output(info, info->input_scan_number);
}

/* The values are inverted, as Adobe's are and as Pillow takes all of them; then Pillow's own
 * conversion: white - (255 - ink) * white / 255, rounded. Three inks at once, 16 bits each. */
static void cmyk_to_rgb(const uint8_t *cmyk, uint8_t *rgb, size_t width) {
    const uint64_t ones = 0x000100010001, bytes = 255 * ones;
    for (size_t i = 0; i < width; i++, cmyk += 4, rgb += 3) {
        uint64_t inks = cmyk[0] | (uint64_t)cmyk[1] << 16 | (uint64_t)cmyk[2] << 32;
        uint64_t product = (bytes - inks) * cmyk[3] + 128 * ones;
        uint64_t light = cmyk[3] * ones - ((product + (product >> 8 & bytes)) >> 8 & bytes);
        rgb[0] = (uint8_t)light;
        rgb[1] = (uint8_t)(light >> 16);
        rgb[2] = (uint8_t)(light >> 32);
    }
}

static void put_rows(struct lm_jpeg *jpeg) {
    struct jpeg_decompress_struct *info = &jpeg->info;
    size_t unseen = 0; /* pixels since the last look at the clock */
    while (info->output_scanline < jpeg->rows->end_row) {
        JSAMPROW row = jpeg->cmyk ? jpeg->cmyk : jpeg->rgb;
        jpeg_read_scanlines(info, &row, 1);
        if (info->output_scanline > jpeg->rows->first_row) {
            if (jpeg->cmyk) cmyk_to_rgb(jpeg->cmyk, jpeg->rgb, info->output_width);
            lm_image_rows_put(jpeg->rows, jpeg->rgb);
        }
        unseen += info->output_width;
        if (unseen < PIXELS_PER_LOOK) continue;
        unseen = 0;
        if (lm_now_ns() >= jpeg->until_ns) return;
    }
    /* Whether there is an end marker is asked only where the last row was of use. */
    if (info->output_scanline == info->output_height && !info->buffered_image)
        jpeg_finish_decompress(info);
    jpeg->is_done = true;
}

static void absorb_and_put(struct lm_jpeg *jpeg) {
    absorb(jpeg);
    if (jpeg->is_absorbed) put_rows(jpeg);
}

enum lm_image_step lm_jpeg_step(struct lm_jpeg *jpeg, struct lm_image_rows *rows, uint64_t until_ns,
                                char *why, size_t why_bytes) {
    jpeg->rows = rows;
    jpeg->until_ns = until_ns;
    if (!guarded(jpeg,
                 jpeg->info.buffered_image && !jpeg->is_absorbed ? absorb_and_put : put_rows)) {
        explain(jpeg, why, why_bytes);
        return LM_IMAGE_FAILED;
    }
    return jpeg->is_done ? LM_IMAGE_DONE : LM_IMAGE_MORE;
}

static void abort_picture(struct lm_jpeg *jpeg) {
    jpeg_abort_decompress(&jpeg->info);
}

/* The tables of one picture must not serve the next one, and their memory is used again. */
void lm_jpeg_end(struct lm_jpeg *jpeg) {
    struct jpeg_decompress_struct *info = &jpeg->info;
    guarded(jpeg, abort_picture);
    for (int i = 0; i < NUM_QUANT_TBLS; i++) info->quant_tbl_ptrs[i] = NULL;
    for (int i = 0; i < NUM_HUFF_TBLS; i++) {
        info->dc_huff_tbl_ptrs[i] = NULL;
        info->ac_huff_tbl_ptrs[i] = NULL;
    }
    lm_bump_reset(&jpeg->memory);
    jpeg->rgb = jpeg->cmyk = NULL;
    jpeg->rows = NULL;
    jpeg->plan = NULL;
    jpeg->is_absorbed = jpeg->is_done = false;
}
