/* http_admit.c: see http_admit.h. */
#include "dialects/http_admit.h"

#include <stdio.h>
#include <string.h>

#include "dialects/http_access.h"
#include "dialects/http_block.h"
#include "dialects/http_raw.h"
#include "dialects/http_refuse.h"
#include "dialects/http_reply.h"
#include "dialects/http_room.h"
#include "dialects/http_texts.h"
#include "dialects/upstream.h"
#include "flow/admit.h"
#include "flow/gate.h"
#include "flow/reply.h"
#include "flow/slot_wait.h"
#include "flow/slots.h"
#include "flow/submit.h"
#include "formats/text_slots.h"
#include "wire/inflate.h"
#include "work/carrier.h"
#include "work/json_body.h"
#include "work/output_view.h"
#include "work/shm_tensors.h"

/* What is known of a body when a slot is looked for. */
struct body {
    const struct lm_oip_request *asked; /* NULL: the JSON is not read yet */
    const char *text;                   /* the JSON before the blobs, already received */
    uint8_t encoding;
};

/* Whether the worker reads the body's JSON: for values, or to lay optional inputs out. */
static bool needs_text(const struct lm_oip_request *asked) {
    return asked->value_count > 0 || asked->optionals;
}

static struct body body_of(const struct lm_model *model, const struct lm_oip_request *asked,
                           const char *text) {
    uint8_t blobs =
        asked->pictures ? (uint8_t)LM_ENCODING_IMAGE : lm_encoding_for(model, LM_ENCODING_TENSORS);
    return (struct body){.asked = asked,
                         .text = text,
                         .encoding = needs_text(asked) ? (uint8_t)LM_ENCODING_JSON : blobs};
}

/* ---- setting a body up ---- */

void lm_http_ask_for_more(struct lm_io *io, struct lm_connection *connection) {
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (!connection->in.call.expects_continue) return;
    connection->in.call.expects_continue = false;
    lm_reply_bytes(io, connection, line, sizeof line - 1, NULL, 0, true);
}

/* One part per blob, in the order of the blobs. */
static void plan_blobs(struct lm_request *request, const struct lm_oip_request *asked) {
    if (asked->pictures) { /* the one input */
        lm_encodings[request->encoding].receive(request, asked->blob_bytes[0]);
        return;
    }
    for (uint32_t b = 0; b < asked->blob_count; b++) {
        uint32_t input = asked->blob_inputs[b];
        if (lm_is_string(&request->model->inputs[input])) {
            request->layout.inputs[input] = lm_slot_alloc(request->slot, asked->blob_bytes[b]);
            request->layout.string_bytes[input] = asked->blob_bytes[b];
        }
        request->parts[b] = (struct iovec){request->layout.inputs[input], asked->blob_bytes[b]};
    }
    request->part_count = asked->blob_count;
}

/* The encoding of a body of which nothing is known but its route. */
static uint8_t unread_encoding(const struct lm_http_call *call, const struct lm_model *model) {
    const bool is_text = lm_http_is_texts(call->route) || lm_model_is_elsewhere(model);
    return is_text                        ? LM_ENCODING_TEXTS
           : lm_http_is_rows(call->route) ? LM_ENCODING_ROWS
                                          : LM_ENCODING_JSON;
}

/* The shorter of what the head and the body say, in microseconds; 0: none. */
static uint64_t timeout_us(const struct lm_connection *connection, const struct body *body) {
    const uint64_t head = connection->in.call.timeout_us;
    const uint64_t said = body->asked ? body->asked->timeout_us : 0;
    return said && (said < head || !head) ? said : head;
}

static struct lm_demand demand_of(const struct lm_io *io, const struct lm_connection *connection,
                                  const struct body *body) {
    const struct lm_oip_request *asked = body->asked;
    uint64_t bytes = asked && asked->pictures ? asked->blob_bytes[0] : 0;
    return (struct lm_demand){.model = lm_model_set_find(io->models, connection->in.call.model),
                              .sizes = asked ? asked->sizes : (struct lm_sizes){.rows = 1},
                              .pixels = bytes * LM_JPEG_BYTE_PIXELS,
                              .bytes = connection->in.call.content_bytes,
                              .timeout_us = timeout_us(connection, body),
                              .encoding = body->encoding,
                              .is_unread = lm_encoding_is_text(body->encoding)};
}

