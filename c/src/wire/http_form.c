/* http_form.c: see http_form.h. */
#include "wire/http_form.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "wire/http_scan.h"

enum { BOUNDARY_BYTES_MAX = 2 + 70 }; /* two hyphens before it (RFC 2046 5.1.1) */

/* What stands before each part but the first: a line's end and the form's first line. */
struct delimiter {
    char text[2 + BOUNDARY_BYTES_MAX];
    size_t bytes; /* 0: the first line is no boundary */
};

static struct delimiter delimiter_of(const char *text, size_t bytes) {
    struct delimiter delimiter = {.bytes = 0};
    const char *end =
        memchr(text, '\r', bytes <= BOUNDARY_BYTES_MAX ? bytes : BOUNDARY_BYTES_MAX + 1);
    size_t line_bytes = end ? (size_t)(end - text) : 0;
    if (line_bytes < 3) return delimiter;
    memcpy(delimiter.text, "\r\n", 2);
    memcpy(delimiter.text + 2, text, line_bytes);
    delimiter.bytes = 2 + line_bytes;
    return delimiter;
}

bool lm_http_file_is(const char *text, size_t bytes) {
    return (bytes >= 3 && memcmp(text, "\xff\xd8\xff", 3) == 0) ||
           (bytes >= 4 && memcmp(text, "\x89PNG", 4) == 0);
}

bool lm_http_form_is(const char *text, size_t bytes) {
    return bytes >= 2 && memcmp(text, "--", 2) == 0;
}

size_t lm_http_form_head(const char *text, size_t bytes) {
    size_t looked = bytes < LM_HTTP_FORM_HEAD_BYTES_MAX ? bytes : LM_HTTP_FORM_HEAD_BYTES_MAX;
    const struct delimiter delimiter = delimiter_of(text, looked);
    const char *at = text, *stop = text + looked;
    size_t named = 0;
    while (delimiter.bytes > 0 && at) {
        const char *end = memmem(at, (size_t)(stop - at), "\r\n\r\n", 4);
        if (!end) break;
        const char *content = end + 4;
        size_t head_bytes = (size_t)(content - text);
        if (lm_http_file_is(content, bytes - head_bytes)) return head_bytes;
        if (named == 0 && memmem(at, (size_t)(end - at), "filename", 8)) named = head_bytes;
        /* Of a part without content it may begin with the end of the head. */
        at = memmem(end + 2, (size_t)(stop - end - 2), delimiter.text, delimiter.bytes);
    }
    return named;
}

/* Whether a part behind this boundary is a picture, too. */
static bool has_another(const char *at, const char *stop, const struct delimiter *delimiter) {
    while (at) {
        const char *end = memmem(at, (size_t)(stop - at), "\r\n\r\n", 4);
        if (!end) return false;
        if (lm_http_file_is(end + 4, (size_t)(stop - end - 4))) return true;
        at = memmem(end + 2, (size_t)(stop - end - 2), delimiter->text, delimiter->bytes);
    }
    return false;
}

struct lm_slice lm_http_form_content(const char *text, size_t bytes, size_t head_bytes, char *why,
                                     size_t why_bytes) {
    const struct delimiter delimiter = delimiter_of(text, bytes);
    if (delimiter.bytes == 0) {
        snprintf(why, why_bytes,
                 "form: expected \"--\" and a boundary of 1 to 70 bytes in its "
                 "first line");
        return (struct lm_slice){0};
    }
    if (head_bytes == 0) {
        snprintf(why, why_bytes,
                 "form: expected a picture's file (JPEG or PNG) that begins in its "
                 "first %d bytes, found none",
                 LM_HTTP_FORM_HEAD_BYTES_MAX);
        return (struct lm_slice){0};
    }
    const char *content = text + head_bytes;
    const char *stop = memmem(content, bytes - head_bytes, delimiter.text, delimiter.bytes);
    if (!stop) {
        snprintf(why, why_bytes, "form: expected its boundary behind the file, found none");
    } else if (has_another(stop, text + bytes, &delimiter)) {
        snprintf(why, why_bytes,
                 "form: expected one picture, found another behind it: send a request for each");
    } else {
        return lm_slice_between(content, stop);
    }
    return (struct lm_slice){0};
}
