/* grpc_json.c: see grpc_json.h. A message's fields are looked for one after the other, each through
 * the whole of it: tables are short, and so are the messages that come here.
 */
#include "formats/grpc_json.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>

#include "base/json_text.h"

void lm_grpc_put(struct lm_grpc_text *text, const char *bytes, size_t count) {
    text->is_full = text->is_full || count > (size_t)(text->end - text->at);
    if (text->is_full || count == 0) return;
    memcpy(text->at, bytes, count);
    text->at += count;
}

void lm_grpc_puts(struct lm_grpc_text *text, const char *words) {
    lm_grpc_put(text, words, strlen(words));
}

void lm_grpc_put_string(struct lm_grpc_text *text, const void *bytes, size_t count) {
    size_t written = 0;
    lm_grpc_puts(text, "\"");
    if (text->is_full) return;
    const bool fits =
        lm_json_escape(bytes, count, text->at, (size_t)(text->end - text->at), &written);
    text->is_full = !fits;
    text->at += written;
    lm_grpc_puts(text, "\"");
}

void lm_grpc_put_number(struct lm_grpc_text *text, uint64_t number) {
    char digits[24];
    size_t first = sizeof digits;
    do {
        digits[--first] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    lm_grpc_put(text, digits + first, sizeof digits - first);
}

static void put_signed(struct lm_grpc_text *text, int64_t number) {
    if (number < 0) lm_grpc_puts(text, "-");
    lm_grpc_put_number(text, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

static void put_real(struct lm_grpc_text *text, double number) {
    char digits[40];
    text->is_bad = text->is_bad || !isfinite(number); /* JSON cannot say it */
    lm_grpc_put(text, digits, (size_t)snprintf(digits, sizeof digits, "%.17g", number));
}

static void put_base64(struct lm_grpc_text *text, const void *bytes, size_t count) {
    const size_t room = (size_t)(text->end - text->at);
    const size_t needed = sodium_base64_encoded_len(count, sodium_base64_VARIANT_ORIGINAL);
    lm_grpc_puts(text, "\"");
    text->is_full = text->is_full || needed > room;
    if (text->is_full) return;
    sodium_bin2base64(text->at, needed, bytes, count, sodium_base64_VARIANT_ORIGINAL);
    text->at += needed - 1; /* which is where it is terminated */
    lm_grpc_puts(text, "\"");
}

static void put_value_message(struct lm_grpc_text *text, const struct lm_grpc_message *message,
                              const void *bytes, size_t count);

static void put_value(struct lm_grpc_text *text, const struct lm_grpc_field *field,
                      const struct lm_pb_field *value) {
    const uint64_t number = value->value;
    const uint32_t half = (uint32_t)number;
    float single;
    double real;
    memcpy(&single, &half, sizeof single);
    memcpy(&real, &number, sizeof real);
    switch ((enum lm_grpc_kind)field->kind) {
    case LM_GRPC_STRING: lm_grpc_put_string(text, value->bytes, number); break;
    case LM_GRPC_BYTES: put_base64(text, value->bytes, number); break;
    case LM_GRPC_BOOL: lm_grpc_puts(text, number ? "true" : "false"); break;
    case LM_GRPC_INT32: put_signed(text, (int32_t)number); break;
    case LM_GRPC_INT64: put_signed(text, (int64_t)number); break;
    case LM_GRPC_UINT32:
    case LM_GRPC_ENUM: lm_grpc_put_number(text, half); break;
    case LM_GRPC_UINT64: lm_grpc_put_number(text, number); break;
    case LM_GRPC_FLOAT: put_real(text, (double)single); break;
    case LM_GRPC_DOUBLE: put_real(text, real); break;
    case LM_GRPC_MESSAGE: put_value_message(text, field->message, value->bytes, number); break;
    }
}

static void check(struct lm_grpc_text *text, const struct lm_pb_reader *reader) {
    text->is_bad = text->is_bad || reader->is_bad;
}

/* All of a field's values: numbers may come packed, many in one. */
static void put_list(struct lm_grpc_text *text, const struct lm_grpc_field *field,
                     const void *bytes, size_t count) {
    struct lm_pb_reader reader = lm_pb_reader(bytes, count);
    struct lm_pb_field found;
    const char *before = "";
    const uint8_t type = lm_grpc_wire_type(field);
    lm_grpc_puts(text, "[");
    while (lm_pb_next(&reader, &found) && !text->is_full) {
        if (found.number != field->number) continue;
        if (found.type == type) {
            lm_grpc_puts(text, before);
            put_value(text, field, &found);
            before = ",";
            continue;
        }
        const uint8_t *at = found.bytes, *end = at + found.value;
        text->is_bad = text->is_bad || found.type != LM_PB_BYTES || type != LM_PB_VARINT;
        while (!text->is_bad && !text->is_full && at < end) {
            struct lm_pb_field one = {.type = LM_PB_VARINT};
            text->is_bad = !lm_pb_varint(&at, end, &one.value);
            lm_grpc_puts(text, before);
            put_value(text, field, &one);
            before = ",";
        }
    }
    check(text, &reader);
    lm_grpc_puts(text, "]");
}

uint32_t lm_grpc_put_entries(struct lm_grpc_text *text, const struct lm_grpc_field *field,
                             const void *bytes, size_t count, const char *before, const char *but) {
    struct lm_pb_reader reader = lm_pb_reader(bytes, count);
    static const char binary[] = "binary_data";
    struct lm_pb_field entry;
    struct lm_grpc_field value = *field;
    uint32_t written = 0;
    value.number = LM_GRPC_MAP_VALUE;
    value.times = LM_GRPC_ONCE;
    while (lm_pb_next(&reader, &entry) && !text->is_full) {
        if (entry.number != field->number || entry.type != LM_PB_BYTES) continue;
        const struct lm_pb_field key = lm_grpc_string_of(entry.bytes, entry.value, LM_GRPC_MAP_KEY);
        /* How tensors are sent is no question here: they are never JSON. */
        if (field->message == &lm_grpc_infer_parameter && key.value >= sizeof binary - 1 &&
            memcmp(key.bytes, binary, sizeof binary - 1) == 0)
            continue;
        if (but && key.value >= strlen(but) && memcmp(key.bytes, but, strlen(but)) == 0) continue;
        lm_grpc_puts(text, before);
        lm_grpc_put_string(text, key.bytes, key.value);
        lm_grpc_puts(text, ":");
        lm_grpc_put_field(text, &value, entry.bytes, entry.value);
        before = ",";
        written++;
    }
    check(text, &reader);
    return written;
}

/* The last one that is there; what is not there is as its kind's zero. */
static void put_once(struct lm_grpc_text *text, const struct lm_grpc_field *field,
                     const void *bytes, size_t count) {
    struct lm_pb_reader reader = lm_pb_reader(bytes, count);
    struct lm_pb_field found, last = {.bytes = (const uint8_t *)""};
    while (lm_pb_next(&reader, &found)) {
        if (found.number != field->number) continue;
        text->is_bad = text->is_bad || found.type != lm_grpc_wire_type(field);
        last = found;
    }
    check(text, &reader);
    if (!text->is_bad) put_value(text, field, &last);
}

void lm_grpc_put_field(struct lm_grpc_text *text, const struct lm_grpc_field *field,
                       const void *bytes, size_t count) {
    switch ((enum lm_grpc_times)field->times) {
    case LM_GRPC_ONCE: put_once(text, field, bytes, count); break;
    case LM_GRPC_REPEATED: put_list(text, field, bytes, count); break;
    case LM_GRPC_MAP:
        lm_grpc_puts(text, "{");
        (void)lm_grpc_put_entries(text, field, bytes, count, "", NULL);
        lm_grpc_puts(text, "}");
        break;
    }
}

/* The one field of such a message that is set. */
static void put_value_message(struct lm_grpc_text *text, const struct lm_grpc_message *message,
                              const void *bytes, size_t count) {
    struct lm_pb_reader reader = lm_pb_reader(bytes, count);
    struct lm_pb_field found;
    const struct lm_grpc_field *set = NULL;
    if (!message->is_value) {
        lm_grpc_put_message(text, message, bytes, count, NULL);
        return;
    }
    while (lm_pb_next(&reader, &found)) {
        const struct lm_grpc_field *field = lm_grpc_field_numbered(message, found.number);
        if (field) set = field;
    }
    check(text, &reader);
    if (set && !text->is_bad) {
        lm_grpc_put_field(text, set, bytes, count);
    } else {
        lm_grpc_puts(text, "null");
    }
}

void lm_grpc_put_message(struct lm_grpc_text *text, const struct lm_grpc_message *message,
                         const void *bytes, size_t count, const char *const *but) {
    const char *before = "";
    uint64_t there = 0; /* a bit for each field's number */
    struct lm_pb_reader reader = lm_pb_reader(bytes, count);
    struct lm_pb_field found;
    while (lm_pb_next(&reader, &found))
        if (found.number < 64) there |= (uint64_t)1 << found.number;
    check(text, &reader);
    lm_grpc_puts(text, "{");
    for (uint32_t f = 0; f < message->count && !text->is_bad && !text->is_full; f++) {
        const struct lm_grpc_field *field = &message->fields[f];
        const char *const *name = but;
        while (name && *name && strcmp(*name, field->name) != 0) name++;
        if ((name && *name) || !(there >> field->number & 1)) continue;
        lm_grpc_puts(text, before);
        lm_grpc_put_string(text, field->name, strlen(field->name));
        lm_grpc_puts(text, ":");
        lm_grpc_put_field(text, field, bytes, count);
        before = ",";
    }
    lm_grpc_puts(text, "}");
}

struct lm_pb_field lm_grpc_string_of(const void *bytes, size_t count, uint32_t number) {
    struct lm_pb_reader reader = lm_pb_reader(bytes, count);
    struct lm_pb_field found, last = {.bytes = (const uint8_t *)""};
    while (lm_pb_next(&reader, &found))
        if (found.number == number && found.type == LM_PB_BYTES) last = found;
    return last;
}
