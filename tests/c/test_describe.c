/* test_describe.c: the models as the native protocol describes them, and as the page at / shows
 * them: to the letter where it depends on the models. */
#include "base/error.h"
#include "formats/describe.h"
#include "formats/http_page.h"
#include "oip_models.h"

static struct lm_model models[8];
static char *text; /* of the last description or page, terminated */

/* ---- types ---- */

/* ONNX's numbers, the names that clients use, and the bytes of an element. */
static void types(void) {
    static const struct {
        int dtype;
        size_t bytes;
        const char *name;
    } known[] = {{1, 4, "FP32"},  {2, 1, "UINT8"}, {3, 1, "INT8"},    {4, 2, "UINT16"},
                 {5, 2, "INT16"}, {6, 4, "INT32"}, {7, 8, "INT64"},   {9, 1, "BOOL"},
                 {10, 2, "FP16"}, {11, 8, "FP64"}, {12, 4, "UINT32"}, {13, 8, "UINT64"},
                 {16, 2, "BF16"}, {8, 4, "BYTES"}};
    uint32_t count = 0;
    for (int dtype = -1; dtype < 30; dtype++) {
        bool found = false;
        CHECK_AT("type %d", dtype);
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
            if (known[k].dtype != dtype) continue;
            CHECK(strcmp(lm_dtype_name(dtype), known[k].name) == 0);
            CHECK(lm_dtype_bytes(dtype) == known[k].bytes);
            found = true;
        }
        if (!found) CHECK(lm_dtype_name(dtype) == NULL && lm_dtype_bytes(dtype) == 0);
        count += found;
    }
    CHECK(count == 14);
}

/* ---- describe ---- */

static const char *described(uint32_t model_count) {
    char *found = NULL;
    size_t bytes = 0;
    free(text);
    CHECK(lm_describe(oip_pointers(models, model_count), model_count, "1.2", &found, &bytes) == 0 &&
          found);
    text = strndup(found, bytes);
    CHECK(text && strlen(text) == bytes);
    free(found);
    for (uint32_t m = 0; m < model_count; m++) { /* the next test changes them */
        free(models[m].description.text);
        models[m].description.text = NULL;
    }
    return text;
}

static void is(const char *found, const char *expected) {
    if (strcmp(found, expected)) fprintf(stderr, "%s\n%s\n", found, expected);
    CHECK(strcmp(found, expected) == 0);
}

