/* grpc_receive.c: see grpc_receive.h. */
#include "dialects/grpc_receive.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "dialects/grpc_reply.h"
#include "dialects/grpc_request.h"
#include "dialects/grpc_stream.h"
#include "dialects/http2_shelf.h"
#include "dialects/http_block.h"
#include "dialects/http_refuse.h"
#include "flow/receive.h"
#include "flow/slot_wait.h"
#include "formats/grpc_route.h"
#include "wire/inflate.h"

/* ---- its fields ---- */

/* The path of a head's first line, and where the fields begin. NULL: it asks for no POST. */
static const char *read_line(const char *head, size_t bytes, size_t *path_bytes,
                             const char **fields) {
    const char *end = memmem(head, bytes, " HTTP/1.1\r\n", 11);
    if (!end || memcmp(head, "POST ", 5) != 0) return NULL;
    *fields = end + 11;
    *path_bytes = (size_t)(end - head) - 5;
    return head + 5;
}

/* The client's fields wait in a block for the message, or for all of them. */
static void keep_fields(struct lm_io *io, struct lm_connection *carrier,
                        struct lm_http2_stream *stream, const char *fields, size_t bytes) {
    /* They end with this, and an empty line. A call of many messages goes on behind each answer. */
    static const char close[] = "connection: close\r\n";
    struct lm_connection *connection = lm_http2_connection(io, stream);
    struct lm_http_block *block = lm_http_refuse_for_block(io, connection);
    const bool is_long = lm_grpc_is_long(stream);
    const size_t kept = bytes - 2 - (is_long ? sizeof close - 1 : 0);
    if (!block || kept > sizeof block->bytes - LM_GRPC_HEAD_BYTES_MAX) {
        lm_grpc_refuse(
            io, carrier, stream, block ? LM_GRPC_RESOURCE_EXHAUSTED : LM_GRPC_UNAVAILABLE,
            block ? "the call's metadata are too long" : "too many requests arrive in pieces");
        return;
    }
    memcpy(block->bytes, fields, kept);
    block->used = stream->grpc.head_bytes = (uint16_t)kept;
    lm_connection_mark(io, connection); /* it has a timer from now on */
    if (is_long) {
        struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
        stream->grpc.block = lm_http_block_keep(io, connection, http2->kept);
        if (stream->grpc.block != LM_NO_BLOCK) http2->kept++;
        if (stream->grpc.block == LM_NO_BLOCK)
            lm_grpc_refuse(io, carrier, stream, LM_GRPC_RESOURCE_EXHAUSTED,
                           "too many calls of many messages are open");
        return;
    }
    connection->in.started_ns = io->now_ns;
    connection->in.header_used = 1; /* there is a request, whose timeout is a head's */
}

void lm_grpc_begin(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                   const char *head, size_t bytes) {
    struct lm_connection *connection = lm_http2_connection(io, stream);
    size_t path_bytes = 0;
    const char *fields = NULL, *path = read_line(head, bytes, &path_bytes, &fields);
    const enum lm_grpc_method_index method =
        path ? lm_grpc_find_method(path, path_bytes) : LM_GRPC_METHODS;
    char why[LM_TEXT_BYTES_MAX];
    stream->grpc.method = (uint8_t)(1 + method);
    stream->grpc.block = LM_NO_BLOCK;
    connection->dialect = LM_DIALECT_GRPC;
    if (method == LM_GRPC_METHODS) {
        stream->grpc.method = 1;
        snprintf(why, sizeof why, "unknown method: '%.*s'",
                 (int)(path_bytes < 100 ? path_bytes : 100), path ? path : "");
        lm_grpc_refuse(io, carrier, stream, LM_GRPC_UNIMPLEMENTED, why);
        return;
    }
    keep_fields(io, carrier, stream, fields, bytes - (size_t)(fields - head));
}

/* ---- its bytes ---- */

