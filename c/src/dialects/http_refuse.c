/* http_refuse.c: see http_refuse.h. */
#include "dialects/http_refuse.h"

#include <stdio.h>

#include "dialects/http_answer.h"
#include "dialects/http_block.h"
#include "dialects/http_code.h"

void lm_http_skip_body(struct lm_io *io, struct lm_connection *connection) {
    struct lm_http_call *call = &connection->in.call;
    bool waits_for_continue = call->expects_continue && connection->in.discard_bytes > 0;
    lm_http_block_give(io, connection);
    connection->in.header_used = 0;
    connection->in.read_state = connection->in.discard_bytes ? LM_READ_DISCARD : LM_READ_HEADER;
    if (lm_connection_waits(connection)) lm_connection_move(io, connection, LM_LIST_NONE);
    /* A client that waits for "100 Continue" may send its body or not: nobody can tell. */
    if (!call->keep_alive || waits_for_continue || call->chunked) {
        const uint64_t left =
            call->chunked ? LM_LINGER_BODY_BYTES_MAX : connection->in.discard_bytes;
        call->keep_alive = false;
        lm_connection_linger(io, connection, left);
    }
}

void lm_http_refuse_code(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                         const char *headers, const char *why) {
    lm_http_skip_body(io, connection);
    lm_http_answer_error(io, connection, code, headers, why);
}

void lm_http_refuse_request(struct lm_io *io, struct lm_connection *connection,
                            const struct lm_refusal *refusal) {
    const uint8_t route = connection->in.call.route;
    char headers[64];
    uint32_t code = lm_http_code(route, refusal->status, io->shared->config.overload_status);
    snprintf(headers, sizeof headers, "%s", lm_http_retry_lines(route, code));
    if (code == 429 || code == 503)
        snprintf(headers, sizeof headers, "Retry-After: %u\r\n", refusal->retry_after_s);
    if (code == 401 && connection->in.call.key != LM_NO_KEY)
        code = 403; /* known, but not allowed */
    if (code == 401) snprintf(headers, sizeof headers, "WWW-Authenticate: Bearer\r\n");
    lm_refusal_count(io, refusal->status, connection->in.call.model);
    lm_http_refuse_code(io, connection, code, headers, refusal->why);
}

void lm_http_refuse_status(struct lm_io *io, struct lm_connection *connection,
                           enum lm_status status, const char *why) {
    struct lm_refusal refusal = {.status = status, .retry_after_s = 1};
    snprintf(refusal.why, sizeof refusal.why, "%s", why);
    lm_http_refuse_request(io, connection, &refusal);
}

void lm_http_refuse_close(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                          const char *why) {
    lm_http_block_give(io, connection);
    /* What cannot be framed has no body; what is too large may have a good deal of it. */
    lm_connection_linger(io, connection, code == 413 ? LM_LINGER_BODY_BYTES_MAX : 0);
    connection->in.call = (struct lm_http_call){.key = LM_NO_KEY,
                                                .model = LM_NO_MODEL,
                                                .route = connection->in.call.route,
                                                .head_only = connection->in.call.head_only};
    lm_refusal_count(io, code == 503 ? LM_STATUS_OVERLOADED : LM_STATUS_BAD_REQUEST, UINT32_MAX);
    lm_http_answer_error(io, connection, code, code == 503 ? "Retry-After: 1\r\n" : NULL, why);
}

void lm_http_refuse_unread(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                           const char *why) {
    if (connection->in.read_state == LM_READ_HEADER) {
        connection->in.call.head_only = false; /* of the request before, as is: */
        connection->in.call.route = LM_ROUTE_NONE;
        lm_http_count(io, connection);
    }
    lm_http_refuse_close(io, connection, code, why);
}

void lm_http_count(struct lm_io *io, const struct lm_connection *connection) {
    struct lm_io_counters *counters = &io->stats->io;
    lm_add_single_writer_u64(&counters->requests, 1);
    if (lm_io_dialect(io, connection)->is_rpc) {
        lm_add_single_writer_u64(&counters->grpc_requests, 1);
    } else if (lm_connection_is_stream(connection)) {
        lm_add_single_writer_u64(&counters->http2_requests, 1);
    } else {
        lm_add_single_writer_u64(&counters->http_requests, 1);
    }
}

/* Ends the connection that has collected a head in a block for the longest time. The one whose call
 * brings files, an admin's, has its own time. */
static void evict_slowest(struct lm_io *io) {
    struct lm_connection *slowest = NULL;
    uint64_t since_ns = UINT64_MAX;
    for (uint32_t b = 0; b < LM_HTTP_BLOCKS; b++) {
        const struct lm_http_block *block = &io->http->blocks[b];
        struct lm_connection *holder = lm_io_connection(io, block->connection);
        if (block->is_kept || holder->in.read_state == LM_READ_WAIT || block->upload ||
            block->taken_ns >= since_ns)
            continue;
        slowest = holder;
        since_ns = block->taken_ns;
    }
    if (!slowest) return;
    if (slowest->ended) { /* it is not advanced yet */
        lm_http_block_give(io, slowest);
        return;
    }
    static const char why[] =
        "the head took longer than those of all other connections, and its place was needed";
    lm_add_single_writer_u64(&io->stats->io.connections_evicted, 1);
    if (lm_io_dialect(io, slowest)->carry) { /* of a stream, which is none yet */
        lm_http_block_give(io, slowest);
        lm_io_dialect(io, slowest)->give_up(io, slowest, LM_STATUS_BAD_REQUEST, why);
        return;
    }
    lm_http_refuse_unread(io, slowest, 408, why);
}

struct lm_http_block *lm_http_refuse_for_block(struct lm_io *io, struct lm_connection *connection) {
    struct lm_http_block *block = lm_http_block_take(io, connection);
    if (block) return block;
    evict_slowest(io);
    return lm_http_block_take(io, connection);
}

void lm_http_give_up(struct lm_io *io, struct lm_connection *connection, enum lm_status status,
                     const char *why) {
    uint32_t code = status == LM_STATUS_OVERLOADED ? 503 : 408;
    if (lm_connection_is_sending(connection) || connection->in_flight > 0) {
        lm_connection_abort(io, connection); /* the reply would stand in the place of another one */
        return;
    }
    if (!connection->recv_armed || connection->in.receiving == LM_NO_SLOT) {
        lm_http_refuse_unread(io, connection, code, why);
        return;
    }
    /* The kernel may still write into the slot: say it, and let the receive come back first. */
    connection->in.call.keep_alive = false;
    lm_http_answer_error(io, connection, code, code == 503 ? "Retry-After: 1\r\n" : NULL, why);
    lm_connection_end(io, connection);
}
