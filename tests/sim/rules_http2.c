/* rules_http2.c: streams of one connection of HTTP/2, frame by frame: whose answer goes on when the
 * connection's window widens, what calls leave behind, and what they hear of a busy server.
 */
#include <string.h>

#include "rules.h"
#include "wire/hpack.h"
#include "wire/http2_frame.h"
#include "wire/protobuf.h"

static struct talk one;
static struct lm_http2_frame frame; /* that came last */
static uint8_t payload[LM_HTTP2_FRAME_MIN];

static void say(uint8_t type, uint8_t flags, uint32_t stream, const void *bytes, uint32_t count) {
    uint8_t head[LM_HTTP2_FRAME_BYTES];
    lm_http2_write_frame(head, (struct lm_http2_frame){count, stream, type, flags});
    talk_send(&one, head, sizeof head);
    if (count) talk_send(&one, bytes, count);
}

static void greet(void) {
    talk_open(&one);
    talk_text(&one, LM_HTTP2_PREFACE);
    say(LM_HTTP2_SETTINGS, 0, 0, NULL, 0);
}

static void widen(uint32_t stream, uint32_t by) {
    uint8_t more[4];
    lm_http2_put_u32(more, by);
    say(LM_HTTP2_WINDOW_UPDATE, 0, stream, more, sizeof more);
}

/* Waits for the next frame of this type. */
static void awaits(uint8_t type) {
    do {
        talk_reads(&one, LM_HTTP2_FRAME_BYTES, SIM_S);
        frame = lm_http2_read_frame(one.in);
        const uint32_t all = LM_HTTP2_FRAME_BYTES + frame.bytes;
        talk_reads(&one, all, SIM_S);
        memcpy(payload, one.in + LM_HTTP2_FRAME_BYTES, frame.bytes);
        one.in_bytes -= all;
        memmove(one.in, one.in + all, one.in_bytes);
        const bool is_end = frame.type == LM_HTTP2_GOAWAY || frame.type == LM_HTTP2_RST_STREAM;
        SIM_CHECK(!is_end || frame.type == type, "stream %u: a frame of type %u, error %u: %.*s",
                  frame.stream, frame.type, lm_http2_get_u32(payload), (int)frame.bytes,
                  (const char *)payload);
    } while (frame.type != type);
}

/* ---- answers ---- */

/* Answers that wait for the connection's window go on in turn, however little it widens. */
static void answers_in_turn(void) {
    enum { STREAMS = 8, LEFT = 4, MORE = 100 };
    static const char page[] = "\x82\x86\x84\x01\x09localhost"; /* GET / */
    uint32_t came = 0, bytes[2 * STREAMS] = {0};
    greet();
    for (uint32_t s = 0; s < STREAMS; s++)
        say(LM_HTTP2_HEADERS, LM_HTTP2_END_HEADERS | LM_HTTP2_END_STREAM, 2 * s + 1, page,
            sizeof page - 1);
    while (came < LM_HTTP2_WINDOW) {
        awaits(LM_HTTP2_DATA);
        came += frame.bytes;
    }
    SIM_CHECK(came == LM_HTTP2_WINDOW, "%u bytes in the first window", came);
    talk_takes_nothing(&one, 10 * SIM_MS);
    for (uint32_t turn = 0; turn < 3 * LEFT; turn++) {
        widen(0, MORE);
        awaits(LM_HTTP2_DATA);
        SIM_CHECK(frame.bytes == MORE, "%u bytes of %u", frame.bytes, MORE);
        bytes[frame.stream] += MORE;
        const uint32_t rounds = turn / LEFT + 1;
        SIM_CHECK(bytes[frame.stream] <= rounds * MORE,
                  "stream %u has %u bytes in round %u: others wait", frame.stream,
                  bytes[frame.stream], rounds);
    }
    talk_close(&one);
}

/* ---- calls ---- */

enum { STREAM_INFER, INFER };
static const char *const calls[] = {
    [STREAM_INFER] = "\x83\x86\x04\x30/inference.GRPCInferenceService/ModelStreamInfer",
    [INFER] = "\x83\x86\x04\x2a/inference.GRPCInferenceService/ModelInfer"};

/* Begins a call; `flags` may say that it brings no message. */
static void call(uint32_t stream, int method, uint8_t flags) {
    static const char rest[] = "\x01\x09localhost\x0f\x10\x10"
                               "application/grpc\0\x02te\x08trailers";
    char block[200];
    const size_t bytes = strlen(calls[method]);
    memcpy(block, calls[method], bytes);
    memcpy(block + bytes, rest, sizeof rest - 1);
    say(LM_HTTP2_HEADERS, LM_HTTP2_END_HEADERS | flags, stream, block,
        (uint32_t)(bytes + sizeof rest - 1));
}

