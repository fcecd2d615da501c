/* rows_text.h: what rows_request.cc, rows_columns.cc and rows_values.cc share: a cursor over JSON
 * in a text, and what is known of a body of rows between both. C++, for these alone. A body belongs
 * to its parser's thread.
 *
 * The text ends with the bracket that closes the rows, so reading stops there at the latest: no
 * number, word or white space goes past a bracket.
 */
#ifndef LM_FORMATS_ROWS_TEXT_H
#define LM_FORMATS_ROWS_TEXT_H

#include <cstring>
#include <string_view>

#include "base/cxx.h"
extern "C" {
#include "base/json_text.h"
#include "formats/rows_find.h"
#include "formats/rows_request.h"
#include "models/model.h"
}

namespace lm_oip {

/* How the rows are written. */
enum class rows_form : uint8_t {
    TENSOR,  /* an array: the one input */
    OBJECTS, /* an array of objects: inputs by name */
    CELLS,   /* an array of arrays: an input for each column */
    FIELDS,  /* an array of objects: the columns of the one input, in the first row's order */
    NAMED    /* an object: whole inputs by name */
};

struct rows_body {
    rows_form form;
    const char *name; /* of the field, for sentences */
    const char *text;
    const char *end;
    size_t count;                    /* rows; NAMED: inputs */
    uint32_t column_count;           /* of CELLS and FIELDS */
    uint8_t targets[LM_TENSORS_MAX]; /* CELLS: a column's input */
};

inline void skip_space(const char *&at) {
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') at++;
}

/* Passes this byte and white space around it; false: another is there. */
inline bool pass_byte(const char *&at, char byte) {
    skip_space(at);
    if (*at != byte) return false;
    at++;
    skip_space(at);
    return true;
}

/* After an element: passes a comma, or `closing`, which sets `done`. */
inline bool pass_separator(const char *&at, char closing, bool *done) {
    skip_space(at);
    *done = *at == closing;
    if (!*done && *at != ',') return false;
    at++;
    if (!*done) skip_space(at);
    return true;
}

/* Behind any value that is not looked at; NULL: it does not end. */
inline const char *pass_value(const char *at, const char *end) {
    size_t children = 0;
    if (*at == '[' || *at == '{' || *at == '"') return lm_rows_pass(at, end, &children);
    while (at < end && !strchr(",]} \n\r\t", *at)) at++;
    return at;
}

/* A field's name, as the text has it between its quotes. */
struct written_name {
    const char *at;
    size_t bytes;

    std::string_view text() const {
        return {at, bytes};
    }
};

/* Passes a field's name and its colon; false: there is none. */
inline bool pass_name(const char *&at, const char *end, written_name *out) {
    size_t unused = 0;
    const char *behind = *at == '"' ? lm_rows_pass(at, end, &unused) : nullptr;
    if (!behind) return false;
    *out = {at + 1, (size_t)(behind - at - 2)};
    at = behind;
    return pass_byte(at, ':');
}

/* Passes a row's next field; the value is not looked at. False: there is none. */
inline bool pass_field(const char *&at, const char *end, written_name *name, const char **value) {
    bool done = false;
    if (!pass_name(at, end, name)) return false;
    *value = at;
    at = pass_value(at, end);
    return at && pass_separator(at, '}', &done) && !done;
}

/* Four hexadecimal digits; UINT32_MAX: they are none. */
inline uint32_t read_hex(const char *at) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const char byte = at[i], letter = (char)(byte | 0x20);
        if (byte >= '0' && byte <= '9') {
            value = value << 4 | (uint32_t)(byte - '0');
        } else if (letter >= 'a' && letter <= 'f') {
            value = value << 4 | (uint32_t)(letter - 'a' + 10);
        } else {
            return UINT32_MAX;
        }
    }
    return value;
}

enum { CHARACTER_BYTES = 4 }; /* of UTF-8, at most */

inline size_t write_utf8(uint32_t point, char out[CHARACTER_BYTES]) {
    const size_t bytes = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static constexpr uint8_t marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = bytes - 1; i > 0; i--, point >>= 6) out[i] = (char)(0x80 | (point & 0x3f));
    out[0] = (char)(marks[bytes] | point);
    return bytes;
}

