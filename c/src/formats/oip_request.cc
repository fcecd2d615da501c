/* oip_request.cc: see oip_request.h. What a request says is checked here; the values are read in
 * oip_values.cc.
 */
#include "formats/oip_fields.h"
#include "formats/oip_json.h"
#include "formats/oip_places.h"
#include "formats/oip_sequence.h"
#include "formats/oip_shapes.h"

#include <algorithm>

using namespace lm_oip;

namespace {

/* One call of lm_oip_read. */
struct reading : complaint {
    struct lm_oip_parser *parser;
    const struct lm_model *model;
    struct lm_oip_request *request;
    uint32_t index;      /* in the request's inputs */
    uint32_t text_count; /* data arrays taken from the text */
    bool binary_outputs; /* the request's choice for outputs without one of their own */
};

/* ---- the request's own fields ---- */

bool read_id(reading &r, const element &from) {
    std::string_view id;
    size_t written = 0;
    if (!read_string(r, from, place("request"), "id", &id)) return false;
    if (!lm_json_escape(id.data(), id.size(), r.request->id, LM_OIP_ID_BYTES_MAX, &written)) {
        return r.wrong("request: id: expected at most %d bytes as JSON, found a string of %zu",
                       LM_OIP_ID_BYTES_MAX, id.size());
    }
    r.request->id_bytes = (uint32_t)written;
    return true;
}

bool read_parameters(reading &r, const element &from) {
    enum { ID, START, END, PRIORITY, TIMEOUT, BINARY, COUNT };
    static constexpr std::string_view names[COUNT] = {"sequence_id",  "sequence_start",
                                                      "sequence_end", "priority",
                                                      "timeout",      "binary_data_output"};
    const place where("parameters");
    fields<COUNT> found;
    object all;
    uint64_t priority = 0;
    if (!read_object(r, from, where, &all) || !read_fields(r, all, where, names, &found))
        return false;
    for (simdjson::dom::key_value_pair field : all) {
        if (field.key.substr(0, 7) == "triton_") {
            return r.wrong("parameters: '%s': names that begin with triton_ are reserved",
                           shown(field.key).text);
        }
    }
    if (!read_sequence(r, r.model, &found.values[ID], &found.there[ID], &r.request->sequence))
        return false;
    if (found.there[PRIORITY] && /* a hint, and not taken */
        !read_natural(r, found.values[PRIORITY], where, "priority", &priority))
        return false;
    if (found.there[TIMEOUT] &&
        !read_natural(r, found.values[TIMEOUT], where, "timeout", &r.request->timeout_us))
        return false;
    return !found.there[BINARY] ||
           read_bool(r, found.values[BINARY], where, "binary_data_output", &r.binary_outputs);
}

/* ---- inputs ---- */

uint32_t rank_of_files(const element &shape) {
    array list;
    return !shape.get(list) && list.size() == 2 ? 2 : 1;
}

bool take_blob(reading &r, uint32_t input, const element &said) {
    const struct lm_tensor files = files_of(r.model, 1);
    const struct lm_tensor *tensor = r.request->pictures ? &files : input_of(r.model, input);
    uint64_t bytes = 0;
    size_t expected = 0;
    if (said.get(bytes)) {
        return r.wrong("input '%s': binary_data_size: expected an integer of at least 0, found %s",
                       shown(tensor->name).text, kind(said));
    }
    const bool varies = lm_is_string(tensor); /* then it is the least */
    if (!lm_tensor_bytes(tensor, &r.request->sizes, &expected) || bytes < expected ||
        (bytes > expected && !varies))
        return wrong_bytes(r, tensor, "binary_data_size", expected, bytes);
    if (bytes > UINT32_MAX) { /* so that the sum of all does not overflow */
        return r.wrong("input '%s': binary_data_size: expected at most %u, found %llu",
                       shown(tensor->name).text, UINT32_MAX, (unsigned long long)bytes);
    }
    r.request->blob_inputs[r.request->blob_count] = (uint8_t)input;
    r.request->blob_bytes[r.request->blob_count++] = bytes;
    return true;
}

bool take_values(reading &r, uint32_t input, const element &data) {
    const struct lm_tensor *tensor = &r.model->inputs[input];
    uint32_t at = r.request->value_count;
    if (r.request->pictures) {
        return r.wrong("input '%s': files of pictures have no form in this JSON: send them as "
                       "binary data, one as the whole body, or {\"instances\":[{\"b64\":...}]}",
                       shown(tensor->name).text);
    }
    if (has_no_json(tensor->dtype)) {
        return r.wrong("input '%s': %s has no form in JSON: send it as binary data",
                       shown(tensor->name).text, lm_dtype_name(tensor->dtype));
    }
    struct lm_oip_value &value = r.parser->values[at];
    value = {input, nullptr, {}};
    if (data.get(value.tree)) {
        return r.wrong("input '%s': data: expected an array, found %s", shown(tensor->name).text,
                       kind(data));
    }
    /* They are in the order of the inputs. */
    for (uint32_t i = r.text_count; i < r.parser->found_count && !value.text; i++) {
        if (r.parser->found[i].input == r.index) value.text = &r.parser->found[i];
    }
    r.text_count += value.text != nullptr;
    r.request->value_count++;
    return true;
}

bool take_place(reading &r, uint32_t input, const element *values, const bool *there) {
    const struct lm_tensor *tensor = input_of(r.model, input);
    struct lm_oip_place place = {{}, 0, 0, (uint8_t)input, false};
    size_t expected = 0;
    if (input >= r.model->input_count) {
        return r.wrong("input '%s': an optional input is not taken from shared memory: send it as "
                       "data or binary data",
                       shown(tensor->name).text);
    }
    if (r.request->pictures) {
        return r.wrong("input '%s': files of pictures are not taken from shared memory: send them "
                       "as binary data",
                       shown(tensor->name).text);
    }
    if (!read_place(r, r.parser->regions, tensor, values, there, &place)) return false;
    const bool varies = lm_is_string(tensor); /* then it is the least */
    if (!lm_tensor_bytes(tensor, &r.request->sizes, &expected) || place.bytes < expected ||
        (place.bytes > expected && !varies))
        return wrong_bytes(r, tensor, "shared_memory_byte_size", expected, place.bytes);
    return add_place(r, r.request, place);
}

/* Exactly one of data, binary data and shared memory. */
bool read_source(reading &r, uint32_t input, const element *data, const element *parameters) {
    enum { BINARY_SIZE = REGION_FIELDS, COUNT };
    static constexpr std::string_view names[COUNT] = {
        "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size",
        "binary_data_size"};
    const shown name(r.model->inputs[input].name);
    const place where("input '%s': parameters", name.text);
    fields<COUNT> found;
    object all;
    if (parameters &&
        (!read_object(r, *parameters, where, &all) || !read_fields(r, all, where, names, &found)))
        return false;
    if (found.there[REGION]) {
        if (!data && !found.there[BINARY_SIZE])
            return take_place(r, input, found.values, found.there);
        return r.wrong("input '%s': expected either data or shared memory, found both", name.text);
    }
    if (data && found.there[BINARY_SIZE]) {
        return r.wrong("input '%s': expected either data or parameters.binary_data_size, found "
                       "both",
                       name.text);
    }
    if (data) return take_values(r, input, *data);
    if (found.there[BINARY_SIZE]) return take_blob(r, input, found.values[BINARY_SIZE]);
    return r.wrong("input '%s': expected data or parameters.binary_data_size, found neither",
                   name.text);
}

/* Name and datatype: which of the model's inputs it is. */
bool identify(reading &r, const place &where, const element *name_value,
              const element *datatype_value, const tensor_set &seen, uint32_t *input) {
    std::string_view name, datatype;
    if (!name_value) return r.wrong("%s: field \"name\" is missing", where.text);
    if (!read_string(r, *name_value, where, "name", &name)) return false;
    *input = find_input(r.model, name, r.index);
    const uint32_t tensors = r.model->input_count + r.model->optional_count;
    while (*input >= r.model->input_count && *input < tensors &&
           name != r.model->inputs[*input].name)
        ++*input;
    if (*input == tensors) {
        return r.wrong("%s: model '%s' has no input '%s'", where.text, r.model->name,
                       shown(name).text);
    }
    if (seen.has(*input)) return r.wrong("input '%s' comes twice", shown(name).text);
    const char *expected = lm_dtype_name(r.model->inputs[*input].dtype);
    if (!datatype_value)
        return r.wrong("input '%s': field \"datatype\" is missing", shown(name).text);
    if (!read_string(r, *datatype_value, where, "datatype", &datatype)) return false;
    if (*input < r.model->input_count)
        r.request->pictures = r.model->input_plan.has_images && datatype == "BYTES";
    if (datatype != expected && !r.request->pictures) {
        return r.wrong("input '%s': datatype: expected %s%s, found '%s'", shown(name).text,
                       expected,
                       r.model->input_plan.has_images ? " or BYTES (files of pictures)" : "",
                       shown(datatype).text);
    }
    return true;
}

/* Refuses a body that has not the form of a request; the error shows that form for this model. */
bool wrong_form(const reading &r, const char *where, const char *found) {
    const struct lm_tensor *tensor = input_of(r.model, 0);
    int64_t dims[LM_RANK_MAX];
    char shape[LM_OIP_SHAPE_BYTES];
    const struct lm_sizes one = lm_model_largest(r.model, 1);
    lm_oip::show_shape(dims, lm_tensor_shape(tensor, &one, dims), false, shape);
    return r.wrong("%s: expected {\"inputs\":[{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":%s,"
                   "\"data\":[...]}]}, found %s",
                   where, shown(tensor->name).text, lm_dtype_name(tensor->dtype), shape, found);
}

bool read_input(reading &r, const element &from, tensor_set &seen) {
    enum { NAME, DATATYPE, SHAPE, PARAMETERS, DATA, COUNT };
    static constexpr std::string_view names[COUNT] = {"name", "datatype", "shape", "parameters",
                                                      "data"};
    const place where("inputs[%u]", r.index);
    fields<COUNT> found;
    object all;
    uint32_t input = 0;
    if (from.get(all)) return wrong_form(r, where.text, kind(from));
    if (!read_fields(r, all, where, names, &found)) return false;
    auto field = [&found](size_t at) { return found.there[at] ? &found.values[at] : nullptr; };
    if (!identify(r, where, field(NAME), field(DATATYPE), seen, &input)) return false;
    seen.add(input);
    if (input >= r.model->input_count) r.request->optionals |= 1u << (input - r.model->input_count);
    const struct lm_tensor *tensor = input_of(r.model, input);
    if (!field(SHAPE))
        return r.wrong("input '%s': field \"shape\" is missing", shown(tensor->name).text);
    const struct lm_tensor files = files_of(r.model, rank_of_files(found.values[SHAPE]));
    return read_shape(r, r.model, r.request->pictures ? &files : tensor, found.values[SHAPE],
                      &r.request->sizes) &&
           read_source(r, input, field(DATA), field(PARAMETERS));
}

bool read_inputs(reading &r, const element &from) {
    array list;
    tensor_set seen;
    if (from.get(list)) return wrong_form(r, "inputs", kind(from));
    for (element one : list) {
        if (!read_input(r, one, seen)) return false;
        r.index++;
    }
    if (r.text_count != r.parser->found_count) return r.wrong("inputs: data where no input has it");
    for (uint32_t i = 0; i < r.model->input_count; i++) {
        if (!seen.has(i))
            return r.wrong("inputs: input '%s' is missing", shown(r.model->inputs[i].name).text);
    }
    if (r.request->sizes.rows == 0) r.request->sizes.rows = 1; /* no input of the model has rows */
    return true;
}

/* ---- outputs ---- */

/* Elements of one row: its classes. Where the shape is not known beforehand: as many as may be. */
uint64_t classes_max(const struct lm_model *model, const struct lm_tensor *output) {
    const struct lm_sizes one = lm_model_largest(model, output->is_whole ? model->max_rows : 1);
    size_t bytes = model->output_bytes_are_default ? SIZE_MAX : model->max_output_bytes;
    if (output->shape_known) lm_tensor_bytes(output, &one, &bytes);
    return bytes / output->element_bytes;
}

bool read_classes(const reading &r, const struct lm_tensor *output, const element &from,
                  uint32_t *out) {
    const shown name(output->name);
    uint64_t classes = 0;
    const uint64_t most = std::clamp<uint64_t>(classes_max(r.model, output), 1, UINT32_MAX);
    if (has_no_json(output->dtype) || output->dtype == ORT_BOOL || lm_is_string(output)) {
        return r.wrong("output '%s': classification: not available for %s", name.text,
                       lm_dtype_name(output->dtype));
    }
    if (from.get(classes)) {
        return r.wrong("output '%s': classification: expected an integer of at least 1, found %s",
                       name.text, kind(from));
    }
    if (classes < 1)
        return r.wrong("output '%s': classification: expected at least 1, found 0", name.text);
    *out = (uint32_t)std::min(classes, most); /* Triton cuts it too */
    return true;
}

/* Its bytes go to shared memory, and to nowhere else. */
bool read_output_place(reading &r, const struct lm_tensor *output, const element *values,
                       const bool *there, struct lm_oip_requested_output *requested,
                       bool said_binary) {
    if (requested->classes || (said_binary && requested->binary)) {
        return r.wrong("output '%s': expected shared memory alone, found binary_data or "
                       "classification beside it",
                       shown(output->name).text);
    }
    requested->in_region = requested->binary = true;
    struct lm_oip_place place = {{}, 0, 0, requested->output, true};
    return read_place(r, r.parser->regions, output, values, there, &place) &&
           add_place(r, r.request, place);
}

bool read_output_parameters(reading &r, const struct lm_tensor *output, const element &from,
                            struct lm_oip_requested_output *requested) {
    enum { BINARY = REGION_FIELDS, CLASSES, COUNT };
    static constexpr std::string_view names[COUNT] = {
        "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size", "binary_data",
        "classification"};
    const place where("output '%s': parameters", shown(output->name).text);
    fields<COUNT> found;
    object all;
    if (!read_object(r, from, where, &all) || !read_fields(r, all, where, names, &found))
        return false;
    if (found.there[BINARY] &&
        !read_bool(r, found.values[BINARY], where, "binary_data", &requested->binary))
        return false;
    if (found.there[CLASSES] &&
        !read_classes(r, output, found.values[CLASSES], &requested->classes))
        return false;
    return !found.there[REGION] ||
           read_output_place(r, output, found.values, found.there, requested, found.there[BINARY]);
}

bool add_requested_output(const reading &r, const struct lm_oip_requested_output &requested) {
    const struct lm_tensor *output = &r.model->outputs[requested.output];
    if (!requested.binary && has_no_json(output->dtype)) {
        return r.wrong("output '%s': %s has no form in JSON: ask for binary_data",
                       shown(output->name).text, lm_dtype_name(output->dtype));
    }
    r.request->requested[r.request->requested_count++] = requested;
    return true;
}

/* The output of that name; the model's output_count: there is none. */
uint32_t find_output(const struct lm_model *model, std::string_view name) {
    uint32_t o = 0;
    while (o < model->output_count && name != model->outputs[o].name) o++;
    return o;
}

bool read_output(reading &r, const element &from, uint32_t index, tensor_set &seen) {
    enum { NAME, PARAMETERS, COUNT };
    static constexpr std::string_view names[COUNT] = {"name", "parameters"};
    const place where("outputs[%u]", index);
    fields<COUNT> found;
    object all;
    std::string_view name;
    if (!read_object(r, from, where, &all) || !read_fields(r, all, where, names, &found))
        return false;
    if (!found.there[NAME]) return r.wrong("%s: field \"name\" is missing", where.text);
    if (!read_string(r, found.values[NAME], where, "name", &name)) return false;
    const uint32_t output = find_output(r.model, name);
    if (output == r.model->output_count) {
        return r.wrong("%s: model '%s' has no output '%s'", where.text, r.model->name,
                       shown(name).text);
    }
    if (seen.has(output)) return r.wrong("output '%s' comes twice", shown(name).text);
    seen.add(output);
    struct lm_oip_requested_output requested = {(uint8_t)output, r.binary_outputs, 0, false};
    if (found.there[PARAMETERS] &&
        !read_output_parameters(r, &r.model->outputs[output], found.values[PARAMETERS], &requested))
        return false;
    return add_requested_output(r, requested);
}

bool read_outputs(reading &r, const element *from) {
    array list;
    tensor_set seen;
    uint32_t index = 0;
    if (from) {
        if (from->get(list)) return r.wrong("outputs: expected an array, found %s", kind(*from));
        for (element one : list) {
            if (!read_output(r, one, index++, seen)) return false;
        }
    }
    for (uint32_t i = 0; index == 0 && i < r.model->output_count; i++) {
        if (!add_requested_output(r, {(uint8_t)i, r.binary_outputs, 0, false})) return false;
    }
    return true;
}

/* ---- the whole ---- */

bool read_request(reading &r, const object &root) {
    enum { ID, PARAMETERS, INPUTS, OUTPUTS, COUNT };
    static constexpr std::string_view names[COUNT] = {"id", "parameters", "inputs", "outputs"};
    fields<COUNT> found;
    if (!read_fields(r, root, place("request"), names, &found)) return false;
    if (found.there[ID] && !read_id(r, found.values[ID])) return false;
    if (found.there[PARAMETERS] && !read_parameters(r, found.values[PARAMETERS])) return false;
    if (!found.there[INPUTS]) return wrong_form(r, "request", "no field \"inputs\"");
    return read_inputs(r, found.values[INPUTS]) &&
           read_outputs(r, found.there[OUTPUTS] ? &found.values[OUTPUTS] : nullptr);
}

} // namespace

enum lm_status lm_oip_read(struct lm_oip_parser *parser, const char *text, size_t bytes,
                           const struct lm_model *model, struct lm_oip_request *out, char *why,
                           size_t why_bytes) {
    object root;
    lm_oip_request_reset(out);
    lm_tensors_unsay(model->inputs, model->input_count, out->sizes.free);
    reading r = {{why, why_bytes}, parser, model, out, 0, 0, false};
    enum lm_status status = parse(parser, lm_oip_find_data, text, bytes, &root, r);
    if (status != LM_STATUS_OK) return status;
    return read_request(r, root) ? LM_STATUS_OK : LM_STATUS_BAD_REQUEST;
}
