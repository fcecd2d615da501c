/* rows_request.cc: see rows_request.h. The form of the rows and a request's sizes; the values are
 * read in rows_values.cc. */
#include "formats/oip_fields.h"
#include "formats/oip_shapes.h"
#include "formats/rows_base64.h"
#include "formats/rows_columns.h"

using namespace lm_oip;

namespace {

/* One call of lm_rows_read. */
struct reading : complaint {
    reading(const complaint &say, struct lm_oip_parser *with, const struct lm_model *served,
            struct lm_oip_request *out)
        : complaint(say), parser(with), model(served), request(out), body(&with->rows),
          files(files_of(served, 1)) {
        for (uint32_t i = 0; i < model->input_count; i++) first[i] = nullptr;
    }

    struct lm_oip_parser *parser;
    const struct lm_model *model;
    struct lm_oip_request *request;
    rows_body *body;
    /* An input as rows have it: files, where the request is pictures. */
    const struct lm_tensor *input(uint32_t index) const {
        return request->pictures ? &files : &model->inputs[index];
    }

    struct lm_tensor files;
    uint32_t field = 0;                /* enum lm_rows_field */
    const char *first[LM_TENSORS_MAX]; /* an input's value in the first row, or all of it */
};

/* ---- the request's own fields ---- */

enum {
    INSTANCES = LM_ROWS_INSTANCES,
    INPUTS = LM_ROWS_INPUTS,
    RECORDS = LM_ROWS_RECORDS,
    SPLIT = LM_ROWS_SPLIT,
    PARAMETERS,
    PARAMS,
    COUNT
};
constexpr std::string_view names[COUNT] = {"instances",       "inputs",     "dataframe_records",
                                           "dataframe_split", "parameters", "params"};
bool read_timeout(const reading &r, const element &from, const char *name) {
    static constexpr std::string_view timeout[1] = {"timeout"};
    const place where("%s", name);
    fields<1> found;
    object all;
    if (!read_object(r, from, where, &all) || !read_fields(r, all, where, timeout, &found))
        return false;
    return !found.there[0] ||
           read_natural(r, found.values[0], where, "timeout", &r.request->timeout_us);
}

/* The columns and the data of a data frame: its own fields. */
bool read_split(const reading &r, const element &from, bool *has_data) {
    enum { COLUMNS, DATA, SPLIT_COUNT };
    static constexpr std::string_view split[SPLIT_COUNT] = {"columns", "data"};
    const place where("dataframe_split");
    fields<SPLIT_COUNT> found;
    object all;
    if (!read_object(r, from, where, &all) || !read_fields(r, all, where, split, &found))
        return false;
    *has_data = found.there[DATA];
    r.parser->has_columns = found.there[COLUMNS];
    if (!found.there[COLUMNS] || !found.values[COLUMNS].get(r.parser->columns)) return true;
    return r.wrong("dataframe_split: columns: expected an array, found %s",
                   kind(found.values[COLUMNS]));
}

/* Which field holds the rows, and where it lies in the text. */
bool find_body(reading &r, const fields<COUNT> &found) {
    static const char *const shown_names[] = {"instances", "inputs", "dataframe_records",
                                              "dataframe_split.data"};
    bool there = true;
    r.field = COUNT;
    for (uint32_t f = INSTANCES; f <= SPLIT; f++) {
        if (!found.there[f]) continue;
        if (r.field < COUNT) {
            return r.wrong("request: expected one of \"%s\" and \"%s\", found both",
                           names[r.field].data(), names[f].data());
        }
        r.field = f;
    }
    if (r.field == COUNT) {
        return r.wrong("request: expected \"instances\", \"inputs\", \"dataframe_split\" or "
                       "\"dataframe_records\", found none of them");
    }
    if (r.field == SPLIT && !read_split(r, found.values[SPLIT], &there)) return false;
    r.body->name = shown_names[r.field];
    for (uint32_t i = 0; i < r.parser->found_count; i++) {
        const struct lm_oip_data &data = r.parser->found[i];
        if (data.input != r.field) continue;
        r.body->text = data.text;
        r.body->end = data.text + data.bytes;
    }
    if (r.body->text && (*r.body->text == '[' || r.field == INPUTS)) return true;
    return r.wrong("%s: expected an array%s, found %s", r.body->name,
                   r.field == INPUTS ? " or an object" : "",
                   r.body->text       ? "an object"
                   : !there           ? "nothing"
                   : r.field == SPLIT ? "something else"
                                      : kind(found.values[r.field]));
}

/* ---- the form ---- */

/* The start of the array's first element; its length goes to `count`. */
const char *enter(const reading &r, const char *at, size_t *count) {
    lm_rows_pass(at, r.body->end, count);
    at++;
    skip_space(at);
    return at;
}

/* Notes where the first row, or the object of inputs, has each input's value. What is wrong with
 * the names is found with the values. */
void note_fields(reading &r, const char *at) {
    written_name name;
    const char *value = nullptr;
    uint32_t guess = 0;
    at++;
    skip_space(at);
    for (bool more = true; more; guess++) {
        name = {};
        more = pass_field(at, r.body->end, &name, &value);
        if (!name.at) return;
        uint32_t input = find_input(r.model, name, guess);
        if (input < r.model->input_count && !r.first[input]) r.first[input] = value;
    }
}

void note_cells(reading &r, const char *at) {
    bool done = false;
    size_t cells = 0;
    at = enter(r, at, &cells);
    for (uint32_t c = 0; c < cells && c < r.body->column_count && !done; c++) {
        r.first[r.body->targets[c]] = at;
        at = pass_value(at, r.body->end);
        if (!at || !pass_separator(at, ']', &done)) return;
    }
}

/* Whether the one column there is has the name of the one input. */
bool is_the_input(const reading &r) {
    std::string_view name;
    return r.parser->columns.size() == 1 && !r.parser->columns.at(0).get(name) &&
           name == r.model->inputs[0].name;
}

/* Several inputs are columns by name. The columns of one input are its values, in their order. */
bool choose_split(reading &r, const char *row) {
    const bool has = r.parser->has_columns;
    const bool by_name = r.model->input_count > 1 || (has && is_the_input(r));
    if (!by_name) {
        r.body->form = rows_form::TENSOR;
        r.first[0] = row;
        return !has || count_columns(r, r.model, r.parser->columns, r.body);
    }
    r.body->form = rows_form::CELLS;
    if (!has) return r.wrong("dataframe_split: field \"columns\" is missing");
    if (!map_columns(r, r.model, r.parser->columns, r.body)) return false;
    if (*row != '[') return r.wrong("%s[0]: expected an array, found something else", r.body->name);
    note_cells(r, row);
    return true;
}

bool choose_records(reading &r, const char *row) {
    r.body->form = rows_form::OBJECTS;
    if (*row != '{')
        return r.wrong("%s[0]: expected an object, found something else", r.body->name);
    note_fields(r, row);
    return r.model->input_count > 1 || r.first[0] || name_columns(r, r.model, row, r.body);
}

/* The one input's value in TensorFlow Serving's form of bytes, and no row of named inputs. */
bool is_base64(const reading &r, const char *row) {
    const struct lm_tensor *input = &r.model->inputs[0];
    return r.model->input_count == 1 && (lm_is_string(input) || r.model->input_plan.has_images) &&
           strcmp(input->name, "b64") != 0 && base64_text(row, r.body->end).at;
}

bool choose_instances(reading &r, const char *row) {
    const bool objects = *row == '{' && !is_base64(r, row);
    r.body->form = objects ? rows_form::OBJECTS : rows_form::TENSOR;
    if (objects) {
        note_fields(r, row);
        return true;
    }
    r.first[0] = row;
    if (r.model->input_count == 1) return true;
    return r.wrong("instances[0]: expected an object with %s, found %s", input_names(r.model).text,
                   *row == '[' ? "an array" : "one value");
}

bool choose_inputs(reading &r, const char *row) {
    if (*r.body->text == '{') {
        r.body->form = rows_form::NAMED;
        note_fields(r, r.body->text);
        return true;
    }
    r.body->form = rows_form::TENSOR;
    r.first[0] = row;
    if (r.model->input_count == 1) return true;
    return r.wrong("inputs: expected an object with %s, found an array", input_names(r.model).text);
}

/* Whether rows are files of pictures: the first one's value is bytes. */
bool has_files(const reading &r) {
    const char *at = r.first[0];
    size_t count = 0;
    if (!at || !r.model->input_plan.has_images) return false;
    if (r.body->form == rows_form::NAMED && *at == '[') at = enter(r, at, &count);
    return base64_text(at, r.body->end).at;
}

bool choose_form(reading &r) {
    const char *row = enter(r, r.body->text, &r.body->count);
    if (r.body->count == 0 && *r.body->text == '[')
        return r.wrong("%s: expected at least one row, found none", r.body->name);
    switch ((enum lm_rows_field)r.field) {
    case LM_ROWS_SPLIT: return choose_split(r, row);
    case LM_ROWS_RECORDS: return choose_records(r, row);
    case LM_ROWS_INSTANCES: return choose_instances(r, row);
    case LM_ROWS_INPUTS: return choose_inputs(r, row);
    }
    return false;
}

/* ---- sizes ---- */

/* The free sizes of a row, by how its first one is nested. */
bool measure(const reading &r, uint32_t input, const char *at, int64_t *dims) {
    const struct lm_tensor *tensor = r.input(input);
    uint32_t last = tensor->rank;
    while (last > 1 && !tensor->free[last - 1]) last--;
    for (uint32_t d = 1; d < last; d++) {
        size_t count = 0;
        if (*at != '[') {
            return r.wrong("%s: row 0 of input '%s': expected arrays %u deep, found %u",
                           r.body->name, shown(tensor->name).text, tensor->rank - 1, d - 1);
        }
        at = enter(r, at, &count);
        if (tensor->free[d]) dims[d] = (int64_t)count;
    }
    return true;
}

bool is_there(const reading &r, uint32_t input) {
    return r.first[input] || r.wrong("%s%s: '%s' is missing", r.body->name,
                                     r.body->form == rows_form::NAMED ? "" : "[0]",
                                     shown(r.model->inputs[input].name).text);
}

/* Whether an input's row are the columns of a table, in their order. */
bool has_columns(const reading &r) {
    return r.body->column_count > 0 && r.body->form != rows_form::CELLS;
}

/* An input of any rank: as deep as its first value is nested, in rows unless it is sent whole. */
bool size_any_rank(const reading &r, uint32_t input) {
    const struct lm_tensor *tensor = r.input(input);
    const char *at = r.first[input];
    int64_t dims[LM_RANK_MAX];
    uint32_t rank = 0;
    if (r.body->form != rows_form::NAMED) dims[rank++] = (int64_t)r.body->count;
    if (has_columns(r)) {
        dims[rank++] = r.body->column_count;
        return take_shape(r, r.model, tensor, dims, rank, &r.request->sizes);
    }
    if (!is_there(r, input)) return false;
    while (*at == '[') {
        size_t count = 0;
        if (rank == LM_RANK_MAX) {
            return r.wrong("%s: input '%s': expected arrays at most %u deep, found more",
                           r.body->name, shown(tensor->name).text, tensor->rank);
        }
        at = enter(r, at, &count);
        dims[rank++] = (int64_t)count;
    }
    return take_shape(r, r.model, tensor, dims, rank, &r.request->sizes);
}

bool size_input(const reading &r, uint32_t input) {
    const struct lm_tensor *tensor = r.input(input);
    const bool named = r.body->form == rows_form::NAMED;
    const char *at = r.first[input];
    size_t count = r.body->count;
    int64_t dims[LM_RANK_MAX];
    if (tensor->any_rank) return size_any_rank(r, input);
    if (tensor->rank == 0) {
        return named || r.wrong("%s: input '%s' is one number for all rows: send it in \"inputs\"",
                                r.body->name, shown(tensor->name).text);
    }
    memcpy(dims, tensor->dims, sizeof dims);
    if (named && at) {
        if (*at != '[') {
            return r.wrong("inputs: '%s': expected an array, found something else",
                           shown(tensor->name).text);
        }
        at = enter(r, at, &count);
    }
    dims[0] = (int64_t)count;
    if (has_columns(r)) {
        if (tensor->rank > 2 && tensor->varies) {
            return r.wrong("%s: columns cannot say the sizes of input '%s': send \"instances\"",
                           r.body->name, shown(tensor->name).text);
        }
        if (tensor->rank == 2) dims[1] = r.body->column_count;
    } else if (!is_there(r, input)) {
        return false;
    } else if (count > 0 && tensor->varies && !measure(r, input, at, dims)) {
        return false;
    }
    return take_shape(r, r.model, tensor, dims, tensor->rank, &r.request->sizes);
}

bool read_sizes(const reading &r) {
    struct lm_oip_request *request = r.request;
    for (uint32_t i = 0; i < r.model->input_count; i++) {
        if (!size_input(r, i)) return false;
    }
    if (request->sizes.rows == 0) request->sizes.rows = 1; /* no input of the model has rows */
    return true;
}

bool has_served(const reading &r, const char *what, const struct lm_tensor *tensors,
                uint32_t count) {
    for (uint32_t t = 0; t < count; t++) {
        if (!has_no_json(tensors[t].dtype)) continue;
        return r.wrong("%s '%s': %s is not served as rows: ask /v2/models/%.64s/infer", what,
                       shown(tensors[t].name).text, lm_dtype_name(tensors[t].dtype), r.model->name);
    }
    return true;
}

void request_outputs(const reading &r) {
    struct lm_oip_request *request = r.request;
    for (uint32_t o = 0; o < r.model->output_count; o++)
        request->requested[request->requested_count++] = {(uint8_t)o, false, 0, false};
    /* Rows are answered by rows, whole inputs by whole outputs. */
    request->row_count = r.field == LM_ROWS_INPUTS ? 0 : (uint32_t)r.body->count;
    request->value_count = r.model->input_count;
}

bool read_request(reading &r, const object &root) {
    fields<COUNT> found;
    if (!read_fields(r, root, place("request"), names, &found)) return false;
    for (size_t p = PARAMETERS; p <= PARAMS; p++) {
        if (found.there[p] && !read_timeout(r, found.values[p], names[p].data())) return false;
    }
    if (!has_served(r, "input", r.model->inputs, r.model->input_count) ||
        !has_served(r, "output", r.model->outputs, r.model->output_count))
        return false;
    if (!find_body(r, found) || !choose_form(r)) return false;
    r.request->pictures = has_files(r);
    if (!read_sizes(r)) return false;
    request_outputs(r);
    return true;
}

} // namespace

enum lm_status lm_rows_read(struct lm_oip_parser *parser, const char *text, size_t bytes,
                            const struct lm_model *model, struct lm_oip_request *out, char *why,
                            size_t why_bytes) {
    object root;
    lm_oip_request_reset(out);
    lm_tensors_unsay(model->inputs, model->input_count, out->sizes.free);
    parser->rows = {};
    parser->has_columns = false;
    reading r({why, why_bytes}, parser, model, out);
    enum lm_status status = parse(parser, lm_rows_find, text, bytes, &root, r);
    if (status != LM_STATUS_OK) return status;
    return read_request(r, root) ? LM_STATUS_OK : LM_STATUS_BAD_REQUEST;
}
