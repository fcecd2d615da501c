/* http_parser.c: see http_parser.h. Runs on I/O threads.
 *
 * A head is read line by line, each line once: its bytes, then its value. What concerns several
 * lines is counted on the way and checked at the end, by check_head(). When the head came in
 * pieces, only the bytes that are new are looked at, and the whole once more when its end is there.
 */
#include "wire/http_parser.h"

#include <string.h>

#include "base/limits.h"
#include "wire/http_scan.h"

enum field {
    FIELD_HOST,
    FIELD_CONTENT_LENGTH,
    FIELD_TRANSFER_ENCODING,
    FIELD_CONNECTION,
    FIELD_EXPECT,
    FIELD_JSON_BYTES,
    FIELD_AUTHORIZATION,
    FIELD_API_KEY,
    FIELD_CONTENT_ENCODING,
    FIELD_ORIGIN,
    FIELD_ACCEPT_ENCODING,
    FIELD_FETCH_SITE,
    FIELD_FORWARDED,
    FIELD_VIA,
    FIELD_FORWARDED_FOR,
    FIELD_REAL_IP,
    FIELD_PRIORITY,
    FIELD_TIMEOUT,
    FIELD_TRACEPARENT,
    FIELD_TRACESTATE,
    FIELD_REQUEST_ID,
    FIELD_LOAD_FORMAT,
    FIELD_SESSION,
    FIELDS
};

/* Two of those that are `once` would be read differently by different readers. */
static const struct {
    const char *name; /* lower case */
    size_t bytes;
    bool once;
} fields[FIELDS] = {
    [FIELD_HOST] = {"host", 4, true},
    [FIELD_CONTENT_LENGTH] = {"content-length", 14, true},
    [FIELD_TRANSFER_ENCODING] = {"transfer-encoding", 17, true},
    [FIELD_CONNECTION] = {"connection", 10, false},
    [FIELD_EXPECT] = {"expect", 6, false},
    [FIELD_JSON_BYTES] = {"inference-header-content-length", 31, false},
    [FIELD_AUTHORIZATION] = {"authorization", 13, true},
    [FIELD_API_KEY] = {"x-api-key", 9, true},
    [FIELD_CONTENT_ENCODING] = {"content-encoding", 16, true},
    [FIELD_ORIGIN] = {"origin", 6, true},
    [FIELD_ACCEPT_ENCODING] = {"accept-encoding", 15, false},
    [FIELD_FETCH_SITE] = {"sec-fetch-site", 14, true},
    [FIELD_FORWARDED] = {"forwarded", 9, false},
    [FIELD_VIA] = {"via", 3, false},
    [FIELD_FORWARDED_FOR] = {"x-forwarded-for", 15, false},
    [FIELD_REAL_IP] = {"x-real-ip", 9, false},
    [FIELD_PRIORITY] = {"priority", 8, false},
    [FIELD_TIMEOUT] = {"grpc-timeout", 12, true},
    [FIELD_TRACEPARENT] = {"traceparent", 11, false},
    [FIELD_TRACESTATE] = {"tracestate", 10, false},
    [FIELD_REQUEST_ID] = {"x-request-id", 12, false},
    [FIELD_SESSION] = {"lumen-session", 13, false},
    [FIELD_LOAD_FORMAT] = {"endpoint-load-metrics-format", 28, false},
};

struct parse {
    const char *bytes;
    const char *end;   /* of what may be looked at: `count`, or the largest head */
    const char *fresh; /* what comes before it was found good by an earlier call */
    struct lm_http_head *head;
    uint32_t times[FIELDS];
    uint32_t headers;
    struct lm_slice expectation; /* an unknown one */
    bool close;
    bool keep_alive;
    char *why;
    size_t why_bytes;
};

static int bad_byte(const struct parse *p, const char *at, const char *expected) {
    return lm_http_refuse(400, p->why, p->why_bytes, "byte %td: expected %s, found %s",
                          at - p->bytes, expected, lm_http_quote((struct lm_slice){at, 1}).text);
}

