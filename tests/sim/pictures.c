/* pictures.c: stands in for c/src/image's decoder and row sink. A file is a PNG's head, which gives
 * it pixels, and the tensor's row; it is "decoded" a slice at a time, more slices the more pixels.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "image/decoder.h"
#include "image/rows.h"
#include "sim.h"

enum { SLICE_PIXELS = 512 };

uint64_t pictures_slice_ns;

struct lm_image_decoder {
    const uint8_t *file;
    uint64_t left; /* pixels */
};

int lm_image_decoder_open(struct lm_image_decoder **out, uint64_t max_whole_pixels) {
    (void)max_whole_pixels;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : LUMEN_E_NOMEM;
}

void lm_image_decoder_close(struct lm_image_decoder *decoder) {
    free(decoder);
}

bool lm_image_begin(struct lm_image_decoder *decoder, const struct lm_image_plan *plan,
                    const uint8_t *file, size_t bytes, struct lm_image_info *info, char *why,
                    size_t why_bytes) {
    struct lm_image_probe probe;
    (void)plan;
    lm_image_probe(&probe, file, bytes);
    *info = (struct lm_image_info){.width = probe.width, .height = probe.height, .orientation = 1};
    if (decoder->file) sim_fail("a decoder of two pictures");
    snprintf(why, why_bytes, "no picture of the simulation");
    if (probe.format != LM_IMAGE_PNG || bytes != SIM_FILE_BYTES) return false;
    *decoder = (struct lm_image_decoder){file, (uint64_t)probe.width * probe.height};
    return true;
}

enum lm_image_step lm_image_step(struct lm_image_decoder *decoder, struct lm_image_rows *rows,
                                 uint64_t until_ns, char *why, size_t why_bytes) {
    (void)until_ns;
    snprintf(why, why_bytes, "a picture that turns out broken");
    uint64_t takes_ns = pictures_slice_ns ? pictures_slice_ns : sim_between(1000, 200000);
    if (fiber_self()) fiber_block(decoder, sim_now_ns + takes_ns);
    if (decoder->file[SIM_FILE_BYTES - 1] == SIM_BROKEN) return LM_IMAGE_FAILED;
    if (decoder->left > SLICE_PIXELS) {
        decoder->left -= SLICE_PIXELS;
        return LM_IMAGE_MORE;
    }
    memcpy(rows->tensor, decoder->file + SIM_FILE_HEAD, SIM_FILE_FLOATS * sizeof(float));
    return LM_IMAGE_DONE;
}

void lm_image_end(struct lm_image_decoder *decoder) {
    decoder->file = NULL;
}

void lm_image_rows_open(struct lm_image_rows *rows, void *memory, size_t bytes) {
    (void)memory;
    (void)bytes;
    *rows = (struct lm_image_rows){0};
}

bool lm_image_rows_begin(struct lm_image_rows *rows, const struct lm_image_plan *plan,
                         uint32_t width, uint32_t height, uint32_t orientation, void *tensor,
                         void *scratch, size_t scratch_bytes) {
    (void)plan;
    (void)orientation;
    (void)scratch;
    rows->tensor = tensor;
    return width > 0 && height > 0 && scratch_bytes > 0;
}
