/* test_oip_request.c: Open Inference Protocol requests: what is read of good ones, what is said of
 * bad ones (the numbers are rows of the list of hostile inputs), and that neither order, white
 * space, mutation nor depth does harm. The 64 bytes behind each text are readable, hold what would
 * go on with the text, and end at an unreadable page. */
#include <math.h>

#include "base/error.h"
#include "formats/oip_find.h"
#include "formats/oip_request.h"
#include "oip_models.h"

enum { TEXT_MAX = 1 << 20, TENSOR_BYTES = 4096 };

static struct lm_model picture, fixed, types, shapeless;
static struct lm_oip_parser *parser;
static struct check_guard guard;
static struct lm_oip_request request;
static struct lm_oip_lists lists;
static char why[LM_TEXT_BYTES_MAX];
static _Alignas(64) uint8_t memory[LM_TENSORS_MAX][TENSOR_BYTES];

static const int dtypes[] = {ORT_FLOAT, ORT_DOUBLE, ORT_INT8,  ORT_UINT8,  ORT_INT16, ORT_UINT16,
                             ORT_INT32, ORT_UINT32, ORT_INT64, ORT_UINT64, ORT_BOOL};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

static void make_models(void) {
    oip_model(&picture, "picture", 8);
    oip_input(&picture, OIP_TENSOR("image", ORT_FLOAT, -1, 3, 2));
    oip_output(&picture, OIP_TENSOR("scores", ORT_FLOAT, -1, 5));
    oip_output(&picture, OIP_TENSOR("half", ORT_FLOAT16, -1, 2));
    oip_output(&picture, OIP_TENSOR("flags", ORT_BOOL, -1));
    oip_output(&picture, OIP_TENSOR("boxes", ORT_INT64, 4, -1));
    picture.outputs[3].shape_known = false;
    oip_model(&fixed, "fixed", 1);
    oip_input(&fixed, OIP_TENSOR("a", ORT_INT32, 2, 3));
    oip_input(&fixed, OIP_TENSOR("b", ORT_BOOL, 2));
    oip_output(&fixed, OIP_TENSOR("sum", ORT_INT32, 2));
    oip_model(&shapeless, "shapeless", 1);
    oip_input(&shapeless, oip_tensor("x", ORT_FLOAT, 0, NULL));
    oip_output(&shapeless, oip_tensor("y", ORT_FLOAT, 0, NULL));
    oip_model(&types, "types", 100);
    for (uint32_t i = 0; i < DTYPES; i++)
        oip_input(&types, OIP_TENSOR(lm_dtype_name(dtypes[i]), dtypes[i], -1, 2));
    oip_input(&types, OIP_TENSOR("FP16", ORT_FLOAT16, -1, 2));
    oip_input(&types, OIP_TENSOR("BF16", ORT_BFLOAT16, -1, 2));
    oip_output(&types, OIP_TENSOR("out", ORT_FLOAT, -1, 2));
}

/* ---- reading ---- */

static const char *place(const char *text, size_t bytes) {
    char *at = (char *)check_guard_tail(&guard, bytes + LM_OIP_PADDING);
    memcpy(at, text, bytes);
    for (size_t i = 0; i < LM_OIP_PADDING; i++) at[bytes + i] = "]}0,\"1"[i % 6];
    return at;
}

static void check_good(const struct lm_model *model) {
    uint32_t seen = 0;
    CHECK(request.sizes.rows >= 1 && request.sizes.rows <= model->max_rows);
    CHECK(request.blob_count + request.value_count == model->input_count);
    CHECK(request.requested_count >= 1 && request.requested_count <= model->output_count);
    CHECK(request.id_bytes <= LM_OIP_ID_BYTES_MAX);
    for (uint32_t i = 0; i < request.blob_count; i++) {
        size_t bytes;
        CHECK(request.blob_inputs[i] < model->input_count &&
              !(seen & 1u << request.blob_inputs[i]));
        CHECK(lm_tensor_bytes(&model->inputs[request.blob_inputs[i]], ROWS(request.sizes.rows),
                              &bytes));
        CHECK(bytes == request.blob_bytes[i]);
        seen |= 1u << request.blob_inputs[i];
    }
    for (uint32_t i = 0; i < request.requested_count; i++)
        CHECK(request.requested[i].output < model->output_count);
}

static void check_why(enum lm_status status) {
    CHECK(status == LM_STATUS_BAD_REQUEST || status == LM_STATUS_TOO_LARGE);
    CHECK(strlen(why) > 5);
    for (const char *at = why; *at; at++) CHECK((unsigned char)*at >= 0x20 && *at != 0x7f);
}

/* Reads the whole request; the values too when the rest is good. */
static enum lm_status read_bytes(const struct lm_model *model, const char *text, size_t bytes) {
    void *inputs[LM_TENSORS_MAX];
    uint64_t before = oip_allocations;
    for (uint32_t i = 0; i < LM_TENSORS_MAX; i++) inputs[i] = memory[i];
    memset(why, 0, sizeof why);
    const char *at = place(text, bytes);
    enum lm_status status = lm_oip_read(parser, at, bytes, model, &request, why, sizeof why);
    if (status == LM_STATUS_OK) {
        check_good(model);
        status = lm_oip_values(parser, &request, model, inputs, why, sizeof why);
    }
    CHECK(oip_allocations == before);
    if (status != LM_STATUS_OK) check_why(status);
    return status;
}

static enum lm_status read_text(const struct lm_model *model, const char *text) {
    CHECK_AT("%.150s", text);
    return read_bytes(model, text, strlen(text));
}

static void good(const struct lm_model *model, const char *text) {
    enum lm_status status = read_text(model, text);
    if (status) fprintf(stderr, "%s\n", why);
    CHECK(status == LM_STATUS_OK);
}

static void bad(const struct lm_model *model, const char *text, const char *named) {
    CHECK(read_text(model, text) == LM_STATUS_BAD_REQUEST);
    if (!strstr(why, named)) fprintf(stderr, "%s\nlacks: %s\n", why, named);
    CHECK(strstr(why, named));
}

/* ---- where the data is ---- */

/* Which data arrays are found in a text: "0:[1,2];1:[3];". What is not found is read another way,
 * so that nothing else notices. */
static void finds(const char *text, size_t bytes, const char *expected) {
    struct lm_oip_data found[LM_TENSORS_MAX + 1];
    char says[4096] = "";
    size_t used = 0;
    memset(found, 0xee, sizeof found);
    const char *at = place(text, bytes);
    uint32_t count = lm_oip_find_data(at, bytes, found);
    CHECK(count <= LM_TENSORS_MAX && found[LM_TENSORS_MAX].input == 0xeeeeeeee);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(found[i].text >= at && found[i].text + found[i].bytes <= at + bytes);
        used += (size_t)snprintf(says + used, sizeof says - used, "%u:%.*s;", found[i].input,
                                 (int)found[i].bytes, found[i].text);
    }
    CHECK_AT("%.60s: expected %.40s, found %.40s", text, expected, says);
    CHECK(strcmp(says, expected) == 0);
}

#define FOUND_BEHIND(string) "{\"a\":\"" string "\",\"inputs\":[{\"data\":[1]}]}"

