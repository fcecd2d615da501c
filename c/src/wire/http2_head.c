/* http2_head.c: see http2_head.h. */
#include "wire/http2_head.h"

#include <stdio.h>
#include <string.h>

#include "wire/http_scan.h"

/* ---- requests ---- */

/* The fields that stand for HTTP/1.1's first line. */
enum pseudo { PSEUDO_METHOD, PSEUDO_SCHEME, PSEUDO_PATH, PSEUDO_AUTHORITY, PSEUDOS };

static const char *const pseudo_names[PSEUDOS] = {":method", ":scheme", ":path", ":authority"};

struct writer {
    char *at, *end;
    bool is_full;
};

static void put(struct writer *writer, const char *text, size_t bytes) {
    if (bytes > (size_t)(writer->end - writer->at)) {
        writer->is_full = true;
        return;
    }
    memcpy(writer->at, text, bytes);
    writer->at += bytes;
}

static void put_line(struct writer *writer, struct lm_slice name, struct lm_slice value) {
    put(writer, name.at, name.bytes);
    put(writer, ": ", 2);
    if (value.bytes) put(writer, value.at, value.bytes);
    put(writer, "\r\n", 2);
}

static bool is(struct lm_slice text, const char *word) {
    const size_t bytes = strlen(word);
    return text.bytes == bytes && memcmp(text.at, word, bytes) == 0;
}

static struct lm_slice text_of(const char *text) {
    return (struct lm_slice){text, strlen(text)};
}

/* Names are in lower case; values are read by whoever reads heads of HTTP/1.1, for whom a line's
 * end must be none of them. */
static bool is_good(const struct lm_hpack_field *field) {
    if (field->name.bytes == 0) return false;
    for (size_t i = 0; i < field->name.bytes; i++) {
        const char letter = field->name.at[i];
        const bool is_upper = letter >= 'A' && letter <= 'Z';
        if (is_upper || !lm_http_byte_is(letter, LM_BYTE_TOKEN)) return false;
    }
    const char *end = field->value.at + field->value.bytes;
    return field->value.bytes == 0 || lm_http_plain_end(field->value.at, end, ' ', true) == end;
}

/* Fields about a connection of HTTP/1.1, which HTTP/2 forbids. */
static bool is_of_connection(const struct lm_hpack_field *field) {
    return is(field->name, "connection") || is(field->name, "keep-alive") ||
           is(field->name, "proxy-connection") || is(field->name, "transfer-encoding") ||
           is(field->name, "upgrade") || (is(field->name, "te") && !is(field->value, "trailers"));
}

/* Finds the pseudo fields, which come first and once each. Returns how many fields they are; 0:
 * malformed. */
static uint32_t find_pseudo(const struct lm_hpack_fields *fields, struct lm_slice values[PSEUDOS]) {
    uint32_t count = 0;
    for (; count < fields->count && fields->list[count].name.bytes > 0 &&
           fields->list[count].name.at[0] == ':';
         count++) {
        uint32_t which = 0;
        while (which < PSEUDOS && !is(fields->list[count].name, pseudo_names[which])) which++;
        if (which == PSEUDOS || values[which].at) return 0;
        values[which] = fields->list[count].value;
        if (!values[which].at) values[which].at = "";
    }
    const bool has_all =
        values[PSEUDO_METHOD].at && values[PSEUDO_SCHEME].at && values[PSEUDO_PATH].bytes;
    return has_all ? count : 0;
}

static bool put_fields(const struct lm_hpack_fields *fields, uint32_t first, bool has_host,
                       struct writer *writer, struct lm_http2_request *request) {
    for (uint32_t f = first; f < fields->count; f++) {
        const struct lm_hpack_field *field = &fields->list[f];
        if (!is_good(field) || is_of_connection(field)) return false;
        if (is(field->name, "host") && has_host) continue; /* :authority says it */
        if (is(field->name, "expect")) continue;
        if (is(field->name, "content-length")) { /* it is said at the end */
            const bool is_second = request->content != UINT64_MAX;
            if (is_second || !lm_http_decimal(field->value, INT64_MAX, &request->content))
                return false;
            continue;
        }
        if (is(field->name, "content-type") && field->value.bytes >= 16 &&
            memcmp(field->value.at, "application/grpc", 16) == 0)
            request->is_grpc = true;
        put_line(writer, field->name, field->value);
    }
    return true;
}

static void put_length(struct writer *writer, uint64_t bytes) {
    char digits[24];
    const int used = snprintf(digits, sizeof digits, "%llu", (unsigned long long)bytes);
    put_line(writer, text_of("content-length"), (struct lm_slice){digits, (size_t)used});
}

static bool has_blank(struct lm_slice text) {
    for (size_t i = 0; i < text.bytes; i++)
        if (text.at[i] == ' ' || !lm_http_is_plain(text.at[i], '!', false)) return true;
    return false;
}

