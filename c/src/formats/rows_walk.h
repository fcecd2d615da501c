/* rows_walk.h: going through the values of rows, and what is said of one that is wrong: its row,
 * its column, what was expected. C++, for rows_values.cc alone. A walk is a call's own: any thread.
 */
#ifndef LM_FORMATS_ROWS_WALK_H
#define LM_FORMATS_ROWS_WALK_H

#include "formats/oip_json.h"

namespace lm_oip {

/* Where the next string of an input goes, in its form on the wire; NULL: they are only counted. */
struct string_place {
    char *at;
    size_t bytes;
};

/* An input, and what one row of it is. */
struct target {
    const struct lm_tensor *tensor;
    void *data; /* NULL: of strings, or none are written */
    struct string_place *strings;
    size_t rows;
    size_t elements; /* of a row */
    bool is_one;     /* its shape has no dimension: one value, and no rows */
    uint32_t rank;   /* of a row */
    int64_t dims[LM_RANK_MAX];
};

/* A field as the last row that had one at this place wrote it, from its name to its value: rows
 * repeat their first one. */
struct known_field {
    const char *at;
    size_t bytes;
    written_name name;
    uint32_t input;
};

struct walk : complaint {
    walk(const complaint &say, const struct lm_model *served, const rows_body *rows)
        : complaint(say), model(served), body(rows), at(rows->text) {
    }

    const struct lm_model *model;
    const rows_body *body;
    const array *columns = nullptr; /* where the client named them */
    bool is_count = false; /* of the strings' bytes: nothing is written, numbers are passed over */
    const char *at;
    size_t row = 0;
    size_t element = 0;                  /* of the row, that is read */
    const known_field *column = nullptr; /* FIELDS: that is read */
    uint32_t known_count = 0;
    known_field known[LM_COLUMNS_MAX];
    /* As many as the model has inputs; the others are not initialised. */
    target targets[LM_TENSORS_MAX];
    string_place strings[LM_TENSORS_MAX];
};

/* ---- what is wrong, and where ---- */

/* "instances[3], 'age'": the row, and the column where rows have some. */
struct spot {
    char text[2 * NAME_SHOWN_BYTES + 112];

    spot(const walk &w, const target &t) {
        const shown input(t.tensor->name);
        const size_t room = sizeof text;
        const bool named = w.body->form == rows_form::NAMED;
        int used = named ? snprintf(text, room, "inputs, '%s'", input.text)
                         : snprintf(text, room, "%s", w.body->name);
        if (!named || !t.is_one)
            used +=
                snprintf(text + used, room - (size_t)used, named ? ", row %zu" : "[%zu]", w.row);
        if (w.body->form == rows_form::OBJECTS || w.body->form == rows_form::CELLS)
            used += snprintf(text + used, room - (size_t)used, ", '%s'", input.text);
        if (t.elements <= 1 && w.body->column_count == 0) return;
        put_column(w, t, text + used, room - (size_t)used);
    }

    static void put_column(const walk &w, const target &t, char *at, size_t room) {
        std::string_view name;
        plain_name plain;
        if (w.column && read_name(w.column->name, &plain)) name = plain.view();
        if (w.body->form == rows_form::TENSOR && w.columns && w.element < t.elements &&
            w.columns->at(w.element).get(name))
            name = {};
        if (name.data()) {
            snprintf(at, room, ", column '%s'", shown(name).text);
        } else if (t.elements > 1) {
            snprintf(at, room, ", element %zu", w.element);
        }
    }
};

inline bool is_whole(int dtype) {
    return dtype != ORT_FLOAT && dtype != ORT_DOUBLE && dtype != ORT_BOOL && dtype != ORT_STRING;
}

/* A value as the client wrote it. */
struct found_value {
    char text[48];

    found_value(const char *at, const char *end) {
        size_t used = 0;
        if (*at == '[' || *at == '{') {
            snprintf(text, sizeof text, "%s", *at == '[' ? "an array" : "an object");
            return;
        }
        const char *behind = pass_value(at, end);
        const size_t bytes = behind ? (size_t)(behind - at) : 0;
        while (used < bytes && used < sizeof text - 4 && (uint8_t)at[used] >= ' ' &&
               (uint8_t)at[used] < 0x7f) {
            text[used] = at[used];
            used++;
        }
        snprintf(text + used, 4, "%s", used < bytes ? "..." : "");
        if (bytes == 0) snprintf(text, sizeof text, "nothing");
    }
};

inline bool wrong_value(const walk &w, const target &t, const char *at) {
    const int dtype = t.tensor->dtype;
    return w.wrong("%s: expected %s%s, found %s", spot(w, t).text,
                   dtype == ORT_BOOL     ? "true or false for "
                   : dtype == ORT_STRING ? "a string for "
                   : is_whole(dtype)     ? "a whole number that fits "
                                         : "a number that fits ",
                   lm_dtype_name(dtype), found_value(at, w.body->end).text);
}

inline bool wrong_count(const walk &w, const target &t, int64_t expected, const char *found) {
    return w.wrong("%s: expected %lld values in an array, found %s", spot(w, t).text,
                   (long long)expected, found);
}

inline bool wrong_row(const walk &w, const char *expected) {
    return w.wrong("%s[%zu]: expected %s, found %s", w.body->name, w.row, expected,
                   found_value(w.at, w.body->end).text);
}

inline bool wrong_separator(const walk &w) {
    return w.wrong("%s[%zu]: expected a comma or a bracket behind a value, found %s", w.body->name,
                   w.row, found_value(w.at, w.body->end).text);
}

} // namespace lm_oip

#endif
