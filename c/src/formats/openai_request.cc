/* openai_request.cc: see openai_request.h. simdjson's first stage alone, which finds where values
 * begin and checks UTF-8 and strings: what it points at is walked on the outermost level, and
 * passed over below it. */
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "base/cxx.h"
extern "C" {
#include "base/error.h"
#include "base/limits.h"
#include "formats/openai_request.h"
}
#include "formats/json_dom.h"
#include "formats/oip_json.h"

using simdjson::internal::dom_parser_implementation;

struct lm_openai_parser {
    std::unique_ptr<dom_parser_implementation> stages;
    size_t capacity;
    char name[LM_NAME_BYTES_MAX]; /* of the model */
};

int lm_openai_parser_open(struct lm_openai_parser **out, size_t text_bytes_max) {
    *out = nullptr;
    if (text_bytes_max < 1 || text_bytes_max > simdjson::SIMDJSON_MAXSIZE_BYTES)
        return lm_error(LUMEN_E_INVALID, "JSON: expected a limit of 1 to %zu bytes, found %zu",
                        simdjson::SIMDJSON_MAXSIZE_BYTES, text_bytes_max);
    lm_openai_parser *parser = new (std::nothrow) lm_openai_parser{};
    if (!parser || simdjson::get_active_implementation()->create_dom_parser_implementation(
                       text_bytes_max, LM_JSON_DEPTH_MAX, parser->stages)) {
        delete parser;
        return lm_error(LUMEN_E_NOMEM, "no memory to read JSON of up to %zu bytes", text_bytes_max);
    }
    parser->capacity = text_bytes_max;
    *out = parser;
    return 0;
}

void lm_openai_parser_close(struct lm_openai_parser *parser) {
    delete parser;
}

namespace {

using lm_oip::complaint;

/* A text, and which of the places where its values begin comes next. */
struct walk {
    const char *text;
    const uint32_t *places;
    uint32_t count, at;
    const complaint &say;
    uint64_t string_bytes; /* of those that were passed */

