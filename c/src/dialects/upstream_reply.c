/* upstream_reply.c: see upstream_reply.h. */
#include "dialects/upstream_reply.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "dialects/http_code.h"
#include "dialects/upstream_ask.h"
#include "dialects/upstream_end.h"
#include "dialects/upstream_hedge.h"
#include "dialects/upstream_pool.h"
#include "dialects/upstream_trunk.h"
#include "flow/reply.h"
#include "flow/tracing.h"
#include "wire/http_date.h"
#include "wire/http_scan.h"

/* Of the head for a stream of HTTP/2, which becomes a block in a batch with others. */
enum { STREAM_HEAD_BYTES = 1024 };

/* ---- the head ---- */

static bool is_stream(struct lm_io *io, uint32_t slot) {
    return lm_connection_is_stream(lm_exchange_client(io, slot));
}

/* The fields that are passed on, as many as there is room for. */
static size_t pass_fields(const struct lm_http_response *response, char *at, size_t room) {
    struct lm_slice left = response->fields;
    struct lm_http_field field;
    size_t used = 0;
    while (lm_http_next_passed(&left, &field)) {
        const size_t bytes = field.name.bytes + 2 + field.value.bytes + 2;
        if (bytes > room - used) continue;
        memcpy(at + used, field.name.at, field.name.bytes);
        used += field.name.bytes;
        memcpy(at + used, ": ", 2);
        used += 2;
        memcpy(at + used, field.value.at, field.value.bytes);
        used += field.value.bytes;
        memcpy(at + used, "\r\n", 2);
        used += 2;
    }
    return used;
}

static bool is_events(const struct lm_http_response *response) {
    static const char type[] = "text/event-stream";
    struct lm_slice left = response->fields;
    struct lm_http_field field;
    while (lm_http_next_passed(&left, &field)) {
        if (!lm_slice_is(field.name, "content-type")) continue;
        const size_t bytes = sizeof type - 1;
        return field.value.bytes >= bytes &&
               lm_slice_is((struct lm_slice){field.value.at, bytes}, type);
    }
    return false;
}

/* How the client is told where the answer ends. */
static enum lm_exchange_framing framing_of(struct lm_io *io, uint32_t slot,
                                           const struct lm_http_response *response) {
    const struct lm_connection *client = lm_exchange_client(io, slot);
    if (response->framing == LM_HTTP_FRAMED_BY_LENGTH) return LM_EXCHANGE_BY_LENGTH;
    if (is_stream(io, slot)) return LM_EXCHANGE_BY_END;
    return client->in.call.is_old ? LM_EXCHANGE_BY_END : LM_EXCHANGE_BY_CHUNKS;
}

static struct lm_slice text_of(uint32_t status) {
    const char *reason = lm_http_reason(status);
    return (struct lm_slice){reason, strlen(reason)};
}

/* Says the head anew: nothing of it is about this server's connections, or frames the body twice.
 */
static void say_head(struct lm_io *io, struct lm_link *link,
                     const struct lm_http_response *response) {
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    struct lm_request *request = &io->requests[link->slot];
    const struct lm_shared *shared = io->shared;
    const enum lm_exchange_framing framing = framing_of(io, link->slot, response);
    const bool is_short = is_stream(io, link->slot);
    const size_t room = is_short ? (size_t)STREAM_HEAD_BYTES : (size_t)LM_UPSTREAM_HEAD_BYTES;
    char length[48] = "", trace[LM_TRACERESPONSE_BYTES];
    char *at = exchange->head;
    if (lm_shared_is_leaving(shared) || (framing == LM_EXCHANGE_BY_END && !is_short))
        request->last = true;
    if (framing == LM_EXCHANGE_BY_LENGTH)
        snprintf(length, sizeof length, "Content-Length: %llu\r\n",
                 (unsigned long long)response->length);
    if (framing == LM_EXCHANGE_BY_CHUNKS)
        snprintf(length, sizeof length, "Transfer-Encoding: chunked\r\n");
    (void)lm_tracing_write_answer(request, trace);
    const bool has_reason = response->reason.bytes > 0; /* HTTP/2 says none */
    const struct lm_slice reason = has_reason ? response->reason : text_of(response->status);
    size_t used = (size_t)snprintf(
        at, room, "HTTP/1.1 %u %.*s\r\n%s%s%s%s", response->status,
        (int)(reason.bytes < 64 ? reason.bytes : 64), reason.at, lm_http_date_line(),
        request->last ? "Connection: close\r\n" : shared->keep_alive_lines, trace, length);
    used += pass_fields(response, at + used, room - used - 2);
    memcpy(at + used, "\r\n", 2);
    exchange->head_bytes = used + 2;
    exchange->framing = (uint8_t)framing;
    exchange->status = (uint16_t)response->status;
    exchange->is_events = is_events(response);
    request->inferred_ns = lm_now_ns();
}

