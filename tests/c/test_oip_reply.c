/* test_oip_reply.c: replies of the Open Inference Protocol: to the letter for a few, and for random
 * ones that numbers read back as they were, bounds hold, and nothing is written where it does not
 * fit. Memory ends at unreadable pages. */
#include <math.h>

#include "base/error.h"
#include "formats/oip_reply.h"
#include "oip_models.h"

enum { ROOM = 1 << 20, ELEMENTS_MAX = 4096 };

static struct lm_model model;
static struct lm_oip_request request;
static struct lm_oip_lists lists;
static struct lm_oip_output outputs[LM_TENSORS_MAX];
static struct lm_oip_reply reply;
static struct check_guard json_guard, scratch_guard;
static struct lm_labels labels;
static char why[LM_TEXT_BYTES_MAX];
static char *json;

static void reset(void) {
    oip_model(&model, "net", 8);
    lm_oip_request_hold(&request, &lists);
    lm_oip_request_reset(&request);
    memset(outputs, 0, sizeof outputs);
    request.sizes.rows = 1;
}

/* Adds an output with these contents, and requests it. */
static void want(struct lm_tensor tensor, uint32_t rows, const void *data, bool binary,
                 uint32_t classes) {
    uint32_t at = model.output_count;
    oip_output(&model, tensor);
    struct lm_oip_output *output = &outputs[at];
    output->tensor = &model.outputs[at];
    output->data = data;
    output->rank = tensor.rank;
    lm_tensor_shape(&tensor, ROWS(rows), output->dims);
    CHECK(lm_tensor_bytes(&tensor, ROWS(rows), &output->bytes));
    request.requested[request.requested_count++] =
        (struct lm_oip_requested_output){(uint8_t)at, binary, classes, false};
}

static enum lm_status compose(size_t json_bytes, size_t scratch_bytes) {
    uint64_t before = oip_allocations;
    size_t offset = (scratch_bytes + 3) / 4 * 4;
    struct lm_oip_room room = {.json = (char *)check_guard_tail(&json_guard, json_bytes),
                               .json_bytes = json_bytes,
                               .scratch = check_guard_tail(&scratch_guard, offset),
                               .scratch_bytes = scratch_bytes};
    json = room.json;
    memset(why, 0, sizeof why);
    enum lm_status status = lm_oip_write(&model, &request, outputs, labels.count ? &labels : NULL,
                                         &room, &reply, why, sizeof why);
    CHECK(oip_allocations == before);
    CHECK((status == LM_STATUS_OK) == (why[0] == '\0'));
    return status;
}

/* Within the bounds; and with less than it took, refused. */
static void compose_bounded(void) {
    size_t json_bytes = 0, scratch_bytes = 0, most = 0;
    CHECK(lm_oip_reply_bytes_max(&model, &request, outputs, &labels, &json_bytes, &scratch_bytes));
    CHECK(json_bytes <= ROOM && scratch_bytes <= ROOM);
    CHECK(compose(json_bytes, scratch_bytes) == LM_STATUS_OK);
    most = reply.json_bytes;
    CHECK(most <= json_bytes);
    size_t blobs = 0;
    for (uint32_t b = 0; b < reply.blob_count; b++) blobs += reply.blobs[b].bytes;
    CHECK(blobs == reply.blobs_bytes);
    CHECK(compose(most - 1, scratch_bytes) == LM_STATUS_TOO_LARGE);
    CHECK(compose(most / 2, scratch_bytes) == LM_STATUS_TOO_LARGE);
    CHECK(compose(0, scratch_bytes) == LM_STATUS_TOO_LARGE);
    CHECK(compose(most, scratch_bytes) == LM_STATUS_OK && reply.json_bytes == most);
}

static void says(const char *expected) {
    CHECK_AT("%.150s", expected);
    compose_bounded();
    if (reply.json_bytes != strlen(expected) || memcmp(json, expected, reply.json_bytes))
        fprintf(stderr, "%.*s\n%s\n", (int)reply.json_bytes, json, expected);
    CHECK(reply.json_bytes == strlen(expected));
    CHECK(memcmp(json, expected, reply.json_bytes) == 0);
}

#define REPLY(outputs) "{\"model_name\":\"net\",\"model_version\":\"1\",\"outputs\":[" outputs "]}"