static void places_of_data(uint64_t *random) {
    static const char *const cases[][2] = {
        {"{\"inputs\":[{\"data\":[1,2]},{\"x\":0,\"data\" : [ 3 ] }]}", "0:[1,2];1:[ 3 ];"},
        {"{\"inputs\":[{},{\"data\":[[1],[2,[]]],\"y\":[4]}]}", "1:[[1],[2,[]]];"},
        {"{\"x\":[1,2,{\"data\":[9]}],\"inputs\":[{\"data\":[]}],\"y\":[{\"data\":[8]}]}", "0:[];"},
        {"{\"inputs\":[{\"d\":{\"data\":[1]},\"e\":[{\"data\":[2]}],\"data\":[3]}]}", "0:[3];"},
        {"{\"inputs\":[[1,2],{\"data\":[3]}]}", "1:[3];"},
        {"{\"inputs\":[[{\"data\":[3]}]]}", ""},
        {"{\"inputs\":{\"a\":{\"data\":[3]}}}", ""},
        {"{\"input\":[{\"data\":[3]}],\"inputss\":[{\"data\":[3]}]}", ""},
        {"{\"data\":[3],\"inputs\":[{\"dat\":[1],\"data2\":[2],\"data\":4}]}", ""},
        {"{\"inputs\":[{\"data\":{\"a\":[1]}}]}", ""},
        {"{\"inputs\":[{\"data\":[\"a\"]}]}", ""},
        {"{\"inputs\":[{\"data\":[1,2", ""},
        {"{\"inputs\":[{\"data\":\"data\",\"x\":[1]}]}", ""},
        {"{\"inputs\":[{\"data\",[1]}]}", ""},
        {FOUND_BEHIND("b"), "0:[1];"},
        {FOUND_BEHIND("\\\\"), "0:[1];"},
        {FOUND_BEHIND("\\\""), "0:[1];"},
        {FOUND_BEHIND("\\\\\\\""), "0:[1];"},
        {FOUND_BEHIND("\\\\\\\\"), "0:[1];"},
        {FOUND_BEHIND("\\\\\\\\\\\"{["), "0:[1];"},
    };
    char text[8192], expected[4096];
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        finds(cases[c][0], strlen(cases[c][0]), cases[c][1]);
    for (uint32_t turn = 0; turn < 20000; turn++) { /* arrays that end anywhere among 16 bytes */
        char array[256] = "[";
        size_t used = 1, length = 1 + check_below(random, 100);
        for (size_t depth = 1; depth > 0 && used < sizeof array - 1; used++) {
            uint32_t what = check_below(random, 8);
            array[used] = used >= length || what == 0 ? ']' : what == 1 ? '[' : '7';
            depth += array[used] == '[';
            depth -= array[used] == ']';
        }
        if (used == sizeof array - 1) continue;
        array[used] = '\0';
        int before = (int)check_below(random, 17);
        size_t bytes = (size_t)snprintf(text, sizeof text, "{\"inputs\":[{%*s\"data\":%s}]}",
                                        before, "", array);
        snprintf(expected, sizeof expected, "0:%s;", array);
        finds(text, bytes, expected);
    }
    size_t used = (size_t)snprintf(text, sizeof text, "{\"inputs\":[");
    expected[0] = '\0';
    for (uint32_t i = 0; i <= LM_TENSORS_MAX; i++) { /* of one more than there may be */
        used += (size_t)snprintf(text + used, sizeof text - used, "{\"data\":[%u]},", i);
        if (i < LM_TENSORS_MAX) snprintf(expected + strlen(expected), 32, "%u:[%u];", i, i);
    }
    finds(text, used, expected);
}

/* ---- what is read ---- */

#define IMAGE(rest) "{\"name\":\"image\",\"datatype\":\"FP32\",\"shape\":[1,3,2]," rest "}"
#define DATA "\"data\":[1,2,3,4,5,6]"
#define WITH(rest) "{\"inputs\":[" IMAGE(DATA) "],\"outputs\":[{\"name\":\"scores\"}]" rest "}"
#define OUTPUTS(list) "{\"inputs\":[" IMAGE(DATA) "],\"outputs\":[" list "]}"
#define INPUTS(list) "{\"outputs\":[{\"name\":\"scores\"}],\"inputs\":[" list "]}"
#define VALUES(list) INPUTS(IMAGE("\"data\":" list))

static const float six[6] = {1, 2, 3, 4, 5, 6};

static void whole_request(void) {
    static const char *const texts[] = {
        WITH(""),
        VALUES("[[[1,2],[3,4],[5,6]]]"),
        VALUES("[ [\n[1 , 2]\t, [3,4] ,\r\n[5,6] ] ]"),
        VALUES("[1.0,2e0,0.3E+1,40e-1,5.000000000000000000000,600.0e-2]"),
        /* as tritonclient for Python orders it, and with what nobody asked for */
        "{\"x\":{\"inputs\":[{\"data\":[1]}]},\"inputs\":[{\"y\":[{}],\"name\":\"image\",\"shape\":"
        "[1,3,2],\"datatype\":\"FP32\",\"parameters\":{\"z\":null},\"data\":[1,2,3,4,5,6],"
        "\"data2\":[1]}],\"outputs\":[{\"name\":\"scores\",\"u\":0}],\"parameters\":{}}",
        /* data first; keys with escapes */
        INPUTS(
            "{\"data\":[1,2,3,4,5,6],\"name\":\"image\",\"shape\":[1,3,2],\"datatype\":\"FP32\"}"),
        INPUTS("{\"d\\u0061ta\":[1,2,3,4,5,6],\"n\\u0061me\":\"im\\u0061ge\",\"shape\":[1,3,2],"
               "\"datatype\":\"FP32\"}"),
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        memset(memory[0], 0xff, sizeof six);
        good(&picture, texts[i]);
        CHECK(request.sizes.rows == 1 && request.value_count == 1 && request.blob_count == 0);
        CHECK(request.timeout_us == 0 && request.id_bytes == 0);
        CHECK(request.requested_count == 1 && request.requested[0].output == 0 &&
              !request.requested[0].binary && request.requested[0].classes == 0);
        CHECK(memcmp(memory[0], six, sizeof six) == 0);
    }
}

static void parameters(void) {
    good(&picture, WITH(",\"id\":\"\",\"parameters\":{\"timeout\":1500,\"priority\":1,"
                        "\"headers\":{\"a\":1},\"other\":[],\"sequence_id\":0,"
                        "\"sequence_start\":false,\"sequence_end\":false}"));
    CHECK(request.timeout_us == 1500 && request.id_bytes == 0 && !request.requested[0].binary);
    good(&picture, "{\"parameters\":{\"binary_data_output\":true},\"inputs\":[" IMAGE(DATA) "]}");
    CHECK(request.requested_count == 4);
    for (uint32_t i = 0; i < 4; i++)
        CHECK(request.requested[i].output == i && request.requested[i].binary);
    good(&picture,
         "{\"inputs\":[" IMAGE(
             DATA) "],\"outputs\":[{\"name\":\"flags\","
                   "\"parameters\":{\"binary_data\":false}},{\"name\":\"half\"},{\"name\":"
                   "\"scores\",\"parameters\":{\"classification\":5}}],"
                   "\"parameters\":{\"binary_data_output\":true}}");
    CHECK(request.requested_count == 3 && request.requested[0].output == 2 &&
          !request.requested[0].binary);
    CHECK(request.requested[1].output == 1 && request.requested[1].binary);
    CHECK(request.requested[2].output == 0 && request.requested[2].binary &&
          request.requested[2].classes == 5);
    /* More classes than there are become all: of what has room where nobody knows. */
    good(&picture, OUTPUTS("{\"name\":\"boxes\",\"parameters\":{\"classification\":513}}"));
    CHECK(request.requested[0].classes == 512);
    good(&picture,
         OUTPUTS("{\"name\":\"scores\",\"parameters\":{\"classification\":18446744073709551615}}"));
    CHECK(request.requested[0].classes == 5);
    good(&fixed, "{\"outputs\":[],\"inputs\":[{\"name\":\"b\",\"datatype\":\"BOOL\",\"shape\":[2],"
                 "\"data\":[true,false]},{\"name\":\"a\",\"datatype\":\"INT32\",\"shape\":[2,3],"
                 "\"data\":[[1,-2,3],[4,5,-2147483648]]}]}");
    CHECK(request.sizes.rows == 1 && request.requested_count == 1 && memory[1][0] == 1 &&
          memory[1][1] == 0);
    CHECK(memcmp(memory[0], (int32_t[]){1, -2, 3, 4, 5, INT32_MIN}, 24) == 0);
}

