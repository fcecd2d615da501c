/* json_text.h: text as a JSON string says it, between the quotes: the one escaper of all that is
 * answered. Whatever bytes go in, valid UTF-8
 * without quotes, backslashes of its own or control characters comes out, so that a name from a
 * model file or a client can neither end a string nor a header line. No state, no allocation. Any
 * thread. */
#ifndef LM_BASE_JSON_TEXT_H
#define LM_BASE_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { LM_JSON_ESCAPE_MAX = 6 }; /* \u00XX: what one byte becomes at most */

/* Bytes of the UTF-8 character at `text`, of which `left` bytes are there; 0: there is none. */
static inline size_t lm_utf8_bytes(const char *text, size_t left) {
    const uint8_t *at = (const uint8_t *)text;
    if (left == 0) return 0;
    if (at[0] < 0x80) return 1;
    size_t bytes = at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;
    if (bytes == 0 || bytes > left) return 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    /* Overlong forms, surrogates, and what is above U+10FFFF. */
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f)) return 0;
    if ((at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f)) return 0;
    return bytes;
}

/* What one character becomes: its bytes in `out`, at most LM_JSON_ESCAPE_MAX; `taken` of the text.
 */
static inline size_t lm_json_escape_one(const char *text, size_t left, char *out, size_t *taken) {
    static const char digits[] = "0123456789abcdef";
    uint8_t byte = (uint8_t)text[0];
    size_t bytes = lm_utf8_bytes(text, left);
    *taken = bytes ? bytes : 1;
    if (bytes == 0) { /* U+FFFD: there was something here */
        memcpy(out, "\xef\xbf\xbd", 3);
        return 3;
    }
    if (byte == '"' || byte == '\\') {
        out[0] = '\\';
        out[1] = text[0];
        return 2;
    }
    if (byte < 0x20 || byte == 0x7f) {
        memcpy(out, "\\u00", 4);
        out[4] = digits[byte >> 4];
        out[5] = digits[byte & 15];
        return 6;
    }
    memcpy(out, text, bytes);
    return bytes;
}

/* Writes `bytes` of text, not terminated. False when the room is too small: as many whole
 * characters as fit are written. */
static inline bool lm_json_escape(const char *text, size_t bytes, char *out, size_t room,
                                  size_t *written_out) {
    size_t written = 0, taken = 0;
    for (size_t i = 0; i < bytes; i += taken) {
        char one[LM_JSON_ESCAPE_MAX];
        size_t count = lm_json_escape_one(text + i, bytes - i, one, &taken);
        *written_out = written;
        if (count > room - written) return false;
        memcpy(out + written, one, count);
        written += count;
    }
    *written_out = written;
    return true;
}

/* A whole string, with its quotes. */
static inline void lm_json_write_bytes(FILE *out, const char *text, size_t left) {
    size_t taken = 0;
    fputc('"', out);
    for (; left > 0; text += taken, left -= taken) {
        char one[LM_JSON_ESCAPE_MAX];
        size_t bytes = lm_json_escape_one(text, left, one, &taken);
        fwrite(one, 1, bytes, out);
    }
    fputc('"', out);
}

static inline void lm_json_write(FILE *out, const char *text) {
    lm_json_write_bytes(out, text, strlen(text));
}

#endif
