/* native.c: see native.h. I/O thread only. */
#include "dialects/native.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "dialects/native_check.h"
#include "dialects/native_header.h"
#include "dialects/native_region.h"
#include "flow/access_log.h"
#include "flow/admit.h"
#include "flow/gate.h"
#include "flow/region.h"
#include "flow/slot_wait.h"
#include "flow/slots.h"
#include "flow/submit.h"
#include "flow/tls.h"
#include "models/layout.h"
#include "work/region_tensors.h"

static const char unknown_key[] =
    "expected the token of a key of this server, found none or an unknown one";

static void count_request(struct lm_io *io) {
    lm_add_single_writer_u64(&io->stats->io.requests, 1);
    lm_add_single_writer_u64(&io->stats->io.native_requests, 1);
}

static void parse_again(const struct lm_io *io, const struct lm_connection *connection,
                        struct lm_native_request *request) {
    char unused[LM_TEXT_BYTES_MAX];
    (void)lm_native_read(io->models, connection->in.header, request, unused, sizeof unused);
}

/* The rest of the payload is dropped first; credential and shape block are read already. */
static void skip_payload(struct lm_connection *connection,
                         const struct lm_native_request *request) {
    uint32_t read = connection->in.header_used > LM_NATIVE_REQUEST_BYTES
                        ? connection->in.header_used - (uint32_t)LM_NATIVE_REQUEST_BYTES
                        : 0;
    connection->in.header_used = 0;
    connection->in.discard_bytes = request->payload_bytes - read;
    connection->in.read_state = connection->in.discard_bytes ? LM_READ_DISCARD : LM_READ_HEADER;
}

static void log_answer(struct lm_io *io, const struct lm_connection *connection,
                       const struct lm_native_request *request, enum lm_status status,
                       const char *why) {
    static const char *const words[] = {[LM_KIND_INFER] = "infer",
                                        [LM_KIND_PING] = "ping",
                                        [LM_KIND_DESCRIBE] = "describe",
                                        [LM_KIND_REGION] = "region"};
    bool is_known = request->kind >= LM_KIND_INFER && request->kind <= LM_KIND_REGION;
    struct lm_access_entry entry = {.what = is_known ? words[request->kind] : "unknown",
                                    .why = why,
                                    .id = request->id,
                                    .bytes = request->payload_bytes,
                                    .model = request->kind == LM_KIND_INFER ? request->model
                                                                            : UINT32_MAX,
                                    .code = status};
    lm_access_log(io, connection, &entry);
}

static void refuse_header(struct lm_io *io, struct lm_connection *connection,
                          const struct lm_native_request *request, enum lm_status status,
                          const char *why) {
    struct lm_native_reply reply = {.id = request->id, .status = (uint16_t)status};
    skip_payload(connection, request);
    if (request->payload_bytes > io->shared->config.max_request_bytes)
        lm_connection_linger(io, connection, request->payload_bytes);
    lm_refusal_count(io, status, request->kind == LM_KIND_INFER ? request->model : UINT32_MAX);
    log_answer(io, connection, request, status, why);
    lm_native_answer(io, connection, &reply, why);
}

/* Puts the key that the credential names in its place, and makes room for a shape block's sizes. */
static void read_credential(const struct lm_io *io, struct lm_connection *connection,
                            const struct lm_native_request *request) {
    const struct lm_model *model = lm_model_set_find(io->models, request->model);
    struct lm_native_call call = {.key = LM_NO_KEY, .signature = model ? model->signature : 0};
    const uint8_t *subject = io->access->keys.count > 0 ? lm_tls_subject(io, connection) : NULL;
    if (subject) call.key = lm_keys_find_subject(&io->access->keys, subject);
    if (io->access->keys.count > 0 && connection->in.header_used > LM_NATIVE_REQUEST_BYTES) {
        struct lm_token token = lm_keys_credential(connection->in.credential);
        call.key = lm_keys_find(&io->access->keys, token.at, token.bytes);
    }
    connection->in.native = call;
    connection->in.owner = lm_keys_owner(&io->access->keys, call.key);
}

/* The number that its key has now, as lm_gate_key says. */
static uint32_t key_of(const struct lm_io *io, const struct lm_connection *connection) {
    const struct lm_stream *in = &connection->in;
    return lm_gate_key(io, in->native.key, in->owner, in->started_ns);
}

static bool is_authorised(const struct lm_io *io, const struct lm_connection *connection) {
    const struct lm_keys *keys = &io->access->keys;
    return keys->count == 0 || key_of(io, connection) < keys->count;
}

