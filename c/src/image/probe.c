/* probe.c: see probe.h. Lengths and sides are the sender's: nothing is read past the bytes there.
 */
#include "image/probe.h"

#include <string.h>

#include "image/exif.h"

enum {
    PNG_CHUNK_BYTES = 12, /* length, type, checksum */
    PNG_HEADER_BYTES = 8 + 8 + 13,
    JPEG_START_OF_SCAN = 0xda,
    JPEG_END = 0xd9,
    JPEG_APP1 = 0xe1,
};

static const uint8_t png_signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
static const uint8_t jpeg_signature[3] = {0xff, 0xd8, 0xff};
static const uint8_t exif_name[6] = {'E', 'x', 'i', 'f', 0, 0};

static uint32_t read_16(const uint8_t *at) {
    return (uint32_t)(at[0] << 8 | at[1]);
}

static uint32_t read_32(const uint8_t *at) {
    return read_16(at) << 16 | read_16(at + 2);
}

/* SOF0 to SOF15, without the three markers among them that are no frame headers. */
static bool is_frame(uint8_t marker) {
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static void read_segment(struct lm_image_probe *probe, uint8_t marker, const uint8_t *at,
                         size_t bytes) {
    if (is_frame(marker) && bytes >= 5 && !probe->has_sides) {
        probe->has_sides = true;
        probe->height = read_16(at + 1);
        probe->width = read_16(at + 3);
        probe->is_whole = (marker & 3) == 2;
    }
    if (marker == JPEG_APP1 && bytes >= sizeof exif_name && probe->orientation == 0 &&
        memcmp(at, exif_name, sizeof exif_name) == 0)
        probe->orientation = lm_exif_orientation(at + sizeof exif_name, bytes - sizeof exif_name);
}

/* Segments up to the first scan: 0xff, maybe more of them, the marker, a length, its bytes. A
 * segment that the bytes hold the beginning of is read as far as it goes. */
static void probe_jpeg(struct lm_image_probe *probe, const uint8_t *file, size_t bytes) {
    size_t at = 2;
    while (at < bytes && file[at] == 0xff) {
        while (at < bytes && file[at] == 0xff) at++;
        if (bytes - at < 3) return;
        uint8_t marker = file[at];
        size_t length = read_16(file + at + 1);
        if (marker == JPEG_START_OF_SCAN || marker == JPEG_END || length < 2) return;
        at += 3;
        size_t here = length - 2 < bytes - at ? length - 2 : bytes - at;
        read_segment(probe, marker, file + at, here);
        at += here;
    }
}

/* eXIf may stand before or behind the pixels: the chunks' headers are all looked at. */
static void probe_png(struct lm_image_probe *probe, const uint8_t *file, size_t bytes) {
    if (bytes < PNG_HEADER_BYTES || memcmp(file + 12, "IHDR", 4) != 0) return;
    probe->has_sides = true;
    probe->width = read_32(file + 16);
    probe->height = read_32(file + 20);
    probe->is_whole = file[28] != 0;
    for (size_t at = sizeof png_signature; bytes - at >= PNG_CHUNK_BYTES;) {
        size_t length = read_32(file + at);
        if (length > bytes - at - PNG_CHUNK_BYTES) return;
        if (memcmp(file + at + 4, "eXIf", 4) == 0) {
            probe->orientation = lm_exif_orientation(file + at + 8, length);
            return;
        }
        at += PNG_CHUNK_BYTES + length;
    }
}

void lm_image_probe(struct lm_image_probe *probe, const uint8_t *file, size_t bytes) {
    *probe = (struct lm_image_probe){0};
    if (bytes >= sizeof jpeg_signature &&
        memcmp(file, jpeg_signature, sizeof jpeg_signature) == 0) {
        probe->format = LM_IMAGE_JPEG;
        probe_jpeg(probe, file, bytes);
    } else if (bytes >= sizeof png_signature &&
               memcmp(file, png_signature, sizeof png_signature) == 0) {
        probe->format = LM_IMAGE_PNG;
        probe_png(probe, file, bytes);
    }
    if (probe->orientation == 0) probe->orientation = 1;
}

const char *lm_image_format_name(const uint8_t *file, size_t bytes) {
    static const struct {
        size_t at;
        const char *begins;
        const char *name;
    } known[] = {
        {0, "GIF8", "a GIF"},     {8, "WEBP", "a WebP"},     {4, "ftypavif", "an AVIF"},
        {4, "ftyphei", "a HEIC"}, {4, "ftypmif1", "a HEIC"}, {0, "II*", "a TIFF"},
        {0, "MM", "a TIFF"},      {0, "BM", "a BMP"},        {0, "%PDF", "a PDF"},
        {0, "<svg", "an SVG"},    {0, "{", "JSON"},          {0, "\xff\x0a", "a JPEG XL"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t length = strlen(known[i].begins);
        if (bytes >= known[i].at + length &&
            memcmp(file + known[i].at, known[i].begins, length) == 0)
            return known[i].name;
    }
    return NULL;
}
