/* loadgen_http.c: HTTP/1.1 from the client's side; called by loadgen.c only. Requests come whole
 * from whoever asked for the load; of a reply only what says where it ends is read.
 *
 * A reply must say its length: chunked ones, and ones that end with the connection, are refused, as
 * are interim ones (1xx), which nothing here asks for.
 */
#include <string.h>

#include "load/loadgen.h"

enum { DIGITS_MAX = 15, CODE_BYTES = 12 /* "HTTP/1.1 200" */ };

struct slice {
    const uint8_t *at;
    size_t bytes;
};

/* `lower`: in lower case. Independent of the locale, unlike strncasecmp. */
static bool is_word(struct slice slice, const char *lower) {
    if (slice.bytes != strlen(lower)) return false;
    for (size_t i = 0; i < slice.bytes; i++) {
        uint8_t byte = slice.at[i];
        if (byte >= 'A' && byte <= 'Z') byte |= 0x20;
        if (byte != (uint8_t)lower[i]) return false;
    }
    return true;
}

static struct slice trimmed(struct slice slice) {
    while (slice.bytes > 0 && (slice.at[0] == ' ' || slice.at[0] == '\t')) {
        slice.at++;
        slice.bytes--;
    }
    while (slice.bytes > 0 &&
           (slice.at[slice.bytes - 1] == ' ' || slice.at[slice.bytes - 1] == '\t')) {
        slice.bytes--;
    }
    return slice;
}

static bool read_number(struct slice slice, uint64_t *number_out) {
    uint64_t number = 0;
    if (slice.bytes < 1 || slice.bytes > DIGITS_MAX) return false;
    for (size_t i = 0; i < slice.bytes; i++) {
        if (slice.at[i] < '0' || slice.at[i] > '9') return false;
        number = number * 10 + (uint64_t)(slice.at[i] - '0');
    }
    *number_out = number;
    return true;
}

/* HTTP/1.0 closes after each reply unless it says otherwise. */
static bool read_status_line(struct slice line, struct lm_load_http_reply *reply) {
    uint64_t code;
    if (line.bytes < CODE_BYTES || memcmp(line.at, "HTTP/1.", 7) != 0) return false;
    uint8_t minor = line.at[7];
    if ((minor != '0' && minor != '1') || line.at[8] != ' ') return false;
    if (line.bytes > CODE_BYTES && line.at[CODE_BYTES] != ' ') return false;
    if (!read_number((struct slice){line.at + 9, 3}, &code) || code < 200) return false;
    reply->code = (uint32_t)code;
    reply->closes = minor == '0';
    return true;
}

/* Connection: a list of words. */
static void read_connection(struct slice value, struct lm_load_http_reply *reply) {
    while (value.bytes > 0) {
        const uint8_t *comma = memchr(value.at, ',', value.bytes);
        size_t bytes = comma ? (size_t)(comma - value.at) : value.bytes;
        struct slice word = trimmed((struct slice){value.at, bytes});
        if (is_word(word, "close")) reply->closes = true;
        if (is_word(word, "keep-alive")) reply->closes = false;
        bytes += comma != NULL;
        value = (struct slice){value.at + bytes, value.bytes - bytes};
    }
}

static bool read_field(struct slice line, struct lm_load_http_reply *reply, bool *has_length) {
    const uint8_t *colon = memchr(line.at, ':', line.bytes);
    if (!colon || colon == line.at) return false;
    struct slice name = {line.at, (size_t)(colon - line.at)};
    struct slice value = trimmed((struct slice){colon + 1, line.bytes - name.bytes - 1});
    if (is_word(name, "content-length")) {
        uint64_t number;
        if (!read_number(value, &number)) return false;
        if (*has_length && number != reply->body_bytes) return false;
        reply->body_bytes = number;
        *has_length = true;
    } else if (is_word(name, "transfer-encoding")) {
        return false;
    } else if (is_word(name, "connection")) {
        read_connection(value, reply);
    }
    return true;
}

int lm_load_http_parse(const uint8_t *bytes, size_t count, struct lm_load_http_reply *reply_out) {
    size_t room = count < LM_LOAD_HTTP_HEAD_BYTES ? count : LM_LOAD_HTTP_HEAD_BYTES;
    const uint8_t *blank = memmem(bytes, room, "\r\n\r\n", 4);
    if (!blank) return room == LM_LOAD_HTTP_HEAD_BYTES ? -1 : 0;
    *reply_out = (struct lm_load_http_reply){0};
    const uint8_t *at = bytes, *end = blank + 2; /* after the last line's own line break */
    bool has_length = false;
    while (at < end) {
        const uint8_t *line_end = memmem(at, (size_t)(end - at), "\r\n", 2);
        struct slice line = {at, (size_t)(line_end - at)};
        bool fine = at == bytes ? read_status_line(line, reply_out)
                                : read_field(line, reply_out, &has_length);
        if (!fine) return -1;
        at = line_end + 2;
    }
    bool has_no_body = reply_out->code == 204 || reply_out->code == 304;
    if (has_no_body) reply_out->body_bytes = 0;
    return has_length || has_no_body ? (int)(blank + 4 - bytes) : -1;
}

uint16_t lm_load_http_status(uint32_t code) {
    switch (code) {
    case 200: return LM_STATUS_OK;
    case 400: return LM_STATUS_BAD_REQUEST;
    case 401:
    case 403: return LM_STATUS_UNAUTHORISED;
    case 404: return LM_STATUS_UNKNOWN_MODEL;
    case 413: return LM_STATUS_TOO_LARGE;
    case 429: return LM_STATUS_RATE_LIMITED;
    case 500: return LM_STATUS_INFERENCE_FAILED;
    case 503: return LM_STATUS_OVERLOADED;
    default: return 15;
    }
}

static void prepare(struct lm_load_connection *connection, const lumen_load_config *config) {
    (void)connection, (void)config; /* payloads are whole requests */
}

/* A head that is whole in one piece, as most are, is read where it lies. */
static ssize_t take_head(struct lm_load_connection *connection, const uint8_t *bytes,
                         size_t count) {
    struct lm_load_http_reply reply;
    uint32_t before = connection->head_used;
    int used = before == 0 ? lm_load_http_parse(bytes, count, &reply) : 0;
    if (used == 0) {
        size_t room = LM_LOAD_HTTP_HEAD_BYTES - before;
        size_t taken = count < room ? count : room;
        memcpy(connection->head + before, bytes, taken);
        connection->head_used += (uint32_t)taken;
        used = lm_load_http_parse(connection->head, connection->head_used, &reply);
        if (used == 0) return (ssize_t)taken;
    }
    if (used < 0) return -1;
    connection->status = lm_load_http_status(reply.code);
    connection->body_left = reply.body_bytes;
    connection->last = connection->last || reply.closes;
    connection->head_done = true;
    return used - (ssize_t)before;
}

const struct lm_load_dialect lm_load_http = {.request_head_bytes = 0,
                                             .reply_head_bytes = LM_LOAD_HTTP_HEAD_BYTES,
                                             .prepare = prepare,
                                             .take_head = take_head};