/* ---- tensors ---- */

static void tensors(void) {
    static const float floats[] = {0, -0.0f, 1, -1.5f, 0.1f, 1e-45f, 3.4028235e38f, 1e20f};
    static const double doubles[] = {0.1, -1e300, 9007199254740991, 9007199254740992};
    static const int8_t bytes[] = {-128, 127};
    static const uint64_t longs[] = {UINT64_MAX, 0};
    static const int64_t signs[] = {INT64_MIN, INT64_MAX};
    static const uint8_t flags[] = {1, 0, 1};
    static const uint16_t half[] = {0x7e00, 0x3c00};
    reset();
    want(OIP_TENSOR("f", ORT_FLOAT, -1, 4), 2, floats, false, 0);
    says(REPLY("{\"name\":\"f\",\"datatype\":\"FP32\",\"shape\":[2,4],\"data\":[0,-0.0,1,-1.5,0.1,"
               "1e-45,3.4028235e+38,1e+20]}"));
    CHECK(reply.blob_count == 0);
    reset();
    memcpy(request.id, "a\\\"", request.id_bytes = 3);
    want(OIP_TENSOR("d", ORT_DOUBLE, 4), 1, doubles, false, 0);
    want(OIP_TENSOR("h\"\n", ORT_FLOAT16, -1), 2, half, true, 0);
    want(OIP_TENSOR("b", ORT_BOOL, 3), 1, flags, false, 0);
    want(OIP_TENSOR("i", ORT_INT8, 2), 1, bytes, false, 0);
    want(OIP_TENSOR("f", ORT_FLOAT, 2, 2, 2), 1, floats, true, 0);
    says("{\"id\":\"a\\\"\",\"model_name\":\"net\",\"model_version\":\"1\",\"outputs\":[{\"name\":"
         "\"d\",\"datatype\":\"FP64\",\"shape\":[4],\"data\":[0.1,-1e+300,9007199254740991,"
         "9.007199254740992e+15]},{\"name\":\"h\\\"\\u000a\",\"datatype\":\"FP16\",\"shape\":[2],"
         "\"parameters\":{\"binary_data_size\":4}},{\"name\":\"b\",\"datatype\":\"BOOL\",\"shape\":"
         "[3],\"data\":[true,false,true]},{\"name\":\"i\",\"datatype\":\"INT8\",\"shape\":[2],"
         "\"data\":[-128,127]},{\"name\":\"f\",\"datatype\":\"FP32\",\"shape\":[2,2,2],"
         "\"parameters\":{\"binary_data_size\":32}}]}");
    CHECK(reply.blob_count == 2 && reply.blobs[0].data == half && reply.blobs[0].bytes == 4);
    CHECK(reply.blobs[1].data == floats && reply.blobs[1].bytes == 32 && reply.blobs_bytes == 36);
    reset();
    want(OIP_TENSOR("u", ORT_UINT64, 2), 1, longs, false, 0);
    want(OIP_TENSOR("s", ORT_INT64, 2), 1, signs, false, 0);
    want(OIP_TENSOR("none", ORT_FLOAT, -1, 4), 0, NULL, false, 0);
    want(OIP_TENSOR("nothing", ORT_FLOAT, -1, 4), 0, NULL, true, 0);
    says(
        REPLY("{\"name\":\"u\",\"datatype\":\"UINT64\",\"shape\":[2],\"data\":[18446744073709551615"
              ",0]},{\"name\":\"s\",\"datatype\":\"INT64\",\"shape\":[2],\"data\":["
              "-9223372036854775808,9223372036854775807]},{\"name\":\"none\",\"datatype\":\"FP32\","
              "\"shape\":[0,4],\"data\":[]},{\"name\":\"nothing\",\"datatype\":\"FP32\",\"shape\":"
              "[0,4],\"parameters\":{\"binary_data_size\":0}}"));
    CHECK(reply.blob_count == 1 && reply.blobs_bytes == 0);
}