static void blobs(void) {
    good(&picture, INPUTS("{\"name\":\"image\",\"datatype\":\"FP32\",\"shape\":[8,3,2],"
                          "\"parameters\":{\"binary_data_size\":192}}"));
    CHECK(request.sizes.rows == 8 && request.blob_count == 1 && request.value_count == 0);
    CHECK(request.blob_inputs[0] == 0 && request.blob_bytes[0] == 192);
    good(&fixed, "{\"inputs\":[{\"name\":\"b\",\"datatype\":\"BOOL\",\"shape\":[2],\"parameters\":"
                 "{\"binary_data_size\":2}},{\"name\":\"a\",\"datatype\":\"INT32\",\"shape\":[2,3],"
                 "\"parameters\":{\"binary_data_size\":24}}]}");
    CHECK(request.blob_count == 2 && request.blob_inputs[0] == 1 && request.blob_inputs[1] == 0);
    CHECK(request.blob_bytes[0] == 2 && request.blob_bytes[1] == 24);
}

/* A file for each row, which may be in a dimension of its own as tensors of Triton's ensembles. */
static void files(void) {
#define FILES(shape)                                                      \
    INPUTS("{\"name\":\"image\",\"datatype\":\"BYTES\",\"shape\":[" shape \
           "],\"parameters\":{\"binary_data_size\":100}}")
    static const char *const taken[] = {FILES("2"), FILES("2,1")};
    picture.input_plan.has_images = true;
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        CHECK_AT("%s", taken[i]);
        const size_t bytes = strlen(taken[i]);
        CHECK(lm_oip_read(parser, place(taken[i], bytes), bytes, &picture, &request, why,
                          sizeof why) == LM_STATUS_OK);
        CHECK(request.pictures && request.sizes.rows == 2 && request.blob_bytes[0] == 100);
    }
    bad(&picture, FILES("2,2"), "expected [-1,1], found [2,2]");
    bad(&picture, FILES("2,1,1"), "expected [-1], found [2,1,1]");
    bad(&picture, FILES(""), "expected [-1], found []");
    bad(&picture, FILES("0,1"), "takes 1 to 8 rows, found 0");
    picture.input_plan.has_images = false;
}

/* The shape that clients say is another one than the graph's, of the same bytes. */
static void reshaped(void) {
    static struct lm_model model;
    struct lm_tensor client = OIP_TENSOR("a", ORT_INT32, 2, 3);
    oip_model(&model, "reshaped", 1);
    oip_input(&model, OIP_TENSOR("a", ORT_INT32, -1, 3, 2, 1));
    oip_output(&model, OIP_TENSOR("y", ORT_INT32, -1, 3));
    model.inputs[0].client = &client;
#define RESHAPED(shape, rest) \
    "{\"inputs\":[{\"name\":\"a\",\"datatype\":\"INT32\",\"shape\":[" shape "]," rest "}]}"
    good(&model, RESHAPED("2,3", "\"data\":[[1,2,3],[4,5,6]]"));
    CHECK(request.sizes.rows == 1);
    CHECK(memcmp(memory[0], (int32_t[]){1, 2, 3, 4, 5, 6}, 24) == 0);
    good(&model, RESHAPED("2,3", "\"parameters\":{\"binary_data_size\":24}"));
    bad(&model, RESHAPED("1,3,2,1", "\"data\":[1,2,3,4,5,6]"), "expected [2,3], found [1,3,2,1]");
    bad(&model, RESHAPED("2,3", "\"parameters\":{\"binary_data_size\":28}"), "expected 24");
    bad(&model, RESHAPED("2,3", "\"data\":[[1,2],[3,4],[5,6]]"), "expected 3");
    bad(&model, "{\"inputs\":5}", "\"shape\":[2,3]");
}

static void check_id(const char *said, const char *expected) {
    char text[2048];
    snprintf(text, sizeof text, WITH(",\"id\":\"%s\""), said);
    good(&picture, text);
    CHECK(request.id_bytes == strlen(expected));
    CHECK(memcmp(request.id, expected, request.id_bytes) == 0);
}

static void ids(void) {
    char text[2048], id[600];
    check_id("42", "42");
    check_id("a\\\"b\\\\c\\/\\u0000\\r\\n\\u007f", "a\\\"b\\\\c/\\u0000\\u000d\\u000a\\u007f");
    check_id("\xc3\xa9\xf0\x9f\x98\x80", "\xc3\xa9\xf0\x9f\x98\x80");
    memset(id, 'x', sizeof id);
    id[256] = '\0';
    check_id(id, id);
    id[256] = 'x';
    id[257] = '\0';
    snprintf(text, sizeof text, WITH(",\"id\":\"%s\""), id);
    bad(&picture, text, "id: expected at most 256");
}

/* ---- what is refused ---- */

