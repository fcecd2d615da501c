/* http_reply.c: see http_reply.h. */
#include "dialects/http_reply.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "dialects/http_code.h"
#include "flow/tracing.h"
#include "formats/text_slots.h"
#include "wire/http_date.h"
#include "work/load_figures.h"
#include "work/output_view.h"

enum { HEAD_ROOM = LM_REPLY_HEAD_BYTES, EXPERT_ROOM = LM_REPLY_EXPERT_BYTES };
_Static_assert(HEAD_ROOM + LM_TEXT_BYTES_MAX + LM_HTTP_ERROR_BYTES <= LM_MODEL_SLOT_BYTES_MIN,
               "any slot of a request has room for a refusal");

/* Of the reply to a request: more, where the head names an expert. */
static size_t head_room(const struct lm_request *request) {
    return HEAD_ROOM + (request->expert ? EXPERT_ROOM : 0);
}

/* Writes the head so that it ends where the text begins, and makes both the reply's first part. */
static void put_head(struct lm_request *request, char *text, size_t text_bytes, uint32_t code,
                     const char *headers, size_t content_bytes) {
    struct lm_shared *shared = request->io->shared;
    char head[HEAD_ROOM + EXPERT_ROOM], trace[LM_TRACERESPONSE_BYTES];
    if (lm_shared_is_leaving(shared)) request->last = true;
    (void)lm_tracing_write_answer(request, trace);
    int bytes =
        snprintf(head, sizeof head, "HTTP/1.1 %u %s\r\n%s%s%s%s%sContent-Length: %zu\r\n\r\n", code,
                 lm_http_reason(code), lm_http_date_line(), headers, trace,
                 lm_load_line(shared, request->wish.load, request->inferred_ns),
                 request->last ? "Connection: close\r\n" : shared->keep_alive_lines, content_bytes);
    LM_ASSERT(bytes > 0 && (size_t)bytes < sizeof head);
    memcpy(text - bytes, head, (size_t)bytes);
    request->reply[0] = (struct iovec){text - bytes, (size_t)bytes + text_bytes};
}

/* What is left of the slot. */
static char *rest_of(struct lm_slot *slot, size_t *bytes_out) {
    *bytes_out = lm_slot_left(slot);
    return (char *)slot->base + lm_align_up(slot->used, LM_SLOT_ALIGN);
}

/* So much JSON and scratch memory, behind room for the head: in the slot, or beside it. Returns 0
 * or LUMEN_E_*. */
static int split_room(struct lm_request *request, size_t json, size_t scratch,
                      struct lm_oip_room *room) {
    size_t left, texts = lm_align_up(json, LM_SLOT_ALIGN), head = head_room(request), all = head;
    char *rest = rest_of(request->slot, &left);
    if (texts < json || !lm_slot_add(&all, texts) || !lm_slot_add(&all, scratch))
        return lm_error(LUMEN_E_ORT, "the reply's JSON overflows a size: ask for binary_data");
    if (all > left) {
        void *beside = NULL;
        int code = lm_spill_take(&request->io->shared->spills, &request->spills, all, &beside);
        if (code) return code;
        rest = beside;
    }
    *room = (struct lm_oip_room){.json = rest + head,
                                 .json_bytes = texts,
                                 .scratch = rest + head + texts,
                                 .scratch_bytes = scratch};
    return 0;
}

enum { RUN_BYTES = 64 + LM_NAME_BYTES_MAX };

/* Headers: on how many cores the request ran, where on more than one; of a virtual model, which
 * expert answered it. */
static void write_run(const struct lm_request *request, char text[RUN_BYTES]) {
    int used = 0;
    text[0] = '\0';
    if (request->width > 1) used = snprintf(text, RUN_BYTES, "Lumen-Width: %u\r\n", request->width);
    if (request->expert)
        snprintf(text + used, RUN_BYTES - (size_t)used, "Lumen-Expert: %s\r\n",
                 request->expert->name);
}

/* Where the view's text and its scratch memory go. Returns 0 or LUMEN_E_*. */
static int find_room(struct lm_request *request, const struct lm_output_view *view,
                     const struct lm_oip_output *outputs, struct lm_oip_room *room) {
    size_t json = 0, scratch = 0;
    if (!view->bytes_max(request, outputs, &json, &scratch))
        return lm_error(LUMEN_E_ORT, "the reply's JSON overflows a size: ask for binary_data");
    return split_room(request, json, scratch, room);
}

/* The reply cannot be what was asked for. */
static void fail(struct lm_request *request, enum lm_status status, const char *why) {
    lm_request_set_why(request, why);
    lm_http_compose_error(request, status, why);
}

void lm_http_compose_outputs(struct lm_request *request, const void *const *data,
                             const size_t *bytes, size_t shape_block_bytes) {
    const struct lm_output_view *view = lm_output_view_of(request);
    struct lm_oip_output outputs[LM_TENSORS_MAX];
    struct lm_oip_room room;
    struct lm_oip_reply reply;
    char headers[128 + RUN_BYTES], run[RUN_BYTES], why[LM_TEXT_BYTES_MAX];
    lm_outputs_describe(request, data, bytes, shape_block_bytes > 0, outputs);
    int code = find_room(request, view, outputs, &room);
    if (code) { /* there is no memory for its text */
        fail(request, code == LUMEN_E_NOMEM ? LM_STATUS_OVERLOADED : LM_STATUS_TOO_LARGE,
             lm_error_last());
        return;
    }
    reply.blobs_bytes = reply.blob_count = 0;
    enum lm_status status = view->write(request, outputs, &room, &reply, why, sizeof why);
    if (status != LM_STATUS_OK) {
        fail(request, status, why);
        return;
    }
    uint32_t parts = 1;
    for (uint32_t b = 0; b < reply.blob_count; b++) {
        if (reply.blobs[b].bytes == 0) continue;
        request->reply[parts++] =
            (struct iovec){(void *)(uintptr_t)reply.blobs[b].data, reply.blobs[b].bytes};
    }
    write_run(request, run);
    if (reply.blob_count) {
        snprintf(headers, sizeof headers,
                 "Content-Type: application/octet-stream\r\n"
                 "Inference-Header-Content-Length: %zu\r\n%s",
                 reply.json_bytes, run);
    } else {
        snprintf(headers, sizeof headers, "Content-Type: application/json\r\n%s", run);
    }
    put_head(request, room.json, reply.json_bytes, 200, headers,
             reply.json_bytes + reply.blobs_bytes);
    request->status = LM_STATUS_OK;
    lm_request_set_message(request, parts);
}

void lm_http_compose_error(struct lm_request *request, enum lm_status status, const char *text) {
    char body[LM_TEXT_BYTES_MAX + LM_HTTP_ERROR_BYTES], headers[96];
    const uint8_t route = request->wish.route;
    uint32_t code = lm_http_code(route, status, request->io->shared->config.overload_status);
    size_t used = lm_http_error_body(route, code, text, body, sizeof body);
    snprintf(headers, sizeof headers, "Content-Type: application/json\r\n%s",
             lm_http_retry_lines(route, code));
    /* The slot's tensors are done with: the sentence takes their place. */
    lm_slot_reset(request->slot);
    char *room = lm_slot_alloc(request->slot, HEAD_ROOM + sizeof body);
    LM_ASSERT(room);
    memcpy(room + HEAD_ROOM, body, used);
    put_head(request, room + HEAD_ROOM, used, code, headers, used);
    request->status = (uint16_t)status;
    lm_request_set_message(request, 1);
}
