/* http_scan.h: what the HTTP files share: classes of bytes, the scan over plain text, numbers, and
 * refusals in a sentence. For http_parser.c, http_chunks.c and http_route.c. No state: any thread.
 */
#ifndef LM_WIRE_HTTP_SCAN_H
#define LM_WIRE_HTTP_SCAN_H

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "wire/http_parser.h"

enum {
    LM_BYTE_TOKEN = 1, /* RFC 9110's tchar: methods and header names */
    LM_BYTE_HOST = 2,  /* RFC 3986's unreserved and sub-delims: a registered name, but for %XX */
    LM_BYTE_HEX = 4,
    LM_BYTE_DIGIT = 8
};
extern const uint8_t lm_http_classes[256];

static inline bool lm_http_byte_is(char byte, uint8_t classes) {
    return (lm_http_classes[(uint8_t)byte] & classes) != 0;
}

/* Of a hexadecimal digit. */
static inline uint8_t lm_http_hex_value(char digit) {
    return (uint8_t)(digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
}

/* Plain text: `lowest` (a space or '!') to '~'. `in_field`: also what RFC 9110 5.5 allows in a
 * field's value: tabs, and bytes from 0x80 on, whose alphabet nobody knows. */
static inline bool lm_http_is_plain(char byte, char lowest, bool in_field) {
    uint8_t code = (uint8_t)byte;
    return (code >= (uint8_t)lowest && code < 0x7f) || (in_field && (code == '\t' || code >= 0x80));
}

/* The first byte that is not plain text; `end` when there is none. */
static inline const char *lm_http_plain_end_scalar(const char *at, const char *end, char lowest,
                                                   bool in_field) {
    while (at < end && lm_http_is_plain(*at, lowest, in_field)) at++;
    return at;
}

/* The same, 16 bytes at a time. The last 15 are looked at one by one: nothing past `end` is read.
 */
static inline const char *lm_http_plain_end(const char *at, const char *end, char lowest,
                                            bool in_field) {
#ifdef __SSE2__
    while (end - at >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
        /* Compared as signed numbers, bytes from 0x80 on are below every character. */
        __m128i other = _mm_or_si128(_mm_cmplt_epi8(bytes, _mm_set1_epi8(lowest)),
                                     _mm_cmpeq_epi8(bytes, _mm_set1_epi8(0x7f)));
        if (in_field) {
            __m128i fine = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('\t')),
                                        _mm_cmplt_epi8(bytes, _mm_setzero_si128()));
            other = _mm_andnot_si128(fine, other);
        }
        int mask = _mm_movemask_epi8(other);
        if (mask) return at + __builtin_ctz((unsigned)mask);
        at += 16;
    }
#endif
    return lm_http_plain_end_scalar(at, end, lowest, in_field);
}

static inline struct lm_slice lm_slice_between(const char *at, const char *end) {
    return (struct lm_slice){at, (size_t)(end - at)};
}

/* Whether a field's text is `word`, upper or lower case. `word` is letters, digits and '-', in
 * lower case, for which setting bit 5 of such a byte never makes two different ones alike. */
bool lm_http_same_word(struct lm_slice text, const char *word, size_t word_bytes);

/* A decimal number up to `largest` (at least 9): digits alone, of which the first may be zeros. */
bool lm_http_decimal(struct lm_slice text, uint64_t largest, uint64_t *value_out);

/* Whether a text is `word`, upper or lower case. Slower than lm_http_same_word, and for any word:
 * names of hosts have dots. */
bool lm_slice_is(struct lm_slice text, const char *word);

/* Whether this is a host as RFC 3986 has it, and maybe a port: an address, a name with any signs or
 * none at all. Which hosts are this server's is decided elsewhere. */
bool lm_http_host_is_valid(struct lm_slice host);

/* Text for a sentence: in quotes, escaped, cut after 24 bytes. */
struct lm_http_quoted {
    char text[104];
};
struct lm_http_quoted lm_http_quote(struct lm_slice found);

/* Writes the sentence, returns -status. */
__attribute__((format(printf, 4, 5))) int lm_http_refuse(int status, char *why, size_t why_bytes,
                                                         const char *format, ...);

#endif
