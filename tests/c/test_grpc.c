/* Messages of gRPC (row 49): what becomes JSON, what JSON becomes, tensors that need not wait for
 * the end of their message, and room that is too small. */
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "check.h"
#include "formats/grpc_describe.h"
#include "formats/grpc_infer.h"
#include "formats/grpc_message.h"
#include "formats/grpc_route.h"

static char json[4096], why[256];
static uint8_t message[4096];

/* A message as the tests write it: fields of bytes, each with its number. */
struct draft {
    uint8_t bytes[1024];
    struct lm_pb_writer writer;
};

static void begin(struct draft *draft) {
    draft->writer = (struct lm_pb_writer){draft->bytes, draft->bytes + sizeof draft->bytes, false};
}
static size_t size_of(const struct draft *draft) {
    return (size_t)(draft->writer.at - draft->bytes);
}
static void put(struct draft *draft, uint32_t number, const char *text) {
    lm_pb_put_bytes(&draft->writer, number, text, strlen(text));
}

/* One input x of FP32 and shape [2, 2]. */
static void put_input(struct draft *draft) {
    uint8_t *start = lm_pb_begin(&draft->writer, 5);
    put(draft, 1, "x");
    put(draft, 2, "FP32");
    lm_pb_put_bytes(&draft->writer, 3, "\2\2", 2);
    lm_pb_end(&draft->writer, start);
}

#define ASKED                                                                                 \
    "{\"parameters\":{\"binary_data_output\":true},\"inputs\":[{\"name\":\"x\",\"datatype\":" \
    "\"FP32\",\"shape\":[2,2],\"parameters\":{\"binary_data_size\":16}}]}"

/* ---- requests ---- */

static void tensors_need_not_wait(void) {
    static const float values[4] = {1, 2, 3, 4};
    struct draft draft;
    begin(&draft);
    put(&draft, 1, "double");
    put_input(&draft);
    const size_t fields = size_of(&draft);
    lm_pb_put_bytes(&draft.writer, LM_GRPC_RAW_INPUTS, values, sizeof values);
    const size_t all = size_of(&draft);
    for (size_t have = 0; have <= all; have++) {
        size_t scanned = 0, begins = 0;
        uint64_t tensor = 0;
        const bool is_there = lm_grpc_scan_head(draft.bytes, have, all, &scanned, &tensor, &begins);
        CHECK(is_there == (have >= fields + 2));
        if (!is_there) continue;
        CHECK(scanned == fields && begins == fields + 2 && tensor == sizeof values);
    }
    struct lm_grpc_plan plan;
    CHECK(lm_grpc_plan(draft.bytes, fields, all - fields, sizeof values, json, sizeof json, &plan,
                       why, sizeof why));
    CHECK(plan.is_plain && plan.blob_count == 1 && plan.blobs[0] == sizeof values);
    CHECK(plan.json_bytes == sizeof ASKED - 1 && memcmp(json, ASKED, plan.json_bytes) == 0);
    /* Bytes that no tensor has: its worker has to say so. */
    CHECK(lm_grpc_plan(draft.bytes, fields, all - fields + 1, sizeof values, json, sizeof json,
                       &plan, why, sizeof why));
    CHECK(!plan.is_plain);
    CHECK(!lm_grpc_plan(draft.bytes, fields, all - fields, sizeof values, json, 20, &plan, why,
                        sizeof why));
    CHECK(strstr(why, "too long"));
}

/* Only so many tensors are planned as a plan has places for; a message of more is read whole. */
static void more_tensors_wait(void) {
    enum { FRAMED = 2 + 16 }; /* a tensor behind its tag and its length */
    struct draft draft;
    begin(&draft);
    for (uint32_t count = 1; count <= LM_GRPC_BLOBS_MAX + 2; count++) {
        struct lm_grpc_plan plan;
        put_input(&draft);
        CHECK_AT("%u tensors", count);
        CHECK(lm_grpc_plan(draft.bytes, size_of(&draft), (uint64_t)count * FRAMED, 16, json,
                           sizeof json, &plan, why, sizeof why));
        CHECK(plan.is_plain == (count <= LM_GRPC_BLOBS_MAX));
        if (plan.is_plain) CHECK(plan.blob_count == count && plan.blobs[count - 1] == 16);
    }
}

