/* rows_values.cc: the values of rows, from their text to the tensors; see rows_request.h. What was
 * passed over when the sizes were found is checked here: brackets, commas, names, every value. */
#include "formats/oip_missing.h"
#include "formats/oip_number.h"
#include "formats/oip_shapes.h"
#include "formats/rows_base64.h"
#include "formats/rows_walk.h"

using namespace lm_oip;

namespace {

/* Whether a byte ends a value. The digits of a whole number may also end at its fraction. */
bool ends_value(char byte) {
    return strchr(",]} \n\r\t", byte) != nullptr;
}

/* ---- a string ---- */

bool wrong_character(const walk &w, const target &t, const char *at, const char *end) {
    const uint8_t byte = (uint8_t)*at;
    if (byte == '\\') {
        const size_t bytes = end - at < 6 ? (size_t)(end - at) : 6; /* of an escape, at most */
        return w.wrong("%s: expected an escape that is a character, found %s", spot(w, t).text,
                       shown({at, bytes}).text);
    }
    return w.wrong("%s: expected %s, found 0x%02x", spot(w, t).text,
                   byte < 0x20 ? "control characters as escapes" : "UTF-8", byte);
}

bool read_string(walk &w, const target &t) {
    const char *start = w.at;
    string_place &place = *t.strings;
    size_t unused = 0;
    if (*start == '{') return read_base64(w, t);
    const char *behind = *start == '"' ? lm_rows_pass(start, w.body->end, &unused) : nullptr;
    if (!behind || !ends_value(*behind)) return wrong_value(w, t, start);
    const char *at = start + 1, *end = behind - 1;
    w.at = behind;
    if (place.at) {
        char *const length = place.at;
        place.at = write_bytes(at, end, length + sizeof(uint32_t));
        const uint32_t bytes = (uint32_t)((size_t)(place.at - length) - sizeof bytes);
        memcpy(length, &bytes, sizeof bytes);
        return true;
    }
    const size_t bytes = count_bytes(at, end);
    if (at < end) return wrong_character(w, t, at, end);
    if (bytes > LM_STRING_BYTES_MAX) {
        return w.wrong("%s: expected a string of at most %d bytes, found %zu", spot(w, t).text,
                       LM_STRING_BYTES_MAX, bytes);
    }
    place.bytes += sizeof(uint32_t) + bytes;
    return true;
}

/* ---- a row of an input ---- */

/* Element `index` of a row. */
template <typename number> bool read_one(walk &w, const target &t, number *row, size_t index) {
    const char *start = w.at;
    number *out = row + index;
    if (read_number(w.at, out) && ends_value(*w.at)) return true;
    w.at = start;
    if (read_missing(w.at, out) && ends_value(*w.at)) return true;
    w.at = start;
    return wrong_value(w, t, start);
}

bool read_one(walk &w, const target &t, string_place *, size_t) {
    return read_string(w, t);
}

/* An array of a row: dims[depth] elements, or all of the row's at once. */
template <typename number>
bool read_array(walk &w, const target &t, uint32_t depth, bool is_flat, number *row) {
    const size_t expected = is_flat ? t.elements : (size_t)t.dims[depth];
    const bool is_last = is_flat || depth + 1 == t.rank;
    size_t count = 0;
    bool done = false;
    w.at++;
    skip_space(w.at);
    if (*w.at == ']') {
        w.at++;
        return expected == 0 || wrong_count(w, t, (long long)expected, "none");
    }
    for (; !done; count++) {
        if (count == expected) return wrong_count(w, t, (long long)expected, "more");
        if (is_last) {
            if (!read_one(w, t, row, w.element)) return false;
            w.element++;
        } else {
            if (*w.at != '[') {
                return w.wrong("%s: expected arrays %u deep, found %s", spot(w, t).text, t.rank,
                               found_value(w.at, w.body->end).text);
            }
            if (!read_array(w, t, depth + 1, false, row)) return false;
        }
        if (!pass_separator(w.at, ']', &done)) return wrong_separator(w);
    }
    return count == expected || wrong_count(w, t, (long long)expected, "fewer");
}

/* A row is nested as its shape is, or one array of all its values; one value needs no array. */
template <typename number> bool read_row(walk &w, const target &t, void *to) {
    number *row = (number *)to;
    w.element = 0;
    if (*w.at != '[') {
        if (t.elements == 1) return read_one(w, t, row, 0);
        return w.wrong("%s: expected an array of %zu values, found %s", spot(w, t).text, t.elements,
                       found_value(w.at, w.body->end).text);
    }
    if (t.rank == 0) return wrong_value(w, t, w.at);
    const char *first = w.at + 1;
    skip_space(first);
    return read_array(w, t, 0, *first != '[' && t.rank > 1, row);
}

/* A value of an input of numbers, while strings are counted. */
bool pass_cell(walk &w, const target &t) {
    const char *behind = pass_value(w.at, w.body->end);
    if (!behind) return wrong_value(w, t, w.at);
    w.at = behind;
    return true;
}

/* A row of an input, or one value of it. */
bool read_cell(walk &w, const target &t, void *to) {
    if (w.is_count && !t.strings) return pass_cell(w, t);
    switch (t.tensor->dtype) {
    case ORT_FLOAT: return read_row<float>(w, t, to);
    case ORT_DOUBLE: return read_row<double>(w, t, to);
    case ORT_INT8: return read_row<int8_t>(w, t, to);
    case ORT_UINT8: return read_row<uint8_t>(w, t, to);
    case ORT_INT16: return read_row<int16_t>(w, t, to);
    case ORT_UINT16: return read_row<uint16_t>(w, t, to);
    case ORT_INT32: return read_row<int32_t>(w, t, to);
    case ORT_UINT32: return read_row<uint32_t>(w, t, to);
    case ORT_INT64: return read_row<int64_t>(w, t, to);
    case ORT_UINT64: return read_row<uint64_t>(w, t, to);
    case ORT_BOOL: return read_row<bool>(w, t, to);
    case ORT_STRING: return read_row<string_place>(w, t, to);
    default: return w.wrong("input '%s': no form in JSON", shown(t.tensor->name).text);
    }
}

/* An element of the row that is read; strings have one place for all. */
void *place_of(const walk &w, const target &t, size_t element) {
    if (!t.data) return t.strings;
    return (char *)t.data + (w.row * t.elements + element) * t.tensor->element_bytes;
}

/* ---- rows by name ---- */

bool wrong_field(const walk &w, const written_name &name, const char *what) {
    return w.wrong("%s[%zu]: '%s' %s", w.body->name, w.row, shown(name.text()).text, what);
}

/* The last row's field at this place, once more. */
bool pass_known(walk &w, uint32_t place) {
    if (place >= w.known_count) return false;
    const known_field &known = w.known[place];
    if ((size_t)(w.body->end - w.at) < known.bytes || memcmp(w.at, known.at, known.bytes) != 0)
        return false;
    w.at += known.bytes;
    skip_space(w.at);
    return true;
}

/* The name of the next field and its input, which are known afterwards. */
bool read_field(walk &w, uint32_t place, written_name *name, uint32_t *input) {
    const char *start = w.at;
    if (pass_known(w, place)) {
        *name = w.known[place].name;
        *input = w.known[place].input;
        return true;
    }
    if (!pass_name(w.at, w.body->end, name)) return wrong_row(w, "a name and a colon");
    *input = find_input(w.model, *name, place);
    if (place >= LM_COLUMNS_MAX) return true;
    w.known[place] = {start, (size_t)(w.at - start), *name, *input};
    if (place >= w.known_count) w.known_count = place + 1;
    return true;
}

/* The input of a field, which must be one, and new. */
bool take_field(const walk &w, const written_name &name, uint32_t input, tensor_set &seen) {
    const bool whole = w.body->form == rows_form::NAMED;
    if (input == w.model->input_count) {
        return whole ? w.wrong("inputs: model '%s' has no input '%s'", w.model->name,
                               shown(name.text()).text)
                     : wrong_field(w, name, "is no input of the model");
    }
    if (seen.has(input)) {
        return whole ? w.wrong("inputs: '%s' comes twice", shown(name.text()).text)
                     : wrong_field(w, name, "comes twice");
    }
    seen.add(input);
    return true;
}

bool all_seen(const walk &w, const tensor_set &seen) {
    if (seen.count == w.model->input_count) return true;
    for (uint32_t i = 0; i < w.model->input_count; i++) {
        if (seen.has(i)) continue;
        const shown name(w.model->inputs[i].name);
        return w.body->form == rows_form::NAMED
                   ? w.wrong("inputs: '%s' is missing", name.text)
                   : w.wrong("%s[%zu]: '%s' is missing", w.body->name, w.row, name.text);
    }
    return true;
}

bool read_tensor(walk &w, const target &t);

/* Fields that are inputs: a row of each, or (NAMED) all of it. */
bool read_object(walk &w) {
    const bool whole = w.body->form == rows_form::NAMED;
    tensor_set seen;
    uint32_t input = 0;
    bool done = false;
    if (*w.at != '{') return wrong_row(w, "an object");
    w.at++;
    skip_space(w.at);
    if (*w.at == '}') {
        w.at++;
        return all_seen(w, seen);
    }
    for (uint32_t place = 0; !done; place++) {
        written_name name = {};
        if (!read_field(w, place, &name, &input) || !take_field(w, name, input, seen)) return false;
        const target &t = w.targets[input];
        if (!(whole ? read_tensor(w, t) : read_cell(w, t, place_of(w, t, 0)))) return false;
        if (!pass_separator(w.at, '}', &done)) return wrong_separator(w);
    }
    return all_seen(w, seen);
}

bool same_name(const written_name &a, const written_name &b) {
    plain_name x, y;
    if (a.text() == b.text()) return true;
    return read_name(a, &x) && read_name(b, &y) && x.view() == y.view();
}

/* The name of column `c`, which row 0 says. */
bool read_column(walk &w, uint32_t c) {
    written_name name = {};
    uint32_t unused = 0;
    if (w.row == 0) return read_field(w, c, &name, &unused);
    if (pass_known(w, c)) return true;
    if (!pass_name(w.at, w.body->end, &name)) return wrong_row(w, "a name and a colon");
    const written_name &expected = w.known[c].name;
    if (same_name(name, expected)) return true;
    plain_name plain;
    read_name(expected, &plain);
    return w.wrong("%s[%zu]: expected field '%s' as in row 0, found '%s'", w.body->name, w.row,
                   shown(plain.view()).text, shown(name.text()).text);
}

/* Fields that are the values of a row, in the first row's order. */
bool read_columns(walk &w) {
    const target &t = w.targets[0];
    target one = t;
    bool done = false;
    one.elements = 1;
    one.rank = 0;
    if (*w.at != '{') return wrong_row(w, "an object");
    w.at++;
    skip_space(w.at);
    for (uint32_t c = 0; !done; c++) {
        if (c == w.body->column_count) return wrong_row(w, "no field beside those of row 0");
        if (!read_column(w, c)) return false;
        w.column = &w.known[c];
        if (!read_cell(w, one, place_of(w, t, c))) return false;
        if (!pass_separator(w.at, '}', &done)) return wrong_separator(w);
        if (done && c + 1 < w.body->column_count) {
            return w.wrong("%s[%zu]: expected %u fields as in row 0, found %u", w.body->name, w.row,
                           w.body->column_count, c + 1);
        }
    }
    return true;
}

bool read_cells(walk &w) {
    uint32_t c = 0;
    if (*w.at != '[') return wrong_row(w, "an array");
    w.at++;
    skip_space(w.at);
    bool done = *w.at == ']';
    if (done) w.at++;
    for (; !done; c++) {
        if (c == w.body->column_count) break;
        const target &t = w.targets[w.body->targets[c]];
        if (!read_cell(w, t, place_of(w, t, 0))) return false;
        if (!pass_separator(w.at, ']', &done)) return wrong_separator(w);
    }
    if (done && c == w.body->column_count) return true;
    return w.wrong("%s[%zu]: expected %u cells as there are columns, found %s", w.body->name, w.row,
                   w.body->column_count, done ? "fewer" : "more");
}

/* ---- the whole ---- */

bool read_next_row(walk &w, const target &t) {
    switch (w.body->form) {
    case rows_form::OBJECTS: return read_object(w);
    case rows_form::FIELDS: return read_columns(w);
    case rows_form::CELLS: return read_cells(w);
    default: return read_cell(w, t, place_of(w, t, 0));
    }
}

/* So many rows, in an array. */
bool read_rows(walk &w, const target &t, size_t rows) {
    bool done = false;
    w.at++;
    skip_space(w.at);
    for (w.row = 0; !done; w.row++) {
        if (w.row == rows) return w.wrong("%s: expected %zu rows, found more", w.body->name, rows);
        if (!read_next_row(w, t)) return false;
        if (!pass_separator(w.at, ']', &done)) return wrong_separator(w);
    }
    return w.row == rows || w.wrong("%s: expected %zu rows, found %zu", w.body->name, rows, w.row);
}

/* All of an input. */
bool read_tensor(walk &w, const target &t) {
    w.row = 0;
    if (w.is_count && !t.strings) return pass_cell(w, t);
    if (t.is_one) return read_cell(w, t, place_of(w, t, 0));
    return read_rows(w, t, t.rows);
}

target target_of(const struct lm_tensor *tensor, const struct lm_sizes *sizes, void *data,
                 string_place *strings) {
    target t = {tensor, data, nullptr, 1, 1, true, 0, {}};
    int64_t dims[LM_RANK_MAX];
    size_t bytes = 0;
    const uint32_t rank = lm_tensor_shape(tensor, sizes, dims);
    lm_tensor_bytes(tensor, sizes, &bytes);
    if (rank > 0) {
        t.is_one = false;
        t.rows = (size_t)dims[0];
        t.rank = rank - 1;
        memcpy(t.dims, dims + 1, t.rank * sizeof dims[0]);
    }
    t.elements = bytes / tensor->element_bytes / t.rows;
    *strings = {(char *)data, 0};
    if (!lm_is_string(tensor)) return t;
    t.strings = strings;
    t.data = nullptr;
    return t;
}

/* With no `inputs` strings are counted. */
bool read_values(walk &w, const struct lm_oip_parser *parser, const struct lm_oip_request *request,
                 void *const *inputs) {
    const rows_body *body = w.body;
    w.is_count = !inputs;
    const struct lm_tensor files = files_of(w.model, 1);
    if (parser->has_columns && body->form == rows_form::TENSOR) w.columns = &parser->columns;
    for (uint32_t i = 0; i < w.model->input_count; i++) {
        const struct lm_tensor *tensor = request->pictures ? &files : &w.model->inputs[i];
        w.targets[i] =
            target_of(tensor, &request->sizes, inputs ? inputs[i] : nullptr, &w.strings[i]);
    }
    bool good = body->form == rows_form::NAMED    ? read_object(w)
                : body->form == rows_form::TENSOR ? read_tensor(w, w.targets[0])
                                                  : read_rows(w, w.targets[0], body->count);
    return good && (w.at >= body->end || w.wrong("%s: brackets do not match", body->name));
}

} // namespace

enum lm_status lm_rows_strings_bytes(struct lm_oip_parser *parser,
                                     const struct lm_oip_request *request,
                                     const struct lm_model *model, size_t bytes_out[], char *why,
                                     size_t why_bytes) {
    walk w({why, why_bytes}, model, &parser->rows);
    for (uint32_t i = 0; i < model->input_count; i++) bytes_out[i] = 0;
    if (model->string_inputs == 0 && !request->pictures) return LM_STATUS_OK;
    if (!read_values(w, parser, request, nullptr)) return LM_STATUS_BAD_REQUEST;
    for (uint32_t i = 0; i < model->input_count; i++) bytes_out[i] = w.strings[i].bytes;
    return LM_STATUS_OK;
}

enum lm_status lm_rows_values(struct lm_oip_parser *parser, const struct lm_oip_request *request,
                              const struct lm_model *model, void *const inputs[], char *why,
                              size_t why_bytes) {
    walk w({why, why_bytes}, model, &parser->rows);
    return read_values(w, parser, request, inputs) ? LM_STATUS_OK : LM_STATUS_BAD_REQUEST;
}
