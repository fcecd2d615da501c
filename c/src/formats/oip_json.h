/* oip_json.h: for oip_parser.cc and those that read requests (oip_request.cc, oip_values.cc,
 * rows_request.cc, rows_walk.h) alone: the parser that they share, and how they say what is
 * wrong. C++; nobody else knows simdjson.
 *
 * simdjson's DOM checks the whole text before anything of it is believed: UTF-8, nesting, every
 * number, also in fields that nobody asked for. Only the arrays that oip_find.c or rows_find.c took
 * out are checked later, while their numbers are read. A parser belongs to one thread.
 */
#ifndef LM_FORMATS_OIP_JSON_H
#define LM_FORMATS_OIP_JSON_H

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/cxx.h"
extern "C" {
#include "base/error.h"
#include "base/json_text.h"
#include "formats/oip_find.h"
#include "formats/oip_request.h"
#include "models/sizes.h"
}
#include "formats/json_dom.h"
#include "formats/rows_text.h"
#include "formats/texts_body.h"

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;

/* The data of one input: in the text, or (where its key was written with escapes) in the tree. */
struct lm_oip_value {
    uint32_t input; /* index in the model */
    const struct lm_oip_data *text;
    array tree;
};

struct lm_oip_parser {
    explicit lm_oip_parser(size_t capacity) : json(capacity) {
    }

    simdjson::dom::parser json;
    struct lm_shm_regions *regions; /* NULL: tensors are in none */
    char *rest;                     /* what is left of a text without its data arrays */
    uint32_t found_count;
    struct lm_oip_data found[LM_TENSORS_MAX];
    struct lm_oip_value values[LM_TENSORS_MAX];
    /* Of rows with names: what is known of them, and their columns, where the client says these. */
    struct lm_oip::rows_body rows;
    struct lm_oip::texts_body texts;
    array columns;
    bool has_columns;
};

static_assert(LM_OIP_PADDING >= simdjson::SIMDJSON_PADDING, "simdjson reads so far past the end");

namespace lm_oip {

/* Where the sentence goes that says what is wrong. */
struct complaint {
    char *why;
    size_t why_bytes;

    /* Writes it, and returns false. */
    __attribute__((format(printf, 2, 3))) bool wrong(const char *format, ...) const {
        va_list args;
        va_start(args, format);
        vsnprintf(why, why_bytes, format, args);
        va_end(args);
        return false;
    }
};

enum { NAME_SHOWN_BYTES = 64 };

/* A client's string, fit for an error sentence: short, whole characters, none that controls. */
struct shown {
    char text[NAME_SHOWN_BYTES + 4];

    explicit shown(std::string_view from) {
        size_t used = 0, taken = 0;
        for (size_t i = 0; i < from.size(); i += taken) {
            taken = lm_utf8_bytes(from.data() + i, from.size() - i);
            if (taken == 0) taken = 1;
            if (used + taken > NAME_SHOWN_BYTES) {
                memcpy(text + used, "...", 3);
                used += 3;
                break;
            }
            uint8_t byte = (uint8_t)from[i];
            if (byte < 0x20 || byte == 0x7f) {
                text[used++] = '?';
            } else {
                memcpy(text + used, from.data() + i, taken);
                used += taken;
            }
        }
        text[used] = '\0';
    }
};

inline const char *kind(const element &value) {
    switch (value.type()) {
    case element_type::ARRAY: return "an array";
    case element_type::OBJECT: return "an object";
    case element_type::STRING: return "a string";
    case element_type::BOOL: return "true or false";
    case element_type::NULL_VALUE: return "null";
    case element_type::DOUBLE: return "a number with a fraction or an exponent";
    case element_type::INT64:
        return value.is_uint64() ? "an integer" : "a negative integer"; /* is_uint64: would fit */
    case element_type::UINT64: return "an integer";
    }
    return "something else";
}

/* Some of a model's inputs, or outputs. */
struct tensor_set {
    uint64_t words[LM_TENSORS_MAX / 64] = {};
    uint32_t count = 0;

    bool has(uint32_t tensor) const {
        return words[tensor / 64] >> tensor % 64 & 1;
    }
    /* One that it does not have. */
    void add(uint32_t tensor) {
        words[tensor / 64] |= 1ull << tensor % 64;
        count++;
    }
};

/* Types whose elements JSON's numbers cannot stand for. */
inline bool has_no_json(int dtype) {
    return dtype == ORT_FLOAT16 || dtype == ORT_BFLOAT16;
}

/* Finds what is read from the text itself. */
using finder = uint32_t (*)(const char *text, size_t bytes,
                            struct lm_oip_data found[LM_TENSORS_MAX]);

/* In oip_parser.cc: checks the text, but for what `find` finds, and gives its object. */
enum lm_status parse(struct lm_oip_parser *parser, finder find, const char *text, size_t bytes,
                     object *root, const complaint &say);

} // namespace lm_oip

#endif
