/* route.c: see route.h. */
#include "work/route.h"

#include <math.h>
#include <string.h>

#include "image/probe.h"
#include "models/binding.h"
#include "models/experts_rule.h"
#include "models/features.h"
#include "work/carrier.h"

static void take(struct lm_request *request, uint32_t at) {
    request->expert_at = (uint8_t)at;
    request->expert = request->model->experts.models[at];
}

/* The expert for the bytes of the row's strings that ask for the latest; they have been checked. */
static uint32_t by_length(const struct lm_request *request) {
    const struct lm_experts *experts = &request->model->experts;
    const struct lm_tensor *input = &request->model->inputs[experts->at];
    const uint8_t *at = request->layout.inputs[experts->at];
    size_t strings = lm_values_of(input, &request->sizes, at).count;
    uint32_t latest = 0, rows = input->rows_free ? request->sizes.rows : 1;
    for (uint32_t r = 0; r < rows; r++) {
        uint64_t length = 0;
        for (size_t s = 0; s < strings; s++) {
            uint32_t bytes;
            memcpy(&bytes, at, sizeof bytes); /* little-endian, as we are */
            at += sizeof bytes + bytes;
            length += bytes;
        }
        uint32_t wanted = lm_experts_choose(experts, (double)length);
        if (wanted > latest) latest = wanted;
    }
    return latest;
}

/* The pixels of a file; what its header does not say is no number. */
static double pixels_of(const uint8_t *file, size_t bytes) {
    struct lm_image_probe probe;
    lm_image_probe(&probe, file, bytes);
    return probe.has_sides ? (double)probe.width * probe.height : NAN;
}

static uint32_t by_pixels(const struct lm_request *request) {
    const struct lm_model *model = request->model;
    const struct lm_experts *experts = &model->experts;
    const uint8_t *at = request->layout.raw, *end = at + request->layout.raw_bytes;
    bool is_file = lm_carrier_of(request)->is_file;
    bool is_json = lm_encoding_is_text(request->encoding); /* else `asked` is another request's */
    bool are_files =
        lm_encoding_is_image(request->encoding) || (is_json && request->asked->pictures);
    const struct lm_rgb8_plan *plan =
        model->input_plan.has_images ? &model->input_plan.image.pixels : &model->input_plan.rgb8;
    if (!is_file && !are_files)
        return lm_experts_choose(experts, (double)plan->height * plan->width);
    if (is_file) return lm_experts_choose(experts, pixels_of(at, (size_t)(end - at)));
    uint32_t latest = 0;
    for (uint32_t row = 0; row < request->sizes.rows; row++) {
        uint32_t bytes; /* they have been decoded: each is whole */
        memcpy(&bytes, at, sizeof bytes);
        at += sizeof bytes;
        uint32_t wanted = lm_experts_choose(experts, pixels_of(at, bytes));
        if (wanted > latest) latest = wanted;
        at += bytes;
    }
    return latest;
}

static uint32_t size_of(const struct lm_request *request, uint32_t dimension) {
    return request->sizes.free[request->model->free_dims[dimension].place];
}

void lm_route(struct lm_request *request) {
    const struct lm_experts *experts = &request->model->experts;
    const struct lm_encoding *encoding = &lm_encodings[request->encoding];
    if (lm_experts_cascade(experts)) {
        take(request, 0);
        return;
    }
    if (experts->feature == LUMEN_FEATURE_PIXELS) {
        take(request, by_pixels(request));
    } else if (experts->feature == LUMEN_FEATURE_LENGTH) {
        take(request, by_length(request));
    } else if (experts->feature == LUMEN_FEATURE_SIZE) {
        bool is_rows = experts->at >= request->model->free_count;
        uint32_t size = is_rows ? request->sizes.rows : size_of(request, experts->at);
        take(request, lm_experts_choose(experts, size));
    } else {
        if (encoding->convert) {
            encoding->convert(request, request->layout.inputs);
            request->converted = true;
        }
        const void *at = request->layout.inputs[experts->at];
        take(request, lm_experts_by_values(request->model, &request->sizes, at));
    }
}

bool lm_route_goes_on(struct lm_request *request, const void *output) {
    const struct lm_experts *experts = &request->model->experts;
    if (!lm_experts_cascade(experts) || request->expert_at + 1u >= experts->count) return false;
    if (lm_experts_is_sure(request->model, request->expert_at, &request->sizes, output))
        return false;
    take(request, request->expert_at + 1u);
    return true;
}

bool lm_route_goes_on_after(struct lm_request *request, const struct lm_ort *ort,
                            OrtValue *const *outputs) {
    const struct lm_experts *experts = &request->model->experts;
    if (!lm_experts_cascade(experts)) return false;
    const struct lm_tensor *output = &request->model->outputs[experts->at];
    void *data = request->layout.outputs[experts->at];
    /* An output of another size than declared is refused when it is taken. */
    if (!lm_output_is_wrapped(output, request->sizes.rows) &&
        (lm_model_check_count(ort, output, outputs[experts->at], &request->sizes) ||
         lm_ort_check(ort, ort->api->GetTensorMutableData(outputs[experts->at], &data),
                      output->name)))
        return false;
    return lm_route_goes_on(request, data);
}
