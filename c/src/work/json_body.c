/* json_body.c: see json_body.h. */
#include "work/json_body.h"

#include <stdio.h>
#include <string.h>

#include "base/atomics.h"
#include "formats/grpc_infer.h"
#include "formats/rows_request.h"
#include "models/layout.h"
#include "models/strings.h"

void lm_json_body_receive(struct lm_request *request, size_t room, const char *text,
                          size_t text_bytes) {
    struct lm_body *body = &request->body;
    body->text = lm_slot_alloc(request->slot, room + LM_OIP_PADDING);
    body->room = room;
    body->bytes = text_bytes;
    if (text_bytes) memcpy(body->text, text, text_bytes);
}

/* Decodes the body's text into memory behind it. The decoded text is the body's text then. */
static enum lm_status inflate(struct lm_inflater *inflater, struct lm_body *body,
                              struct lm_slot *slot, enum lm_coding coding, char *why,
                              size_t why_bytes) {
    char *text = lm_slot_alloc(slot, body->inflated_room + LM_OIP_PADDING);
    const char *from = body->text;
    size_t json = 0;
    body->text = text;
    if (coding != LM_CODING_PROTOBUF)
        return lm_inflate(inflater, coding, from, body->bytes, text, body->inflated_room,
                          &body->bytes, why, why_bytes);
    enum lm_status status =
        lm_grpc_unpack((const uint8_t *)from, body->bytes, text, body->inflated_room, &body->bytes,
                       &json, why, why_bytes);
    body->json_bytes = (int64_t)json;
    return status;
}

enum lm_status lm_json_body_inflate(struct lm_inflater *inflater, struct lm_request *request,
                                    char *why, size_t why_bytes) {
    struct lm_body *body = &request->body;
    const bool is_message = lm_coding_is_message(body->coding);
    const enum lm_coding coding =
        is_message ? lm_coding_of_message(body->coding) : (enum lm_coding)body->coding;
    enum lm_status status = LM_STATUS_OK;
    if (coding != LM_CODING_NONE)
        status = inflate(inflater, body, request->slot, coding, why, why_bytes);
    if (status == LM_STATUS_OK && is_message)
        status = inflate(inflater, body, request->slot, LM_CODING_PROTOBUF, why, why_bytes);
    if (status != LM_STATUS_OK || body->json_bytes <= (int64_t)body->bytes) return status;
    snprintf(why, why_bytes,
             "Inference-Header-Content-Length: expected at most the %zu bytes of the body, found "
             "%lld",
             body->bytes, (long long)body->json_bytes);
    return LM_STATUS_BAD_REQUEST;
}

/* Lays the tensors out behind the text, once their sizes are known; of inputs of strings, so many
 * bytes of each. */
static enum lm_status place_tensors(struct lm_request *request, const size_t *strings, char *why,
                                    size_t why_bytes) {
    const struct lm_oip_request *asked = request->asked;
    const struct lm_model *model = request->model;
    struct lm_layout *layout = &request->layout;
    size_t needed = 0, sum = 0, room = lm_slot_left(request->slot);
    for (uint32_t i = 0; i < model->input_count; i++) sum += strings[i];
    if (!lm_model_slot_bytes_with(model, &asked->sizes, sum, &needed) || needed > room) {
        snprintf(why, why_bytes,
                 "%u rows of this shape do not fit the slot beside their JSON: send binary tensors",
                 asked->sizes.rows);
        return LM_STATUS_TOO_LARGE;
    }
    request->sizes = asked->sizes;
    lm_model_layout(model, request->slot, LM_ENCODING_TENSORS, &asked->sizes, layout);
    for (uint32_t i = 0; asked->optionals >> i; i++) {
        if (!(asked->optionals >> i & 1)) continue;
        const uint32_t at = model->input_count + i;
        layout->inputs[at] = lm_slot_alloc(request->slot, model->inputs[at].row_bytes);
    }
    for (uint32_t i = 0; i < model->input_count; i++) {
        if (strings[i] == 0) continue;
        layout->inputs[i] = lm_slot_alloc(request->slot, strings[i]);
        layout->string_bytes[i] = strings[i];
    }
    return LM_STATUS_OK;
}

static void take_timeout(struct lm_request *request) {
    const uint64_t timeout_us = request->asked->timeout_us;
    if (timeout_us == 0) return;
    const uint64_t deadline_ns = lm_deadline_after(request->started_ns, timeout_us);
    if (request->is_timed && request->deadline_ns < deadline_ns) return;
    request->deadline_ns = deadline_ns;
    /* relaxed: seen a sweep later at worst */
    lm_store_relaxed_u64(&request->overdue_ns, request->deadline_ns);
}

