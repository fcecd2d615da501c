/* http_head.c: see http_head.h. */
#include "dialects/http_head.h"

#include <stdio.h>
#include <string.h>

#include "dialects/http_access.h"
#include "dialects/http_admit.h"
#include "dialects/http_code.h"
#include "dialects/http_demand.h"
#include "dialects/http_errands.h"
#include "dialects/http_refuse.h"
#include "dialects/http_routes.h"
#include "dialects/http_shm.h"
#include "dialects/http_texts.h"
#include "flow/tracing.h"
#include "flow/traffic.h"
#include "wire/inflate.h"

/* Checks the body's length and coding, as the head gives them. false: the request is answered. */
static bool check_body(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_http_head *head) {
    char why[LM_TEXT_BYTES_MAX];
    if (head->content_length > io->shared->config.max_request_bytes &&
        head->content_length > lm_http_errand_bytes_max(io, connection->in.call.route)) {
        snprintf(why, sizeof why,
                 "body: expected at most %llu bytes (server.max_request_bytes), found %llu",
                 (unsigned long long)io->shared->config.max_request_bytes,
                 (unsigned long long)head->content_length);
        lm_http_refuse_close(io, connection, 413, why);
        return false;
    }
    const struct lm_slice coding = head->content_encoding;
    const struct lm_http_call *call = &connection->in.call;
    bool is_inference = lm_http_is_inference(call->route);
    if (call->coding == LM_CODING_UNKNOWN || (call->coding != LM_CODING_NONE && !is_inference)) {
        snprintf(why, sizeof why, "Content-Encoding: expected %s, found '%.*s'",
                 is_inference ? "gzip, deflate or identity" : "identity on this path",
                 (int)(coding.bytes < 64 ? coding.bytes : 64), coding.at);
        lm_refusal_count(io, LM_STATUS_BAD_REQUEST, UINT32_MAX);
        lm_http_refuse_code(io, connection, 415,
                            is_inference ? "Accept-Encoding: gzip, deflate, identity\r\n"
                                         : "Accept-Encoding: identity\r\n",
                            why);
        return false;
    }
    return true;
}

/* The versions of a model, for a client that asked for another one. */
static void list_versions(const struct lm_model_set *set, const char *base, char *out,
                          size_t bytes) {
    size_t used = 0;
    out[0] = '\0';
    for (const struct lm_model *model = lm_model_set_next(set, base, NULL); model && used < bytes;
         model = lm_model_set_next(set, base, model))
        used +=
            (size_t)snprintf(out + used, bytes - used, "%s%u", used ? ", " : "", model->version);
}

static bool find_model(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_http_match *match) {
    const struct lm_model_set *set = io->models;
    const bool any = match->version == LM_HTTP_VERSION_ANY;
    const struct lm_model *model = lm_model_set_version(set, match->name, any ? 0 : match->version);
    char why[LM_TEXT_BYTES_MAX], versions[LM_TEXT_BYTES_MAX / 4];
    if (match->version == 0) model = NULL; /* there is no such version */
    if (model && any && lm_http_is_inference(connection->in.call.route))
        model = lm_traffic_choose(io, set, model, connection->in.call.session);
    if (!model && any) model = lm_model_set_named(set, match->name); /* NAME:VERSION */
    if (model) {
        lm_http_take_model(connection, model);
        return true;
    }
    if (lm_http_demand_take(io, connection, match)) return false;
    list_versions(set, match->name, versions, sizeof versions);
    if (versions[0])
        snprintf(why, sizeof why,
                 "Request for unknown model: '%s' version %u is not at ready state; it has %s",
                 match->name, match->version, versions);
    else
        snprintf(why, sizeof why, "Request for unknown model: '%s' is not found", match->name);
    lm_http_refuse_status(io, connection, LM_STATUS_UNKNOWN_MODEL, why);
    return false;
}