static int bad_value(const struct parse *p, int status, enum field field, const char *expected,
                     struct lm_slice found) {
    return lm_http_refuse(status, p->why, p->why_bytes, "%s: expected %s, found %s",
                          fields[field].name, expected, lm_http_quote(found).text);
}

/* At most `bytes` on from `at`. */
static const char *clip(const struct parse *p, const char *at, size_t bytes) {
    return (size_t)(p->end - at) < bytes ? p->end : at + bytes;
}

/* Where to go on looking for `delimiter`: it may lie among the bytes that are known to be good. */
static const char *resume(const struct parse *p, const char *at, char delimiter) {
    if (p->fresh <= at) return at;
    const char *found = memchr(at, delimiter, (size_t)(p->fresh - at));
    return found ? found : p->fresh;
}

/* The functions below return the bytes they read, 0 when there are too few, or a refusal. */

static int line_end(const struct parse *p, const char *at, const char *expected) {
    if (at == p->end) return 0;
    if (*at != '\r') return bad_byte(p, at, expected);
    if (at + 1 == p->end) return 0;
    return at[1] == '\n' ? 2 : bad_byte(p, at + 1, "LF after CR");
}

static int version(const struct parse *p, const char *at) {
    static const char shape[] = "HTTP/n.n";
    for (size_t i = 0; i < sizeof shape - 1; i++) {
        if (at + i == p->end) return 0;
        bool digit = lm_http_byte_is(at[i], LM_BYTE_DIGIT);
        if (shape[i] == 'n' ? !digit : at[i] != shape[i])
            return bad_byte(p, at + i, "HTTP/1.0 or HTTP/1.1 after the target");
    }
    if (at[5] != '1' || at[7] > '1')
        return lm_http_refuse(505, p->why, p->why_bytes,
                              "version: expected HTTP/1.0 or HTTP/1.1, found %s%s",
                              lm_http_quote((struct lm_slice){at, sizeof shape - 1}).text,
                              at[5] == '2' ? ": HTTP/2 begins a connection with its preface" : "");
    p->head->minor = (uint8_t)(at[7] - '0');
    int end_bytes = line_end(p, at + 8, "CR LF after the version");
    return end_bytes > 0 ? 8 + end_bytes : end_bytes;
}

static enum lm_http_method method_of(struct lm_slice name) {
    if (name.bytes == 3 && memcmp(name.at, "GET", 3) == 0) return LM_HTTP_GET;
    if (name.bytes == 4 && memcmp(name.at, "POST", 4) == 0) return LM_HTTP_POST;
    if (name.bytes == 3 && memcmp(name.at, "PUT", 3) == 0) return LM_HTTP_PUT;
    if (name.bytes == 4 && memcmp(name.at, "HEAD", 4) == 0) return LM_HTTP_HEAD;
    return LM_HTTP_OTHER;
}

/* A handshake record of TLS 1.x: its type and its major version. */
static bool is_tls_hello(const struct parse *p, const char *at) {
    return p->end - at >= 2 && at[0] == 0x16 && at[1] == 3;
}

static int request_line(const struct parse *p, const char *line) {
    const char *at = line, *stop = clip(p, line, LM_HTTP_METHOD_BYTES_MAX + 1);
    while (at < stop && lm_http_byte_is(*at, LM_BYTE_TOKEN)) at++;
    if (at - line > LM_HTTP_METHOD_BYTES_MAX)
        return lm_http_refuse(
            501, p->why, p->why_bytes, "method: expected at most %d bytes, found more: %s",
            LM_HTTP_METHOD_BYTES_MAX, lm_http_quote(lm_slice_between(line, at)).text);
    if (at == p->end) return 0;
    if (at == line && *at == 0x16 && at + 1 == p->end) return 0;
    if (at == line && is_tls_hello(p, at))
        return lm_http_refuse(400, p->why, p->why_bytes,
                              "expected plain HTTP, found the hello of TLS: ask for http://, not "
                              "https://, or put a proxy that ends TLS before this port");
    if (at == line) return bad_byte(p, at, "a method");
    if (*at != ' ') return bad_byte(p, at, "a letter of the method or the space after it");
    p->head->method_name = lm_slice_between(line, at);
    p->head->method = method_of(p->head->method_name);

    const char *target = at + 1;
    at = lm_http_plain_end(resume(p, target, ' '), clip(p, target, LM_HTTP_TARGET_BYTES_MAX + 1),
                           '!', false);
    if (at - target > LM_HTTP_TARGET_BYTES_MAX)
        return lm_http_refuse(414, p->why, p->why_bytes,
                              "target: expected at most %d bytes, found more",
                              LM_HTTP_TARGET_BYTES_MAX);
    if (at == p->end) return 0;
    if (at == target) return bad_byte(p, at, "a target after one space");
    if (*at != ' ') return bad_byte(p, at, "visible ASCII in the target, then a space");
    p->head->target = lm_slice_between(target, at);

    int version_bytes = version(p, at + 1);
    return version_bytes > 0 ? (int)(at + 1 - line) + version_bytes : version_bytes;
}

