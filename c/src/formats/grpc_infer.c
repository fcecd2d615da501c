/* grpc_infer.c: see grpc_infer.h. */
#include "formats/grpc_infer.h"

#include <stdio.h>

#include "base/limits.h"

enum { ID = 3, PARAMETERS = 4, INPUTS = 5, OUTPUTS = 6 };             /* of a request */
enum { INPUT_NAME = 1, DATATYPE, SHAPE, INPUT_PARAMETERS, CONTENTS }; /* of an input */
enum { IN_BOOL = 1, IN_INT32, IN_INT64, IN_UINT32, IN_UINT64, IN_FLOAT, IN_DOUBLE, IN_BYTES };
#define NO_BLOB UINT64_MAX

/* Which of the typed contents a datatype is in; 0: in none. */
static const struct datatype {
    const char *name;
    uint8_t bytes, contents; /* of an element; 0: they vary */
} datatypes[] = {{"BOOL", 1, IN_BOOL},     {"INT8", 1, IN_INT32},    {"INT16", 2, IN_INT32},
                 {"INT32", 4, IN_INT32},   {"INT64", 8, IN_INT64},   {"UINT8", 1, IN_UINT32},
                 {"UINT16", 2, IN_UINT32}, {"UINT32", 4, IN_UINT32}, {"UINT64", 8, IN_UINT64},
                 {"FP16", 2, 0},           {"BF16", 2, 0},           {"FP32", 4, IN_FLOAT},
                 {"FP64", 8, IN_DOUBLE},   {"BYTES", 0, IN_BYTES}};

static bool is(const struct lm_pb_field *text, const char *word) {
    return text->value == strlen(word) && memcmp(text->bytes, word, text->value) == 0;
}

/* NULL: it has no name that is known. */
static const struct datatype *datatype_of(const struct lm_pb_field *input) {
    const struct lm_pb_field name = lm_grpc_string_of(input->bytes, input->value, DATATYPE);
    for (size_t d = 0; d < sizeof datatypes / sizeof datatypes[0]; d++)
        if (is(&name, datatypes[d].name)) return &datatypes[d];
    return NULL;
}

/* The next input of a request. */
static bool next_input(struct lm_pb_reader *reader, struct lm_pb_field *out) {
    while (lm_pb_next(reader, out))
        if (out->number == INPUTS && out->type == LM_PB_BYTES) return true;
    return false;
}

static bool is_in_region(const struct lm_pb_field *input) {
    struct lm_pb_reader reader = lm_pb_reader(input->bytes, input->value);
    struct lm_pb_field entry;
    while (lm_pb_next(&reader, &entry)) {
        if (entry.number != INPUT_PARAMETERS || entry.type != LM_PB_BYTES) continue;
        const struct lm_pb_field key = lm_grpc_string_of(entry.bytes, entry.value, LM_GRPC_MAP_KEY);
        if (is(&key, "shared_memory_region")) return true;
    }
    return false;
}

/* ---- the JSON ---- */

static const struct lm_grpc_field *input_field(uint32_t number) {
    return lm_grpc_field_numbered(&lm_grpc_infer_input, number);
}

static void put_input(struct lm_grpc_text *text, const struct lm_pb_field *input, uint64_t blob) {
    const void *bytes = input->bytes;
    const size_t count = input->value;
    lm_grpc_puts(text, "{\"name\":");
    lm_grpc_put_field(text, input_field(INPUT_NAME), bytes, count);
    lm_grpc_puts(text, ",\"datatype\":");
    lm_grpc_put_field(text, input_field(DATATYPE), bytes, count);
    lm_grpc_puts(text, ",\"shape\":");
    lm_grpc_put_field(text, input_field(SHAPE), bytes, count);
    lm_grpc_puts(text, ",\"parameters\":{");
    const uint32_t said =
        lm_grpc_put_entries(text, input_field(INPUT_PARAMETERS), bytes, count, "", NULL);
    if (blob != NO_BLOB) {
        lm_grpc_puts(text, said ? ",\"binary_data_size\":" : "\"binary_data_size\":");
        lm_grpc_put_number(text, blob);
    }
    lm_grpc_puts(text, "}}");
}

/* All before the inputs, whose list is open then. Clients of this protocol read all outputs as
 * bytes, and say so nowhere. */