/* The call ends, with fields as "name: value;" and so on. */
static void ends(uint32_t stream, const char *expected) {
    static struct lm_hpack_fields fields;
    struct lm_hpack hpack = {0};
    char why[LM_TEXT_BYTES_MAX] = "", said[400] = "";
    awaits(LM_HTTP2_HEADERS);
    SIM_CHECK(frame.stream == stream && frame.flags & LM_HTTP2_END_STREAM,
              "stream %u, expected the end of %u", frame.stream, stream);
    SIM_CHECK(lm_hpack_decode(&hpack, payload, frame.bytes, &fields, why, sizeof why), "%s", why);
    for (uint32_t f = 0; f < fields.count; f++) {
        const struct lm_slice name = fields.list[f].name, value = fields.list[f].value;
        snprintf(said + strlen(said), sizeof said - strlen(said), "%.*s: %.*s;", (int)name.bytes,
                 name.at, (int)value.bytes, value.at);
    }
    SIM_CHECK(strstr(said, expected), "expected '%s' in: %s", expected, said);
}

/* Calls of many messages that have ended do not count among those of their connection. */
static void calls_end(void) {
    enum { CALLS = 40 };
    greet();
    for (uint32_t c = 0; c < CALLS; c++) {
        call(2 * c + 1, STREAM_INFER, LM_HTTP2_END_STREAM);
        ends(2 * c + 1, "grpc-status: 0;");
    }
    talk_close(&one);
}

static void two_in_flight(struct sim_plan *plan) {
    plan->in_flight_max = 2;
}

enum { MESSAGE_BYTES_MAX = 100 };

/* The message of an inference of one row, with its prefix. Returns its length. */
static uint32_t row(uint8_t bytes[MESSAGE_BYTES_MAX]) {
    struct lm_pb_writer writer = {.at = bytes + 5, .end = bytes + MESSAGE_BYTES_MAX};
    lm_pb_put_bytes(&writer, 1, "tiny", 4);
    uint8_t *input = lm_pb_begin(&writer, 5);
    lm_pb_put_bytes(&writer, 1, "x", 1);
    lm_pb_put_bytes(&writer, 2, "FP32", 4);
    lm_pb_put_bytes(&writer, 3, "\1\4", 2);
    lm_pb_end(&writer, input);
    lm_pb_put_bytes(&writer, 7, "0123456789abcdef", 16);
    bytes[0] = 0;
    lm_http2_put_u32(bytes + 1, (uint32_t)(writer.at - bytes - 5));
    return (uint32_t)(writer.at - bytes);
}

/* Sends the call of an inference of one row. */
static void infer(uint32_t stream) {
    uint8_t bytes[MESSAGE_BYTES_MAX];
    const uint32_t count = row(bytes);
    call(stream, INFER, 0);
    say(LM_HTTP2_DATA, LM_HTTP2_END_STREAM, stream, bytes, count);
}

static void one_waits(struct sim_plan *plan) {
    plan->in_flight_max = 1;
    plan->overload = LUMEN_OVERLOAD_WAIT;
    plan->socket_bytes = 4096;
}

/* Calls that wait for a slot and are refused once they have one, while their client reads nothing:
 * each hears of it, though their statuses together are more than can wait to be sent. */
static void many_ends(void) {
    enum { CALLS = 16, PAGE = 2 * CALLS + 1 };
    static const char page[] = "\x82\x86\x84\x01\x09localhost"; /* GET / */
    static struct talk two;
    uint8_t bytes[MESSAGE_BYTES_MAX + 1];
    const uint32_t count = row(bytes);
    uint32_t ended = 0;
    bytes[count] = 'x'; /* behind the one message */
    runtime_takes_ns = 100 * SIM_MS;
    talk_open(&two);
    talk_asks(&two, &(struct ask){.id = 1});
    greet();
    for (uint32_t c = 0; c < CALLS; c++) {
        call(2 * c + 1, INFER, 0);
        say(LM_HTTP2_DATA, LM_HTTP2_END_STREAM, 2 * c + 1, bytes, count + 1);
        pass(SIM_MS);
    }
    one.deaf = true;
    say(LM_HTTP2_HEADERS, LM_HTTP2_END_HEADERS | LM_HTTP2_END_STREAM, PAGE, page, sizeof page - 1);
    (void)talk_gets(&two, 1, LM_STATUS_OK);
    pass(100 * SIM_MS);
    one.deaf = false;
    while (ended < CALLS) {
        awaits(LM_HTTP2_HEADERS);
        ended += frame.stream != PAGE;
    }
    talk_close(&one);
    talk_close(&two);
}

/* A call that finds all busy hears when to come again: in milliseconds, as gRPC has it. */
static void busy(void) {
    static struct talk two;
    runtime_takes_ns = 100 * SIM_MS;
    talk_open(&two);
    talk_asks(&two, &(struct ask){.id = 1});
    talk_asks(&two, &(struct ask){.id = 2});
    pass(SIM_MS);
    greet();
    infer(1);
    ends(1, "grpc-retry-pushback-ms: 1000;");
    (void)talk_gets(&two, 1, LM_STATUS_OK);
    (void)talk_gets(&two, 2, LM_STATUS_OK);
    talk_close(&one);
}

