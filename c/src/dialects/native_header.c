/* native_header.c: see native_header.h. */
#include "dialects/native_header.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"

/* The size of a free dimension: within its maximum, and the same wherever it stands. */
static bool take_size(struct lm_native_call *call, const struct lm_model *model, uint32_t i,
                      uint32_t d, char *why, size_t why_bytes) {
    uint32_t f = model->inputs[i].free[d] - 1u, found = call->word;
    const struct lm_free_dim *dim = &model->free_dims[f];
    if (found > dim->max) {
        snprintf(why, why_bytes,
                 "shape block: input %u dimension %u ('%.64s'): expected 0 to %u (max_dims), found "
                 "%u",
                 i, d, dim->name, dim->max, found);
        return false;
    }
    if (call->free[f] != LM_SIZE_UNSAID && call->free[f] != found) {
        snprintf(why, why_bytes,
                 "shape block: input %u dimension %u ('%.64s'): expected %u as before, found %u", i,
                 d, dim->name, call->free[f], found);
        return false;
    }
    call->free[f] = found;
    return true;
}

/* A size of an input of any rank: all of them together have a maximum. */
static bool take_elements(struct lm_native_call *call, const struct lm_model *model, uint32_t i,
                          uint32_t d, char *why, size_t why_bytes) {
    const struct lm_tensor *input = &model->inputs[i];
    const struct lm_free_dim *dim = &model->free_dims[input->any_rank - 1];
    uint64_t elements = call->word; /* those before are at least 1, and together at most max */
    for (uint32_t before = 0; before < d; before++)
        elements *= call->free[input->free[before] - 1u];
    if (elements < 1 || elements > dim->max) {
        snprintf(why, why_bytes,
                 "shape block: input %u ('%.64s') dimension %u: expected 1 or more, and in all "
                 "dimensions 1 to %u elements (max_dims: '%.64s'), found %u",
                 i, input->name, d, dim->max, dim->name, call->word);
        return false;
    }
    call->free[input->free[d] - 1] = call->word;
    return true;
}

/* The dimensions of an input of any rank wait for their sizes from here on. */
static bool take_rank(struct lm_native_call *call, const struct lm_model *model, uint32_t i,
                      char *why, size_t why_bytes) {
    const struct lm_tensor *input = &model->inputs[i];
    uint32_t found = call->word;
    if (input->any_rank ? found > input->rank : found != input->rank) {
        snprintf(why, why_bytes, "shape block: input %u: expected rank %s%u, found %u", i,
                 input->any_rank ? "0 to " : "", input->rank, found);
        return false;
    }
    for (uint32_t d = 0; input->any_rank && d < found; d++)
        call->free[input->free[d] - 1] = UINT32_MAX;
    return true;
}

bool lm_native_take_word(struct lm_native_call *call, const struct lm_model *model, uint32_t rows,
                         uint32_t at, char *why, size_t why_bytes) {
    uint32_t found = call->word;
    if (at == 0) {
        lm_tensors_unsay(model->inputs, model->input_count, call->free);
        if (found == model->input_count) return true;
        snprintf(why, why_bytes, "shape block: expected %u tensors, found %u", model->input_count,
                 found);
        return false;
    }
    if (at == 1) call->input_at = 1;
    if (at - call->input_at > lm_tensor_rank(&model->inputs[call->input], call->free)) {
        call->input++;
        call->input_at = (uint16_t)at;
    }
    const uint32_t i = call->input;
    const struct lm_tensor *input = &model->inputs[i];
    if (at == call->input_at) return take_rank(call, model, i, why, why_bytes);
    uint32_t d = at - call->input_at - 1;
    if (input->any_rank) return take_elements(call, model, i, d, why, why_bytes);
    if (input->free[d]) return take_size(call, model, i, d, why, why_bytes);
    int64_t expected = d == 0 && input->rows_free ? (int64_t)rows : input->dims[d];
    if ((int64_t)found == expected) return true;
    snprintf(why, why_bytes, "shape block: input %u dimension %u: expected %lld, found %u", i, d,
             (long long)expected, found);
    return false;
}

struct lm_sizes lm_native_sizes(const struct lm_connection *connection,
                                const struct lm_native_request *request) {
    struct lm_sizes sizes = {.rows = request->rows};
    memcpy(sizes.free, connection->in.native.free, sizeof sizes.free);
    return sizes;
}

uint32_t lm_native_fixed_bytes(const struct lm_native_request *request, bool is_whole) {
    bool follows = is_whole && (request->flags & LM_FLAG_CREDENTIAL) &&
                   request->payload_bytes >= LM_NATIVE_CREDENTIAL_BYTES;
    return LM_NATIVE_REQUEST_BYTES + (follows ? (uint32_t)LM_NATIVE_CREDENTIAL_BYTES : 0);
}

size_t lm_native_take_fixed(struct lm_stream *in, uint32_t fixed, const uint8_t *bytes,
                            size_t count) {
    size_t missing = fixed - in->header_used, taken = count < missing ? count : missing;
    uint8_t *to = in->header_used < LM_NATIVE_REQUEST_BYTES
                      ? in->header + in->header_used
                      : in->credential + (in->header_used - LM_NATIVE_REQUEST_BYTES);
    memcpy(to, bytes, taken);
    in->header_used = (uint16_t)(in->header_used + taken);
    if (!lm_native_may_be_header(in->header, in->header_used)) {
        /* Another protocol's greeting may be shorter than a header: answer what is there. */
        memset(in->header + in->header_used, 0, LM_NATIVE_REQUEST_BYTES - in->header_used);
        in->header_used = LM_NATIVE_REQUEST_BYTES;
    }
    return taken;
}

enum lm_native_verdict lm_native_read(const struct lm_model_set *set, const uint8_t *header,
                                      struct lm_native_request *request_out, char *why,
                                      size_t why_bytes) {
    enum lm_native_verdict verdict = lm_native_parse(header, request_out, why, why_bytes);
    request_out->model = lm_model_set_numbered(set, request_out->number);
    return verdict;
}

bool lm_native_is_header(const struct lm_model_set *set, const struct lm_stream *in,
                         struct lm_native_request *request_out) {
    char unused[LM_TEXT_BYTES_MAX];
    *request_out = (struct lm_native_request){.model = LM_NO_INDEX};
    return in->header_used >= LM_NATIVE_REQUEST_BYTES &&
           lm_native_read(set, in->header, request_out, unused, sizeof unused) == LM_NATIVE_OK;
}
