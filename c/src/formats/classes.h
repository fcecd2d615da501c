/* classes.h: the largest values of an output and which they are, for replies that name classes.
 * C++, for oip_reply.cc, class_list.cc and texts_reply.cc alone. No state: any thread. */
#ifndef LM_FORMATS_CLASSES_H
#define LM_FORMATS_CLASSES_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/cxx.h"
extern "C" {
#include "formats/oip_reply.h"
}

namespace lm_classes {

enum { INDEX_BYTES_MAX = 10 };

/* Classification takes an output as rows of so many classes. */
struct classes {
    size_t rows;
    size_t count; /* of one row */
    size_t kept;  /* of one row, at most as many as requested */
};

inline bool has_rows_of(const struct lm_oip_output &output) {
    return output.tensor->rows_free && output.rank > 0 && !output.tensor->is_whole;
}

inline classes classes_of(const struct lm_oip_output &output, uint32_t requested) {
    size_t elements = output.bytes / output.tensor->element_bytes;
    bool has_rows = has_rows_of(output);
    size_t rows = has_rows ? (size_t)output.dims[0] : 1;
    size_t count = rows ? elements / rows : 0;
    return {rows, count, std::min<size_t>(requested, count)};
}

/* Larger values first, of equal ones the first; NaN last. */
template <typename number> struct ranks_before {
    const number *values;
    size_t step = 1;
    bool operator()(uint32_t a, uint32_t b) const {
        number x = values[a * step], y = values[b * step];
        if constexpr (std::is_floating_point_v<number>) {
            if (std::isnan(x) || std::isnan(y))
                return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(y);
        }
        return x != y ? x > y : a < b;
    }
};

/* Writes the indices of the largest values of a row to the first `kept` of `ranking`, which has
 * room for all. */
template <typename number> void rank(const number *values, const classes &is, uint32_t *ranking) {
    for (size_t i = 0; i < is.count; i++) ranking[i] = (uint32_t)i;
    std::partial_sort(ranking, ranking + is.kept, ranking + is.count, ranks_before<number>{values});
}

} // namespace lm_classes

#endif
