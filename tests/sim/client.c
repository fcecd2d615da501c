/* client.c: what clients of both dialects have in common: when they connect, send, read and go, and
 * what a strict one does not put up with: an answer that does not come, or an end without a reason.
 */
#include "client.h"

#include <stdlib.h>
#include <string.h>

enum { PATIENCE_S = 90, OWED_S = 2, IN_ROOM = 64 << 10 };

struct client clients[CLIENTS_MAX];

void client_fail(const struct client *client, const char *what, uint64_t a, uint64_t b) {
    char text[320];
    uint32_t shown = client->in_bytes < 300 ? client->in_bytes : 300;
    for (uint32_t i = 0; i < shown; i++) {
        uint8_t byte = client->in[i];
        text[i] = (char)(byte >= ' ' && byte < 0x7f ? byte : '.');
    }
    text[shown] = '\0';
    sim_fail("client %u (%s%s, peer %u, %u of %u answered): %s (%llu, %llu); unread: '%s'",
             client->number, client->strict ? "strict " : "",
             client->http2  ? "http2"
             : client->http ? "http"
                            : "native",
             client->peer ? client->peer->number : 0, client->answered, client->expect_count, what,
             (unsigned long long)a, (unsigned long long)b, text);
}

/* ---- scripts ---- */

void client_put(struct client *client, const void *bytes, size_t count) {
    if (client->out_bytes + count > client->out_room) {
        client->out_room = 2 * client->out_room + (uint32_t)count;
        client->out = realloc(client->out, client->out_room);
    }
    if (count) memcpy(client->out + client->out_bytes, bytes, count);
    client->out_bytes += (uint32_t)count;
}

struct expect *client_expect(struct client *client, enum request_kind kind) {
    struct expect *expect = &client->expects[client->expect_count++];
    *expect = (struct expect){.kind = kind,
                              .id = 1 + (sim_random() >> 20),
                              .salt = (uint32_t)sim_random(),
                              .length = 1 + sim_below(SIM_LENGTH_MAX),
                              .body = NOWHERE};
    if (sim_plan.cache_bytes) expect->salt %= 4; /* the same is asked again */
    return expect;
}

uint32_t client_inputs(const struct expect *expect) {
    return expect->model == 3 ? 2 : 1;
}

uint32_t client_floats(const struct expect *expect, uint32_t input) {
    const uint32_t row[SIM_MODELS] = {4, 300, 48, 2, expect->length};
    return input == 1 ? 3 : row[expect->model] * expect->rows;
}

/* Small whole numbers: exact as FP32, and as text. */
float client_value(const struct expect *expect, uint32_t input, uint32_t at) {
    uint32_t mixed = (expect->salt + at * 7 + input * 131) * 2654435761u;
    if (expect->pixels) { /* NCHW of H x W x 3 bytes */
        uint32_t image = at / 48, plane = at % 48 / 16, pixel = at % 16;
        mixed = (expect->salt + (image * 48 + pixel * 3 + plane) * 7) * 2654435761u;
        return (float)(mixed >> 24);
    }
    return (float)((mixed >> 20) % 2000);
}

/* The length of a file, and what a PNG has before its pixels: its sides above all. */
static void put_file_head(struct client *client, const struct expect *expect, uint32_t at) {
    uint32_t bytes = SIM_FILE_BYTES, drawn = (expect->salt + at) * 2654435761u;
    uint8_t head[SIM_FILE_HEAD] = "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";
    head[19] = (uint8_t)(1 + (drawn >> 24) % 127);
    head[23] = (uint8_t)(1 + (drawn >> 16) % 127);
    head[24] = 8;
    client_put(client, &bytes, sizeof bytes);
    client_put(client, head, sizeof head);
}

void client_put_input(struct client *client, const struct expect *expect, uint32_t input) {
    uint32_t count = client_floats(expect, input);
    for (uint32_t at = 0; at < count; at++) {
        if (expect->pixels) {
            uint8_t byte = (uint8_t)((expect->salt + at * 7) * 2654435761u >> 24);
            client_put(client, &byte, 1);
            continue;
        }
        float value = client_value(expect, input, at);
        if (expect->files && at % SIM_FILE_FLOATS == 0) put_file_head(client, expect, at);
        if (at == 0 && input == 0 && (expect->statuses & STATUS(LM_STATUS_INFERENCE_FAILED)))
            value = SIM_POISON;
        client_put(client, &value, sizeof value);
        if (expect->files && at % SIM_FILE_FLOATS == SIM_FILE_FLOATS - 1) {
            uint8_t end = expect->broken && at + 1 == count ? SIM_BROKEN : 0;
            client_put(client, &end, 1);
        }
    }
}

