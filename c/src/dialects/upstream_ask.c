/* upstream_ask.c: see upstream_ask.h. */
#include "dialects/upstream_ask.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "dialects/upstream_pool.h"
#include "dialects/upstream_trunk.h"
#include "flow/reply.h"
#include "flow/tracing.h"
#include "flow/transport.h"
#include "wire/http2_head.h"

enum { GRPC_TIMEOUT_MAX = 99999999 /* eight digits */ };

/* The path of a route, behind what the address's own path is. */
static int write_path(const struct lm_request *request, char *out, size_t room) {
    static const char *const paths[LM_ROUTE_COUNT] = {[LM_ROUTE_CHAT] = "/v1/chat/completions",
                                                      [LM_ROUTE_COMPLETIONS] = "/v1/completions",
                                                      [LM_ROUTE_RESPONSES] = "/v1/responses",
                                                      [LM_ROUTE_EMBEDDINGS] = "/v1/embeddings",
                                                      [LM_ROUTE_RERANK] = "/rerank",
                                                      [LM_ROUTE_RERANK_V1] = "/v1/rerank",
                                                      [LM_ROUTE_RERANK_V2] = "/v2/rerank"};
    const uint8_t route = request->wish.route;
    if (route == LM_ROUTE_INFER)
        return snprintf(out, room, "/v2/models/%s/infer", request->model->upstream_model);
    LM_ASSERT(paths[route]);
    return snprintf(out, room, "%s", paths[route]);
}

/* Two header fields: the client's deadline, less the time that is spent; and with binary tensors
 * how many bytes of the body are JSON. */
static int write_wishes(const struct lm_io *io, const struct lm_request *request, char *out,
                        size_t room) {
    int used = 0;
    if (request->is_timed && request->deadline_ns > io->now_ns) {
        const unsigned long long us = (request->deadline_ns - io->now_ns) / 1000;
        const bool is_long = us > GRPC_TIMEOUT_MAX;
        used = snprintf(out, room, "Grpc-Timeout: %llu%c\r\n", is_long ? us / 1000 : us,
                        is_long ? 'm' : 'u');
    }
    if (request->wish.route == LM_ROUTE_INFER && request->body.json_bytes >= 0)
        used +=
            snprintf(out + used, room - (size_t)used, "Inference-Header-Content-Length: %lld\r\n",
                     (long long)request->body.json_bytes);
    return used;
}

static void add_part(struct lm_link *link, const void *base, size_t bytes) {
    if (bytes > 0)
        link->parts[link->message.msg_iovlen++] = (struct iovec){(void *)(uintptr_t)base, bytes};
}

/* A field for streams to end with what they were. */
static const char usage_wish[] = "\"stream_options\":{\"include_usage\":true},";

static bool asks_usage(const struct lm_upstream *upstream, const struct lm_exchange *exchange,
                       const struct lm_request *request) {
    const struct lm_openai_request *asked = &exchange->asked;
    return upstream->asks_usage && asked->streams && !asked->has_stream_options &&
           (request->wish.route == LM_ROUTE_CHAT || request->wish.route == LM_ROUTE_COMPLETIONS);
}

/* The head of HTTP/1.1, but for the key and the empty line. Returns its bytes. */
static size_t write_head(struct lm_io *io, const struct lm_link *link) {
    const struct lm_upstream *upstream = lm_upstream_at(io, link->upstream);
    const struct lm_upstream_address *to = &upstream->addresses[link->address];
    const struct lm_request *request = &io->requests[link->slot];
    const struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    const struct lm_openai_request *asked = &exchange->asked;
    const size_t name_bytes =
        asked->name_bytes ? strlen(request->model->upstream_model) + 2 : 0; /* with its quotes */
    const size_t content = request->body.bytes - asked->name_bytes + name_bytes +
                           (asks_usage(upstream, exchange, request) ? sizeof usage_wish - 1 : 0);
    const size_t room = LM_UPSTREAM_HEAD_BYTES;
    char *at = exchange->head;
    size_t used = (size_t)snprintf(at, room, "POST %s", to->path);
    used += (size_t)write_path(request, at + used, room - used);
    used += (size_t)snprintf(at + used, room - used,
                             " HTTP/1.1\r\n%sContent-Type: %s\r\nContent-Length: %zu\r\n", to->host,
                             request->wish.route == LM_ROUTE_INFER && request->body.json_bytes >= 0
                                 ? "application/octet-stream"
                                 : "application/json",
                             content);
    used += (size_t)write_wishes(io, request, at + used, room - used);
    used += lm_tracing_write(io, lm_io_connection(io, request->connection), request, at + used,
                             room - used);
    LM_ASSERT(used < room);
    return used;
}

