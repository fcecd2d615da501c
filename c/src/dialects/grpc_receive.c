/* grpc_receive.c: see grpc_receive.h. */
#include "dialects/grpc_receive.h"

#include <stdio.h>
#include <string.h>

#include "dialects/grpc_reply.h"
#include "dialects/grpc_stream.h"
#include "dialects/http_block.h"
#include "dialects/http_refuse.h"
#include "flow/receive.h"
#include "formats/grpc_route.h"

/* Answers a call that has no request; there is no one else to count it. */
static void refuse(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                   enum lm_grpc_status status, const char *why) {
    lm_http_count(io, lm_http2_connection(io, stream));
    lm_refusal_count(io,
                     status == LM_GRPC_RESOURCE_EXHAUSTED ? LM_STATUS_TOO_LARGE
                     : status == LM_GRPC_UNAVAILABLE      ? LM_STATUS_OVERLOADED
                                                          : LM_STATUS_BAD_REQUEST,
                     LM_NO_MODEL);
    lm_grpc_finish(io, carrier, stream, status, why);
}

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
        refuse(io, carrier, stream, block ? LM_GRPC_RESOURCE_EXHAUSTED : LM_GRPC_UNAVAILABLE,
               block ? "the call's metadata are too long" : "too many requests arrive in pieces");
        return;
    }
    memcpy(block->bytes, fields, kept);
    block->used = stream->grpc.head_bytes = (uint16_t)kept;
    if (is_long) {
        stream->grpc.block = lm_http_block_keep(io, connection);
        if (stream->grpc.block == LM_NO_BLOCK)
            refuse(io, carrier, stream, LM_GRPC_RESOURCE_EXHAUSTED,
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
        refuse(io, carrier, stream, LM_GRPC_UNIMPLEMENTED, why);
        return;
    }
    keep_fields(io, carrier, stream, fields, bytes - (size_t)(fields - head));
}

/* ---- its request ---- */

/* Puts the head together behind its first line, which is there, with the client's own fields, and
 * gives it and the JSON to the request. `content` is the length of the whole body. */
static void give_request(struct lm_io *io, struct lm_connection *connection,
                         struct lm_http2_stream *stream, struct lm_grpc_text *head,
                         const char *json, size_t json_bytes, uint64_t content,
                         const char *coding) {
    const bool is_kept = stream->grpc.block != LM_NO_BLOCK;
    const struct lm_http_block *block =
        is_kept ? &io->http->blocks[stream->grpc.block] : lm_http_block(io, connection);
    char lines[160];
    int used = snprintf(lines, sizeof lines, "content-length: %llu\r\n%s",
                        (unsigned long long)content, coding);
    if (content > json_bytes && !*coding)
        used += snprintf(lines + used, sizeof lines - (size_t)used,
                         "inference-header-content-length: %zu\r\n", json_bytes);
    lm_grpc_put(head, block->bytes, stream->grpc.head_bytes);
    lm_grpc_put(head, lines, (size_t)used);
    lm_grpc_puts(head, "\r\n");
    lm_grpc_put(head, json, json_bytes);
    lm_http_block_give(io, connection);
    connection->in.header_used = 0;
    const char *start = io->http2->draft;
    (void)lm_receive_give(io, connection, (const uint8_t *)start, (size_t)(head->at - start));
}

/* The message needs nothing but its fields. */
static void give_call(struct lm_io *io, struct lm_connection *carrier,
                      struct lm_http2_stream *stream, const uint8_t *message, size_t bytes) {
    struct lm_connection *connection = lm_http2_connection(io, stream);
    char *draft = io->http2->draft;
    stream->grpc.stage = LM_GRPC_OVER;
    if (!lm_grpc_methods[lm_grpc_method_of(stream)].request) {
        lm_grpc_answer(io, stream, message, bytes);
        return;
    }
    const size_t third = LM_GRPC_DRAFT_BYTES / 3;
    struct lm_grpc_text head = {.at = draft, .end = draft + 2 * third};
    struct lm_grpc_text body = {.at = draft + 2 * third, .end = draft + 3 * third};
    const char *json = body.at;
    const char *why = lm_grpc_route(lm_grpc_method_of(stream), message, bytes, &head, &body);
    if (why) {
        refuse(io, carrier, stream, LM_GRPC_INVALID_ARGUMENT, why);
        return;
    }
    if (lm_grpc_method_of(stream) == LM_GRPC_WATCH)
        lm_grpc_watch(io, carrier, stream, message, bytes);
    const size_t json_bytes = (size_t)(body.at - json);
    give_request(io, connection, stream, &head, json, json_bytes, json_bytes, "");
}

/* The message brings tensors. `bytes` of it are there, of which `begins` stand before the first
 * tensor's bytes, `scanned` before its tag. Returns how many are taken. */