static const struct {
    const char *text;
    const char *named;
} refused[] = {
    /* 40: not JSON */
    {"", "empty"},
    {"   \n ", "empty"},
    {"7", "byte 0"},
    {"[]", "byte 0"},
    {"\xef\xbb\xbf\xef\xbb\xbf" WITH(""), "byte 0: expected '{', found 0xef"},
    {"\xef\xbb\xbf", "it is empty"},
    {"\xff\xfe{", "byte 0: expected '{', found UTF-16 where UTF-8 is due, 0xff"},
    {"\xef\xbb", "byte 0: expected '{', found 0xef"},
    {" \t\r\n7", "byte 4: expected '{', found 0x37"},
    {"\xff\xfe{\0", "byte 0"},
    {"{", "not JSON"},
    {WITH("") "}", "not JSON"},
    {WITH("") " x", "not JSON"},
    {WITH(",\"x\":1e400"), "number"},
    {WITH(",\"x\":18446744073709551616"), "number"},
    {WITH(",\"x\":NaN"), "not JSON"},
    {WITH(",\"x\":Infinity"), "not JSON"},
    {WITH(",\"x\":\"\\ud800\""), "not JSON"},
    {WITH(",\"x\":\"\xff\""), "UTF-8"},
    {WITH(",\"x\":\"\xc0\xaf\""), "UTF-8"},
    {WITH(",\"x\":\"\n\""), "control character"},
    {WITH(",\"x\":\"\\u00zz\""), "escape"},
    {WITH(",\"x\":tru"), "true nor false"},
    {WITH(",\"x\":falsy"), "true nor false"},
    {WITH(",\"x\":nil"), "true nor false"},
    {"{\"a", "a string has no end"},
    {"{\"a\":-}", "a number is malformed"},
    {"{\"a\" 1}", "a bracket, a comma, a colon or a value is missing or misplaced"},
    {"{\"inputs\":{\"x\":{\"data\":[1,]}}}", "not JSON"}, /* no data of an input */
    /* 40: duplicates */
    {WITH(",\"inputs\":[]"), "\"inputs\" comes twice"},
    {WITH(",\"outputs\":[]"), "\"outputs\" comes twice"},
    {WITH(",\"inp\\u0075ts\":[]"), "\"inputs\" comes twice"},
    {WITH(",\"id\":\"1\",\"id\":\"1\""), "\"id\" comes twice"},
    {WITH(",\"parameters\":{\"timeout\":1,\"timeout\":1}"), "\"timeout\" comes twice"},
    {INPUTS(IMAGE(DATA "," DATA)), "\"data\" comes twice"},
    {INPUTS(IMAGE(DATA ",\"d\\u0061ta\":[]")), "\"data\" comes twice"},
    {INPUTS(IMAGE(DATA ",\"name\":\"image\"")), "\"name\" comes twice"},
    {INPUTS(IMAGE(DATA ",\"shape\":[]")), "\"shape\" comes twice"},
    {INPUTS(IMAGE(DATA) "," IMAGE(DATA)), "'image' comes twice"},
    /* the request's own fields */
    {"{}",
     "request: expected {\"inputs\":[{\"name\":\"image\",\"datatype\":\"FP32\",\"shape\":[1,3,2],"
     "\"data\":[...]}]}, found no field \"inputs\""},
    {"{\"inputs\":null}", "inputs: expected {\"inputs\":[{\"name\":\"image\","},
    {"{\"inputs\":{}}", "found an object"},
    {"{\"inputs\":[]}", "'image' is missing"},
    {"{\"inputs\":[null]}", "\"data\":[...]}]}, found null"},
    {"{\"inputs\":[[1,2,3,4,5,6]]}", "inputs[0]: expected {\"inputs\":[{\"name\":\"image\","},
    {"{\"inputs\":[{}]}", "\"name\" is missing"},
    {WITH(",\"id\":7"), "id: expected a string"},
    {WITH(",\"id\":null"), "id: expected a string"},
    {WITH(",\"parameters\":null"), "parameters: expected an object"},
    {WITH(",\"parameters\":{\"timeout\":-1}"), "timeout: expected an integer"},
    {WITH(",\"parameters\":{\"timeout\":1.5}"), "timeout: expected an integer"},
    {WITH(",\"parameters\":{\"timeout\":\"1\"}"), "timeout: expected an integer"},
    {WITH(",\"parameters\":{\"priority\":-1}"), "priority"},
    {WITH(",\"parameters\":{\"binary_data_output\":1}"), "binary_data_output"},
    {WITH(",\"parameters\":{\"sequence_id\":1}"), "sequence_id"},
    {WITH(",\"parameters\":{\"sequence_id\":\"a\"}"), "sequence_id"},
    {WITH(",\"parameters\":{\"sequence_start\":true}"), "sequence_start"},
    {WITH(",\"parameters\":{\"sequence_end\":true}"), "sequence_end"},
    {WITH(",\"parameters\":{\"triton_enable\":false}"), "triton_enable"},
    /* names, 8 */
    {INPUTS("{\"name\":\"other\\r\\n\\u0000\"}"), "has no input 'other?\?\?'"},
    {INPUTS("{\"name\":\"\"}"), "has no input ''"},
    {INPUTS("{\"name\":\"image\\u0000\"}"), "has no input"},
    {INPUTS("{\"name\":\"imag\"}"), "has no input"},
    {INPUTS("{\"name\":5}"), "name: expected a string"},
    {INPUTS(IMAGE(DATA) ",{\"name\":\"more\"}"), "inputs[1]: model 'picture' has no input 'more'"},
    {INPUTS(IMAGE(DATA) ",5"), "inputs[1]: expected {\"inputs\":[{"},
    /* 41: datatype */
    {INPUTS("{\"name\":\"image\"}"), "\"datatype\" is missing"},
    {INPUTS("{\"name\":\"image\",\"datatype\":\"fp32\"}"), "expected FP32, found 'fp32'"},
    {INPUTS("{\"name\":\"image\",\"datatype\":\"FP64\"}"), "expected FP32"},
    {INPUTS("{\"name\":\"image\",\"datatype\":\"BYTES\"}"), "expected FP32"},
    {INPUTS("{\"name\":\"image\",\"datatype\":null}"), "datatype: expected a string"},
    {INPUTS("{\"name\":\"image\",\"datatype\":\"FP32\"}"), "\"shape\" is missing"},
#define SHAPE(list) INPUTS("{\"name\":\"image\",\"datatype\":\"FP32\"," DATA ",\"shape\":" list "}")
    /* 9: shape */
    {SHAPE("null"), "shape: expected an array"},
    {SHAPE("[]"), "expected [-1,3,2], found []"},
    {SHAPE("[1,3]"), "found [1,3]"},
    {SHAPE("[1,3,2,1]"), "found [1,3,2,1]"},
    {SHAPE("[1,3,2,4,5,6,7,8]"), "found [1,3,2,4,5,6,7,8]"},
    {SHAPE("[1,3,2,4,5,6,7,8,9]"), "found [1,3,2,4,5,6,7,8,...]"},
    {SHAPE("[1,3,2,4,5,6,7,8,9,10]"), "found [1,3,2,4,5,6,7,8,...]"},
    {SHAPE("[1,2,3]"), "found [1,2,3]"},
    {SHAPE("[0,3,2]"), "1 to 8 rows, found 0"},
    {SHAPE("[9,3,2]"), "1 to 8 rows, found 9"},
    {SHAPE("[-1,3,2]"), "found a negative integer"},
    {SHAPE("[9223372036854775807,3,2]"), "rows"},
    {SHAPE("[9223372036854775808,3,2]"), "integers"},
    {SHAPE("[4294967297,3,2]"), "rows"},
    {SHAPE("[1.0,3,2]"), "integers"},
    {SHAPE("[\"1\",3,2]"), "found a string"},
    {SHAPE("[[1],3,2]"), "found an array"},
    {SHAPE("[true,3,2]"), "integers"},
/* 38: binary_data_size */
#define BINARY(value) INPUTS(IMAGE("\"parameters\":{\"binary_data_size\":" value "}"))
    {BINARY("23"), "expected 24 for its shape, found 23"},
    {BINARY("25"), "expected 24"},
    {BINARY("0"), "expected 24"},
    {BINARY("-24"), "found a negative integer"},
    {BINARY("24.0"), "expected an integer"},
    {BINARY("\"24\""), "found a string"},
    {BINARY("18446744073709551615"), "expected 24"},
    {BINARY("24,\"binary_data_size\":24"), "comes twice"},
    {INPUTS(IMAGE(DATA ",\"parameters\":{\"binary_data_size\":24}")), "found both"},
    {INPUTS(IMAGE("\"parameters\":{}")), "found neither"},
    {INPUTS(IMAGE("\"x\":0")), "found neither"},
    {INPUTS(IMAGE("\"parameters\":[]")), "expected an object"},
    {INPUTS(IMAGE("\"parameters\":{\"shared_memory_region\":\"a\"}")), "shared memory"},
    {INPUTS(IMAGE(DATA ",\"parameters\":{\"shared_memory_region\":\"a\"}")), "shared memory"},
    /* 40: values */
    {VALUES("null"), "data: expected an array"},
    {VALUES("1"), "data: expected an array"},
    {VALUES("{}"), "data: expected an array"},
    {VALUES("[]"), "found fewer"},
    {VALUES("[ ]"), "found fewer"},
    {VALUES("[1,2,3,4,5]"), "expected 6 elements in an array of depth 1, found fewer"},
    {VALUES("[1,2,3,4,5,6,7]"), "found more"},
    {VALUES("[[[1,2],[3,4],[5]]]"), "expected 2 elements in an array of depth 3, found fewer"},
    {VALUES("[[[1,2],[3,4],[5,6,7]]]"), "depth 3, found more"},
    {VALUES("[[[1,2],[3,4]]]"), "depth 2, found fewer"},
    {VALUES("[[[1,2],[3,4],[5,6]],[]]"), "depth 1, found more"},
    {VALUES("[[1,2],[3,4],[5,6]]"), "arrays of depth 3"},
    {VALUES("[[1,2,3,4,5,6]]"), "arrays of depth 3"},
    {VALUES("[[[[1],2],[3,4],[5,6]]]"),
     "element 0: expected a number that fits FP32, found an array"},
    {VALUES("[1,[2],3,4,5,6]"), "element 1: expected a number that fits FP32, found an array"},
    {VALUES("[1,2,3,\"4\",5,6]"), "element 3: expected a number that fits FP32, found a string"},
    {VALUES("[1,2,3,nul,5,6]"), "found nul"},
    {VALUES("[1,2,3,nullx,5,6]"), "expected a comma or a bracket"},
    {VALUES("[1,2,3,true,5,6]"), "element 3: expected a number that fits FP32, found true"},
    {VALUES("[1,2,3,{},5,6]"), "element 3: expected a number that fits FP32, found something else"},
    {VALUES("[1,2,3,nan,5,6]"), "found nan"},
    {VALUES("[1,2,3,-NaN,5,6]"), "found -NaN"},
    {VALUES("[1,2,3,\"nan\",5,6]"), "found a string"},
    {VALUES("[1,2,3,-Infinity,5,6]"), "found -Infinity"},
    {VALUES("[1,2,3,1e400,5,6]"), "found 1e400"},
    {VALUES("[1,2,3,3.5e38,5,6]"), "found 3.5e38"},
    {VALUES("[1,2,3,-3.4028236e38,5,6]"), "found -3.4028236e38"},
    {VALUES("[1,2,3,0x4,5,6]"), "element 3: expected a comma or a bracket behind it"},
    {VALUES("[1,2,3,.4,5,6]"), "found .4"},
    {VALUES("[1,2,3,4.,5,6]"), "found 4."},
    {VALUES("[1,2,3,+4,5,6]"), "found +4"},
    {VALUES("[1,2,3,04,5,6]"), "found 04"},
    {VALUES("[1,2,3,-04,5,6]"), "found -04"},
    {VALUES("[1,2,3,-,5,6]"), "found -"},
    {VALUES("[1,2,3,4e,5,6]"), "found 4e"},
    {VALUES("[1,2,3,4e+,5,6]"), "found 4e+"},
    {VALUES("[1,2,3,4.e1,5,6]"), "found 4.e1"},
    {VALUES("[1,2,3,4 5,6]"), "comma"},
    {VALUES("[1,2,3,,5,6]"), "element 3: expected a number that fits FP32, found something else"},
    {VALUES("[,1,2,3,4,5,6]"), "element 0: expected a number"},
    {VALUES("[1,2,3,4,5,6,]"), "more"},
    {VALUES("[1,2,3,4,5,6]]"), "not JSON"},
    {VALUES("[[1,2,3,4,5,6]"), "not JSON"},
    {VALUES("[1,2,3,4,5,6"), "not JSON"},
    {VALUES("[1,2,3,4,5,\f6]"), "element 5"},
    {VALUES("[1,2,3,4,5,6\xff]"), "comma"},
    /* 42: outputs */
    {"{\"inputs\":[" IMAGE(DATA) "],\"outputs\":null}", "outputs: expected an array"},
    {"{\"inputs\":[" IMAGE(DATA) "]}", "'half': FP16 has no form in JSON"},
    {OUTPUTS("5"), "outputs[0]: expected an object"},
    {OUTPUTS("{}"), "\"name\" is missing"},
    {OUTPUTS("{\"name\":\"none\"}"), "outputs[0]: model 'picture' has no output 'none'"},
    {OUTPUTS("{\"name\":\"scores\"},{}"), "outputs[1]: field \"name\" is missing"},
    {OUTPUTS("{\"name\":\"image\"}"), "has no output"},
    {OUTPUTS("{\"name\":\"scores\"},{\"name\":\"scores\"}"), "'scores' comes twice"},
    {OUTPUTS("{\"name\":\"half\"}"), "no form in JSON"},
#define WISH(rest) OUTPUTS("{\"name\":\"scores\",\"parameters\":{" rest "}}")
    {WISH("\"classification\":0"), "expected at least 1, found 0"},
    {WISH("\"classification\":-1"), "found a negative integer"},
    {WISH("\"classification\":1.0"), "integer"},
    {WISH("\"classification\":true"), "integer"},
    {WISH("\"classification\":18446744073709551616"), "JSON"},
    {WISH("\"classification\":1,\"classification\":1"), "comes twice"},
    {WISH("\"binary_data\":1"), "binary_data"},
    {WISH("\"binary_data\":null"), "binary_data"},
    {WISH("\"shared_memory_region\":\"a\""), "shared memory"},
    {OUTPUTS("{\"name\":\"half\",\"parameters\":{\"classification\":1,\"binary_data\":true}}"),
     "not available for FP16"},
    {OUTPUTS("{\"name\":\"flags\",\"parameters\":{\"classification\":1}}"), "BOOL"},
};