static void begin_json(struct lm_grpc_text *text, const uint8_t *request, size_t bytes) {
    const struct lm_pb_field id = lm_grpc_string_of(request, bytes, ID);
    lm_grpc_puts(text, "{");
    if (id.value) {
        lm_grpc_puts(text, "\"id\":");
        lm_grpc_put_string(text, id.bytes, id.value);
        lm_grpc_puts(text, ",");
    }
    lm_grpc_puts(text, "\"parameters\":{\"binary_data_output\":true");
    (void)lm_grpc_put_entries(text, lm_grpc_field_numbered(&lm_grpc_infer_request, PARAMETERS),
                              request, bytes, ",", "triton_");
    lm_grpc_puts(text, "},\"inputs\":[");
}

static void end_json(struct lm_grpc_text *text, const uint8_t *request, size_t bytes) {
    struct lm_pb_reader reader = lm_pb_reader(request, bytes);
    struct lm_pb_field found;
    bool has_outputs = false;
    while (lm_pb_next(&reader, &found)) has_outputs = has_outputs || found.number == OUTPUTS;
    text->is_bad = text->is_bad || reader.is_bad;
    lm_grpc_puts(text, "]");
    if (has_outputs) {
        lm_grpc_puts(text, ",\"outputs\":");
        lm_grpc_put_field(text, lm_grpc_field_numbered(&lm_grpc_infer_request, OUTPUTS), request,
                          bytes);
    }
    lm_grpc_puts(text, "}");
}

static bool refuse_text(const struct lm_grpc_text *text, char *why, size_t why_bytes) {
    if (text->is_bad)
        snprintf(why, why_bytes, "expected a message ModelInferRequest, found other bytes");
    else
        snprintf(why, why_bytes, "the request's names, shapes and parameters are too long");
    return false;
}

/* ---- the fields before the tensors ---- */

bool lm_grpc_scan_head(const uint8_t *message, size_t have, size_t all, size_t *scanned,
                       uint64_t *tensor_out, size_t *begins_out) {
    const uint8_t *end = message + have;
    *tensor_out = UINT64_MAX;
    *begins_out = all;
    while (*scanned < have) {
        struct lm_pb_reader reader = lm_pb_reader(message + *scanned, have - *scanned);
        struct lm_pb_field field;
        const uint8_t *at = reader.at;
        uint64_t tag = 0;
        if (!lm_pb_varint(&at, end, &tag)) return have == all;
        if (tag == (LM_GRPC_RAW_INPUTS << 3 | LM_PB_BYTES)) {
            if (!lm_pb_varint(&at, end, tensor_out)) break;
            *begins_out = (size_t)(at - message);
            return true;
        }
        if (!lm_pb_next(&reader, &field)) { /* it is not whole, or no field at all */
            uint64_t bytes = 0;
            const bool is_long = (tag & 7) == LM_PB_BYTES && lm_pb_varint(&at, end, &bytes) &&
                                 bytes > LM_GRPC_HEAD_BYTES_MAX;
            return is_long || have == all;
        }
        *scanned = (size_t)(reader.at - message);
    }
    return have == all;
}

bool lm_grpc_wants_final(const uint8_t *head, size_t bytes) {
    struct lm_pb_reader reader = lm_pb_reader(head, bytes);
    struct lm_pb_field entry;
    bool wants = false;
    while (lm_pb_next(&reader, &entry)) {
        if (entry.number != PARAMETERS || entry.type != LM_PB_BYTES) continue;
        const struct lm_pb_field key = lm_grpc_string_of(entry.bytes, entry.value, LM_GRPC_MAP_KEY);
        const struct lm_pb_field value =
            lm_grpc_string_of(entry.bytes, entry.value, LM_GRPC_MAP_VALUE);
        if (is(&key, "triton_enable_empty_final_response")) wants = is(&value, "\x08\x01");
    }
    return wants;
}

