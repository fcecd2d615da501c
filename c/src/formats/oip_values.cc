/* oip_values.cc: the numbers of a request that was read, from its text to the tensors; see
 * oip_request.h. Arrays that are only in simdjson's tree are read from there; the outcome is the
 * same. */
#include "formats/oip_json.h"
#include "formats/oip_missing.h"
#include "formats/oip_number.h"

using namespace lm_oip;

namespace {

/* Going through the data of one input. */
struct walk : complaint {
    const struct lm_tensor *tensor;
    uint32_t rank; /* depth of the arrays: 1 when the data is flat */
    int64_t dims[LM_RANK_MAX];
};

bool wrong_count(const walk &w, uint32_t depth, bool more) {
    return w.wrong("input '%s': data: expected %lld elements in an array of depth %u, found %s",
                   shown(w.tensor->name).text, (long long)w.dims[depth], depth + 1,
                   more ? "more" : "fewer");
}

bool is_whole(int dtype) {
    return dtype != ORT_FLOAT && dtype != ORT_DOUBLE && dtype != ORT_BOOL && dtype != ORT_STRING;
}

bool wrong_value(const walk &w, size_t at, const char *found) {
    return w.wrong("input '%s': data, element %zu: expected %s%s, found %s",
                   shown(w.tensor->name).text, at,
                   w.tensor->dtype == ORT_BOOL     ? "true or false for "
                   : w.tensor->dtype == ORT_STRING ? "a string for "
                   : is_whole(w.tensor->dtype)     ? "a whole number that fits "
                                                   : "a number that fits ",
                   lm_dtype_name(w.tensor->dtype), found);
}

bool wrong_depth(const walk &w, const char *found) {
    return w.wrong("input '%s': data: expected arrays of depth %u, found %s",
                   shown(w.tensor->name).text, w.rank, found);
}

/* ---- from the text ---- */

/* A number that is wrong, as the client wrote it. */
bool wrong_text(const walk &w, size_t at, const char *from) {
    char found[32];
    size_t used = 0;
    while (used < sizeof found - 1 && from[used] > ' ' && from[used] < 0x7f &&
           !strchr(",[]{}", from[used])) {
        found[used] = from[used];
        used++;
    }
    found[used] = '\0';
    return wrong_value(w, at, used ? found : *from == '[' ? "an array" : "something else");
}

inline void skip_space(const char *&at) {
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') at++;
}

/* After an element: passes a comma, or the array's end, which sets `done`. False: neither is there.
 */
inline bool pass_separator(const char *&at, bool *done) {
    skip_space(at);
    *done = *at == ']';
    if (!*done && *at != ',') return false;
    at++;
    if (!*done) skip_space(at);
    return true;
}

/* Neither a comma nor a bracket after an element: of a whole number, its fraction may be there. */
bool no_separator(const walk &w, size_t element_at, const char *start, const char *at) {
    if (is_whole(w.tensor->dtype) && at[-1] > ' ' && strchr(".eE", *at))
        return wrong_text(w, element_at, start);
    return w.wrong("input '%s': data, element %zu: expected a comma or a bracket behind it, found "
                   "something else",
                   shown(w.tensor->name).text, element_at);
}

/* Reads the array that begins at `at`; the last bracket of the text closes it or one around it, so
 * nothing runs past it. */
template <typename number>
bool read_text(const walk &w, const char *&at, uint32_t depth, number *tensor, size_t *element_at) {
    const size_t expected = (size_t)w.dims[depth];
    const bool is_last = depth + 1 == w.rank;
    number *out = tensor + *element_at;
    size_t count = 0;
    bool done = false;
    at++;
    skip_space(at);
    if (*at == ']') {
        at++;
        return expected == 0 || wrong_count(w, depth, false);
    }
    while (!done) {
        const char *start = at;
        if (count == expected) return wrong_count(w, depth, true);
        if (is_last) {
            if (!read_number(at, out + count) && !read_missing(at = start, out + count))
                return wrong_text(w, *element_at + count, start);
        } else {
            if (*at != '[') return wrong_depth(w, "something else");
            if (!read_text(w, at, depth + 1, tensor, element_at)) return false;
        }
        if (!pass_separator(at, &done))
            return no_separator(w, *element_at + (is_last ? count : 0), start, at);
        count++;
    }
    if (is_last) *element_at += count;
    return count == expected || wrong_count(w, depth, false);
}

/* ---- from the tree ---- */

/* A number of the tree as an element of a tensor; false when it is none or does not fit. */
template <typename number> inline bool convert(const element &from, number *out) {
    if constexpr (std::is_same_v<number, bool>) {
        return !from.get(*out);
    } else if constexpr (std::is_floating_point_v<number>) {
        double wide = 0;
        std::string_view text;
        if (from.is_null() || (!from.get(text) && text == "NaN")) {
            *out = std::numeric_limits<number>::quiet_NaN();
            return true;
        }
        if (from.get(wide)) return false;
        if constexpr (sizeof(number) == sizeof wide) {
            *out = wide;
            return true;
        } else {
            return narrow(wide, out);
        }
    } else {
        std::conditional_t<std::is_signed_v<number>, int64_t, uint64_t> wide = 0;
        if (from.get(wide)) return false;
        *out = (number)wide;
        return *out == wide;
    }
}

bool wrong_element(const walk &w, size_t at, const element &found) {
    char number[32] = "";
    int64_t whole = 0;
    double real = 0;
    if (!found.get(whole)) {
        snprintf(number, sizeof number, "%lld", (long long)whole);
    } else if (!found.get(real)) {
        snprintf(number, sizeof number, "%.17g", real);
    }
    return wrong_value(w, at, number[0] ? number : kind(found));
}

/* Reads one array of numbers, or of arrays; `at` counts the elements of the tensor. */
template <typename number>
bool read_array(const walk &w, const array &from, uint32_t depth, number *tensor, size_t *at) {
    const size_t expected = (size_t)w.dims[depth];
    size_t count = 0;
    if (depth + 1 < w.rank) {
        for (element inner : from) {
            array next;
            if (count++ == expected) return wrong_count(w, depth, true);
            if (inner.get(next)) return wrong_depth(w, kind(inner));
            if (!read_array(w, next, depth + 1, tensor, at)) return false;
        }
    } else {
        number *out = tensor + *at;
        for (element value : from) {
            if (count == expected) return wrong_count(w, depth, true);
            if (!convert(value, out + count)) return wrong_element(w, *at + count, value);
            count++;
        }
        *at += count;
    }
    return count == expected || wrong_count(w, depth, false);
}

/* ---- strings, which are in the tree alone ---- */

/* The wire form of an array of strings, or of arrays; `at` counts the elements. */
bool read_strings(const walk &w, const array &from, uint32_t depth, uint8_t *&out, size_t *at) {
    const size_t expected = (size_t)w.dims[depth];
    size_t count = 0;
    for (element value : from) {
        array next;
        std::string_view text;
        if (count++ == expected) return wrong_count(w, depth, true);
        if (depth + 1 < w.rank) {
            if (value.get(next)) return wrong_depth(w, kind(value));
            if (!read_strings(w, next, depth + 1, out, at)) return false;
            continue;
        }
        if (value.get(text)) return wrong_element(w, *at, value);
        const uint32_t bytes = (uint32_t)text.size();
        memcpy(out, &bytes, sizeof bytes);
        memcpy(out + sizeof bytes, text.data(), text.size());
        out += sizeof bytes + text.size();
        (*at)++;
    }
    return count == expected || wrong_count(w, depth, false);
}

size_t strings_bytes(const array &from) {
    size_t bytes = 0;
    for (element value : from) {
        array next;
        std::string_view text;
        if (!value.get(next)) {
            bytes += strings_bytes(next);
        } else if (!value.get(text)) {
            bytes += sizeof(uint32_t) + text.size();
        }
    }
    return bytes;
}

/* ---- either ---- */

template <typename number>
bool read_tensor(const walk &w, const struct lm_oip_value &from, void *tensor) {
    size_t at = 0;
    if (!from.text) return read_array(w, from.tree, 0, (number *)tensor, &at);
    const char *text = from.text->text;
    if (!read_text(w, text, 0, (number *)tensor, &at)) return false;
    return text == from.text->text + from.text->bytes || wrong_depth(w, "brackets that differ");
}

/* An array without a string is not in the tree: it has no elements, or says what else was found. */
bool read_string_tensor(const walk &w, const struct lm_oip_value &from, void *tensor) {
    uint8_t *out = (uint8_t *)tensor;
    size_t at = 0;
    if (!from.text) return read_strings(w, from.tree, 0, out, &at);
    for (uint32_t d = 0; d < w.rank; d++) {
        if (w.dims[d] == 0) return read_tensor<uint8_t>(w, from, tensor); /* brackets alone */
    }
    const char *text = from.text->text;
    while (*text == '[' || (*text && strchr(" \n\r\t", *text))) text++;
    return *text == ']' ? wrong_count(w, 0, false) : wrong_text(w, 0, text);
}

bool read_by_type(const walk &w, const struct lm_oip_value &from, void *tensor) {
    switch (w.tensor->dtype) {
    case ORT_FLOAT: return read_tensor<float>(w, from, tensor);
    case ORT_DOUBLE: return read_tensor<double>(w, from, tensor);
    case ORT_INT8: return read_tensor<int8_t>(w, from, tensor);
    case ORT_UINT8: return read_tensor<uint8_t>(w, from, tensor);
    case ORT_INT16: return read_tensor<int16_t>(w, from, tensor);
    case ORT_UINT16: return read_tensor<uint16_t>(w, from, tensor);
    case ORT_INT32: return read_tensor<int32_t>(w, from, tensor);
    case ORT_UINT32: return read_tensor<uint32_t>(w, from, tensor);
    case ORT_INT64: return read_tensor<int64_t>(w, from, tensor);
    case ORT_UINT64: return read_tensor<uint64_t>(w, from, tensor);
    case ORT_BOOL: return read_tensor<bool>(w, from, tensor);
    case ORT_STRING: return read_string_tensor(w, from, tensor);
    default: return w.wrong("input '%s': no form in JSON", shown(w.tensor->name).text);
    }
}

/* Nested data has the tensor's shape; flat data is one array of all its elements. */
bool read_values(walk &w, const struct lm_sizes *sizes, const struct lm_oip_value &from,
                 void *tensor) {
    bool nested = false;
    if (from.text) {
        const char *first = from.text->text + 1;
        skip_space(first);
        nested = *first == '[';
    } else {
        auto first = from.tree.begin();
        nested = first != from.tree.end() && (*first).is_array();
    }
    w.rank = lm_tensor_shape(lm_tensor_of_client(w.tensor), sizes, w.dims);
    if (!nested || w.rank == 0) {
        size_t bytes = 0;
        lm_tensor_bytes(w.tensor, sizes, &bytes);
        w.dims[0] = (int64_t)(bytes / w.tensor->element_bytes);
        w.rank = 1;
    }
    return read_by_type(w, from, tensor);
}

} // namespace

size_t lm_oip_strings_bytes(const struct lm_oip_parser *parser,
                            const struct lm_oip_request *request, const struct lm_model *model,
                            size_t bytes_out[]) {
    size_t sum = 0;
    for (uint32_t i = 0; i < model->input_count; i++) bytes_out[i] = 0;
    for (uint32_t v = 0; v < request->value_count; v++) {
        const struct lm_oip_value &value = parser->values[v];
        if (!lm_is_string(&model->inputs[value.input]) || value.text) continue;
        sum += bytes_out[value.input] = strings_bytes(value.tree);
    }
    return sum;
}

enum lm_status lm_oip_values(struct lm_oip_parser *parser, const struct lm_oip_request *request,
                             const struct lm_model *model, void *const inputs[], char *why,
                             size_t why_bytes) {
    for (uint32_t v = 0; v < request->value_count; v++) {
        const struct lm_oip_value &value = parser->values[v];
        walk w = {{why, why_bytes}, &model->inputs[value.input], 0, {}};
        if (!read_values(w, &request->sizes, value, inputs[value.input]))
            return LM_STATUS_BAD_REQUEST;
    }
    return LM_STATUS_OK;
}