static struct lm_slice trim(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    while (at < end && (end[-1] == ' ' || end[-1] == '\t')) end--;
    return lm_slice_between(at, end);
}

/* `Connection` lists words; those that are not known are nobody's business here. */
static void read_connection(struct parse *p, struct lm_slice value) {
    const char *at = value.at, *end = value.at + value.bytes;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        struct lm_slice word = trim(at, comma ? comma : end);
        if (lm_http_same_word(word, "close", 5)) p->close = true;
        if (lm_http_same_word(word, "keep-alive", 10)) p->keep_alive = true;
        at = comma ? comma + 1 : end;
    }
}

static int read_transfer_encoding(struct parse *p, struct lm_slice value) {
    if (lm_http_same_word(value, "chunked", 7)) {
        p->head->chunked = true;
        return 0;
    }
    bool token = value.bytes > 0;
    for (size_t i = 0; i < value.bytes; i++)
        token = token && lm_http_byte_is(value.at[i], LM_BYTE_TOKEN);
    return bad_value(p, token ? 501 : 400, FIELD_TRANSFER_ENCODING, "chunked", value);
}

static void read_json_bytes(struct parse *p, struct lm_slice value) {
    uint64_t bytes;
    bool good =
        p->times[FIELD_JSON_BYTES] == 1 && lm_http_decimal(value, (uint64_t)1 << 62, &bytes);
    p->head->json_bytes = good ? (int64_t)bytes : LM_HTTP_JSON_BAD;
}

static void keep_first(struct lm_slice *slice, struct lm_slice value) {
    if (!slice->at) *slice = value;
}

static enum field field_of(struct lm_slice name) {
    for (enum field field = 0; field < FIELDS; field++)
        if (name.bytes == fields[field].bytes &&
            lm_http_same_word(name, fields[field].name, fields[field].bytes))
            return field;
    return FIELDS;
}

/* RFC 9218: the urgency of "u=5, i"; of several the last. What is none says nothing. */
static void read_priority(struct parse *p, struct lm_slice value) {
    const char *end = value.at + value.bytes;
    for (const char *at = value.at; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const struct lm_slice member = trim(at, comma ? comma : end);
        const bool is_urgency = member.bytes >= 3 && memcmp(member.at, "u=", 2) == 0 &&
                                member.at[2] >= '0' && member.at[2] <= '7' &&
                                (member.bytes == 3 || member.at[3] == ';');
        if (is_urgency) p->head->urgency = (uint8_t)(member.at[2] - '0' + 1);
        at = comma ? comma + 1 : end;
    }
}

/* gRPC's: up to eight digits and a unit. */
static int read_timeout(struct parse *p, struct lm_slice value) {
    static const char units[] = "numSMH";
    static const uint64_t ns[] = {1, 1000, 1000000, 1000000000, 60000000000, 3600000000000};
    enum { DIGITS_MAX = 8 };
    const char *unit = value.bytes ? strchr(units, value.at[value.bytes - 1]) : NULL;
    const struct lm_slice digits = {value.at, value.bytes ? value.bytes - 1 : 0};
    uint64_t number = 0;
    if (!unit || !*unit || digits.bytes > DIGITS_MAX ||
        !lm_http_decimal(digits, UINT32_MAX, &number))
        return bad_value(p, 400, FIELD_TIMEOUT, "up to eight digits and one of H, M, S, m, u, n",
                         value);
    if (number > UINT64_MAX / ns[unit - units]) return 0; /* as good as none */
    const uint64_t us = number * ns[unit - units] / 1000;
    if (us <= UINT32_MAX) p->head->timeout_us = us ? (uint32_t)us : 1;
    return 0;
}

