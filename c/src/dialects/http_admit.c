/* http_admit.c: see http_admit.h. */
#include "dialects/http_admit.h"

#include <stdio.h>
#include <string.h>

#include "dialects/http_access.h"
#include "dialects/http_block.h"
#include "dialects/http_code.h"
#include "dialects/http_refuse.h"
#include "dialects/http_routes.h"
#include "flow/admit.h"
#include "flow/gate.h"
#include "flow/reply.h"
#include "flow/slots.h"
#include "flow/submit.h"
#include "work/encoding.h"
#include "work/json_body.h"

/* What is known of a body when a slot is looked for. */
struct body {
    const struct lm_oip_request *asked; /* NULL: the JSON is not read yet */
    const char *text;                   /* the JSON before the blobs, already received */
    uint8_t encoding;
};

/* Behind JSON: blobs alone are received as tensors, values are text. */
static struct body body_of(const struct lm_oip_request *asked, const char *text) {
    return (struct body){.asked = asked,
                         .text = text,
                         .encoding =
                             asked->value_count > 0 ? LM_ENCODING_JSON : LM_ENCODING_TENSORS};
}

/* ---- setting a body up ---- */

static void ask_for_more(struct lm_io *io, struct lm_connection *connection) {
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!connection->in.call.expects_continue) return;
    connection->in.call.expects_continue = false;
    lm_reply_bytes(io, connection, line, sizeof line - 1, NULL, 0, true);
}

/* One part per blob, in the order of the blobs. */
static void plan_blobs(struct lm_request *request, const struct lm_oip_request *asked) {
    for (uint32_t b = 0; b < asked->blob_count; b++) {
        request->parts[b] =
            (struct iovec){request->layout.inputs[asked->blob_inputs[b]], asked->blob_bytes[b]};
    }
    request->part_count = asked->blob_count;
}

static size_t text_room(const struct lm_io *io, const struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    return call->chunked ? (size_t)io->shared->config.max_request_bytes
                         : (size_t)call->content_bytes;
}

static struct lm_demand demand_of(const struct lm_io *io, const struct lm_connection *connection,
                                  const struct body *body) {
    const struct lm_oip_request *asked = body->asked;
    return (struct lm_demand){.model = &io->models->models[connection->in.call.model],
                              .sizes = asked ? asked->sizes : (struct lm_sizes){.rows = 1},
                              .timeout_us = asked ? asked->timeout_us : 0,
                              .encoding = body->encoding,
                              .is_unread = lm_encodings[body->encoding].read != NULL};
}

/* Bytes of the slot that the reply needs beyond its tensors. */
static size_t reply_bytes(const struct lm_model *model, const struct lm_oip_request *asked) {
    bool values = false;
    size_t bytes = 0;
    for (uint32_t w = 0; w < asked->requested_count; w++) {
        values = values || !asked->requested[w].binary;
        bytes += asked->requested[w].classes * (size_t)asked->sizes.rows *
                 lm_model_class_text_bytes(model);
    }
    return values ? bytes + lm_model_reply_values_bytes(model, &asked->sizes, 1) : bytes;
}

/* The slot a request needs; false when there can be none so large. */
static bool slot_bytes(const struct lm_io *io, const struct lm_connection *connection,
                       const struct body *body, size_t *bytes_out) {
    struct lm_demand demand = demand_of(io, connection, body);
    if (!lm_encodings[demand.encoding].slot_bytes(demand.model, &demand.sizes,
                                                  text_room(io, connection), bytes_out))
        return false;
    if (!demand.is_unread) *bytes_out += reply_bytes(demand.model, body->asked);
    return lm_arena_fits(&io->arena, *bytes_out);
}

/* Says where the body goes, of which the JSON before the blobs may be here already. */
static void receive_body(const struct lm_io *io, const struct lm_connection *connection,
                         const struct body *body, struct lm_request *request) {
    const struct lm_http_call *call = &connection->in.call;
    if (request->is_unread) {
        struct lm_http_exchange *http = &request->http;
        size_t known = body->text ? (size_t)call->json_bytes : 0;
        lm_json_body_receive(request, text_room(io, connection), body->text, known);
        http->json_bytes = call->json_bytes;
        request->parts[0] = (struct iovec){http->text + known, connection->in.discard_bytes};
        request->part_count = 1;
        if (!call->chunked) http->text_bytes += connection->in.discard_bytes;
        return;
    }
    lm_model_layout(request->model, request->slot, request->encoding, &request->sizes,
                    &request->layout);
    if (call->json_bytes == 0) {
        lm_encodings[request->encoding].receive(request); /* the body is the one input */
    } else {
        plan_blobs(request, body->asked);
    }
}