/* The slot a request needs; false when there can be none so large. */
static bool slot_bytes(const struct lm_io *io, const struct lm_connection *connection,
                       const struct body *body, size_t *bytes_out) {
    struct lm_demand demand = demand_of(io, connection, body);
    const bool is_coded = connection->in.call.coding != LM_CODING_NONE;
    size_t body_bytes = is_coded
                            ? lm_http_inflated_room(io, connection, demand.model) + LM_OIP_PADDING
                            : lm_http_text_room(io, connection);
    if (!lm_encodings[demand.encoding].slot_bytes(demand.model, &demand.sizes, body_bytes,
                                                  bytes_out))
        return false;
    if (io->upstream && !lm_model_is_elsewhere(demand.model) &&
        lm_http_body_names_model(connection->in.call.route))
        *bytes_out += LM_UPSTREAM_SLOT_BYTES; /* the model that it names may be an upstream's */
    if (is_coded) {
        const bool is_twice = lm_coding_of_message(connection->in.call.coding) != LM_CODING_NONE;
        *bytes_out += 2 * LM_SLOT_ALIGN + lm_http_text_room(io, connection) + LM_OIP_PADDING;
        if (is_twice) *bytes_out += LM_SLOT_ALIGN + body_bytes; /* the message, then its tensors */
    }
    if (!demand.is_unread) {
        *bytes_out += lm_http_reply_room(demand.model, body->asked);
        if (!lm_shm_tensors_add_room(demand.model, body->asked, bytes_out)) {
            *bytes_out = SIZE_MAX; /* for the sentence */
            return false;
        }
    } else if (demand.model->input_plan.has_images) { /* a picture is answered with classes */
        *bytes_out +=
            lm_classes_top(connection->in.call.top) * lm_model_class_text_bytes(demand.model);
    }
    return lm_arena_fits(&io->arena, *bytes_out);
}

/* Says where the body goes, of which the JSON before the blobs may be here already. */
static void receive_body(const struct lm_io *io, const struct lm_connection *connection,
                         const struct body *body, struct lm_request *request) {
    const struct lm_http_call *call = &connection->in.call;
    if (request->is_unread) {
        struct lm_body *text = &request->body;
        text->coding = call->coding;
        if (call->coding != LM_CODING_NONE) {
            request->carrier = LM_CARRIER_CODED;
            text->inflated_room = lm_http_inflated_room(io, connection, request->model);
        }
        size_t known = body->text ? (size_t)call->json_bytes : 0;
        lm_json_body_receive(request, lm_http_text_room(io, connection), body->text, known);
        text->json_bytes = call->json_bytes;
        request->parts[0] = (struct iovec){text->text + known, connection->in.discard_bytes};
        request->part_count = 1;
        if (!call->chunked) text->bytes += connection->in.discard_bytes;
        return;
    }
    lm_model_layout(request->model, request->slot, request->encoding, &request->sizes,
                    &request->layout);
    if (call->json_bytes == 0) {
        /* The body is the one input. */
        lm_encodings[request->encoding].receive(request, (size_t)call->content_bytes);
        if (request->model->string_inputs > 0) lm_encoding_receive_one(request);
    } else {
        plan_blobs(request, body->asked);
        lm_shm_tensors_place(request, body->asked);
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
        lm_http_ask_for_more(io, connection);
        return false;
    }
    struct lm_demand demand = demand_of(io, connection, body);
    struct lm_request *request = lm_admit_begin(io, connection, &demand, slot);
    request->last = !call->keep_alive;
    request->payload_bytes = (uint32_t)call->content_bytes;
    request->wish.top = call->top;
    request->wish.route = call->route;
    request->wish.load = call->load;
    if (request->turn_wanted != LM_TURN_BOUND) request->turn_wanted = call->turn;
    request->is_timed = call->timeout_us > 0;
    if (body->asked) lm_oip_request_copy(request->asked, body->asked);
    if (body->asked && body->asked->place_count > 0) {
        request->carrier = LM_CARRIER_SHM;
        request->holds_shm = lm_oip_hold_regions(io->shared->shm, request->asked);
    }
    receive_body(io, connection, body, request);
    connection->in.discard_bytes = 0;
    lm_http_block_give(io, connection);
    if (call->chunked) {
        call->chunks = (struct lm_http_chunks){0};
        connection->in.read_state = LM_READ_PROLOGUE;
    }
    lm_http_ask_for_more(io, connection);
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
    lm_admit_wait(io, connection, timeout_us(connection, body));
    if (!keeps) return;
    lm_oip_request_hold(&block->asked, &block->lists);
    lm_oip_request_copy(&block->asked, body->asked);
    block->holds_shm = lm_oip_hold_regions(io->shared->shm, &block->asked);
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
    /* Texts may go to another model in time, which their body says more of. */
    const bool is_open = lm_http_body_names_model(connection->in.call.route) &&
                         lm_fallbacks_are_any(&io->shared->fallbacks);
    if (!is_open && !lm_model_is_elsewhere(demand.model) &&
        !lm_gate_in_time(io, &demand, deadline_ns, &refusal)) {
        lm_http_refuse_request(io, connection, &refusal);
        return;
    }
    if (!begin(io, connection, body, bytes)) wait_for_slot(io, connection, body);
}

