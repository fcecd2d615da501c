/* client_http2.c: HTTP's requests in streams of one connection, as frames of any size; and what
 * comes back, in any order.
 */
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "wire/hpack.h"
#include "wire/http2_frame.h"

enum { ANSWER_MAX = 60000, FRAME_MOST = 16000 };

struct answer {
    bool has_head, is_over;
    uint32_t code;
    int64_t json_bytes; /* -1: not said */
    int64_t status;     /* of gRPC; -1: not said */
    uint8_t *body;
    uint32_t bytes;
};

/* Beside the script of a client: what it says to what it reads. */
static struct link {
    uint8_t *control;
    uint32_t room, bytes; /* not yet sent */
    uint32_t frame_left;  /* of the script's frame that is being sent */
    bool in_block;        /* the next frame has to be the rest of a header block */
    uint32_t window;      /* of an answer, ahead of who reads it */
    struct answer answers[REQUESTS_MAX + 1];
} links[CLIENTS_MAX];

static struct link *link_of(const struct client *client) {
    return &links[client->number];
}

void http2_free(void) {
    for (uint32_t c = 0; c < CLIENTS_MAX; c++) {
        for (uint32_t r = 0; r <= REQUESTS_MAX; r++) free(links[c].answers[r].body);
        free(links[c].control);
        links[c] = (struct link){0};
    }
}

/* ---- scripts ---- */

static void put_frame(struct client *client, uint8_t type, uint8_t flags, uint32_t stream,
                      const void *payload, uint32_t bytes) {
    uint8_t head[LM_HTTP2_FRAME_BYTES];
    lm_http2_write_frame(head, (struct lm_http2_frame){bytes, stream, type, flags});
    client_put(client, head, sizeof head);
    client_put(client, payload, bytes);
}

static uint8_t block[4096];
static uint32_t block_bytes;

static void add_string(const char *text, size_t bytes) {
    if (bytes < 127) {
        block[block_bytes++] = (uint8_t)bytes;
    } else { /* as far as heads here go */
        block[block_bytes++] = 127;
        block[block_bytes++] = (uint8_t)((bytes - 127) | 0x80);
        block[block_bytes++] = (uint8_t)((bytes - 127) >> 7);
    }
    memcpy(block + block_bytes, text, bytes);
    block_bytes += (uint32_t)bytes;
}

/* A literal, which no table keeps; names are in lower case. */
static void add_field(const char *name, size_t name_bytes, const char *value, size_t bytes) {
    char low[64];
    for (size_t b = 0; b < name_bytes; b++) {
        const char letter = name[b];
        low[b] = letter >= 'A' && letter <= 'Z' ? (char)(letter + 'a' - 'A') : letter;
    }
    block[block_bytes++] = sim_below(2) ? 0x00 : 0x10;
    add_string(low, name_bytes);
    add_string(value, bytes);
}

static bool is_named(const char *line, const char *name) {
    return strncasecmp(line, name, strlen(name)) == 0;
}

/* The head of a request of HTTP/1.1 as a block. Returns whether its body is in chunks. */
static bool make_block(const char *head) {
    const char *target = strchr(head, ' ') + 1, *end = strchr(target, ' ');
    const char *host = strcasestr(head, "\r\nHost: ") + 8;
    size_t host_bytes = strcspn(host, "\r");
    bool chunked = false;
    block_bytes = 0;
    add_field(":method", 7, head, (size_t)(target - 1 - head));
    add_field(":scheme", 7, "http", 4);
    if (strncmp(target, "http://", 7) == 0) {
        host = target + 7;
        target = strchr(host, '/');
        host_bytes = (size_t)(target - host);
    }
    add_field(":path", 5, target, (size_t)(end - target));
    add_field(":authority", 10, host, host_bytes);
    for (const char *line = strstr(head, "\r\n") + 2; strncmp(line, "\r\n", 2) != 0;
         line = strstr(line, "\r\n") + 2) {
        const char *colon = strchr(line, ':');
        const char *value = colon + 1 + strspn(colon + 1, " ");
        if (is_named(line, "Transfer-Encoding:")) chunked = true;
        if (is_named(line, "Transfer-Encoding:") || is_named(line, "Host:") ||
            is_named(line, "Connection:") || is_named(line, "Expect:"))
            continue;
        add_field(line, (size_t)(colon - line), value, strcspn(value, "\r"));
    }
    return chunked;
}

