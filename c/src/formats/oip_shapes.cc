/* oip_shapes.cc: see oip_shapes.h. */
#include "formats/oip_shapes.h"

#include <cstdio>

using namespace lm_oip;

void lm_oip::show_shape(const int64_t *dims, uint32_t rank, bool more,
                        char text[LM_OIP_SHAPE_BYTES]) {
    size_t used = (size_t)snprintf(text, LM_OIP_SHAPE_BYTES, "[");
    for (uint32_t d = 0; d < rank; d++) {
        used += (size_t)snprintf(text + used, LM_OIP_SHAPE_BYTES - used, "%s%lld", d ? "," : "",
                                 (long long)dims[d]);
    }
    snprintf(text + used, LM_OIP_SHAPE_BYTES - used, more ? ",...]" : "]");
}

namespace {

bool wrong_shape(const complaint &c, const struct lm_model *model, const struct lm_tensor *tensor,
                 const int64_t *dims, uint32_t rank, bool more) {
    char expected[LM_OIP_SHAPE_BYTES], found[LM_OIP_SHAPE_BYTES];
    show_shape(tensor->dims, tensor->rank, false, expected);
    show_shape(dims, rank, more, found);
    if (tensor->any_rank) {
        const struct lm_free_dim &dim = model->free_dims[tensor->any_rank - 1];
        return c.wrong("input '%s': shape: expected at most %u dimensions of at least 1, with at "
                       "most %u elements in all (max_dims '%s' of model '%s'), found %s",
                       shown(tensor->name).text, tensor->rank, dim.max, shown(dim.name).text,
                       model->name, found);
    }
    return c.wrong("input '%s': shape: expected %s%s, found %s", shown(tensor->name).text, expected,
                   tensor->rank ? "" : " (one number)", found);
}

/* The size of a free dimension: within its maximum, and what the other inputs say. */
bool take_size(const complaint &c, const struct lm_model *model, const struct lm_tensor *tensor,
               uint32_t f, int64_t found, struct lm_sizes *sizes) {
    const struct lm_free_dim &dim = model->free_dims[f];
    uint32_t &size = sizes->free[f];
    if (found < 0 || found > (int64_t)dim.max) {
        return c.wrong("input '%s': shape: dimension '%s': expected 0 to %u (max_dims of model "
                       "'%s'), found %lld",
                       shown(tensor->name).text, shown(dim.name).text, dim.max, model->name,
                       (long long)found);
    }
    if (size != LM_SIZE_UNSAID && size != (uint32_t)found) {
        return c.wrong("input '%s': shape: dimension '%s': expected %u as before, found %lld",
                       shown(tensor->name).text, shown(dim.name).text, size, (long long)found);
    }
    size = (uint32_t)found;
    return true;
}

/* The shape of an input of any rank: the number of dimensions and of elements have a maximum. */
bool take_any_rank(const complaint &c, const struct lm_model *model, const struct lm_tensor *tensor,
                   const int64_t *dims, uint32_t rank, struct lm_sizes *sizes) {
    const uint64_t most = model->free_dims[tensor->any_rank - 1].max;
    uint64_t elements = 1;
    bool good = rank <= tensor->rank;
    for (uint32_t d = 0; good && d < rank; d++) {
        good = dims[d] >= 1 && (uint64_t)dims[d] <= most / elements;
        if (!good) break;
        elements *= (uint64_t)dims[d];
        sizes->free[tensor->free[d] - 1] = (uint32_t)dims[d];
    }
    return good || wrong_shape(c, model, tensor, dims, rank, false);
}

bool take_rows(const complaint &c, const struct lm_model *model, const struct lm_tensor *tensor,
               int64_t found, struct lm_sizes *sizes) {
    const shown name(tensor->name);
    uint32_t &rows = sizes->rows;
    if (found < 1 || found > (int64_t)model->max_rows) {
        return c.wrong("input '%s': shape: model '%s' takes 1 to %u rows, found %lld; "
                       "server.max_request_bytes and the model's max_rows decide that",
                       name.text, model->name, model->max_rows, (long long)found);
    }
    if (rows != 0 && rows != (uint32_t)found) {
        return c.wrong("input '%s': shape: expected %u rows as in the inputs before, found %lld",
                       name.text, rows, (long long)found);
    }
    rows = (uint32_t)found;
    return true;
}

} // namespace

bool lm_oip::read_shape(const complaint &c, const struct lm_model *model,
                        const struct lm_tensor *tensor, const element &from,
                        struct lm_sizes *sizes) {
    const shown name(tensor->name);
    array list;
    int64_t dims[LM_RANK_MAX];
    uint32_t rank = 0;
    if (from.get(list))
        return c.wrong("input '%s': shape: expected an array, found %s", name.text, kind(from));
    for (element value : list) {
        uint64_t dim = 0;
        if (value.get(dim) || dim > (uint64_t)INT64_MAX) {
            return c.wrong("input '%s': shape: expected integers of at least 0, found %s",
                           name.text, kind(value));
        }
        if (rank == LM_RANK_MAX) return wrong_shape(c, model, tensor, dims, rank, true);
        dims[rank++] = (int64_t)dim;
    }
    return take_shape(c, model, tensor, dims, rank, sizes);
}

bool lm_oip::take_shape(const complaint &c, const struct lm_model *model,
                        const struct lm_tensor *tensor, const int64_t *dims, uint32_t rank,
                        struct lm_sizes *sizes) {
    if (tensor->any_rank) return take_any_rank(c, model, tensor, dims, rank, sizes);
    if (rank != tensor->rank) return wrong_shape(c, model, tensor, dims, rank, false);
    for (uint32_t d = tensor->rows_free ? 1 : 0; d < rank; d++) {
        if (!tensor->free[d] && dims[d] != tensor->dims[d])
            return wrong_shape(c, model, tensor, dims, rank, false);
    }
    for (uint32_t d = 0; d < rank; d++) {
        if (tensor->free[d] && !take_size(c, model, tensor, tensor->free[d] - 1u, dims[d], sizes))
            return false;
    }
    return !tensor->rows_free || take_rows(c, model, tensor, dims[0], sizes);
}