static size_t garbage(struct lm_io *io, struct lm_link *link, size_t count) {
    lm_link_cut(io, link, LM_FAULT_GARBAGE);
    return count;
}

bool lm_upstream_take_answer(struct lm_io *io, struct lm_link *link,
                             const struct lm_http_response *response) {
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    if (response->status == 101) {
        snprintf(exchange->event, sizeof exchange->event,
                 "its answer: expected HTTP/1.1 or HTTP/2, found a change of protocols");
        lm_link_cut(io, link, LM_FAULT_GARBAGE);
        return false;
    }
    if (response->status < 200) return true; /* the answer comes behind it */
    if (lm_upstream_goes_on(io, link, response)) {
        lm_link_cut(io, link, LM_FAULT_PASSED_OVER);
        return false;
    }
    lm_upstream_win(io, link);
    exchange->window_used = 0;
    say_head(io, link, response);
    link->state = LM_LINK_ANSWERING;
    link->keep_alive = response->keep_alive;
    link->keep_alive_s = response->keep_alive_s;
    link->framing = (uint8_t)response->framing;
    link->left = response->length;
    link->chunks = (struct lm_http_chunks){0};
    return true;
}

/* Reads the head, of which some may be in the window. Returns the bytes that were taken. */
static size_t take_head(struct lm_io *io, struct lm_link *link, const uint8_t *bytes,
                        size_t count) {
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    struct lm_http_response response;
    const char *text = (const char *)bytes;
    const size_t before = link->head_used;
    size_t have = count;
    if (before > 0) {
        const size_t room = LM_UPSTREAM_WINDOW_BYTES - before;
        have = before + (count < room ? count : room);
        memcpy(exchange->window + before, bytes, have - before);
        text = (const char *)exchange->window;
    }
    const int used = lm_http_parse_response(text, have, false, &response, exchange->event,
                                            sizeof exchange->event);
    if (used < 0) return garbage(io, link, count);
    if (used == 0 && have == LM_UPSTREAM_WINDOW_BYTES) {
        snprintf(exchange->event, sizeof exchange->event,
                 "its answer's head: expected at most %d bytes", LM_UPSTREAM_WINDOW_BYTES);
        return garbage(io, link, count);
    }
    if (used == 0) {
        lm_upstream_win(io, link); /* the window is its own from here on */
        if (before == 0) memcpy(exchange->window, bytes, count);
        link->head_used = (uint32_t)have;
        return count;
    }
    link->head_used = 0;
    return lm_upstream_take_answer(io, link, &response) ? (size_t)used - before : count;
}

/* ---- the body ---- */

/* Some of a body, as it goes to the client. */
struct piece {
    uint32_t first, parts; /* of the exchange's: the first that holds bytes of the body */
    size_t bytes;          /* of the body */
    size_t used;           /* of what has come */
    bool is_last;
};

static void add_slice(struct lm_exchange *exchange, struct piece *piece, const void *at,
                      size_t bytes) {
    if (bytes == 0) return;
    exchange->parts[piece->parts++] = (struct iovec){(void *)(uintptr_t)at, bytes};
    piece->bytes += bytes;
}

/* Takes the chunks apart. false: they are none. */
static bool add_chunks(struct lm_link *link, struct lm_exchange *exchange, struct piece *piece,
                       const uint8_t *bytes, size_t count) {
    const uint32_t most = piece->parts + LM_EXCHANGE_SLICES;
    link->chunks.chunk_count = link->chunks.extension_bytes = 0; /* of a stream there is no end */
    while (piece->used < count && piece->parts < most && !piece->is_last) {
        struct lm_slice data = {0};
        size_t used = 0;
        const int verdict = lm_http_chunks_feed(&link->chunks, (const char *)bytes + piece->used,
                                                count - piece->used, &used, &data, exchange->event,
                                                sizeof exchange->event);
        if (verdict < 0) return false;
        piece->used += used;
        add_slice(exchange, piece, data.at, data.bytes);
        piece->is_last = verdict == LM_HTTP_CHUNKS_DONE;
    }
    return true;
}

static bool add_body(struct lm_link *link, struct lm_exchange *exchange, struct piece *piece,
                     const uint8_t *bytes, size_t count) {
    switch ((enum lm_http_framing)link->framing) {
    case LM_HTTP_FRAMED_BY_CHUNKS: return add_chunks(link, exchange, piece, bytes, count);
    case LM_HTTP_FRAMED_BY_LENGTH: {
        const size_t taken = count < link->left ? count : (size_t)link->left;
        link->left -= taken;
        piece->is_last = link->left == 0;
        piece->used = taken;
        add_slice(exchange, piece, bytes, taken);
        return true;
    }
    case LM_HTTP_FRAMED_BY_CLOSE:
        piece->used = count;
        add_slice(exchange, piece, bytes, count);
        return true;
    }
    return false;
}