/* Replaces the chunks of a body by the bytes that they hold. Returns how many. */
static uint32_t unchunk(uint8_t *body) {
    uint32_t bytes = 0;
    for (char *at = (char *)body;;) {
        char *end;
        const uint32_t size = (uint32_t)strtoul(at, &end, 16);
        if (size == 0) return bytes;
        at = strstr(end, "\r\n") + 2;
        memmove(body + bytes, at, size);
        bytes += size;
        at += size + 2;
    }
}

static void put_head(struct client *client, uint32_t stream, uint8_t flags) {
    const uint32_t first = sim_one_in(4) ? sim_below(block_bytes) : block_bytes;
    const uint8_t ends = first == block_bytes ? LM_HTTP2_END_HEADERS : 0;
    put_frame(client, LM_HTTP2_HEADERS, flags | ends, stream, block, first);
    if (!ends)
        put_frame(client, LM_HTTP2_CONTINUATION, LM_HTTP2_END_HEADERS, stream, block + first,
                  block_bytes - first);
}

/* Frames that change nothing. */
static void put_noise(struct client *client, uint32_t stream) {
    static const uint8_t payload[8] = "abcdefgh";
    if (sim_one_in(8)) put_frame(client, LM_HTTP2_PING, 0, 0, payload, 8);
    if (sim_one_in(12)) put_frame(client, LM_HTTP2_PRIORITY, 0, stream, payload, 5);
    if (sim_one_in(12)) put_frame(client, 77, 0xff, stream, payload, sim_below(9));
}

/* Returns where in the script its last byte ends, behind which there may be padding. */
static uint32_t put_data(struct client *client, uint32_t stream, const uint8_t *body,
                         uint32_t bytes) {
    uint32_t end = client->out_bytes;
    for (uint32_t at = 0, size; at < bytes; at += size) {
        uint8_t frame[1 + FRAME_MOST + 255] = {0};
        const bool is_padded = sim_one_in(5);
        const uint8_t pad = is_padded ? (uint8_t)sim_below(256) : 0;
        size = 1 + sim_below(sim_below(2) ? 3000 : sim_below(2) ? 20 : FRAME_MOST);
        if (size > bytes - at) size = bytes - at;
        const uint8_t flags = (uint8_t)((at + size == bytes ? LM_HTTP2_END_STREAM : 0) |
                                        (is_padded ? LM_HTTP2_PADDED : 0));
        frame[0] = pad;
        memcpy(frame + is_padded, body + at, size);
        put_frame(client, LM_HTTP2_DATA, flags, stream, frame, is_padded + size + pad);
        end = client->out_bytes - pad;
        put_noise(client, stream);
    }
    return end;
}

static void greet(struct client *client) {
    static const uint32_t windows[] = {200, 1000, 20000, LM_HTTP2_WINDOW};
    uint8_t setting[LM_HTTP2_SETTING_BYTES] = {0, LM_HTTP2_INITIAL_WINDOW_SIZE};
    struct link *link = link_of(client);
    link->bytes = 0;
    link->in_block = false;
    link->frame_left = LM_HTTP2_PREFACE_BYTES; /* as if it were one */
    link->window = windows[sim_below(4)];
    for (uint32_t r = 0; r <= REQUESTS_MAX; r++) {
        link->answers[r].has_head = link->answers[r].is_over = false;
        link->answers[r].bytes = 0;
    }
    lm_http2_put_u32(setting + 2, link->window);
    client_put(client, LM_HTTP2_PREFACE, LM_HTTP2_PREFACE_BYTES);
    put_frame(client, LM_HTTP2_SETTINGS, 0, 0, setting, sizeof setting);
}