static void answer_describe(struct lm_io *io, struct lm_connection *connection,
                            const struct lm_native_request *request) {
    struct lm_native_reply reply = {.id = request->id,
                                    .payload_bytes = (uint32_t)io->models->description_bytes};
    lm_native_answer(io, connection, &reply, io->models->description);
}

/* All but inferences: answered here, whatever the workers do. */
static void answer(struct lm_io *io, struct lm_connection *connection,
                   const struct lm_native_request *request) {
    if (request->kind != LM_KIND_PING && !is_authorised(io, connection)) {
        refuse_header(io, connection, request, LM_STATUS_UNAUTHORISED, unknown_key);
        return;
    }
    const char *why =
        request->kind == LM_KIND_REGION ? lm_native_region_refusal(io, connection) : NULL;
    if (why) {
        refuse_header(io, connection, request, LM_STATUS_BAD_REQUEST, why);
        return;
    }
    log_answer(io, connection, request, LM_STATUS_OK, NULL);
    skip_payload(connection, request); /* at most a credential */
    lm_add_single_writer_u64(&io->stats->io.requests_ok, 1);
    if (request->kind == LM_KIND_DESCRIBE) {
        answer_describe(io, connection, request);
    } else {
        struct lm_native_reply reply = {.id = request->id};
        lm_native_answer(io, connection, &reply, NULL);
    }
    if (request->kind == LM_KIND_REGION) connection->in.read_state = LM_READ_DESCRIPTOR;
}

/* The byte that a descriptor came with, or should have. */
static void end_region(struct lm_io *io, struct lm_connection *connection, enum lm_status status,
                       const char *why) {
    struct lm_native_request request;
    parse_again(io, connection, &request);
    struct lm_native_reply reply = {.id = request.id, .status = (uint16_t)status};
    connection->in.read_state = LM_READ_HEADER;
    count_request(io);
    if (status == LM_STATUS_OK) {
        lm_add_single_writer_u64(&io->stats->io.requests_ok, 1);
    } else {
        lm_refusal_count(io, status, UINT32_MAX);
    }
    log_answer(io, connection, &request, status, why);
    lm_native_answer(io, connection, &reply, why);
}

static void take_descriptor(struct lm_io *io, struct lm_connection *connection) {
    char why[LM_TEXT_BYTES_MAX];
    enum lm_status status;
    if (!lm_native_region_receive(io, connection, &status, why, sizeof why)) return;
    end_region(io, connection, status, status == LM_STATUS_OK ? NULL : why);
}

static struct lm_demand demand_of(const struct lm_io *io, const struct lm_connection *connection,
                                  const struct lm_native_request *header) {
    const struct lm_model *model = lm_model_set_find(io->models, header->model);
    return (struct lm_demand){.model = model,
                              .sizes = lm_native_sizes(connection, header),
                              .timeout_us = header->timeout_us,
                              .bytes = header->payload_bytes,
                              .pixels = (uint64_t)header->payload_bytes * LM_JPEG_BYTE_PIXELS,
                              .encoding = lm_encoding_for(model, header->encoding)};
}

static void start_body(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_native_request *header, struct lm_slot *slot) {
    struct lm_demand demand = demand_of(io, connection, header);
    struct lm_request *request = lm_admit_begin(io, connection, &demand, slot);
    request->id = header->id;
    request->payload_bytes = header->payload_bytes;
    request->flags = header->flags;
    if (header->flags & LM_FLAG_REGION) {
        lm_region_hold(io, connection, request);
        lm_region_receive(request);
        return;
    }
    lm_model_layout(demand.model, slot, demand.encoding, &demand.sizes, &request->layout);
    uint32_t before = lm_native_credential_bytes(header->flags) +
                      lm_native_shape_bytes(connection, demand.model, header->flags);
    lm_encodings[demand.encoding].receive(request, header->payload_bytes - before);
}

/* Everything that can be said against an inference before its body is read. */
static bool may_enter(struct lm_io *io, const struct lm_connection *connection,
                      const struct lm_native_request *request, struct lm_refusal *refusal) {
    refusal->status = LM_STATUS_UNAUTHORISED;
    if (!is_authorised(io, connection)) {
        snprintf(refusal->why, sizeof refusal->why, "%s", unknown_key);
        return false;
    }
    refusal->status = lm_native_check(io, connection, request, refusal->why, sizeof refusal->why);
    if (refusal->status != LM_STATUS_OK) return false;
    struct lm_demand demand = demand_of(io, connection, request);
    uint64_t deadline_ns = lm_admit_deadline_ns(io, connection, demand.timeout_us);
    /* Of a connection that asks without end; HTTP's ends behind its next answer. */
    if (io->draining)
        return lm_refuse(refusal, LM_STATUS_SHUTTING_DOWN, 0, "the server is shutting down");
    return lm_gate_enter(io, demand.model, key_of(io, connection), refusal) &&
           lm_gate_in_time(io, &demand, deadline_ns, refusal);
}

