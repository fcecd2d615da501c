/* oip_fields.h: the fields of a JSON object, by name and type. C++, for oip_request.cc and
 * rows_request.cc alone; a parser's objects belong to one thread.
 *
 * The client chooses the order of the fields, so an object is read in one pass over all of them. A
 * field that is read must not come twice; an unknown one is passed over.
 */
#ifndef LM_FORMATS_OIP_FIELDS_H
#define LM_FORMATS_OIP_FIELDS_H

#include "formats/oip_json.h"

namespace lm_oip {

enum { PLACE_BYTES = 112 };

/* Where in the request something is, for an error sentence: "inputs[2].parameters". */
struct place {
    char text[PLACE_BYTES];

    __attribute__((format(printf, 2, 3))) explicit place(const char *format, ...) {
        va_list args;
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
    }
};

/* The fields of one object that are of interest, in the order of `names`. */
template <size_t count> struct fields {
    element values[count];
    bool there[count] = {};
};

template <size_t count>
bool read_fields(const complaint &say, const object &from, const place &where,
                 const std::string_view (&names)[count], fields<count> *out) {
    for (simdjson::dom::key_value_pair field : from) {
        for (size_t i = 0; i < count; i++) {
            if (field.key != names[i]) continue;
            if (out->there[i])
                return say.wrong("%s: field \"%s\" comes twice", where.text, names[i].data());
            out->there[i] = true;
            out->values[i] = field.value;
        }
    }
    return true;
}

inline bool read_object(const complaint &say, const element &from, const place &where,
                        object *out) {
    if (!from.get(*out)) return true;
    return say.wrong("%s: expected an object, found %s", where.text, kind(from));
}

inline bool read_string(const complaint &say, const element &from, const place &where,
                        const char *name, std::string_view *out) {
    if (!from.get(*out)) return true;
    return say.wrong("%s: %s: expected a string, found %s", where.text, name, kind(from));
}

inline bool read_bool(const complaint &say, const element &from, const place &where,
                      const char *name, bool *out) {
    if (!from.get(*out)) return true;
    return say.wrong("%s: %s: expected true or false, found %s", where.text, name, kind(from));
}

inline bool read_natural(const complaint &say, const element &from, const place &where,
                         const char *name, uint64_t *out) {
    if (!from.get(*out)) return true;
    return say.wrong("%s: %s: expected an integer of at least 0, found %s", where.text, name,
                     kind(from));
}

} // namespace lm_oip

#endif
