/* client_grpc.c: inferences as calls of gRPC, alone and many in a stream, in forms that Protocol
 * Buffers allow; and what must come back.
 */
#include <stdlib.h>
#include <string.h>

#include "client.h"

enum { MESSAGES_MAX = 4, VARINT_MAX = 5 };
/* Field numbers of ModelInferRequest, its tensors, and what answers it. */
enum { MODEL = 1, ID = 3, INPUTS = 5, RAW = 7, NAME = 1, DATATYPE, SHAPE, CONTENTS = 5, FP32S = 6 };
enum { REPLY_ID = 3, REPLY_RAW = 6, STREAM_ERROR = 1, STREAM_REPLY = 2 };
/* Statuses of calls that went well, are too late, are refused, or whose Run failed. */
enum { OK, DEADLINE_EXCEEDED = 4, RESOURCE_EXHAUSTED = 8, INTERNAL = 13, UNAVAILABLE = 14 };

static const char *const names[SIM_MODELS] = {"tiny", "wide", "picture", "pair", "sentence"};

struct bytes {
    uint8_t at[3 * SIM_MAX_REQUEST_BYTES];
    uint32_t used;
};

static void add(struct bytes *bytes, const void *data, uint32_t count) {
    SIM_CHECK(bytes->used + count <= sizeof bytes->at, "a message too large for this client");
    if (count) memcpy(bytes->at + bytes->used, data, count);
    bytes->used += count;
}

static void add_varint(struct bytes *bytes, uint64_t value) {
    do {
        const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        add(bytes, &byte, 1);
        value >>= 7;
    } while (value);
}

static void add_part(struct bytes *bytes, uint32_t field, const void *data, uint32_t count) {
    add_varint(bytes, field << 3 | 2);
    add_varint(bytes, count);
    add(bytes, data, count);
}

static void add_text(struct bytes *bytes, uint32_t field, const char *text) {
    add_part(bytes, field, text, (uint32_t)strlen(text));
}

/* A field that no message has. */
static void add_unknown(struct bytes *bytes) {
    if (sim_one_in(6)) add_text(bytes, 90 + sim_below(9), "nobody reads this");
}

/* An input's numbers, as they lie in memory. */
static void add_floats(struct bytes *bytes, const struct expect *expect, uint32_t input) {
    for (uint32_t at = 0; at < client_floats(expect, input); at++) {
        const bool poison =
            at == 0 && input == 0 && (expect->statuses & STATUS(LM_STATUS_INFERENCE_FAILED));
        const float value = poison ? SIM_POISON : client_value(expect, input, at);
        add(bytes, &value, sizeof value);
    }
}

static void add_shape(struct bytes *bytes, const struct expect *expect, uint32_t input) {
    static const uint8_t sizes[][3] = {{4}, {0}, {3, 4, 4}, {2}, {0}};
    struct bytes *dims = calloc(1, sizeof *dims);
    add_varint(dims, input == 1 ? 3 : expect->rows);
    if (expect->model == 1) add_varint(dims, 300);
    if (expect->model == SIM_FREE_MODEL) add_varint(dims, expect->length);
    for (uint32_t d = 0; input == 0 && d < 3 && sizes[expect->model][d]; d++)
        add_varint(dims, sizes[expect->model][d]);
    add_part(bytes, SHAPE, dims->at, dims->used);
    free(dims);
}

static void add_input(struct bytes *bytes, const struct expect *expect, uint32_t input,
                      bool is_typed) {
    struct bytes *tensor = calloc(3, sizeof *tensor), *contents = tensor + 1, *floats = tensor + 2;
    add_text(tensor, NAME, expect->model != 3 ? "x" : input == 0 ? "a" : "b");
    add_unknown(tensor);
    add_text(tensor, DATATYPE, "FP32");
    add_shape(tensor, expect, input);
    if (is_typed) {
        add_floats(floats, expect, input);
        add_part(contents, FP32S, floats->at, floats->used);
        add_part(tensor, CONTENTS, contents->at, contents->used);
    }
    add_part(bytes, INPUTS, tensor->at, tensor->used);
    free(tensor);
}

static void add_raws(struct bytes *bytes, const struct expect *expect) {
    struct bytes *floats = calloc(1, sizeof *floats);
    for (uint32_t i = 0; i < client_inputs(expect); i++) {
        floats->used = 0;
        add_floats(floats, expect, i);
        add_part(bytes, RAW, floats->at, floats->used);
    }
    free(floats);
}

static void add_message(struct bytes *bytes, const struct expect *expect) {
    struct bytes *message = calloc(1, sizeof *message);
    const bool is_typed = sim_one_in(5), is_late = !is_typed && sim_one_in(8);
    char id[24];
    snprintf(id, sizeof id, "%llu", (unsigned long long)expect->id);
    add_text(message, MODEL, names[expect->model]);
    add_text(message, ID, id);
    if (is_late) add_raws(message, expect); /* before what they are of */
    add_unknown(message);
    for (uint32_t i = 0; i < client_inputs(expect); i++) add_input(message, expect, i, is_typed);
    if (!is_late && !is_typed) add_raws(message, expect);
    const uint8_t prefix[5] = {0, 0, 0, (uint8_t)(message->used >> 8), (uint8_t)message->used};
    add(bytes, prefix, sizeof prefix);
    add(bytes, message->at, message->used);
    free(message);
}

/* The n-th message of a stream. */
static struct expect nth(const struct expect *expect, uint32_t n) {
    struct expect one = *expect;
    one.salt += n;
    one.id += n;
    return one;
}