/* The model may be another one than when the header came. */
static const char *why_changed(const struct lm_io *io, const struct lm_connection *connection,
                               const struct lm_native_request *request) {
    uint32_t signature = connection->in.native.signature;
    return signature ? lm_model_set_changed(io->models, request->model, signature) : NULL;
}

static void admit(struct lm_io *io, struct lm_connection *connection) {
    struct lm_native_request request;
    struct lm_refusal refusal;
    enum lm_native_verdict verdict = lm_native_read(io->models, connection->in.header, &request,
                                                    refusal.why, sizeof refusal.why);
    bool retried = connection->in.read_state == LM_READ_WAIT;
    if (!retried) count_request(io);
    if (verdict == LM_NATIVE_NO_FRAME) {
        lm_connection_linger(io, connection, 0);
        lm_refusal_count(io, LM_STATUS_BAD_REQUEST, UINT32_MAX);
        struct lm_native_reply reply = {.id = request.id, .status = LM_STATUS_BAD_REQUEST};
        request.kind = 0; /* nobody knows what it was to be */
        log_answer(io, connection, &request, LM_STATUS_BAD_REQUEST, refusal.why);
        lm_native_answer(io, connection, &reply, refusal.why);
        return;
    }
    if (verdict == LM_NATIVE_BAD) {
        refuse_header(io, connection, &request, LM_STATUS_BAD_REQUEST, refusal.why);
        return;
    }
    if (request.kind != LM_KIND_INFER) {
        answer(io, connection, &request);
        return;
    }
    const char *changed = why_changed(io, connection, &request);
    if (changed) {
        if (retried) {
            lm_slot_wait_turn_away(io, connection, LM_STATUS_UNKNOWN_MODEL, changed);
        } else {
            refuse_header(io, connection, &request, LM_STATUS_UNKNOWN_MODEL, changed);
        }
        return;
    }
    if (!retried && !may_enter(io, connection, &request, &refusal)) {
        refuse_header(io, connection, &request, refusal.status, refusal.why);
        return;
    }
    size_t bytes = 0;
    if (!lm_native_fits(io, connection, &request, &bytes)) { /* it did when it came */
        lm_slot_wait_outgrown(io, connection, bytes);
        return;
    }
    struct lm_slot *slot = lm_slots_take(io, connection, bytes);
    if (slot) {
        start_body(io, connection, &request, slot);
    } else if (!retried) {
        lm_admit_wait(io, connection, request.timeout_us);
    }
}

/* ---- what flow/ asks ---- */

/* A shape block is read with the header too: it decides which slot is taken. 0: none is read, as
 * where the request is refused anyway. It grows while the block is read, by the ranks in it. */
static uint32_t shapes_to_read(const struct lm_io *io, const struct lm_connection *connection,
                               const struct lm_native_request *request) {
    if (request->kind != LM_KIND_INFER || !lm_model_set_find(io->models, request->model) ||
        request->payload_bytes > io->shared->config.max_request_bytes)
        return 0;
    uint32_t shapes = lm_native_shape_bytes(
        connection, lm_model_set_find(io->models, request->model), request->flags);
    return shapes + lm_native_credential_bytes(request->flags) <= request->payload_bytes ? shapes
                                                                                         : 0;
}

/* Takes bytes of the shape block, which begins after `fixed` bytes, and admits the request at its
 * end. Returns the number of bytes taken: fewer than `count` where a word is refused. */
static size_t take_shapes(struct lm_io *io, struct lm_connection *connection,
                          const struct lm_native_request *request, uint32_t fixed,
                          const uint8_t *bytes, size_t count) {
    const struct lm_model *model = lm_model_set_find(io->models, request->model);
    struct lm_native_call *call = &connection->in.native;
    uint32_t end = fixed + shapes_to_read(io, connection, request);
    size_t taken = 0;
    if (why_changed(io, connection, request)) {
        admit(io, connection);
        return 0;
    }
    while (taken < count && connection->in.header_used < end) {
        uint32_t at = connection->in.header_used++ - fixed;
        char why[LM_TEXT_BYTES_MAX];
        call->word = call->word >> 8 | (uint32_t)bytes[taken++] << 24; /* little-endian */
        if (at % 4 != 3) continue;
        if (!lm_native_take_word(call, model, request->rows, at / 4, why, sizeof why)) {
            count_request(io);
            refuse_header(io, connection, request, LM_STATUS_BAD_REQUEST, why);
            return taken;
        }
        end = fixed + shapes_to_read(io, connection, request);
    }
    /* Beyond the end: a rank is more than the payload holds, which admission says. */
    if (connection->in.header_used >= end) admit(io, connection);
    return taken;
}