/* ---- inference ---- */

static bool ask_raw(const struct lm_model *model, uint64_t bytes, struct body *body,
                    struct lm_oip_request *asked, char *why, size_t why_bytes) {
    body->asked = asked;
    return lm_http_ask_raw(model, bytes, asked, &body->encoding, why, why_bytes);
}

/* Whether an upstream's model may be asked by this route and coding. false: the request is refused.
 */
static bool check_elsewhere(struct lm_io *io, struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    if (!lm_http_may_go_elsewhere(call->route)) {
        lm_http_refuse_status(io, connection, LM_STATUS_BAD_REQUEST,
                              "the model is served by an upstream: expected one of OpenAI's paths, "
                              "/v1/rerank or /v2/models/NAME/infer over HTTP");
        return false;
    }
    if (call->coding == LM_CODING_NONE) return true;
    lm_refusal_count(io, LM_STATUS_BAD_REQUEST, call->model);
    lm_http_refuse_code(io, connection, 415, "Accept-Encoding: identity\r\n",
                        "Content-Encoding: expected identity for a model of an upstream");
    return false;
}

/* Whether what the head says of the body can be. false: the request is refused. */
static bool check_form(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_model *model, const struct body *body) {
    const struct lm_http_call *call = &connection->in.call;
    const bool is_coded = call->coding != LM_CODING_NONE;
    const char *why = NULL;
    if (lm_model_is_elsewhere(model) && !check_elsewhere(io, connection)) return false;
    if (body->encoding != LM_ENCODING_JSON && call->route != LM_ROUTE_INFER &&
        call->json_bytes != LM_HTTP_JSON_ABSENT)
        why = "Inference-Header-Content-Length: rows and texts are JSON alone: binary tensors are "
              "for /v2/models/NAME/infer";
    else if (is_coded && call->json_bytes == 0)
        why = "Content-Encoding: a raw binary request is taken as it is";
    else if (call->json_bytes == LM_HTTP_JSON_BAD ||
             (!call->chunked && !is_coded && call->json_bytes > 0 &&
              (uint64_t)call->json_bytes > call->content_bytes))
        why = "Inference-Header-Content-Length: expected one number of at most Content-Length";
    if (why) lm_http_refuse_status(io, connection, LM_STATUS_BAD_REQUEST, why);
    return !why;
}

/* `is_in`: it was let in when its model was not there. */
static bool enter(struct lm_io *io, const struct lm_connection *connection,
                  const struct lm_model *model, bool is_in, struct lm_refusal *refusal) {
    const uint32_t key = lm_http_key(io, connection);
    if (is_in) return lm_gate_enter_model(io, model, key, refusal);
    const bool is_open = lm_http_body_names_model(connection->in.call.route); /* http_texts.h */
    return lm_gate_enter(io, is_open ? NULL : model, key, refusal);
}