static void refusals(void) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        bad(&picture, refused[i].text, refused[i].named);
    bad(&fixed,
        "{\"inputs\":[{\"name\":\"a\",\"datatype\":\"INT32\",\"shape\":[1,3],\"data\":[1,2,3]}]}",
        "expected [2,3], found [1,3]");
    bad(&fixed,
        "{\"inputs\":[{\"name\":\"b\",\"datatype\":\"BOOL\",\"shape\":[2],\"data\":[true,"
        "false]}]}",
        "'a' is missing");
#define A(values)                                                                          \
    "{\"inputs\":[{\"name\":\"a\",\"datatype\":\"INT32\",\"shape\":[2,3],\"data\":" values \
    "},{\"name\":\"b\",\"datatype\":\"BOOL\",\"shape\":[2],\"data\":[true,false]}]}"
    bad(&fixed, A("[1,2,3.5,4,5,6]"),
        "element 2: expected a whole number that fits INT32, found 3.5");
    bad(&fixed, A("[[1,2,3],[4,5e1,6]]"),
        "element 4: expected a whole number that fits INT32, found 5e1");
#define TREE(values)                                                                             \
    "{\"inputs\":[{\"name\":\"a\",\"datatype\":\"INT32\",\"shape\":[2,3],\"d\\u0061ta\":" values \
    "},{\"name\":\"b\",\"datatype\":\"BOOL\",\"shape\":[2],\"data\":[true,false]}]}"
    bad(&fixed, TREE("[[1,2,3],[4,5.5,6]]"),
        "element 4: expected a whole number that fits INT32, "
        "found 5.5");
    bad(&fixed, TREE("[[1,2,3],[4,5,-3000000000]]"),
        "element 5: expected a whole number that "
        "fits INT32, found -3000000000");
    bad(&fixed, TREE("[1,2,true,4,5,6]"),
        "element 2: expected a whole number that fits INT32, "
        "found true or false");
    bad(&fixed, TREE("[[1,2,3],[4,5]]"), "expected 3 elements in an array of depth 2, found fewer");
    bad(&fixed, TREE("[[1,2,3],[4,5,6,7]]"), "3 elements in an array of depth 2, found more");
    bad(&fixed, TREE("[[1,2,3],[4,5,6],[]]"), "2 elements in an array of depth 1, found more");
    bad(&fixed, TREE("[[1,2,3],4]"), "data: expected arrays of depth 2, found an integer");
    bad(&fixed, A("[[1,2,3],4]"), "data: expected arrays of depth 2, found something else");
    bad(&fixed, A("[1,2,3000000000,4,5,6]"), "element 2: expected a whole number that fits INT32");
    bad(&fixed, A("[1,2,3 .5,4,5,6]"), "element 2: expected a comma or a bracket behind it");
    bad(&fixed, A("[[1,2,3] [4,5,6]]"), "expected a comma or a bracket behind it");
    /* ONNX Runtime tells a shape that is not known as that of one number. */
    bad(&shapeless,
        "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[2,3],\"data\":[1,2,3,4,5,6]}"
        "]}",
        "expected [] (one number), found [2,3]");
}

/* Names and numbers of a client are shown up to 64 and 31 bytes, never cut within a character. */
static void shown_in_part(void) {
    static const struct {
        size_t bytes; /* of x, then: */
        const char *rest, *shown;
    } cases[] = {{64, "", ""},
                 {65, "", "..."},
                 {62, "\xc3\xa9", "\xc3\xa9"},
                 {63, "\xc3\xa9", "..."},
                 {63, "\\n", "?"},
                 {64, "\\n", "..."},
                 {61, "\xe2\x82\xac", "\xe2\x82\xac"},
                 {62, "\xe2\x82\xac!", "..."}};
    char text[400], named[200], x[66];
    memset(x, 'x', sizeof x);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int bytes = (int)cases[c].bytes, shown = bytes < 64 ? bytes : 64;
        snprintf(text, sizeof text, INPUTS("{\"name\":\"%.*s%s\"}"), bytes, x, cases[c].rest);
        snprintf(named, sizeof named, "has no input '%.*s%s'", shown, x, cases[c].shown);
        bad(&picture, text, named);
    }
    bad(&picture, VALUES("[1,2,3,1234567890123456789012345678901e400,5,6]"),
        "element 3: expected a number that fits FP32, found 1234567890123456789012345678901");
    CHECK(!strstr(why, "01e"));
    bad(&picture, VALUES("[1,2,3,123456789012345678901234567890e400,5,6]"),
        "found 123456789012345678901234567890e");
}

