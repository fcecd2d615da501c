/* test_oip_metadata.c: what the Open Inference Protocol says of server and models, to the letter:
 * perf_analyzer ends with an abort for a missing or extra field. */
#include "base/error.h"
#include "formats/oip_config.h"
#include "formats/oip_metadata.h"
#include "models/reshape.h"
#include "oip_models.h"

static void is(int code, struct lm_oip_document *document, const char *expected) {
    CHECK(code == 0 && document->text);
    CHECK_AT("%.*s", (int)document->bytes, document->text);
    if (document->bytes != strlen(expected) || memcmp(document->text, expected, document->bytes))
        fprintf(stderr, "%.*s\n%s\n", (int)document->bytes, document->text, expected);
    CHECK(document->bytes == strlen(expected));
    CHECK(memcmp(document->text, expected, document->bytes) == 0);
    lm_oip_document_close(document);
    CHECK(!document->text && document->bytes == 0);
    lm_oip_document_close(document);
}

static void config_has(const struct lm_model *model, const char *expected) {
    struct lm_oip_document document;
    CHECK(lm_oip_model_config(model, 2, &document) == 0);
    CHECK_AT("%.*s", (int)document.bytes, document.text);
    CHECK(memmem(document.text, document.bytes, expected, strlen(expected)));
    lm_oip_document_close(&document);
}

static struct lm_model models[3];

static void make_models(void) {
    oip_model(&models[0], "net", 8);
    models[0].batch_size = 4;
    models[0].batch_delay_ns = 500000;
    oip_input(&models[0], OIP_TENSOR("image", ORT_FLOAT, -1, 3, 224, 224));
    oip_output(&models[0], OIP_TENSOR("probabilities", ORT_FLOAT, -1, 1000));
    oip_output(&models[0], OIP_TENSOR("unknown", ORT_INT64, -1, 4));
    models[0].outputs[1].shape_known = models[0].outputs[1].rows_free = false;
    oip_model(&models[1], "fixed \"\\\n\xff", 1);
    oip_input(&models[1], OIP_TENSOR("a\"", ORT_BOOL, 2, 3));
    oip_output(&models[1], (struct lm_tensor){.name = "b", .dtype = ORT_FLOAT16});
    oip_model(&models[2], "mixed", 8);
    oip_input(&models[2], OIP_TENSOR("x", ORT_UINT8, -1, 2));
    oip_input(&models[2], OIP_TENSOR("k", ORT_INT32, 1));
    oip_output(&models[2], OIP_TENSOR("y", ORT_DOUBLE, -1));
}

static void metadata(void) {
    struct lm_oip_document document;
    make_models();
    const char *const extensions[] = {"classification", "statistics", NULL};
    is(lm_oip_server_metadata("my server", "1.2", extensions, &document), &document,
       "{\"name\":\"my server\",\"version\":\"1.2\",\"extensions\":[\"classification\","
       "\"statistics\"]}");
    is(lm_oip_model_metadata(&models[0], oip_pointers(models, 1), 1, &document), &document,
       "{\"name\":\"net\",\"versions\":[\"1\"],\"platform\":\"onnxruntime_onnx\",\"inputs\":[{"
       "\"name\":\"image\",\"datatype\":\"FP32\",\"shape\":[-1,3,224,224]}],\"outputs\":[{\"name\":"
       "\"probabilities\",\"datatype\":\"FP32\",\"shape\":[-1,1000]},{\"name\":\"unknown\","
       "\"datatype\":\"INT64\",\"shape\":[-1,4]}]}");
    is(lm_oip_model_metadata(&models[1], oip_pointers(models + 1, 1), 1, &document), &document,
       "{\"name\":\"fixed \\\"\\\\\\u000a\xef\xbf\xbd\",\"versions\":[\"1\"],\"platform\":"
       "\"onnxruntime_onnx\",\"inputs\":[{\"name\":\"a\\\"\",\"datatype\":\"BOOL\",\"shape\":[2,3]}"
       "]"
       ",\"outputs\":[{\"name\":\"b\",\"datatype\":\"FP16\",\"shape\":[-1]}]}");
}

