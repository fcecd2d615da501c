/* grpc_request.c: see grpc_request.h. */
#include "dialects/grpc_request.h"

#include <string.h>

#include "dialects/grpc_reply.h"
#include "dialects/grpc_stream.h"
#include "dialects/http_block.h"
#include "dialects/http_demand.h"
#include "dialects/http_refuse.h"
#include "flow/receive.h"
#include "flow/slot_wait.h"
#include "formats/grpc_route.h"
#include "wire/inflate.h"

void lm_grpc_refuse(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                    enum lm_grpc_status status, const char *why) {
    lm_http_count(io, lm_http2_connection(io, stream));
    lm_refusal_count(io,
                     status == LM_GRPC_RESOURCE_EXHAUSTED ? LM_STATUS_TOO_LARGE
                     : status == LM_GRPC_UNAVAILABLE      ? LM_STATUS_OVERLOADED
                                                          : LM_STATUS_BAD_REQUEST,
                     LM_NO_MODEL);
    lm_grpc_finish(io, carrier, stream, status, why);
}

struct lm_slice lm_grpc_fields(struct lm_io *io, const struct lm_http2_stream *stream) {
    const struct lm_http_block *block = stream->grpc.block == LM_NO_BLOCK
                                            ? lm_http_block(io, lm_http2_connection(io, stream))
                                            : &io->http->blocks[stream->grpc.block];
    return (struct lm_slice){block ? block->bytes : "", block ? stream->grpc.head_bytes : 0};
}

static void give(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                 size_t count) {
    const size_t given = lm_receive_give(io, connection, bytes, count), left = count - given;
    if (left == 0 || lm_http_demand_keep(io, connection, bytes + given, left)) return;
    lm_slot_wait_turn_away(
        io, connection, LM_STATUS_OVERLOADED,
        "no slot is free, and what the request asks is too long to wait for one");
    (void)lm_receive_give(io, connection, bytes + given, left); /* they are dropped */
}

/* Puts the head together behind its first line, which is there, with the client's own fields, and
 * gives it and the JSON to the request. `content` is the length of the whole body. */
static void give_request(struct lm_io *io, struct lm_connection *carrier,
                         struct lm_http2_stream *stream, struct lm_grpc_text *head,
                         const char *json, size_t json_bytes, uint64_t content,
                         const char *coding) {
    struct lm_connection *connection = lm_http2_connection(io, stream);
    const struct lm_slice fields = lm_grpc_fields(io, stream);
    lm_grpc_put(head, fields.at, fields.bytes);
    lm_grpc_puts(head, "content-length: ");
    lm_grpc_put_number(head, content);
    lm_grpc_puts(head, "\r\n");
    lm_grpc_puts(head, coding);
    if (content > json_bytes && !*coding) {
        lm_grpc_puts(head, "inference-header-content-length: ");
        lm_grpc_put_number(head, json_bytes);
        lm_grpc_puts(head, "\r\n");
    }
    lm_grpc_puts(head, "\r\n");
    lm_grpc_put(head, json, json_bytes);
    lm_http_block_give(io, connection);
    connection->in.header_used = 0;
    const char *start = io->http2->draft;
    const size_t bytes = (size_t)(head->at - start);
    if (head->is_full) {
        lm_grpc_refuse(io, carrier, stream, LM_GRPC_RESOURCE_EXHAUSTED,
                       "the request's names, shapes and parameters are too long");
    } else {
        give(io, connection, (const uint8_t *)start, bytes);
    }
}

/* The message needs nothing but its fields. */
static void give_call(struct lm_io *io, struct lm_connection *carrier,
                      struct lm_http2_stream *stream, const uint8_t *message, size_t bytes) {
    char *draft = io->http2->draft;
    stream->grpc.stage = LM_GRPC_OVER;
    if (lm_grpc_methods[lm_grpc_method_of(stream)].form == LM_GRPC_AS_IT_IS) {
        lm_grpc_answer(io, stream, message, bytes);
        return;
    }
    const size_t third = LM_GRPC_DRAFT_BYTES / 3;
    struct lm_grpc_text head = {.at = draft, .end = draft + 2 * third};
    struct lm_grpc_text body = {.at = draft + 2 * third, .end = draft + 3 * third};
    const char *json = body.at;
    const char *why = lm_grpc_route(lm_grpc_method_of(stream), message, bytes, &head, &body);
    if (why) {
        lm_grpc_refuse(io, carrier, stream, LM_GRPC_INVALID_ARGUMENT, why);
        return;
    }
    if (lm_grpc_method_of(stream) == LM_GRPC_WATCH)
        lm_grpc_watch(io, carrier, stream, message, bytes);
    const size_t json_bytes = (size_t)(body.at - json);
    give_request(io, carrier, stream, &head, json, json_bytes, json_bytes, "");
}