void client_check_output(const struct client *client, const struct expect *expect, uint32_t output,
                         const uint8_t *bytes, uint32_t count) {
    uint32_t floats = client_floats(expect, output);
    if (count != floats * sizeof(float)) client_fail(client, "an output of a wrong size", count, 0);
    for (uint32_t at = 0; at < floats; at++) {
        float value;
        memcpy(&value, bytes + at * sizeof value, sizeof value);
        if (value != 2 * client_value(expect, output, at))
            client_fail(client, "a wrong output, at and id", at, expect->id);
    }
}

static void draw_habits(struct client *client) {
    static const uint32_t sizes[] = {1, 7, 60, 1000, 100000};
    client->pace_ns = sim_below(2) ? 20 * SIM_US : sim_between(1, 300) * SIM_US;
    client->write_most = sizes[sim_one_in(8) ? sim_below(2) : 2 + sim_below(3)];
    client->read_most = sizes[2 + sim_below(3)];
    client->window = 1 + sim_below(sim_below(2) ? 2 : REQUESTS_MAX);
    client->half_closes = sim_one_in(4);
    client->stay_ns = sim_one_in(3) ? sim_between(0, 20) * SIM_MS : 0;
    if (!client->strict) {
        uint32_t most = client->out_bytes + 2;
        client->leave_ns = sim_now_ns + sim_between(1, 3000) * SIM_MS;
        if (sim_one_in(3)) client->reset_at = sim_below(most);
        if (sim_one_in(3)) client->cut_at = sim_below(most);
        if (sim_one_in(3)) client->reads = false;
        if (sim_one_in(4)) client->write_most = 1, client->pace_ns = 20 * SIM_MS;
        if (sim_one_in(4)) client->read_most = 3, client->pace_ns = 5 * SIM_MS;
        client->stubborn = sim_one_in(3);
        if (sim_one_in(6)) client->leave_ns = sim_now_ns + sim_below(2000); /* a storm */
    }
}

static void draw(struct client *client, uint32_t number) {
    uint8_t *out = client->out, *in = client->in;
    uint32_t out_room = client->out_room;
    *client = (struct client){.number = number,
                              .out = out,
                              .out_room = out_room,
                              .in = in ? in : malloc(IN_ROOM),
                              .in_room = IN_ROOM,
                              .http = sim_below(2),
                              .strict = sim_below(3) > 0,
                              .reads = true,
                              .last = NOWHERE,
                              .reset_at = NOWHERE,
                              .cut_at = NOWHERE,
                              .leave_ns = UINT64_MAX};
    client->http2 = client->http && sim_one_in(3);
    uint32_t count = 1 + sim_below(sim_below(3) ? 4 : REQUESTS_MAX);
    for (uint32_t r = 0; r < count; r++) {
        bool is_last = r + 1 == count;
        (client->http2 ? http2_draw : client->http ? http_draw : native_draw)(client, is_last);
        client->expects[client->expect_count - 1].end = client->out_bytes;
    }
    draw_habits(client);
    client->next_ns = sim_now_ns + (sim_below(3) ? sim_below(50000) : sim_below(20) * SIM_MS);
    client->began_ns = client->next_ns;
}

void clients_draw(void) {
    for (uint32_t c = 0; c < sim_plan.clients; c++) draw(&clients[c], c);
}

void clients_free(void) {
    for (uint32_t c = 0; c < CLIENTS_MAX; c++) {
        free(clients[c].out);
        free(clients[c].in);
        clients[c] = (struct client){0};
    }
    http2_free();
}

/* ---- answers ---- */

void client_answered(struct client *client, struct expect *expect, bool end) {
    uint32_t index = (uint32_t)(expect - client->expects);
    SIM_TRACE("client %llu: answer to request %llu", client->number, index);
    if (expect->answered) client_fail(client, "a second answer, to request", index, expect->id);
    if (client->last != NOWHERE && index > client->last)
        client_fail(client, "an answer after the last one, to request", index, expect->id);
    expect->answered = true;
    client->answered++;
    client->began_ns = sim_now_ns;
    if (end) client->last = index;
    client->continued = false;
}