static void unsayable(void) {
    static const float values[3][2] = {{1, NAN}, {-INFINITY, 1}, {INFINITY, NAN}};
    static const double doubles[] = {NAN};
    static const uint16_t half[] = {0};
    for (uint32_t i = 0; i < 3; i++) {
        reset();
        want(OIP_TENSOR("x", ORT_FLOAT, 2), 1, values[i], false, 0);
        CHECK(compose(ROOM, ROOM) == LM_STATUS_INFERENCE_FAILED);
        CHECK(strcmp(why, "output 'x' holds NaN or infinity, which JSON cannot say: ask for it as "
                          "binary_data") == 0);
        request.requested[0].binary = true;
        CHECK(compose(ROOM, ROOM) == LM_STATUS_OK);
    }
    reset();
    want(OIP_TENSOR("y", ORT_DOUBLE, 1), 1, doubles, false, 0);
    CHECK(compose(ROOM, ROOM) == LM_STATUS_INFERENCE_FAILED);
    reset();
    want(OIP_TENSOR("z", ORT_BFLOAT16, 1), 1, half, false, 0);
    CHECK(compose(ROOM, ROOM) == LM_STATUS_BAD_REQUEST && strstr(why, "BF16"));
    request.requested[0].classes = 1;
    CHECK(compose(ROOM, ROOM) == LM_STATUS_BAD_REQUEST && strstr(why, "classification"));
}

/* ---- classification ---- */

static void classification(void) {
    static const float scores[] = {0.25f, 0.5f, 0.25f, -1, NAN, 3};
    static const int32_t counts[] = {7, 9, 9, -3};
    static const double huge[] = {-1.7976931348623157e308};
    const char *text = "cat\n\"dog\"\n\nco\\w\n";
    CHECK(lm_labels_open(&labels, text, strlen(text)) == 0);
    reset();
    want(OIP_TENSOR("s", ORT_FLOAT, -1, 3), 2, scores, false, 2);
    want(OIP_TENSOR("c", ORT_INT32, 4), 1, counts, false, 9);
    says(REPLY("{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[2,2],\"data\":["
               "\"0.500000:1:\\\"dog\\\"\",\"0.250000:0:cat\",\"3.000000:2\",\"-1.000000:0:cat\"]},"
               "{\"name\":\"c\",\"datatype\":\"BYTES\",\"shape\":[4],\"data\":[\"9:1:\\\"dog\\\"\","
               "\"9:2\",\"7:0:cat\",\"-3:3:co\\\\w\"]}"));
    reset();
    want(OIP_TENSOR("s", ORT_FLOAT, -1, 3), 2, scores, true, 3);
    want(OIP_TENSOR("s2", ORT_FLOAT, 6), 1, scores, true, 0);
    want(OIP_TENSOR("c", ORT_INT32, 4), 1, counts, true, 1);
    says(REPLY("{\"name\":\"s\",\"datatype\":\"BYTES\",\"shape\":[2,3],\"parameters\":{"
               "\"binary_data_size\":100}},{\"name\":\"s2\",\"datatype\":\"FP32\",\"shape\":[6],"
               "\"parameters\":{\"binary_data_size\":24}},{\"name\":\"c\",\"datatype\":\"BYTES\","
               "\"shape\":[1],\"parameters\":{\"binary_data_size\":13}}"));
    CHECK(reply.blob_count == 3 && reply.blobs_bytes == 100 + 24 + 13);
    CHECK(memcmp(reply.blobs[0].data,
                 "\x10\0\0\0"
                 "0.500000:1:\"dog\""
                 "\x0e\0\0\0"
                 "0.250000:0:cat"
                 "\x0a\0\0\0"
                 "0.250000:2",
                 52) == 0);
    CHECK(memcmp((const char *)reply.blobs[0].data + 100 - 9, "nan:1:\"do", 9) != 0);
    CHECK(memcmp((const char *)reply.blobs[0].data + 100 - 11, "nan:1:\"dog\"", 11) == 0);
    CHECK(memcmp(reply.blobs[2].data,
                 "\x09\0\0\0"
                 "9:1:\"dog\"",
                 13) == 0);
    CHECK(reply.blobs[1].data == scores);
    lm_labels_close(&labels);
    reset();
    want(OIP_TENSOR("h", ORT_DOUBLE, 1), 1, huge, false, 1);
    compose_bounded();
    json[reply.json_bytes - 1] = '\0';
    char expected[400];
    snprintf(expected, sizeof expected, "[\"%f:0\"]", huge[0]);
    CHECK(strstr(json, expected));
    reset();
    want(OIP_TENSOR("e", ORT_FLOAT, -1, 4), 0, NULL, false, 3);
    says(REPLY("{\"name\":\"e\",\"datatype\":\"BYTES\",\"shape\":[0,0],\"data\":[]}"));
}

