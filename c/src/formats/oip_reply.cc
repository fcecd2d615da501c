/* oip_reply.cc: see oip_reply.h. */
#include <cstdio>

#include "formats/classes.h"
#include "formats/json_writer.h"
extern "C" {
#include "base/error.h"
#include "formats/oip_reply.h"
}

using namespace lm_classes;
using namespace lm_json;

namespace {

enum {
    FIXED_BYTES_MAX = 320,                     /* of the largest double with six decimals */
    OUTPUT_BYTES_MAX = 160 + LM_RANK_MAX * 21, /* an output's own text but for its name and data */
    REPLY_BYTES_MAX = 128, /* the reply's, but for the model's name and the outputs */
};

struct writing {
    const struct lm_oip_output *output;
    const struct lm_labels *labels;
    writer json;
    writer blobs; /* grows behind the ranking, which ends where the next blob starts */
    char *why;
    size_t why_bytes;

    enum lm_status wrong(enum lm_status status, const char *what, const char *cure) {
        snprintf(why, why_bytes, "output '%.64s' %s, which JSON cannot say: %s",
                 output->tensor->name, what, cure);
        return status;
    }
};

template <typename number> enum lm_status put_data(writing &w) {
    const number *values = (const number *)w.output->data;
    size_t count = w.output->bytes / sizeof(number);
    w.json.put(",\"data\":[");
    for (size_t i = 0; i < count && !w.json.full; i++) {
        if (!is_sayable(values[i])) { /* what came out of the model is no fault of the request */
            return w.wrong(LM_STATUS_INFERENCE_FAILED, "holds NaN or infinity",
                           "ask for it as binary_data");
        }
        if (i) w.json.put(",");
        put_number(w.json, values[i]);
    }
    w.json.put("]");
    return LM_STATUS_OK;
}

/* ---- strings ---- */

enum lm_status put_strings(writing &w) {
    const char *at = (const char *)w.output->data, *start = at;
    w.json.put(",\"data\":[");
    while (at < start + w.output->bytes && !w.json.full) {
        if (at > start) w.json.put(",");
        std::string_view text = next_string(at);
        if (!is_utf8(text)) {
            return w.wrong(LM_STATUS_INFERENCE_FAILED, "holds bytes that are no UTF-8",
                           "ask for it as binary_data");
        }
        w.json.string(text);
    }
    w.json.put("]");
    return LM_STATUS_OK;
}

/* ---- classification ---- */

template <typename number> void put_value(writer &w, number value) {
    if constexpr (std::is_floating_point_v<number>) {
        w.number(value, std::chars_format::fixed, 6);
    } else {
        w.number(value);
    }
}

/* "value:index", and ":label" where there is one. */
template <typename number> void put_class(writing &w, writer &out, number value, uint32_t index) {
    uint32_t bytes = 0;
    const char *label = lm_labels_get(w.labels, index, &bytes);
    put_value(out, value);
    out.put(":");
    out.number(index);
    if (bytes) {
        out.put(":");
        out.put({label, bytes});
    }
}

/* As a JSON string. Labels may hold quotes and backslashes, so it is put together aside. */
template <typename number> void put_class_json(writing &w, number value, uint32_t index) {
    char text[FIXED_BYTES_MAX + INDEX_BYTES_MAX + 2 + LM_LABEL_BYTES_MAX];
    writer aside = {text, text + sizeof text, false};
    put_class(w, aside, value, index);
    w.json.full = w.json.full || aside.full;
    w.json.string({text, (size_t)(aside.at - text)});
}

/* As an element of a BYTES tensor: four bytes of length, then the text. */
template <typename number> void put_class_blob(writing &w, number value, uint32_t index) {
    char *length_at = w.blobs.at;
    w.blobs.put({"\0\0\0\0", 4});
    put_class(w, w.blobs, value, index);
    if (w.blobs.full) return;
    uint32_t length = (uint32_t)(w.blobs.at - length_at - 4); /* little-endian, as we are */
    memcpy(length_at, &length, sizeof length);
}

/* `ranking` has room for the classes of one row. */
template <typename number>
void put_classes(writing &w, const classes &is, bool binary, uint32_t *ranking) {
    const number *values = (const number *)w.output->data;
    for (size_t row = 0; row < is.rows; row++, values += is.count) {
        rank(values, is, ranking);
        for (size_t i = 0; i < is.kept && !w.json.full && !w.blobs.full; i++) {
            if (binary) {
                put_class_blob(w, values[ranking[i]], ranking[i]);
                continue;
            }
            if (row || i) w.json.put(",");
            put_class_json(w, values[ranking[i]], ranking[i]);
        }
    }
}

bool put_classes_by_type(writing &w, const classes &is, bool binary, uint32_t *ranking) {
    switch (w.output->tensor->dtype) {
    case ORT_FLOAT: put_classes<float>(w, is, binary, ranking); return true;
    case ORT_DOUBLE: put_classes<double>(w, is, binary, ranking); return true;
    case ORT_INT8: put_classes<int8_t>(w, is, binary, ranking); return true;
    case ORT_UINT8: put_classes<uint8_t>(w, is, binary, ranking); return true;
    case ORT_INT16: put_classes<int16_t>(w, is, binary, ranking); return true;
    case ORT_UINT16: put_classes<uint16_t>(w, is, binary, ranking); return true;
    case ORT_INT32: put_classes<int32_t>(w, is, binary, ranking); return true;
    case ORT_UINT32: put_classes<uint32_t>(w, is, binary, ranking); return true;
    case ORT_INT64: put_classes<int64_t>(w, is, binary, ranking); return true;
    case ORT_UINT64: put_classes<uint64_t>(w, is, binary, ranking); return true;
    default: return false;
    }
}

/* ---- outputs ---- */

void put_head(writing &w, const char *datatype, const int64_t *dims, uint32_t rank) {
    w.json.put("{\"name\":");
    w.json.string(w.output->tensor->name);
    w.json.put(",\"datatype\":\"");
    w.json.put(datatype);
    w.json.put("\",\"shape\":[");
    for (uint32_t d = 0; d < rank; d++) {
        if (d) w.json.put(",");
        w.json.number(dims[d]);
    }
    w.json.put("]");
}

/* Clients take parameters to be about binary data, so there are none otherwise. */
void put_blob(writing &w, const void *data, size_t bytes, struct lm_oip_reply *reply) {
    w.json.put(",\"parameters\":{\"binary_data_size\":");
    w.json.number(bytes);
    w.json.put("}");
    reply->blobs[reply->blob_count++] = {data, bytes};
    reply->blobs_bytes += bytes;
}

enum lm_status put_tensor(writing &w, const struct lm_oip_requested_output &requested,
                          struct lm_oip_reply *reply) {
    const struct lm_oip_output *output = w.output;
    put_head(w, lm_dtype_name(output->tensor->dtype), output->dims, output->rank);
    if (requested.in_region) return LM_STATUS_OK;
    if (requested.binary) {
        put_blob(w, output->data, output->bytes, reply);
        return LM_STATUS_OK;
    }
    switch (output->tensor->dtype) {
    case ORT_FLOAT: return put_data<float>(w);
    case ORT_DOUBLE: return put_data<double>(w);
    case ORT_INT8: return put_data<int8_t>(w);
    case ORT_UINT8: return put_data<uint8_t>(w);
    case ORT_INT16: return put_data<int16_t>(w);
    case ORT_UINT16: return put_data<uint16_t>(w);
    case ORT_INT32: return put_data<int32_t>(w);
    case ORT_UINT32: return put_data<uint32_t>(w);
    case ORT_INT64: return put_data<int64_t>(w);
    case ORT_UINT64: return put_data<uint64_t>(w);
    case ORT_BOOL: return put_data<bool>(w);
    case ORT_STRING: return put_strings(w);
    default:
        return w.wrong(LM_STATUS_BAD_REQUEST, lm_dtype_name(output->tensor->dtype),
                       "ask for it as binary_data");
    }
}

/* The ranking of a row, then its classes, are written to the scratch memory; of the ranking nothing
 * is needed afterwards, so the blob is moved to its place. */
enum lm_status put_classification(writing &w, uint32_t requested, bool binary,
                                  struct lm_oip_reply *reply) {
    const classes is = classes_of(*w.output, requested);
    const int64_t dims[2] = {(int64_t)is.rows, (int64_t)is.kept};
    const bool has_rows = has_rows_of(*w.output);
    put_head(w, "BYTES", has_rows ? dims : dims + 1, has_rows ? 2 : 1);
    char *blob = w.blobs.at;
    uint32_t *ranking = (uint32_t *)((uintptr_t)(blob + 3) & ~(uintptr_t)3);
    const size_t ranking_bytes = (size_t)((char *)ranking - blob) + is.count * sizeof *ranking;
    if (is.count > UINT32_MAX || ranking_bytes > w.blobs.room()) return LM_STATUS_TOO_LARGE;
    w.blobs.at += ranking_bytes;
    if (!binary) w.json.put(",\"data\":[");
    if (!put_classes_by_type(w, is, binary, ranking))
        return w.wrong(LM_STATUS_BAD_REQUEST, "is no tensor of numbers",
                       "do not ask for classification");
    if (!binary) w.json.put("]");
    size_t bytes = (size_t)(w.blobs.at - blob) - ranking_bytes;
    if (bytes) memmove(blob, blob + ranking_bytes, bytes);
    w.blobs.at = blob + bytes;
    if (binary) put_blob(w, blob, bytes, reply);
    return LM_STATUS_OK;
}

void put_start(writer &json, const struct lm_model *model, const struct lm_oip_request *request) {
    json.put("{");
    if (request->id_bytes) {
        json.put("\"id\":\"");
        json.put({request->id, request->id_bytes});
        json.put("\",");
    }
    json.put("\"model_name\":");
    json.string(model->base);
    json.put(",\"model_version\":\"");
    json.number(model->version);
    json.put("\",\"outputs\":[");
}

/* ---- bounds ---- */

void bound_classes(const struct lm_oip_output &output,
                   const struct lm_oip_requested_output &requested, const struct lm_labels *labels,
                   bound *json, bound *scratch) {
    const classes is = classes_of(output, requested.classes);
    /* Text, colons, and quotes and a comma or the length; labels may double when escaped. */
    const size_t label = labels ? labels->bytes_max : 0;
    const size_t number = output.tensor->dtype == ORT_DOUBLE ? FIXED_BYTES_MAX : 48;
    const size_t each = number + INDEX_BYTES_MAX + 2 + 4 + label;
    scratch->add(is.count, sizeof(uint32_t));
    scratch->add(1, 3);
    size_t elements = 0;
    json->overflows = json->overflows || __builtin_mul_overflow(is.rows, is.kept, &elements);
    if (requested.binary) {
        scratch->add(elements, each);
    } else {
        json->add(elements, each + label);
    }
}

} // namespace