/* Two inputs whose rows differ; and classes where nobody knows how many there are. */
static void rows_and_classes(void) {
    static struct lm_model two;
    oip_model(&two, "two", 8);
    oip_input(&two, OIP_TENSOR("a", ORT_INT32, -1));
    oip_input(&two, OIP_TENSOR("k", ORT_INT32, 1));
    oip_input(&two, OIP_TENSOR("b", ORT_INT32, -1));
    oip_output(&two, OIP_TENSOR("y", ORT_INT32, -1, 3));
#define TWO(a, b, k, classes)                                                                \
    "{\"inputs\":[{\"name\":\"a\",\"datatype\":\"INT32\",\"shape\":[" a "],\"data\":[1,2]}," \
    "{\"name\":\"k\",\"datatype\":\"INT32\",\"shape\":[1],\"data\":[" k "]},"                \
    "{\"name\":\"b\",\"datatype\":\"INT32\",\"shape\":[" b "],\"data\":[3,4]}],"             \
    "\"outputs\":[{\"name\":\"y\",\"parameters\":{\"classification\":" classes "}}]}"
    good(&two, TWO("2", "2", "5", "3"));
    CHECK(request.sizes.rows == 2 && request.value_count == 3 && request.requested[0].classes == 3);
    CHECK(memcmp(memory[0], (int32_t[]){1, 2}, 8) == 0 && memory[1][0] == 5);
    CHECK(memcmp(memory[2], (int32_t[]){3, 4}, 8) == 0);
    bad(&two, TWO("2", "3", "5", "3"),
        "input 'b': shape: expected 2 rows as in the inputs before, found 3");
    good(&two, TWO("2", "2", "5", "4"));
    CHECK(request.requested[0].classes == 3);
    bad(&two, TWO("2", "2", "5,6", "1"), "input 'k': data: expected 1 elements");
    two.outputs[0].shape_known = false;
    two.max_output_bytes = (size_t)1 << 36;
    good(&two, TWO("2", "2", "5", "4294967296"));
    CHECK(request.requested[0].classes == UINT32_MAX);
}

/* ---- numbers, by type ---- */

/* One request of all types; `values` go to one of them, in one row. */
static enum lm_status read_type(const char *name, const char *values, const char *key) {
    static char text[1 << 14];
    size_t used = (size_t)snprintf(text, sizeof text, "{\"inputs\":[");
    for (uint32_t i = 0; i < types.input_count; i++) {
        const struct lm_tensor *tensor = &types.inputs[i];
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%s{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[1,2],",
                                 i ? "," : "", tensor->name, tensor->name);
        if (strcmp(tensor->name, name) == 0) {
            used += (size_t)snprintf(text + used, sizeof text - used, "\"%s\":%s}", key, values);
        } else {
            used +=
                (size_t)snprintf(text + used, sizeof text - used,
                                 "\"parameters\":{\"binary_data_size\":%zu}}", tensor->row_bytes);
        }
    }
    snprintf(text + used, sizeof text - used, "]}");
    enum lm_status status = read_bytes(&types, text, strlen(text));
    CHECK_AT("%s: %s, key %s", name, values, key);
    return status;
}

static const struct {
    const char *name;
    const char *values; /* two */
    bool is_good;
} ranges[] = {
    {"INT8", "[-128,127]", true},
    {"INT8", "[-129,0]", false},
    {"INT8", "[0,128]", false},
    {"UINT8", "[0,255]", true},
    {"UINT8", "[0,256]", false},
    {"UINT8", "[-1,0]", false},
    {"UINT8", "[-0,0]", true},
    {"INT16", "[-32768,32767]", true},
    {"INT16", "[-32769,0]", false},
    {"INT16", "[0,32768]", false},
    {"UINT16", "[0,65535]", true},
    {"UINT16", "[0,65536]", false},
    {"INT32", "[-2147483648,2147483647]", true},
    {"INT32", "[-2147483649,0]", false},
    {"INT32", "[0,2147483648]", false},
    {"UINT32", "[0,4294967295]", true},
    {"UINT32", "[0,4294967296]", false},
    {"INT64", "[-9223372036854775808,9223372036854775807]", true},
    {"INT64", "[0,9223372036854775808]", false},
    {"INT64", "[-9223372036854775809,0]", false},
    {"UINT64", "[0,18446744073709551615]", true},
    {"UINT64", "[0,18446744073709551616]", false},
    {"UINT64", "[0,99999999999999999999999]", false},
    {"INT32", "[1.5,0]", false},
    {"INT32", "[1.0,0]", false},
    {"INT32", "[1e2,0]", false},
    {"INT32", "[true,0]", false},
    {"INT32", "[\"5\",0]", false},
    {"INT32", "[null,0]", false},
    {"BOOL", "[true,false]", true},
    {"BOOL", "[1,0]", false},
    {"BOOL", "[truf,false]", false},
    {"BOOL", "[true,fals]", false},
    {"BOOL", "[truefalse,false]", false},
    {"FP32", "[3.4028235e38,-3.4028235e38]", true},
    {"FP32", "[3.40282356e38,0]", true}, /* rounds down */
    {"FP32", "[3.4028235677973366e38,0]", false},
    {"FP32", "[1e-400,-1e-400]", true},
    {"FP32", "[1e-46,1e-45]", true},
    {"FP64", "[1.7976931348623157e308,-1e308]", true},
    {"FP64", "[1e309,0]", false},
    {"FP64", "[1e-400,4.9e-324]", true},
    {"FP64", "[1e99999999999999999999,0]", false},
    {"FP64", "[1e-99999999999999999999,0]", true},
    {"FP64", "[0e99999999999999999999,0]", true},
    {"FP64", "[true,0]", false},
    {"FP16", "[1,2]", false},
    {"BF16", "[1,2]", false},
};

static void number_ranges(void) {
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        CHECK_AT("%s %s", ranges[i].name, ranges[i].values);
        CHECK((read_type(ranges[i].name, ranges[i].values, "data") == LM_STATUS_OK) ==
              ranges[i].is_good);
        CHECK((read_type(ranges[i].name, ranges[i].values, "d\\u0061ta") == LM_STATUS_OK) ==
              ranges[i].is_good);
    }
    CHECK(read_type("UINT64", "[1,18446744073709551615]", "data") == LM_STATUS_OK);
    CHECK(((uint64_t *)(void *)memory[9])[1] == UINT64_MAX);
    CHECK(read_type("FP64", "[-0.0,100000000000000000000]", "data") == LM_STATUS_OK);
    CHECK(signbit(((double *)(void *)memory[1])[0]) && ((double *)(void *)memory[1])[1] == 1e20);
}

/* As many digits as the fast way takes, and more; before the point and behind it. */
static void long_numbers(void) {
    static const char digits[] = "98765432109876543210987654321";
    char number[80], values[200];
    for (int whole = 1; whole < 25; whole++) {
        for (int fraction = 0; fraction < 26; fraction++) {
            snprintf(number, sizeof number, "-%.*s%s%.*s", whole, digits, fraction ? "." : "",
                     fraction, digits + 1);
            for (uint32_t zero = 0; zero < 2; zero++) {
                if (zero) number[1] = '0', number[2] = fraction ? '.' : '\0';
                if (zero && whole > 1) break;
                snprintf(values, sizeof values, "[%s,%s]", number, number + 1);
                double wide = strtod(number + 1, NULL);
                CHECK(read_type("FP64", values, "data") == LM_STATUS_OK);
                CHECK(((double *)(void *)memory[1])[1] == wide);
                CHECK(((double *)(void *)memory[1])[0] == -wide);
                CHECK(read_type("FP32", values, "data") == LM_STATUS_OK);
                CHECK(((float *)(void *)memory[0])[1] == strtof(number + 1, NULL));
                CHECK(((float *)(void *)memory[0])[0] == strtof(number, NULL));
            }
        }
    }
}

/* A random number as some writer may put it. */
static void print_number(char *text, size_t room, uint64_t *random) {
    static const char *const formats[] = {"%.0f", "%.3f",  "%.8f",  "%.16f", "%.17g",
                                          "%.9g", "%.12e", "%.25f", "%.20g", "%.1f"};
    double value;
    uint64_t bits = check_random(random);
    if (check_below(random, 4) == 0) {
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value) || fabs(value) > 1e18) value = (double)(bits % 1000);
    } else if (check_below(random, 2)) {
        value = ((double)(bits >> 11) * 0x1p-53 - 0.5) * 4;
    } else {
        float narrow = (float)(bits >> 40) * 0x1p-24f;
        value = (double)narrow; /* as Python prints a float32 */
    }
    snprintf(text, room, formats[check_below(random, 10)], value);
}