/* The k largest of random values, against a sort that is easy to believe. */
static void ranks(uint64_t *random) {
    static float values[ELEMENTS_MAX];
    bool taken[ELEMENTS_MAX] = {false};
    uint32_t classes = 1 + check_below(random, 300), kept = 1 + check_below(random, classes);
    for (uint32_t i = 0; i < classes; i++) values[i] = (float)check_below(random, 50);
    reset();
    want(OIP_TENSOR("s", ORT_FLOAT, -1, classes), 1, values, true, kept);
    CHECK_AT("%u of %u classes", kept, classes);
    compose_bounded();
    CHECK(reply.blob_count == 1);
    const char *at = reply.blobs[0].data, *end = at + reply.blobs[0].bytes;
    for (uint32_t k = 0; k < kept; k++) {
        uint32_t best = UINT32_MAX, length;
        char text[64], expected[64];
        for (uint32_t i = 0; i < classes; i++) {
            if (!taken[i] && (best == UINT32_MAX || values[i] > values[best])) best = i;
        }
        taken[best] = true;
        memcpy(&length, at, 4);
        CHECK(length < sizeof text && (size_t)(end - at) >= 4 + length);
        memcpy(text, at + 4, length);
        text[length] = '\0';
        snprintf(expected, sizeof expected, "%f:%u", (double)values[best], best);
        CHECK(strcmp(text, expected) == 0);
        at += 4 + length;
    }
    CHECK(at == end);
}

/* ---- numbers read back ---- */

static void floats_back(uint64_t *random) {
    static float values[ELEMENTS_MAX];
    static double doubles[ELEMENTS_MAX];
    uint32_t count = 1 + check_below(random, 200);
    for (uint32_t i = 0; i < count; i++) {
        do {
            uint32_t bits = (uint32_t)check_random(random);
            memcpy(&values[i], &bits, sizeof bits);
        } while (!isfinite(values[i]));
        do {
            uint64_t bits = check_random(random);
            memcpy(&doubles[i], &bits, sizeof bits);
        } while (!isfinite(doubles[i]));
        if (check_below(random, 3) == 0) doubles[i] = (double)values[i];
        if (check_below(random, 3) == 0) values[i] = (float)((int32_t)check_random(random) >> 8);
    }
    reset();
    want(OIP_TENSOR("f", ORT_FLOAT, count), 1, values, false, 0);
    want(OIP_TENSOR("d", ORT_DOUBLE, count), 1, doubles, false, 0);
    CHECK_AT("%u numbers", count);
    compose_bounded();
    json[reply.json_bytes - 1] = '\0';
    char *at = strstr(json, "\"data\":[") + 8;
    for (uint32_t i = 0; i < count; i++, at++) {
        float value = strtof(at, &at);
        CHECK(memcmp(&value, &values[i], sizeof value) == 0 && *at == (i + 1 < count ? ',' : ']'));
    }
    at = strstr(at, "\"data\":[") + 8;
    for (uint32_t i = 0; i < count; i++, at++) {
        double value = strtod(at, &at);
        CHECK(memcmp(&value, &doubles[i], sizeof value) == 0 && *at == (i + 1 < count ? ',' : ']'));
    }
}