/* The character of an escape, as bytes of UTF-8; `at` is at the backslash, and there is a quote
 * after what belongs to the string. 0: it is none. */
inline size_t read_escape(const char *&at, char out[CHARACTER_BYTES]) {
    static const char marks[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char *mark = at[1] ? strchr(marks, at[1]) : nullptr;
    if (mark) {
        at += 2;
        return write_utf8((uint8_t)bytes[mark - marks], out);
    }
    uint32_t point = at[1] == 'u' ? read_hex(at + 2) : UINT32_MAX;
    if (point == UINT32_MAX || (point >= 0xdc00 && point < 0xe000)) return 0;
    if (point < 0xd800 || point >= 0xe000) {
        at += 6;
        return write_utf8(point, out);
    }
    uint32_t low = at[6] == '\\' && at[7] == 'u' ? read_hex(at + 8) : 0;
    if (low < 0xdc00 || low >= 0xe000) return 0;
    at += 12;
    return write_utf8(0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00), out);
}

/* The next character of a string, with or without an escape: its bytes of UTF-8; `at` goes behind
 * it. 0: there is none, and `at` stays. */
inline size_t read_character(const char *&at, const char *end, char out[CHARACTER_BYTES]) {
    const char *behind = at;
    size_t bytes = 0;
    if (*at == '\\') {
        bytes = read_escape(behind, out);
        if (behind > end) return 0;
    } else if ((uint8_t)*at >= 0x20) {
        bytes = lm_utf8_bytes(at, (size_t)(end - at));
        memcpy(out, at, bytes);
        behind += bytes;
    }
    at = behind;
    return bytes;
}

/* Bytes of a string without its escapes; `at` ends at `end`, or at what is no character. */
inline size_t count_bytes(const char *&at, const char *end) {
    char character[CHARACTER_BYTES];
    size_t count = 0;
    for (size_t bytes = 1; at < end && bytes > 0; count += bytes) {
        const uint8_t byte = (uint8_t)*at;
        if (byte >= 0x20 && byte < 0x80 && byte != '\\') {
            bytes = 1;
            at++;
        } else {
            bytes = read_character(at, end, character);
        }
    }
    return count;
}

/* Writes what was counted. Returns the end. */
inline char *write_bytes(const char *at, const char *end, char *out) {
    for (;;) {
        const char *escape = (const char *)memchr(at, '\\', (size_t)(end - at));
        const size_t plain = (size_t)((escape ? escape : end) - at);
        memcpy(out, at, plain);
        out += plain;
        if (!escape) return out;
        at = escape;
        char character[CHARACTER_BYTES];
        const size_t bytes = read_escape(at, character);
        memcpy(out, character, bytes);
        out += bytes;
    }
}

/* A name without its escapes. */
struct plain_name {
    char text[LM_TENSOR_NAME_BYTES_MAX + 4]; /* what is longer is cut, and no tensor's name */
    size_t bytes = 0;

    std::string_view view() const {
        return {text, bytes};
    }
};

/* False where it is no JSON string. */
inline bool read_name(const written_name &from, plain_name *out) {
    const char *at = from.at, *end = from.at + from.bytes;
    while (at < end && out->bytes < LM_TENSOR_NAME_BYTES_MAX) {
        const size_t bytes = read_character(at, end, out->text + out->bytes);
        if (bytes == 0) return false;
        out->bytes += bytes;
    }
    return true;
}

/* The input of that name, tried first at `guess`; the model's input_count: there is none. */
inline uint32_t find_input(const struct lm_model *model, std::string_view name, uint32_t guess) {
    if (guess < model->input_count && name == model->inputs[guess].name) return guess;
    uint32_t i = 0;
    while (i < model->input_count && name != model->inputs[i].name) i++;
    return i;
}

/* The same of a name with escapes, perhaps. */
inline uint32_t find_input(const struct lm_model *model, const written_name &name, uint32_t guess) {
    uint32_t found = find_input(model, name.text(), guess);
    if (found < model->input_count || !memchr(name.at, '\\', name.bytes)) return found;
    plain_name plain;
    return read_name(name, &plain) ? find_input(model, plain.view(), guess) : found;
}

} // namespace lm_oip

#endif