/* Bytes of an input as its shape says; UINT64_MAX: it does not. */
static uint64_t bytes_of_shape(const struct lm_pb_field *input) {
    const struct datatype *datatype = datatype_of(input);
    struct lm_pb_reader reader = lm_pb_reader(input->bytes, input->value);
    struct lm_pb_field field;
    if (!datatype || !datatype->bytes) return UINT64_MAX;
    uint64_t bytes = datatype->bytes;
    while (lm_pb_next(&reader, &field)) {
        if (field.number != SHAPE) continue;
        const uint8_t *at = field.bytes, *end = at + field.value;
        bool is_one = field.type == LM_PB_VARINT;
        while (is_one || (field.type == LM_PB_BYTES && at < end)) {
            uint64_t size = field.value;
            if (!is_one && !lm_pb_varint(&at, end, &size)) return UINT64_MAX;
            if (__builtin_mul_overflow(bytes, size, &bytes)) return UINT64_MAX;
            is_one = false;
        }
    }
    return bytes;
}

/* Bytes of a tensor in the message, with what stands before them. */
static uint64_t framed(uint64_t bytes) {
    return 1 + lm_pb_varint_bytes(bytes) + bytes;
}

bool lm_grpc_plan(const uint8_t *head, size_t bytes, uint64_t rest, uint64_t tensor, char *json,
                  size_t room, struct lm_grpc_plan *plan_out, char *why, size_t why_bytes) {
    struct lm_grpc_text text = {.at = json, .end = json + room};
    struct lm_pb_reader reader = lm_pb_reader(head, bytes);
    struct lm_pb_field input;
    const char *before = "";
    uint64_t all = 0;
    *plan_out = (struct lm_grpc_plan){0};
    begin_json(&text, head, bytes);
    while (next_input(&reader, &input)) {
        uint64_t blob = NO_BLOB;
        if (!is_in_region(&input)) {
            if (lm_grpc_string_of(input.bytes, input.value, CONTENTS).value) return true;
            if (plan_out->blob_count == LM_GRPC_BLOBS_MAX) return true;
            blob = plan_out->blob_count == 0 ? tensor : bytes_of_shape(&input);
            if (blob > UINT32_MAX) return true;
            plan_out->blobs[plan_out->blob_count++] = (uint32_t)blob;
            all += framed(blob);
        }
        lm_grpc_puts(&text, before);
        put_input(&text, &input, blob);
        before = ",";
    }
    end_json(&text, head, bytes);
    if (text.is_bad || text.is_full) return refuse_text(&text, why, why_bytes);
    plan_out->is_plain = all == rest;
    plan_out->json_bytes = (size_t)(text.at - json);
    return true;
}

/* ---- whole messages ---- */

static bool fits(const struct datatype *datatype, uint64_t value) {
    const uint32_t bits = datatype->bytes * 8u;
    if (datatype->contents == IN_BOOL) return value <= 1;
    if (datatype->contents == IN_UINT32) return value >> bits == 0;
    if (datatype->contents != IN_INT32) return true;
    const int64_t number = (int32_t)value, most = ((int64_t)1 << (bits - 1)) - 1;
    return number <= most && number >= -most - 1;
}

/* An input's typed contents as a tensor's bytes, at `to`, or only counted where that is NULL.
 * Returns how many; UINT64_MAX: they are none of its datatype, with a sentence. */
static uint64_t take_contents(const struct lm_pb_field *input, uint8_t *to, char *why,
                              size_t why_bytes) {
    const struct lm_pb_field contents = lm_grpc_string_of(input->bytes, input->value, CONTENTS);
    const struct lm_pb_field name = lm_grpc_string_of(input->bytes, input->value, INPUT_NAME);
    const struct datatype *datatype = datatype_of(input);
    struct lm_pb_reader reader = lm_pb_reader(contents.bytes, contents.value);
    struct lm_pb_field field;
    uint64_t bytes = 0;
    while (lm_pb_next(&reader, &field)) {
        const bool is_varint = datatype && datatype->contents < IN_FLOAT;
        const uint8_t *at = field.bytes, *end = at + field.value;
        bool is_good = datatype && field.number == datatype->contents;
        if (is_good && datatype->contents == IN_BYTES) {
            const uint32_t length = (uint32_t)field.value;
            is_good = field.type == LM_PB_BYTES;
            if (is_good && to) memcpy(to + bytes, &length, sizeof length);
            if (is_good && to && length) memcpy(to + bytes + sizeof length, field.bytes, length);
            bytes += is_good ? sizeof length + length : 0;
        } else if (is_good && !is_varint) { /* packed, or one: as tensors have them */
            const size_t count = field.type == LM_PB_BYTES ? field.value : datatype->bytes;
            is_good = count % datatype->bytes == 0 && field.type != LM_PB_VARINT;
            if (is_good && to && count) memcpy(to + bytes, field.bytes, count);
            bytes += is_good ? count : 0;
        } else if (is_good) {
            bool is_one = field.type == LM_PB_VARINT;
            is_good = is_one || field.type == LM_PB_BYTES;
            while (is_good && (is_one || at < end)) {
                uint64_t value = field.value;
                is_good = (is_one || lm_pb_varint(&at, end, &value)) && fits(datatype, value);
                if (is_good && to) memcpy(to + bytes, &value, datatype->bytes);
                bytes += datatype->bytes;
                if (is_one) break;
            }
        }
        if (is_good) continue;
        snprintf(why, why_bytes,
                 "input '%.*s': contents: expected values of its datatype, found "
                 "others: FP16 and BF16 come as raw_input_contents",
                 (int)(name.value < 64 ? name.value : 64), (const char *)name.bytes);
        return UINT64_MAX;
    }
    return reader.is_bad ? UINT64_MAX : bytes;
}