bool lm_oip_reply_bytes_max(const struct lm_model *model, const struct lm_oip_request *request,
                            const struct lm_oip_output *outputs, const struct lm_labels *labels,
                            size_t *json_bytes_out, size_t *scratch_bytes_out) {
    bound json = {REPLY_BYTES_MAX, false}, scratch = {0, false};
    json.add(1, request->id_bytes);
    json.add(strlen(model->name), LM_JSON_ESCAPE_MAX);
    for (uint32_t i = 0; i < request->requested_count; i++) {
        const struct lm_oip_requested_output &requested = request->requested[i];
        const struct lm_oip_output &output = outputs[requested.output];
        json.add(1, OUTPUT_BYTES_MAX);
        json.add(strlen(output.tensor->name), LM_JSON_ESCAPE_MAX);
        if (requested.classes) {
            bound_classes(output, requested, labels, &json, &scratch);
        } else if (!requested.binary && lm_is_string(output.tensor)) {
            json.add(1, output.data ? strings_json_bytes(output.data, output.bytes) : output.bytes);
        } else if (!requested.binary) {
            json.add(output.bytes / output.tensor->element_bytes,
                     number_bytes_max(output.tensor->dtype) + 1);
        }
    }
    *json_bytes_out = json.bytes;
    *scratch_bytes_out = scratch.bytes;
    return !json.overflows && !scratch.overflows;
}