/* Every request before the last one that could be answered was. */
static bool has_everything(const struct client *client) {
    for (uint32_t r = 0; r < client->expect_count && r <= client->last; r++) {
        if (!client->expects[r].answered) return false;
    }
    return true;
}

static void go(struct client *client, bool reset) {
    SIM_TRACE("client %llu goes, reset %llu", client->number, reset);
    if (client->peer) peer_client_close(client->peer, reset);
    client->state = CLIENT_DONE;
    client->next_ns = UINT64_MAX;
}

/* The server has ended the connection. */
static void ended(struct client *client, bool reset) {
    const struct peer *peer = client->peer;
    bool left = client->http && client->finished && (client->http2 || !sim_plan.half_close);
    bool excused = peer->excused || sim_draining || !client->strict || left;
    if (!excused && !has_everything(client))
        client_fail(client, reset ? "reset by the server" : "ended by the server", 0, 0);
    bool expected = client->finished || client->last != NOWHERE;
    for (uint32_t r = 0; r < client->expect_count; r++)
        expected |= client->expects[r].answered && client->expects[r].may_end;
    if (!excused && !expected) client_fail(client, "ended by the server without a reason", 0, 0);
    if (!excused && reset) client_fail(client, "reset by the server after all", 0, 0);
    if (client->in_bytes && !excused) client_fail(client, "half an answer", client->in_bytes, 0);
    go(client, false);
}

/* true: something came. */
static bool read_some(struct client *client) {
    uint32_t room = client->in_room - client->in_bytes;
    if (!client->reads) return false;
    if (room == 0) client_fail(client, "an answer without an end", client->in_bytes, 0);
    int got = peer_client_receive(client->peer, client->in + client->in_bytes,
                                  room < client->read_most ? room : client->read_most);
    if (got == -1) return false;
    if (got <= 0) {
        if (got == 0 && client->stubborn && sim_now_ns < client->leave_ns) return false;
        ended(client, got < 0);
        return true;
    }
    client->in_bytes += (uint32_t)got;
    uint32_t taken;
    while (client->in_bytes && (taken = client->http2  ? http2_take(client)
                                        : client->http ? http_take(client)
                                                       : native_take(client)) > 0) {
        client->in_bytes -= taken;
        memmove(client->in, client->in + taken, client->in_bytes);
    }
    return true;
}

/* ---- sending ---- */

/* How far it may send now: so many requests ahead, and no body before it was asked for. */
static uint32_t send_limit(struct client *client) {
    uint32_t ahead = client->answered + client->window;
    uint32_t limit =
        ahead < client->expect_count ? client->expects[ahead - 1].end : client->out_bytes;
    if (client->cut_at < limit) limit = client->cut_at;
    if (client->reset_at < limit) limit = client->reset_at;
    for (uint32_t r = client->answered; r < client->expect_count; r++) {
        const struct expect *expect = &client->expects[r];
        if (!expect->continues || client->out_sent > expect->body || expect->body >= limit)
            continue;
        if (r == client->answered && client->continued) continue;
        if (client->out_sent == expect->body && client->hold_ns == 0)
            client->hold_ns = sim_now_ns + 40 * SIM_MS;
        if (client->out_sent == expect->body && sim_now_ns >= client->hold_ns) continue;
        return expect->body;
    }
    return limit;
}

static bool write_some(struct client *client) {
    uint32_t limit = send_limit(client);
    bool moved = false;
    if (client->http2 && http2_says(client, &moved)) return moved;
    if (moved) return true;
    const bool is_told = client->last != NOWHERE && client->strict; /* to stop */
    if (is_told && !(client->http2 && http2_is_amid(client))) return false;
    if (client->out_sent < limit) {
        uint32_t count = limit - client->out_sent;
        if (count > client->write_most) count = 1 + sim_below(client->write_most);
        if (client->http2) count = http2_within(client, count);
        count = peer_client_send(client->peer, client->out + client->out_sent, count);
        client->out_sent += count;
        if (client->http2) http2_sent(client, count);
        if (count) client->hold_ns = 0;
        SIM_TRACE("client %llu sends %llu, %llu in all", client->number, count, client->out_sent);
        return count > 0;
    }
    if (client->out_sent == client->reset_at) {
        go(client, true);
        return true;
    }
    bool cut = client->out_sent == client->cut_at;
    bool whole = client->half_closes && client->out_sent == client->out_bytes;
    if (client->finished || (!cut && !whole)) return false;
    SIM_TRACE("client %llu has sent everything", client->number);
    client->finished = true;
    peer_client_finish(client->peer);
    return true;
}

