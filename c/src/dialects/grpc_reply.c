/* grpc_reply.c: see grpc_reply.h. */
#include "dialects/grpc_reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "dialects/http2_put.h"
#include "formats/grpc_message.h"
#include "formats/grpc_route.h"
#include "wire/http2_head.h"
#include "wire/http_scan.h"
#include "work/load_figures.h"

enum { RAW_OUTPUTS = 6 }; /* raw_output_contents */

/* Of a status: all but its sentence. */
enum { PREFIX_BYTES_MAX = LM_GRPC_PREFIX_BYTES + 1 + LM_PB_VARINT_BYTES_MAX };
enum { OTHER_FIELDS_BYTES = 160 };

/* ---- a status ---- */

/* As gRPC has it: percent-encoded, but for what is plain. */
static void encode(const char *why, char *out, size_t room) {
    size_t used = 0;
    for (; *why && used + 4 < room; why++) {
        const bool is_plain = lm_http_is_plain(*why, ' ', false) && *why != '%';
        used += (size_t)snprintf(out + used, room - used, is_plain ? "%c" : "%%%02X",
                                 is_plain ? *why : (uint8_t)*why);
    }
    out[used] = '\0';
}

/* The fields of a status, alone or behind messages. */
static size_t put_status(bool is_alone, enum lm_grpc_status status, uint32_t retry_after_s,
                         const char *why, uint8_t *block, size_t room) {
    char text[LM_GRPC_BLOCK_BYTES_MAX], head[sizeof text + 256], wait[64] = "";
    LM_DEBUG_ASSERT(room > OTHER_FIELDS_BYTES && room <= LM_GRPC_BLOCK_BYTES_MAX);
    encode(why, text, room - OTHER_FIELDS_BYTES);
    if (retry_after_s)
        snprintf(wait, sizeof wait, "grpc-retry-pushback-ms: %u\r\n", retry_after_s * 1000);
    const int bytes = snprintf(
        head, sizeof head, "HTTP/1.1 200 OK\r\n%sgrpc-status: %d\r\ngrpc-message: %s\r\n%s%s\r\n",
        is_alone ? "content-type: application/grpc\r\n" : "", status, text, wait,
        status == LM_GRPC_UNIMPLEMENTED ? "grpc-accept-encoding: identity\r\n" : "");
    const size_t used = lm_http2_reply_head(head, (size_t)bytes, block, room);
    if (is_alone) return used;
    memmove(block, block + 1, used - 1); /* without :status, which one byte says */
    return used - 1;
}

void lm_grpc_finish(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                    enum lm_grpc_status status, const char *why) {
    struct lm_http2_carrier *http2 = lm_http2_of(io, carrier);
    struct lm_connection *connection = lm_http2_connection(io, stream);
    uint8_t block[LM_GRPC_STATUS_BYTES_MAX];
    stream->grpc.stage = LM_GRPC_OVER;
    if (stream->is_done) return;
    stream->is_done = true;
    if (connection && lm_connection_is_sending(connection) && stream->head_sent) {
        lm_http2_put_reset(http2, stream->id, LM_HTTP2_INTERNAL_ERROR); /* half a message is out */
    } else {
        const size_t bytes = put_status(!stream->head_sent, status, 0, why, block, sizeof block);
        lm_http2_put(http2, LM_HTTP2_HEADERS, LM_HTTP2_END_HEADERS | LM_HTTP2_END_STREAM,
                     stream->id, block, (uint32_t)bytes);
    }
    if (connection) lm_connection_abort(io, connection);
}

size_t lm_grpc_trailers(struct lm_io *io, uint8_t block[LM_GRPC_TRAILERS_BYTES]) {
    static const uint8_t fields[] = "\0\x0bgrpc-status\x01"
                                    "0"; /* neither kept nor looked up */
    const size_t bytes = sizeof fields - 1;
    _Static_assert(sizeof fields - 1 + LM_LOAD_FIELD_BYTES <= LM_GRPC_TRAILERS_BYTES, "its room");
    memcpy(block, fields, bytes);
    return bytes + lm_load_field(io->shared, io->now_ns, block + bytes);
}