enum lm_status lm_oip_write(const struct lm_model *model, const struct lm_oip_request *request,
                            const struct lm_oip_output *outputs, const struct lm_labels *labels,
                            const struct lm_oip_room *room, struct lm_oip_reply *reply_out,
                            char *why, size_t why_bytes) {
    char *scratch = (char *)room->scratch;
    writing w = {nullptr,
                 labels,
                 {room->json, room->json + room->json_bytes, false},
                 {scratch, scratch + room->scratch_bytes, false},
                 why,
                 why_bytes};
    enum lm_status status = LM_STATUS_OK;
    reply_out->json_bytes = reply_out->blobs_bytes = 0;
    reply_out->blob_count = 0;
    put_start(w.json, model, request);
    for (uint32_t i = 0; i < request->requested_count && status == LM_STATUS_OK; i++) {
        const struct lm_oip_requested_output &requested = request->requested[i];
        w.output = &outputs[requested.output];
        if (i) w.json.put(",");
        status = requested.classes
                     ? put_classification(w, requested.classes, requested.binary, reply_out)
                     : put_tensor(w, requested, reply_out);
        w.json.put("}");
    }
    w.json.put("]}");
    if (status == LM_STATUS_BAD_REQUEST || status == LM_STATUS_INFERENCE_FAILED) return status;
    if (status == LM_STATUS_OK && !w.json.full && !w.blobs.full) {
        reply_out->json_bytes = (size_t)(w.json.at - room->json);
        return LM_STATUS_OK;
    }
    snprintf(why, why_bytes, "the reply is too large: it does not fit %zu bytes", room->json_bytes);
    return LM_STATUS_TOO_LARGE;
}
