/* http_receive.c: see http_receive.h. */
#include "dialects/http_receive.h"

#include <stdio.h>
#include <string.h>

#include "dialects/http_admit.h"
#include "dialects/http_block.h"
#include "dialects/http_errands.h"
#include "dialects/http_head.h"
#include "dialects/http_refuse.h"
#include "dialects/http_routes.h"
#include "dialects/http_shm.h"
#include "dialects/http_whole.h"
#include "flow/timers.h"
#include "wire/http_parser.h"

/* Adds bytes to the connection's block, up to `most` in all. Returns how many fitted; -1: there is
 * no block to be had, and the connection is refused. */
static int64_t collect(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                       size_t count, size_t most) {
    struct lm_http_block *block = lm_http_block(io, connection);
    if (!block) block = lm_http_refuse_for_block(io, connection);
    if (!block) {
        lm_http_refuse_unread(io, connection, 503, "too many requests arrive in pieces");
        return -1;
    }
    size_t taken = most - block->used < count ? most - block->used : count;
    memcpy(block->bytes + block->used, bytes, taken);
    block->used += (uint32_t)taken;
    connection->in.header_used = (uint16_t)block->used;
    return (int64_t)taken;
}

static size_t take_head(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                        size_t count) {
    struct lm_http_block *block = lm_http_block(io, connection);
    struct lm_http_head head;
    char why[LM_TEXT_BYTES_MAX];
    const char *text = (const char *)bytes;
    size_t have = count, before = block ? block->used : 0;
    if (!block && connection->in.header_used == 0) connection->in.started_ns = io->now_ns;
    if (block) {
        (void)collect(io, connection, bytes, count, LM_HTTP_HEAD_BYTES_MAX);
        text = block->bytes;
        have = block->used;
    }
    int used = lm_http_parse_head(text, have, before, &head, why, sizeof why);
    if (used < 0) {
        lm_http_refuse_unread(io, connection, (uint32_t)-used, why);
        return 0; /* from now on its bytes are dropped */
    }
    if (used == 0) {
        if (block) return have - before;
        int64_t taken = collect(io, connection, bytes, count, LM_HTTP_HEAD_BYTES_MAX);
        return taken < 0 ? 0 : (size_t)taken;
    }
    connection->in.header_used = 0;
    lm_http_take_head(io, connection, &head);
    /* The parsed head points into its block, and is used. A block taken since then stays. */
    bool keeps = lm_http_shm_collects(connection) || lm_http_errand_collects(connection);
    if (block && connection->in.block == (uint16_t)(block - io->http->blocks) && !keeps) {
        lm_http_block_give(io, connection);
    }
    return (size_t)used - before;
}

static size_t take_json(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                        size_t count) {
    size_t whole = (size_t)connection->in.call.json_bytes, taken = whole;
    struct lm_http_block *block = lm_http_block(io, connection);
    const char *text = (const char *)bytes;
    if (block && block->upload) return lm_http_upload_take(io, connection, block, bytes, count);
    if (block || count < whole) {
        int64_t collected = collect(io, connection, bytes, count, whole);
        if (collected < 0) return 0;
        taken = (size_t)collected;
        block = lm_http_block(io, connection);
        text = block->bytes;
    }
    connection->in.discard_bytes -= taken;
    if (block && block->used < whole) return taken;
    connection->in.header_used = 0;
    if (lm_http_shm_collects(connection)) {
        lm_http_shm_register(io, connection, text);
    } else if (lm_http_errand_collects(connection)) {
        lm_http_errand_received(io, connection, text);
    } else {
        lm_http_admit_json(io, connection, text);
    }
    return taken;
}

static void answer_dropped(struct lm_io *io, struct lm_connection *connection) {
    connection->in.call.chunked = false;
    lm_http_skip_body(io, connection);
    lm_http_answer_route(io, connection);
}

/* A chunked body: into the text of its request, or dropped where its route needs none. The answer
 * comes when the body has ended: one that turns out malformed gets no success. */
static size_t take_chunks(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                          size_t count) {
    struct lm_http_call *call = &connection->in.call;
    bool is_kept = connection->in.receiving != LM_NO_SLOT;
    struct lm_request *request = is_kept ? &io->requests[connection->in.receiving] : NULL;
    uint64_t *used_bytes = is_kept ? &request->body.bytes : &call->content_bytes;
    uint64_t room = is_kept ? request->body.room : io->shared->config.max_request_bytes;
    size_t taken = 0;
    while (taken < count) {
        size_t used = 0;
        struct lm_slice data = {0};
        char why[LM_TEXT_BYTES_MAX];
        int verdict = lm_http_chunks_feed(&call->chunks, (const char *)bytes + taken, count - taken,
                                          &used, &data, why, sizeof why);
        taken += used;
        if (verdict < 0 || data.bytes > room - *used_bytes) {
            if (verdict >= 0)
                snprintf(why, sizeof why, "the chunks hold more than the server takes");
            lm_http_refuse_unread(io, connection, verdict < 0 ? (uint32_t)-verdict : 413, why);
            return taken;
        }
        if (is_kept && data.bytes) memcpy(request->body.text + *used_bytes, data.at, data.bytes);
        *used_bytes += data.bytes;
        if (verdict != LM_HTTP_CHUNKS_DONE) continue;
        if (is_kept) {
            lm_http_chunks_received(io, connection, request);
        } else {
            answer_dropped(io, connection);
        }
        return taken;
    }
    return taken;
}

size_t lm_http_take(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                    size_t count) {
    if (connection->in.read_state == LM_READ_HEADER) return take_head(io, connection, bytes, count);
    if (connection->in.call.chunked) return take_chunks(io, connection, bytes, count);
    return take_json(io, connection, bytes, count);
}

uint64_t lm_http_prologue_deadline_ns(const struct lm_io *io,
                                      const struct lm_connection *connection) {
    const struct lm_http_call *call = &connection->in.call;
    const struct lm_http_block *block =
        connection->in.block == LM_NO_BLOCK ? NULL : &io->http->blocks[connection->in.block];
    if (block && block->upload)
        return lm_timer_body_ns(io, connection->in.started_ns, block->upload->text_bytes);
    if (!call->chunked)
        return lm_timer_after(connection->in.started_ns, io->shared->header_timeout_ns);
    if (connection->in.receiving == LM_NO_SLOT)
        return lm_timer_body_ns(io, connection->in.started_ns, call->content_bytes);
    const struct lm_request *request = &io->requests[connection->in.receiving];
    return lm_timer_body_ns(io, request->held_ns, request->body.bytes);
}