/* Begins a piece with its head, if that has not gone, and a place for the line of its chunk. */
static void begin_piece(struct lm_exchange *exchange, struct piece *piece) {
    *piece = (struct piece){0};
    if (!exchange->head_passed)
        exchange->parts[piece->parts++] = (struct iovec){exchange->head, exchange->head_bytes};
    if (exchange->framing == LM_EXCHANGE_BY_CHUNKS) piece->parts++; /* written when it is known */
    piece->first = piece->parts;
}

/* The line of the chunk, and its end; behind the last one, that of all chunks. */
static void frame_piece(struct lm_exchange *exchange, struct piece *piece) {
    static const char end[] = "\r\n0\r\n\r\n";
    if (exchange->framing != LM_EXCHANGE_BY_CHUNKS) return;
    struct iovec *line = &exchange->parts[piece->first - 1];
    if (piece->bytes > 0) {
        const int bytes = snprintf(exchange->line, sizeof exchange->line, "%zx\r\n", piece->bytes);
        *line = (struct iovec){exchange->line, (size_t)bytes};
        exchange->parts[piece->parts++] =
            (struct iovec){(void *)(uintptr_t)end, piece->is_last ? 7 : 2};
    } else {
        *line = (struct iovec){(void *)(uintptr_t)(end + 2), piece->is_last ? 5 : 0};
    }
}

/* Whether what was passed of a stream ends behind an event. */
static void note_rest(struct lm_exchange *exchange, const struct piece *piece) {
    if (!exchange->is_events || piece->bytes == 0) return;
    uint32_t last = piece->first;
    size_t sum = exchange->parts[last].iov_len;
    while (sum < piece->bytes) sum += exchange->parts[++last].iov_len;
    const struct iovec *part = &exchange->parts[last];
    const char *end = (const char *)part->iov_base + part->iov_len;
    exchange->at_rest =
        part->iov_len >= 2 && end[-1] == '\n' && (end[-2] == '\n' || end[-2] == '\r');
}

/* Reads in the piece how many tokens the request was, where somebody has a budget for it. */
static void note_usage(struct lm_exchange *exchange, const struct piece *piece) {
    size_t left = exchange->is_metered ? piece->bytes : 0;
    for (uint32_t at = piece->first; left > 0; at++) {
        const struct iovec *part = &exchange->parts[at];
        lm_usage_feed(&exchange->usage, part->iov_base, part->iov_len);
        left -= part->iov_len;
    }
}

/* Copies the parts that the client did not take at once to the window; those that lie there or in
 * the exchange stay. */
static void keep_rest(struct lm_exchange *exchange, struct lm_request *request,
                      const struct piece *piece) {
    const uint8_t *from = exchange->window, *to = from + LM_UPSTREAM_WINDOW_BYTES;
    uint32_t at = (uint32_t)(request->message.msg_iov - exchange->parts);
    if (at < piece->first) at = piece->first;
    const uint32_t end =
        piece->parts - (exchange->framing == LM_EXCHANGE_BY_CHUNKS && piece->bytes > 0);
    for (; at < end; at++) {
        struct iovec *part = &exchange->parts[at];
        const uint8_t *base = part->iov_base;
        if (base >= from && base < to) continue;
        memcpy(exchange->window + exchange->window_used, base, part->iov_len);
        part->iov_base = exchange->window + exchange->window_used;
        exchange->window_used += part->iov_len;
    }
}

/* Sends the piece. true: its bytes are used. */
static bool send_piece(struct lm_io *io, struct lm_link *link, struct piece *piece) {
    const uint32_t slot = link->slot;
    struct lm_exchange *exchange = lm_exchange_of(io, slot);
    struct lm_request *request = &io->requests[slot];
    struct lm_connection *client = lm_exchange_client(io, slot);
    const struct lm_usage_reader before = exchange->usage;
    frame_piece(exchange, piece);
    note_rest(exchange, piece);
    note_usage(exchange, piece);
    if (piece->is_last) lm_upstream_settle(io, slot); /* before its client may ask again */
    request->message = (struct msghdr){.msg_iov = exchange->parts, .msg_iovlen = piece->parts};
    request->in_pieces = !piece->is_last;
    const bool is_first = !exchange->head_passed;
    const enum lm_outcome outcome = lm_reply_piece(io, client, request, is_first);
    if (outcome == LM_OUTCOME_UNSENT) {
        request->in_pieces = false;
        exchange->usage = before; /* it is taken again */
        return false;
    }
    exchange->head_passed = true;
    if (outcome == LM_OUTCOME_BROKEN) {
        lm_connection_abort(io, client);
        lm_link_cut(io, link, LM_FAULT_CLOSED);
        return true;
    }
    if (outcome == LM_OUTCOME_PARTIAL) keep_rest(exchange, request, piece);
    if (piece->is_last) lm_upstream_finish(io, slot, outcome);
    if (outcome == LM_OUTCOME_PARTIAL) lm_reply_rest(io, client, request);
    return true;
}

