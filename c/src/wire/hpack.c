/* hpack.c: see hpack.h. Runs on I/O threads. */
#include "wire/hpack.h"

#include <stdio.h>
#include <string.h>

#include "wire/hpack_text.h"

/* RFC 7541, appendix A: entry n is at n - 1. */
#define FIELD(name, value) {{name, sizeof name - 1}, {value, sizeof value - 1}}
static const struct lm_hpack_field constants[] = {
    FIELD(":authority", ""),
    FIELD(":method", "GET"),
    FIELD(":method", "POST"),
    FIELD(":path", "/"),
    FIELD(":path", "/index.html"),
    FIELD(":scheme", "http"),
    FIELD(":scheme", "https"),
    FIELD(":status", "200"),
    FIELD(":status", "204"),
    FIELD(":status", "206"),
    FIELD(":status", "304"),
    FIELD(":status", "400"),
    FIELD(":status", "404"),
    FIELD(":status", "500"),
    FIELD("accept-charset", ""),
    FIELD("accept-encoding", "gzip, deflate"),
    FIELD("accept-language", ""),
    FIELD("accept-ranges", ""),
    FIELD("accept", ""),
    FIELD("access-control-allow-origin", ""),
    FIELD("age", ""),
    FIELD("allow", ""),
    FIELD("authorization", ""),
    FIELD("cache-control", ""),
    FIELD("content-disposition", ""),
    FIELD("content-encoding", ""),
    FIELD("content-language", ""),
    FIELD("content-length", ""),
    FIELD("content-location", ""),
    FIELD("content-range", ""),
    FIELD("content-type", ""),
    FIELD("cookie", ""),
    FIELD("date", ""),
    FIELD("etag", ""),
    FIELD("expect", ""),
    FIELD("expires", ""),
    FIELD("from", ""),
    FIELD("host", ""),
    FIELD("if-match", ""),
    FIELD("if-modified-since", ""),
    FIELD("if-none-match", ""),
    FIELD("if-range", ""),
    FIELD("if-unmodified-since", ""),
    FIELD("last-modified", ""),
    FIELD("link", ""),
    FIELD("location", ""),
    FIELD("max-forwards", ""),
    FIELD("proxy-authenticate", ""),
    FIELD("proxy-authorization", ""),
    FIELD("range", ""),
    FIELD("referer", ""),
    FIELD("refresh", ""),
    FIELD("retry-after", ""),
    FIELD("server", ""),
    FIELD("set-cookie", ""),
    FIELD("strict-transport-security", ""),
    FIELD("transfer-encoding", ""),
    FIELD("user-agent", ""),
    FIELD("vary", ""),
    FIELD("via", ""),
    FIELD("www-authenticate", ""),
};
#undef FIELD

enum { CONSTANTS = sizeof constants / sizeof constants[0], INTEGER_MAX = 1 << 24 };

/* A block that is being read. */
struct block {
    struct lm_hpack *hpack;
    const uint8_t *at, *end;
    struct lm_hpack_fields *out;
    bool is_huge; /* the field has a string that is longer than any table */
    char *why;
    size_t why_bytes;
};

static bool malformed(const struct block *b, const char *why) {
    snprintf(b->why, b->why_bytes, "header block: %s", why);
    return false;
}

/* ---- the dynamic table ---- */

static void evict_to(struct lm_hpack_table *table, size_t bytes) {
    while (table->count > 0 && table->used > bytes) {
        const uint32_t oldest =
            ((uint32_t)table->next + LM_HPACK_ENTRIES - table->count) % LM_HPACK_ENTRIES;
        table->used -= (uint16_t)(table->entries[oldest].name_bytes +
                                  table->entries[oldest].value_bytes + LM_HPACK_OVERHEAD);
        table->count--;
    }
}

/* Copies to or from the ring of bytes; returns where the next ones are. */
static uint16_t put_bytes(struct lm_hpack_table *table, uint16_t at, struct lm_slice text) {
    const size_t left = LM_HPACK_TABLE_BYTES - at, first = text.bytes < left ? text.bytes : left;
    if (text.bytes == 0) return at;
    memcpy(table->bytes + at, text.at, first);
    memcpy(table->bytes, text.at + first, text.bytes - first);
    return (uint16_t)((at + text.bytes) % LM_HPACK_TABLE_BYTES);
}