/* What the C library makes of a number, our fast way and our slow way must make of it too; and so
 * must simdjson, which reads what has a key with escapes. */
static void numbers_agree(uint64_t *random, uint32_t turns) {
    char values[256], number[2][96];
    for (uint32_t i = 0; i < turns; i++) {
        for (uint32_t n = 0; n < 2; n++) print_number(number[n], sizeof number[n], random);
        snprintf(values, sizeof values, "[%s,%s]", number[0], number[1]);
        for (uint32_t way = 0; way < 2; way++) {
            const char *key = way ? "d\\u0061ta" : "data";
            if (read_type("FP64", values, key) != LM_STATUS_OK) {
                CHECK(way == 1); /* simdjson refuses integers of more than 64 bits */
                continue;
            }
            CHECK(read_type("FP32", values, key) == LM_STATUS_OK);
            for (uint32_t n = 0; n < 2; n++) {
                double wide = ((double *)(void *)memory[1])[n], expected = strtod(number[n], NULL);
                float narrow = ((float *)(void *)memory[0])[n];
                if (!strpbrk(number[n], ".e")) expected += 0.0; /* the integer -0 is 0 */
                CHECK(memcmp(&wide, &expected, sizeof wide) == 0);
                CHECK(narrow == (float)expected && !signbit(narrow) == !signbit(expected));
            }
        }
    }
}

/* Floats whose middle is where the digits end: the fast way must not decide them. */
static void middles(uint64_t *random, uint32_t turns) {
    char values[256];
    for (uint32_t i = 0; i < turns; i++) {
        uint32_t bits = 0x3a000000 + check_below(random, 0x0a000000);
        float low;
        memcpy(&low, &bits, sizeof low);
        double middle = ((double)low + (double)nextafterf(low, INFINITY)) / 2;
        double near = check_below(random, 2) ? nextafter(middle, 0) : middle;
        snprintf(values, sizeof values, "[%.17f,%.16g]", near, near);
        CHECK(read_type("FP32", values, "data") == LM_STATUS_OK);
        char *second = strchr(values, ',') + 1;
        CHECK(((float *)(void *)memory[0])[0] == (float)strtod(values + 1, NULL));
        CHECK(((float *)(void *)memory[0])[1] == (float)strtod(second, NULL));
    }
}

/* ---- JSON itself ---- */

static const char *const no_json[] = {
    "[1,]",
    "[,1]",
    "[1,,2]",
    "[",
    "]",
    "[1",
    "[\"\"",
    "[\"x\"]]",
    "[x",
    "[1 true]",
    "[\"a\" \"b\"]",
    "[\"a\",",
    "[-]",
    "[-foo]",
    "[--1]",
    "[+1]",
    "[+Inf]",
    "[-01]",
    "[-1.0.]",
    "[-2.]",
    "[-NaN]",
    "[.-1]",
    "[.2e-3]",
    "[0.1.2]",
    "[0.3e+]",
    "[0.3e]",
    "[0.e1]",
    "[0E+]",
    "[0e]",
    "[1.0e+]",
    "[1.0e-]",
    "[1.0e]",
    "[1 000.0]",
    "[1eE2]",
    "[2.e+3]",
    "[2.e3]",
    "[9.e+]",
    "[Inf]",
    "[NaN]",
    "[\xef\xbc\x91]",
    "[1+2]",
    "[0x1]",
    "[0x42]",
    "[Infinity]",
    "[0e+-1]",
    "[-123.123foo]",
    "[-Infinity]",
    "[- 1]",
    "[-012]",
    "[-.123]",
    "[-1x]",
    "[1ea]",
    "[1.]",
    "[.123]",
    "[1.2a-3]",
    "[1.8011670033376514H-308]",
    "[012]",
    "[nul]",
    "[tru]",
    "[fals]",
    "[True]",
    "[TRUE]",
    "*",
    "<.>",
    "[<null>]",
    "[\"asd]",
    "['",
    "[\"\\x00\"]",
    "[\"\\\\\\\"]",
    "[\"\\\t\"]",
    "[\"\\\xf0\x9f\x8c\x80\"]",
    "[\"\\\"]",
    "[\"\\u00A\"]",
    "[\"\\uD834\\uDd\"]",
    "[\"\\uD800\\u1x\"]",
    "[\"\\a\"]",
    "[\"\\uqqqq\"]",
    "[\"\\\xe5\"]",
    "[\\n]",
    "[\"a\nb\"]",
    "[\"\t\"]",
    "\"\\UA66D\"",
    "[\"\xe5\"]",
    "[\"\xff\"]",
    "[\"\xed\xa0\x80\"]",
    "[\"\xf4\x90\x80\x80\"]",
    "[\"\xc0\x80\"]",
    "{]",
    "{\"x\"",
    "{\"x\":",
    "{\"x\":1,}",
    "{\"x\"::1}",
    "{\"x\", null}",
    "{x:1}",
    "{'a':0}",
    "{1:1}",
    "{9999E9999:1}",
    "{null:null,null:null}",
    "{\"id\":0,,,,,}",
    "{\"a\":\"a\" 123}",
    "{\"a\":\"b\"}/**/",
    "{\"a\":\"b\"}/",
    "{\"a\":\"b\"}#",
    "{\"a\" b}",
    "{:\"b\"}",
    "{\"a\":\"a",
    "{ \"foo\" : \"bar\", \"a\" }",
    "{\"a\":true} \"x\"",
    "1]",
    "{}}",
    "[][]",
    "[\xe2\x81\xa0]",
    "[\f]",
    "[1]x",
    "[u\xc3\xa5]",
    "\xc3\xa5",
    "[\"x\"",
    "{\"\xb9\":\"0\",}",
    "",
};
static const char *const some_json[] = {
    "[]",
    "{}",
    "null",
    "true",
    "-0",
    "1e-400",
    "[[] ]",
    "[\"\"]",
    "[\"\\u0000\"]",
    "[\"\\uD834\\uDd1e\"]",
    "{\"\":0}",
    "{\"a\":1,\"a\":2}",
    "[123e65]",
    "[0e+1]",
    "[20e1]",
    "[-0.000000000000000000000000001]",
    "[1,null,null,2]",
    "[\"\xf0\x9b\xbf\xbf\"]",
    "[\"\x7f\"]",
    " [1] ",
    "18446744073709551615",
    "\"\"",
};

static void json_suite(void) {
    char text[1024];
    for (size_t i = 0; i < sizeof no_json / sizeof no_json[0]; i++) {
        CHECK(read_text(&picture, no_json[i]) == LM_STATUS_BAD_REQUEST);
        snprintf(text, sizeof text, WITH(",\"x\":%s"), no_json[i]);
        bad(&picture, text, "not JSON");
        snprintf(text, sizeof text, VALUES("%s"), no_json[i]);
        CHECK(read_text(&picture, text) == LM_STATUS_BAD_REQUEST);
        snprintf(text, sizeof text, VALUES("[1,2,3,4,5,%s]"), no_json[i]);
        CHECK(read_text(&picture, text) == LM_STATUS_BAD_REQUEST);
    }
    for (size_t i = 0; i < sizeof some_json / sizeof some_json[0]; i++) {
        snprintf(text, sizeof text, WITH(",\"x\":%s"), some_json[i]);
        good(&picture, text);
    }
}

static void repeated(const char *before, const char *what, uint32_t times, const char *after,
                     enum lm_status expected) {
    static char text[TEXT_MAX + 4096];
    size_t used = (size_t)snprintf(text, sizeof text, "%s", before), bytes = strlen(what);
    for (uint32_t i = 0; i < times; i++, used += bytes) memcpy(text + used, what, bytes);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s", after);
    CHECK_AT("%.40s %u times %.10s", before, times, what);
    enum lm_status status = read_bytes(&picture, text, used);
    CHECK(status == expected);
}

