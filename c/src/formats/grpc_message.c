/* grpc_message.c: see grpc_message.h. */
#include "formats/grpc_message.h"

#include <stdlib.h>

#include "base/limits.h"
#include "wire/http_scan.h"

struct reader {
    const char *at, *end;
    bool is_bad;
    struct lm_pb_writer *writer;
    uint64_t blob; /* what binary_data_size says, which is no parameter here */
};

/* ---- JSON ---- */

static bool is_blank(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static char peek(struct reader *r) {
    while (r->at < r->end && is_blank(*r->at)) r->at++;
    return r->at < r->end && !r->is_bad ? *r->at : '\0';
}

/* Skips `byte` where it is next. */
static bool eat(struct reader *r, char byte) {
    if (peek(r) != byte) return false;
    r->at++;
    return true;
}

static void expect(struct reader *r, char byte) {
    if (!eat(r, byte)) r->is_bad = true;
}

/* Reads a string. Returns the bytes between its quotes, with their escapes. */
static struct lm_slice quoted(struct reader *r) {
    expect(r, '"');
    const char *start = r->at;
    while (r->at < r->end && *r->at != '"') r->at += *r->at == '\\' && r->end - r->at > 1 ? 2 : 1;
    const struct lm_slice text = lm_slice_between(start, r->at);
    expect(r, '"');
    return text;
}

/* Numbers, true, false and null. */
static struct lm_slice word(struct reader *r) {
    (void)peek(r);
    const char *start = r->at;
    while (r->at < r->end && *r->at && !is_blank(*r->at) && *r->at != ',' && *r->at != ']' &&
           *r->at != '}')
        r->at++;
    if (r->at == start) r->is_bad = true;
    return lm_slice_between(start, r->at);
}

/* Skips a value, however deep. */
static void skip(struct reader *r) {
    uint32_t depth = 0;
    do {
        const char next = peek(r);
        if (next == '"') {
            (void)quoted(r);
        } else if (next == '{' || next == '[') {
            depth++;
            r->at++;
        } else if ((next == '}' || next == ']') && depth > 0) {
            depth--;
            r->at++;
        } else if ((next == ',' || next == ':') && depth > 0) {
            r->at++;
        } else {
            (void)word(r);
        }
    } while (depth > 0 && !r->is_bad);
}

static uint32_t hex(const char *digits) {
    uint32_t code = 0;
    for (int d = 0; d < 4; d++) code = code << 4 | lm_http_hex_value(digits[d]);
    return code;
}

static size_t put_utf8(uint32_t code, char out[4]) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    const size_t bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = bytes - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((bytes == 2 ? 0xc0 : bytes == 3 ? 0xe0 : 0xf0) | code);
    return bytes;
}

