/* admit.c: decides over a request whose header is read, before a byte of its body is. I/O thread
 * only.
 *
 * A refused request is answered at once and costs no slot: its payload is read and dropped, and the
 * connection goes on. Only where the end of the frame is in doubt, or the payload is larger than
 * anything the server takes, does the connection end.
 */
#include <stdio.h>

#include "flow/io.h"

/* `model`: as the request names it; an index that no model has counts for none. */
static void count_refusal(struct lm_io *io, enum lm_status status, uint32_t model) {
    struct lm_io_counters *counters = &io->stats->io;
    bool is_error = status == LM_STATUS_BAD_REQUEST || status == LM_STATUS_UNKNOWN_MODEL ||
                    status == LM_STATUS_TOO_LARGE || status == LM_STATUS_UNAUTHORISED;
    lm_add_single_writer_u64(is_error ? &counters->requests_error : &counters->requests_refused, 1);
    if (status == LM_STATUS_UNAUTHORISED)
        lm_add_single_writer_u64(&counters->requests_unauthorised, 1);
    if (status == LM_STATUS_RATE_LIMITED) lm_add_single_writer_u64(&counters->requests_limited, 1);
    if (model >= io->shared->model_count || status == LM_STATUS_UNAUTHORISED) return;
    lm_add_single_writer_u64(
        is_error ? &counters->model_bad[model] : &counters->model_refused[model], 1);
}

static void refuse(struct lm_io *io, struct lm_connection *connection,
                   const struct lm_native_request *request, enum lm_status status,
                   const char *why) {
    struct lm_native_reply reply = {.id = request->id, .status = (uint16_t)status};
    connection->header_used = 0;
    connection->discard_bytes = request->payload_bytes;
    connection->read_state = request->payload_bytes ? LM_READ_DISCARD : LM_READ_HEADER;
    if (request->payload_bytes > io->shared->max_request_bytes)
        lm_connection_linger(io, connection);
    count_refusal(io, status, request->kind == LM_KIND_INFER ? request->model : UINT32_MAX);
    lm_reply_own(io, connection, &reply, why);
}

static void answer_describe(struct lm_io *io, struct lm_connection *connection,
                            const struct lm_native_request *request) {
    struct lm_native_reply reply = {.id = request->id,
                                    .payload_bytes = (uint32_t)io->shared->description_bytes};
    lm_reply_own(io, connection, &reply, io->shared->description);
}

/* ping and describe: answered here, whatever the workers do. */
static void answer(struct lm_io *io, struct lm_connection *connection,
                   const struct lm_native_request *request) {
    connection->header_used = 0;
    connection->discard_bytes = request->payload_bytes; /* at most a credential */
    connection->read_state = request->payload_bytes ? LM_READ_DISCARD : LM_READ_HEADER;
    lm_add_single_writer_u64(&io->stats->io.requests_ok, 1);
    if (request->kind == LM_KIND_DESCRIBE) {
        answer_describe(io, connection, request);
    } else {
        struct lm_native_reply reply = {.id = request->id};
        lm_reply_own(io, connection, &reply, NULL);
    }
}

static uint32_t prefix_bytes(const struct lm_model *model, uint16_t flags) {
    return (flags & LM_FLAG_CREDENTIAL ? (uint32_t)LM_NATIVE_CREDENTIAL_BYTES : 0) +
           (flags & LM_FLAG_SHAPES ? lm_model_shape_block_bytes(model) : 0);
}

/* Whether the model can take the request; on refusal the status and the sentence. */
static enum lm_status check(const struct lm_io *io, const struct lm_native_request *request,
                            char *why, size_t why_bytes) {
    const struct lm_shared *shared = io->shared;
    if (request->payload_bytes > shared->max_request_bytes) {
        snprintf(why, why_bytes,
                 "payload: expected at most %llu bytes (server.max_request_bytes), found %u",
                 (unsigned long long)shared->max_request_bytes, request->payload_bytes);
        return LM_STATUS_TOO_LARGE;
    }
    if (request->model >= shared->model_count) {
        snprintf(why, why_bytes, "model index: expected 0 to %u (see describe), found %u",
                 shared->model_count - 1, request->model);
        return LM_STATUS_UNKNOWN_MODEL;
    }
    const struct lm_model *model = &shared->models[request->model];
    if (request->encoding == LM_ENCODING_RGB8 && !model->has_rgb8) {
        snprintf(why, why_bytes,
                 "encoding: model '%s' has no image input of 3 channels; send tensors (0), found "
                 "rgb8 (1)",
                 model->name);
        return LM_STATUS_BAD_REQUEST;
    }
    if (request->rows > model->max_rows) {
        snprintf(why, why_bytes, "rows: model '%s' takes at most %u, found %u", model->name,
                 model->max_rows, request->rows);
        return LM_STATUS_BAD_REQUEST;
    }
    size_t expected = 0;
    if (!lm_model_payload_bytes(model, request->encoding, request->rows, &expected) ||
        expected + prefix_bytes(model, request->flags) != request->payload_bytes) {
        snprintf(
            why, why_bytes, "payload: model '%s' takes %zu bytes for %u row(s) as %s, found %u",
            model->name, expected + prefix_bytes(model, request->flags), request->rows,
            request->encoding == LM_ENCODING_RGB8 ? "rgb8" : "tensors", request->payload_bytes);
        return LM_STATUS_BAD_REQUEST;
    }
    return LM_STATUS_OK;
}

