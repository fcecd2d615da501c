/* pictures.c: see pictures.h. */
#include "flow/pictures.h"

#include "flow/carrier.h"
#include "image/probe.h"

/* A progressive or interlaced picture is read twice: two of its pixels cost as five of others. */
enum { WHOLE_TIMES = 5, WHOLE_OF = 2 };

/* A file may have as many pieces before its sides as it has bytes: so far are they looked for. */
static void measure(struct lm_request *request, const uint8_t *file, size_t bytes, size_t *left) {
    struct lm_image_probe probe;
    size_t looked = bytes < *left ? bytes : *left;
    lm_image_probe(&probe, file, looked);
    *left -= looked;
    uint64_t pixels = (uint64_t)probe.width * probe.height,
             most = request->model->input_plan.image.max_pixels;
    if (pixels > most) pixels = 0; /* refused at once, as what is no picture */
    if (!probe.has_sides && probe.format != LM_IMAGE_NONE)
        pixels = bytes * LM_JPEG_BYTE_PIXELS; /* its decoder may find them */
    if (probe.is_whole) pixels = pixels * WHOLE_TIMES / WHOLE_OF;
    if (probe.format == LM_IMAGE_PNG) request->encoding = LM_ENCODING_PNG;
    request->pixels += pixels;
}

void lm_pictures_measure(struct lm_request *request) {
    const uint8_t *at = request->layout.raw, *end = at + request->layout.raw_bytes;
    size_t left = LM_PROBED_BYTES;
    request->pixels = 0;
    if (lm_carrier_of(request)->is_file) {
        measure(request, at, (size_t)(end - at), &left);
        return;
    }
    for (uint32_t row = 0; row < request->sizes.rows; row++) {
        uint32_t bytes;
        if ((size_t)(end - at) < sizeof bytes) return;
        memcpy(&bytes, at, sizeof bytes); /* little-endian, as we are */
        at += sizeof bytes;
        if (bytes > (size_t)(end - at)) return;
        measure(request, at, bytes, &left);
        at += bytes;
    }
}