static void whole_messages_are_unpacked(void) {
    static const float values[4] = {1, 2, 3, 4};
    struct draft draft;
    size_t bytes = 0, json_bytes = 0;
    begin(&draft);
    lm_pb_put_bytes(&draft.writer, LM_GRPC_RAW_INPUTS, values, sizeof values);
    put_input(&draft);
    CHECK(lm_grpc_unpack(draft.bytes, size_of(&draft), json, sizeof json, &bytes, &json_bytes, why,
                         sizeof why) == LM_STATUS_OK);
    CHECK(json_bytes == sizeof ASKED - 1 && memcmp(json, ASKED, json_bytes) == 0);
    CHECK(bytes == json_bytes + sizeof values);
    CHECK(memcmp(json + json_bytes, values, sizeof values) == 0);
    for (size_t room = 0; room < bytes; room++)
        CHECK(lm_grpc_unpack(draft.bytes, size_of(&draft), json, room, &bytes, &json_bytes, why,
                             sizeof why) == LM_STATUS_TOO_LARGE);
    for (size_t cut = 1; cut < size_of(&draft); cut++) /* somewhere a field has ended */
        (void)lm_grpc_unpack(draft.bytes, cut, json, sizeof json, &bytes, &json_bytes, why,
                             sizeof why);
    CHECK(lm_grpc_unpack((const uint8_t *)"\xff", 1, json, sizeof json, &bytes, &json_bytes, why,
                         sizeof why) == LM_STATUS_BAD_REQUEST);
}

static void expect_route(enum lm_grpc_method_index method, const struct draft *draft,
                         const char *expected, const char *body_expected) {
    char line[512], body[512];
    struct lm_grpc_text path = {.at = line, .end = line + sizeof line - 1};
    struct lm_grpc_text text = {.at = body, .end = body + sizeof body - 1};
    CHECK(lm_grpc_route(method, draft->bytes, size_of(draft), &path, &text) == NULL);
    *path.at = *text.at = '\0';
    CHECK(strcmp(line, expected) == 0);
    CHECK(strcmp(body, body_expected) == 0);
}

static void calls_have_paths(void) {
    struct draft draft;
    begin(&draft);
    expect_route(LM_GRPC_MODEL_STATISTICS, &draft, "GET /v2/models/stats HTTP/1.1\r\n", "");
    expect_route(LM_GRPC_TRACE_SETTING, &draft, "GET /v2/trace/setting HTTP/1.1\r\n", "");
    expect_route(LM_GRPC_REPOSITORY_INDEX, &draft, "POST /v2/repository/index HTTP/1.1\r\n", "{}");
    expect_route(LM_GRPC_CHECK, &draft, "GET /v2/health/ready HTTP/1.1\r\n", "");
    put(&draft, 1, "a/b c\r\n");
    put(&draft, 2, "7");
    expect_route(LM_GRPC_MODEL_READY, &draft,
                 "GET /v2/models/a%2Fb%20c%0D%0A/versions/7/ready HTTP/1.1\r\n", "");
    begin(&draft);
    put(&draft, 2, "m");
    uint8_t *entry = lm_pb_begin(&draft.writer, 3);
    put(&draft, 1, "config");
    uint8_t *value = lm_pb_begin(&draft.writer, 2);
    put(&draft, 3, "{\"a\":\n1}");
    lm_pb_end(&draft.writer, value);
    lm_pb_end(&draft.writer, entry);
    expect_route(LM_GRPC_MODEL_LOAD, &draft, "POST /v2/repository/models/m/load HTTP/1.1\r\n",
                 "{\"parameters\":{\"config\":\"{\\\"a\\\":\\u000a1}\"}}");
    begin(&draft);
    char line[64];
    struct lm_grpc_text path = {.at = line, .end = line + sizeof line}, none = path;
    CHECK(lm_grpc_route(LM_GRPC_MODEL_CONFIG, draft.bytes, 0, &path, &none) != NULL);
}

/* ---- replies ---- */

static void expect_message(enum lm_grpc_method_index method, const char *text, const char *bytes,
                           size_t count) {
    struct lm_pb_writer writer = {.at = message, .end = message + sizeof message};
    CHECK(lm_grpc_from_json(method, text, strlen(text), &writer));
    CHECK((size_t)(writer.at - message) == count && memcmp(message, bytes, count) == 0);
    for (size_t room = 0; room < count; room++) {
        writer = (struct lm_pb_writer){.at = message, .end = message + room};
        CHECK(!lm_grpc_from_json(method, text, strlen(text), &writer));
    }
}
#define MESSAGE(method, text, bytes) expect_message(method, text, bytes, sizeof(bytes) - 1)