/* The body, in the name that the model has there. */
static void add_body(struct lm_io *io, struct lm_link *link) {
    const struct lm_request *request = &io->requests[link->slot];
    const struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    const struct lm_openai_request *asked = &exchange->asked;
    const char *text = request->body.text, *name = request->model->upstream_model;
    if (!asked->name_bytes) {
        add_part(link, text, request->body.bytes);
        return;
    }
    size_t from = 0;
    if (asks_usage(lm_upstream_at(io, link->upstream), exchange, request)) {
        add_part(link, text, from = asked->fields_at); /* before the others, of which there are */
        add_part(link, usage_wish, sizeof usage_wish - 1);
    }
    add_part(link, text + from, asked->name_at - from);
    /* Its quotes are those of the text. */
    struct iovec *before = &link->parts[link->message.msg_iovlen - 1];
    before->iov_len++;
    add_part(link, name, strlen(name));
    const size_t behind = asked->name_at + asked->name_bytes - 1;
    add_part(link, text + behind, request->body.bytes - behind);
}

static void begin_message(struct lm_link *link) {
    link->message = (struct msghdr){.msg_iov = link->parts};
}

/* As one message of HTTP/1.1. */
static void compose(struct lm_io *io, struct lm_link *link) {
    const char *authorization = lm_upstream_at(io, link->upstream)->authorization;
    const size_t used = write_head(io, link);
    begin_message(link);
    add_part(link, lm_exchange_of(io, link->slot)->head, used);
    add_part(link, authorization, strlen(authorization));
    add_part(link, "\r\n", 2);
    add_body(io, link);
}

size_t lm_upstream_write_block(struct lm_io *io, struct lm_link *link) {
    const struct lm_upstream *upstream = lm_upstream_at(io, link->upstream);
    const struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    const struct lm_slice pieces[] = {{exchange->head, write_head(io, link)},
                                      {upstream->authorization, strlen(upstream->authorization)}};
    begin_message(link);
    add_body(io, link);
    const size_t bytes =
        lm_http2_request_block(pieces, 2, upstream->addresses[link->address].tls_host != NULL,
                               exchange->window, LM_UPSTREAM_WINDOW_BYTES);
    LM_ASSERT(bytes > 0); /* a head's, and a key's, are fewer */
    return bytes;
}

static void go_on(struct lm_io *io, struct lm_link *link) {
    struct lm_connection *connection = lm_link_connection(io, link);
    const struct lm_transport *transport = lm_transport_of(io, connection);
    const ssize_t sent = transport->send(io, connection, &link->message);
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS) {
        lm_connection_abort(io, connection);
        return;
    }
    if (lm_reply_move(&link->message, sent > 0 ? (size_t)sent : 0)) return;
    link->sends = true;
    if (!transport->start_send(io, connection, &link->message)) lm_connection_mark(io, connection);
}

void lm_upstream_send(struct lm_io *io, struct lm_link *link) {
    struct lm_request *request = &io->requests[link->slot];
    link->state = LM_LINK_ASKING;
    link->has_answered = false;
    link->head_used = 0;
    link->moved_ns = io->now_ns;
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    exchange->is_sent = true;
    if (exchange->rival == LM_NO_LINK) /* so long it waited for a link; not for its second one */
        request->popped_ns = request->preprocessed_ns = lm_now_ns();
    if (link->stream.is_stream) {
        lm_stream_ask(io, link);
        return;
    }
    lm_link_hold(io, lm_link_connection(io, link), true); /* it stays until that is over */
    compose(io, link);
    go_on(io, link);
}

void lm_upstream_sent(struct lm_io *io, struct lm_link *link,
                      const struct lm_completion *completion) {
    struct lm_connection *connection = lm_link_connection(io, link);
    const bool again = completion->result == -EINTR || completion->result == -EAGAIN;
    const bool is_gone = lm_load_relaxed_u32(&connection->gone); /* relaxed: this thread's own */
    link->sends = false;
    link->moved_ns = io->now_ns;
    lm_connection_mark(io, connection);
    const bool is_whole =
        completion->result > 0 && lm_reply_move(&link->message, (size_t)completion->result);
    if (is_whole) return;
    if ((again || completion->result > 0) && !is_gone) {
        link->sends = true;
        if (!lm_transport_of(io, connection)->start_send(io, connection, &link->message))
            lm_connection_mark(io, connection);
    } else {
        lm_connection_abort(io, connection);
    }
}

bool lm_upstream_ask(struct lm_io *io, uint32_t slot, uint32_t address, bool is_fresh) {
    struct lm_exchange *exchange = lm_exchange_of(io, slot);
    struct lm_link *link = lm_upstream_link(io, exchange->upstream, address, is_fresh);
    if (!link) return false;
    link->slot = slot;
    io->upstream->pools[link->upstream].addresses[link->address].busy++;
    exchange->link = (uint32_t)(link - io->upstream->links);
    io->requests[slot].fed_by = link->connection;
    if (link->state != LM_LINK_DIALING) lm_upstream_send(io, link);
    return true;
}
