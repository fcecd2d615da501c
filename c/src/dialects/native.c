/* native.c: see native.h. I/O thread only. */
#include "dialects/native.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "flow/access_log.h"
#include "flow/admit.h"
#include "flow/gate.h"
#include "flow/slots.h"
#include "flow/submit.h"
#include "work/encoding.h"

static const char unknown_key[] =
    "expected the token of a key of this server, found none or an unknown one";

/* The rest of the payload is dropped first; a credential is read already. */
static void skip_payload(struct lm_connection *connection,
                         const struct lm_native_request *request) {
    uint32_t read =
        connection->in.header_used > LM_NATIVE_REQUEST_BYTES ? LM_NATIVE_CREDENTIAL_BYTES : 0;
    connection->in.header_used = 0;
    connection->in.discard_bytes = request->payload_bytes - read;
    connection->in.read_state = connection->in.discard_bytes ? LM_READ_DISCARD : LM_READ_HEADER;
}

static void log_answer(struct lm_io *io, const struct lm_connection *connection,
                       const struct lm_native_request *request, enum lm_status status,
                       const char *why) {
    static const char *const words[] = {
        [LM_KIND_INFER] = "infer", [LM_KIND_PING] = "ping", [LM_KIND_DESCRIBE] = "describe"};
    bool is_known = request->kind >= LM_KIND_INFER && request->kind <= LM_KIND_DESCRIBE;
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
        lm_connection_linger(io, connection);
    lm_refusal_count(io, status, request->kind == LM_KIND_INFER ? request->model : UINT32_MAX);
    log_answer(io, connection, request, status, why);
    lm_native_answer(io, connection, &reply, why);
}

/* Finds the key of a request; false: it has none of this server's. */
static bool find_key(struct lm_io *io, const struct lm_connection *connection, uint32_t *key_out) {
    *key_out = LM_NO_KEY;
    if (io->access->keys.count == 0) return true;
    if (connection->in.header_used > LM_NATIVE_REQUEST_BYTES) {
        struct lm_token token = lm_keys_credential(connection->in.header + LM_NATIVE_REQUEST_BYTES);
        *key_out = lm_keys_find(&io->access->keys, token.at, token.bytes);
    }
    return *key_out != LM_NO_KEY;
}

static void answer_describe(struct lm_io *io, struct lm_connection *connection,
                            const struct lm_native_request *request) {
    struct lm_native_reply reply = {.id = request->id,
                                    .payload_bytes = (uint32_t)io->models->description_bytes};
    lm_native_answer(io, connection, &reply, io->models->description);
}

