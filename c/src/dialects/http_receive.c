/* http_receive.c: HTTP's side of reading: heads, the JSON before the blobs, chunked bodies. I/O
 * thread only.
 *
 * What comes whole in one buffer is parsed there. What comes in pieces is put together in a block,
 * of which each I/O thread has a fixed number; when they run out, the connection that has held one
 * the longest is told that it is too slow. So a thousand clients that dribble heads cost a fixed
 * amount of memory, and a client that sends its head in one piece never waits for them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dialects/http.h"
#include "parts/oip_metadata.h"

/* The longest statistics there can be of these models. */
static size_t stats_bytes_max(const struct lm_shared *shared) {
    struct lm_oip_model_stats stats[LUMEN_MODELS_MAX];
    for (uint32_t m = 0; m < shared->model_count; m++) stats[m].name = shared->models[m].name;
    return lm_oip_stats_bytes_max(stats, shared->model_count);
}

int lm_http_open(struct lm_io *io) {
    struct lm_http_side *http = &io->http;
    http->blocks = calloc(LM_HTTP_BLOCKS, sizeof *http->blocks);
    http->draft_bytes = stats_bytes_max(io->shared);
    size_t figures_bytes = lm_http_figures_bytes_max(io->shared);
    if (figures_bytes > http->draft_bytes) http->draft_bytes = figures_bytes;
    http->draft = malloc(http->draft_bytes);
    if (!http->blocks || !http->draft)
        return lm_error(LUMEN_E_NOMEM, "no memory for the heads of HTTP requests");
    http->free_block = LM_NO_BLOCK;
    return lm_oip_parser_open(&http->parser, LM_HTTP_JSON_BYTES_MAX);
}

void lm_http_close(struct lm_io *io) {
    lm_oip_parser_close(io->http.parser);
    free(io->http.blocks);
    free(io->http.draft);
    io->http = (struct lm_http_side){0};
}

struct lm_http_block *lm_http_block(struct lm_io *io, const struct lm_connection *connection) {
    return connection->block == LM_NO_BLOCK ? NULL : &io->http.blocks[connection->block];
}

/* Ends the connection. What is no whole head yet counts as a request here: it is answered. */
static void refuse(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                   const char *why) {
    if (connection->read_state == LM_READ_HEADER) {
        connection->call.head_only = false; /* of the request before */
        lm_add_single_writer_u64(&io->stats->io.requests, 1);
        lm_add_single_writer_u64(&io->stats->io.http_requests, 1);
    }
    lm_http_refuse_close(io, connection, code, why);
}

void lm_http_give_up(struct lm_io *io, struct lm_connection *connection, uint32_t code,
                     const char *why) {
    if (!connection->recv_armed || connection->receiving == LM_NO_SLOT) {
        refuse(io, connection, code, why);
        lm_receive_continue(io, connection);
        return;
    }
    /* The kernel may still write into the slot: say it, and let the receive come back first. */
    connection->call.keep_alive = false;
    lm_http_answer_error(io, connection, code, code == 503 ? "Retry-After: 1\r\n" : NULL, why);
    lm_connection_end(io, connection);
}

/* Makes a block free by ending whoever has collected a head in one for the longest time. */
static void evict_slowest(struct lm_io *io) {
    struct lm_connection *slowest = NULL;
    uint64_t since_ns = UINT64_MAX;
    for (uint32_t b = 0; b < LM_HTTP_BLOCKS; b++) {
        struct lm_connection *holder = lm_io_connection(io, io->http.blocks[b].connection);
        if (holder->read_state == LM_READ_WAIT || io->http.blocks[b].taken_ns >= since_ns) continue;
        slowest = holder;
        since_ns = io->http.blocks[b].taken_ns;
    }
    if (!slowest) return;
    lm_add_single_writer_u64(&io->stats->io.connections_evicted, 1);
    refuse(io, slowest, 408,
           "the head took longer than those of all other connections, and its place was needed");
    lm_receive_continue(io, slowest);
    lm_connection_settle(io, slowest);
}

struct lm_http_block *lm_http_block_take(struct lm_io *io, struct lm_connection *connection) {
    struct lm_http_side *http = &io->http;
    bool all_used = http->blocks_used == LM_HTTP_BLOCKS;
    if (http->free_block == LM_NO_BLOCK && all_used) evict_slowest(io);
    if (http->free_block == LM_NO_BLOCK && all_used) return NULL;
    connection->block = http->free_block;
    if (connection->block == LM_NO_BLOCK) connection->block = http->blocks_used++;
    struct lm_http_block *block = &http->blocks[connection->block];
    if (connection->block == http->free_block) http->free_block = block->next_free;
    block->connection = connection->index;
    block->taken_ns = io->now_ns;
    block->used = 0;
    return block;
}

void lm_http_block_give(struct lm_io *io, struct lm_connection *connection) {
    struct lm_http_block *block = lm_http_block(io, connection);
    if (!block) return;
    block->connection = LM_NO_CONNECTION;
    block->next_free = io->http.free_block;
    io->http.free_block = connection->block;
    connection->block = LM_NO_BLOCK;
}

