/* http_scan.c: see http_scan.h. */
#include "wire/http_scan.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"

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
    ['!'] = LETTER,
    ['$'] = LETTER,
    ['&'] = LETTER,
    ['\''] = LETTER,
    ['*'] = LETTER,
    ['+'] = LETTER,
    ['('] = LM_BYTE_HOST,
    [')'] = LM_BYTE_HOST,
    [','] = LM_BYTE_HOST,
    [';'] = LM_BYTE_HOST,
    ['='] = LM_BYTE_HOST,
    ['#'] = LM_BYTE_TOKEN,
    ['%'] = LM_BYTE_TOKEN,
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
    for (size_t i = 0; i < text.bytes; i++) {
        if (!lm_http_byte_is(text.at[i], LM_BYTE_DIGIT)) return false;
        uint64_t digit = (uint64_t)(text.at[i] - '0');
        if (value > (largest - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *value_out = value;
    return text.bytes > 0;
}

/* The end of an address in brackets; NULL: there is none. */
static const char *literal_end(const char *at, const char *end) {
    char text[INET6_ADDRSTRLEN];
    unsigned char unused[16];
    const char *close = memchr(at, ']', (size_t)(end - at));
    if (!close) return NULL;
    size_t bytes = (size_t)(close - ++at);
    if (bytes > 0 && (*at | 0x20) == 'v') { /* of a version to come: "v", hexadecimal, ".", text */
        const char *from = ++at;
        while (lm_http_byte_is(*at, LM_BYTE_HEX)) at++;
        if (at == from || *at != '.') return NULL;
        from = ++at;
        while (lm_http_byte_is(*at, LM_BYTE_HOST) || *at == ':') at++;
        return at > from && at == close ? close + 1 : NULL;
    }
    if (bytes >= sizeof text) return NULL;
    memcpy(text, at, bytes);
    text[bytes] = '\0';
    bool good = strlen(text) == bytes && inet_pton(AF_INET6, text, unused) == 1;
    return good ? close + 1 : NULL;
}

/* The end of a registered name, which may be empty; NULL: a percent escape is not whole. */
static const char *name_end(const char *at, const char *end) {
    for (; at < end && (lm_http_byte_is(*at, LM_BYTE_HOST) || *at == '%'); at++) {
        if (*at != '%') continue;
        if (end - at < 3 || !lm_http_byte_is(at[1], LM_BYTE_HEX) ||
            !lm_http_byte_is(at[2], LM_BYTE_HEX))
            return NULL;
        at += 2;
    }
    return at;
}

bool lm_slice_is(struct lm_slice text, const char *word) {
    return strlen(word) == text.bytes && strncasecmp(text.at, word, text.bytes) == 0;
}

bool lm_http_host_is_valid(struct lm_slice host) {
    const char *at = host.at, *end = host.at + host.bytes;
    if (host.bytes == 0) return true;
    if (host.bytes > LM_HTTP_HOST_BYTES_MAX) return false;
    at = *at == '[' ? literal_end(at, end) : name_end(at, end);
    if (!at) return false;
    if (at < end && *at == ':') {
        at++;
        while (at < end && lm_http_byte_is(*at, LM_BYTE_DIGIT)) at++;
    }
    return at == end;
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