void http2_begin(void) {
    block_bytes = 0;
}

void http2_add(const char *name, const char *value) {
    add_field(name, strlen(name), value, strlen(value));
}

void http2_put(struct client *client, struct expect *expect, uint32_t stream, const uint8_t *body,
               uint32_t bytes) {
    put_head(client, stream, bytes ? 0 : LM_HTTP2_END_STREAM);
    expect->body = put_data(client, stream, body, bytes);
}

void http2_draw(struct client *client, bool is_last) {
    (void)is_last;
    if (client->out_bytes == 0) greet(client);
    const uint32_t begin = client->out_bytes, stream = 2 * client->expect_count + 1;
    if (sim_one_in(3)) {
        grpc_draw(client, stream);
        return;
    }
    http_draw_streamed(client);
    struct expect *expect = &client->expects[client->expect_count - 1];
    expect->ends = expect->may_end = expect->continues = false;
    const uint32_t bytes = client->out_bytes - begin;
    uint8_t *request = malloc(bytes + 1);
    memcpy(request, client->out + begin, bytes);
    request[bytes] = '\0';
    client->out_bytes = begin;
    uint8_t *body = (uint8_t *)strstr((char *)request, "\r\n\r\n") + 4;
    uint32_t body_bytes = (uint32_t)(request + bytes - body);
    if (make_block((char *)request)) body_bytes = unchunk(body);
    http2_put(client, expect, stream, body, body_bytes);
    free(request);
}

/* ---- sending ---- */

static void say(struct link *link, uint8_t type, uint8_t flags, uint32_t stream,
                const uint8_t *payload, uint32_t bytes) {
    const uint32_t needed = link->bytes + LM_HTTP2_FRAME_BYTES + bytes;
    if (needed > link->room) link->control = realloc(link->control, link->room = 2 * needed);
    uint8_t *at = link->control + link->bytes;
    lm_http2_write_frame(at, (struct lm_http2_frame){bytes, stream, type, flags});
    if (bytes) memcpy(at + LM_HTTP2_FRAME_BYTES, payload, bytes);
    link->bytes = needed;
    SIM_TRACE("a client says type %llu, stream %llu", type, stream);
}

bool http2_says(struct client *client, bool *moved_out) {
    struct link *link = link_of(client);
    if (link->bytes == 0 || link->frame_left || link->in_block || client->finished) return false;
    const uint32_t sent = peer_client_send(client->peer, link->control, link->bytes);
    link->bytes -= sent;
    client->said += sent;
    memmove(link->control, link->control + sent, link->bytes);
    *moved_out = sent > 0;
    return link->bytes > 0;
}

bool http2_is_amid(const struct client *client) {
    return link_of(client)->frame_left || link_of(client)->in_block;
}

uint32_t http2_within(const struct client *client, uint32_t count) {
    struct link *link = link_of(client);
    const uint32_t left = client->out_bytes - client->out_sent;
    if (link->frame_left == 0) {
        const struct lm_http2_frame frame = lm_http2_read_frame(client->out + client->out_sent);
        link->frame_left = LM_HTTP2_FRAME_BYTES + frame.bytes;
        link->in_block = (frame.type == LM_HTTP2_HEADERS || frame.type == LM_HTTP2_CONTINUATION) &&
                         !(frame.flags & LM_HTTP2_END_HEADERS);
        SIM_CHECK(link->frame_left <= left, "a frame beyond the script");
    }
    return count < link->frame_left ? count : link->frame_left;
}

void http2_sent(const struct client *client, uint32_t count) {
    link_of(client)->frame_left -= count;
}