/* ---- turns ---- */

/* The first request without an answer needs no worker, is here and has nothing before it: it is
 * answered at once, whatever other clients and the models do. Inline, Runs come in between. */
static void check_owed(struct client *client) {
    uint32_t first = 0;
    while (first < client->expect_count && client->expects[first].answered) first++;
    const struct expect *expect = &client->expects[first];
    /* A bad body of HTTP may need a slot before it is known to be bad. */
    bool for_worker =
        expect->kind == ASK_INFER || (expect->kind == ASK_BAD && client->http && expect->statuses);
    bool owed = first < client->expect_count && !for_worker && client->out_sent >= expect->end &&
                client->peer->served && client->peer->server_read >= expect->end + client->said;
    bool known = owed && client->owed == first && client->owed_ns;
    if (!known) client->owed_ns = owed ? sim_now_ns : 0;
    client->owed = first;
    if (!known || sim_shared.worker_count > sim_shared.thread_count) return;
    if (sim_now_ns - client->owed_ns > OWED_S * SIM_S)
        client_fail(client, "what needs no worker is not answered, request", first, expect->kind);
}

static void check_patience(struct client *client) {
    if (!client->strict || client->peer->excused || sim_draining) return;
    check_owed(client);
    if (sim_now_ns - client->began_ns > PATIENCE_S * SIM_S)
        client_fail(client, "no answer for a minute and a half; sent and read", client->out_sent,
                    client->peer->server_read);
}

static void talk(struct client *client) {
    bool moved = read_some(client);
    if (client->state != CLIENT_TALKS) return;
    moved |= write_some(client);
    if (client->state != CLIENT_TALKS) return;
    bool all = client->strict && client->answered == client->expect_count;
    /* One that has sent its last byte, or was told that there will be no more, waits for the end of
     * the stream. */
    if (all && !client->finished && client->last == NOWHERE &&
        sim_now_ns >= client->began_ns + client->stay_ns) {
        go(client, false);
        return;
    }
    if (sim_now_ns >= client->leave_ns) {
        go(client, sim_below(2));
        return;
    }
    check_patience(client);
    uint64_t until = client->leave_ns;
    if (all && !client->finished && client->last == NOWHERE)
        until = client->began_ns + client->stay_ns;
    if (client->hold_ns > sim_now_ns && client->hold_ns < until) until = client->hold_ns;
    if (client->strict && until > sim_now_ns + SIM_S) until = sim_now_ns + SIM_S;
    client->next_ns = moved ? sim_now_ns + 1 + sim_random() % client->pace_ns : until;
}

static void act(void *what, uint32_t which) {
    struct client *client = what;
    (void)which;
    if (client->state == CLIENT_TALKS) {
        talk(client);
        return;
    }
    client->peer = peer_connect(client);
    SIM_TRACE("client %llu connects as peer %llu", client->number,
              client->peer ? client->peer->number : NOWHERE);
    client->state = client->peer ? CLIENT_TALKS : CLIENT_DONE;
    client->began_ns = sim_now_ns;
    if (!client->peer && !sim_draining) client_fail(client, "refused", 0, 0);
    client->next_ns = client->peer ? sim_now_ns + sim_below(20000) : UINT64_MAX;
}

void client_wake(struct client *client) {
    uint64_t soon = sim_now_ns + 1 + sim_random() % client->pace_ns;
    if (client->state == CLIENT_TALKS && client->next_ns > soon) client->next_ns = soon;
}

void clients_choose(struct choice *choice) {
    for (uint32_t c = 0; c < sim_plan.clients; c++) {
        if (clients[c].next_ns <= sim_now_ns) {
            choice_add(choice, act, &clients[c], 0);
        } else if (clients[c].next_ns != UINT64_MAX) {
            choice_at(choice, clients[c].next_ns);
        }
    }
}

bool clients_done(void) {
    for (uint32_t c = 0; c < sim_plan.clients; c++) {
        if (clients[c].state != CLIENT_DONE) return false;
    }
    return true;
}

void clients_leave(void) {
    for (uint32_t c = 0; c < sim_plan.clients; c++) {
        if (clients[c].state != CLIENT_DONE) go(&clients[c], sim_below(2));
    }
}