void grpc_draw(struct client *client, uint32_t stream) {
    struct expect *expect = client_expect(client, ASK_INFER);
    struct bytes *body = calloc(1, sizeof *body);
    char timeout[16];
    expect->model = sim_below(SIM_MODELS);
    uint32_t most = sim_models.models[expect->model]->max_rows;
    expect->rows = 1 + sim_below(sim_below(2) ? 1 : most);
    expect->code = 200;
    expect->is_call = true;
    expect->messages = sim_one_in(3) ? 1 + sim_below(MESSAGES_MAX) : 0;
    expect->statuses = STATUS_REFUSALS;
    if (sim_plan.default_timeout_ns) expect->statuses |= STATUS(LM_STATUS_DEADLINE);
    if (!expect->messages && sim_one_in(12)) expect->statuses |= STATUS(LM_STATUS_INFERENCE_FAILED);
    if (expect->messages && expect->model == 1) expect->rows = 1;
    http2_begin();
    http2_add(":method", "POST");
    http2_add(":scheme", "http");
    http2_add(":path", expect->messages ? "/inference.GRPCInferenceService/ModelStreamInfer"
                                        : "/inference.GRPCInferenceService/ModelInfer");
    http2_add(":authority", "localhost");
    http2_add("content-type", "application/grpc");
    http2_add("te", "trailers");
    if (sim_one_in(10)) {
        snprintf(timeout, sizeof timeout, "%um", 1 + sim_below(sim_below(2) ? 3 : 300));
        http2_add("grpc-timeout", timeout);
        expect->statuses |= STATUS(LM_STATUS_DEADLINE);
    }
    for (uint32_t m = 0; m < (expect->messages ? expect->messages : 1); m++) {
        const struct expect one = nth(expect, m);
        add_message(body, &one);
    }
    http2_put(client, expect, stream, body->at, body->used);
    free(body);
}

/* ---- answers ---- */

static uint64_t read_varint(const struct client *client, const uint8_t **at, const uint8_t *end) {
    uint64_t value = 0;
    for (uint32_t b = 0; b < VARINT_MAX && *at < end; b++) {
        const uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << (7 * b);
        if (!(byte & 0x80)) return value;
    }
    client_fail(client, "a number without an end", 0, 0);
}

/* The next field that has bytes; false: there is none. */
static bool read_part(const struct client *client, const uint8_t **at, const uint8_t *end,
                      uint32_t *field_out, const uint8_t **part_out, uint32_t *bytes_out) {
    while (*at < end) {
        const uint64_t tag = read_varint(client, at, end), value = read_varint(client, at, end);
        if ((tag & 7) == 0) continue;
        if ((tag & 7) != 2 || value > (uint64_t)(end - *at))
            client_fail(client, "a field beyond its message", tag, value);
        *field_out = (uint32_t)(tag >> 3);
        *part_out = *at;
        *bytes_out = (uint32_t)value;
        *at += value;
        return true;
    }
    return false;
}

static void check_reply(const struct client *client, const struct expect *expect, const uint8_t *at,
                        const uint8_t *end) {
    uint32_t field, bytes, outputs = 0;
    const uint8_t *part;
    char id[24];
    snprintf(id, sizeof id, "%llu", (unsigned long long)expect->id);
    while (read_part(client, &at, end, &field, &part, &bytes)) {
        if (field == REPLY_ID && (bytes != strlen(id) || memcmp(part, id, bytes) != 0))
            client_fail(client, "another's id in a message, expected", expect->id, 0);
        if (field == REPLY_RAW) client_check_output(client, expect, outputs++, part, bytes);
    }
    if (outputs != client_inputs(expect)) client_fail(client, "not all outputs", outputs, 0);
}

static bool is_allowed(const struct expect *expect, int64_t status) {
    if (status == DEADLINE_EXCEEDED) return expect->statuses & STATUS(LM_STATUS_DEADLINE);
    if (status == INTERNAL) return expect->statuses & STATUS(LM_STATUS_INFERENCE_FAILED);
    return status == RESOURCE_EXHAUSTED || status == UNAVAILABLE;
}

/* Of a stream: the reply, or why there is none. */
static void check_streamed(const struct client *client, const struct expect *expect,
                           const uint8_t *at, const uint8_t *end) {
    uint32_t field, bytes;
    const uint8_t *part;
    bool is_refused = false;
    while (read_part(client, &at, end, &field, &part, &bytes)) {
        is_refused |= field == STREAM_ERROR && bytes > 0;
        if (field == STREAM_REPLY && !is_refused) check_reply(client, expect, part, part + bytes);
    }
}

void grpc_check(const struct client *client, const struct expect *expect, int64_t status,
                const uint8_t *body, uint32_t bytes) {
    const bool fails = expect->statuses & STATUS(LM_STATUS_INFERENCE_FAILED);
    const uint8_t *at = body, *end = body + bytes;
    uint32_t messages = 0;
    if (status != OK && !is_allowed(expect, status) && !engine_ended_any())
        client_fail(client, "a wrong status of a call", (uint64_t)status, expect->id);
    for (; end - at >= 5; messages++) {
        const uint32_t size = (uint32_t)at[3] << 8 | at[4];
        const struct expect one = nth(expect, messages);
        /* It did not take its reply in time. */
        if (status != OK && size > (uint32_t)(end - at - 5)) return;
        if (at[0] || at[1] || at[2] || size > (uint32_t)(end - at - 5))
            client_fail(client, "a message beyond its stream", size, 0);
        at += 5;
        if (expect->messages) {
            check_streamed(client, &one, at, at + size);
        } else {
            check_reply(client, &one, at, at + size);
        }
        at += size;
    }
    const uint32_t expected = expect->messages ? expect->messages : 1;
    if (at != end || (status == OK && messages != expected) || messages > expected)
        client_fail(client, "other messages than were asked for", messages, expected);
    if (status == OK && fails) client_fail(client, "a Run that failed went well", expect->id, 0);
}