/* Takes a slot and says where the body goes; false: none is free. */
static bool begin(struct lm_io *io, struct lm_connection *connection, const struct body *body,
                  size_t bytes) {
    struct lm_http_call *call = &connection->in.call;
    struct lm_slot *slot = lm_slots_take(io, connection, bytes);
    if (!slot) return false;
    if (call->expects_continue && connection->list == LM_LIST_WAITING) {
        /* There is room: it may send now, and gets the slot when it has. */
        lm_slots_put_back(io, slot);
        lm_connection_move(io, connection, LM_LIST_EXPECTING);
        ask_for_more(io, connection);
        return false;
    }
    struct lm_demand demand = demand_of(io, connection, body);
    struct lm_request *request = lm_admit_begin(io, connection, &demand, slot);
    request->last = !call->keep_alive;
    request->payload_bytes = (uint32_t)call->content_bytes;
    request->http.keep_alive = call->keep_alive;
    request->http.names_keep_alive = call->names_keep_alive;
    if (body->asked) request->http.asked = *body->asked;
    receive_body(io, connection, body, request);
    connection->in.discard_bytes = 0;
    lm_http_block_give(io, connection);
    if (call->chunked) {
        request->http.chunks = (struct lm_http_chunks){0};
        connection->in.read_state = LM_READ_PROLOGUE;
    }
    ask_for_more(io, connection);
    return true;
}

/* No slot is free: what has to be remembered goes to a block, and TCP holds the sender. */
static void wait_for_slot(struct lm_io *io, struct lm_connection *connection,
                          const struct body *body) {
    struct lm_http_block *block = lm_http_block(io, connection);
    bool keeps = body->asked && connection->in.call.json_bytes > 0;
    if (keeps && !block) {
        block = lm_http_refuse_for_block(io, connection);
        if (block) memcpy(block->bytes, body->text, (size_t)connection->in.call.json_bytes);
    }
    if (keeps && !block) {
        lm_http_refuse_status(io, connection, LM_STATUS_OVERLOADED,
                              "all slots are taken and too many requests wait for one");
        return;
    }
    lm_admit_wait(io, connection, body->asked ? body->asked->timeout_us : 0);
    if (keeps) block->asked = *body->asked;
}

static void start(struct lm_io *io, struct lm_connection *connection, const struct body *body) {
    struct lm_demand demand = demand_of(io, connection, body);
    struct lm_refusal refusal;
    size_t bytes = 0;
    if (!slot_bytes(io, connection, body, &bytes)) {
        snprintf(refusal.why, sizeof refusal.why,
                 "the request needs %zu bytes, more than any slot has: send binary tensors, fewer "
                 "rows, or raise server.arena_bytes",
                 bytes);
        lm_http_refuse_status(io, connection, LM_STATUS_TOO_LARGE, refusal.why);
        return;
    }
    uint64_t deadline_ns = lm_admit_deadline_ns(io, connection, demand.timeout_us);
    if (!lm_gate_in_time(io, &demand, deadline_ns, &refusal)) {
        lm_http_refuse_request(io, connection, &refusal);
        return;
    }
    if (!begin(io, connection, body, bytes)) wait_for_slot(io, connection, body);
}

/* ---- inference ---- */

/* A raw binary request: the whole body is the one input, one row of it. */
static bool ask_raw(const struct lm_model *model, uint64_t bytes, struct body *body,
                    struct lm_oip_request *asked, char *why, size_t why_bytes) {
    *asked = (struct lm_oip_request){.sizes = {.rows = 1}};
    if (model->free_count > 0 && !lm_model_row_of_bytes(model, bytes, &asked->sizes)) {
        snprintf(why, why_bytes,
                 "raw binary request: %llu bytes are no row of model '%s': its sizes must follow "
                 "from them ('%.64s' is free, of 1 to %u): send JSON before the bytes",
                 (unsigned long long)bytes, model->name, model->free_dims[0].name,
                 model->free_dims[0].max);
        return false;
    }
    if (model->input_count != 1) {
        snprintf(why, why_bytes, "a raw binary request is for models of one input, '%s' has %u",
                 model->name, model->input_count);
        return false;
    }
    body->encoding = lm_encoding_of_row(model, &asked->sizes, bytes);
    if (body->encoding == LM_ENCODING_COUNT) {
        char rows[LM_TEXT_BYTES_MAX / 4];
        lm_encoding_list_rows(model, &asked->sizes, rows, sizeof rows);
        snprintf(why, why_bytes,
                 "raw binary request: the body is input '%.64s': model '%.64s' takes %.100s, found "
                 "%llu: "
                 "send them with curl --data-binary @FILE",
                 model->inputs[0].name, model->name, rows, (unsigned long long)bytes);
        return false;
    }
    asked->blob_count = 1;
    asked->blob_bytes[0] = bytes;
    asked->requested_count = model->output_count;
    for (uint32_t o = 0; o < model->output_count; o++)
        asked->requested[o] =
            (struct lm_oip_requested_output){.output = (uint8_t)o, .binary = true};
    body->asked = asked;
    return true;
}