enum lm_http2_verdict lm_http2_request_head(const struct lm_hpack_fields *fields, bool has_body,
                                            char *head, size_t room,
                                            struct lm_http2_request *request_out) {
    struct lm_slice values[PSEUDOS] = {0};
    struct writer writer = {.at = head, .end = head + room};
    *request_out = (struct lm_http2_request){.content = UINT64_MAX};
    if (fields->too_large) return LM_HTTP2_HEAD_TOO_LARGE;
    const uint32_t first = find_pseudo(fields, values);
    const struct lm_slice method = values[PSEUDO_METHOD], path = values[PSEUDO_PATH];
    if (first == 0 || has_blank(method) || has_blank(path) || has_blank(values[PSEUDO_AUTHORITY]))
        return LM_HTTP2_HEAD_MALFORMED;
    put(&writer, method.at, method.bytes);
    put(&writer, " ", 1);
    put(&writer, path.at, path.bytes);
    put(&writer, " HTTP/1.1\r\n", 11);
    const bool has_host = values[PSEUDO_AUTHORITY].at != NULL;
    if (has_host) put_line(&writer, text_of("host"), values[PSEUDO_AUTHORITY]);
    if (!put_fields(fields, first, has_host, &writer, request_out)) return LM_HTTP2_HEAD_MALFORMED;
    const bool has_length = request_out->content != UINT64_MAX;
    if (!has_body && has_length && request_out->content > 0) return LM_HTTP2_HEAD_MALFORMED;
    request_out->is_chunked = has_body && !has_length && !request_out->is_grpc;
    if (has_length && !request_out->is_grpc) put_length(&writer, request_out->content);
    if (request_out->is_chunked)
        put_line(&writer, text_of("transfer-encoding"), text_of("chunked"));
    put_line(&writer, text_of("connection"), text_of("close"));
    put(&writer, "\r\n", 2);
    request_out->bytes = (size_t)(writer.at - head);
    return writer.is_full ? LM_HTTP2_HEAD_TOO_LARGE : LM_HTTP2_HEAD_GOOD;
}

/* ---- replies ---- */

enum {
    LITERAL = 0x00,        /* neither kept nor looked up */
    STATUS_INDEX = 8,      /* the name ":status" in HPACK's constant table */
    STATUS_200 = 0x80 | 8, /* the whole field */
    LITERAL_BYTES_MAX = 127 + 0x3fff
};

struct block {
    uint8_t *at, *end;
    bool is_full;
};

static void put_bytes(struct block *block, const void *bytes, size_t count) {
    if (count > (size_t)(block->end - block->at)) {
        block->is_full = true;
        return;
    }
    memcpy(block->at, bytes, count);
    block->at += count;
}

/* A string as it is: shorter ones than 127 bytes have one byte before them. */
static void put_string(struct block *block, const char *text, size_t bytes) {
    uint8_t size[3] = {(uint8_t)bytes};
    size_t used = 1;
    if (bytes > LITERAL_BYTES_MAX) block->is_full = true;
    if (bytes >= 127) {
        size[0] = 127;
        size[1] = (uint8_t)(0x80 | ((bytes - 127) & 0x7f));
        size[2] = (uint8_t)((bytes - 127) >> 7);
        used = 3;
    }
    put_bytes(block, size, used);
    put_bytes(block, text, bytes);
}

static void put_field(struct block *block, struct lm_slice name, struct lm_slice value) {
    char lower[64];
    const uint8_t literal = LITERAL;
    if (name.bytes > sizeof lower) return;
    for (size_t i = 0; i < name.bytes; i++)
        lower[i] = (char)(name.at[i] >= 'A' && name.at[i] <= 'Z' ? name.at[i] | 0x20 : name.at[i]);
    put_bytes(block, &literal, 1);
    put_string(block, lower, name.bytes);
    put_string(block, value.at, value.bytes);
}

size_t lm_http2_reply_head(const char *head, size_t bytes, uint8_t *block, size_t room) {
    const char *end = head + bytes, *line = memchr(head, '\n', bytes);
    struct block out = {.at = block, .end = block + room};
    const uint8_t status[2] = {STATUS_200, LITERAL | STATUS_INDEX};
    if (memcmp(head + 9, "200", 3) == 0) {
        put_bytes(&out, &status[0], 1);
    } else {
        put_bytes(&out, &status[1], 1);
        put_string(&out, head + 9, 3);
    }
    while (line && ++line < end && *line != '\r') {
        const char *stop = memchr(line, '\r', (size_t)(end - line));
        const char *colon = memchr(line, ':', (size_t)(stop - line));
        const struct lm_slice name = lm_slice_between(line, colon);
        const struct lm_slice value = lm_slice_between(colon + 2, stop);
        if (!lm_http_same_word(name, "connection", 10) &&
            !lm_http_same_word(name, "keep-alive", 10))
            put_field(&out, name, value);
        line = stop + 1;
    }
    return out.is_full ? 0 : (size_t)(out.at - block);
}
