/* rows_reply.cc: see rows_reply.h. */
#include <cstdio>

#include "formats/json_writer.h"
extern "C" {
#include "base/error.h"
#include "formats/rows_reply.h"
}

using namespace lm_json;

namespace {

enum { REPLY_BYTES_MAX = 64 }; /* the reply's, but for the outputs */

/* One output, and how far it is written. */
struct values {
    const struct lm_oip_output *output;
    const void *at;
    bool is_sayable;
};

/* The next values as arrays of this shape. */
template <typename number>
void put_nested(writer &w, values &v, const int64_t *dims, uint32_t rank) {
    if (rank == 0) {
        const number value = *(const number *)v.at;
        v.at = (const number *)v.at + 1;
        v.is_sayable = v.is_sayable && is_sayable(value);
        put_number(w, value);
        return;
    }
    w.put("[");
    for (int64_t i = 0; i < dims[0] && !w.full; i++) {
        if (i) w.put(",");
        put_nested<number>(w, v, dims + 1, rank - 1);
    }
    w.put("]");
}

void put_strings(writer &w, values &v, const int64_t *dims, uint32_t rank) {
    if (rank == 0) {
        const char *at = (const char *)v.at;
        const std::string_view text = next_string(at);
        v.at = at;
        v.is_sayable = v.is_sayable && is_utf8(text);
        w.string(text);
        return;
    }
    w.put("[");
    for (int64_t i = 0; i < dims[0] && !w.full; i++) {
        if (i) w.put(",");
        put_strings(w, v, dims + 1, rank - 1);
    }
    w.put("]");
}

void put_values(writer &w, values &v, const int64_t *dims, uint32_t rank) {
    switch (v.output->tensor->dtype) {
    case ORT_FLOAT: put_nested<float>(w, v, dims, rank); break;
    case ORT_DOUBLE: put_nested<double>(w, v, dims, rank); break;
    case ORT_INT8: put_nested<int8_t>(w, v, dims, rank); break;
    case ORT_UINT8: put_nested<uint8_t>(w, v, dims, rank); break;
    case ORT_INT16: put_nested<int16_t>(w, v, dims, rank); break;
    case ORT_UINT16: put_nested<uint16_t>(w, v, dims, rank); break;
    case ORT_INT32: put_nested<int32_t>(w, v, dims, rank); break;
    case ORT_UINT32: put_nested<uint32_t>(w, v, dims, rank); break;
    case ORT_INT64: put_nested<int64_t>(w, v, dims, rank); break;
    case ORT_UINT64: put_nested<uint64_t>(w, v, dims, rank); break;
    case ORT_STRING: put_strings(w, v, dims, rank); break;
    default: put_nested<bool>(w, v, dims, rank); break; /* others are refused with the request */
    }
}

/* A row of every output, or (`skipped` 0) all of them. */
void put_outputs(writer &w, const struct lm_model *model, values *all, uint32_t skipped) {
    const bool named = model->output_count > 1;
    if (named) w.put("{");
    for (uint32_t o = 0; o < model->output_count && !w.full; o++) {
        const struct lm_oip_output &output = *all[o].output;
        if (named) {
            if (o) w.put(",");
            w.string(output.tensor->name);
            w.put(":");
        }
        put_values(w, all[o], output.dims + skipped, output.rank - skipped);
    }
    if (named) w.put("}");
}

} // namespace

bool lm_rows_reply_bytes_max(const struct lm_model *model, const struct lm_oip_output *outputs,
                             size_t *bytes_out) {
    bound all = {REPLY_BYTES_MAX, false};
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_oip_output &output = outputs[o];
        size_t arrays = 1;
        if (lm_is_string(output.tensor)) {
            all.add(1, output.data ? strings_json_bytes(output.data, output.bytes) : output.bytes);
        } else {
            all.add(output.bytes / output.tensor->element_bytes,
                    number_bytes_max(output.tensor->dtype) + 1);
        }
        /* Brackets and commas of the arrays at each depth; the last one's elements are numbers. */
        for (uint32_t d = 0; d < output.rank; d++) {
            all.add(arrays, 3);
            if (__builtin_mul_overflow(arrays, (size_t)output.dims[d], &arrays)) return false;
        }
        /* The name, once or in each row, and the braces. */
        all.add(output.rank > 0 ? (size_t)output.dims[0] + 1 : 1,
                model->output_count > 1 ? LM_JSON_ESCAPE_MAX * strlen(output.tensor->name) + 6 : 0);
    }
    *bytes_out = all.bytes;
    return !all.overflows;
}

enum lm_status lm_rows_write(const struct lm_model *model, const struct lm_oip_output *outputs,
                             uint32_t rows, const char *field, char *room, size_t room_bytes,
                             size_t *bytes_out, char *why, size_t why_bytes) {
    writer w = {room, room + room_bytes, false};
    values all[LM_TENSORS_MAX];
    for (uint32_t o = 0; o < model->output_count; o++) {
        all[o] = {&outputs[o], outputs[o].data, true};
        if (rows == 0 || (outputs[o].rank > 0 && outputs[o].dims[0] == rows)) continue;
        snprintf(why, why_bytes,
                 "output '%.64s' has no element for each of %u rows: send \"inputs\" and get whole "
                 "outputs",
                 outputs[o].tensor->name, rows);
        return LM_STATUS_BAD_REQUEST;
    }
    w.put("{\"");
    w.put(field);
    w.put(rows ? "\":[" : "\":");
    if (rows == 0) put_outputs(w, model, all, 0);
    for (uint32_t row = 0; row < rows && !w.full; row++) {
        if (row) w.put(",");
        put_outputs(w, model, all, 1);
    }
    w.put(rows ? "]}" : "}");
    for (uint32_t o = 0; o < model->output_count; o++) {
        if (all[o].is_sayable) continue;
        snprintf(why, why_bytes,
                 "output '%.64s' holds NaN, infinity or bytes that are no UTF-8, which JSON cannot "
                 "say: ask /v2/models/%.64s/infer for it as binary data",
                 outputs[o].tensor->name, model->name);
        return LM_STATUS_INFERENCE_FAILED;
    }
    *bytes_out = (size_t)(w.at - room);
    if (!w.full) return LM_STATUS_OK;
    snprintf(why, why_bytes, "the reply is too large: it does not fit %zu bytes", room_bytes);
    return LM_STATUS_TOO_LARGE;
}