/* A request that names no model is for the only one, of whose versions for the highest. */
static bool choose_only_model(struct lm_io *io, struct lm_connection *connection) {
    const struct lm_model_set *set = io->models;
    const char *base = set->count ? set->models[0]->base : "";
    uint32_t same = 0;
    for (const struct lm_model *one = lm_model_set_next(set, base, NULL); one;
         one = lm_model_set_next(set, base, one))
        same++;
    if (same > 0 && same == set->count) {
        const struct lm_model *model = lm_model_set_version(set, base, 0);
        lm_http_take_model(connection,
                           lm_traffic_choose(io, set, model, connection->in.call.session));
        return true;
    }
    if (set->count == 0) {
        lm_http_refuse_status(io, connection, LM_STATUS_UNKNOWN_MODEL, "the server has no models");
        return false;
    }
    lm_http_refuse_status(io, connection, LM_STATUS_BAD_REQUEST,
                          "the server has several models: expected /invocations?model=NAME");
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
                        code == 405 ? lm_http_reason(code) : match->why);
}

/* RFC 9218: 3 is as if nothing were said, less is more urgent. */
static uint8_t turn_of(uint8_t urgency) {
    const uint8_t usual = 1 + 3;
    return urgency == 0 || urgency == usual ? LM_TURN_BY_NUMBER
           : urgency < usual                ? LM_TURN_FIRST
                                            : LM_TURN_BULK;
}

/* Its client is to use another connection, as it hears from the answer. Streams end with theirs. */
static bool is_to_go_elsewhere(const struct lm_io *io, const struct lm_connection *connection) {
    return lm_shared_is_leaving(io->shared) ||
           (!lm_connection_is_stream(connection) && lm_connection_is_old(io, connection));
}

static void keep_trace(struct lm_io *io, const struct lm_connection *connection,
                       const struct lm_http_head *head) {
    const struct lm_tracing_head said = {head->traceparent, head->tracestate, head->request_id};
    lm_tracing_keep(io, connection, &said);
}

void lm_http_take_head(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_http_head *head) {
    struct lm_http_match match = {0};
    uint32_t found = (uint32_t)lm_http_find_route(head, &match);
    lm_http_count(io, connection);
    const bool is_rpc = lm_io_dialect(io, connection)->is_rpc;
    if (is_rpc && match.route == LM_ROUTE_INFER) match.route = LM_ROUTE_GRPC_INFER;
    connection->in.call = (struct lm_http_call){
        .content_bytes = head->content_length,
        .json_bytes = head->json_bytes,
        .timeout_us = head->timeout_us,
        .key = LM_NO_KEY,
        .model = LM_NO_MODEL,
        .route = (uint8_t)(found == 200 ? match.route : LM_ROUTE_NONE),
        .head_only = head->method == LM_HTTP_HEAD,
        .keep_alive = head->keep_alive && !is_to_go_elsewhere(io, connection),
        .expects_continue = head->expect_continue,
        .chunked = head->chunked,
        .coding = (uint8_t)lm_coding_find(head->content_encoding.at, head->content_encoding.bytes),
        .session = lm_traffic_session(head->session.at, head->session.bytes),
        .load = (uint8_t)lm_load_form_find(head->load_format),
        .top = match.top,
        .turn = turn_of(head->urgency),
        .any_version = match.version == LM_HTTP_VERSION_ANY,
        .names_region = match.name_bytes > 0,
        .is_forwarded = head->is_forwarded,
        .from_page = lm_http_is_from_page(head),
        .is_old = head->minor == 0,
    };
    connection->in.discard_bytes = head->content_length;
    if (!is_rpc && lm_coding_is_message(connection->in.call.coding))
        connection->in.call.coding = LM_CODING_UNKNOWN;
    if (!check_body(io, connection, head)) return;
    if (found != 200) {
        refuse_route(io, connection, found, &match);
        return;
    }
    if (!lm_http_authorise(io, connection, head, match.host)) return;
    if (lm_http_errand_take(io, connection, &match)) return;
    const bool is_inference = lm_http_is_inference(match.route);
    if (is_inference) keep_trace(io, connection, head);
    if (names_model(&match) && !find_model(io, connection, &match)) return;
    if (match.route == LM_ROUTE_INVOCATIONS && !match.name_bytes &&
        !choose_only_model(io, connection))
        return;
    if (lm_http_body_names_model(match.route) && !lm_http_texts_begin(io, connection)) return;
    if (is_inference) {
        lm_http_admit_infer(io, connection, false);
        return;
    }
    if (lm_http_shm_take(io, connection, &match)) return;
    if (head->chunked) {
        connection->in.read_state = LM_READ_PROLOGUE;
        lm_http_ask_for_more(io, connection);
        return;
    }
    lm_http_skip_body(io, connection);
    lm_http_answer_route(io, connection);
}