static const char *const codings[] = {
    [LM_CODING_PROTOBUF] = "content-encoding: x-protobuf\r\n",
    [LM_CODING_PROTOBUF_GZIP] = "content-encoding: x-protobuf+gzip\r\n",
    [LM_CODING_PROTOBUF_DEFLATE] = "content-encoding: x-protobuf+deflate\r\n"};

/* The first bytes of a compressed message, which name the model. Returns how many. */
static size_t peek(struct lm_io *io, const struct lm_http2_stream *stream, const uint8_t *message,
                   size_t bytes, uint8_t out[LM_GRPC_PEEK_BYTES]) {
    char why[LM_TEXT_BYTES_MAX];
    size_t used = 0;
    (void)lm_inflate(io->http2->inflater, lm_coding_of_message(stream->grpc.coding), message, bytes,
                     out, LM_GRPC_PEEK_BYTES, &used, why, sizeof why); /* the rest is to come */
    return used;
}

/* The message brings tensors. `bytes` of it are there, of which `begins` stand before the first
 * tensor's bytes, `scanned` before its tag. Returns how many are taken. */
static size_t give_inference(struct lm_io *io, struct lm_connection *carrier,
                             struct lm_http2_stream *stream, const uint8_t *message, size_t bytes,
                             size_t begins, uint64_t tensor) {
    struct lm_grpc_call *grpc = &stream->grpc;
    const size_t third = LM_GRPC_DRAFT_BYTES / 3;
    const size_t fields = tensor == UINT64_MAX ? bytes : grpc->scanned;
    char *draft = io->http2->draft, *json = draft + 2 * third, why[LM_TEXT_BYTES_MAX];
    struct lm_grpc_text head = {.at = draft, .end = draft + 2 * third};
    struct lm_grpc_text none = {.at = json, .end = json};
    const uint64_t all = lm_http2_get_u32(grpc->bytes + 1);
    struct lm_grpc_plan plan = {0};
    const bool is_packed = grpc->coding != LM_CODING_PROTOBUF;
    const bool is_cut = tensor == UINT64_MAX && bytes < all; /* there is more than fields */
    uint8_t peeked[LM_GRPC_PEEK_BYTES];
    const size_t seen = is_packed ? peek(io, stream, message, bytes, peeked) : fields;
    const uint8_t *names = is_packed ? peeked : message;
    const char *wrong = lm_grpc_route(lm_grpc_method_of(stream), names, seen, &head, &none);
    grpc->stage = LM_GRPC_OVER;
    grpc->wants_final = lm_grpc_wants_final(names, seen);
    const bool is_good = !wrong && (is_cut || is_packed ||
                                    lm_grpc_plan(message, fields, all - fields, tensor, json, third,
                                                 &plan, why, sizeof why));
    if (!is_good) {
        lm_grpc_refuse(io, carrier, stream, LM_GRPC_INVALID_ARGUMENT, wrong ? wrong : why);
        return bytes;
    }
    if (!plan.is_plain) {
        grpc->stage = LM_GRPC_WHOLE;
        grpc->left = (uint32_t)all;
        give_request(io, carrier, stream, &head, "", 0, all, codings[grpc->coding]);
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
    give_request(io, carrier, stream, &head, json, plan.json_bytes, content, "");
    return begins;
}

size_t lm_grpc_give(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                    const uint8_t *message, size_t have, uint64_t tensor, size_t begins) {
    if (lm_grpc_infers(lm_grpc_method_of(stream)))
        return give_inference(io, carrier, stream, message, have, begins, tensor);
    give_call(io, carrier, stream, message, have);
    return have;
}