static void idle_soon(struct sim_plan *plan) {
    plan->idle_ms = 2000;
}

/* A connection is idle from its last answer on, however long that took. */
static void idle_behind_answers(void) {
    runtime_takes_ns = 5 * SIM_S;
    greet();
    for (uint32_t stream = 1; stream < 5; stream += 2) {
        infer(stream);
        pass(4900 * SIM_MS);
        awaits(LM_HTTP2_HEADERS);
        awaits(LM_HTTP2_DATA);
        ends(stream, "grpc-status: 0;");
        pass(1900 * SIM_MS);
    }
    awaits(LM_HTTP2_GOAWAY);
    SIM_CHECK(lm_http2_get_u32(payload) == 3 && lm_http2_get_u32(payload + 4) == 0,
              "the last stream is %u, the error %u", lm_http2_get_u32(payload),
              lm_http2_get_u32(payload + 4));
    talk_close(&one);
}

/* The prefix of a message of so many bytes, and the end of its call. */
static void announce(uint32_t stream, uint32_t bytes) {
    uint8_t prefix[5] = {0};
    lm_http2_put_u32(prefix + 1, bytes);
    call(stream, INFER, 0);
    say(LM_HTTP2_DATA, LM_HTTP2_END_STREAM, stream, prefix, sizeof prefix);
}

/* A message may have as many bytes as a body may. */
static void longest_message(void) {
    greet();
    announce(1, SIM_MAX_REQUEST_BYTES);
    ends(1, "grpc-status: 3;"); /* it ends before its length says */
    announce(3, SIM_MAX_REQUEST_BYTES + 1);
    ends(3, "grpc-status: 8;");
    talk_close(&one);
}

/* Padding takes of a stream's window, and comes back: who sends a byte and 255 of it each time is
 * told that there is room again before there is none. */
static void padding_comes_back(void) {
    enum { PADDED = 1 + 1 + 255, FRAMES = LM_HTTP2_STREAM_WINDOW / PADDED - 1 };
    static const uint8_t padded[PADDED] = {255};
    uint8_t prefix[5] = {0};
    greet();
    lm_http2_put_u32(prefix + 1, FRAMES + 100);
    call(1, INFER, 0);
    say(LM_HTTP2_DATA, 0, 1, prefix, sizeof prefix);
    for (uint32_t n = 0; n < FRAMES; n++) {
        say(LM_HTTP2_DATA, LM_HTTP2_PADDED, 1, padded, sizeof padded);
        pass(SIM_MS);
    }
    do awaits(LM_HTTP2_WINDOW_UPDATE);
    while (frame.stream == 0); /* as a connection begins */
    SIM_CHECK(lm_http2_get_u32(payload) >= PADDED, "%u bytes", lm_http2_get_u32(payload));
    talk_close(&one);
}

/* ---- what a client cancels ---- */

/* All calls that it may have, twice in a second, however often: one more is one too many. */
static void resets(void) {
    enum { MOST = 2 * LM_HTTP2_STREAMS_MAX, SECONDS = 3 };
    static const char post[] = "\x83\x86\x84\x01\x09localhost"; /* POST / */
    const uint8_t cancel[4] = {0, 0, 0, LM_HTTP2_CANCEL};
    uint32_t stream = 1;
    greet();
    for (uint32_t s = 0; s < SECONDS; s++) {
        for (uint32_t n = 0; n < MOST; n++, stream += 2) {
            say(LM_HTTP2_HEADERS, LM_HTTP2_END_HEADERS, stream, post, sizeof post - 1);
            say(LM_HTTP2_RST_STREAM, 0, stream, cancel, sizeof cancel);
            pass(SIM_MS);
        }
        pass(SIM_S);
        say(LM_HTTP2_PING, 0, 0, "12345678", 8);
        awaits(LM_HTTP2_PING);
    }
    for (uint32_t n = 0; n <= MOST; n++, stream += 2) {
        say(LM_HTTP2_HEADERS, LM_HTTP2_END_HEADERS, stream, post, sizeof post - 1);
        say(LM_HTTP2_RST_STREAM, 0, stream, cancel, sizeof cancel);
        pass(SIM_MS);
    }
    say(LM_HTTP2_PING, 0, 0, "12345678", 8); /* the next frame finds it */
    awaits(LM_HTTP2_GOAWAY);
    SIM_CHECK(lm_http2_get_u32(payload + 4) == LM_HTTP2_ENHANCE_YOUR_CALM, "another error");
    talk_close(&one);
}

const struct rule rules_of_http2[] = {
    {"answers in turn", NULL, answers_in_turn},
    {"calls that end", NULL, calls_end},
    {"a call that finds all busy", two_in_flight, busy},
    {"a connection that is idle", idle_soon, idle_behind_answers},
    {"calls that end unread", one_waits, many_ends},
    {"the longest message of a call", NULL, longest_message},
    {"padding comes back", NULL, padding_comes_back},
    {"what a client cancels", NULL, resets},
};
const size_t rules_of_http2_count = sizeof rules_of_http2 / sizeof rules_of_http2[0];