/* A text of exactly the bytes that the parser takes, of which nearly all is read by simdjson. */
static void as_long_as_may_be(void) {
    const char *start =
        "{\"inputs\":[" IMAGE(DATA) "],\"outputs\":[{\"name\":\"scores\"}],\"x\":\"";
    uint32_t rest = (uint32_t)(TEXT_MAX - strlen(start) - 2);
    repeated(start, "x", rest, "\"}", LM_STATUS_OK);
    CHECK(memcmp(memory[0], six, sizeof six) == 0);
    repeated(start, "x", rest + 1, "\"}", LM_STATUS_TOO_LARGE);
    CHECK(strcmp(why, "the JSON is too large: expected at most 1048576 bytes, found 1048577") == 0);
}

/* As deep as JSON may be nested, the request's own object counted, and one more. */
static void nested(void) {
    char text[1024], deep[256];
    for (int arrays = LM_JSON_DEPTH_MAX - 1; arrays <= LM_JSON_DEPTH_MAX; arrays++) {
        memset(deep, '[', (size_t)arrays);
        memset(deep + arrays, ']', (size_t)arrays);
        deep[2 * arrays] = '\0';
        snprintf(text, sizeof text, WITH(",\"x\":%s"), deep);
        if (arrays < LM_JSON_DEPTH_MAX) {
            good(&picture, text);
        } else {
            bad(&picture, text, "it is nested too deep");
        }
    }
}

static void bombs(void) {
    const char *start = "{\"inputs\":[" IMAGE(DATA) "],\"outputs\":[{\"name\":\"scores\"}],\"x\":";
    const char *data = "{\"inputs\":[{\"name\":\"image\",\"datatype\":\"FP32\",\"shape\":[1,3,2],"
                       "\"data\":";
    repeated("", "[", 100000, "", LM_STATUS_BAD_REQUEST);
    repeated("", "{\"a\":", 100000, "", LM_STATUS_BAD_REQUEST);
    repeated(start, "[", 100000, "", LM_STATUS_BAD_REQUEST);
    repeated(start, "[", 100000, "}", LM_STATUS_BAD_REQUEST);
    repeated(start, "{\"a\":", 100000, "", LM_STATUS_BAD_REQUEST);
    repeated(start, "[{\"a\":", 100000, "", LM_STATUS_BAD_REQUEST);
    repeated(data, "[", 100000, "", LM_STATUS_BAD_REQUEST);
    repeated(data, "[]", 100000, "", LM_STATUS_BAD_REQUEST);
    repeated("{\"inputs\":[", "{\"data\":[", 100000, "", LM_STATUS_BAD_REQUEST);
    repeated("{\"inputs\":[", "{\"data\":[]},", 50000, "0]}", LM_STATUS_BAD_REQUEST);
    repeated("{\"inputs\":[", "{\"name\":\"image\"},", 50000, "0]}", LM_STATUS_BAD_REQUEST);
    repeated("{", "\"k\":0,", 150000,
             "\"inputs\":[" IMAGE(DATA) "],\"outputs\":[{\"name\":\"scores\"}]}", LM_STATUS_OK);
    repeated("{", "\"\\\\\":0,", 100000, "\"inputs\":[]}", LM_STATUS_BAD_REQUEST);
    repeated("{\"", "\\\"", 400000, "", LM_STATUS_BAD_REQUEST);
    repeated("", " ", TEXT_MAX, "", LM_STATUS_BAD_REQUEST);
    repeated("", " ", TEXT_MAX + 1, "", LM_STATUS_TOO_LARGE);
    repeated("{\"inputs\":[" IMAGE("\"data\":[1") "],\"x\":0", " ", 1000, "}",
             LM_STATUS_BAD_REQUEST);
    repeated("{\"inputs\":[{\"name\":\"image\",\"datatype\":\"FP32\",\"shape\":[1,3,2],\"data\":[1",
             " ", 900000, ",2,3,4,5,6]}],\"outputs\":[{\"name\":\"scores\"}]}", LM_STATUS_OK);
    repeated(data, "[", 101, "", LM_STATUS_BAD_REQUEST);
    repeated("{\"inputs\":[" IMAGE(DATA) "],\"outputs\":[{\"name\":\"scores\"}],\"id\":\"",
             "\\u0000", 100000, "\"}", LM_STATUS_BAD_REQUEST);
}

/* ---- mutation ---- */

static const char *const seeds[] = {
    WITH(",\"id\":\"a\\u0041b\",\"parameters\":{\"timeout\":5,\"binary_data_output\":true}"),
    VALUES("[[[1.5,-2e-3],[3.25,4],[5,6.000001]]]"),
    BINARY("24"),
    WISH("\"classification\":3,\"binary_data\":true"),
};

static size_t mutate(char *text, size_t bytes, size_t room, uint64_t *random) {
    static const char signs[] = "{}[]\",:\\0123456789.eE+-tfn \n\xff\x80";
    for (uint32_t turn = 1 + check_below(random, 4); turn > 0 && bytes > 1; turn--) {
        uint32_t at = check_below(random, (uint32_t)bytes);
        uint32_t length = 1 + check_below(random, 8);
        if (length > bytes - at) length = (uint32_t)(bytes - at);
        switch (check_below(random, 5)) {
        case 0: text[at] = (char)check_below(random, 256); break;
        case 1: text[at] = signs[check_below(random, sizeof signs - 1)]; break;
        case 2: /* taken out */
            memmove(text + at, text + at + length, bytes - at - length);
            bytes -= length;
            break;
        case 3: /* doubled */
            if (bytes + length > room) break;
            memmove(text + at + length, text + at, bytes - at);
            bytes += length;
            break;
        default: bytes = at ? at : 1; break; /* cut */
        }
    }
    return bytes;
}

static void mutations(uint64_t *random, uint32_t turns) {
    char text[2048];
    uint32_t good_count = 0;
    for (uint32_t i = 0; i < turns; i++) {
        const char *seed = seeds[check_below(random, sizeof seeds / sizeof seeds[0])];
        memcpy(text, seed, strlen(seed));
        size_t bytes = mutate(text, strlen(seed), sizeof text, random);
        CHECK_AT("%.*s", (int)bytes, text);
        good_count += read_bytes(&picture, text, bytes) == LM_STATUS_OK;
    }
    CHECK(turns < 1000 || (good_count > 0 && good_count < turns));
}

static void parsers(void) {
    struct lm_oip_parser *other = NULL;
    CHECK_AT("parsers");
    CHECK(lm_oip_parser_open(&other, 0) == LUMEN_E_INVALID && !other);
    CHECK(lm_oip_parser_open(&other, (size_t)1 << 32) == LUMEN_E_INVALID && !other);
    CHECK(strstr(lm_error_last(), "4294967296"));
    CHECK(lm_oip_parser_open(&other, 1) == 0 && other);
    lm_oip_parser_close(other);
    lm_oip_parser_close(NULL);
}

int main(void) {
    uint64_t random = check_seed();
    uint32_t turns = CHECK_UNDER_TSAN ? 1000 : 20000;
    check_watchdog(300, "reading requests");
    make_models();
    lm_oip_request_hold(&request, &lists);
    check_guard_open(&guard, TEXT_MAX + (1 << 14));
    parsers();
    uint64_t before = oip_allocations;
    CHECK(lm_oip_parser_open(&parser, TEXT_MAX) == 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(oip_allocations > before); /* the counting counts */
#endif
    (void)before;
    places_of_data(&random);
    whole_request();
    parameters();
    blobs();
    files();
    reshaped();
    ids();
    refusals();
    rows_and_classes();
    shown_in_part();
    nested();
    number_ranges();
    long_numbers();
    numbers_agree(&random, turns);
    middles(&random, turns);
    json_suite();
    bombs();
    as_long_as_may_be();
    mutations(&random, 10 * turns);
    lm_oip_parser_close(parser);
    check_guard_close(&guard);
    return check_finish("test_oip_request");
}
