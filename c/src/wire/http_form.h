/* http_form.h: the picture in a form (multipart/form-data, RFC 7578): the content of one of its
 * parts, which lies where it arrived. No state: any thread. */
#ifndef LM_WIRE_HTTP_FORM_H
#define LM_WIRE_HTTP_FORM_H

#include "wire/http_parser.h"

/* Whether bytes may be a picture's file: a JPEG or a PNG begins as they do. */
bool lm_http_file_is(const char *text, size_t bytes);
/* Whether a body may be a form: no JSON begins as one does. */
bool lm_http_form_is(const char *text, size_t bytes);
/* The bytes of the form before its picture: before the first part that may be one, or else before
 * the first part with a file's name. Other parts are skipped. 0: neither begins in
 * LM_HTTP_FORM_HEAD_BYTES_MAX. */
size_t lm_http_form_head(const char *text, size_t bytes);
/* That content, behind a head of so many bytes: up to the line that begins the form. at NULL: `why`
 * is a sentence; so it is where another part is a picture, which nobody would look at. */
struct lm_slice lm_http_form_content(const char *text, size_t bytes, size_t head_bytes, char *why,
                                     size_t why_bytes);

#endif