static void admit_infer(struct lm_io *io, struct lm_connection *connection) {
    struct lm_http_call *call = &connection->in.call;
    const struct lm_model *model = &io->models->models[call->model];
    struct lm_oip_request asked;
    struct lm_refusal refusal;
    struct body body = {.encoding = LM_ENCODING_JSON};
    if (call->json_bytes == LM_HTTP_JSON_BAD ||
        (!call->chunked && call->json_bytes > 0 &&
         (uint64_t)call->json_bytes > call->content_bytes)) {
        lm_http_refuse_status(io, connection, LM_STATUS_BAD_REQUEST,
                              "Inference-Header-Content-Length: expected one number of at most "
                              "Content-Length");
        return;
    }
    if (!lm_gate_enter(io, model, call->key, &refusal)) {
        lm_http_refuse_request(io, connection, &refusal);
        return;
    }
    bool has_blobs = call->json_bytes >= 0 && (uint64_t)call->json_bytes < call->content_bytes;
    if (!call->chunked && call->json_bytes == 0) {
        char why[LM_TEXT_BYTES_MAX];
        if (!ask_raw(model, call->content_bytes, &body, &asked, why, sizeof why)) {
            lm_http_refuse_status(io, connection, LM_STATUS_BAD_REQUEST, why);
            return;
        }
    } else if (has_blobs && call->json_bytes <= LM_HTTP_JSON_BYTES_MAX) {
        connection->in.read_state = LM_READ_PROLOGUE;
        ask_for_more(io, connection);
        return;
    }
    start(io, connection, &body);
}

void lm_http_admit_json(struct lm_io *io, struct lm_connection *connection, const char *text) {
    const struct lm_http_call *call = &connection->in.call;
    const struct lm_model *model = &io->models->models[call->model];
    struct lm_oip_request asked;
    char why[LM_TEXT_BYTES_MAX];
    enum lm_status status = lm_oip_read(io->http->parser, text, (size_t)call->json_bytes, model,
                                        &asked, why, sizeof why);
    uint64_t blobs = 0;
    for (uint32_t b = 0; status == LM_STATUS_OK && b < asked.blob_count; b++)
        blobs += asked.blob_bytes[b];
    if (status == LM_STATUS_OK && blobs != connection->in.discard_bytes) {
        status = LM_STATUS_BAD_REQUEST;
        snprintf(why, sizeof why,
                 "%s: expected %llu bytes of binary data after the JSON, found %llu",
                 blobs < connection->in.discard_bytes ? "unexpected additional input data"
                                                      : "missing input data",
                 (unsigned long long)blobs, (unsigned long long)connection->in.discard_bytes);
    }
    if (status != LM_STATUS_OK) {
        lm_http_refuse_status(io, connection, status, why);
        return;
    }
    struct body body = body_of(&asked, text);
    start(io, connection, &body);
}

void lm_http_admit_chunked(struct lm_io *io, struct lm_connection *connection,
                           struct lm_request *request) {
    struct lm_http_exchange *http = &request->http;
    request->payload_bytes = (uint32_t)http->text_bytes;
    if (http->json_bytes > (int64_t)http->text_bytes || http->json_bytes == 0) {
        /* The body is whole, so the connection can go on. */
        connection->in.receiving = LM_NO_SLOT;
        connection->in.call.chunked = false;
        lm_slots_release(io, request);
        lm_http_refuse_status(
            io, connection, LM_STATUS_BAD_REQUEST,
            "Inference-Header-Content-Length: expected at least 1 and at most the chunks' "
            "bytes; a raw binary request needs a Content-Length");
        return;
    }
    lm_submit(io, connection, request);
}

void lm_http_retry(struct lm_io *io, struct lm_connection *connection) {
    struct lm_http_call *call = &connection->in.call;
    struct lm_http_block *block = lm_http_block(io, connection);
    struct lm_oip_request asked;
    struct body body = {.encoding = LM_ENCODING_JSON};
    char unused[LM_TEXT_BYTES_MAX];
    size_t bytes = 0;
    if (block) {
        body = body_of(&block->asked, block->bytes);
    } else if (!call->chunked && call->json_bytes == 0) {
        ask_raw(&io->models->models[call->model], call->content_bytes, &body, &asked, unused,
                sizeof unused);
    }
    if (slot_bytes(io, connection, &body, &bytes)) begin(io, connection, &body, bytes);
}

