/* http_scan.c: see http_scan.h. */
#include "parts/http_scan.h"

#include <stdarg.h>
#include <stdio.h>

enum { QUOTED_BYTES_MAX = 24 };

#define LETTER (LM_BYTE_TOKEN | LM_BYTE_HOST)

const uint8_t lm_http_classes[256] = {
    ['0' ... '9'] = LETTER | LM_BYTE_HEX | LM_BYTE_DIGIT,
    ['A' ... 'F'] = LETTER | LM_BYTE_HEX,
    ['G' ... 'Z'] = LETTER,
    ['a' ... 'f'] = LETTER | LM_BYTE_HEX,
    ['g' ... 'z'] = LETTER,
    ['-'] = LETTER,
    ['.'] = LETTER,
    ['_'] = LETTER,
    ['~'] = LETTER,
    ['!'] = LM_BYTE_TOKEN,
    ['#'] = LM_BYTE_TOKEN,
    ['$'] = LM_BYTE_TOKEN,
    ['%'] = LM_BYTE_TOKEN,
    ['&'] = LM_BYTE_TOKEN,
    ['\''] = LM_BYTE_TOKEN,
    ['*'] = LM_BYTE_TOKEN,
    ['+'] = LM_BYTE_TOKEN,
    ['^'] = LM_BYTE_TOKEN,
    ['`'] = LM_BYTE_TOKEN,
    ['|'] = LM_BYTE_TOKEN,
};

bool lm_http_same_word(struct lm_slice text, const char *word, size_t word_bytes) {
    if (text.bytes != word_bytes) return false;
    for (size_t i = 0; i < word_bytes; i++)
        if ((text.at[i] | 0x20) != word[i]) return false;
    return true;
}

bool lm_http_decimal(struct lm_slice text, uint64_t largest, uint64_t *value_out) {
    uint64_t value = 0;
    if (text.bytes == 0 || text.bytes > 19 || (text.at[0] == '0' && text.bytes > 1)) return false;
    for (size_t i = 0; i < text.bytes; i++) {
        if (!lm_http_byte_is(text.at[i], LM_BYTE_DIGIT)) return false;
        value = value * 10 + (uint64_t)(text.at[i] - '0');
    }
    if (value > largest) return false;
    *value_out = value;
    return true;
}

struct lm_http_quoted lm_http_quote(struct lm_slice found) {
    static const char digits[] = "0123456789abcdef";
    struct lm_http_quoted quoted;
    char *to = quoted.text;
    *to++ = '\'';
    for (size_t i = 0; i < found.bytes && i < QUOTED_BYTES_MAX; i++) {
        char byte = found.at[i];
        if (lm_http_is_plain(byte, ' ', false) && byte != '\\' && byte != '\'') {
            *to++ = byte;
        } else {
            *to++ = '\\';
            *to++ = 'x';
            *to++ = digits[(uint8_t)byte >> 4];
            *to++ = digits[byte & 15];
        }
    }
    *to++ = '\'';
    for (int i = 0; i < 3 && found.bytes > QUOTED_BYTES_MAX; i++) *to++ = '.';
    *to = '\0';
    return quoted;
}
_Static_assert(sizeof(struct lm_http_quoted) >= QUOTED_BYTES_MAX * 4 + 6, "quotes, dots, the end");

int lm_http_refuse(int status, char *why, size_t why_bytes, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, why_bytes, format, arguments);
    va_end(arguments);
    return -status;
}
