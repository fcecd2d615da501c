/* client_native.c: the native protocol's requests, good and bad, and what must come back. */
#include <string.h>

#include "client.h"

struct header {
    uint8_t kind, encoding;
    uint16_t model;
    uint64_t id;
    uint32_t payload, timeout_us, rows;
    uint16_t flags, reserved;
};

static void put_header(struct client *client, const struct header *header) {
    uint8_t bytes[LM_NATIVE_REQUEST_BYTES] = "LMN1";
    bytes[4] = header->kind;
    bytes[5] = header->encoding;
    memcpy(bytes + 6, &header->model, 2);
    memcpy(bytes + 8, &header->id, 8);
    memcpy(bytes + 16, &header->payload, 4);
    memcpy(bytes + 20, &header->timeout_us, 4);
    memcpy(bytes + 24, &header->rows, 4);
    memcpy(bytes + 28, &header->flags, 2);
    memcpy(bytes + 30, &header->reserved, 2);
    client_put(client, bytes, sizeof bytes);
}

static void put_junk(struct client *client, uint32_t count) {
    static const uint8_t junk[64] = {0xee, 0xee, 0xee, 0xee, 'L', 'M', 'N', '1', 1, 0xee};
    for (uint32_t at = 0; at < count; at += sizeof junk)
        client_put(client, junk, count - at < sizeof junk ? count - at : sizeof junk);
}

/* ---- inference ---- */

static uint32_t input_bytes(const struct expect *expect) {
    if (expect->pixels) return expect->rows * 48;
    if (expect->files) return expect->rows * (4 + SIM_FILE_BYTES);
    uint32_t floats = 0;
    for (uint32_t i = 0; i < client_inputs(expect); i++) floats += client_floats(expect, i);
    return floats * (uint32_t)sizeof(float);
}

static void put_shapes(struct client *client, const struct expect *expect, bool right) {
    const uint32_t dims[SIM_MODELS][4] = {{4}, {300}, {3, 4, 4}, {2}, {expect->length}};
    static const uint32_t ranks[SIM_MODELS] = {2, 2, 4, 2, 2};
    uint32_t words[16] = {client_inputs(expect), ranks[expect->model], expect->rows}, used = 3;
    for (uint32_t d = 0; d + 1 < ranks[expect->model]; d++) words[used++] = dims[expect->model][d];
    if (expect->model == 3) {
        words[used++] = 1;
        words[used++] = 3;
    }
    if (!right) words[sim_below(used)] ^= 1u << sim_below(20);
    client_put(client, words, used * 4);
}

static uint32_t shape_bytes(const struct expect *expect) {
    return lm_model_shape_block_bytes(sim_models.models[expect->model], (struct lm_sizes){0}.free);
}

static void draw_infer(struct client *client) {
    struct expect *expect = client_expect(client, ASK_INFER);
    expect->model = sim_below(SIM_MODELS);
    uint32_t most = sim_models.models[expect->model]->max_rows;
    expect->rows = 1 + sim_below(sim_below(2) ? 1 : most);
    expect->pixels = expect->model == 2 && sim_below(2);
    expect->files = expect->model == 2 && !expect->pixels && sim_below(2);
    expect->statuses = STATUS_REFUSALS | STATUS(LM_STATUS_OK);
    struct header header = {.kind = LM_KIND_INFER,
                            .encoding = expect->pixels  ? LM_ENCODING_RGB8
                                        : expect->files ? LM_ENCODING_IMAGE
                                                        : LM_ENCODING_TENSORS,
                            .model = (uint16_t)expect->model,
                            .id = expect->id,
                            .payload = input_bytes(expect),
                            .rows = expect->rows == 1 ? sim_below(2) : expect->rows};
    bool shapes = sim_one_in(6) || expect->model == SIM_FREE_MODEL, credential = sim_one_in(10),
         right = !sim_one_in(8);
    if (sim_one_in(8)) header.timeout_us = 1 + sim_below(sim_below(2) ? 300 : 200000);
    if (header.timeout_us || sim_plan.default_timeout_ns)
        expect->statuses |= STATUS(LM_STATUS_DEADLINE);
    if (sim_plan.rate > 0) expect->statuses |= STATUS(LM_STATUS_RATE_LIMITED);
    expect->broken = expect->files && sim_one_in(6);
    if (expect->broken) {
        expect->statuses ^= STATUS(LM_STATUS_OK) | STATUS(LM_STATUS_BAD_REQUEST);
    } else if (!expect->pixels && sim_one_in(12)) {
        expect->statuses ^= STATUS(LM_STATUS_OK) | STATUS(LM_STATUS_INFERENCE_FAILED);
    }
    if (shapes) {
        header.flags |= LM_FLAG_SHAPES;
        header.payload += shape_bytes(expect);
    }
    if (credential) {
        header.flags |= LM_FLAG_CREDENTIAL;
        header.payload += LM_NATIVE_CREDENTIAL_BYTES;
    }
    put_header(client, &header);
    if (credential) put_junk(client, LM_NATIVE_CREDENTIAL_BYTES);
    if (shapes) put_shapes(client, expect, right);
    for (uint32_t i = 0; i < client_inputs(expect); i++) client_put_input(client, expect, i);
    if (!shapes || right) return;
    expect->statuses &= ~(STATUS(LM_STATUS_OK) | STATUS(LM_STATUS_INFERENCE_FAILED));
    expect->statuses |= STATUS(LM_STATUS_BAD_REQUEST);
}