static void get_bytes(const struct lm_hpack_table *table, uint16_t at, char *to, size_t bytes) {
    const size_t left = LM_HPACK_TABLE_BYTES - at, first = bytes < left ? bytes : left;
    memcpy(to, table->bytes + at, first);
    memcpy(to + first, table->bytes, bytes - first);
}

/* A field that is larger than the table empties it. */
static void keep(struct block *b, const struct lm_hpack_field *field) {
    struct lm_hpack_table *table = b->hpack->table;
    const size_t size = b->hpack->size;
    if (!table) return;
    const size_t needed = field->name.bytes + field->value.bytes + LM_HPACK_OVERHEAD;
    const bool fits = !b->is_huge && needed <= size;
    evict_to(table, fits ? size - needed : 0);
    if (!fits) return;
    table->entries[table->next].at = table->at;
    table->entries[table->next].name_bytes = (uint16_t)field->name.bytes;
    table->entries[table->next].value_bytes = (uint16_t)field->value.bytes;
    table->at = put_bytes(table, put_bytes(table, table->at, field->name), field->value);
    table->next = (uint16_t)((table->next + 1) % LM_HPACK_ENTRIES);
    table->count++;
    table->used += (uint16_t)needed;
}

/* ---- strings ---- */

enum part { PART_NAME, PART_VALUE };

/* Memory for a string: among the fields, or beside them, where it lives as long as its field is
 * looked at. */
static char *room_for(struct block *b, enum part part, size_t bytes) {
    struct lm_hpack_fields *out = b->out;
    if (bytes > sizeof out->room - out->used) out->too_large = true;
    return out->too_large ? out->beside[part] : out->room + out->used;
}

static struct lm_slice took(struct block *b, char *at, size_t bytes) {
    if (!b->out->too_large) b->out->used += bytes;
    return (struct lm_slice){at, bytes};
}

/* The dynamic table's entry, whose bytes another one may take. */
static void copy_entry(struct block *b, uint32_t age, bool with_value,
                       struct lm_hpack_field *field) {
    const struct lm_hpack_table *table = b->hpack->table;
    const uint32_t at = ((uint32_t)table->next + LM_HPACK_ENTRIES - 1 - age) % LM_HPACK_ENTRIES;
    const size_t name_bytes = table->entries[at].name_bytes;
    const size_t value_bytes = table->entries[at].value_bytes;
    const uint16_t start = table->entries[at].at;
    char *name = room_for(b, PART_NAME, name_bytes);
    get_bytes(table, start, name, name_bytes);
    field->name = took(b, name, name_bytes);
    if (!with_value) return;
    char *value = room_for(b, PART_VALUE, value_bytes);
    get_bytes(table, (uint16_t)((start + name_bytes) % LM_HPACK_TABLE_BYTES), value, value_bytes);
    field->value = took(b, value, value_bytes);
}

static bool find_entry(struct block *b, uint32_t index, bool with_value,
                       struct lm_hpack_field *field) {
    if (index == 0) return malformed(b, "expected an index from 1 on, found 0");
    if (index <= CONSTANTS) {
        field->name = constants[index - 1].name;
        if (with_value) field->value = constants[index - 1].value;
        return true;
    }
    const struct lm_hpack_table *table = b->hpack->table;
    if (!table || index - CONSTANTS > table->count)
        return malformed(b, "an index is beyond the table");
    copy_entry(b, index - CONSTANTS - 1, with_value, field);
    return true;
}

static bool read_integer(struct block *b, uint32_t prefix_bits, uint32_t *value_out) {
    const uint32_t most = (1u << prefix_bits) - 1;
    uint32_t shift = 0, value = *b->at++ & most;
    if (value == most) {
        uint8_t byte;
        do {
            if (b->at == b->end) return malformed(b, "it ends within a number");
            byte = *b->at++;
            if (shift > 21) return malformed(b, "a number is too large");
            value += (uint32_t)(byte & 0x7f) << shift;
            shift += 7;
        } while (byte & 0x80);
    }
    if (value > INTEGER_MAX) return malformed(b, "a number is too large");
    *value_out = value;
    return true;
}

