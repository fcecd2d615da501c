/* http_response.c: see http_response.h. */
#include "wire/http_response.h"

#include <string.h>

#include "base/limits.h"
#include "wire/http_scan.h"

static int refuse(char *why, size_t why_bytes, const char *expected, struct lm_slice found) {
    return lm_http_refuse(1, why, why_bytes, "its answer's head: expected %s, found %s", expected,
                          lm_http_quote(found).text);
}

/* HTTP/1.x SSS reason */
static int read_status(struct lm_slice line, struct lm_http_response *response, char *why,
                       size_t why_bytes) {
    const char *at = line.at;
    const bool fits = line.bytes >= 12 && memcmp(at, "HTTP/1.", 7) == 0 &&
                      (at[7] == '0' || at[7] == '1') && at[8] == ' ' &&
                      lm_http_byte_is(at[9], LM_BYTE_DIGIT) &&
                      lm_http_byte_is(at[10], LM_BYTE_DIGIT) &&
                      lm_http_byte_is(at[11], LM_BYTE_DIGIT) && (line.bytes == 12 || at[12] == ' ');
    if (!fits) return refuse(why, why_bytes, "HTTP/1.1 and a status", line);
    response->keep_alive = at[7] == '1';
    response->status =
        (uint32_t)(at[9] - '0') * 100 + (uint32_t)(at[10] - '0') * 10 + (uint32_t)(at[11] - '0');
    if (response->status < 100 || response->status > 599)
        return refuse(why, why_bytes, "a status from 100 to 599", line);
    if (line.bytes > 13) response->reason = lm_slice_between(at + 13, at + line.bytes);
    return 0;
}

/* Takes a line off the fields: its name, its value without white space around. false: it is none.
 */
static bool split(struct lm_slice *fields, struct lm_http_field *field) {
    const char *end = fields->at + fields->bytes, *at = fields->at;
    const char *stop = memchr(at, '\n', fields->bytes);
    if (!stop) return false;
    const char *last = stop > at && stop[-1] == '\r' ? stop - 1 : stop;
    const char *colon = memchr(at, ':', (size_t)(last - at));
    *fields = lm_slice_between(stop + 1, end);
    field->line = lm_slice_between(at, stop + 1);
    field->name = lm_slice_between(at, colon ? colon : at);
    if (!colon || colon == at) return false;
    for (const char *byte = at; byte < colon; byte++)
        if (!lm_http_byte_is(*byte, LM_BYTE_TOKEN)) return false;
    const char *value = colon + 1;
    while (value < last && (*value == ' ' || *value == '\t')) value++;
    while (last > value && (last[-1] == ' ' || last[-1] == '\t')) last--;
    if (lm_http_plain_end(value, last, ' ', true) != last) return false;
    field->value = lm_slice_between(value, last);
    return true;
}

static bool is_word_of(struct lm_slice list, const char *word) {
    const char *at = list.at, *end = list.at + list.bytes;
    while (at < end) {
        const char *stop = memchr(at, ',', (size_t)(end - at));
        if (!stop) stop = end;
        const char *last = stop;
        while (at < last && (*at == ' ' || *at == '\t')) at++;
        while (last > at && (last[-1] == ' ' || last[-1] == '\t')) last--;
        if (lm_slice_is(lm_slice_between(at, last), word)) return true;
        at = stop + 1;
    }
    return false;
}

/* timeout=N, among others; 0: there is none. */
static uint32_t timeout_of(struct lm_slice value) {
    const char *found = memmem(value.at, value.bytes, "timeout=", 8);
    uint32_t seconds = 0;
    if (!found) return 0;
    for (const char *at = found + 8;
         at < value.at + value.bytes && lm_http_byte_is(*at, LM_BYTE_DIGIT) && seconds < 100000;
         at++)
        seconds = seconds * 10 + (uint32_t)(*at - '0');
    return seconds;
}

struct seen {
    bool has_length, is_chunked, is_coded;
};