/* ---- what is refused ---- */

/* The frame's end is known: the answer says what is wrong and the connection goes on. */
static void draw_bad(struct client *client) {
    struct expect *expect = client_expect(client, ASK_BAD);
    struct header header = {.kind = LM_KIND_INFER, .id = expect->id, .payload = 16};
    expect->statuses = STATUS(LM_STATUS_BAD_REQUEST);
    switch (sim_below(7)) {
    case 0:
        header.model = (uint16_t)(SIM_SERVED + sim_below(60000));
        expect->statuses = STATUS(LM_STATUS_UNKNOWN_MODEL);
        break;
    case 1: header.payload = sim_below(2) ? sim_below(16) : 17 + sim_below(5000); break;
    case 2: header.kind = (uint8_t)(4 + sim_below(250)); break; /* 4 is off here */
    case 3: header.flags = (uint16_t)(4u << sim_below(13)); break;
    case 4: header.rows = 9 + (uint32_t)(sim_random() >> 33); break;
    case 5: header.reserved = 1; break;
    default: header.encoding = 1; break;
    }
    put_header(client, &header);
    put_junk(client, header.payload);
}

/* The end of the frame is in doubt, or too far away: an answer, and the end. */
static void draw_last(struct client *client) {
    struct expect *expect = client_expect(client, ASK_BAD);
    expect->ends = true;
    if (sim_below(2)) {
        struct header header = {.kind = LM_KIND_INFER, .id = expect->id};
        header.payload = sim_below(2) ? UINT32_MAX : SIM_MAX_REQUEST_BYTES + 1;
        expect->statuses = STATUS(LM_STATUS_TOO_LARGE);
        put_header(client, &header);
        put_junk(client, sim_below(60));
        return;
    }
    static const char *const greetings[] = {"\x16\x03\x01\x02", "LMN2", "hello\r\n", "LMN\n"};
    const char *greeting = greetings[sim_below(4)];
    expect->id = 0;
    expect->statuses = STATUS(LM_STATUS_BAD_REQUEST);
    client_put(client, greeting, strlen(greeting));
}

void native_draw(struct client *client, bool is_last) {
    uint32_t drawn = sim_below(100);
    bool may_greet = client->expect_count > 0; /* the first four bytes decide the dialect */
    if (sim_one_in(is_last ? 6 : 30) && may_greet) {
        draw_last(client);
    } else if (drawn < 65) {
        draw_infer(client);
    } else if (drawn < 80) {
        draw_bad(client);
    } else {
        bool describes = sim_one_in(3);
        struct expect *expect = client_expect(client, describes ? ASK_DESCRIBE : ASK_PING);
        struct header header = {.kind = describes ? LM_KIND_DESCRIBE : LM_KIND_PING,
                                .id = expect->id};
        bool credential = sim_one_in(5);
        header.flags = credential ? LM_FLAG_CREDENTIAL : 0;
        header.payload = credential ? LM_NATIVE_CREDENTIAL_BYTES : 0;
        expect->statuses = STATUS(LM_STATUS_OK);
        put_header(client, &header);
        put_junk(client, header.payload);
    }
}