void lm_http_admit_infer(struct lm_io *io, struct lm_connection *connection, bool is_in) {
    struct lm_http_call *call = &connection->in.call;
    const struct lm_model *model = lm_model_set_find(io->models, call->model);
    struct lm_oip_request asked;
    struct lm_oip_lists lists;
    struct lm_refusal refusal;
    struct body body = {.encoding = unread_encoding(call, model)};
    lm_oip_request_hold(&asked, &lists);
    const bool is_coded = call->coding != LM_CODING_NONE;
    if (!check_form(io, connection, model, &body)) return;
    if (!enter(io, connection, model, is_in, &refusal)) {
        lm_http_refuse_request(io, connection, &refusal);
        return;
    }
    if (is_coded || lm_model_is_elsewhere(model)) { /* who runs it sees what it asks */
        start(io, connection, &body);
        return;
    }
    /* Which slot a request needs whose tensors are in shared memory, its JSON alone says. */
    bool may_share = io->shared->shm && lm_http_is_tensors(call->route) && !call->chunked &&
                     call->content_bytes > 0 && call->content_bytes <= LM_HTTP_JSON_BYTES_MAX;
    if (may_share && call->json_bytes < 0) call->json_bytes = (int64_t)call->content_bytes;
    bool is_whole = may_share && (uint64_t)call->json_bytes == call->content_bytes;
    bool has_blobs = call->json_bytes >= 0 && (uint64_t)call->json_bytes < call->content_bytes;
    if (!call->chunked && call->json_bytes == 0) {
        char why[LM_TEXT_BYTES_MAX];
        if (!ask_raw(model, call->content_bytes, &body, &asked, why, sizeof why)) {
            lm_http_refuse_status(io, connection, LM_STATUS_BAD_REQUEST, why);
            return;
        }
    } else if (is_whole || (has_blobs && call->json_bytes <= LM_HTTP_JSON_BYTES_MAX)) {
        connection->in.read_state = LM_READ_PROLOGUE;
        lm_http_ask_for_more(io, connection);
        return;
    }
    start(io, connection, &body);
}

/* false: the model is another one than when the head came, or none, and the request is refused. */
static bool is_served(struct lm_io *io, struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    const char *changed = lm_model_set_changed(io->models, call->model, call->signature);
    if (!changed) return true;
    if (connection->in.read_state == LM_READ_WAIT) {
        lm_slot_wait_turn_away(io, connection, LM_STATUS_UNKNOWN_MODEL, changed);
    } else {
        lm_http_refuse_status(io, connection, LM_STATUS_UNKNOWN_MODEL, changed);
    }
    return false;
}

void lm_http_admit_json(struct lm_io *io, struct lm_connection *connection, const char *text) {
    if (!is_served(io, connection)) return;
    const struct lm_http_call *call = &connection->in.call;
    const struct lm_model *model = lm_model_set_find(io->models, call->model);
    struct lm_oip_request asked;
    struct lm_oip_lists lists;
    char why[LM_TEXT_BYTES_MAX];
    lm_oip_request_hold(&asked, &lists);
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
    /* The worker reads a body of JSON, or places in shared memory; not both. */
    if (status == LM_STATUS_OK && asked.place_count > 0 && needs_text(&asked)) {
        status = LM_STATUS_BAD_REQUEST;
        snprintf(why, sizeof why, "inputs: %s beside shared memory: expected binary data%s",
                 asked.value_count > 0 ? "data" : "an optional input",
                 asked.value_count > 0 ? ", or shared memory alone" : " alone");
    }
    if (status != LM_STATUS_OK) {
        lm_http_refuse_status(io, connection, status, why);
        return;
    }
    if (asked.place_count > 0 && !lm_http_is_local(connection)) {
        lm_refusal_count(io, LM_STATUS_UNAUTHORISED, call->model);
        lm_http_refuse_code(io, connection, 403, NULL, "shared memory is for this machine alone");
        return;
    }
    struct body body = body_of(model, &asked, text);
    start(io, connection, &body);
}

void lm_http_retry(struct lm_io *io, struct lm_connection *connection) {
    if (!is_served(io, connection)) return;
    struct lm_http_call *call = &connection->in.call;
    struct lm_http_block *block = lm_http_block(io, connection);
    const struct lm_model *model = lm_model_set_find(io->models, call->model);
    struct lm_oip_request asked;
    struct lm_oip_lists lists;
    struct body body = {.encoding = unread_encoding(call, model)};
    char unused[LM_TEXT_BYTES_MAX];
    size_t bytes = 0;
    lm_oip_request_hold(&asked, &lists);
    if (block)
        body = body_of(model, &block->asked, block->bytes);
    else if (!call->chunked && call->json_bytes == 0)
        ask_raw(model, call->content_bytes, &body, &asked, unused, sizeof unused);
    if (!slot_bytes(io, connection, &body, &bytes))
        lm_slot_wait_outgrown(io, connection, bytes);
    else
        begin(io, connection, &body, bytes);
}