static void descriptions(void) {
    static const float mean[] = {1, 2.5f, 0.1f}, scale[] = {4, 0.5f, 1.0f / 3};
    static const char labels[] = "cat\n\"dog\"\n\nowl";
    CHECK_AT("descriptions");
    is(described(0),
       "{\"server\":{\"name\":\"lumen\",\"version\":\"1.2\",\"protocol\":1},\"models\":[]}");
    oip_model(&models[0], "net\n", 8);
    models[0].number = 3;
    models[0].wide.width = 2;
    snprintf(models[0].wide.why, sizeof models[0].wide.why, "2 are \"faster\"");
    oip_input(&models[0], OIP_TENSOR("x\"", ORT_UINT8, -1, 3, 5, 7));
    oip_input(&models[0], OIP_TENSOR("k", ORT_INT64, 2));
    oip_output(&models[0], OIP_TENSOR("y", ORT_FLOAT, -1, 4));
    oip_output(&models[0], (struct lm_tensor){.name = "z", .dtype = ORT_BOOL});
    oip_output(&models[0], OIP_TENSOR("w", ORT_DOUBLE, 6));
    models[0].input_plan.has_rgb8 = true;
    models[0].channel_order = LUMEN_CHANNELS_BGR;
    models[0].input_plan.rgb8 = (struct lm_rgb8_plan){
        .height = 5, .width = 7, .layout = LM_LAYOUT_NCHW, .dtype = ORT_UINT8};
    lm_rgb8_plan_init(&models[0].input_plan.rgb8, LUMEN_CHANNELS_BGR, mean, scale);
    models[0].input_plan.has_images = true;
    models[0].input_plan.image = (struct lm_image_plan){.fit = LM_FIT_CROP,
                                                        .filter = LM_FILTER_BOX,
                                                        .resize = 9,
                                                        .pad_value = 114,
                                                        .max_pixels = 77,
                                                        .pixels = {.height = 6, .width = 8}};
    CHECK(lm_labels_open(&models[0].labels, labels, sizeof labels - 1) == 0);
    oip_model(&models[1], "second", 1);
    models[1].number = 4;
    oip_input(&models[1], OIP_TENSOR("a", ORT_FLOAT, 1, 9, 11, 3));
    oip_output(&models[1], OIP_TENSOR("b", ORT_BFLOAT16, -1, 2));
    models[1].outputs[0].shape_known = models[1].outputs[0].rows_free = false;
    models[1].input_plan.has_rgb8 = true;
    models[1].input_plan.rgb8 =
        (struct lm_rgb8_plan){.height = 9, .width = 11, .layout = LM_LAYOUT_NHWC};
    is(described(1),
       "{\"server\":{\"name\":\"lumen\",\"version\":\"1.2\",\"protocol\":1},\"models\":[{\"index\":"
       "3,\"name\":\"net\\u000a\",\"version\":1,\"max_rows\":8,\"inputs\":[{\"name\":\"x\\\"\","
       "\"datatype\":"
       "\"UINT8\",\"shape\":[-1,3,5,7]},{\"name\":\"k\",\"datatype\":\"INT64\",\"shape\":[2]}],"
       "\"outputs\":[{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[-1,4],\"shape_known\":true},"
       "{\"name\":\"z\",\"datatype\":\"BOOL\",\"shape\":[],\"shape_known\":false},{\"name\":\"w\","
       "\"datatype\":\"FP64\",\"shape\":[6],\"shape_known\":true}],\"rgb8\":{\"height\":5,"
       "\"width\":7,\"layout\":\"NCHW\",\"channel_order\":\"BGR\",\"mean\":[1,2.5,0.100000001],"
       "\"scale\":[4,0.5,0.333333343]},\"image\":{\"height\":6,\"width\":8,\"layout\":\"NCHW\","
       "\"channel_order\":\"BGR\",\"mean\":[0,0,0],\"scale\":[0,0,0],\"fit\":\"shorter_side_and_"
       "crop\",\"resize\":9,\"filter\":\"box\",\"pad_value\":114,\"max_pixels\":77},\"labels\":["
       "\"cat\",\"\\\"dog\\\"\",\"\",\"owl\"],"
       "\"width\":2,\"width_why\":\"2 are \\\"faster\\\"\",\"providers\":[\"cpu\"]}]}");
    lm_labels_close(&models[0].labels);
    models[0].input_plan.image.pixels.is_grey = true;
    CHECK(strstr(described(1), "\"image\":{\"height\":6,\"width\":8,\"layout\":\"NCHW\","
                               "\"channel_order\":\"GREY\",\"mean\":"));
    models[0].input_plan.has_rgb8 = models[0].input_plan.has_images = false;
    CHECK(strstr(described(2), "\"rgb8\":null,\"image\":null,\"labels\":null,\"width\":2,"));
    is(strstr(text, "{\"index\":4,"),
       "{\"index\":4,\"name\":\"second\",\"version\":1,\"max_rows\":1,\"inputs\":[{\"name\":\"a\","
       "\"datatype\":"
       "\"FP32\",\"shape\":[1,9,11,3]}],\"outputs\":[{\"name\":\"b\",\"datatype\":\"BF16\","
       "\"shape\":[-1,2],\"shape_known\":false}],\"rgb8\":{\"height\":9,\"width\":11,\"layout\":"
       "\"NHWC\",\"channel_order\":\"RGB\",\"mean\":[0,0,0],\"scale\":[0,0,0]},\"image\":null,"
       "\"labels\":null,"
       "\"width\":1,\"width_why\":\"\",\"providers\":[\"cpu\"]}]}");
    static lumen_provider listed[] = {{.name = "openvino"}, {.name = "xnnpack"}};
    models[1].source.providers =
        (struct lm_providers){.list = listed, .count = 2, .nodes = 9, .nodes_on_cpu = 4};
    CHECK(strstr(described(2), "\"providers\":[\"openvino\",\"xnnpack\",\"cpu\"],\"nodes\":9,"
                               "\"nodes_on_cpu\":4}]}"));
}

/* Labels of 64 KiB together are told, and of one byte more are not. */
static void many_labels(void) {
    static char lines[LM_DESCRIBE_LABELS_BYTES_MAX + 1024];
    enum { LABEL_BYTES = 1023, LABELS = LM_DESCRIBE_LABELS_BYTES_MAX / LABEL_BYTES };
    for (size_t more = 0; more < 2; more++) {
        size_t rest = LM_DESCRIBE_LABELS_BYTES_MAX % LABEL_BYTES + more;
        memset(lines, 'x', sizeof lines);
        for (size_t l = 1; l <= LABELS; l++) lines[l * (LABEL_BYTES + 1) - 1] = '\n';
        size_t bytes = LABELS * (LABEL_BYTES + 1) + rest;
        CHECK(bytes < sizeof lines && lm_labels_open(&models[1].labels, lines, bytes) == 0);
        CHECK_AT("labels of 64 KiB and %zu bytes", more);
        CHECK(models[1].labels.starts[LABELS + 1] == LM_DESCRIBE_LABELS_BYTES_MAX + more);
        CHECK((strstr(described(2), "\"labels\":[\"xxx") != NULL) == (more == 0));
        CHECK((strstr(text, "\"labels\":null,\"width\":1") != NULL) == (more == 1));
        lm_labels_close(&models[1].labels);
    }
}