/* ---- answers ---- */

static struct expect *find(struct client *client, uint64_t id) {
    for (uint32_t r = 0; r < client->expect_count; r++) {
        if (client->expects[r].id == id) return &client->expects[r];
    }
    client_fail(client, "an answer to nobody, id", id, 0);
}

/* In answers whose shapes the model decides they come first. */
static void check_infer(const struct client *client, const struct expect *expect, uint16_t flags,
                        const uint8_t *payload, uint32_t bytes) {
    bool tells_shapes = expect->model == 1 || expect->model == SIM_FREE_MODEL;
    if (flags & LM_FLAG_SHAPES) {
        uint32_t words[4];
        memcpy(words, payload, sizeof words);
        bool right = tells_shapes && words[0] == 1 && words[1] == 2 && words[2] == expect->rows &&
                     words[3] == (expect->model == 1 ? 300 : expect->length);
        if (!right) client_fail(client, "a wrong shape block, id", expect->id, 0);
        payload += sizeof words;
        bytes -= (uint32_t)sizeof words;
    } else if (tells_shapes) {
        client_fail(client, "no shape block, id", expect->id, 0);
    }
    for (uint32_t o = 0; o < client_inputs(expect); o++) {
        uint32_t size = client_floats(expect, o) * (uint32_t)sizeof(float);
        if (size > bytes) client_fail(client, "too few outputs, id", expect->id, bytes);
        client_check_output(client, expect, o, payload, size);
        payload += size;
        bytes -= size;
    }
    if (bytes) client_fail(client, "bytes after the outputs, id", expect->id, bytes);
}

uint32_t native_take(struct client *client) {
    const uint8_t *at = client->in;
    uint16_t status, flags;
    uint64_t id;
    uint32_t payload, rows;
    if (client->in_bytes < LM_NATIVE_REPLY_BYTES) return 0;
    if (memcmp(at, "LMR1", 4) != 0) client_fail(client, "not an answer", 0, 0);
    memcpy(&status, at + 4, 2);
    memcpy(&flags, at + 6, 2);
    memcpy(&id, at + 8, 8);
    memcpy(&payload, at + 16, 4);
    memcpy(&rows, at + 20, 4);
    if (payload > 40000) client_fail(client, "an answer too large", payload, id);
    if (client->in_bytes < LM_NATIVE_REPLY_BYTES + payload) return 0;
    at += LM_NATIVE_REPLY_BYTES;
    struct expect *expect = find(client, id);
    uint32_t index = (uint32_t)(expect - client->expects);
    uint32_t begins = index ? client->expects[index - 1].end : 0;
    /* Its body came more slowly than it may. */
    bool is_slow = status == LM_STATUS_BAD_REQUEST && sim_plan.body_bytes_per_s;
    if (!(expect->statuses & STATUS(status)) && !is_slow)
        client_fail(client, "a wrong status, to id", status, id);
    if (client->out_sent <= begins || (status == LM_STATUS_OK && client->out_sent < expect->end))
        client_fail(client, "an answer before the request, id", id, 0);
    if (status != LM_STATUS_OK) {
        if (payload == 0 || payload > LM_TEXT_BYTES_MAX || memchr(at, 0, payload))
            client_fail(client, "no sentence, id", id, status);
    } else if (expect->kind == ASK_DESCRIBE) {
        if (payload != sim_models.description_bytes ||
            memcmp(at, sim_models.description, payload) != 0)
            client_fail(client, "a wrong description, id", id, 0);
    } else if (expect->kind == ASK_PING) {
        if (payload) client_fail(client, "a ping answered with something", id, payload);
    } else {
        if (rows != expect->rows) client_fail(client, "wrong rows, id", id, rows);
        check_infer(client, expect, flags, at, payload);
    }
    client_answered(client, expect, expect->ends);
    return LM_NATIVE_REPLY_BYTES + payload;
}