/* ping and describe: answered here, whatever the workers do. */
static void answer(struct lm_io *io, struct lm_connection *connection,
                   const struct lm_native_request *request) {
    uint32_t key;
    if (request->kind == LM_KIND_DESCRIBE && !find_key(io, connection, &key)) {
        refuse_header(io, connection, request, LM_STATUS_UNAUTHORISED, unknown_key);
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
}

static uint32_t credential_bytes(uint16_t flags) {
    return flags & LM_FLAG_CREDENTIAL ? (uint32_t)LM_NATIVE_CREDENTIAL_BYTES : 0;
}

static uint32_t shape_bytes(const struct lm_model *model, uint16_t flags) {
    return flags & LM_FLAG_SHAPES ? lm_model_shape_block_bytes(model) : 0;
}

/* Whether the model can take the request; on refusal the status and the sentence. */
static enum lm_status check(const struct lm_io *io, const struct lm_native_request *request,
                            char *why, size_t why_bytes) {
    const struct lm_shared *shared = io->shared;
    if (request->payload_bytes > shared->config.max_request_bytes) {
        snprintf(why, why_bytes,
                 "payload: expected at most %llu bytes (server.max_request_bytes), found %u",
                 (unsigned long long)shared->config.max_request_bytes, request->payload_bytes);
        return LM_STATUS_TOO_LARGE;
    }
    if (request->model >= io->models->count) {
        snprintf(why, why_bytes, "model index: expected 0 to %u (see describe), found %u",
                 io->models->count - 1, request->model);
        return LM_STATUS_UNKNOWN_MODEL;
    }
    const struct lm_model *model = &io->models->models[request->model];
    const struct lm_encoding *encoding = &lm_encodings[request->encoding];
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
    size_t expected = 0,
           before = credential_bytes(request->flags) + shape_bytes(model, request->flags);
    if (!encoding->body_bytes(model, request->rows, &expected) ||
        expected + before != request->payload_bytes) {
        snprintf(why, why_bytes,
                 "payload: model '%s' takes %zu bytes for %u row(s) as %s, found %u", model->name,
                 expected + before, request->rows, encoding->name, request->payload_bytes);
        return LM_STATUS_BAD_REQUEST;
    }
    return LM_STATUS_OK;
}

static struct lm_demand demand_of(const struct lm_io *io, const struct lm_native_request *header) {
    return (struct lm_demand){.model = &io->models->models[header->model],
                              .rows = header->rows,
                              .timeout_us = header->timeout_us,
                              .encoding = header->encoding};
}

static void start_body(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_native_request *header, struct lm_slot *slot) {
    struct lm_demand demand = demand_of(io, header);
    struct lm_request *request = lm_admit_begin(io, connection, &demand, slot);
    uint32_t shapes = shape_bytes(demand.model, header->flags);
    request->id = header->id;
    request->payload_bytes = header->payload_bytes;
    request->flags = header->flags;
    lm_model_layout(demand.model, slot, demand.encoding, demand.rows, &request->layout);
    if (shapes) request->parts[request->part_count++] = (struct iovec){request->prefix, shapes};
    lm_encodings[demand.encoding].receive(request);
}

/* Everything that can be said against an inference before its body is read. */
static bool may_enter(struct lm_io *io, const struct lm_connection *connection,
                      const struct lm_native_request *request, struct lm_refusal *refusal) {
    uint32_t key;
    refusal->status = LM_STATUS_UNAUTHORISED;
    if (!find_key(io, connection, &key)) {
        snprintf(refusal->why, sizeof refusal->why, "%s", unknown_key);
        return false;
    }
    refusal->status = check(io, request, refusal->why, sizeof refusal->why);
    if (refusal->status != LM_STATUS_OK) return false;
    struct lm_demand demand = demand_of(io, request);
    uint64_t deadline_ns = lm_admit_deadline_ns(io, connection, demand.timeout_us);
    return lm_gate_enter(io, demand.model, key, refusal) &&
           lm_gate_in_time(io, &demand, deadline_ns, refusal);
}

static void admit(struct lm_io *io, struct lm_connection *connection) {
    struct lm_native_request request;
    struct lm_refusal refusal;
    enum lm_native_verdict verdict =
        lm_native_parse(connection->in.header, &request, refusal.why, sizeof refusal.why);
    bool retried = connection->in.read_state == LM_READ_WAIT;
    if (!retried) lm_add_single_writer_u64(&io->stats->io.requests, 1);
    if (!retried) lm_add_single_writer_u64(&io->stats->io.native_requests, 1);
    if (verdict == LM_NATIVE_NO_FRAME) {
        lm_connection_linger(io, connection);
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
    if (!retried && !may_enter(io, connection, &request, &refusal)) {
        refuse_header(io, connection, &request, refusal.status, refusal.why);
        return;
    }
    size_t bytes = 0;
    lm_encodings[request.encoding].slot_bytes(&io->models->models[request.model], request.rows,
                                              request.payload_bytes, &bytes);
    struct lm_slot *slot = lm_slots_take(io, connection, bytes);
    if (slot) {
        start_body(io, connection, &request, slot);
    } else if (!retried) {
        lm_admit_wait(io, connection, request.timeout_us);
    }
}

/* ---- what flow/ asks ---- */

/* A credential comes right behind the header, and is read with it: who asks is known before a slot
 * is taken. */
static size_t header_bytes(const struct lm_connection *connection) {
    struct lm_native_request request;
    char unused[LM_TEXT_BYTES_MAX];
    if (connection->in.header_used < LM_NATIVE_REQUEST_BYTES) return LM_NATIVE_REQUEST_BYTES;
    enum lm_native_verdict verdict =
        lm_native_parse(connection->in.header, &request, unused, sizeof unused);
    bool follows = verdict == LM_NATIVE_OK && (request.flags & LM_FLAG_CREDENTIAL) &&
                   request.payload_bytes >= LM_NATIVE_CREDENTIAL_BYTES;
    return LM_NATIVE_REQUEST_BYTES + (follows ? LM_NATIVE_CREDENTIAL_BYTES : 0);
}

static size_t take(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                   size_t count) {
    size_t missing = header_bytes(connection) - connection->in.header_used;
    size_t taken = count < missing ? count : missing;
    if (connection->in.header_used == 0) connection->in.started_ns = io->now_ns;
    memcpy(connection->in.header + connection->in.header_used, bytes, taken);
    connection->in.header_used = (uint16_t)(connection->in.header_used + taken);
    if (!lm_native_may_be_header(connection->in.header, connection->in.header_used)) {
        /* Another protocol's greeting may be shorter than a header: answer what is there. */
        memset(connection->in.header + connection->in.header_used, 0,
               LM_NATIVE_REQUEST_BYTES - connection->in.header_used);
        connection->in.header_used = LM_NATIVE_REQUEST_BYTES;
    }
    if (connection->in.header_used >= LM_NATIVE_REQUEST_BYTES &&
        connection->in.header_used == header_bytes(connection)) {
        admit(io, connection);
    }
    return taken;
}

static void parse_again(const struct lm_connection *connection, struct lm_native_request *request) {
    char unused[LM_TEXT_BYTES_MAX];
    (void)lm_native_parse(connection->in.header, request, unused, sizeof unused);
}

/* The shape block, where one came, must say what `rows` says. */
static bool shapes_agree(const struct lm_request *request, char *why, size_t why_bytes) {
    const uint8_t *at = request->prefix;
    uint32_t word;
    memcpy(&word, at, 4);
    if (word != request->model->input_count) {
        snprintf(why, why_bytes, "shape block: expected %u tensors, found %u",
                 request->model->input_count, word);
        return false;
    }
    for (uint32_t i = 0; i < request->model->input_count; i++) {
        const struct lm_tensor *tensor = &request->model->inputs[i];
        int64_t dims[LM_RANK_MAX];
        lm_tensor_shape(tensor, request->rows, dims);
        at += 4;
        memcpy(&word, at, 4);
        if (word != tensor->rank) {
            snprintf(why, why_bytes, "shape block: input %u: expected rank %u, found %u", i,
                     tensor->rank, word);
            return false;
        }
        for (uint32_t d = 0; d < tensor->rank; d++) {
            at += 4;
            memcpy(&word, at, 4);
            if (word == dims[d]) continue;
            snprintf(why, why_bytes, "shape block: input %u dimension %u: expected %lld, found %u",
                     i, d, (long long)dims[d], word);
            return false;
        }
    }
    return true;
}

static void body_received(struct lm_io *io, struct lm_connection *connection) {
    struct lm_request *request = &io->requests[connection->in.receiving];
    char why[LM_TEXT_BYTES_MAX];
    if (!(request->flags & LM_FLAG_SHAPES) || shapes_agree(request, why, sizeof why)) {
        lm_submit(io, connection, request);
        return;
    }
    struct lm_native_reply reply = {.id = request->id, .status = LM_STATUS_BAD_REQUEST};
    connection->in.receiving = LM_NO_SLOT;
    connection->in.read_state = LM_READ_HEADER;
    lm_refusal_count(io, LM_STATUS_BAD_REQUEST, request->model->index);
    lm_access_log_refused(io, connection, request, LM_STATUS_BAD_REQUEST, why);
    lm_slots_release(io, request);
    lm_native_answer(io, connection, &reply, why);
}

static void forget(struct lm_io *io, struct lm_connection *connection) {
    (void)io;
    (void)connection; /* the header is in the connection itself */
}

static uint64_t bytes_expected(const struct lm_connection *connection) {
    struct lm_native_request request;
    parse_again(connection, &request);
    return LM_NATIVE_REQUEST_BYTES + request.payload_bytes - connection->in.header_used;
}

static void refuse(struct lm_io *io, struct lm_connection *connection,
                   const struct lm_refusal *refusal) {
    struct lm_native_request request;
    parse_again(connection, &request);
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

static uint32_t key(const struct lm_io *io, const struct lm_connection *connection) {
    if (!(connection->in.header[28] & LM_FLAG_CREDENTIAL)) return LM_NO_KEY;
    struct lm_token token = lm_keys_credential(connection->in.header + LM_NATIVE_REQUEST_BYTES);
    return lm_keys_find(&io->access->keys, token.at, token.bytes);
}

static void complete_row(const struct lm_request *request, struct lm_trace_record *row) {
    (void)request;
    (void)row; /* the code is the status, which is there */
}

const struct lm_dialect lm_native = {
    .take = take,
    .body_received = body_received,
    .forget = forget,
    .bytes_expected = bytes_expected,
    .retry = admit,
    .refuse = refuse,
    .give_up = give_up,
    .answer = answer_request,
    .compose_outputs = lm_native_compose_outputs,
    .compose_error = lm_native_compose_error,
    .key = key,
    .complete_row = complete_row,
};