/* ---- the page ---- */

static void add(uint32_t at, const char *name, struct lm_tensor input, struct lm_tensor output) {
    oip_model(&models[at], name, input.rows_free ? 8 : 1);
    oip_input(&models[at], input);
    oip_output(&models[at], output);
    /* Nothing is written behind the last tensor. */
    models[at].inputs[2] = models[at].outputs[3] = OIP_TENSOR("no", ORT_FLOAT16, 1000);
    models[at].inputs[1] = models[at].outputs[1] = models[at].inputs[2];
}

static void has(const char *expected) {
    if (!strstr(text, expected)) fprintf(stderr, "the page lacks: %s\n", expected);
    CHECK(strstr(text, expected));
}

static const char *page(uint32_t model_count, uint32_t metrics_port) {
    struct lm_oip_document document;
    free(text);
    CHECK(lm_http_page(oip_pointers(models, model_count), model_count, "1.2", 4321, metrics_port,
                       &document) == 0);
    text = strndup(document.text, document.bytes);
    CHECK(text && strlen(text) == document.bytes);
    CHECK(strncmp(text, "<!doctype html>\n", 16) == 0);
    CHECK(strcmp(text + document.bytes - 10, "</script>\n") == 0);
    CHECK(!strstr(text, "<!--")); /* every place is filled */
    lm_oip_document_close(&document);
    return text;
}

#define CELL(name, label) "<td class=n data-l=\"" label "\"><span class=" name ">–</span>"
#define CELLS                 \
    CELL("rate", "answers/s") \
    CELL("p50", "p50")        \
    CELL("p99", "p99")        \
    CELL("wait", "mean wait") \
    CELL("run", "mean run")   \
    CELL("answered", "answered") CELL("failed", "failed") CELL("refused", "refused") "\n"

static void rows_of_models(void) {
    CHECK_AT("the page's table");
    page(7, 0);
    has("<h1>Lumen 1.2 <small id=state></small></h1>\n"
        "<p>Serves on <b class=origin>http://127.0.0.1:4321</b></p>\n");
    has("<thead><tr><th>model<th>inputs → outputs<th class=n>answers/s<th class=n>p50<th class=n>"
        "p99<th class=n>mean wait<th class=n>mean run<th class=n>answered<th class=n>failed"
        "<th class=n>refused<tbody>\n");
    has("<tr data-model=\"few\"><td data-l=model><b>few</b><td data-l=takes><span>"
        "x FP32[n,8,8] → y FP32[n,10]</span>" CELLS);
    has("<tr data-model=\"&#60;&#34;a&#39;&#38;&#62;&#10;/b\"><td data-l=model><b>&#60;&#34;a&#39;"
        "&#38;&#62;&#10;/b</b><td data-l=takes><span>it&#39;s INT32[65], k BOOL[n,2] → "
        "y INT64[n,n], z FP64[3], w FP32[]</span>" CELLS);
    const char *at = text;
    uint32_t rows = 0;
    while ((at = strstr(at, "<tr data-model="))) at++, rows++;
    CHECK(rows == 7);
}

#define COMMAND(name, command) \
    "<summary>" name ": one row of zeros</summary><pre class=try>" command "</pre></details>\n"
#define BODY(inputs) "{&#34;inputs&#34;:[" inputs "]}"
#define INPUT(name, type, shape, data)                                 \
    "{&#34;name&#34;:&#34;" name "&#34;,&#34;datatype&#34;:&#34;" type \
    "&#34;,&#34;shape&#34;:[" shape "],&#34;data&#34;:[" data "]}"
#define ZEROS_8 "0,0,0,0,0,0,0,0"
#define ZEROS_32 ZEROS_8 "," ZEROS_8 "," ZEROS_8 "," ZEROS_8
#define BY_BYTES(bytes)                                          \
    "head -c " bytes " /dev/zero |\n  curl --data-binary @- -H " \
    "'Inference-Header-Content-Length: 0' --output answer.bin $H/v2/models/"