static int read_field(const struct lm_http_field *field, struct seen *seen,
                      struct lm_http_response *response, char *why, size_t why_bytes) {
    const struct lm_slice name = field->name, value = field->value;
    if (lm_slice_is(name, "content-length")) {
        uint64_t length = 0;
        if (!lm_http_decimal(value, INT64_MAX, &length) ||
            (seen->has_length && length != response->length))
            return refuse(why, why_bytes, "one number as Content-Length", value);
        seen->has_length = true;
        response->length = length;
    } else if (lm_slice_is(name, "transfer-encoding")) {
        seen->is_coded = true;
        seen->is_chunked = lm_slice_is(value, "chunked");
        if (!seen->is_chunked) return refuse(why, why_bytes, "chunked as Transfer-Encoding", value);
    } else if (lm_slice_is(name, "connection")) {
        if (is_word_of(value, "close"))
            response->keep_alive = false;
        else if (is_word_of(value, "keep-alive"))
            response->keep_alive = true;
    } else if (lm_slice_is(name, "keep-alive")) {
        response->keep_alive_s = timeout_of(value);
    } else if (lm_slice_is(name, "retry-after")) {
        response->retry_after = true;
    }
    return 0;
}

/* RFC 9112 6.3. */
static void frame(struct lm_http_response *response, const struct seen *seen, bool is_head) {
    const bool has_none =
        is_head || response->status < 200 || response->status == 204 || response->status == 304;
    response->framing = has_none           ? LM_HTTP_FRAMED_BY_LENGTH
                        : seen->is_chunked ? LM_HTTP_FRAMED_BY_CHUNKS
                        : seen->has_length ? LM_HTTP_FRAMED_BY_LENGTH
                                           : LM_HTTP_FRAMED_BY_CLOSE;
    if (has_none || seen->is_chunked) response->length = 0;
    /* An answer with a length and chunks can be read in two ways: its connection is not used again.
     */
    if (response->framing == LM_HTTP_FRAMED_BY_CLOSE || (seen->is_chunked && seen->has_length))
        response->keep_alive = false;
}

int lm_http_parse_response(const char *bytes, size_t count, bool is_head,
                           struct lm_http_response *response_out, char *why, size_t why_bytes) {
    const char *end = memmem(bytes, count, "\r\n\r\n", 4);
    struct seen seen = {0};
    struct lm_http_field field;
    *response_out = (struct lm_http_response){0};
    if (!end) {
        const size_t looked = count < 5 ? count : 5;
        if (memcmp(bytes, "HTTP/", looked) != 0)
            return refuse(why, why_bytes, "HTTP/1.1 and a status",
                          (struct lm_slice){bytes, count < 24 ? count : 24});
        if (count < LM_HTTP_HEAD_BYTES_MAX) return 0;
        return refuse(why, why_bytes, "at most 16384 bytes", (struct lm_slice){bytes, 24});
    }
    const char *first = memchr(bytes, '\r', count);
    int code = read_status(lm_slice_between(bytes, first), response_out, why, why_bytes);
    if (code) return code;
    response_out->fields = lm_slice_between(first + 2, end + 2);
    if (first == end) response_out->fields.bytes = 0;
    struct lm_slice left = response_out->fields;
    for (uint32_t lines = 0; left.bytes > 0; lines++) {
        const bool is_field = split(&left, &field);
        if (!is_field || lines == LM_HTTP_HEADERS_MAX)
            return refuse(why, why_bytes, is_field ? "at most 100 fields" : "a field", field.line);
        code = read_field(&field, &seen, response_out, why, why_bytes);
        if (code) return code;
    }
    frame(response_out, &seen, is_head);
    return (int)(end + 4 - bytes);
}

bool lm_http_next_passed(struct lm_slice *fields, struct lm_http_field *field_out) {
    static const char *const kept[] = {"connection",        "keep-alive", "proxy-authenticate",
                                       "proxy-connection",  "te",         "trailer",
                                       "transfer-encoding", "upgrade",    "date",
                                       "content-length",    "alt-svc",    "set-cookie"};
    while (fields->bytes > 0 && split(fields, field_out)) {
        bool is_kept = false;
        for (size_t k = 0; !is_kept && k < sizeof kept / sizeof kept[0]; k++)
            is_kept = lm_slice_is(field_out->name, kept[k]);
        if (!is_kept) return true;
    }
    return false;
}
