/* class_list.cc: see class_list.h. */
#include <cstdio>

#include "formats/classes.h"
#include "formats/json_writer.h"
extern "C" {
#include "formats/class_list.h"
}

using namespace lm_classes;
using namespace lm_json;

namespace {

enum { CLASS_BYTES_MAX = 64 }; /* of one, but for its number and label */

/* One row; false: it holds NaN or infinity. */
template <typename number>
bool put_row(writer &w, const number *values, const classes &is, const struct lm_labels *labels,
             uint32_t *ranking) {
    rank(values, is, ranking);
    w.put("[");
    for (size_t i = 0; i < is.kept && !w.full; i++) {
        uint32_t index = ranking[i], bytes = 0;
        const char *label = lm_labels_get(labels, index, &bytes);
        if (!is_sayable(values[index])) return false;
        w.put(i ? ",{" : "{");
        if (bytes) {
            w.put("\"label\":");
            w.string({label, bytes});
            w.put(",");
        }
        w.put("\"score\":");
        put_number(w, values[index]);
        w.put(",\"index\":");
        w.number(index);
        w.put("}");
    }
    w.put("]");
    return true;
}

template <typename number>
bool put_rows(writer &w, const struct lm_oip_output &output, const classes &is,
              const struct lm_labels *labels, void *scratch) {
    const number *values = (const number *)output.data;
    if (is.rows != 1) w.put("[");
    for (size_t row = 0; row < is.rows && !w.full; row++, values += is.count) {
        if (row) w.put(",");
        if (!put_row(w, values, is, labels, (uint32_t *)scratch)) return false;
    }
    if (is.rows != 1) w.put("]");
    return true;
}

bool put_by_type(writer &w, const struct lm_oip_output &output, const classes &is,
                 const struct lm_labels *labels, void *scratch) {
    switch (output.tensor->dtype) {
    case ORT_FLOAT: return put_rows<float>(w, output, is, labels, scratch);
    case ORT_DOUBLE: return put_rows<double>(w, output, is, labels, scratch);
    case ORT_INT8: return put_rows<int8_t>(w, output, is, labels, scratch);
    case ORT_UINT8: return put_rows<uint8_t>(w, output, is, labels, scratch);
    case ORT_INT32: return put_rows<int32_t>(w, output, is, labels, scratch);
    default: return put_rows<int64_t>(w, output, is, labels, scratch);
    }
}

bool is_ranked(int dtype) {
    return dtype == ORT_FLOAT || dtype == ORT_DOUBLE || dtype == ORT_INT8 || dtype == ORT_UINT8 ||
           dtype == ORT_INT32 || dtype == ORT_INT64;
}

} // namespace

uint32_t lm_class_list_output(const struct lm_model *model) {
    uint32_t o = 0;
    for (; o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        if (!is_ranked(output->dtype) || !output->shape_known || output->varies) continue;
        const size_t values = output->row_bytes / output->element_bytes;
        if (model->labels.count == 0 || model->labels.count == values) break;
    }
    return o;
}

bool lm_class_list_bytes_max(const struct lm_oip_output *output, const struct lm_labels *labels,
                             uint32_t top, size_t *json_bytes_out, size_t *scratch_bytes_out) {
    const classes is = classes_of(*output, top);
    bound json = {2, false}, scratch = {0, false};
    size_t count = 0;
    json.overflows = __builtin_mul_overflow(is.rows, is.kept, &count);
    json.add(is.rows, 3);
    json.add(count, CLASS_BYTES_MAX + number_bytes_max(output->tensor->dtype) + INDEX_BYTES_MAX);
    json.add(count, labels ? (size_t)labels->bytes_max * LM_JSON_ESCAPE_MAX : 0);
    scratch.add(is.count, sizeof(uint32_t));
    *json_bytes_out = json.bytes;
    *scratch_bytes_out = scratch.bytes;
    return !json.overflows && !scratch.overflows;
}

enum lm_status lm_class_list_write(const struct lm_oip_output *output,
                                   const struct lm_labels *labels, uint32_t top,
                                   const struct lm_oip_room *room, size_t *bytes_out, char *why,
                                   size_t why_bytes) {
    writer w = {room->json, room->json + room->json_bytes, false};
    const classes is = classes_of(*output, top);
    if (!put_by_type(w, *output, is, labels, room->scratch)) {
        snprintf(why, why_bytes,
                 "output '%.64s' holds NaN or infinity, which JSON cannot say: ask for it as "
                 "binary_data",
                 output->tensor->name);
        return LM_STATUS_INFERENCE_FAILED;
    }
    *bytes_out = (size_t)(w.at - room->json);
    if (!w.full) return LM_STATUS_OK;
    snprintf(why, why_bytes, "the reply is too large: it does not fit %zu bytes", room->json_bytes);
    return LM_STATUS_TOO_LARGE;
}