/* Adds bytes to the connection's block, up to `most` in all. Returns how many fitted; -1: there is
 * no block to be had, and the connection is refused. */
static int64_t collect(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                       size_t count, size_t most) {
    struct lm_http_block *block = lm_http_block(io, connection);
    if (!block) block = lm_http_block_take(io, connection);
    if (!block) {
        refuse(io, connection, 503, "too many requests arrive in pieces");
        return -1;
    }
    size_t taken = most - block->used < count ? most - block->used : count;
    memcpy(block->bytes + block->used, bytes, taken);
    block->used += (uint32_t)taken;
    connection->header_used = (uint16_t)block->used;
    return (int64_t)taken;
}

size_t lm_http_take_head(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                         size_t count) {
    struct lm_http_block *block = lm_http_block(io, connection);
    struct lm_http_head head;
    char why[LM_TEXT_BYTES_MAX];
    const char *text = (const char *)bytes;
    size_t have = count, before = block ? block->used : 0;
    if (!block && connection->header_used == 0) connection->started_ns = io->now_ns;
    if (block) {
        (void)collect(io, connection, bytes, count, LM_HTTP_HEAD_BYTES_MAX);
        text = block->bytes;
        have = block->used;
    }
    int used = lm_http_parse_head(text, have, before, &head, why, sizeof why);
    if (used < 0) {
        refuse(io, connection, (uint32_t)-used, why);
        return 0; /* from now on its bytes are dropped */
    }
    if (used == 0) {
        if (block) return have - before;
        int64_t taken = collect(io, connection, bytes, count, LM_HTTP_HEAD_BYTES_MAX);
        return taken < 0 ? 0 : (size_t)taken;
    }
    connection->header_used = 0;
    lm_http_admit(io, connection, &head);
    /* What it points to is no longer needed. A block taken since then is the next step's. */
    if (block && connection->block == (uint16_t)(block - io->http.blocks)) {
        lm_http_block_give(io, connection);
    }
    return (size_t)used - before;
}

size_t lm_http_take_json(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                         size_t count) {
    size_t whole = (size_t)connection->call.json_bytes, taken = whole;
    struct lm_http_block *block = lm_http_block(io, connection);
    const char *text = (const char *)bytes;
    if (block || count < whole) {
        int64_t collected = collect(io, connection, bytes, count, whole);
        if (collected < 0) return 0;
        taken = (size_t)collected;
        block = lm_http_block(io, connection);
        text = block->bytes;
    }
    connection->discard_bytes -= taken;
    if (block && block->used < whole) return taken;
    connection->header_used = 0;
    lm_http_admit_json(io, connection, text);
    return taken;
}

/* The answer comes when the body has ended: one that turns out malformed gets no success. */
size_t lm_http_drop_chunks(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                           size_t count) {
    struct lm_http_call *call = &connection->call;
    size_t taken = 0;
    while (taken < count) {
        size_t used = 0;
        struct lm_slice data = {0};
        char why[LM_TEXT_BYTES_MAX];
        int verdict = lm_http_chunks_feed(&call->chunks, (const char *)bytes + taken, count - taken,
                                          &used, &data, why, sizeof why);
        taken += used;
        call->content_bytes += data.bytes;
        if (verdict < 0 || call->content_bytes > io->shared->max_request_bytes) {
            if (verdict >= 0)
                snprintf(why, sizeof why, "the chunks hold more than the server takes");
            refuse(io, connection, verdict < 0 ? (uint32_t)-verdict : 413, why);
            return taken;
        }
        if (verdict == LM_HTTP_CHUNKS_DONE) {
            call->chunked = false;
            lm_http_skip_body(io, connection);
            lm_http_answer_route(io, connection);
            return taken;
        }
    }
    return taken;
}

size_t lm_http_take_chunks(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                           size_t count) {
    struct lm_request *request = &io->requests[connection->receiving];
    struct lm_http_exchange *http = &request->http;
    size_t taken = 0;
    while (taken < count) {
        size_t used = 0;
        struct lm_slice data = {0};
        char why[LM_TEXT_BYTES_MAX];
        int verdict = lm_http_chunks_feed(&http->chunks, (const char *)bytes + taken, count - taken,
                                          &used, &data, why, sizeof why);
        taken += used;
        if (verdict < 0 || data.bytes > http->text_room - http->text_bytes) {
            if (verdict >= 0)
                snprintf(why, sizeof why, "the chunks hold more than the server takes");
            refuse(io, connection, verdict < 0 ? (uint32_t)-verdict : 413, why);
            return taken;
        }
        if (data.bytes) memcpy(http->text + http->text_bytes, data.at, data.bytes);
        http->text_bytes += data.bytes;
        if (verdict == LM_HTTP_CHUNKS_DONE) {
            lm_http_admit_chunked(io, connection, request);
            return taken;
        }
    }
    return taken;
}
