/* texts_ids.cc: see texts_ids.h. */
#include "formats/texts_ids.h"

extern "C" {
#include "base/limits.h"
}

namespace lm_oip {

namespace {

/* The bytes of a text, whose ids were checked. */
size_t decode(const texts_body &body, const array &ids, char *to) {
    struct lm_text_decoding decoding = {};
    decoding.tokenizer = body.tokenizer;
    decoding.skips_special = body.skips_special;
    decoding.out = to;
    for (const element &id : ids)
        lm_text_decode(&decoding, (uint32_t)id.get_uint64().value_unsafe());
    lm_text_decode_end(&decoding);
    return decoding.bytes;
}

bool check_ids(const complaint &say, const array &ids, const char *where, const texts_body &body) {
    const uint32_t most = body.tokenizer->header->vocabulary;
    size_t at = 0;
    for (const element &one : ids) {
        uint64_t id = 0;
        if (one.get(id))
            return say.wrong("%s[%zu]: expected an id, found %s", where, at, kind(one));
        if (id >= most)
            return say.wrong("%s[%zu]: expected an id below %u, found %llu", where, at, most,
                             (unsigned long long)id);
        at++;
    }
    const size_t bytes = decode(body, ids, nullptr);
    return bytes <= LM_STRING_BYTES_MAX ||
           say.wrong("%s: expected a text of at most %d bytes, found %zu", where,
                     LM_STRING_BYTES_MAX, bytes);
}

size_t put_text(const texts_body &body, const array &ids, char *to) {
    const uint32_t length = (uint32_t)decode(body, ids, to ? to + sizeof length : nullptr);
    if (to) memcpy(to, &length, sizeof length);
    return sizeof length + length;
}

} // namespace

bool read_ids(const complaint &say, const element &from, texts_body *body) {
    array inner;
    size_t row = 0;
    if (!lm_text_decodes(body->tokenizer))
        return say.wrong("the model's tokenizer.json has a decoder that is not implemented");
    if (from.get(body->list) || body->list.size() == 0)
        return say.wrong("ids: expected a list of ids, or of such lists, found %s", kind(from));
    body->is_one = !body->list.at(0).value_unsafe().is_array();
    if (body->is_one) return check_ids(say, body->list, "ids", *body);
    for (const element &one : body->list) {
        char where[32];
        snprintf(where, sizeof where, "ids[%zu]", row++);
        if (one.get(inner))
            return say.wrong("%s: expected a list of ids, found %s", where, kind(one));
        if (!check_ids(say, inner, where, *body)) return false;
    }
    return true;
}

size_t put_ids(const texts_body &body, char *to) {
    size_t bytes = 0;
    array inner;
    if (body.is_one) return put_text(body, body.list, to);
    for (const element &one : body.list)
        if (!one.get(inner)) bytes += put_text(body, inner, to ? to + bytes : nullptr);
    return bytes;
}

} // namespace lm_oip
