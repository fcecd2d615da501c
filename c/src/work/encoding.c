/* encoding.c: see encoding.h. */
#include "work/encoding.h"

#include <stdio.h>
#include <string.h>

#include "formats/text_slots.h"
#include "models/layout.h"
#include "models/strings.h"
#include "work/image_body.h"
#include "work/json_body.h"
#include "work/state.h"
#include "work/texts_body.h"

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

static void tensors_receive(struct lm_request *request, size_t body_bytes) {
    (void)body_bytes; /* the sizes say it */
    const struct lm_model *model = request->model;
    for (uint32_t i = 0; i < model->input_count; i++) {
        size_t bytes = 0;
        lm_tensor_bytes(&model->inputs[i], &request->sizes, &bytes);
        add_part(request, request->layout.inputs[i], bytes);
    }
}

/* For all encodings whose bytes lie beside the tensors they become. */
static void raw_receive(struct lm_request *request, size_t body_bytes) {
    (void)body_bytes;
    size_t bytes = 0;
    lm_model_payload_bytes(request->model, request->encoding, &request->sizes, &bytes);
    add_part(request, request->layout.raw, bytes);
}

/* ---- rgb8: pixels, converted into the one image input ---- */

static const char *rgb8_missing(const struct lm_model *model) {
    return model->input_plan.has_rgb8 ? NULL : "image input of 3 channels";
}

static bool rgb8_body_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                            size_t *bytes_out) {
    return model->input_plan.has_rgb8 &&
           lm_model_payload_bytes(model, LM_ENCODING_RGB8, sizes, bytes_out);
}

static void rgb8_convert(const struct lm_request *request, void *const *inputs) {
    lm_rgb8_convert(&request->model->input_plan.rgb8, request->layout.raw, inputs[0],
                    request->sizes.rows);
}

/* ---- tensors of which some hold strings: received in one piece, cut and checked by the worker
 * ---- */

static bool strings_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                               size_t body_bytes, size_t *bytes_out) {
    /* Whatever its numbers have: the body lies beside them. A raw string is without its length. */
    return lm_model_slot_bytes_with(model, sizes, body_bytes + sizeof(uint32_t), bytes_out);
}

static void strings_receive(struct lm_request *request, size_t body_bytes) {
    request->layout.raw = lm_slot_alloc(request->slot, body_bytes);
    request->layout.raw_bytes = body_bytes;
    add_part(request, request->layout.raw, body_bytes);
}

void lm_encoding_receive_one(struct lm_request *request) {
    struct lm_layout *layout = &request->layout;
    uint32_t bytes = (uint32_t)layout->raw_bytes;
    lm_slot_alloc(request->slot, sizeof bytes); /* behind the body, so that both have room */
    memcpy(layout->raw, &bytes, sizeof bytes);
    request->parts[0] = (struct iovec){layout->raw + sizeof bytes, bytes};
    layout->raw_bytes += sizeof bytes;
}

static enum lm_status strings_read(struct lm_worker *worker, struct lm_request *request, char *why,
                                   size_t why_bytes) {
    (void)worker;
    bool fit = lm_strings_check(request->model, &request->sizes, &request->layout, why, why_bytes);
    return fit ? LM_STATUS_OK : LM_STATUS_BAD_REQUEST;
}

/* ---- pictures: files, each with its length, or one that is all of HTTP's body ---- */

static const char *image_missing(const struct lm_model *model) {
    return model->input_plan.has_images ? NULL : "setting `image`";
}

/* A length for each; no file is empty, which its decoder says. */
static bool image_body_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                             size_t *bytes_out) {
    return model->input_plan.has_images && lm_mul_size(sizeof(uint32_t), sizes->rows, bytes_out);
}

static bool image_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                             size_t body_bytes, size_t *bytes_out) {
    size_t body = lm_align_up(body_bytes, LM_SLOT_ALIGN);
    return body >= body_bytes && lm_model_slot_bytes(model, sizes, bytes_out) &&
           !__builtin_add_overflow(*bytes_out, body, bytes_out);
}

/* ---- JSON: text, parsed into the tensors behind it ---- */

static bool json_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                            size_t body_bytes, size_t *bytes_out) {
    (void)sizes; /* nobody knows them yet */
    return lm_model_text_slot_bytes(model, body_bytes, bytes_out);
}