    char now() const {
        return at < count ? text[places[at]] : '\0';
    }
    uint32_t place() const {
        return places[at < count ? at : count - 1];
    }
    uint32_t next_place() const {
        return places[at + 1 < count ? at + 1 : count - 1];
    }
    bool wrong(const char *expected) const {
        return say.wrong("the body is not JSON: byte %u: expected %s", place(), expected);
    }
};

/* Behind the value that begins here. */
bool pass(walk &w) {
    uint32_t depth = 0;
    do {
        const char byte = w.now();
        if (byte == '{' || byte == '[') depth++;
        if (byte == '}' || byte == ']') {
            if (depth == 0) return w.wrong("a value");
            depth--;
        }
        if (byte == '"' && memcmp(w.text + w.place(), "\"data:", 6) != 0)
            w.string_bytes += w.next_place() - w.place();
        if (byte == '\0' || depth > LM_JSON_DEPTH_MAX)
            return byte ? w.wrong("fewer objects and arrays within each other")
                        : w.wrong("the end of the value");
        w.at++;
    } while (depth > 0);
    return true;
}

/* The bytes of the string that begins at a quote, both quotes among them. Its end is there. */
size_t string_bytes(const char *text) {
    size_t at = 1;
    while (text[at] != '"') at += text[at] == '\\' ? 2 : 1;
    return at + 1;
}

/* Writes what an escape stands for, which begins behind its backslash. Returns the bytes that were
 * read; 0: it is none, or stands for no character of ASCII, as names of models have them. */
size_t unescape(const char *at, const char *end, char *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (const char *found = *at ? strchr(from, *at) : nullptr) {
        *out = to[found - from];
        return 1;
    }
    if (*at != 'u' || end - at < 5) return 0;
    unsigned value = 0;
    for (int d = 1; d < 5; d++) {
        const char digit = at[d];
        const bool is_digit = digit >= '0' && digit <= '9';
        const char letter = (char)(digit | 0x20);
        if (!is_digit && !(letter >= 'a' && letter <= 'f')) return 0;
        value = value * 16 + (unsigned)(is_digit ? digit - '0' : letter - 'a' + 10);
    }
    *out = (char)value;
    return value > 0 && value < 0x80 ? 5 : 0;
}

/* The name of a model, which may be longer than any that there is. */
bool read_name(walk &w, lm_openai_parser *parser, lm_openai_request *request) {
    if (request->model) return w.say.wrong("model: expected one name, found the field twice");
    if (w.now() != '"') return w.say.wrong("model: expected a string");
    const char *text = w.text + w.place();
    request->name_at = w.place();
    request->name_bytes = string_bytes(text);
    const char *at = text + 1, *end = text + request->name_bytes - 1;
    size_t used = 0;
    for (; at < end && used < sizeof parser->name - 1; used++) {
        if (*at != '\\') {
            parser->name[used] = *at++;
            continue;
        }
        const size_t read = unescape(at + 1, end, &parser->name[used]);
        if (!read) return w.say.wrong("model: an escape in its name is malformed");
        at += 1 + read;
    }
    parser->name[used] = '\0';
    request->model = parser->name;
    request->model_bytes = at < end ? sizeof parser->name : used; /* of none that is served */
    return true;
}

/* A number of tokens or of answers, below 2^32; budgets depend on it, so 1e3 is a thousand, and a
 * fraction is the next whole number. 0: it is none, which the upstream may judge. */
uint64_t read_count(const walk &w) {
    const char *at = w.text + w.place();
    const size_t bytes = w.next_place() - w.place();
    char number[64] = "";
    if (bytes >= sizeof number) return UINT32_MAX; /* nobody writes one so */
    memcpy(number, at, bytes);
    const double value = strtod(number, nullptr);
    if (!(value > 0)) return 0;
    return value < UINT32_MAX ? (uint64_t)std::ceil(value) : UINT32_MAX;
}

/* Of several statements readers do not agree on one: the largest counts. */
void raise_to(uint64_t *count, uint64_t value) {
    if (value > *count) *count = value;
}

bool is_key(const char *key, size_t bytes, const char *name) {
    return bytes == strlen(name) + 2 && memcmp(key + 1, name, bytes - 2) == 0;
}

bool read_field(walk &w, lm_openai_parser *parser, lm_openai_request *request) {
    if (w.now() != '"') return w.wrong("a field's name");
    const char *key = w.text + w.place();
    const size_t bytes = string_bytes(key);
    /* Readers do not agree on which of two fields counts: there is only one way to write each. */
    if (memchr(key, '\\', bytes))
        return w.say.wrong("byte %u: expected a field's name without escapes", w.place());
    w.at++;
    if (w.now() != ':') return w.wrong("a colon");
    w.at++;
    if (is_key(key, bytes, "model") && !read_name(w, parser, request)) return false;
    if (is_key(key, bytes, "stream")) request->streams = w.now() == 't';
    if (is_key(key, bytes, "max_tokens") || is_key(key, bytes, "max_completion_tokens") ||
        is_key(key, bytes, "max_output_tokens"))
        raise_to(&request->tokens_max, read_count(w));
    if (is_key(key, bytes, "n") || is_key(key, bytes, "best_of"))
        raise_to(&request->answers, read_count(w));
    if (is_key(key, bytes, "stream_options")) request->has_stream_options = true;
    return pass(w);
}

bool read_object(walk &w, lm_openai_parser *parser, lm_openai_request *request) {
    if (w.now() != '{') return w.say.wrong("the body is no JSON object: expected '{'");
    w.at++;
    request->fields_at = w.place();
    if (w.now() == '}') {
        w.at++;
    } else {
        for (bool more = true; more;) {
            if (!read_field(w, parser, request)) return false;
            more = w.now() == ',';
            if (!more && w.now() != '}') return w.wrong("',' or '}'");
            w.at++;
        }
    }
    if (w.at != w.count) return w.wrong("the end");
    return request->model ||
           w.say.wrong("model: expected the name of a model, found no such field");
}

const char *stage_error(simdjson::error_code code) {
    switch (code) {
    case simdjson::EMPTY: return "it is empty";
    case simdjson::UTF8_ERROR: return "it is no UTF-8";
    case simdjson::UNESCAPED_CHARS: return "a string holds a control character";
    case simdjson::UNCLOSED_STRING: return "a string has no end";
    default: return "it cannot be read";
    }
}

} // namespace

enum lm_status lm_openai_read(struct lm_openai_parser *parser, const char *text, size_t bytes,
                              struct lm_openai_request *request_out, char *why, size_t why_bytes) {
    const complaint say{why, why_bytes};
    *request_out = lm_openai_request{};
    if (bytes > parser->capacity) {
        say.wrong("the JSON is too large: expected at most %zu bytes, found %zu", parser->capacity,
                  bytes);
        return LM_STATUS_TOO_LARGE;
    }
    const size_t mark = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    const simdjson::error_code code =
        bytes == mark ? simdjson::EMPTY
                      : parser->stages->stage1((const uint8_t *)text + mark, bytes - mark,
                                               simdjson::stage1_mode::regular);
    if (code != simdjson::SUCCESS) {
        say.wrong("the body is not JSON: %s", stage_error(code));
        return LM_STATUS_BAD_REQUEST;
    }
    walk w = {text + mark,
              parser->stages->structural_indexes.get(),
              parser->stages->n_structural_indexes,
              0,
              say,
              0};
    if (!read_object(w, parser, request_out)) return LM_STATUS_BAD_REQUEST;
    request_out->name_at += mark;
    request_out->fields_at += mark;
    request_out->prompt_bytes = w.string_bytes;
    if (!request_out->answers) request_out->answers = 1;
    return LM_STATUS_OK;
}