/* How its messages are compressed. */
static enum lm_coding coding_of(struct lm_io *io, const struct lm_http2_stream *stream) {
    static const char gzip[] = "\r\ngrpc-encoding: gzip\r\n",
                      deflate[] = "\r\ngrpc-encoding: deflate\r\n";
    const struct lm_slice fields = lm_grpc_fields(io, stream);
    if (!lm_grpc_infers(lm_grpc_method_of(stream))) return LM_CODING_UNKNOWN;
    if (memmem(fields.at, fields.bytes, gzip, sizeof gzip - 1)) return LM_CODING_PROTOBUF_GZIP;
    return memmem(fields.at, fields.bytes, deflate, sizeof deflate - 1) ? LM_CODING_PROTOBUF_DEFLATE
                                                                        : LM_CODING_UNKNOWN;
}

static size_t take_prefix(struct lm_io *io, struct lm_connection *carrier,
                          struct lm_http2_stream *stream, const uint8_t *bytes, size_t count) {
    struct lm_grpc_call *grpc = &stream->grpc;
    const size_t missing = (size_t)LM_GRPC_PREFIX_BYTES - grpc->used;
    const size_t taken = count < missing ? count : missing;
    char why[LM_TEXT_BYTES_MAX];
    struct lm_connection *connection = lm_http2_connection(io, stream);
    if (connection->in.header_used == 0) connection->in.started_ns = io->now_ns;
    connection->in.header_used = 1; /* there is a request, whose timeout is a head's */
    lm_connection_mark(io, connection);
    memcpy(grpc->bytes + grpc->used, bytes, taken);
    grpc->used = (uint8_t)(grpc->used + taken);
    if (taken < missing) return taken;
    const uint32_t length = lm_http2_get_u32(grpc->bytes + 1);
    const bool is_packed = grpc->bytes[0];
    grpc->coding = (uint8_t)(is_packed ? coding_of(io, stream) : LM_CODING_PROTOBUF);
    if (grpc->coding == LM_CODING_UNKNOWN) {
        lm_grpc_refuse(
            io, carrier, stream, LM_GRPC_UNIMPLEMENTED,
            "grpc-encoding: expected identity, and for an inference gzip or deflate, found a "
            "message of another");
    } else if (length > io->shared->config.max_request_bytes) {
        snprintf(why, sizeof why,
                 "message: expected at most %llu bytes (server.max_request_bytes), found %u",
                 (unsigned long long)io->shared->config.max_request_bytes, length);
        lm_grpc_refuse(io, carrier, stream, LM_GRPC_RESOURCE_EXHAUSTED, why);
    }
    grpc->stage = stream->is_done ? LM_GRPC_OVER : LM_GRPC_HEAD;
    grpc->left = length;
    grpc->scanned = 0;
    return taken;
}

/* Whether enough of a message is there for its request; where it is an inference's, what
 * lm_grpc_scan_head says of it. */
static bool is_ready(struct lm_http2_stream *stream, const uint8_t *message, size_t have,
                     uint64_t *tensor, size_t *begins) {
    const uint32_t all = lm_http2_get_u32(stream->grpc.bytes + 1);
    if (!lm_grpc_infers(lm_grpc_method_of(stream))) return have == all;
    if (stream->grpc.coding != LM_CODING_PROTOBUF) return have == all || have >= LM_GRPC_PEEK_BYTES;
    size_t scanned = stream->grpc.scanned;
    const bool is_there = lm_grpc_scan_head(message, have, all, &scanned, tensor, begins);
    stream->grpc.scanned = (uint16_t)scanned;
    return is_there || have >= LM_GRPC_HEAD_BYTES_MAX;
}

static size_t take_whole(struct lm_io *io, struct lm_http2_stream *stream, const uint8_t *bytes,
                         size_t count) {
    struct lm_grpc_call *grpc = &stream->grpc;
    const size_t most = count < grpc->left ? count : grpc->left;
    const size_t taken = lm_receive_give(io, lm_http2_connection(io, stream), bytes, most);
    grpc->left -= (uint32_t)taken;
    if (grpc->left == 0) grpc->stage = LM_GRPC_OVER;
    return taken;
}

/* A message that comes in pieces is put together in the connection's block. Where the client's
 * fields are in that block, and not in a kept one, the message stands behind them. */