static void configuration(void) {
    struct lm_oip_document document;
    make_models();
    is(lm_oip_model_config(&models[0], 2, &document), &document,
       "{\"name\":\"net\",\"platform\":\"onnxruntime_onnx\",\"backend\":\"onnxr"
       "untime\",\"runtime\":\"\",\"version_policy\":{\"latest\":{\"num_versio"
       "ns\":1}},\"max_batch_size\":8,\"input\":[{\"name\":\"image\",\"data_ty"
       "pe\":\"TYPE_FP32\",\"dims\":[3,224,224],\"format\":\"FORMAT_NONE\",\"i"
       "s_shape_tensor\":false,\"allow_ragged_batch\":false,\"optional\":"
       "false}],\"output\":[{\"name\":\"probabilities\",\"data_type\":\"TYPE_"
       "FP32\",\"dims\":[1000],\"label_filename\":\"\",\"is_shape_tensor\":fa"
       "lse},{\"name\":\"unknown\",\"data_type\":\"TYPE_INT64\",\"dims\":[4],\""
       "label_filename\":\"\",\"is_shape_tensor\":false}],\"batch_input\":["
       "],\"batch_output\":[],\"optimization\":{\"priority\":\"PRIORITY_DEF"
       "AULT\",\"input_pinned_memory\":{\"enable\":false},\"output_pinned_"
       "memory\":{\"enable\":false},\"gather_kernel_buffer_threshold\":0,"
       "\"eager_batching\":false},\"instance_group\":[{\"name\":\"net\",\"kin"
       "d\":\"KIND_CPU\",\"count\":2,\"gpus\":[],\"secondary_devices\":[],\"pr"
       "ofile\":[],\"passive\":false,\"host_policy\":\"\"}],\"dynamic_batchi"
       "ng\":{\"preferred_batch_size\":[4],\"max_queue_delay_microsecond"
       "s\":500,\"preserve_ordering\":false,\"priority_levels\":0,\"defaul"
       "t_priority_level\":0,\"priority_queue_policy\":{}},\"default_mod"
       "el_filename\":\"\",\"cc_model_filenames\":{},\"metric_tags\":{},\"mo"
       "del_warmup\":[],\"model_transaction_policy\":{\"decoupled\":false"
       "},\"response_cache\":{\"enable\":false},\"parameters\":{}}");
}

static void configuration_says_how_it_runs(void) {
    struct lm_oip_document document;
    make_models();
    models[0].batch_size = 1; /* none are gathered, however long a worker would wait */
    CHECK(lm_oip_model_config(&models[0], 2, &document) == 0);
    CHECK(!memmem(document.text, document.bytes, "dynamic_batching", 16));
    CHECK(memmem(document.text, document.bytes, "\"max_batch_size\":8", 18));
    lm_oip_document_close(&document);
    models[0].run_why = "it says so";
    config_has(&models[0], ",\"parameters\":{\"run\":{\"string_value\":\"auto: it says so\"}}}");
    models[0].input_plan.has_images = true;
    config_has(&models[0], "auto: it says so\"},\"image\":{\"string_value\":\"JPEG or PNG: ");
    models[0].run_why = NULL;
    config_has(&models[0],
               ",\"parameters\":{\"image\":{\"string_value\":\"JPEG or PNG: one file as "
               "the body, or files as BYTES [rows] of the input\"}}}");
}

