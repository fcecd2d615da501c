/* json_body.c: see json_body.h. */
#include "work/json_body.h"

#include <stdio.h>
#include <string.h>

#include "base/atomics.h"

void lm_json_body_receive(struct lm_request *request, size_t room, const char *text,
                          size_t text_bytes) {
    struct lm_http_exchange *http = &request->http;
    http->text = lm_slot_alloc(request->slot, room + LM_OIP_PADDING);
    http->text_room = room;
    http->text_bytes = text_bytes;
    if (text_bytes) memcpy(http->text, text, text_bytes);
}

enum lm_status lm_json_body_read(struct lm_oip_parser *parser, struct lm_request *request,
                                 char *why, size_t why_bytes) {
    struct lm_http_exchange *http = &request->http;
    struct lm_oip_request *asked = &http->asked;
    const struct lm_model *model = request->model;
    size_t json = http->json_bytes < 0 ? http->text_bytes : (size_t)http->json_bytes, blobs = 0;
    enum lm_status status = lm_oip_read(parser, http->text, json, model, asked, why, why_bytes);
    if (status != LM_STATUS_OK) return status;
    for (uint32_t b = 0; b < asked->blob_count; b++) blobs += (size_t)asked->blob_bytes[b];
    if (blobs != http->text_bytes - json) {
        snprintf(why, why_bytes, "%s: expected %zu bytes of binary data after the JSON, found %zu",
                 blobs < http->text_bytes - json ? "unexpected additional input data"
                                                 : "missing input data",
                 blobs, http->text_bytes - json);
        return LM_STATUS_BAD_REQUEST;
    }
    size_t needed = 0, room = lm_slot_left(request->slot);
    if (!lm_model_slot_bytes(model, &asked->sizes, &needed) || needed > room) {
        snprintf(why, why_bytes,
                 "%u rows of this shape do not fit the slot beside their JSON: send binary tensors",
                 asked->sizes.rows);
        return LM_STATUS_TOO_LARGE;
    }
    request->sizes = asked->sizes;
    lm_model_layout(model, request->slot, LM_ENCODING_TENSORS, &asked->sizes, &request->layout);
    status = lm_oip_values(parser, asked, model, request->layout.inputs, why, why_bytes);
    if (status != LM_STATUS_OK) return status;
    const char *blob = http->text + json;
    for (uint32_t b = 0; b < asked->blob_count; b++) {
        memcpy(request->layout.inputs[asked->blob_inputs[b]], blob, (size_t)asked->blob_bytes[b]);
        blob += asked->blob_bytes[b];
    }
    if (asked->timeout_us) {
        request->deadline_ns = lm_deadline_after(request->started_ns, asked->timeout_us);
        /* relaxed: seen a sweep later at worst */
        lm_store_relaxed_u64(&request->overdue_ns, request->deadline_ns);
    }
    return LM_STATUS_OK;
}