static void extremes(void) {
    static const double doubles[] = {-2.2250738585072014e-308, -1.7976931348623157e308,
                                     -4.9406564584124654e-324, -1.2345678901234567e-300};
    static const float floats[] = {-1.17549435e-38f, -1.00000003e-20f, -1.2345679e-30f};
    static const int64_t longs[] = {INT64_MIN, INT64_MIN};
    char name[LM_TENSOR_NAME_BYTES_MAX];
    memset(name, '\x01', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    reset();
    memset(model.name, '\x01', sizeof model.name - 1);
    memset(request.id, 'x', request.id_bytes = LM_OIP_ID_BYTES_MAX);
    want(OIP_TENSOR(name, ORT_DOUBLE, 4), 1, doubles, false, 0);
    want(OIP_TENSOR(name, ORT_FLOAT, 1, 1, 1, 1, 1, 1, 1, 3), 1, floats, false, 0);
    want(OIP_TENSOR(name, ORT_INT64, 2), 1, longs, false, 0);
    want(OIP_TENSOR(name, ORT_INT64, 2), 1, longs, true, 2);
    CHECK_AT("the longest of everything");
    compose_bounded();
}

/* Many of the longest number of each type: the bound holds, and is no more than they take. */
static void longest_numbers(void) {
    static const struct {
        int dtype;
        uint8_t bytes[8]; /* of the number */
        const char *text;
    } numbers[] = {
        {ORT_UINT8, {255}, "255"},
        {ORT_INT8, {128}, "-128"},
        {ORT_BOOL, {0}, "false"},
        {ORT_UINT16, {255, 255}, "65535"},
        {ORT_INT16, {0, 128}, "-32768"},
        {ORT_UINT32, {255, 255, 255, 255}, "4294967295"},
        {ORT_INT32, {0, 0, 0, 128}, "-2147483648"},
        {ORT_FLOAT, {0, 0, 128, 128}, "-1.1754944e-38"},
        {ORT_FLOAT, {1, 0, 128, 128}, "-1.1754945e-38"},
        {ORT_DOUBLE, {0, 0, 0, 0, 0, 0, 16, 128}, "-2.2250738585072014e-308"},
    };
    enum { COUNT = 500 };
    static _Alignas(8) uint8_t values[COUNT * 8];
    for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
        size_t bytes = lm_dtype_bytes(numbers[n].dtype), json_bytes, scratch_bytes;
        for (size_t i = 0; i < COUNT; i++) memcpy(values + i * bytes, numbers[n].bytes, bytes);
        reset();
        want(OIP_TENSOR("x", numbers[n].dtype, COUNT), 1, values, false, 0);
        CHECK_AT("%s", numbers[n].text);
        compose_bounded();
        CHECK(lm_oip_reply_bytes_max(&model, &request, outputs, NULL, &json_bytes, &scratch_bytes));
        CHECK(scratch_bytes == 0 && json_bytes <= reply.json_bytes + 1000);
        json[reply.json_bytes - 1] = '\0';
        CHECK(strncmp(strstr(json, "\"data\":[") + 8, numbers[n].text, strlen(numbers[n].text)) ==
              0);
    }
}

/* Labels that double when they are escaped, of many classes. */
static void longest_labels(void) {
    static float scores[200];
    static char text[200 * 1001];
    memset(text, '"', sizeof text);
    for (size_t i = 1; i <= 200; i++) text[i * 1001 - 1] = '\n';
    for (size_t i = 0; i < 200; i++) scores[i] = -3.4028235e38f; /* 47 bytes with six decimals */
    CHECK(lm_labels_open(&labels, text, sizeof text) == 0 && labels.bytes_max == 1000);
    for (uint32_t binary = 0; binary < 2; binary++) {
        reset();
        want(OIP_TENSOR("s", ORT_FLOAT, 200), 1, scores, binary, 200);
        CHECK_AT("long labels, binary %u", binary);
        compose_bounded();
        CHECK(binary ? reply.blobs_bytes > 200000 : reply.json_bytes > 400000);
    }
    lm_labels_close(&labels);
}

/* A size that does not fit is said, not wrapped. */
static void overflows(void) {
    size_t json_bytes = 0, scratch_bytes = 0;
    reset();
    want(OIP_TENSOR("x", ORT_INT8, 1), 1, "", false, 0);
    outputs[0].bytes = SIZE_MAX / 4;
    CHECK(!lm_oip_reply_bytes_max(&model, &request, outputs, NULL, &json_bytes, &scratch_bytes));
}

int main(void) {
    uint64_t random = check_seed();
    uint32_t turns = CHECK_UNDER_TSAN ? 20 : 500;
    check_guard_open(&json_guard, ROOM);
    check_guard_open(&scratch_guard, ROOM);
    tensors();
    unsayable();
    classification();
    for (uint32_t i = 0; i < turns; i++) {
        ranks(&random);
        floats_back(&random);
    }
    extremes();
    longest_numbers();
    longest_labels();
    overflows();
    check_guard_close(&json_guard);
    check_guard_close(&scratch_guard);
    return check_finish("test_oip_reply");
}