static size_t take_head(struct lm_io *io, struct lm_connection *carrier,
                        struct lm_http2_stream *stream, const uint8_t *bytes, size_t count) {
    struct lm_grpc_call *grpc = &stream->grpc;
    struct lm_connection *connection = lm_http2_connection(io, stream);
    struct lm_http_block *block = lm_http_block(io, connection);
    const size_t base = grpc->block == LM_NO_BLOCK ? grpc->head_bytes : 0;
    const size_t before = block ? block->used - base : 0, room = LM_GRPC_HEAD_BYTES_MAX - before;
    size_t most = count < grpc->left ? count : grpc->left;
    if (most > room) most = room;
    uint64_t tensor = UINT64_MAX;
    size_t begins = 0;
    if (!block && base) return count; /* it was needed elsewhere, and the call is refused */
    if (before == 0 && is_ready(stream, bytes, most, &tensor, &begins))
        return lm_grpc_give(io, carrier, stream, bytes, most, tensor, begins);
    if (!block) block = lm_http_refuse_for_block(io, connection);
    if (!block) {
        lm_grpc_refuse(io, carrier, stream, LM_GRPC_UNAVAILABLE,
                       "too many requests arrive in pieces");
        return count;
    }
    if (most) memcpy(block->bytes + block->used, bytes, most);
    block->used += (uint32_t)most;
    grpc->left -= (uint32_t)most;
    const size_t have = before + most;
    const uint8_t *message = (const uint8_t *)block->bytes + base;
    if (is_ready(stream, message, have, &tensor, &begins)) {
        /* The block goes back to others: what it holds is read from a copy. */
        uint8_t copy[LM_GRPC_HEAD_BYTES_MAX];
        memcpy(copy, message, have);
        const size_t used = lm_grpc_give(io, carrier, stream, copy, have, tensor, begins);
        if (used > 0 || grpc->stage != LM_GRPC_WHOLE) return used - before;
        const size_t given = take_whole(io, stream, copy, have);
        /* Fewer: it waits for a slot. A message from a shelf is not put together here. */
        LM_DEBUG_ASSERT(given == have || !stream->shelf);
        if (given < have &&
            !lm_http2_shelve(lm_http2_of(io, carrier), stream, copy + given, have - given)) {
            lm_slot_wait_turn_away(io, connection, LM_STATUS_OVERLOADED,
                                   "no slot is free, and too much waits for one already");
            (void)take_whole(io, stream, copy + given, have - given); /* they are dropped */
        }
    } else if (have == LM_GRPC_HEAD_BYTES_MAX) {
        lm_grpc_refuse(io, carrier, stream, LM_GRPC_RESOURCE_EXHAUSTED,
                       "the message is too long: over HTTP this call may bring more");
    }
    return most;
}

/* Between tensors: the tag and the length of the next, which are known. */
static size_t take_tag(struct lm_io *io, struct lm_connection *carrier,
                       struct lm_http2_stream *stream, const uint8_t *bytes, size_t count) {
    struct lm_grpc_call *grpc = &stream->grpc;
    uint8_t expected[1 + LM_PB_VARINT_BYTES_MAX];
    struct lm_pb_writer writer = {.at = expected, .end = expected + sizeof expected};
    const uint32_t next = grpc->blob_at + 1u;
    const uint32_t blob = next < grpc->blob_count ? grpc->blobs[next] : 0;
    lm_pb_put_tag(&writer, LM_GRPC_RAW_INPUTS, LM_PB_BYTES);
    lm_pb_put_varint(&writer, blob);
    const size_t all = (size_t)(writer.at - expected), missing = all - grpc->used;
    const size_t taken = count < missing ? count : missing;
    if (memcmp(expected + grpc->used, bytes, taken) != 0) {
        char why[LM_TEXT_BYTES_MAX];
        snprintf(why, sizeof why,
                 "raw_input_contents[%u]: expected %u bytes, as its input's shape has", next, blob);
        lm_grpc_finish(io, carrier, stream, LM_GRPC_INVALID_ARGUMENT, why);
        return count;
    }
    grpc->used = (uint8_t)(grpc->used + taken);
    if (taken < missing) return taken;
    grpc->used = 0;
    grpc->blob_at = (uint8_t)next;
    grpc->blob_left = blob;
    return taken;
}

