/* grpc_stream.c: see grpc_stream.h. */
#include "dialects/grpc_stream.h"

#include <stdio.h>
#include <string.h>

#include "dialects/grpc_reply.h"
#include "dialects/http2_put.h"
#include "dialects/http_block.h"
#include "dialects/http_refuse.h"
#include "dialects/http_routes.h"
#include "flow/reply.h"
#include "formats/grpc_describe.h"
#include "formats/grpc_route.h"

enum { WATCH_MS = 200 };

/* As heads of HTTP: grpc_reply.c makes messages of them. */
static const char head_200[] = "HTTP/1.1 200 OK\r\n\r\n", head_400[] = "HTTP/1.1 400 \r\n\r\n",
                  head_404[] = "HTTP/1.1 404 \r\n\r\n", head_503[] = "HTTP/1.1 503 \r\n\r\n";

static bool is_idle(const struct lm_io *io, const struct lm_connection *connection) {
    return connection->in.read_state == LM_READ_HEADER && connection->in_flight == 0 &&
           lm_connection_may_parse(io, connection);
}

bool lm_grpc_may_begin(const struct lm_io *io, const struct lm_http2_stream *stream) {
    return is_idle(io, &io->connections[stream->connection]);
}

void lm_grpc_answer(struct lm_io *io, struct lm_http2_stream *stream, const uint8_t *message,
                    size_t bytes) {
    struct lm_connection *connection = lm_http2_connection(io, stream);
    uint8_t *draft = (uint8_t *)io->http2->draft;
    struct lm_pb_writer writer = {.at = draft, .end = draft + LM_GRPC_DRAFT_BYTES};
    static const char why[] = "the bytes are no ServerReflectionRequest";
    const bool is_good = lm_grpc_describe(message, bytes, &writer);
    lm_http_block_give(io, connection);
    connection->in.header_used = 0;
    lm_http_count(io, connection);
    if (is_good) lm_add_single_writer_u64(&io->stats->io.requests_ok, 1);
    if (!is_good) lm_refusal_count(io, LM_STATUS_BAD_REQUEST, LM_NO_MODEL);
    if (is_good) {
        lm_reply_bytes(io, connection, head_200, sizeof head_200 - 1, draft,
                       (size_t)(writer.at - draft), false);
    } else {
        lm_reply_bytes(io, connection, head_400, sizeof head_400 - 1, why, sizeof why - 1, true);
    }
}

/* ---- health ---- */

void lm_grpc_watch(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream,
                   const uint8_t *message, size_t bytes) {
    struct lm_http_block *block = &io->http->blocks[stream->grpc.block];
    const struct lm_pb_field service = lm_grpc_string_of(message, bytes, 1);
    const size_t room = sizeof block->region - 1;
    const size_t kept = service.value < room ? service.value : room; /* no name is longer */
    memcpy(block->region, service.bytes, kept);
    block->region[kept] = '\0';
    if (strcmp(block->region, lm_grpc_services[LM_GRPC_INFERENCE]) == 0) block->region[0] = '\0';
    stream->grpc.is_watched = lm_http2_connection(io, stream)->watches = true;
    lm_http2_of(io, carrier)->watched++;
    io->http2->watched++;
}

/* The head that says how it is now, as HTTP would. */
static const char *health(const struct lm_io *io, const char *name) {
    const struct lm_model *model = NULL;
    char text[LM_TEXT_BYTES_MAX];
    if (*name) model = lm_model_set_version(io->models, name, 0);
    if (*name && !model) model = lm_model_set_named(io->models, name);
    if (*name && !model) return head_404;
    return lm_http_why_unready(io, model ? model->index : LM_NO_MODEL, text) ? head_503 : head_200;
}

static void look_at_health(struct lm_io *io, struct lm_http2_stream *stream,
                           struct lm_connection *connection) {
    const char *head = health(io, io->http->blocks[stream->grpc.block].region);
    const uint8_t serving = head == head_200   ? LM_GRPC_SERVING
                            : head == head_503 ? LM_GRPC_NOT_SERVING
                                               : LM_GRPC_SERVICE_UNKNOWN;
    if (serving != stream->grpc.serving)
        lm_reply_bytes(io, connection, head, strlen(head), NULL, 0, true);
}

void lm_grpc_look_at_watched(struct lm_io *io) {
    struct lm_http2_side *side = io->http2;
    if (!side->watched || io->now_ns < side->next_watch_ns) return;
    side->next_watch_ns = io->now_ns + WATCH_MS * 1000000ull;
    for (uint32_t c = 0; c < side->used; c++) {
        const struct lm_http2_carrier *http2 = &side->entries[c];
        if (http2->watched) lm_connection_mark(io, lm_io_connection(io, http2->connection));
    }
}

uint64_t lm_grpc_watch_ns(const struct lm_io *io) {
    return io->http2->watched ? WATCH_MS * 1000000ull : UINT64_MAX;
}

/* ---- the end ---- */

void lm_grpc_look(struct lm_io *io, struct lm_connection *carrier, struct lm_http2_stream *stream) {
    struct lm_connection *connection = lm_http2_connection(io, stream);
    const struct lm_grpc_call *grpc = &stream->grpc;
    if (!connection || connection->ended || !is_idle(io, connection)) return;
    if (stream->is_done) { /* with a status alone */
        lm_connection_end(io, connection);
        return;
    }
    if (grpc->is_watched && stream->head_sent) {
        look_at_health(io, stream, connection);
        /* Its client asks again on another connection. */
        if (lm_http2_of(io, carrier)->is_closing && is_idle(io, connection))
            lm_connection_end(io, connection);
    }
    const bool is_between =
        (grpc->stage == LM_GRPC_PREFIX && !grpc->used) || grpc->stage == LM_GRPC_OVER;
    if (grpc->is_watched || !stream->end_given || !is_between) return;
    lm_grpc_finish(io, carrier, stream, LM_GRPC_OK, "");
}

void lm_grpc_forget(struct lm_io *io, struct lm_connection *carrier,
                    struct lm_http2_stream *stream) {
    if (stream->grpc.is_watched) {
        lm_http2_of(io, carrier)->watched--;
        io->http2->watched--;
    }
    if (stream->grpc.block != LM_NO_BLOCK) {
        lm_http_block_drop(io, stream->grpc.block);
        lm_http2_of(io, carrier)->kept--;
    }
    stream->grpc = (struct lm_grpc_call){.block = LM_NO_BLOCK};
}