/* ---- a reply of HTTP ---- */

struct reply {
    uint32_t code;
    uint32_t retry_after_s;
    struct lm_slice json;
    struct iovec *blobs; /* behind the JSON */
    size_t blob_count;
    struct iovec place; /* of the slot, which the message may take */
};

/* The number in a head's line; 0: there is no such line. */
static uint64_t number_in(struct lm_slice head, const char *line) {
    const char *at = memmem(head.at, head.bytes, line, strlen(line));
    return at ? strtoull(at + strlen(line), NULL, 10) : 0;
}

static struct reply read_reply(const struct lm_request *request) {
    struct iovec *parts = request->message.msg_iov;
    const size_t count = request->message.msg_iovlen;
    const char *text = parts[0].iov_base;
    const char *end = memmem(text, parts[0].iov_len, "\r\n\r\n", 4);
    const struct lm_slice head = lm_slice_between(text, end + 4);
    struct reply reply = {.code = (uint32_t)strtoul(text + 9, NULL, 10),
                          .retry_after_s = (uint32_t)number_in(head, "\r\nRetry-After: "),
                          .blobs = parts + 1,
                          .blob_count = count - 1};
    if (head.bytes < parts[0].iov_len) {
        reply.json = lm_slice_between(end + 4, text + parts[0].iov_len);
        reply.place = parts[0];
    } else if (count > 1) { /* the I/O thread's own, whose body may be a document */
        reply.json = (struct lm_slice){parts[1].iov_base, parts[1].iov_len};
        reply.blob_count = 0;
    }
    return reply;
}

static enum lm_grpc_status status_of(uint32_t code) {
    switch (code) {
    case 200: return LM_GRPC_OK;
    case 400:
    case 415:
    case 422: return LM_GRPC_INVALID_ARGUMENT;
    case 401: return LM_GRPC_UNAUTHENTICATED;
    case 403: return LM_GRPC_PERMISSION_DENIED;
    case 404: return LM_GRPC_NOT_FOUND;
    case 405:
    case 501: return LM_GRPC_UNIMPLEMENTED;
    case 408:
    case 504: return LM_GRPC_DEADLINE_EXCEEDED;
    case 409: return LM_GRPC_ALREADY_EXISTS;
    case 413:
    case 429:
    case 431: return LM_GRPC_RESOURCE_EXHAUSTED;
    case 503: return LM_GRPC_UNAVAILABLE;
    }
    return code >= 500 ? LM_GRPC_INTERNAL : LM_GRPC_UNKNOWN;
}

/* ---- messages ---- */

/* The one field of a method's message that HTTP's code decides. -1: the code decides none: the
 * message, or the refusal, comes from the body. */
static int verdict_of(enum lm_grpc_method_index method, uint32_t code) {
    const struct lm_grpc_method *row = &lm_grpc_methods[method];
    const bool is_health = row->form == LM_GRPC_AS_HEALTH;
    if (!is_health && row->form != LM_GRPC_AS_TRUTH) return -1;
    if (code == 200) return is_health ? LM_GRPC_SERVING : 1;
    if (code == 503) return is_health ? LM_GRPC_NOT_SERVING : 0;
    if (code != 404) return -1;
    if (!is_health) return 0;
    return row->answers_many ? LM_GRPC_SERVICE_UNKNOWN : -1; /* it may come yet */
}

/* The message as one piece, and where tensors belong into it. */
struct message {
    uint8_t *bytes;
    size_t used;
    uint32_t count;              /* of tensors */
    size_t cuts[LM_TENSORS_MAX]; /* where each follows */
};

/* A field of ModelInferResponse that a client asked for: no other message follows this one. */
static void put_final(struct lm_pb_writer *writer) {
    enum { PARAMETERS = 4, BOOL_PARAM = 1 };
    static const char key[] = "triton_final_response";
    static const uint8_t yes[] = {BOOL_PARAM << 3 | LM_PB_VARINT, 1};
    uint8_t *start = lm_pb_begin(writer, PARAMETERS);
    lm_pb_put_bytes(writer, LM_GRPC_MAP_KEY, key, sizeof key - 1);
    lm_pb_put_bytes(writer, LM_GRPC_MAP_VALUE, yes, sizeof yes);
    lm_pb_end(writer, start);
}

