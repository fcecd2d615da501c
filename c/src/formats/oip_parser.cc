/* oip_parser.cc: simdjson's parser with memory of a fixed size, and its errors in our words. */
#include "formats/oip_json.h"

#include <cstdlib>
#include <new>

int lm_oip_parser_open(struct lm_oip_parser **out, size_t text_bytes_max) {
    *out = nullptr;
    if (text_bytes_max < 1 || text_bytes_max > simdjson::SIMDJSON_MAXSIZE_BYTES) {
        return lm_error(LUMEN_E_INVALID, "JSON: expected a limit of 1 to %zu bytes, found %zu",
                        simdjson::SIMDJSON_MAXSIZE_BYTES, text_bytes_max);
    }
    /* Below a minimum of its own simdjson would allocate with the first text. */
    size_t capacity = text_bytes_max < LM_OIP_PADDING ? (size_t)LM_OIP_PADDING : text_bytes_max;
    lm_oip_parser *parser = new (std::nothrow) lm_oip_parser(capacity);
    if (parser) {
        parser->regions = nullptr;
        parser->rest = (char *)malloc(capacity + LM_OIP_PADDING);
    }
    if (!parser || !parser->rest || parser->json.allocate(capacity, LM_JSON_DEPTH_MAX) ||
        parser->json.doc.allocate(capacity)) {
        lm_oip_parser_close(parser);
        return lm_error(LUMEN_E_NOMEM, "no memory to read JSON of up to %zu bytes", capacity);
    }
    *out = parser;
    return 0;
}

void lm_oip_parser_close(struct lm_oip_parser *parser) {
    if (parser) free(parser->rest);
    delete parser;
}

void lm_oip_parser_share(struct lm_oip_parser *parser, struct lm_shm_regions *regions) {
    parser->regions = regions;
}

namespace {

const char *parse_error(simdjson::error_code code) {
    switch (code) {
    case simdjson::DEPTH_ERROR: return "it is nested too deep";
    case simdjson::NUMBER_ERROR: return "a number is malformed or too large for 64 bits";
    case simdjson::STRING_ERROR: return "a string has a malformed escape";
    case simdjson::UNESCAPED_CHARS: return "a string holds a control character";
    case simdjson::UNCLOSED_STRING: return "a string has no end";
    case simdjson::T_ATOM_ERROR:
    case simdjson::F_ATOM_ERROR:
    case simdjson::N_ATOM_ERROR: return "a word is neither true nor false nor null";
    default: return "a bracket, a comma, a colon or a value is missing or misplaced";
    }
}

bool is_space(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* simdjson does not say where the text is no UTF-8. */
bool wrong_utf8(const char *text, size_t bytes, const lm_oip::complaint &say) {
    size_t at = 0;
    for (size_t taken; at < bytes && (taken = lm_utf8_bytes(text + at, bytes - at)) > 0;)
        at += taken;
    return say.wrong("the body is not JSON: byte %zu: expected UTF-8, found 0x%02x", at,
                     at < bytes ? (uint8_t)text[at] : 0);
}

/* Anything but an object is refused before simdjson sees it, which would allocate for a number. */
bool begins_object(const char *text, size_t bytes, const lm_oip::complaint &say) {
    size_t start = 0;
    while (start < bytes && is_space(text[start])) start++;
    if (start == bytes) return say.wrong("the body is not JSON: it is empty");
    if (text[start] == '{') return true;
    const bool is_utf16 = bytes - start >= 2 && (memcmp(text + start, "\xff\xfe", 2) == 0 ||
                                                 memcmp(text + start, "\xfe\xff", 2) == 0);
    return say.wrong("the body is no JSON object: byte %zu: expected '{', found %s0x%02x", start,
                     is_utf16 ? "UTF-16 where UTF-8 is due, " : "", (uint8_t)text[start]);
}

/* Copies the text with empty arrays for those that were found. Returns its length. */
size_t take_out(struct lm_oip_parser *parser, const char *text, size_t bytes) {
    size_t used = 0;
    const char *from = text;
    for (uint32_t i = 0; i < parser->found_count; i++) {
        const struct lm_oip_data &data = parser->found[i];
        const size_t before = (size_t)(data.text + 1 - from);
        memcpy(parser->rest + used, from, before);
        used += before;
        from = data.text + data.bytes - 1;
    }
    const size_t after = (size_t)(text + bytes - from);
    memcpy(parser->rest + used, from, after);
    return used + after;
}

} // namespace

enum lm_status lm_oip::parse(struct lm_oip_parser *parser, finder find, const char *text,
                             size_t bytes, object *root, const complaint &say) {
    if (bytes > parser->json.capacity()) {
        say.wrong("the JSON is too large: expected at most %zu bytes, found %zu",
                  parser->json.capacity(), bytes);
        return LM_STATUS_TOO_LARGE;
    }
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte order mark: RFC 8259 8.1 */
        text += 3;
        bytes -= 3;
    }
    if (!begins_object(text, bytes, say)) return LM_STATUS_BAD_REQUEST;
    const char *whole = text;
    const size_t whole_bytes = bytes;
    parser->found_count = find(text, bytes, parser->found);
    if (parser->found_count) {
        bytes = take_out(parser, text, bytes);
        text = parser->rest;
    }
    simdjson::error_code code = parser->json.parse(text, bytes, false).get(*root);
    if (code == simdjson::SUCCESS) return LM_STATUS_OK;
    if (code == simdjson::UTF8_ERROR) {
        wrong_utf8(whole, whole_bytes, say);
    } else {
        say.wrong("the body is not JSON: %s", parse_error(code));
    }
    return LM_STATUS_BAD_REQUEST;
}
