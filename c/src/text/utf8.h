/* utf8.h: code points of a text. No state: any thread. */
#ifndef LM_TEXT_UTF8_H
#define LM_TEXT_UTF8_H

#include <stdint.h>

/* The code point at `at`, which is below `end`, and how many bytes it has; 0 bytes: this is no
 * UTF-8 (RFC 3629: shortest forms, no surrogates, up to U+10FFFF). */
static inline uint32_t lm_utf8_at(const uint8_t *at, const uint8_t *end, uint32_t *bytes_out) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t lead = at[0], bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    *bytes_out = 1;
    if (bytes == 1) return lead;
    *bytes_out = 0;
    if (lead < 0xC2 || lead > 0xF4 || end - at < (int64_t)bytes) return 0;
    uint32_t point = lead & (0x7Fu >> bytes);
    for (uint32_t b = 1; b < bytes; b++) {
        if ((at[b] & 0xC0) != 0x80) return 0;
        point = point << 6 | (at[b] & 0x3Fu);
    }
    if (point < least[bytes] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return 0;
    *bytes_out = bytes;
    return point;
}

/* How many code points there are in bytes of UTF-8. */
static inline uint32_t lm_utf8_count(const uint8_t *at, uint32_t bytes) {
    uint32_t points = 0;
    for (uint32_t b = 0; b < bytes; b++) points += (at[b] & 0xC0) != 0x80;
    return points;
}

/* How many bytes a code point has. */
static inline uint32_t lm_utf8_length(uint32_t point) {
    return point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
}

/* Writes a code point; returns its bytes, up to 4. */
static inline uint32_t lm_utf8_write(uint8_t *at, uint32_t point) {
    static const uint8_t leads[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    const uint32_t bytes = lm_utf8_length(point);
    for (uint32_t b = bytes - 1; b > 0; b--, point >>= 6) at[b] = (uint8_t)(0x80 | (point & 0x3F));
    at[0] = (uint8_t)(leads[bytes] | point);
    return bytes;
}

#endif
