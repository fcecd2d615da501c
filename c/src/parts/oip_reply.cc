/* oip_reply.cc: see oip_reply.h. C++ for std::to_chars, the shortest text that reads back as the
 * same number; it knows no locale and allocates nothing. */
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "base/cxx.h"
extern "C" {
#include "base/error.h"
#include "parts/json_text.h"
#include "parts/oip_reply.h"
}

namespace {

enum {
    NUMBER_BYTES_MAX = 24, /* of a number in `data`: -2.2250738585072014e-308, 64 bits have 20 */
    FIXED_BYTES_MAX = 320, /* of the largest double with six decimals */
    INDEX_BYTES_MAX = 10,
    OUTPUT_BYTES_MAX = 160 + LM_RANK_MAX * 21, /* an output's own text but for its name and data */
    REPLY_BYTES_MAX = 128, /* the reply's, but for the model's name and the outputs */
};

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

/* ---- numbers ---- */

bool is_sayable(float value) {
    return std::isfinite(value);
}
bool is_sayable(double value) {
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

template <> void put_number<bool>(writer &w, bool value) {
    w.put(value ? "true" : "false");
}

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

/* ---- classification ---- */

/* What an output is to classification: rows of so many classes. */
struct classes {
    size_t rows;
    size_t count; /* of one row */
    size_t kept;  /* of one row, at most as many as requested */
};

classes classes_of(const struct lm_oip_output &output, uint32_t requested) {
    size_t elements = output.bytes / output.tensor->element_bytes;
    bool has_rows = output.tensor->rows_free && output.rank > 0;
    size_t rows = has_rows ? (size_t)output.dims[0] : 1;
    size_t count = rows ? elements / rows : 0;
    return {rows, count, std::min<size_t>(requested, count)};
}

/* Larger values first, of equal ones the first; NaN last. */
template <typename number> struct ranks_before {
    const number *values;
    bool operator()(uint32_t a, uint32_t b) const {
        number x = values[a], y = values[b];
        if constexpr (std::is_floating_point_v<number>) {
            if (std::isnan(x) || std::isnan(y))
                return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(y);
        }
        return x != y ? x > y : a < b;
    }
};

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
        for (size_t i = 0; i < is.count; i++) ranking[i] = (uint32_t)i;
        std::partial_sort(ranking, ranking + is.kept, ranking + is.count,
                          ranks_before<number>{values});
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

enum lm_status put_tensor(writing &w, bool binary, struct lm_oip_reply *reply) {
    const struct lm_oip_output *output = w.output;
    put_head(w, lm_dtype_name(output->tensor->dtype), output->dims, output->rank);
    if (binary) {
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
    const bool has_rows = w.output->tensor->rows_free && w.output->rank > 0;
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
    json.string(model->name);
    json.put(",\"model_version\":\"1\",\"outputs\":[");
}

/* ---- bounds ---- */

struct bound {
    size_t bytes;
    bool overflows;

    void add(size_t count, size_t each) {
        size_t product = 0;
        overflows = overflows || __builtin_mul_overflow(count, each, &product) ||
                    __builtin_add_overflow(bytes, product, &bytes);
    }
};

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

/* The longest number of a type as JSON. */
static size_t number_bytes_max(int dtype) {
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
    *reply_out = {};
    put_start(w.json, model, request);
    for (uint32_t i = 0; i < request->requested_count && status == LM_STATUS_OK; i++) {
        const struct lm_oip_requested_output &requested = request->requested[i];
        w.output = &outputs[requested.output];
        if (i) w.json.put(",");
        status = requested.classes
                     ? put_classification(w, requested.classes, requested.binary, reply_out)
                     : put_tensor(w, requested.binary, reply_out);
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
