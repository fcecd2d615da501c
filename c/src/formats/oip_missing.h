/* oip_missing.h: a value that is missing among the numbers of JSON. C++, for oip_values.cc and
 * rows_values.cc alone. No state: any thread.
 */
#ifndef LM_FORMATS_OIP_MISSING_H
#define LM_FORMATS_OIP_MISSING_H

#include <cstring>
#include <limits>
#include <type_traits>

namespace lm_oip {

/* Passes over one of the forms that clients have for it: pandas and R write null, Python's json
 * NaN, JavaScript's and others' "NaN". Among whole numbers nothing stands for it. */
template <typename number> inline bool read_missing(const char *&at, number *out) {
    if constexpr (std::is_floating_point_v<number>) {
        for (const char *form : {"null", "NaN", "\"NaN\""}) {
            const size_t bytes = strlen(form);
            if (strncmp(at, form, bytes) != 0) continue;
            *out = std::numeric_limits<number>::quiet_NaN();
            at += bytes;
            return true;
        }
    }
    return false;
}

} // namespace lm_oip

#endif