/* An answer whose length is known, and that fits the window, goes on whole. Returns the bytes that
 * were taken; its last ones send it. */
static size_t gather(struct lm_io *io, struct lm_link *link, const uint8_t *bytes, size_t count) {
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    const size_t taken = count < link->left ? count : (size_t)link->left;
    struct piece piece;
    if (taken < link->left) {
        memmove(exchange->window + exchange->window_used, bytes,
                taken); /* of a stream, they lie there */
        exchange->window_used += taken;
        link->left -= taken;
        return taken;
    }
    begin_piece(exchange, &piece);
    add_slice(exchange, &piece, exchange->window, exchange->window_used);
    add_slice(exchange, &piece, bytes, taken);
    piece.is_last = true;
    return send_piece(io, link, &piece) ? taken : 0;
}

size_t lm_upstream_take_body(struct lm_io *io, struct lm_link *link, const uint8_t *bytes,
                             size_t count) {
    struct lm_exchange *exchange = lm_exchange_of(io, link->slot);
    struct lm_connection *client = lm_exchange_client(io, link->slot);
    const struct lm_http_chunks chunks = link->chunks;
    const uint64_t left = link->left;
    struct piece piece;
    if (lm_connection_is_sending(client)) return 0;
    const bool fits = exchange->window_used + left <= LM_UPSTREAM_WINDOW_BYTES;
    if (link->framing == LM_HTTP_FRAMED_BY_LENGTH && !exchange->head_passed && fits)
        return gather(io, link, bytes, count);
    exchange->window_used = 0;
    begin_piece(exchange, &piece);
    if (!add_body(link, exchange, &piece, bytes, count)) return garbage(io, link, count);
    if (piece.bytes == 0 && !piece.is_last && exchange->head_passed) return piece.used;
    if (send_piece(io, link, &piece)) return piece.used;
    link->chunks = chunks; /* it is taken again */
    link->left = left;
    return 0;
}

size_t lm_upstream_take(struct lm_io *io, struct lm_connection *connection, const uint8_t *bytes,
                        size_t count) {
    struct lm_link *link = lm_link_of(io, connection);
    if (!link || connection->ended) return count;
    link->moved_ns = io->now_ns;
    switch ((enum lm_link_state)link->state) {
    case LM_LINK_ASKING:
        if (link->sends || !lm_upstream_may_answer(io, link))
            return 0; /* the kernel still reads the slot */
        link->has_answered = true;
        {
            size_t taken = take_head(io, link, bytes, count);
            const bool is_body = link->state == LM_LINK_ANSWERING && !connection->ended;
            /* An answer without a body is one piece; of a stream the head goes on at once. */
            const bool waits = link->framing == LM_HTTP_FRAMED_BY_LENGTH && link->left > 0;
            if (is_body && (taken < count || !waits)) {
                const size_t more = lm_upstream_take_body(io, link, bytes + taken, count - taken);
                taken += more;
            }
            return taken;
        }
    case LM_LINK_ANSWERING: return lm_upstream_take_body(io, link, bytes, count);
    case LM_LINK_IDLE: /* nobody has asked */ lm_upstream_drop(io, link); return count;
    case LM_LINK_FREE:
    case LM_LINK_DIALING:
    case LM_LINK_CARRYING:
    case LM_LINK_OVER: break;
    }
    return count;
}

bool lm_upstream_end_body(struct lm_io *io, struct lm_link *link) {
    struct piece piece;
    begin_piece(lm_exchange_of(io, link->slot), &piece);
    piece.is_last = true;
    return send_piece(io, link, &piece);
}

void lm_upstream_ended(struct lm_io *io, struct lm_link *link) {
    if (link->state != LM_LINK_ANSWERING || link->framing != LM_HTTP_FRAMED_BY_CLOSE ||
        link->fault != LM_FAULT_CLOSED ||
        lm_load_relaxed_u32(&lm_link_connection(io, link)->gone)) /* relaxed: this thread's own */
        return;
    (void)lm_upstream_end_body(io, link);
}