/* Raw tensors, in their order. */
static bool next_raw(struct lm_pb_reader *reader, struct lm_pb_field *out) {
    while (lm_pb_next(reader, out))
        if (out->number == LM_GRPC_RAW_INPUTS && out->type == LM_PB_BYTES) return true;
    return false;
}

static enum lm_status refuse_raw(const char *found, char *why, size_t why_bytes) {
    snprintf(why, why_bytes, "raw_input_contents: expected one for each input, found %s", found);
    return LM_STATUS_BAD_REQUEST;
}

enum lm_status lm_grpc_unpack(const uint8_t *message, size_t bytes, char *to, size_t room,
                              size_t *bytes_out, size_t *json_bytes_out, char *why,
                              size_t why_bytes) {
    struct lm_grpc_text text = {.at = to, .end = to + room};
    struct lm_pb_reader inputs = lm_pb_reader(message, bytes), raws = inputs;
    struct lm_pb_field input, raw;
    const char *before = "";
    const bool has_raws = next_raw(&raws, &raw);
    raws = lm_pb_reader(message, bytes);
    snprintf(why, why_bytes, "expected a message ModelInferRequest, found other bytes");
    begin_json(&text, message, bytes);
    while (next_input(&inputs, &input)) {
        uint64_t blob = NO_BLOB;
        if (!is_in_region(&input)) {
            if (has_raws && !next_raw(&raws, &raw)) return refuse_raw("fewer", why, why_bytes);
            blob = has_raws ? raw.value : take_contents(&input, NULL, why, why_bytes);
            if (blob == UINT64_MAX) return LM_STATUS_BAD_REQUEST;
        }
        lm_grpc_puts(&text, before);
        put_input(&text, &input, blob);
        before = ",";
    }
    if (has_raws && next_raw(&raws, &raw)) return refuse_raw("more", why, why_bytes);
    end_json(&text, message, bytes);
    if (text.is_bad || text.is_full) {
        refuse_text(&text, why, why_bytes);
        return text.is_bad ? LM_STATUS_BAD_REQUEST : LM_STATUS_TOO_LARGE;
    }
    *json_bytes_out = (size_t)(text.at - to);
    size_t used = *json_bytes_out;
    inputs = raws = lm_pb_reader(message, bytes);
    while (next_input(&inputs, &input)) {
        if (is_in_region(&input)) continue;
        const bool is_raw = has_raws && next_raw(&raws, &raw);
        const uint64_t blob = is_raw ? raw.value : take_contents(&input, NULL, why, why_bytes);
        if (blob > room - used) {
            snprintf(why, why_bytes,
                     "the request's tensors are larger than any that its model "
                     "takes, or than server.max_request_bytes");
            return LM_STATUS_TOO_LARGE;
        }
        if (is_raw && blob) memcpy(to + used, raw.bytes, blob);
        if (!is_raw) (void)take_contents(&input, (uint8_t *)to + used, why, why_bytes);
        used += blob;
    }
    *bytes_out = used;
    return LM_STATUS_OK;
}
