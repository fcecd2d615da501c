/* oip_number.h: one JSON number, or true or false, from text to an element of a tensor. C++, for
 * oip_values.cc and rows_values.cc alone. Every number is read to the nearest double (and from
 * there to the nearest float), as any JSON reader would; what JSON does not allow is refused.
 *
 * The fast way reads digits eight at a time, without a branch on how many there are, since their
 * number differs from element to element and branches on it are guessed wrong. It ends in one
 * division of exact numbers where that gives the nearest double. For a float the quotient may be
 * off by little: that matters only where a float's rounding hangs by it, which can be seen. No
 * state: any thread.
 */
#ifndef LM_FORMATS_OIP_NUMBER_H
#define LM_FORMATS_OIP_NUMBER_H

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace lm_oip {

inline bool is_digit(char byte) {
    return (uint8_t)(byte - '0') < 10;
}

/* ---- the slow way: any number ---- */

/* Passes over a number as JSON's grammar has it. `ten_power`: where its first digit that is not 0
 * stands; above 0: before the point. False when it is none. */
inline bool pass_number(const char *&at, int64_t *ten_power) {
    int64_t power = 0, exponent = 0;
    bool leading = true;
    at += *at == '-';
    if (!is_digit(*at) || (*at == '0' && is_digit(at[1]))) return false;
    for (; is_digit(*at); at++) {
        leading = leading && *at == '0';
        power += !leading;
    }
    if (*at == '.') {
        if (!is_digit(*++at)) return false;
        for (; is_digit(*at); at++) {
            leading = leading && *at == '0';
            power -= leading;
        }
    }
    if (*at == 'e' || *at == 'E') {
        bool negative = *++at == '-';
        at += *at == '-' || *at == '+';
        if (!is_digit(*at)) return false;
        for (; is_digit(*at); at++) {
            if (exponent < INT64_MAX / 100) exponent = exponent * 10 + (*at - '0');
        }
        if (negative) exponent = -exponent;
    }
    *ten_power = power + exponent;
    return true;
}

inline bool read_slowly(const char *&at, double *out) {
    const char *start = at;
    int64_t ten_power = 0;
    if (!pass_number(at, &ten_power)) return false;
    std::from_chars_result result = std::from_chars(start, at, *out);
    if (result.ec == std::errc::result_out_of_range) { /* too small is 0, too large is refused */
        *out = *start == '-' ? -0.0 : 0.0;
        return ten_power <= 0;
    }
    return result.ec == std::errc() && result.ptr == at && std::isfinite(*out);
}

/* ---- the fast way: digits and perhaps a point ---- */

constexpr uint64_t powers[20] = {1ull,
                                 10ull,
                                 100ull,
                                 1000ull,
                                 10000ull,
                                 100000ull,
                                 1000000ull,
                                 10000000ull,
                                 100000000ull,
                                 1000000000ull,
                                 10000000000ull,
                                 100000000000ull,
                                 1000000000000ull,
                                 10000000000000ull,
                                 100000000000000ull,
                                 1000000000000000ull,
                                 10000000000000000ull,
                                 100000000000000000ull,
                                 1000000000000000000ull,
                                 10000000000000000000ull};
constexpr double exact_powers[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

#define LM_INLINE __attribute__((always_inline)) inline

/* Up to eight digits at `at`: how many, and their value. Without a branch. */
struct digits {
    uint64_t count;
    uint64_t value;

    LM_INLINE explicit digits(const char *at) {
        const uint64_t tops = 0x8080808080808080;
        uint64_t bytes;
        memcpy(&bytes, at, sizeof bytes);
        bytes ^= 0x3030303030303030; /* digits are now 0..9 */
        const uint64_t others = ((bytes + 0x7676767676767676) | bytes) & tops;
        /* A top bit for each byte before the first that is no digit; their sum comes out on top. */
        const uint64_t before = (others - 1) & ~others & tops;
        count = (before >> 7) * 0x0101010101010101 >> 56;
        const uint64_t half = 32 - 4 * count; /* in two steps: 64 bits at once are not defined */
        bytes = bytes << half << half;        /* zeros before, not behind */
        bytes = bytes * 10 + (bytes >> 8);    /* pairs, then both fours at once */
        value = ((bytes & 0x000000ff000000ff) * 0x000f424000000064 +
                 (bytes >> 16 & 0x000000ff000000ff) * 0x0000271000000001) >>
                32;
    }
};

/* A number without exponent as mantissa / 10^scale; false where it has more digits than fit, or
 * something is wrong with it. */
LM_INLINE bool read_decimal(const char *&at, bool *negative, uint64_t *mantissa, uint64_t *scale) {
    const char *p = at;
    *negative = *p == '-';
    p += *negative;
    if (!is_digit(*p)) return false;
    uint64_t whole = (uint8_t)(*p++ - '0');
    if (is_digit(*p)) {
        if (whole == 0) return false;
        const char *last = p + 17;
        for (; is_digit(*p); p++) {
            if (p == last) return false;
            whole = whole * 10 + (uint8_t)(*p - '0');
        }
    }
    *scale = 0;
    if (*p == '.') {
        const digits first(p + 1), second(p + 9);
        if (first.count == 0) return false;
        /* The second eight count only where there are eight before. */
        const uint64_t full = 0 - (first.count >> 3);
        const uint64_t more = second.count & full;
        uint64_t fraction = first.value * powers[more] + (second.value & full);
        *scale = first.count + more;
        p += 1 + *scale;
        if (more == 8) {
            const digits third(p);
            if (third.count == 8 ||
                __builtin_mul_overflow(fraction, powers[third.count], &fraction) ||
                __builtin_add_overflow(fraction, third.value, &fraction))
                return false;
            *scale += third.count;
            p += third.count;
        }
        if (*scale > 22) return false;
        if (whole && (*scale > 19 || __builtin_mul_overflow(whole, powers[*scale], &whole)))
            return false;
        if (__builtin_add_overflow(whole, fraction, mantissa)) return false;
    } else {
        *mantissa = whole;
        if (whole == 0) *negative = false; /* the integer -0 is 0 */
    }
    if (*p == 'e' || *p == 'E') return false;
    at = p;
    return true;
}

inline bool read_number(const char *&at, double *out) {
    const char *start = at;
    bool negative = false;
    uint64_t mantissa = 0;
    uint64_t scale = 0;
    if (!read_decimal(at, &negative, &mantissa, &scale) || mantissa > (1ull << 53)) {
        at = start;
        return read_slowly(at, out);
    }
    double value = (double)mantissa / exact_powers[scale]; /* both exact: rounded once */
    *out = negative ? -value : value;
    return true;
}

/* From halfway above the largest float on, the nearest one is infinity. */
inline bool narrow(double wide, float *out) {
    if (!(std::fabs(wide) < 0x1.ffffffp127)) return false;
    *out = (float)wide;
    return true;
}

/* The quotient is off by two units at most. The nearest float is the same as that of the nearest
 * double unless it lies that near to the middle between two floats. (Below the normal floats the
 * middle would be elsewhere; what has at most 22 digits behind the point is 0 or far above them.)
 */
LM_INLINE bool read_number(const char *&at, float *out) {
    const char *start = at;
    bool negative = false;
    uint64_t mantissa = 0, bits = 0;
    uint64_t scale = 0;
    double wide = 0;
    if (read_decimal(at, &negative, &mantissa, &scale)) {
        wide = (double)mantissa / exact_powers[scale];
        memcpy(&bits, &wide, sizeof bits);
        const uint64_t from_middle = (bits & 0x1fffffff) - 0x0ffffff8;
        if (from_middle > 16) {
            bits |= (uint64_t)negative << 63;
            memcpy(&wide, &bits, sizeof bits);
            *out = (float)wide;
            return true;
        }
    }
    at = start;
    return read_slowly(at, &wide) && narrow(wide, out);
}

inline bool read_number(const char *&at, bool *out) {
    *out = *at == 't';
    const bool good = memcmp(at, *out ? "true" : "false", *out ? 4 : 5) == 0;
    at += *out ? 4 : 5;
    return good;
}

template <typename integer> inline bool read_number(const char *&at, integer *out) {
    static_assert(std::is_integral_v<integer>);
    bool negative = *at == '-';
    at += negative;
    if (!is_digit(*at) || (*at == '0' && is_digit(at[1]))) return false;
    uint64_t value = 0;
    for (; is_digit(*at); at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    }
    using limits = std::numeric_limits<integer>;
    if (negative) {
        const uint64_t most = std::is_signed_v<integer> ? (uint64_t)limits::max() + 1 : 0;
        *out = (integer)(0 - value);
        return value <= most;
    }
    *out = (integer)value;
    return value <= (uint64_t)limits::max();
}

#undef LM_INLINE

} // namespace lm_oip

#endif
