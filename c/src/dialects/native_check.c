/* native_check.c: see native_check.h. */
#include "dialects/native_check.h"

#include <stdio.h>

#include "dialects/native_header.h"
#include "work/region_tensors.h"

static uint8_t encoding_of(const struct lm_io *io, const struct lm_native_request *request) {
    return lm_encoding_for(lm_model_set_find(io->models, request->model), request->encoding);
}

static bool slot_bytes(const struct lm_io *io, const struct lm_connection *connection,
                       const struct lm_native_request *request, size_t *bytes_out) {
    const struct lm_model *model = lm_model_set_find(io->models, request->model);
    const struct lm_sizes sizes = lm_native_sizes(connection, request);
    uint8_t encoding = encoding_of(io, request);
    if (request->flags & LM_FLAG_REGION)
        return lm_region_slot_bytes(model, encoding, &sizes, bytes_out);
    return lm_encodings[encoding].slot_bytes(model, &sizes, request->payload_bytes, bytes_out);
}

bool lm_native_fits(const struct lm_io *io, const struct lm_connection *connection,
                    const struct lm_native_request *request, size_t *bytes_out) {
    return slot_bytes(io, connection, request, bytes_out) && lm_arena_fits(&io->arena, *bytes_out);
}

/* A request whose tensors are in the connection's region: its body says where. */
static enum lm_status check_spans(const struct lm_io *io, const struct lm_connection *connection,
                                  const struct lm_native_request *request, size_t before, char *why,
                                  size_t why_bytes) {
    const struct lm_model *model = lm_model_set_find(io->models, request->model);
    uint8_t encoding = encoding_of(io, request);
    uint32_t count = lm_region_span_count(model, encoding);
    const char *not_regions = lm_runner_of(model)->not_regions;
    size_t expected = before + count * sizeof(struct lm_span);
    if (connection->region == LM_NO_REGION) {
        snprintf(why, why_bytes,
                 "flags (byte 28): bit 2 names a region, and this connection has handed none over "
                 "(kind 4)");
    } else if (count == 0) {
        snprintf(why, why_bytes, "flags (byte 28): model '%s' %s: send it tensors without bit 2",
                 model->name, not_regions ? not_regions : "has strings, which are not in a region");
    } else if (request->payload_bytes != expected) {
        snprintf(why, why_bytes,
                 "payload: model '%s' takes %zu bytes for the places of %u tensors in the region, "
                 "found %u",
                 model->name, expected, count, request->payload_bytes);
    } else {
        return LM_STATUS_OK;
    }
    return LM_STATUS_BAD_REQUEST;
}

/* Whether a request has the bytes that its sizes need. */
static enum lm_status check_body(const struct lm_io *io, const struct lm_connection *connection,
                                 const struct lm_native_request *request, size_t before, char *why,
                                 size_t why_bytes) {
    const struct lm_model *model = lm_model_set_find(io->models, request->model);
    const struct lm_encoding *encoding = &lm_encodings[encoding_of(io, request)];
    const struct lm_sizes sizes = lm_native_sizes(connection, request);
    size_t expected = 0;
    if (request->flags & LM_FLAG_REGION)
        return check_spans(io, connection, request, before, why, why_bytes);
    if (encoding->body_bytes(model, &sizes, &expected) &&
        (encoding->body_varies ? expected + before <= request->payload_bytes
                               : expected + before == request->payload_bytes))
        return LM_STATUS_OK;
    snprintf(why, why_bytes, "payload: model '%s' takes %s%zu bytes for %u row(s) as %s, found %u",
             model->name, encoding->body_varies ? "at least " : "", expected + before,
             request->rows, encoding->name, request->payload_bytes);
    return LM_STATUS_BAD_REQUEST;
}

/* The same, and whether a slot has room for them. */
static enum lm_status check_sizes(const struct lm_io *io, const struct lm_connection *connection,
                                  const struct lm_native_request *request, char *why,
                                  size_t why_bytes) {
    const struct lm_model *model = lm_model_set_find(io->models, request->model);
    size_t needed = 0, before = lm_native_credential_bytes(request->flags) +
                                lm_native_shape_bytes(connection, model, request->flags);
    if (model->free_count > 0 && !(request->flags & LM_FLAG_SHAPES)) {
        snprintf(why, why_bytes,
                 "flags (byte 28): model '%s' has free dimensions ('%.64s' is one): expected a "
                 "shape block (bit 1), found 0x%04x",
                 model->name, model->free_dims[0].name, request->flags);
        return LM_STATUS_BAD_REQUEST;
    }
    if (request->payload_bytes < before) {
        snprintf(why, why_bytes,
                 "payload: expected at least %zu bytes for credential and shape block, found %u",
                 before, request->payload_bytes);
        return LM_STATUS_BAD_REQUEST;
    }
    enum lm_status status = check_body(io, connection, request, before, why, why_bytes);
    if (status != LM_STATUS_OK) return status;
    if (!lm_native_fits(io, connection, request, &needed)) {
        snprintf(why, why_bytes,
                 "the request needs %zu bytes, more than any slot has: send fewer or shorter rows, "
                 "or raise server.arena_bytes",
                 needed);
        return LM_STATUS_TOO_LARGE;
    }
    return LM_STATUS_OK;
}

enum lm_status lm_native_check(const struct lm_io *io, const struct lm_connection *connection,
                               const struct lm_native_request *request, char *why,
                               size_t why_bytes) {
    const struct lm_shared *shared = io->shared;
    if (request->payload_bytes > shared->config.max_request_bytes) {
        snprintf(why, why_bytes,
                 "payload: expected at most %llu bytes (server.max_request_bytes), found %u",
                 (unsigned long long)shared->config.max_request_bytes, request->payload_bytes);
        return LM_STATUS_TOO_LARGE;
    }
    if (!lm_model_set_find(io->models, request->model)) {
        const struct lm_model_set *set = io->models;
        uint32_t last = 0;
        for (uint32_t m = 0; m < set->count; m++)
            if (set->models[m]->number > last) last = set->models[m]->number;
        if (set->count == 0) {
            snprintf(why, why_bytes, "model index %u: the server has no models", request->number);
        } else if (request->number <= last) {
            snprintf(why, why_bytes, "model index %u: the model was unloaded (see describe)",
                     request->number);
        } else {
            snprintf(why, why_bytes, "model index: expected 0 to %u (see describe), found %u", last,
                     request->number);
        }
        return LM_STATUS_UNKNOWN_MODEL;
    }
    const struct lm_model *model = lm_model_set_find(io->models, request->model);
    const struct lm_encoding *encoding = &lm_encodings[request->encoding];
    if (lm_model_is_elsewhere(model)) {
        snprintf(why, why_bytes, "model '%s' is served by an upstream: ask for it over HTTP",
                 model->name);
        return LM_STATUS_BAD_REQUEST;
    }
    const char *missing = encoding->missing ? encoding->missing(model) : NULL;
    if (missing) {
        snprintf(why, why_bytes, "encoding: model '%s' has no %s; send tensors (0), found %s (%u)",
                 model->name, missing, encoding->name, request->encoding);
        return LM_STATUS_BAD_REQUEST;
    }
    if (request->rows > model->max_rows) {
        snprintf(why, why_bytes,
                 "rows: model '%s' takes at most %u, found %u; server.max_request_bytes and the "
                 "model's max_rows decide that",
                 model->name, model->max_rows, request->rows);
        return LM_STATUS_BAD_REQUEST;
    }
    return check_sizes(io, connection, request, why, why_bytes);
}