static void configuration_without_batches(void) {
    struct lm_oip_document document;
    make_models();
    is(lm_oip_model_config(&models[2], 1, &document), &document,
       "{\"name\":\"mixed\",\"platform\":\"onnxruntime_onnx\",\"backend\":\"onn"
       "xruntime\",\"runtime\":\"\",\"version_policy\":{\"latest\":{\"num_vers"
       "ions\":1}},\"max_batch_size\":0,\"input\":[{\"name\":\"x\",\"data_type"
       "\":\"TYPE_UINT8\",\"dims\":[-1,2],\"format\":\"FORMAT_NONE\",\"is_shap"
       "e_tensor\":false,\"allow_ragged_batch\":false,\"optional\":false}"
       ",{\"name\":\"k\",\"data_type\":\"TYPE_INT32\",\"dims\":[1],\"format\":\"F"
       "ORMAT_NONE\",\"is_shape_tensor\":false,\"allow_ragged_batch\":fal"
       "se,\"optional\":false}],\"output\":[{\"name\":\"y\",\"data_type\":\"TYP"
       "E_FP64\",\"dims\":[-1],\"label_filename\":\"\",\"is_shape_tensor\":fa"
       "lse}],\"batch_input\":[],\"batch_output\":[],\"optimization\":{\"pr"
       "iority\":\"PRIORITY_DEFAULT\",\"input_pinned_memory\":{\"enable\":f"
       "alse},\"output_pinned_memory\":{\"enable\":false},\"gather_kernel"
       "_buffer_threshold\":0,\"eager_batching\":false},\"instance_group"
       "\":[{\"name\":\"mixed\",\"kind\":\"KIND_CPU\",\"count\":1,\"gpus\":[],\"se"
       "condary_devices\":[],\"profile\":[],\"passive\":false,\"host_polic"
       "y\":\"\"}],\"default_model_filename\":\"\",\"cc_model_filenames\":{},"
       "\"metric_tags\":{},\"model_warmup\":[],\"model_transaction_policy"
       "\":{\"decoupled\":false},\"response_cache\":{\"enable\":false},\"par"
       "ameters\":{}}");
}

static void lists(void) {
    struct lm_oip_document document;
    make_models();
    is(lm_oip_repository_index(oip_pointers(models, 2), 2, &document), &document,
       "[{\"name\":\"net\",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"},{\"name\":"
       "\"fixed "
       "\\\"\\\\\\u000a\xef\xbf\xbd\",\"version\":\"1\",\"state\":\"READY\",\"reason\":\"\"}]");
    is(lm_oip_repository_index(oip_pointers(models, 0), 0, &document), &document, "[]");
    /* Two versions of one name, whatever their order. */
    oip_model(&models[2], "net:10", 1);
    models[2].version = 10;
    models[0].version = 2;
    models[1].version = 3;
    struct lm_model *versions[] = {&models[2], &models[0]};
    is(lm_oip_model_metadata(&models[2], versions, 2, &document), &document,
       "{\"name\":\"net\",\"versions\":[\"2\",\"10\"],\"platform\":\"onnxruntime_onnx\","
       "\"inputs\":[],\"outputs\":[]}");
    is(lm_rows_model_names(oip_pointers(models, 2), 2, &document), &document,
       "{\"models\":[\"net\",\"fixed \\\"\\\\\\u000a\xef\xbf\xbd\"],\"object\":\"list\",\"data\":["
       "{\"id\":\"net\",\"object\":\"model\",\"created\":0,\"owned_by\":\"lumen\"},"
       "{\"id\":\"fixed \\\"\\\\\\u000a\xef\xbf\xbd\",\"object\":\"model\",\"created\":0,"
       "\"owned_by\":\"lumen\"}]}");
}