static size_t take(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                   size_t count) {
    struct lm_stream *in = &connection->in;
    struct lm_native_request request;
    if (in->read_state == LM_READ_DESCRIPTOR) {
        end_region(io, connection, LM_STATUS_BAD_REQUEST, lm_native_region_early);
        return 1;
    }
    bool is_whole = lm_native_is_header(io->models, in, &request);
    uint32_t fixed = lm_native_fixed_bytes(&request, is_whole);
    if (in->header_used == 0) in->started_ns = io->now_ns;
    if (in->header_used >= fixed) return take_shapes(io, connection, &request, fixed, bytes, count);
    size_t taken = lm_native_take_fixed(in, fixed, bytes, count);
    is_whole = lm_native_is_header(io->models, in, &request);
    if (in->header_used < LM_NATIVE_REQUEST_BYTES ||
        in->header_used < lm_native_fixed_bytes(&request, is_whole))
        return taken;
    read_credential(io, connection, &request);
    if (!is_whole || !is_authorised(io, connection) ||
        shapes_to_read(io, connection, &request) == 0)
        admit(io, connection);
    return taken;
}

static void body_received(struct lm_io *io, struct lm_connection *connection) {
    struct lm_request *request = &io->requests[connection->in.receiving];
    struct lm_refusal refusal;
    /* All of it is here. */
    const struct lm_native_request header = {
        .id = request->id, .model = (uint16_t)request->model->index, .kind = LM_KIND_INFER};
    if (!request->model->text ||
        lm_gate_reserve(io, request, lm_gate_most_tokens(request), &refusal)) {
        lm_submit(io, connection, request);
        return;
    }
    connection->in.receiving = LM_NO_SLOT;
    connection->in.read_state = LM_READ_HEADER;
    lm_slots_release(io, request);
    refuse_header(io, connection, &header, refusal.status, refusal.why);
}

static void forget(struct lm_io *io, struct lm_connection *connection) {
    (void)io;
    (void)connection; /* the header is in the connection itself */
}

static uint64_t bytes_expected(const struct lm_connection *connection) {
    struct lm_native_request request;
    char unused[LM_TEXT_BYTES_MAX];
    (void)lm_native_parse(connection->in.header, &request, unused, sizeof unused);
    return LM_NATIVE_REQUEST_BYTES + request.payload_bytes - connection->in.header_used;
}

static void refuse(struct lm_io *io, struct lm_connection *connection,
                   const struct lm_refusal *refusal) {
    struct lm_native_request request;
    parse_again(io, connection, &request);
    refuse_header(io, connection, &request, refusal->status, refusal->why);
}

static void answer_request(struct lm_io *io, struct lm_connection *connection,
                           struct lm_request *request, enum lm_status status, const char *why) {
    struct lm_native_reply reply = {.id = request->id, .status = (uint16_t)status};
    lm_access_log_refused(io, connection, request, status, why);
    lm_native_answer(io, connection, &reply, why);
}

static void give_up(struct lm_io *io, struct lm_connection *connection, enum lm_status status,
                    const char *why) {
    if (connection->in.receiving == LM_NO_SLOT || lm_connection_is_sending(connection)) {
        lm_connection_abort(io, connection); /* nobody knows which request it would have been */
        return;
    }
    answer_request(io, connection, &io->requests[connection->in.receiving], status, why);
    lm_connection_end(io, connection);
}

static void complete_row(const struct lm_request *request, struct lm_trace_record *row) {
    (void)request;
    (void)row; /* the code is the status, which is there */
}

const struct lm_dialect lm_native = {
    .name = "native",
    .take = take,
    .body_received = body_received,
    .descriptor = take_descriptor,
    .forget = forget,
    .bytes_expected = bytes_expected,
    .retry = admit,
    .refuse = refuse,
    .give_up = give_up,
    .answer = answer_request,
    .compose_outputs = lm_native_compose_outputs,
    .compose_error = lm_native_compose_error,
    .key = key_of,
    .complete_row = complete_row,
};
