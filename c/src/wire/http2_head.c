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

/* ---- blocks ---- */

enum {
    LITERAL = 0x00,            /* neither kept nor looked up */
    LITERAL_NEVER_KEPT = 0x10, /* by nobody between */
    AUTHORITY_INDEX = 1,       /* names in HPACK's constant table, */
    PATH_INDEX = 4,
    METHOD_POST = 0x80 | 3, /* and whole fields */
    SCHEME_HTTP = 0x80 | 6,
    SCHEME_HTTPS = 0x80 | 7,
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
    const uint8_t literal = lm_slice_is(name, "authorization") ? LITERAL_NEVER_KEPT : LITERAL;
    if (name.bytes > sizeof lower) return;
    for (size_t i = 0; i < name.bytes; i++)
        lower[i] = (char)(name.at[i] >= 'A' && name.at[i] <= 'Z' ? name.at[i] | 0x20 : name.at[i]);
    put_bytes(block, &literal, 1);
    put_string(block, lower, name.bytes);
    put_string(block, value.at, value.bytes);
}

/* Takes a line, "Name: value", off those that are left. false: there is none. */
static bool next_line(struct lm_slice *left, struct lm_hpack_field *field_out) {
    const char *end = left->at + left->bytes;
    if (left->bytes == 0 || *left->at == '\r') return false;
    const char *stop = memchr(left->at, '\r', left->bytes);
    const char *colon = memchr(left->at, ':', (size_t)(stop - left->at));
    field_out->name = lm_slice_between(left->at, colon);
    field_out->value = lm_slice_between(colon + 2, stop);
    *left = lm_slice_between(stop + 2, end);
    return true;
}

static struct lm_slice behind_first_line(struct lm_slice head) {
    const char *end = head.at + head.bytes, *stop = memchr(head.at, '\n', head.bytes);
    return lm_slice_between(stop + 1, end);
}

size_t lm_http2_reply_head(const char *head, size_t bytes, uint8_t *block, size_t room) {
    struct lm_slice left = behind_first_line((struct lm_slice){head, bytes});
    struct lm_hpack_field field;
    struct block out = {.at = block, .end = block + room};
    const uint8_t status[2] = {STATUS_200, LITERAL | STATUS_INDEX};
    if (memcmp(head + 9, "200", 3) == 0) {
        put_bytes(&out, &status[0], 1);
    } else {
        put_bytes(&out, &status[1], 1);
        put_string(&out, head + 9, 3);
    }
    while (next_line(&left, &field))
        if (!lm_http_same_word(field.name, "connection", 10) &&
            !lm_http_same_word(field.name, "keep-alive", 10))
            put_field(&out, field.name, field.value);
    return out.is_full ? 0 : (size_t)(out.at - block);
}

/* ---- as a client ---- */

size_t lm_http2_request_block(const struct lm_slice *pieces, uint32_t count, bool is_tls,
                              uint8_t *block, size_t room) {
    static const uint8_t path_name = LITERAL | PATH_INDEX, host_name = LITERAL | AUTHORITY_INDEX;
    const uint8_t begin[2] = {METHOD_POST, is_tls ? SCHEME_HTTPS : SCHEME_HTTP};
    const char *path = pieces[0].at + sizeof "POST " - 1;
    const char *path_end = memchr(path, ' ', pieces[0].bytes - (sizeof "POST " - 1));
    struct block out = {.at = block, .end = block + room};
    struct lm_hpack_field field;
    put_bytes(&out, begin, sizeof begin);
    put_bytes(&out, &path_name, 1);
    put_string(&out, path, (size_t)(path_end - path));
    for (uint32_t p = 0; p < count; p++) {
        struct lm_slice left = p == 0 ? behind_first_line(pieces[0]) : pieces[p];
        while (next_line(&left, &field)) {
            if (lm_slice_is(field.name, "host")) { /* before all others */
                put_bytes(&out, &host_name, 1);
                put_string(&out, field.value.at, field.value.bytes);
            } else {
                put_field(&out, field.name, field.value);
            }
        }
    }
    return out.is_full ? 0 : (size_t)(out.at - block);
}

/* The status, which stands alone before all others; 0: it does not. */
static uint32_t status_of(const struct lm_hpack_fields *fields) {
    uint64_t status = 0;
    const bool is_there = fields->count > 0 && is(fields->list[0].name, ":status") &&
                          fields->list[0].value.bytes == 3 &&
                          lm_http_decimal(fields->list[0].value, 599, &status) && status >= 100;
    return is_there ? (uint32_t)status : 0;
}

size_t lm_http2_answer_head(const struct lm_hpack_fields *fields, bool ends, char *head,
                            size_t room, char *why, size_t why_bytes) {
    struct writer writer = {.at = head, .end = head + room};
    const uint32_t status = status_of(fields);
    bool has_length = false;
    if (fields->too_large || status == 0) {
        snprintf(why, why_bytes, "its answer's head: expected %s",
                 fields->too_large ? "at most 16384 bytes and 100 fields" : "a status");
        return 0;
    }
    writer.at += snprintf(head, room, "HTTP/1.1 %u \r\n", status);
    for (uint32_t f = 1; f < fields->count; f++) {
        const struct lm_hpack_field *field = &fields->list[f];
        if (!is_good(field) || is_of_connection(field)) {
            snprintf(why, why_bytes, "its answer's head: expected a field of HTTP/2, found %s",
                     lm_http_quote(field->name).text);
            return 0;
        }
        has_length = has_length || is(field->name, "content-length");
        put_line(&writer, field->name, field->value);
    }
    if (ends && !has_length) put_length(&writer, 0);
    put(&writer, "\r\n", 2);
    if (!writer.is_full) return (size_t)(writer.at - head);
    snprintf(why, why_bytes, "its answer's head: expected at most %zu bytes", room);
    return 0;
}