/* ---- answers ---- */

static struct expect *expect_of(struct client *client, uint32_t stream) {
    if (stream % 2 == 0 || stream / 2 >= client->expect_count)
        client_fail(client, "a frame of a stream that is not open", stream, 0);
    return &client->expects[stream / 2];
}

static void finish(struct client *client, uint32_t stream) {
    struct expect *expect = expect_of(client, stream);
    struct answer *answer = &link_of(client)->answers[stream / 2];
    const bool is_eviction = answer->code == 408 || answer->code == 503;
    if (!answer->has_head) client_fail(client, "an answer without a head", stream, 0);
    answer->is_over = true;
    if (expect->is_call) {
        if (answer->code != 200 || answer->status < 0)
            client_fail(client, "a call without a status", stream, answer->code);
        grpc_check(client, expect, answer->status, answer->body, answer->bytes);
    } else {
        http_check(client, expect, answer->code, is_eviction, answer->json_bytes, answer->body,
                   answer->bytes);
    }
    client_answered(client, expect, false);
}

static void take_head(struct client *client, const struct lm_http2_frame *frame,
                      const uint8_t *payload) {
    static struct lm_hpack_fields fields;
    struct lm_hpack hpack = {0};
    char why[LM_TEXT_BYTES_MAX], value[32];
    const struct expect *expect = expect_of(client, frame->stream);
    struct answer *answer = &link_of(client)->answers[frame->stream / 2];
    /* A call's status comes behind its messages. */
    const bool may_be_second = expect->is_call && (frame->flags & LM_HTTP2_END_STREAM);
    if ((answer->has_head && !may_be_second) || !(frame->flags & LM_HTTP2_END_HEADERS))
        client_fail(client, "a second head, or half of one", frame->stream, 0);
    if (!lm_hpack_decode(&hpack, payload, frame->bytes, &fields, why, sizeof why))
        client_fail(client, why, frame->stream, 0);
    answer->has_head = true;
    answer->json_bytes = answer->status = -1;
    for (uint32_t f = 0; f < fields.count; f++) {
        const struct lm_slice name = fields.list[f].name, said = fields.list[f].value;
        snprintf(value, sizeof value, "%.*s", (int)said.bytes, (const char *)said.at);
        if (name.bytes == 7 && memcmp(name.at, ":status", 7) == 0)
            answer->code = (uint32_t)atoi(value);
        if (name.bytes == 31 && memcmp(name.at, "inference-header-content-length", 31) == 0)
            answer->json_bytes = atoll(value);
        if (name.bytes == 11 && memcmp(name.at, "grpc-status", 11) == 0)
            answer->status = atoll(value);
    }
    if (frame->flags & LM_HTTP2_END_STREAM) finish(client, frame->stream);
}

static void take_data(struct client *client, const struct lm_http2_frame *frame,
                      const uint8_t *payload) {
    struct link *link = link_of(client);
    (void)expect_of(client, frame->stream);
    struct answer *answer = &link->answers[frame->stream / 2];
    uint8_t more[4];
    if (frame->bytes > link->window)
        client_fail(client, "more than a window", frame->bytes, link->window);
    if (!answer->body) answer->body = malloc(ANSWER_MAX);
    if (answer->is_over || answer->bytes + frame->bytes > ANSWER_MAX)
        client_fail(client, "too much of an answer", frame->stream, answer->bytes);
    memcpy(answer->body + answer->bytes, payload, frame->bytes);
    answer->bytes += frame->bytes;
    lm_http2_put_u32(more, frame->bytes);
    if (frame->bytes) say(link, LM_HTTP2_WINDOW_UPDATE, 0, 0, more, 4);
    if (frame->flags & LM_HTTP2_END_STREAM) {
        finish(client, frame->stream);
    } else if (frame->bytes) {
        say(link, LM_HTTP2_WINDOW_UPDATE, 0, frame->stream, more, 4);
    }
}