/* Tensors come behind everything else; each output has one, and be it empty. */
static bool put_outputs(struct lm_pb_writer *writer, const struct reply *reply, bool is_final,
                        struct message *message) {
    uint64_t sizes[LM_TENSORS_MAX];
    const uint8_t *start = writer->at;
    const int outputs = lm_grpc_from_infer_json(reply->json.at, reply->json.bytes, writer, sizes);
    if (is_final) put_final(writer);
    for (int o = 0; o < outputs; o++) {
        lm_pb_put_tag(writer, RAW_OUTPUTS, LM_PB_BYTES);
        lm_pb_put_varint(writer, sizes[o]);
        if (sizes[o]) message->cuts[message->count++] = (size_t)(writer->at - start);
    }
    return outputs >= 0 && !writer->is_full && message->count == reply->blob_count;
}

static bool write_message(struct lm_http2_stream *stream, const struct reply *reply, uint8_t *room,
                          size_t bytes, struct message *message) {
    const enum lm_grpc_method_index method = lm_grpc_method_of(stream);
    struct lm_pb_writer writer = {.at = room, .end = room + bytes};
    const int verdict = verdict_of(method, reply->code);
    bool is_good = true;
    message->bytes = room;
    switch ((enum lm_grpc_form)lm_grpc_methods[method].form) {
    case LM_GRPC_AS_TRUTH:
    case LM_GRPC_AS_HEALTH:
        lm_pb_put_tag(&writer, 1, LM_PB_VARINT);
        lm_pb_put_varint(&writer, (uint64_t)verdict);
        stream->grpc.serving = (uint8_t)verdict;
        break;
    case LM_GRPC_AS_TENSORS:
        is_good = put_outputs(&writer, reply, stream->grpc.wants_final, message);
        break;
    case LM_GRPC_AS_IT_IS: lm_pb_put(&writer, reply->json.at, reply->json.bytes); break;
    case LM_GRPC_AS_FIELDS:
    case LM_GRPC_AS_VALUE:
        is_good = lm_grpc_from_json(method, reply->json.at, reply->json.bytes, &writer);
        break;
    }
    message->used = (size_t)(writer.at - room);
    return is_good && !writer.is_full;
}

/* Where the message stays until it is sent: in the place of the JSON, else in the slot, or beside
 * it. NULL: there is no memory. */
static uint8_t *find_place(struct lm_request *request, const struct reply *reply, size_t bytes) {
    void *place = NULL;
    if (bytes <= reply->place.iov_len) return reply->place.iov_base;
    if (!reply->place.iov_len && bytes <= lm_slot_left(request->slot))
        return lm_slot_alloc(request->slot, bytes);
    if (lm_spill_take(&request->io->shared->spills, &request->spills, bytes, &place)) return NULL;
    return place;
}

/* Writes the bytes before a message: gRPC's prefix, and in a streamed reply the tag and the length
 * of the field that the message is. Returns how many. */
static size_t write_prefix(bool is_streamed, uint64_t bytes, uint8_t out[PREFIX_BYTES_MAX]) {
    enum { INFER_RESPONSE = 2 };
    struct lm_pb_writer writer = {.at = out + LM_GRPC_PREFIX_BYTES, .end = out + PREFIX_BYTES_MAX};
    if (is_streamed) {
        lm_pb_put_tag(&writer, INFER_RESPONSE, LM_PB_BYTES);
        lm_pb_put_varint(&writer, bytes);
    }
    const size_t used = (size_t)(writer.at - out);
    out[0] = 0;
    lm_http2_put_u32(out + 1, (uint32_t)(used - LM_GRPC_PREFIX_BYTES + bytes));
    return used;
}