/* Huffman's code. One that is longer than any table matters no more. */
static bool read_coded(struct block *b, enum part part, const uint8_t *at, size_t bytes,
                       struct lm_slice *text_out) {
    struct lm_hpack_fields *out = b->out;
    char *room = room_for(b, part, 0);
    ptrdiff_t found = LM_HPACK_TEXT_FULL;
    if (!out->too_large) found = lm_hpack_text(at, bytes, room, sizeof out->room - out->used);
    if (found == LM_HPACK_TEXT_FULL) {
        out->too_large = true;
        room = out->beside[part];
        found = lm_hpack_text(at, bytes, room, sizeof out->beside[part]);
    }
    if (found == LM_HPACK_TEXT_BAD) return malformed(b, "a string is not Huffman's code");
    b->is_huge = b->is_huge || found == LM_HPACK_TEXT_FULL;
    *text_out = took(b, room, found < 0 ? 0 : (size_t)found);
    return true;
}

static bool read_string(struct block *b, enum part part, struct lm_slice *text_out) {
    if (b->at == b->end) return malformed(b, "it ends before a string");
    const bool is_coded = *b->at & 0x80;
    uint32_t bytes;
    if (!read_integer(b, 7, &bytes)) return false;
    if (bytes > (size_t)(b->end - b->at)) return malformed(b, "it ends within a string");
    const uint8_t *at = b->at;
    b->at += bytes;
    *text_out = (struct lm_slice){(const char *)at, bytes};
    if (!is_coded) return true;
    return read_coded(b, part, at, bytes, text_out);
}

/* ---- fields ---- */

static void add(struct block *b, const struct lm_hpack_field *field) {
    struct lm_hpack_fields *out = b->out;
    out->bytes += field->name.bytes + field->value.bytes + LM_HPACK_OVERHEAD;
    if (out->count == LM_HTTP_HEADERS_MAX || out->bytes > LM_HTTP_HEAD_BYTES_MAX)
        out->too_large = true;
    if (!out->too_large) out->list[out->count++] = *field;
}

static bool resize(struct block *b) {
    uint32_t size;
    if (!read_integer(b, 5, &size)) return false;
    if (size > b->hpack->limit)
        return malformed(b, "the table's size is above what the server allows");
    b->hpack->size = (uint16_t)size;
    if (b->hpack->table) evict_to(b->hpack->table, size);
    return true;
}

/* A field with an index for its name, or its name; and its value. */
static bool read_literal(struct block *b, uint32_t prefix_bits, bool is_kept) {
    struct lm_hpack_field field = {0};
    uint32_t index;
    if (!read_integer(b, prefix_bits, &index)) return false;
    bool is_good =
        index ? find_entry(b, index, false, &field) : read_string(b, PART_NAME, &field.name);
    if (!is_good || !read_string(b, PART_VALUE, &field.value)) return false;
    if (is_kept) keep(b, &field);
    add(b, &field);
    return true;
}

static bool read_indexed(struct block *b) {
    struct lm_hpack_field field = {0};
    uint32_t index;
    if (!read_integer(b, 7, &index) || !find_entry(b, index, true, &field)) return false;
    add(b, &field);
    return true;
}

bool lm_hpack_decode(struct lm_hpack *hpack, const uint8_t *block, size_t bytes,
                     struct lm_hpack_fields *out, char *why, size_t why_bytes) {
    struct block b = {.hpack = hpack,
                      .at = block,
                      .end = block + bytes,
                      .out = out,
                      .why = why,
                      .why_bytes = why_bytes};
    out->count = 0;
    out->too_large = false;
    out->bytes = out->used = 0;
    for (bool has_fields = false; b.at < b.end;) {
        const uint8_t first = *b.at;
        const bool is_size = (first & 0xe0) == 0x20;
        b.is_huge = false;
        if (is_size && has_fields) return malformed(&b, "the table's size changes behind a field");
        bool is_good = is_size                  ? resize(&b)
                       : (first & 0x80)         ? read_indexed(&b)
                       : (first & 0xc0) == 0x40 ? read_literal(&b, 6, true)
                                                : read_literal(&b, 4, false);
        if (!is_good) return false;
        has_fields = has_fields || !is_size;
    }
    return true;
}

struct lm_hpack_table *lm_hpack_give_table(struct lm_hpack *hpack) {
    struct lm_hpack_table *table = hpack->table;
    *hpack = (struct lm_hpack){0};
    if (table) *table = (struct lm_hpack_table){0};
    return table;
}
