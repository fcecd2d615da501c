/* rows_base64.h: TensorFlow Serving's form of bytes that are no text, {"b64": "..."}, in the place
 * of a string of rows. C++, for rows_values.cc and rows_request.cc alone. Any thread.
 */
#ifndef LM_FORMATS_ROWS_BASE64_H
#define LM_FORMATS_ROWS_BASE64_H

#include <sodium.h>

#include "formats/rows_walk.h"

namespace lm_oip {

/* The text between the quotes of such an object, and where the object ends; at NULL: it is none. */
struct base64_text {
    const char *at = nullptr;
    size_t bytes = 0;
    const char *behind = nullptr;

    base64_text(const char *object, const char *end) {
        const char *from = object;
        if (!pass(from, end, "{") || !pass(from, end, "\"b64\"") || !pass(from, end, ":")) return;
        if (!pass(from, end, "\"")) return;
        const char *quote = (const char *)memchr(from, '"', (size_t)(end - from));
        if (!quote) return;
        const char *after = quote + 1;
        if (!pass(after, end, "}")) return;
        at = from;
        bytes = (size_t)(quote - from);
        behind = after;
    }

    /* Of what it stands for, if it is base64 at all. */
    size_t decoded_bytes() const {
        size_t digits = 0;
        for (size_t i = 0; i < bytes; i++) digits += at[i] != '=' && at[i] != '\\';
        return digits * 3 / 4;
    }

    /* Some writers leave the padding out, and some put a backslash before each slash. */
    bool decode(char *to, size_t room) const {
        for (int variant :
             {sodium_base64_VARIANT_ORIGINAL, sodium_base64_VARIANT_ORIGINAL_NO_PADDING}) {
            size_t written = 0;
            const char *end = nullptr;
            if (sodium_base642bin((unsigned char *)to, room, at, bytes, "\\", &written, &end,
                                  variant) == 0 &&
                end == at + bytes && written == room)
                return true;
        }
        return false;
    }

  private:
    static bool pass(const char *&from, const char *end, const char *text) {
        const size_t count = strlen(text);
        skip_space(from);
        if ((size_t)(end - from) < count || memcmp(from, text, count) != 0) return false;
        from += count;
        return true;
    }
};

/* A string that comes so: counted, or written with its length before it. */
inline bool read_base64(walk &w, const target &t) {
    const base64_text text(w.at, w.body->end);
    string_place &place = *t.strings;
    if (!text.at) {
        return w.wrong("%s: expected a string or {\"b64\": \"...\"}, found an object",
                       spot(w, t).text);
    }
    const uint32_t bytes = (uint32_t)text.decoded_bytes();
    /* A picture's file has no other bound than the request's. */
    if (text.decoded_bytes() > LM_STRING_BYTES_MAX && !w.model->input_plan.has_images) {
        return w.wrong("%s: expected a string of at most %d bytes, found %zu", spot(w, t).text,
                       LM_STRING_BYTES_MAX, text.decoded_bytes());
    }
    w.at = text.behind;
    if (!place.at) {
        place.bytes += sizeof bytes + bytes;
        return true;
    }
    memcpy(place.at, &bytes, sizeof bytes);
    if (!text.decode(place.at + sizeof bytes, bytes))
        return w.wrong("%s: b64: expected base64, found something else", spot(w, t).text);
    place.at += sizeof bytes + bytes;
    return true;
}

} // namespace lm_oip

#endif