/* Of what a configuration file says, the same comes back; a picture model has an order anyway. */
static void declared(void) {
    static struct lm_model model;
    lumen_declared says[] = {{.name = "y", .label_file = "names.txt", .is_output = 1},
                             {.name = "x", .format = LUMEN_FORMAT_NHWC},
                             {.name = "x", .label_file = "of another.txt", .is_output = 1}};
    const lumen_model_config config = {
        .file_name = "net.onnx", .declared = says, .declared_count = 3};
    oip_model(&model, "net", 8);
    oip_input(&model, OIP_TENSOR("x", ORT_FLOAT, -1, 224, 224, 3));
    oip_output(&model, OIP_TENSOR("y", ORT_FLOAT, -1, 10));
    CHECK(lm_declared_open(&model.declared, &config) == 0);
    config_has(&model, "\"dims\":[224,224,3],\"format\":\"FORMAT_NHWC\",");
    config_has(&model, "\"dims\":[10],\"label_filename\":\"names.txt\",");
    config_has(&model, ",\"default_model_filename\":\"net.onnx\",");
    lm_declared_close(&model.declared);
    config_has(&model, "\"format\":\"FORMAT_NONE\",");
    model.input_plan.has_images = true;
    model.input_plan.image.pixels.layout = LM_LAYOUT_NCHW;
    config_has(&model, "\"format\":\"FORMAT_NCHW\",");
    model.input_plan.image.pixels.layout = LM_LAYOUT_NHWC;
    config_has(&model, "\"format\":\"FORMAT_NHWC\",");
    says[1].format = 3;
    CHECK(lm_declared_open(&model.declared, &config) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "format of 'x': expected 0 to 2, found 3"));
}