void lm_grpc_placed(struct lm_http2_stream *stream, size_t bytes) {
    struct lm_grpc_call *grpc = &stream->grpc;
    if (grpc->stage == LM_GRPC_TENSORS) grpc->blob_left -= (uint32_t)bytes;
    grpc->left -= (uint32_t)bytes;
    if (grpc->left == 0) grpc->stage = LM_GRPC_OVER;
}

static size_t take_tensors(struct lm_io *io, struct lm_connection *carrier,
                           struct lm_http2_stream *stream, const uint8_t *bytes, size_t count) {
    struct lm_grpc_call *grpc = &stream->grpc;
    const size_t most = count < grpc->left ? count : grpc->left;
    size_t taken = 0;
    if (grpc->blob_left > 0) {
        taken = lm_receive_give(io, lm_http2_connection(io, stream), bytes,
                                most < grpc->blob_left ? most : grpc->blob_left);
        grpc->blob_left -= (uint32_t)taken;
    } else {
        taken = take_tag(io, carrier, stream, bytes, most);
    }
    grpc->left -= (uint32_t)taken;
    if (grpc->left == 0) grpc->stage = LM_GRPC_OVER;
    return taken;
}

static size_t take(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                   const uint8_t *bytes, size_t count) {
    switch ((enum lm_grpc_stage)stream->grpc.stage) {
    case LM_GRPC_PREFIX: return take_prefix(io, carrier, stream, bytes, count);
    case LM_GRPC_HEAD: return take_head(io, carrier, stream, bytes, count);
    case LM_GRPC_TENSORS: return take_tensors(io, carrier, stream, bytes, count);
    case LM_GRPC_WHOLE: return take_whole(io, stream, bytes, count);
    case LM_GRPC_OVER: break;
    }
    if (lm_grpc_methods[lm_grpc_method_of(stream)].asks_many) {
        if (!lm_grpc_may_begin(io, stream)) return 0;
        stream->grpc.stage = LM_GRPC_PREFIX;
        stream->grpc.used = 0;
        return 0;
    }
    lm_grpc_finish(io, carrier, stream, LM_GRPC_INVALID_ARGUMENT,
                   "expected one message, found bytes behind it");
    return count;
}

size_t lm_grpc_take(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                    const uint8_t *bytes, size_t count) {
    const uint16_t shelf = stream->shelf;
    size_t used = 0;
    bool goes_on = true;
    while (goes_on) {
        const struct lm_connection *connection = lm_http2_connection(io, stream);
        if (stream->is_done || !connection || connection->ended) return count;
        const uint8_t stage = stream->grpc.stage;
        const size_t taken = take(io, carrier, stream, bytes + used, count - used);
        used += taken;
        /* A message of no bytes is whole when its prefix is. */
        const bool is_empty = stream->grpc.stage == LM_GRPC_HEAD && stream->grpc.left == 0;
        goes_on = (used < count && (taken > 0 || stream->grpc.stage != stage)) ||
                  (is_empty && stage == LM_GRPC_PREFIX);
        if (stream->shelf != shelf) goes_on = false; /* the rest comes behind what is there now */
    }
    return used;
}

void lm_grpc_end(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream) {
    const struct lm_grpc_call *grpc = &stream->grpc;
    const bool is_between = grpc->stage == LM_GRPC_PREFIX && !grpc->used;
    if (grpc->stage == LM_GRPC_OVER || stream->is_done) return;
    if (is_between && lm_grpc_methods[lm_grpc_method_of(stream)].asks_many)
        return; /* it ends when it is looked at */
    const char *why =
        is_between ? "expected one message, found none" : "the message ends before its length says";
    if (grpc->stage == LM_GRPC_PREFIX || grpc->stage == LM_GRPC_HEAD) {
        lm_grpc_refuse(io, carrier, stream, LM_GRPC_INVALID_ARGUMENT, why);
    } else {
        lm_grpc_finish(io, carrier, stream, LM_GRPC_INVALID_ARGUMENT, why);
    }
}