enum lm_status lm_json_body_read(struct lm_oip_parser *parser, struct lm_request *request,
                                 char *why, size_t why_bytes) {
    struct lm_body *body = &request->body;
    struct lm_oip_request *asked = request->asked;
    const struct lm_model *model = request->model;
    size_t json = body->json_bytes < 0 ? body->bytes : (size_t)body->json_bytes, blobs = 0;
    enum lm_status status = lm_oip_read(parser, body->text, json, model, asked, why, why_bytes);
    if (status != LM_STATUS_OK) return status;
    for (uint32_t b = 0; b < asked->blob_count; b++) blobs += (size_t)asked->blob_bytes[b];
    if (blobs != body->bytes - json) {
        snprintf(why, why_bytes, "%s: expected %zu bytes of binary data after the JSON, found %zu",
                 blobs < body->bytes - json ? "unexpected additional input data"
                                            : "missing input data",
                 blobs, body->bytes - json);
        return LM_STATUS_BAD_REQUEST;
    }
    size_t strings[LM_TENSORS_MAX];
    lm_oip_strings_bytes(parser, asked, model, strings);
    status = place_tensors(request, strings, why, why_bytes);
    if (status != LM_STATUS_OK) return status;
    status = lm_oip_values(parser, asked, model, request->layout.inputs, why, why_bytes);
    if (status != LM_STATUS_OK) return status;
    const char *blob = body->text + json;
    for (uint32_t b = 0; b < asked->blob_count; b++) {
        uint32_t input = asked->blob_inputs[b];
        if (asked->pictures) { /* whoever decodes them reads them where they are */
            request->layout.raw = (uint8_t *)(uintptr_t)blob;
            request->layout.raw_bytes = (size_t)asked->blob_bytes[b];
        } else if (lm_is_string(&model->inputs[input])) { /* they may stay where they are */
            request->layout.inputs[input] = (void *)(uintptr_t)blob;
            request->layout.string_bytes[input] = (size_t)asked->blob_bytes[b];
        } else {
            memcpy(request->layout.inputs[input], blob, (size_t)asked->blob_bytes[b]);
        }
        blob += asked->blob_bytes[b];
    }
    if (model->string_inputs > 0 &&
        !lm_strings_check(model, &asked->sizes, &request->layout, why, why_bytes))
        return LM_STATUS_BAD_REQUEST;
    take_timeout(request);
    return LM_STATUS_OK;
}

/* Files of pictures in base64 become those that come as they are: each behind its length. */
static enum lm_status read_files(struct lm_oip_parser *parser, struct lm_request *request,
                                 size_t bytes, char *why, size_t why_bytes) {
    if (bytes > lm_slot_left(request->slot)) {
        snprintf(why, why_bytes,
                 "the %zu bytes of %u pictures do not fit the slot beside their JSON: send fewer "
                 "in one request, or one as the whole body",
                 bytes, request->sizes.rows);
        return LM_STATUS_TOO_LARGE;
    }
    void *files = lm_slot_alloc(request->slot, bytes);
    request->layout.raw = files;
    request->layout.raw_bytes = bytes;
    enum lm_status status =
        lm_rows_values(parser, request->asked, request->model, &files, why, why_bytes);
    if (status == LM_STATUS_OK) take_timeout(request);
    return status;
}

enum lm_status lm_rows_body_read(struct lm_oip_parser *parser, struct lm_request *request,
                                 char *why, size_t why_bytes) {
    struct lm_body *body = &request->body;
    enum lm_status status = lm_rows_read(parser, body->text, body->bytes, request->model,
                                         request->asked, why, why_bytes);
    size_t strings[LM_TENSORS_MAX];
    if (status == LM_STATUS_OK)
        status =
            lm_rows_strings_bytes(parser, request->asked, request->model, strings, why, why_bytes);
    size_t files = status == LM_STATUS_OK && request->asked->pictures ? strings[0] : 0;
    if (files) strings[0] = 0; /* they are no tensor */
    if (status == LM_STATUS_OK) status = place_tensors(request, strings, why, why_bytes);
    if (status == LM_STATUS_OK && files) return read_files(parser, request, files, why, why_bytes);
    if (status == LM_STATUS_OK)
        status = lm_rows_values(parser, request->asked, request->model, request->layout.inputs, why,
                                why_bytes);
    if (status == LM_STATUS_OK) take_timeout(request);
    return status;
}

enum lm_status lm_picture_body_place(struct lm_request *request, char *why, size_t why_bytes) {
    struct lm_oip_request *asked = request->asked;
    const size_t strings[1] = {0}; /* pictures are the one input */
    struct lm_layout file = request->layout;
    lm_oip_request_reset(asked);
    asked->sizes.rows = 1;
    asked->pictures = true;
    asked->requested_count = request->model->output_count;
    for (uint32_t o = 0; o < asked->requested_count; o++) {
        int dtype = request->model->outputs[o].dtype;
        bool binary = dtype == ORT_FLOAT16 || dtype == ORT_BFLOAT16; /* JSON cannot say them */
        asked->requested[o] =
            (struct lm_oip_requested_output){.output = (uint8_t)o, .binary = binary};
    }
    enum lm_status status = place_tensors(request, strings, why, why_bytes);
    request->layout.raw = file.raw;
    request->layout.raw_bytes = file.raw_bytes;
    return status;
}
