/* http_texts.c: see http_texts.h. */
#include "dialects/http_texts.h"

#include <stdio.h>
#include <string.h>

#include "dialects/http_access.h"
#include "dialects/http_refuse.h"
#include "dialects/upstream_fallback.h"
#include "flow/carrier.h"
#include "flow/gate.h"
#include "flow/slots.h"
#include "flow/traffic.h"
#include "formats/texts_find.h"
#include "formats/texts_kinds.h"
#include "formats/texts_request.h"
#include "models/runner.h"
#include "models/text_model.h"

/* Of a path's models the one of this name, of whose versions the highest; `name` NULL: the first.
 * `count_out`: how many there are. */
static const struct lm_model *find(const struct lm_model_set *set, uint8_t route, const char *name,
                                   size_t bytes, uint32_t *count_out) {
    const struct lm_model *found = NULL;
    *count_out = 0;
    for (uint32_t m = 0; m < set->called_inside_count; m++) {
        const struct lm_model *model = set->called_inside[m];
        if (!lm_texts_fit(model, route)) continue;
        ++*count_out;
        const bool is_asked = name ? lm_texts_is_named(model, name, bytes)
                                   : !found || strcmp(found->base, model->base) == 0;
        if (is_asked && (!found || model->version > found->version)) found = model;
    }
    return found;
}

bool lm_http_texts_begin(struct lm_io *io, struct lm_connection *connection) {
    uint32_t count;
    const struct lm_model *model = find(io->models, connection->in.call.route, NULL, 0, &count);
    if (model) {
        lm_http_take_model(connection, model);
        if (connection->in.call.route == LM_ROUTE_TEXTS)
            connection->in.call.route = lm_texts_kind_of(model)->main_route;
        return true;
    }
    const bool is_upstreams = lm_http_is_upstreams(connection->in.call.route);
    lm_http_refuse_status(io, connection, LM_STATUS_UNKNOWN_MODEL,
                          is_upstreams
                              ? "the server has no model of an upstream, which this path is for"
                              : "the server has no model of texts that this path is for");
    return false;
}

/* The connection goes on: its body is whole. */
static bool refuse(struct lm_io *io, struct lm_connection *connection, struct lm_request *request,
                   const struct lm_refusal *refusal) {
    connection->in.receiving = LM_NO_SLOT;
    connection->in.call.chunked = false;
    lm_slots_release(io, request);
    lm_http_refuse_request(io, connection, refusal);
    return false;
}

/* Reads what an upstream has to be told. false: the body is none of OpenAI's, and is refused. */
static bool read_asked(struct lm_io *io, struct lm_connection *connection,
                       struct lm_request *request, struct lm_openai_request *asked) {
    struct lm_refusal refusal = {.retry_after_s = 1};
    refusal.status = lm_openai_read(io->upstream->parser, request->body.text, request->body.bytes,
                                    asked, refusal.why, sizeof refusal.why);
    return refusal.status == LM_STATUS_OK || refuse(io, connection, request, &refusal);
}

/* The name in the body; NULL: there is none, or no need of it. */
static const char *find_name(const struct lm_request *request, uint32_t count, size_t *bytes_out) {
    /* Of a compressed body its worker compares the name. */
    if (count < 2 || lm_carrier_of(request)->is_coded) return NULL;
    return lm_texts_find_model(request->body.text, request->body.bytes, bytes_out);
}

/* Whether the request's model takes it now. */
static bool enter(struct lm_io *io, const struct lm_request *request, uint32_t key,
                  struct lm_refusal *refusal) {
    const struct lm_demand demand = {.model = request->model,
                                     .sizes = request->sizes,
                                     .bytes = request->payload_bytes,
                                     .encoding = request->encoding,
                                     .is_unread = true};
    /* Else its head was let in in time. */
    const bool is_late = !lm_model_is_elsewhere(request->model) &&
                         lm_fallbacks_are_any(&io->shared->fallbacks) &&
                         !lm_gate_in_time(io, &demand, request->deadline_ns, refusal);
    return !is_late && lm_gate_enter_model(io, request->model, key, refusal);
}

/* Of a name without a version the one whose turn it is. */
static void choose_version(struct lm_io *io, struct lm_connection *connection,
                           struct lm_request *request, const char *name, size_t bytes) {
    const struct lm_http_call *call = &connection->in.call;
    const struct lm_model *model =
        name && memchr(name, ':', bytes)
            ? request->model
            : lm_traffic_choose(io, request->models, request->model, call->session);
    if (model == request->model || !lm_texts_fit(model, call->route)) return;
    lm_http_take_model(connection, model);
    request->model = model;
}

bool lm_http_texts_received(struct lm_io *io, struct lm_connection *connection,
                            struct lm_request *request, struct lm_openai_request *asked) {
    const struct lm_http_call *call = &connection->in.call;
    const struct lm_model_set *set = request->models;
    struct lm_refusal refusal = {.status = LM_STATUS_UNKNOWN_MODEL};
    size_t bytes = 0;
    uint32_t count = 0;
    const struct lm_model *first = find(set, call->route, NULL, 0, &count);
    bool is_read = lm_http_is_upstreams(call->route) || (first && lm_model_is_elsewhere(first));
    if (is_read && !read_asked(io, connection, request, asked)) return false;
    const char *name = is_read ? asked->model : find_name(request, count, &bytes);
    if (is_read) bytes = asked->model_bytes;
    if (name) {
        const struct lm_model *model = find(set, call->route, name, bytes, &count);
        for (uint32_t m = 0; !model && m < set->count; m++) /* its worker says what it is for */
            if (lm_texts_is_named(set->models[m], name, bytes)) model = set->models[m];
        snprintf(refusal.why, sizeof refusal.why,
                 "model '%.*s' is not found: GET /v1/models lists those that are",
                 (int)(bytes < 64 ? bytes : 64), name);
        if (!model) return refuse(io, connection, request, &refusal);
        if (lm_http_is_upstreams(call->route) && !lm_model_is_elsewhere(model)) {
            snprintf(refusal.why, sizeof refusal.why,
                     "model '%s' is served here, and this path is for models of upstreams",
                     model->name);
            return refuse(io, connection, request, &refusal);
        }
        lm_http_take_model(connection, model);
        request->model = model;
    }
    choose_version(io, connection, request, name, bytes);
    if (lm_model_is_elsewhere(request->model) && !is_read &&
        !read_asked(io, connection, request, asked))
        return false;
    const uint32_t key = lm_http_key(io, connection);
    if (!lm_gate_allows(io, key, request->model)) {
        refusal.status = LM_STATUS_UNAUTHORISED;
        snprintf(refusal.why, sizeof refusal.why, "this key may not use model '%s'",
                 request->model->name);
        return refuse(io, connection, request, &refusal);
    }
    if (enter(io, request, key, &refusal)) return true;
    /* Its own model is too busy or too slow: an upstream may answer in time. */
    const bool is_busy =
        refusal.status == LM_STATUS_OVERLOADED || refusal.status == LM_STATUS_DEADLINE;
    const struct lm_model *other = is_busy && !lm_model_is_elsewhere(request->model)
                                       ? lm_upstream_spill(io, request, asked)
                                       : NULL;
    if (!other) return refuse(io, connection, request, &refusal);
    lm_http_take_model(connection, other);
    request->model = other;
    return true;
}

bool lm_http_texts_reserve(struct lm_io *io, struct lm_connection *connection,
                           struct lm_request *request) {
    struct lm_refusal refusal;
    return !request->model->text ||
           lm_gate_reserve(io, request, lm_gate_most_tokens(request), &refusal) ||
           refuse(io, connection, request, &refusal);
}