/* Sets up where the body's bytes go: credential and shapes, then pixels or one part per tensor. */
static void plan_parts(struct lm_request *request) {
    const struct lm_model *model = request->model;
    uint32_t prefix = prefix_bytes(model, request->flags), count = 0;
    size_t bytes = 0;
    if (prefix) request->parts[count++] = (struct iovec){request->prefix, prefix};
    if (request->encoding == LM_ENCODING_RGB8) {
        lm_model_payload_bytes(model, LM_ENCODING_RGB8, request->rows, &bytes);
        request->parts[count++] = (struct iovec){request->layout.raw, bytes};
    } else {
        for (uint32_t i = 0; i < model->input_count; i++) {
            lm_tensor_bytes(&model->inputs[i], request->rows, &bytes);
            request->parts[count++] = (struct iovec){request->layout.inputs[i], bytes};
        }
    }
    request->part_count = count;
    request->part_at = 0;
}

static uint64_t deadline_of(const struct lm_io *io, const struct lm_connection *connection,
                            uint32_t timeout_us) {
    uint64_t timeout_ns = timeout_us ? timeout_us * 1000ull : io->shared->default_timeout_ns;
    return timeout_ns ? connection->started_ns + timeout_ns : UINT64_MAX;
}

static void start_body(struct lm_io *io, struct lm_connection *connection,
                       const struct lm_native_request *header, struct lm_slot *slot) {
    struct lm_request *request = &io->requests[slot->index];
    request->io = io;
    request->slot = slot;
    request->model = &io->shared->models[header->model];
    request->connection = connection->index;
    request->next_reply = LM_NO_SLOT;
    request->id = header->id;
    request->held_ns = io->now_ns;
    request->started_ns = connection->started_ns;
    request->deadline_ns = deadline_of(io, connection, header->timeout_us);
    request->rows = header->rows;
    request->payload_bytes = header->payload_bytes;
    request->flags = header->flags;
    request->encoding = header->encoding;
    lm_model_layout(request->model, slot, header->encoding, header->rows, &request->layout);
    plan_parts(request);
    io->in_flight++;
    connection->receiving = slot->index;
    connection->read_state = LM_READ_BODY;
    connection->header_used = 0;
    if (connection->list == LM_LIST_WAITING) lm_connection_move(io, connection, LM_LIST_NONE);
}

/* No slot is free: the body is simply not received yet, TCP holds the sender. */
static void wait_for_slot(struct lm_io *io, struct lm_connection *connection,
                          const struct lm_native_request *request) {
    if (connection->read_state == LM_READ_WAIT) return;
    if (io->lists[LM_LIST_WAITING].count >= LM_SLOT_WAITERS_MAX) {
        refuse(io, connection, request, LM_STATUS_OVERLOADED,
               "all slots are taken and too many requests wait for one");
        return;
    }
    lm_add_single_writer_u64(&io->stats->io.slot_waits, 1);
    connection->read_state = LM_READ_WAIT;
    connection->timer_ns = deadline_of(io, connection, request->timeout_us);
    lm_connection_move(io, connection, LM_LIST_WAITING);
}

void lm_admit(struct lm_io *io, struct lm_connection *connection) {
    struct lm_native_request request;
    char why[LM_TEXT_BYTES_MAX];
    enum lm_native_verdict verdict = lm_native_parse(connection->header, &request, why, sizeof why);
    bool retried = connection->read_state == LM_READ_WAIT;
    if (!retried) lm_add_single_writer_u64(&io->stats->io.requests, 1);
    if (!retried) lm_add_single_writer_u64(&io->stats->io.native_requests, 1);
    if (verdict == LM_NATIVE_NO_FRAME) {
        connection->header_used = 0;
        lm_connection_linger(io, connection);
        count_refusal(io, LM_STATUS_BAD_REQUEST, UINT32_MAX);
        struct lm_native_reply reply = {.id = request.id, .status = LM_STATUS_BAD_REQUEST};
        lm_reply_own(io, connection, &reply, why);
        return;
    }
    if (verdict == LM_NATIVE_BAD) {
        refuse(io, connection, &request, LM_STATUS_BAD_REQUEST, why);
        return;
    }
    if (request.kind != LM_KIND_INFER) {
        answer(io, connection, &request);
        return;
    }
    enum lm_status status = retried ? LM_STATUS_OK : check(io, &request, why, sizeof why);
    if (status == LM_STATUS_OK && io->draining && !retried) {
        snprintf(why, sizeof why, "the server is shutting down");
        status = LM_STATUS_SHUTTING_DOWN;
    }
    if (status != LM_STATUS_OK) {
        refuse(io, connection, &request, status, why);
        return;
    }
    size_t bytes = 0;
    lm_model_slot_bytes(&io->shared->models[request.model], request.rows, &bytes);
    struct lm_slot *slot = lm_arena_acquire(&io->arena, bytes);
    if (slot) {
        start_body(io, connection, &request, slot);
    } else {
        wait_for_slot(io, connection, &request);
    }
}

void lm_admit_refuse_waiting(struct lm_io *io, struct lm_connection *connection,
                             enum lm_status status, const char *why) {
    struct lm_native_request request;
    char unused[LM_TEXT_BYTES_MAX];
    lm_native_parse(connection->header, &request, unused, sizeof unused);
    lm_connection_move(io, connection, LM_LIST_NONE);
    refuse(io, connection, &request, status, why);
}
