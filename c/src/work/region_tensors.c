/* region_tensors.c: see region_tensors.h. */
#include "work/region_tensors.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "flow/region.h"
#include "models/layout.h"
#include "work/encoding.h"

static bool is_whole_body(uint8_t encoding) {
    return lm_encodings[encoding].in_region == LM_REGION_BODY;
}

static uint32_t body_spans(const struct lm_model *model, uint8_t encoding) {
    return is_whole_body(encoding) ? 1 : model->input_count;
}

uint32_t lm_region_span_count(const struct lm_model *model, uint8_t encoding) {
    if (lm_encodings[encoding].in_region == LM_REGION_NEVER || model->string_outputs > 0 ||
        lm_runner_of(model)->not_regions)
        return 0;
    return body_spans(model, encoding) + model->output_count;
}

/* Whether operators may see these numbers change: none of them leads to memory. */
static bool is_used_in_place(const struct lm_tensor *tensor) {
    switch (tensor->dtype) {
    case ORT_FLOAT:
    case ORT_DOUBLE:
    case ORT_FLOAT16:
    case ORT_BFLOAT16:
    case ORT_UINT8:
    case ORT_INT8: return true;
    default: return false;
    }
}

static bool add_copy(const struct lm_tensor *tensor, const struct lm_sizes *sizes, size_t *total) {
    size_t bytes = 0;
    if (!lm_tensor_bytes(tensor, sizes, &bytes)) return false;
    return !__builtin_add_overflow(*total, bytes, total) &&
           !__builtin_add_overflow(*total, LM_SLOT_ALIGN, total);
}

bool lm_region_slot_bytes(const struct lm_model *model, uint8_t encoding,
                          const struct lm_sizes *sizes, size_t *bytes_out) {
    /* The spans, and an error's sentence in their place. */
    const size_t spans = model->input_count + model->output_count;
    *bytes_out =
        LM_MODEL_SLOT_BYTES_MIN + lm_align_up(spans * sizeof(struct lm_span), LM_SLOT_ALIGN);
    for (uint32_t i = 0; i < model->input_count; i++) {
        bool in_place = is_used_in_place(&model->inputs[i]) && !is_whole_body(encoding);
        if (!in_place && !add_copy(&model->inputs[i], sizes, bytes_out)) return false;
    }
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        if (!output->shape_known || is_used_in_place(output)) continue;
        if (!add_copy(output, sizes, bytes_out)) return false;
    }
    return true;
}

void lm_region_receive(struct lm_request *request) {
    uint32_t count = lm_region_span_count(request->model, request->encoding);
    size_t bytes = count * sizeof(struct lm_span);
    struct lm_span *spans = lm_slot_alloc(request->slot, bytes);
    LM_ASSERT(spans);
    request->spans = spans;
    request->parts[request->part_count++] = (struct iovec){spans, bytes};
}

/* ---- the worker's side ---- */

/* `bytes`: that the tensor has; of an output of unknown shape 0. */
static bool check_span(const struct lm_request *request, uint32_t span, const char *name,
                       size_t bytes, bool is_output, char *why, size_t why_bytes) {
    const struct lm_span *at = &request->spans[span];
    size_t most = request->region->bytes;
    const char *kind = is_output ? "output" : "input";
    if (at->offset % LM_SLOT_ALIGN != 0) {
        snprintf(why, why_bytes,
                 "%s '%.64s': expected an offset that is a multiple of %d, found "
                 "%llu",
                 kind, name, LM_SLOT_ALIGN, (unsigned long long)at->offset);
    } else if (at->offset > most || at->bytes > most - at->offset) {
        snprintf(why, why_bytes,
                 "%s '%.64s': expected a place within the region's %zu bytes, found %llu bytes at "
                 "offset %llu",
                 kind, name, most, (unsigned long long)at->bytes, (unsigned long long)at->offset);
    } else if (is_output ? at->bytes < bytes : at->bytes != bytes) {
        snprintf(why, why_bytes, "%s '%.64s': expected %s%zu bytes in the region, found %llu", kind,
                 name, is_output ? "at least " : "", bytes, (unsigned long long)at->bytes);
    } else {
        return true;
    }
    return false;
}

static uint8_t *place_of(const struct lm_request *request, uint32_t span) {
    return request->region->base + request->spans[span].offset;
}

static bool place_inputs(struct lm_request *request, char *why, size_t why_bytes) {
    const struct lm_model *model = request->model;
    struct lm_layout *layout = &request->layout;
    bool whole = is_whole_body(request->encoding);
    size_t bytes = 0;
    if (whole) {
        lm_model_payload_bytes(model, request->encoding, &request->sizes, &bytes);
        if (!check_span(request, 0, lm_encodings[request->encoding].name, bytes, false, why,
                        why_bytes))
            return false;
        layout->raw = place_of(request, 0);
    }
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        lm_tensor_bytes(input, &request->sizes, &bytes);
        if (!whole && !check_span(request, i, input->name, bytes, false, why, why_bytes))
            return false;
        bool in_place = !whole && is_used_in_place(input);
        layout->inputs[i] = in_place ? place_of(request, i) : lm_slot_alloc(request->slot, bytes);
        LM_ASSERT(layout->inputs[i]);
        if (!whole && !in_place) memcpy(layout->inputs[i], place_of(request, i), bytes);
    }
    return true;
}

static bool place_outputs(struct lm_request *request, char *why, size_t why_bytes) {
    const struct lm_model *model = request->model;
    uint32_t first = body_spans(model, request->encoding);
    for (uint32_t o = 0; o < model->output_count; o++) {
        const struct lm_tensor *output = &model->outputs[o];
        size_t bytes = 0;
        if (output->shape_known) lm_tensor_bytes(output, &request->sizes, &bytes);
        if (!check_span(request, first + o, output->name, bytes, true, why, why_bytes))
            return false;
        if (!output->shape_known) continue;
        request->layout.outputs[o] = is_used_in_place(output) ? place_of(request, first + o)
                                                              : lm_slot_alloc(request->slot, bytes);
        LM_ASSERT(request->layout.outputs[o]);
    }
    return true;
}

enum lm_status lm_region_place(struct lm_request *request, char *why, size_t why_bytes) {
    lm_layout_clear(&request->layout, request->model);
    bool fits = place_inputs(request, why, why_bytes) && place_outputs(request, why, why_bytes);
    return fits ? LM_STATUS_OK : LM_STATUS_BAD_REQUEST;
}

void *lm_region_room(const struct lm_request *request, uint32_t output, size_t bytes) {
    uint32_t span = body_spans(request->model, request->encoding) + output;
    if (bytes <= request->spans[span].bytes) return place_of(request, span);
    lm_error(LUMEN_E_ORT, "output '%s' has %zu bytes, its place in the region %llu",
             request->model->outputs[output].name, bytes,
             (unsigned long long)request->spans[span].bytes);
    return NULL;
}

void lm_region_put(const struct lm_request *request, const void *const *data, size_t *bytes) {
    uint32_t first = body_spans(request->model, request->encoding);
    for (uint32_t o = 0; o < request->model->output_count; o++) {
        uint8_t *place = place_of(request, first + o);
        if (bytes[o] > 0 && data[o] != place) memcpy(place, data[o], bytes[o]);
        bytes[o] = 0;
    }
}
