/* oip_sequence.cc: see oip_sequence.h. */
#include "formats/oip_sequence.h"

#include <cstring>

#include "formats/oip_fields.h"

namespace lm_oip {

namespace {

/* 0, "" and false say "none". */
bool says_none(const element &value) {
    uint64_t number = 1;
    bool flag = true;
    std::string_view text;
    return (!value.get(number) && number == 0) || (!value.get(flag) && !flag) ||
           (!value.get(text) && text.empty());
}

bool read_id(const complaint &say, const element &from, struct lm_sequence_ask *out) {
    std::string_view text;
    if (!from.get(out->id)) return true;
    if (from.get(text) || text.size() > LM_SEQUENCE_TEXT_BYTES_MAX) {
        return say.wrong("parameters: sequence_id: expected an integer above 0 or a string of at "
                         "most %d bytes, found %s",
                         LM_SEQUENCE_TEXT_BYTES_MAX, kind(from));
    }
    out->text_bytes = (uint32_t)text.size();
    std::memcpy(out->text, text.data(), text.size());
    return true;
}

} // namespace

bool read_sequence(const complaint &say, const struct lm_model *model, const element *values,
                   const bool *there, struct lm_sequence_ask *out) {
    static const char *const names[] = {"sequence_id", "sequence_start", "sequence_end"};
    const place where("parameters");
    for (size_t i = 0; !model->sequences && i < 3; i++) {
        if (there[i] && !says_none(values[i]))
            return say.wrong("parameters: %s: expected none: model '%s' has no sequences", names[i],
                             model->name);
    }
    if (!model->sequences) return true;
    if (there[0] && !read_id(say, values[0], out)) return false;
    if (there[1] && !read_bool(say, values[1], where, names[1], &out->starts)) return false;
    return !there[2] || read_bool(say, values[2], where, names[2], &out->ends);
}

} // namespace lm_oip