/* What one header alone says. 0, or a refusal. */
static int read_field(struct parse *p, enum field field, struct lm_slice value) {
    struct lm_http_head *head = p->head;
    p->times[field]++;
    switch (field) {
    case FIELD_HOST:
        if (!lm_http_host_is_valid(value))
            return bad_value(p, 400, field, "a name or an address, and maybe a port", value);
        keep_first(&head->host, value);
        return 0;
    case FIELD_CONTENT_LENGTH:
        if (!lm_http_decimal(value, INT64_MAX, &head->content_length))
            return bad_value(p, 400, field, "one decimal number below 2^63", value);
        head->has_length = true;
        return 0;
    case FIELD_TRANSFER_ENCODING: return read_transfer_encoding(p, value);
    case FIELD_CONNECTION: read_connection(p, value); return 0;
    case FIELD_EXPECT:
        if (!lm_http_same_word(value, "100-continue", 12)) keep_first(&p->expectation, value);
        return 0;
    case FIELD_JSON_BYTES: read_json_bytes(p, value); return 0;
    case FIELD_AUTHORIZATION: keep_first(&head->authorization, value); return 0;
    case FIELD_API_KEY: keep_first(&head->api_key, value); return 0;
    case FIELD_CONTENT_ENCODING: keep_first(&head->content_encoding, value); return 0;
    case FIELD_ORIGIN: keep_first(&head->origin, value); return 0;
    case FIELD_ACCEPT_ENCODING: keep_first(&head->accept_encoding, value); return 0;
    case FIELD_FETCH_SITE: keep_first(&head->fetch_site, value); return 0;
    case FIELD_PRIORITY: read_priority(p, value); return 0;
    case FIELD_TIMEOUT: return read_timeout(p, value);
    case FIELD_TRACEPARENT: keep_first(&head->traceparent, value); return 0;
    case FIELD_TRACESTATE: keep_first(&head->tracestate, value); return 0;
    case FIELD_REQUEST_ID: keep_first(&head->request_id, value); return 0;
    case FIELD_SESSION: keep_first(&head->session, value); return 0;
    case FIELD_LOAD_FORMAT: keep_first(&head->load_format, value); return 0;
    case FIELD_FORWARDED:
    case FIELD_VIA:
    case FIELD_FORWARDED_FOR:
    case FIELD_REAL_IP: head->is_forwarded = true; return 0;
    case FIELDS: break;
    }
    return 0;
}

static int header_line(struct parse *p, const char *line) {
    const char *stop = clip(p, line, LM_HTTP_LINE_BYTES_MAX + 1);
    const char *colon = resume(p, line, ':');
    while (colon < stop && lm_http_byte_is(*colon, LM_BYTE_TOKEN)) colon++;
    const char *value = NULL, *at = colon;
    if (colon < stop) {
        if (colon == line) return bad_byte(p, line, "a header's name or an empty line");
        if (*colon != ':') return bad_byte(p, colon, "a letter of a header's name or its colon");
        value = colon + 1;
        at = lm_http_plain_end(p->fresh > value ? p->fresh : value, stop, ' ', true);
    }
    if (at - line > LM_HTTP_LINE_BYTES_MAX)
        return lm_http_refuse(431, p->why, p->why_bytes,
                              "header at byte %td: expected at most %d bytes, found more",
                              line - p->bytes, LM_HTTP_LINE_BYTES_MAX);
    int end_bytes = line_end(p, at, "text or CR LF in a header's value");
    if (end_bytes <= 0) return end_bytes;
    p->headers++;
    enum field field = field_of(lm_slice_between(line, colon));
    int refusal = field < FIELDS ? read_field(p, field, trim(value, at)) : 0;
    return refusal < 0 ? refusal : (int)(at - line) + end_bytes;
}