static bool rows_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                            size_t body_bytes, size_t *bytes_out) {
    (void)sizes; /* as above */
    return lm_model_rows_slot_bytes(model, body_bytes, bytes_out);
}

static enum lm_status json_read(struct lm_worker *worker, struct lm_request *request, char *why,
                                size_t why_bytes) {
    enum lm_status status = lm_json_body_read(worker->parser, request, why, why_bytes);
    if (status != LM_STATUS_OK || !request->asked->pictures) return status;
    return lm_image_files_read(worker, request, why, why_bytes);
}

static enum lm_status rows_read(struct lm_worker *worker, struct lm_request *request, char *why,
                                size_t why_bytes) {
    enum lm_status status = lm_rows_body_read(worker->parser, request, why, why_bytes);
    if (status != LM_STATUS_OK || !request->asked->pictures) return status;
    return lm_image_files_read(worker, request, why, why_bytes);
}

static bool texts_slot_bytes(const struct lm_model *model, const struct lm_sizes *sizes,
                             size_t body_bytes, size_t *bytes_out) {
    (void)sizes; /* as above */
    return lm_model_texts_slot_bytes(model, body_bytes, bytes_out);
}

static enum lm_status texts_read(struct lm_worker *worker, struct lm_request *request, char *why,
                                 size_t why_bytes) {
    return lm_texts_body_read(worker->parser, request, why, why_bytes);
}

static const char *texts_missing(const struct lm_model *model) {
    return model->text ? NULL : "setting `text`";
}

#define IMAGE                        \
    {.name = "image",                \
     .missing = image_missing,       \
     .body_bytes = image_body_bytes, \
     .body_varies = true,            \
     .slot_bytes = image_slot_bytes, \
     .receive = strings_receive,     \
     .read = lm_image_files_read}

const struct lm_encoding lm_encodings[LM_ENCODING_COUNT] = {
    [LM_ENCODING_TENSORS] = {.name = "tensors",
                             .body_bytes = tensors_body_bytes,
                             .slot_bytes = tensors_slot_bytes,
                             .receive = tensors_receive,
                             .in_region = LM_REGION_TENSORS},
    [LM_ENCODING_RGB8] = {.name = "rgb8",
                          .missing = rgb8_missing,
                          .body_bytes = rgb8_body_bytes,
                          .slot_bytes = tensors_slot_bytes,
                          .receive = raw_receive,
                          .convert = rgb8_convert,
                          .in_region = LM_REGION_BODY},
    [LM_ENCODING_IMAGE] = IMAGE,
    [LM_ENCODING_PNG] = IMAGE,
    [LM_ENCODING_JSON] = {.name = "json", .slot_bytes = json_slot_bytes, .read = json_read},
    [LM_ENCODING_ROWS] = {.name = "rows", .slot_bytes = rows_slot_bytes, .read = rows_read},
    [LM_ENCODING_TEXTS] = {.name = "texts",
                           .missing = texts_missing,
                           .slot_bytes = texts_slot_bytes,
                           .read = texts_read},
    [LM_ENCODING_STRINGS] = {.name = "tensors",
                             .body_bytes = tensors_body_bytes,
                             .body_varies = true,
                             .slot_bytes = strings_slot_bytes,
                             .receive = strings_receive,
                             .read = strings_read},
};

uint8_t lm_encoding_of_row(const struct lm_model *model, const struct lm_sizes *row,
                           uint64_t bytes) {
    uint8_t e = 0;
    for (; e < LM_ENCODING_COUNT; e++) {
        size_t row_bytes;
        if (lm_encodings[e].body_bytes && !lm_encodings[e].body_varies &&
            lm_encodings[e].body_bytes(model, row, &row_bytes) && row_bytes == bytes)
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
        if (!lm_encodings[e].body_bytes || lm_encodings[e].body_varies ||
            !lm_encodings[e].body_bytes(model, row, &bytes))
            continue;
        const char *what =
            e == LM_ENCODING_TENSORS ? lm_dtype_name(model->inputs[0].dtype) : lm_encodings[e].name;
        int count = snprintf(text + used, text_bytes - used, "%s%zu bytes of %s",
                             used > 0 ? " or " : "", bytes, what);
        used += (size_t)count;
    }
}
