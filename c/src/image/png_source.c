/* png_source.c: see png_source.h. Lengths are the sender's. */
#include "image/png_source.h"

#include <string.h>

enum {
    SIGNATURE_BYTES = 8,
    HEAD_BYTES = 8, /* length, type */
    CHECKSUM_BYTES = 4,
    ANCILLARY = 0x20, /* of the type's first letter: lower case */
};

void lm_png_source_init(struct lm_png_source *source, const uint8_t *file, size_t bytes) {
    *source = (struct lm_png_source){.file = file, .bytes = bytes, .chunk_left = SIGNATURE_BYTES};
}

/* Goes to the next chunk that is not left out. */
static bool next_chunk(struct lm_png_source *source) {
    while (source->bytes - source->at >= HEAD_BYTES) {
        const uint8_t *head = source->file + source->at;
        size_t length =
            (size_t)head[0] << 24 | (size_t)head[1] << 16 | (size_t)head[2] << 8 | (size_t)head[3];
        size_t whole = HEAD_BYTES + length + CHECKSUM_BYTES;
        if (!(head[4] & ANCILLARY)) {
            source->chunk_left = whole;
            return true;
        }
        if (whole > source->bytes - source->at) return false;
        source->at += whole;
    }
    return false;
}

bool lm_png_source_read(struct lm_png_source *source, uint8_t *into, size_t count) {
    while (count > 0) {
        if (source->chunk_left == 0 && !next_chunk(source)) return false;
        size_t here = count < source->chunk_left ? count : source->chunk_left;
        if (here > source->bytes - source->at) return false;
        memcpy(into, source->file + source->at, here);
        into += here;
        count -= here;
        source->at += here;
        source->chunk_left -= here;
    }
    return true;
}