/* Behind an answer it says that no more of the request is wanted. Otherwise it is one of a client
 * that was too slow, as the end of a connection is over HTTP/1.1. */
static void take_reset(struct client *client, const struct lm_http2_frame *frame,
                       const uint8_t *payload) {
    struct expect *expect = expect_of(client, frame->stream);
    const uint32_t error = lm_http2_get_u32(payload);
    struct answer *answer = &link_of(client)->answers[frame->stream / 2];
    if (answer->is_over && error == LM_HTTP2_NO_ERROR) return;
    if (client->last != NOWHERE && frame->stream / 2 > client->last) return; /* it was told */
    const bool is_refused = error == LM_HTTP2_REFUSED_STREAM;                /* as by 503 */
    if (client->strict && !is_refused && !sim_draining && !engine_ended_any())
        client_fail(client, "a stream is reset, with error", frame->stream, error);
    if (answer->is_over) return;
    answer->is_over = true;
    client_answered(client, expect, false);
}

static void take_goaway(struct client *client, const struct lm_http2_frame *frame,
                        const uint8_t *payload) {
    const uint32_t last = lm_http2_get_u32(payload), error = lm_http2_get_u32(payload + 4);
    const bool excused =
        client->peer->excused || sim_draining || !client->strict || engine_ended_any();
    static char why[256];
    snprintf(why, sizeof why, "GOAWAY: %.*s", (int)frame->bytes - 8, (const char *)payload + 8);
    if (error != LM_HTTP2_NO_ERROR && !excused) client_fail(client, why, last, error);
    /* It has heard of no request, or some are lost with their connection. */
    if (last == 0 || error != LM_HTTP2_NO_ERROR) client->peer->excused = true;
    client->last = last ? last / 2 : 0;
}

static void take_frame(struct client *client, const struct lm_http2_frame *frame,
                       const uint8_t *payload) {
    const bool is_answer = frame->flags & LM_HTTP2_ACK;
    switch (frame->type) {
    case LM_HTTP2_DATA: take_data(client, frame, payload); break;
    case LM_HTTP2_HEADERS: take_head(client, frame, payload); break;
    case LM_HTTP2_RST_STREAM: take_reset(client, frame, payload); break;
    case LM_HTTP2_GOAWAY: take_goaway(client, frame, payload); break;
    case LM_HTTP2_SETTINGS:
        if (!is_answer) say(link_of(client), LM_HTTP2_SETTINGS, LM_HTTP2_ACK, 0, NULL, 0);
        break;
    case LM_HTTP2_PING:
        if (!is_answer) /* by which the server learns that its GOAWAY was heard */
            say(link_of(client), LM_HTTP2_PING, LM_HTTP2_ACK, 0, payload, 8);
        else if (memcmp(payload, "abcdefgh", 8) != 0)
            client_fail(client, "a ping that was not asked for", frame->flags, 0);
        break;
    case LM_HTTP2_WINDOW_UPDATE: break;
    default: client_fail(client, "a frame of another type", frame->type, 0);
    }
}

uint32_t http2_take(struct client *client) {
    if (client->in_bytes < LM_HTTP2_FRAME_BYTES) return 0;
    const struct lm_http2_frame frame = lm_http2_read_frame(client->in);
    if (frame.bytes > LM_HTTP2_FRAME_MIN) client_fail(client, "too large a frame", frame.bytes, 0);
    if (client->in_bytes < LM_HTTP2_FRAME_BYTES + frame.bytes) return 0;
    SIM_TRACE("client %llu reads a frame of type %llu, stream %llu, %llu bytes, flags %llu",
              client->number, frame.type, frame.stream, frame.bytes, frame.flags);
    take_frame(client, &frame, client->in + LM_HTTP2_FRAME_BYTES);
    return LM_HTTP2_FRAME_BYTES + frame.bytes;
}
