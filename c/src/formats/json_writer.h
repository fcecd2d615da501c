/* json_writer.h: JSON into memory of fixed size, for what workers compose. C++ for std::to_chars,
 * the shortest text that reads back as the same number; it knows no locale and allocates nothing.
 * No state: any thread. */
#ifndef LM_FORMATS_JSON_WRITER_H
#define LM_FORMATS_JSON_WRITER_H

#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "base/cxx.h"
extern "C" {
#include "base/json_text.h"
#include "onnx/ort_api.h"
#include "onnx/tensor.h"
}

namespace lm_json {

enum { NUMBER_BYTES_MAX = 24 }; /* -2.2250738585072014e-308; 64 bits have 20 */

/* Appends to memory of fixed size; what does not fit is not written, and makes `full` true. */
struct writer {
    char *at;
    char *end;
    bool full;

    size_t room() const {
        return (size_t)(end - at);
    }
    void put(std::string_view text) {
        full = full || text.size() > room();
        if (full) return;
        memcpy(at, text.data(), text.size());
        at += text.size();
    }
    void string(std::string_view text) {
        size_t written = 0;
        put("\"");
        full = full || !lm_json_escape(text.data(), text.size(), at, room(), &written);
        if (!full) at += written;
        put("\"");
    }
    template <typename... arguments> void number(arguments... value) {
        std::to_chars_result result = std::to_chars(at, end, value...);
        full = full || result.ec != std::errc();
        if (!full) at = result.ptr;
    }
};

inline bool is_sayable(float value) {
    return std::isfinite(value);
}
inline bool is_sayable(double value) {
    return std::isfinite(value);
}
template <typename number> bool is_sayable(number) {
    return true;
}

/* A text that any JSON reader takes for the same number: -0 and whole numbers beyond 2^53 would
 * lose their sign or be refused where whole numbers are read as integers. */
template <typename number> void put_number(writer &w, number value) {
    if constexpr (std::is_floating_point_v<number>) {
        if (value == 0 && std::signbit(value)) return w.put("-0.0");
        if (std::fabs(value) >= (number)0x1p53)
            return w.number(value, std::chars_format::scientific);
    }
    w.number(value);
}

template <> inline void put_number<bool>(writer &w, bool value) {
    w.put(value ? "true" : "false");
}

/* The longest number of a type as JSON. */
inline size_t number_bytes_max(int dtype) {
    switch (dtype) {
    case ORT_UINT8: return 3;
    case ORT_INT8: return 4;
    case ORT_BOOL: return 5;
    case ORT_UINT16: return 5;
    case ORT_INT16: return 6;
    case ORT_UINT32: return 10;
    case ORT_INT32: return 11;
    case ORT_FLOAT: return 15; /* -1.1754944e-38 */
    default: return NUMBER_BYTES_MAX;
    }
}

/* ---- strings, as an output has them: a length (u32, little-endian), then so many bytes ---- */

/* Moves behind a string, which we wrote ourselves. */
inline std::string_view next_string(const char *&at) {
    uint32_t bytes = 0;
    memcpy(&bytes, at, sizeof bytes);
    std::string_view text = {at + sizeof bytes, bytes};
    at += sizeof bytes + bytes;
    return text;
}

inline bool is_utf8(std::string_view text) {
    size_t taken = 1, at = 0;
    for (; at < text.size() && taken > 0; at += taken)
        taken = lm_utf8_bytes(text.data() + at, text.size() - at);
    return taken > 0;
}

/* Bytes of the strings as JSON, with their commas. */
inline size_t strings_json_bytes(const void *data, size_t data_bytes) {
    const char *at = (const char *)data, *end = at + data_bytes;
    size_t bytes = 0, taken = 0;
    while (at < end) {
        std::string_view text = next_string(at);
        bytes += 3;
        for (size_t i = 0; i < text.size(); i += taken) {
            char one[LM_JSON_ESCAPE_MAX];
            bytes += lm_json_escape_one(text.data() + i, text.size() - i, one, &taken);
        }
    }
    return bytes;
}

/* The most bytes that a text may have, in sums. */
struct bound {
    size_t bytes;
    bool overflows;

    void add(size_t count, size_t each) {
        size_t product = 0;
        overflows = overflows || __builtin_mul_overflow(count, each, &product) ||
                    __builtin_add_overflow(bytes, product, &bytes);
    }
};

} // namespace lm_json

#endif