/* ---- heads ---- */

/* What the head says of the body, before anything is done with it. false: answered. */
static bool check_body(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_http_head *head) {
    char why[LM_TEXT_BYTES_MAX];
    if (head->content_length > io->shared->config.max_request_bytes) {
        snprintf(why, sizeof why,
                 "body: expected at most %llu bytes (server.max_request_bytes), found %llu",
                 (unsigned long long)io->shared->config.max_request_bytes,
                 (unsigned long long)head->content_length);
        lm_http_refuse_close(io, connection, 413, why);
        return false;
    }
    struct lm_slice coding = head->content_encoding;
    if (coding.at && !lm_http_equals(coding.at, coding.bytes, "identity")) {
        lm_refusal_count(io, LM_STATUS_BAD_REQUEST, UINT32_MAX);
        lm_http_refuse_code(io, connection, 415, "Accept-Encoding: identity\r\n",
                            "Content-Encoding: bodies are taken uncompressed only");
        return false;
    }
    return true;
}

static bool find_model(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_http_match *match) {
    char why[LM_TEXT_BYTES_MAX];
    for (uint32_t m = 0; m < io->models->count; m++) {
        if (strcmp(io->models->models[m].name, match->name) != 0) continue;
        connection->in.call.model = (uint16_t)m;
        if (match->version == LM_HTTP_VERSION_ANY || match->version == 1) return true;
        snprintf(why, sizeof why, "Request for unknown model: '%s' version %u is not found",
                 match->name, match->version);
        lm_http_refuse_status(io, connection, LM_STATUS_UNKNOWN_MODEL, why);
        return false;
    }
    snprintf(why, sizeof why, "Request for unknown model: '%s' is not found", match->name);
    lm_http_refuse_status(io, connection, LM_STATUS_UNKNOWN_MODEL, why);
    return false;
}

/* Whether the route is about a model of this server, not about a region. */
static bool names_model(const struct lm_http_match *match) {
    bool is_region =
        match->route >= LM_ROUTE_SYSTEM_SHM_STATUS && match->route <= LM_ROUTE_CUDA_SHM_UNREGISTER;
    return match->name_bytes > 0 && !is_region;
}

static void refuse_route(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                         const struct lm_http_match *match) {
    char headers[64] = "";
    if (code == 405) snprintf(headers, sizeof headers, "Allow: %s\r\n", match->allow);
    lm_refusal_count(io, LM_STATUS_BAD_REQUEST, UINT32_MAX);
    lm_http_refuse_code(io, connection, code, headers,
                        code == 404 || code == 405 ? lm_http_reason(code) : match->why);
}

void lm_http_admit(struct lm_io *io, struct lm_connection *connection,
                   const struct lm_http_head *head) {
    struct lm_http_match match = {0};
    uint32_t found = (uint32_t)lm_http_find_route(head, &match);
    lm_add_single_writer_u64(&io->stats->io.requests, 1);
    lm_add_single_writer_u64(&io->stats->io.http_requests, 1);
    connection->in.call = (struct lm_http_call){
        .content_bytes = head->content_length,
        .json_bytes = head->json_bytes,
        .key = LM_NO_KEY,
        .model = LM_NO_MODEL,
        .route = (uint8_t)(found == 200 ? match.route : LM_ROUTE_NONE),
        .head_only = head->method == LM_HTTP_HEAD,
        .keep_alive = head->keep_alive,
        .names_keep_alive = head->keep_alive && head->minor == 0,
        .expects_continue = head->expect_continue,
        .chunked = head->chunked,
        .names_region = match.name_bytes > 0,
    };
    connection->in.discard_bytes = head->content_length;
    if (!check_body(io, connection, head)) return;
    if (found != 200) {
        refuse_route(io, connection, found, &match);
        return;
    }
    if (!lm_http_authorise(io, connection, head, match.host)) return;
    if (names_model(&match) && !find_model(io, connection, &match)) return;
    if (match.route == LM_ROUTE_INFER) {
        admit_infer(io, connection);
        return;
    }
    if (head->chunked) {
        connection->in.read_state = LM_READ_PROLOGUE;
        ask_for_more(io, connection);
        return;
    }
    lm_http_skip_body(io, connection);
    lm_http_answer_route(io, connection);
}
