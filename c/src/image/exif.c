/* exif.c: see exif.h. Each offset and count is the sender's, and checked before it is followed. */
#include "image/exif.h"

#include <stdbool.h>

enum {
    HEADER_BYTES = 8, /* "II" or "MM", 42, where the first directory begins */
    ENTRY_BYTES = 12, /* tag, type, count, value */
    TAG_ORIENTATION = 0x0112,
    TYPE_SHORT = 3,
};

static uint32_t read_16(const uint8_t *at, bool big) {
    return big ? (uint32_t)(at[0] << 8 | at[1]) : (uint32_t)(at[1] << 8 | at[0]);
}

static uint32_t read_32(const uint8_t *at, bool big) {
    return big ? read_16(at, big) << 16 | read_16(at + 2, big)
               : read_16(at + 2, big) << 16 | read_16(at, big);
}

uint32_t lm_exif_orientation(const uint8_t *tiff, size_t bytes) {
    if (bytes < HEADER_BYTES) return 1;
    bool big = tiff[0] == 'M';
    if ((tiff[0] != 'M' && tiff[0] != 'I') || tiff[1] != tiff[0]) return 1;
    if (read_16(tiff + 2, big) != 42) return 1;
    size_t at = read_32(tiff + 4, big);
    if (at < HEADER_BYTES || at > bytes - 2) return 1;
    uint32_t count = read_16(tiff + at, big);
    for (at += 2; count > 0 && bytes - at >= ENTRY_BYTES; count--, at += ENTRY_BYTES) {
        const uint8_t *entry = tiff + at;
        if (read_16(entry, big) != TAG_ORIENTATION) continue;
        uint32_t value = read_16(entry + 8, big);
        bool is_known = read_16(entry + 2, big) == TYPE_SHORT && read_32(entry + 4, big) == 1 &&
                        value >= 1 && value <= 8;
        return is_known ? value : 1;
    }
    return 1;
}