static size_t give_inference(struct lm_io *io, struct lm_connection *carrier,
                             struct lm_http2_stream *stream, const uint8_t *message, size_t bytes,
                             size_t begins, uint64_t tensor) {
    struct lm_grpc_call *grpc = &stream->grpc;
    struct lm_connection *connection = lm_http2_connection(io, stream);
    const size_t third = LM_GRPC_DRAFT_BYTES / 3;
    const size_t fields = tensor == UINT64_MAX ? bytes : grpc->scanned;
    char *draft = io->http2->draft, *json = draft + 2 * third, why[LM_TEXT_BYTES_MAX];
    struct lm_grpc_text head = {.at = draft, .end = draft + 2 * third};
    struct lm_grpc_text none = {.at = json, .end = json};
    const uint64_t all = lm_http2_get_u32(grpc->bytes + 1);
    struct lm_grpc_plan plan = {0};
    const bool is_cut = tensor == UINT64_MAX && bytes < all; /* there is more than fields */
    const char *wrong = lm_grpc_route(lm_grpc_method_of(stream), message, fields, &head, &none);
    grpc->stage = LM_GRPC_OVER;
    grpc->wants_final = lm_grpc_wants_final(message, fields);
    const bool is_good = !wrong && (is_cut || lm_grpc_plan(message, fields, all - fields, tensor,
                                                           json, third, &plan, why, sizeof why));
    if (!is_good) {
        refuse(io, carrier, stream, LM_GRPC_INVALID_ARGUMENT, wrong ? wrong : why);
        return bytes;
    }
    if (!plan.is_plain) {
        grpc->stage = LM_GRPC_WHOLE;
        grpc->left = (uint32_t)all;
        give_request(io, connection, stream, &head, "", 0, all, "content-encoding: x-protobuf\r\n");
        return 0;
    }
    uint64_t content = plan.json_bytes;
    for (uint32_t b = 0; b < plan.blob_count; b++) content += plan.blobs[b];
    memcpy(grpc->blobs, plan.blobs, sizeof grpc->blobs);
    grpc->blob_count = (uint8_t)plan.blob_count;
    grpc->blob_at = grpc->used = 0;
    grpc->blob_left = plan.blob_count ? plan.blobs[0] : 0;
    grpc->left = (uint32_t)(all - begins);
    grpc->stage = grpc->left ? LM_GRPC_TENSORS : LM_GRPC_OVER;
    give_request(io, connection, stream, &head, json, plan.json_bytes, content, "");
    return begins;
}

/* ---- its bytes ---- */

static size_t take_prefix(struct lm_io *io, struct lm_connection *carrier,
                          struct lm_http2_stream *stream, const uint8_t *bytes, size_t count) {
    struct lm_grpc_call *grpc = &stream->grpc;
    const size_t missing = (size_t)LM_GRPC_PREFIX_BYTES - grpc->used;
    const size_t taken = count < missing ? count : missing;
    char why[LM_TEXT_BYTES_MAX];
    struct lm_connection *connection = lm_http2_connection(io, stream);
    if (connection->in.header_used == 0) connection->in.started_ns = io->now_ns;
    connection->in.header_used = 1; /* there is a request, whose timeout is a head's */
    memcpy(grpc->bytes + grpc->used, bytes, taken);
    grpc->used = (uint8_t)(grpc->used + taken);
    if (taken < missing) return taken;
    const uint32_t length = lm_http2_get_u32(grpc->bytes + 1);
    if (grpc->bytes[0]) {
        refuse(io, carrier, stream, LM_GRPC_UNIMPLEMENTED,
               "grpc-encoding: expected identity, found a compressed message");
    } else if (length > io->shared->config.max_request_bytes) {
        snprintf(why, sizeof why,
                 "message: expected at most %llu bytes (server.max_request_bytes), found %u",
                 (unsigned long long)io->shared->config.max_request_bytes, length);
        refuse(io, carrier, stream, LM_GRPC_RESOURCE_EXHAUSTED, why);
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
    if (!lm_grpc_infers((uint8_t)lm_grpc_method_of(stream))) return have == all;
    size_t scanned = stream->grpc.scanned;
    const bool is_there = lm_grpc_scan_head(message, have, all, &scanned, tensor, begins);
    stream->grpc.scanned = (uint16_t)scanned;
    return is_there || have >= LM_GRPC_HEAD_BYTES_MAX;
}

static size_t give(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                   const uint8_t *message, size_t have, uint64_t tensor, size_t begins) {
    if (lm_grpc_infers((uint8_t)lm_grpc_method_of(stream)))
        return give_inference(io, carrier, stream, message, have, begins, tensor);
    give_call(io, carrier, stream, message, have);
    return have;
}

/* What there is of a message is in the connection's block, behind the client's fields where they
 * are not kept elsewhere. */
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
        return give(io, carrier, stream, bytes, most, tensor, begins);
    if (!block) block = lm_http_refuse_for_block(io, connection);
    if (!block) {
        refuse(io, carrier, stream, LM_GRPC_UNAVAILABLE, "too many requests arrive in pieces");
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
        const size_t used = give(io, carrier, stream, copy, have, tensor, begins);
        if (used > 0 || grpc->stage != LM_GRPC_WHOLE) return used - before;
        const size_t given = lm_receive_give(io, connection, copy, have);
        grpc->left -= (uint32_t)given;
        if (given < have)
            lm_grpc_finish(io, carrier, stream, LM_GRPC_UNAVAILABLE,
                           "no slot is free for a message that came in pieces");
        if (grpc->left == 0) grpc->stage = LM_GRPC_OVER;
    } else if (have == LM_GRPC_HEAD_BYTES_MAX) {
        refuse(io, carrier, stream, LM_GRPC_RESOURCE_EXHAUSTED,
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

static size_t take_whole(struct lm_io *io, struct lm_http2_stream *stream, const uint8_t *bytes,
                         size_t count) {
    struct lm_grpc_call *grpc = &stream->grpc;
    const size_t most = count < grpc->left ? count : grpc->left;
    const size_t taken = lm_receive_give(io, lm_http2_connection(io, stream), bytes, most);
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
        refuse(io, carrier, stream, LM_GRPC_INVALID_ARGUMENT, why);
    } else {
        lm_grpc_finish(io, carrier, stream, LM_GRPC_INVALID_ARGUMENT, why);
    }
}