/* The message, behind its prefix, becomes the reply. false: there is no memory. */
static bool set_reply(struct lm_request *request, const struct reply *reply,
                      const struct message *message, bool is_streamed) {
    struct iovec blobs[LM_TENSORS_MAX];
    uint8_t prefix[PREFIX_BYTES_MAX];
    uint64_t all = message->used;
    size_t from = 0;
    uint32_t parts = 0;
    for (uint32_t b = 0; b < message->count; b++) {
        blobs[b] = reply->blobs[b];
        all += blobs[b].iov_len;
    }
    const size_t before = write_prefix(is_streamed, all, prefix);
    uint8_t *place = all <= UINT32_MAX - PREFIX_BYTES_MAX
                         ? find_place(request, reply, before + message->used)
                         : NULL;
    if (!place) return false;
    memcpy(place, prefix, before);
    memcpy(place + before, message->bytes, message->used);
    const size_t end = before + message->used;
    for (uint32_t b = 0; b < message->count; b++) {
        const size_t cut = before + message->cuts[b];
        if (cut > from) request->reply[parts++] = (struct iovec){place + from, cut - from};
        request->reply[parts++] = blobs[b];
        from = cut;
    }
    if (end > from) request->reply[parts++] = (struct iovec){place + from, end - from};
    lm_request_set_message(request, parts);
    return true;
}

/* A streamed inference that went wrong: its stream goes on, and a message says what. */
static bool set_error(struct lm_request *request, const struct reply *reply, const char *why) {
    enum { ERROR_MESSAGE = 1 };
    uint8_t text[LM_TEXT_BYTES_MAX + 16];
    struct lm_pb_writer writer = {.at = text, .end = text + sizeof text};
    lm_pb_put_bytes(&writer, ERROR_MESSAGE, why, strlen(why));
    const struct message message = {.bytes = text, .used = (size_t)(writer.at - text)};
    return set_reply(request, reply, &message, false);
}

static bool set_message(struct lm_io *io, struct lm_http2_stream *stream,
                        struct lm_request *request, const struct reply *reply) {
    uint8_t *draft = (uint8_t *)io->http2->draft;
    size_t bytes = LM_GRPC_MESSAGE_TIMES * reply->json.bytes + LM_GRPC_MESSAGE_MORE;
    struct message message = {0};
    void *beside = NULL;
    if (bytes < LM_GRPC_DRAFT_BYTES) bytes = LM_GRPC_DRAFT_BYTES;
    if (bytes > LM_GRPC_DRAFT_BYTES) {
        if (lm_spill_take(&request->io->shared->spills, &request->spills, bytes, &beside))
            return false;
        draft = beside;
    }
    return write_message(stream, reply, draft, bytes, &message) &&
           set_reply(request, reply, &message,
                     lm_grpc_method_of(stream) == LM_GRPC_MODEL_STREAM_INFER);
}

size_t lm_grpc_compose(struct lm_io *io, struct lm_http2_stream *stream, struct lm_request *request,
                       uint8_t *block, size_t room) {
    static const char fields[] = "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\n\r\n";
    const enum lm_grpc_method_index method = lm_grpc_method_of(stream);
    struct reply reply = read_reply(request);
    char why[LM_TEXT_BYTES_MAX] = "the reply has no form as a message, or no memory";
    stream->grpc.is_composed = true;
    bool is_good = reply.code == 200 || verdict_of(method, reply.code) >= 0;
    if (!is_good) {
        lm_grpc_error_text(reply.json.at, reply.json.bytes, why, sizeof why);
    } else if (!set_message(io, stream, request, &reply)) {
        is_good = false;
        reply.code = 500;
    }
    if (!is_good && method == LM_GRPC_MODEL_STREAM_INFER) is_good = set_error(request, &reply, why);
    stream->grpc.is_message = is_good;
    if (!is_good)
        return put_status(!stream->head_sent, status_of(reply.code), reply.retry_after_s, why,
                          block, room);
    return stream->head_sent ? 0 : lm_http2_reply_head(fields, sizeof fields - 1, block, room);
}