static void commands(void) {
    CHECK_AT("the page's commands");
    page(7, 0);
    has("<pre>H=<span class=origin>http://127.0.0.1:4321</span></pre>\n<details open>" COMMAND(
        "few",
        "curl -d '" BODY(INPUT("x", "FP32", "1,8,8",
                               ZEROS_32 "," ZEROS_32)) "' "
                                                       "$H/v2/models/few/infer") "<details>");
    /* An input of many elements is made by Python; a quote ends the shell's own and is escaped. */
    has("<details>" COMMAND(
        "&#60;&#34;a&#39;&#38;&#62;&#10;/b",
        "python3 -c 'print(r\"\"\"" BODY(INPUT(
            "it&#39;\\&#39;&#39;s", "INT32", "65",
            "&#34;&#34;&#34; + &#34;,&#34;.join([&#34;0&#34;] * 65) + "
            "r&#34;&#34;&#34;") "," INPUT("k", "BOOL", "1,2", "false,false")) "\"\"\")' |\n  curl "
                                                                              "-d @- "
                                                                              "$H/v2/models/"
                                                                              "%3C%22a%27%26%3E%0A%"
                                                                              "2Fb/infer"));
    /* FP16 and BF16 travel as bytes, on either side. */
    has(COMMAND("half", BY_BYTES("10") "half/infer"));
    has(COMMAND("bfloat", BY_BYTES("7") "bfloat/infer"));
    has(COMMAND("two", "# FP16 and BF16 travel as bytes behind the JSON: docs/PROTOCOL.md"));
    has(COMMAND("scalar",
                "curl -d '" BODY(INPUT("x", "BOOL", "", "false")) "' "
                                                                  "$H/v2/models/scalar/infer"));
    has(COMMAND(
        "a-Z_0.9 %~",
        "curl -d '" BODY(INPUT("x", "UINT64", "2", "0,0")) "' "
                                                           "$H/v2/models/a-Z_0.9%20%25%7E/infer"));
}

static void pictures(void) {
    CHECK_AT("the page's command for pictures");
    models[1].input_plan.has_images = models[6].input_plan.has_images = true;
    page(7, 0);
    has(": a picture</summary><pre class=try>curl -T PICTURE.jpg "
        "$H/v2/models/%3C%22a%27%26%3E%0A%2Fb/infer</pre></details>\n");
    /* A row that is short needs no file. */
    has(COMMAND(
        "a-Z_0.9 %~",
        "curl -d '" BODY(INPUT("x", "UINT64", "2", "0,0")) "' "
                                                           "$H/v2/models/a-Z_0.9%20%25%7E/infer"));
    models[1].input_plan.has_images = models[6].input_plan.has_images = false;
}

static void links(void) {
    CHECK_AT("the page's links");
    page(1, 0);
    has("Metrics for Prometheus: none (server.metrics_port).");
    page(1, 9123);
    has("Metrics for Prometheus: port 9123, <a "
        "href=\"http://127.0.0.1:9123/metrics\">/metrics</a>");
    has("<pre>lumen bench --url $H --model few --seconds 5</pre>\n");
}

int main(void) {
    (void)oip_allocations; /* all this is written at start */
    types();
    descriptions();
    many_labels();
    add(0, "few", OIP_TENSOR("x", ORT_FLOAT, -1, 8, 8), OIP_TENSOR("y", ORT_FLOAT, -1, 10));
    add(1, "<\"a'&>\n/b", OIP_TENSOR("it's", ORT_INT32, 65), OIP_TENSOR("y", ORT_INT64, -1, -1));
    oip_input(&models[1], OIP_TENSOR("k", ORT_BOOL, -1, 2));
    oip_output(&models[1], OIP_TENSOR("z", ORT_DOUBLE, 3));
    oip_output(&models[1], (struct lm_tensor){.name = "w", .dtype = ORT_FLOAT});
    add(2, "half", OIP_TENSOR("x", ORT_FLOAT16, -1, 5), OIP_TENSOR("y", ORT_FLOAT, -1, 1));
    add(3, "bfloat", OIP_TENSOR("x", ORT_INT8, 7), OIP_TENSOR("y", ORT_BFLOAT16, 1));
    add(4, "two", OIP_TENSOR("x", ORT_FLOAT16, 2), OIP_TENSOR("y", ORT_FLOAT, 1));
    oip_input(&models[4], OIP_TENSOR("k", ORT_FLOAT, 2));
    add(5, "scalar", (struct lm_tensor){.name = "x", .dtype = ORT_BOOL, .element_bytes = 1},
        OIP_TENSOR("y", ORT_FLOAT, 1));
    add(6, "a-Z_0.9 %~", OIP_TENSOR("x", ORT_UINT64, 2), OIP_TENSOR("y", ORT_FLOAT, 1));
    rows_of_models();
    commands();
    pictures();
    links();
    free(text);
    return check_finish("test_describe");
}