static void json_becomes_messages(void) {
    MESSAGE(LM_GRPC_SERVER_METADATA,
            "{ \"name\":\"l\\u00e9\\ud83d\\ude00\\n\", \"what\":[{\"a\":[1,\"]\"]}], "
            "\"extensions\":[\"a\",\"b\"]}",
            "\x0a\x08l\xc3\xa9\xf0\x9f\x98\x80\n\x1a\1a\x1a\1b");
    MESSAGE(LM_GRPC_MODEL_METADATA,
            "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,300]}]}",
            "\x22\x17\x0a\1x\x12\4FP32\x1a\x0c\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\xac\2");
    MESSAGE(LM_GRPC_MODEL_CONFIG,
            "{\"max_batch_size\":8,\"input\":[{\"data_type\":\"TYPE_FP32\"}],"
            "\"parameters\":{\"k\":{\"string_value\":\"v\"}},\"response_cache\":{\"enable\":true}}",
            "\x0a\x15\x20\x08\x2a\2\x10\x0b\x72\x08\x0a\1k\x12\3\x0a\1v\xc2\1\2\x08\1");
    MESSAGE(LM_GRPC_REPOSITORY_INDEX, "[{\"name\":\"a\",\"state\":\"READY\"}]",
            "\x0a\x0a\x0a\1a\x1a\5READY");
    MESSAGE(LM_GRPC_SYSTEM_SHM_STATUS, "[{\"name\":\"r\",\"byte_size\":64}]",
            "\x0a\x0a\x0a\1r\x12\5\x0a\1r\x20\x40");
    MESSAGE(LM_GRPC_TRACE_SETTING, "{\"a\":[\"b\"],\"c\":\"d\",\"e\":null}",
            "\x0a\x08\x0a\1a\x12\3\x0a\1b\x0a\x08\x0a\1c\x12\3\x0a\1d");
    MESSAGE(LM_GRPC_LOG_SETTINGS, "{\"a\":true,\"b\":7,\"c\":\"\"}",
            "\x0a\7\x0a\1a\x12\2\x08\1\x0a\7\x0a\1b\x12\2\x10\7\x0a\7\x0a\1c\x12\2\x1a\0");
    MESSAGE(LM_GRPC_MODEL_LOAD, "", "");
    /* Two halves that end a text are one character, as elsewhere; one half is none. */
    MESSAGE(LM_GRPC_SERVER_METADATA, "{\"name\":\"\\ud83d\\ude00\"}", "\x0a\4\xf0\x9f\x98\x80");
    MESSAGE(LM_GRPC_SERVER_METADATA, "{\"name\":\"\\ud83d.\"}", "\x0a\4\xef\xbf\xbd.");
}

static void outputs_and_errors(void) {
    static const char reply[] =
        "{\"model_name\":\"m\",\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[2],"
        "\"parameters\":{\"binary_data_size\":8}},{\"name\":\"z\",\"parameters\":{\"k\":-1}}]}";
    static const char expected[] = "\x0a\1m\x2a\x0c\x0a\1y\x12\4FP32\x1a\1\2"
                                   "\x2a\x15\x0a\1z\x22\x10\x0a\1k\x12\x0b\x10"
                                   "\xff\xff\xff\xff\xff\xff\xff\xff\xff\1";
    struct lm_pb_writer writer = {.at = message, .end = message + sizeof message};
    uint64_t sizes[LM_TENSORS_MAX];
    CHECK(lm_grpc_from_infer_json(reply, sizeof reply - 1, &writer, sizes) == 2);
    CHECK(sizes[0] == 8 && sizes[1] == 0);
    CHECK((size_t)(writer.at - message) == sizeof expected - 1);
    CHECK(memcmp(message, expected, sizeof expected - 1) == 0);
    static const char error[] = "{\"x\":{\"error\":\"no\"},\"error\":\"a \\\"b\\\" \\u00e9\"}";
    lm_grpc_error_text(error, sizeof error - 1, why, sizeof why);
    CHECK(strcmp(why, "a \"b\" \xc3\xa9") == 0);
    lm_grpc_error_text(error, sizeof error - 1, why, 6);
    CHECK(strlen(why) <= 5);
    lm_grpc_error_text("plain", 5, why, sizeof why);
    CHECK(strcmp(why, "plain") == 0);
}

int main(void) {
    check_watchdog(120, "messages of gRPC");
    tensors_need_not_wait();
    more_tensors_wait();
    whole_messages_are_unpacked();
    calls_have_paths();
    json_becomes_messages();
    outputs_and_errors();
    return check_finish("test_grpc");
}