/* Clients see a tensor in the shape that the file declares. */
static void reshaped(void) {
    static struct lm_model model;
    struct lm_oip_document document;
    const int64_t with_rows[] = {-1, 10}, without[] = {3, 2}, free_dims[] = {3, -1}, none[] = {7};
    lumen_declared says[] = {{.name = "x", .shape = without, .rank = 2},
                             {.name = "y", .is_output = 1, .shape = with_rows, .rank = 2}};
    const lumen_model_config config = {.declared = says, .declared_count = 2};
    oip_model(&model, "net", 8);
    oip_input(&model, OIP_TENSOR("x", ORT_FLOAT, -1, 3, 2));
    oip_output(&model, OIP_TENSOR("y", ORT_FLOAT, -1, 10, 1, 1));
    CHECK(lm_declared_open(&model.declared, &config) == 0 && lm_model_reshape(&model) == 0);
    CHECK(model.max_rows == 1); /* clients cannot say how many */
    config_has(&model, "\"max_batch_size\":0,");
    config_has(&model, "\"dims\":[3,2],");
    is(lm_oip_model_metadata(&model, oip_pointers(&model, 1), 1, &document), &document,
       "{\"name\":\"net\",\"versions\":[\"1\"],\"platform\":\"onnxruntime_onnx\",\"inputs\":[{"
       "\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[3,2]}],\"outputs\":[{\"name\":\"y\","
       "\"datatype\":\"FP32\",\"shape\":[-1,10]}]}");
    lm_declared_close(&model.declared);
    const struct {
        const int64_t *shape;
        uint32_t rank;
    } wrong[] = {{free_dims, 2}, {none, 1}, {none, 0}, {with_rows, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        says[0].shape = wrong[i].shape;
        says[0].rank = wrong[i].rank;
        CHECK(lm_declared_open(&model.declared, &config) == 0);
        CHECK(lm_model_reshape(&model) == LUMEN_E_MODEL);
        CHECK(strstr(lm_error_last(), "reshape of 'x': expected fixed dimensions"));
        lm_declared_close(&model.declared);
    }
    says[0].rank = LM_RANK_MAX + 1;
    CHECK(lm_declared_open(&model.declared, &config) == LUMEN_E_INVALID);
}

static const char stats_text[] =
    "{\"model_stats\":[{\"name\":\"net\",\"version\":\"1\",\"last_inference\":1700000000000,"
    "\"inference_count\":90,\"execution_count\":30,\"inference_stats\":{\"success\":{\"count\":51,"
    "\"ns\":19},\"fail\":{\"count\":2,\"ns\":6},\"queue\":{\"count\":51,\"ns\":7},\"compute_"
    "input\":"
    "{"
    "\"count\":40,\"ns\":8},\"compute_infer\":{\"count\":40,\"ns\":9},\"compute_output\":{"
    "\"count\":40"
    ",\"ns\":10},\"cache_hit\":{\"count\":11,\"ns\":15},\"cache_miss\":{\"count\":12,\"ns\":16}},"
    "\"batch_stats\":[{\"batch_size\":1,\"compute_input\":{\"count\":3,\"ns\":4},\"compute_infer\":"
    "{\"count\":3,\"ns\":5},\"compute_output\":{\"count\":3,\"ns\":6}}"
    ",{\"batch_size\":4,\"compute_input\":{\"count\":4,\"ns\":40},\"compute_infer\":{\"count\":4,"
    "\"ns\":400},\"compute_output\":{\"count\":4,\"ns\":4000}}],\"memory_usage\":[],\"response_"
    "stats\":{}}]}";

static struct lm_oip_stats_page written(const struct lm_oip_model_stats *stats, uint32_t count,
                                        char *text, size_t bytes) {
    struct lm_oip_stats_page page = {.text = text, .bytes = bytes};
    lm_oip_stats_begin(&page);
    for (uint32_t m = 0; m < count; m++) lm_oip_stats_add(&page, &stats[m]);
    lm_oip_stats_end(&page);
    return page;
}

static void statistics(void) {
    enum { MODELS = 64 };
    struct lm_oip_model_stats stats = {
        "net", 1, 1700000000000, 40, 2, 5, 6, 7, 8, 9, 10, 90, 30, 11, 12, 14, 15, 16, 0, {{0}}};
    struct check_guard guard;
    size_t length = strlen(stats_text);
    /* Of several threads, in any order. */
    lm_oip_stats_add_batch(&stats, &(struct lm_oip_batch){4, 1, 10, 100, 1000});
    lm_oip_stats_add_batch(&stats, &(struct lm_oip_batch){1, 3, 4, 5, 6});
    lm_oip_stats_add_batch(&stats, &(struct lm_oip_batch){4, 3, 30, 300, 3000});
    CHECK_AT("statistics");
    check_guard_open(&guard, 1 << 19);
    uint64_t before = oip_allocations;
    for (size_t room = 0; room < length + 3; room++) {
        char *text = (char *)check_guard_tail(&guard, room);
        const struct lm_oip_stats_page page = written(&stats, 1, text, room);
        CHECK(page.full == (room <= length)); /* one byte for vsnprintf's terminator */
        CHECK(page.full || (page.used == length && memcmp(text, stats_text, length) == 0));
    }
    char *text = (char *)check_guard_tail(&guard, 64);
    CHECK(written(NULL, 0, text, 64).used == strlen("{\"model_stats\":[]}"));
    /* The largest there can be fits the bound. */
    struct lm_oip_model_stats most[MODELS];
    char name[LM_NAME_BYTES_MAX];
    memset(name, '\n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    memset(most, 0xff, sizeof most);
    for (uint32_t m = 0; m < MODELS; m++) {
        most[m].name = name;
        most[m].batch_count = LM_BATCH_SIZES;
    }
    lm_oip_stats_add_batch(&most[0], &(struct lm_oip_batch){.rows = 1}); /* one too many */
    CHECK(most[0].batch_count == LM_BATCH_SIZES);
    size_t bound = lm_oip_stats_bytes_max(MODELS);
    const struct lm_oip_stats_page page =
        written(most, MODELS, (char *)check_guard_tail(&guard, bound), bound);
    CHECK(!page.full && page.used > 64 << 10); /* more than any fixed room of before */
    CHECK(oip_allocations == before);
    check_guard_close(&guard);
}

int main(void) {
    metadata();
    configuration();
    configuration_says_how_it_runs();
    configuration_without_batches();
    lists();
    declared();
    reshaped();
    statistics();
    return check_finish("test_oip_metadata");
}
