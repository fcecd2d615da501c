/* encoding.c: see encoding.h. */
#include "work/encoding.h"

#include <stdio.h>

#include "work/json_body.h"
#include "work/worker.h"

static void add_part(struct lm_request *request, void *at, size_t bytes) {
    request->parts[request->part_count++] = (struct iovec){at, bytes};
}

/* ---- tensors: one behind the other, received where they are used ---- */

static bool tensors_body_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                               size_t *bytes_out) {
    return lm_model_payload_bytes(model, LM_ENCODING_TENSORS, sizes, bytes_out);
}

static bool tensors_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                               size_t body_bytes, size_t *bytes_out) {
    (void)body_bytes; /* the sizes say it */
    return lm_model_slot_bytes(model, sizes, bytes_out);
}

static void tensors_receive(struct lm_request *request) {
    const struct lm_model *model = request->model;
    for (uint32_t i = 0; i < model->input_count; i++) {
        size_t bytes = 0;
        lm_tensor_bytes(&model->inputs[i], &request->sizes, &bytes);
        add_part(request, request->layout.inputs[i], bytes);
    }
}

/* For all encodings whose bytes lie beside the tensors they become. */
static void raw_receive(struct lm_request *request) {
    size_t bytes = 0;
    lm_model_payload_bytes(request->model, request->encoding, &request->sizes, &bytes);
    add_part(request, request->layout.raw, bytes);
}

/* ---- rgb8: pixels, converted into the one image input ---- */

static const char *rgb8_missing(const struct lm_model *model) {
    return model->has_rgb8 ? NULL : "image input of 3 channels";
}

static bool rgb8_body_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                            size_t *bytes_out) {
    return model->has_rgb8 && lm_model_payload_bytes(model, LM_ENCODING_RGB8, sizes, bytes_out);
}

static void rgb8_convert(const struct lm_request *request, void *const *inputs) {
    lm_rgb8_convert(&request->model->rgb8, request->layout.raw, inputs[0], request->sizes.rows);
}

/* ---- JSON: text, parsed into the tensors behind it ---- */

static bool json_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                            size_t body_bytes, size_t *bytes_out) {
    (void)sizes; /* nobody knows them yet */
    return lm_model_text_slot_bytes(model, body_bytes, bytes_out);
}

static enum lm_status json_read(struct lm_worker *worker, struct lm_request *request, char *why,
                                size_t why_bytes) {
    return lm_json_body_read(worker->parser, request, why, why_bytes);
}

const struct lm_encoding lm_encodings[LM_ENCODING_COUNT] = {
    [LM_ENCODING_TENSORS] = {.name = "tensors",
                             .body_bytes = tensors_body_bytes,
                             .slot_bytes = tensors_slot_bytes,
                             .receive = tensors_receive},
    [LM_ENCODING_RGB8] = {.name = "rgb8",
                          .missing = rgb8_missing,
                          .body_bytes = rgb8_body_bytes,
                          .slot_bytes = tensors_slot_bytes,
                          .receive = raw_receive,
                          .convert = rgb8_convert},
    [LM_ENCODING_JSON] = {.name = "json", .slot_bytes = json_slot_bytes, .read = json_read},
};

uint8_t lm_encoding_of_row(const struct lm_model *model, const struct lm_sizes *row,
                           uint64_t bytes) {
    uint8_t e = 0;
    for (; e < LM_ENCODING_COUNT; e++) {
        size_t row_bytes;
        if (lm_encodings[e].body_bytes && lm_encodings[e].body_bytes(model, row, &row_bytes) &&
            row_bytes == bytes)
            break;
    }
    return e;
}

void lm_encoding_list_rows(const struct lm_model *model, const struct lm_sizes *row, char *text,
                           size_t text_bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (uint8_t e = 0; e < LM_ENCODING_COUNT && used < text_bytes; e++) {
        size_t bytes;
        if (!lm_encodings[e].body_bytes || !lm_encodings[e].body_bytes(model, row, &bytes))
            continue;
        const char *what =
            e == LM_ENCODING_TENSORS ? lm_dtype_name(model->inputs[0].dtype) : lm_encodings[e].name;
        int count = snprintf(text + used, text_bytes - used, "%s%zu bytes of %s",
                             used > 0 ? " or " : "", bytes, what);
        used += (size_t)count;
    }
}