/* Reads from `line` on, the start of one, to the end of the head. */
static int walk(struct parse *p, const char *line) {
    const char *first = p->bytes;
    if (first < p->end && *first == '\r') { /* one empty line before a request is tolerated */
        int used = line_end(p, first, "CR LF");
        if (used <= 0) return used;
        first += used;
    }
    if (line <= first) {
        int used = request_line(p, first);
        if (used <= 0) return used;
        line = first + used;
    }
    while (line < p->end) {
        bool last = *line == '\r';
        int used = last ? line_end(p, line, "CR LF") : header_line(p, line);
        if (used <= 0) return used;
        line += used;
        if (last) return (int)(line - p->bytes);
    }
    return 0;
}

/* What the whole head says. 0, or a refusal. */
static int check_head(struct parse *p) {
    struct lm_http_head *head = p->head;
    if (p->headers > LM_HTTP_HEADERS_MAX)
        return lm_http_refuse(431, p->why, p->why_bytes, "expected at most %d headers, found %u",
                              LM_HTTP_HEADERS_MAX, p->headers);
    for (enum field field = 0; field < FIELDS; field++)
        if (fields[field].once && p->times[field] > 1)
            return lm_http_refuse(400, p->why, p->why_bytes,
                                  "%s: expected it once, found it %u times", fields[field].name,
                                  p->times[field]);
    if (head->minor == 1 && p->times[FIELD_HOST] == 0)
        return lm_http_refuse(400, p->why, p->why_bytes,
                              "host: expected one with HTTP/1.1, found none");
    if (head->chunked && head->has_length)
        return lm_http_refuse(400, p->why, p->why_bytes,
                              "expected content-length or transfer-encoding, found both");
    if (head->chunked && head->minor == 0)
        return lm_http_refuse(400, p->why, p->why_bytes,
                              "transfer-encoding: expected none with HTTP/1.0, found chunked");
    if (head->minor == 1 && p->expectation.at)
        return bad_value(p, 417, FIELD_EXPECT, "100-continue", p->expectation);
    head->expect_continue = head->minor == 1 && p->times[FIELD_EXPECT] > 0;
    head->keep_alive = !p->close && (head->minor == 1 || p->keep_alive);
    return 0;
}

static void start(struct parse *p) {
    *p->head = (struct lm_http_head){.method = LM_HTTP_OTHER, .json_bytes = LM_HTTP_JSON_ABSENT};
    memset(p->times, 0, sizeof p->times);
    p->headers = 0;
    p->expectation = (struct lm_slice){0};
    p->close = p->keep_alive = false;
}

int lm_http_parse_head(const char *bytes, size_t count, size_t seen, struct lm_http_head *head_out,
                       char *why, size_t why_bytes) {
    size_t room = count < LM_HTTP_HEAD_BYTES_MAX ? count : LM_HTTP_HEAD_BYTES_MAX;
    if (seen > room) seen = room;
    /* The last byte seen may be a CR whose LF is new, hence one back. */
    struct parse p = {.bytes = bytes,
                      .end = bytes + room,
                      .fresh = seen ? bytes + seen - 1 : bytes,
                      .head = head_out,
                      .why = why,
                      .why_bytes = why_bytes};
    const char *before = seen ? memrchr(bytes, '\n', seen) : NULL;
    start(&p);
    int used = walk(&p, before ? before + 1 : bytes);
    if (used > 0 && seen > 0) {
        start(&p);
        p.fresh = bytes;
        used = walk(&p, bytes);
    }
    if (used == 0 && room == LM_HTTP_HEAD_BYTES_MAX)
        return lm_http_refuse(431, why, why_bytes, "head: expected at most %d bytes, found more",
                              LM_HTTP_HEAD_BYTES_MAX);
    if (used <= 0) return used;
    int refusal = check_head(&p);
    return refusal < 0 ? refusal : used;
}
