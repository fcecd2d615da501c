/* rows_columns.cc: see rows_columns.h. */
#include "formats/rows_columns.h"

using namespace lm_oip;

namespace {

uint64_t hash_of(std::string_view name) {
    uint64_t hash = 0xcbf29ce484222325;
    for (char byte : name) hash = (hash ^ (uint8_t)byte) * 0x100000001b3;
    return hash;
}

/* Columns of the one input: as many as its row has values, none twice. A free size follows. */
bool check_columns(const complaint &c, const struct lm_model *model, const char *where,
                   const uint64_t *hashes, uint32_t count, rows_body *body) {
    const struct lm_tensor *tensor = &model->inputs[0];
    const size_t expected = tensor->row_bytes / tensor->element_bytes;
    for (uint32_t a = 0; a < count; a++) {
        for (uint32_t b = 0; b < a; b++) {
            if (hashes[a] == hashes[b])
                return c.wrong("%s: columns %u and %u have one name", where, b, a);
        }
    }
    if (tensor->rank > 0 && !tensor->varies && count != expected) {
        return c.wrong("%s: expected %zu columns (a row of input '%s'), found %u", where, expected,
                       shown(tensor->name).text, count);
    }
    body->column_count = count;
    return true;
}

bool too_many_columns(const complaint &c, const char *where) {
    return c.wrong("%s: expected at most %d columns with names: send \"instances\"", where,
                   LM_COLUMNS_MAX);
}

} // namespace

bool lm_oip::count_columns(const complaint &c, const struct lm_model *model, const array &columns,
                           rows_body *body) {
    static const char where[] = "dataframe_split.columns";
    uint64_t hashes[LM_COLUMNS_MAX];
    uint32_t count = 0;
    for (element column : columns) {
        std::string_view name;
        int64_t number = 0;
        if (count == LM_COLUMNS_MAX) return too_many_columns(c, where);
        if (column.get(name) && column.get(number)) {
            return c.wrong("%s[%u]: expected a name, found %s", where, count, kind(column));
        }
        hashes[count++] = name.data() ? hash_of(name) : (uint64_t)number;
    }
    return check_columns(c, model, where, hashes, count, body);
}

bool lm_oip::map_columns(const complaint &c, const struct lm_model *model, const array &columns,
                         rows_body *body) {
    tensor_set seen;
    for (element column : columns) {
        std::string_view name;
        if (column.get(name)) {
            return c.wrong("dataframe_split.columns[%u]: expected a name, found %s",
                           body->column_count, kind(column));
        }
        uint32_t input = find_input(model, name, body->column_count);
        if (input == model->input_count) {
            return c.wrong("dataframe_split.columns[%u]: expected one of %s, found '%s'",
                           body->column_count, input_names(model).text, shown(name).text);
        }
        if (seen.has(input)) {
            return c.wrong("dataframe_split.columns[%u]: '%s' comes twice", body->column_count,
                           shown(name).text);
        }
        seen.add(input);
        body->targets[body->column_count++] = (uint8_t)input;
    }
    for (uint32_t i = 0; i < model->input_count; i++) {
        if (seen.has(i)) continue;
        return c.wrong("dataframe_split.columns: '%s' is missing",
                       shown(model->inputs[i].name).text);
    }
    return true;
}

bool lm_oip::name_columns(const complaint &c, const struct lm_model *model, const char *at,
                          rows_body *body) {
    static const char where[] = "dataframe_records[0]";
    uint64_t hashes[LM_COLUMNS_MAX];
    written_name name = {};
    const char *value = nullptr;
    uint32_t count = 0;
    body->form = rows_form::FIELDS;
    at++;
    skip_space(at);
    for (bool more = *at != '}'; more;) {
        plain_name plain;
        if (count == LM_COLUMNS_MAX) return too_many_columns(c, where);
        name = {};
        more = pass_field(at, body->end, &name, &value);
        if (!name.at || !read_name(name, &plain))
            return c.wrong("%s: field %u has no name", where, count);
        hashes[count++] = hash_of(plain.view());
    }
    return check_columns(c, model, where, hashes, count, body);
}