/* One character of such a text: its bytes in `out`. Returns how many of the text it was. */
static size_t unescape(const char *at, const char *end, char out[4], size_t *bytes_out) {
    static const char escapes[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    out[0] = *at;
    *bytes_out = 1;
    if (*at != '\\' || end - at < 2) return 1;
    const char *known = strchr(escapes, at[1]);
    out[0] = known && at[1] ? meanings[known - escapes] : at[1];
    if (at[1] != 'u' || end - at < 6) return 2;
    uint32_t code = hex(at + 2);
    const bool is_pair = (code & 0xfc00) == 0xd800 && end - at >= 12 && at[6] == '\\' &&
                         at[7] == 'u' && (hex(at + 8) & 0xfc00) == 0xdc00;
    if (is_pair)
        code = 0x10000 + ((code & 0x3ff) << 10 | (hex(at + 8) & 0x3ff));
    else if ((code & 0xf800) == 0xd800)
        code = 0xfffd;
    *bytes_out = put_utf8(code, out);
    return is_pair ? 12 : 6;
}

static void put_text(struct lm_pb_writer *writer, struct lm_slice text) {
    const char *at = text.at, *end = at + text.bytes;
    while (at < end) {
        const char *plain = memchr(at, '\\', (size_t)(end - at));
        const size_t run = (size_t)((plain ? plain : end) - at);
        char one[4];
        size_t bytes = 0;
        lm_pb_put(writer, at, run);
        at += run;
        if (at == end) return;
        at += unescape(at, end, one, &bytes);
        lm_pb_put(writer, one, bytes);
    }
}

/* ---- numbers ---- */

static uint64_t number_of(struct lm_slice text, const struct lm_grpc_field *field) {
    char digits[32];
    const size_t bytes = text.bytes < sizeof digits ? text.bytes : sizeof digits - 1;
    memcpy(digits, text.at, bytes);
    digits[bytes] = '\0';
    if (digits[0] == 't' || digits[0] == 'f') return digits[0] == 't';
    if (field->kind == LM_GRPC_DOUBLE || field->kind == LM_GRPC_FLOAT) {
        const double real = strtod(digits, NULL);
        const float single = (float)real;
        uint64_t bits = 0;
        if (field->kind == LM_GRPC_FLOAT) {
            memcpy(&bits, &single, sizeof single);
        } else {
            memcpy(&bits, &real, sizeof real);
        }
        return bits;
    }
    return digits[0] == '-' ? (uint64_t)strtoll(digits, NULL, 10) : strtoull(digits, NULL, 10);
}

static uint64_t enum_of(const struct lm_grpc_enum *values, struct lm_slice text) {
    for (uint32_t v = 0; v < values->count; v++)
        if (strlen(values->values[v]) == text.bytes &&
            memcmp(values->values[v], text.at, text.bytes) == 0)
            return v;
    return 0;
}

static void put_number(struct lm_pb_writer *writer, const struct lm_grpc_field *field,
                       uint64_t value) {
    if (field->kind == LM_GRPC_FLOAT) {
        lm_pb_put(writer, &value, 4);
    } else if (field->kind == LM_GRPC_DOUBLE) {
        lm_pb_put(writer, &value, 8);
    } else {
        lm_pb_put_varint(writer, value);
    }
}

static bool is_number(const struct lm_grpc_field *field) {
    return field->kind != LM_GRPC_STRING && field->kind != LM_GRPC_BYTES &&
           field->kind != LM_GRPC_MESSAGE;
}

static uint64_t read_number(struct reader *r, const struct lm_grpc_field *field) {
    const bool is_text = peek(r) == '"'; /* an enum's name, or an integer of 64 bits */
    const struct lm_slice text = is_text ? quoted(r) : word(r);
    if (r->is_bad) return 0;
    return field->kind == LM_GRPC_ENUM ? enum_of(field->values, text) : number_of(text, field);
}

/* ---- fields ---- */

static void put_message(struct reader *r, const struct lm_grpc_message *message);
static void put_field(struct reader *r, const struct lm_grpc_field *field);

/* The field of a message that stands for a value, which a value of JSON is. NULL: none. */
static const struct lm_grpc_field *field_of_value(struct reader *r,
                                                  const struct lm_grpc_message *message) {
    const char next = peek(r);
    const char *end = r->at;
    while (end < r->end && !strchr(",]}", *end)) end++;
    const size_t bytes = (size_t)(end - r->at);
    const bool is_real = memchr(r->at, '.', bytes) || memchr(r->at, 'e', bytes);
    for (uint32_t f = 0; f < message->count; f++) {
        const struct lm_grpc_field *field = &message->fields[f];
        const bool is_list = field->times == LM_GRPC_REPEATED;
        const bool is_text = field->kind == LM_GRPC_STRING;
        const bool is_truth = field->kind == LM_GRPC_BOOL,
                   is_double = field->kind == LM_GRPC_DOUBLE;
        if (next == '['                  ? is_list
            : next == '"'                ? is_text || is_list
            : next == 't' || next == 'f' ? is_truth
                                         : is_number(field) && !is_truth && is_double == is_real)
            return field;
    }
    return NULL;
}

static void put_one(struct reader *r, const struct lm_grpc_field *field) {
    if (is_number(field)) {
        const uint64_t value = read_number(r, field);
        lm_pb_put_tag(r->writer, field->number, lm_grpc_wire_type(field));
        put_number(r->writer, field, value);
        return;
    }
    uint8_t *start = lm_pb_begin(r->writer, field->number);
    if (field->kind != LM_GRPC_MESSAGE) {
        put_text(r->writer, quoted(r));
    } else if (!field->message->is_value) {
        put_message(r, field->message);
    } else {
        const struct lm_grpc_field *set = field_of_value(r, field->message);
        if (set) {
            put_field(r, set);
        } else {
            skip(r);
        }
    }
    lm_pb_end(r->writer, start);
}

/* An array, or one value in the place of an array of one. */
static void put_list(struct reader *r, const struct lm_grpc_field *field) {
    const bool is_array = eat(r, '[');
    uint8_t *start = is_number(field) ? lm_pb_begin(r->writer, field->number) : NULL;
    while (!r->is_bad && !(is_array && eat(r, ']'))) {
        if (start) {
            put_number(r->writer, field, read_number(r, field));
        } else {
            put_one(r, field);
        }
        if (!is_array) break;
        (void)eat(r, ',');
    }
    if (start) lm_pb_end(r->writer, start);
}

/* The string of this key in an object that stands here, which is not moved over. */
static struct lm_slice named(const struct reader *r, const char *key) {
    struct reader look = *r;
    if (!eat(&look, '{')) return (struct lm_slice){0};
    while (!look.is_bad && peek(&look) == '"') {
        const struct lm_slice name = quoted(&look);
        expect(&look, ':');
        if (name.bytes == strlen(key) && memcmp(name.at, key, name.bytes) == 0 &&
            peek(&look) == '"')
            return quoted(&look);
        skip(&look);
        if (!eat(&look, ',')) break;
    }
    return (struct lm_slice){0};
}

static bool is_blob_size(struct lm_slice key) {
    static const char name[] = "binary_data_size";
    return key.bytes == sizeof name - 1 && memcmp(key.at, name, key.bytes) == 0;
}

static void put_entry(struct reader *r, const struct lm_grpc_field *field, struct lm_slice key) {
    struct lm_grpc_field value = *field;
    value.number = LM_GRPC_MAP_VALUE;
    value.times = LM_GRPC_ONCE;
    uint8_t *start = lm_pb_begin(r->writer, field->number);
    uint8_t *name = lm_pb_begin(r->writer, LM_GRPC_MAP_KEY);
    put_text(r->writer, key);
    lm_pb_end(r->writer, name);
    put_one(r, &value);
    lm_pb_end(r->writer, start);
}

/* An object; or a list of objects, whose keys are their names. */
static void put_map(struct reader *r, const struct lm_grpc_field *field) {
    const bool is_list = eat(r, '[');
    if (!is_list) expect(r, '{');
    while (!r->is_bad && !eat(r, is_list ? ']' : '}')) {
        struct lm_slice key = is_list ? named(r, "name") : quoted(r);
        if (!is_list) expect(r, ':');
        if (r->is_bad) break;
        if (is_blob_size(key)) {
            const struct lm_slice digits = word(r);
            r->blob = r->is_bad ? 0 : strtoull(digits.at, NULL, 10);
        } else if (peek(r) == 'n') { /* null: not said */
            skip(r);
        } else {
            put_entry(r, field, key);
        }
        (void)eat(r, ',');
    }
}

static void put_field(struct reader *r, const struct lm_grpc_field *field) {
    switch ((enum lm_grpc_times)field->times) {
    case LM_GRPC_ONCE: put_one(r, field); break;
    case LM_GRPC_REPEATED: put_list(r, field); break;
    case LM_GRPC_MAP: put_map(r, field); break;
    }
}

static void put_message(struct reader *r, const struct lm_grpc_message *message) {
    expect(r, '{');
    while (!r->is_bad && !eat(r, '}')) {
        const struct lm_slice key = quoted(r);
        expect(r, ':');
        if (r->is_bad) return;
        const struct lm_grpc_field *field = lm_grpc_field_named(message, key.at, key.bytes);
        if (field && peek(r) != 'n') {
            put_field(r, field);
        } else {
            skip(r);
        }
        (void)eat(r, ',');
    }
}

/* ---- replies ---- */

bool lm_grpc_from_json(enum lm_grpc_method_index method, const char *json, size_t bytes,
                       struct lm_pb_writer *writer) {
    const struct lm_grpc_message *reply = lm_grpc_methods[method].reply;
    struct reader r = {.at = json, .end = json + bytes, .writer = writer};
    if (peek(&r) == '\0') return true; /* nothing is said, and the message has nothing */
    if (lm_grpc_methods[method].form == LM_GRPC_AS_VALUE) {
        put_field(&r, &reply->fields[0]);
    } else {
        put_message(&r, reply);
    }
    return !r.is_bad && !writer->is_full;
}

int lm_grpc_from_infer_json(const char *json, size_t bytes, struct lm_pb_writer *writer,
                            uint64_t *sizes) {
    struct reader r = {.at = json, .end = json + bytes, .writer = writer};
    int outputs = 0;
    expect(&r, '{');
    while (!r.is_bad && !eat(&r, '}')) {
        const struct lm_slice key = quoted(&r);
        expect(&r, ':');
        if (r.is_bad) return -1;
        const struct lm_grpc_field *field =
            lm_grpc_field_named(&lm_grpc_infer_response, key.at, key.bytes);
        if (field && field->kind == LM_GRPC_MESSAGE && field->times == LM_GRPC_REPEATED) {
            expect(&r, '[');
            while (!r.is_bad && !eat(&r, ']')) {
                if (outputs == LM_TENSORS_MAX) return -1;
                r.blob = 0;
                put_one(&r, field);
                sizes[outputs++] = r.blob;
                (void)eat(&r, ',');
            }
        } else if (field) {
            put_field(&r, field);
        } else {
            skip(&r);
        }
        (void)eat(&r, ',');
    }
    return r.is_bad || writer->is_full ? -1 : outputs;
}

void lm_grpc_error_text(const char *json, size_t bytes, char *out, size_t room) {
    const struct reader r = {.at = json, .end = json + bytes};
    struct lm_slice text = named(&r, "error");
    struct lm_pb_writer writer = {.at = (uint8_t *)out, .end = (uint8_t *)out + room - 1};
    if (!text.at) text = (struct lm_slice){json, bytes};
    const char *end = text.at + text.bytes;
    for (const char *at = text.at; at < end && !writer.is_full;) {
        char one[4];
        size_t count = 0;
        at += unescape(at, end, one, &count);
        lm_pb_put(&writer, one, count);
    }
    *writer.at = '\0';
}
