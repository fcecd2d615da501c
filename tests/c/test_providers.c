/* test_providers.c: which functions of ONNX Runtime add which provider, with which options in which
 * order; names in both spellings; refusals. A table of ours stands in for ONNX Runtime: builds with
 * CUDA, TensorRT or oneDNN need their hardware. */
#include "base/error.h"
#include "check.h"
#include "onnx/ort.c" /* the file itself, whose log these functions write to */

static char log_text[1024]; /* the calls, in order */
static const char *refuser; /* the call that fails; NULL: none does */
static const char *logged;  /* by that call; NULL: nothing is */
static const char *message =
    "/src/cuda.cc:48 void onnxruntime::Load() libcublas.so.12 is not there\nStacktrace: 1";
static char *available[] = {
    (char *)"TensorrtExecutionProvider", (char *)"CUDAExecutionProvider",
    (char *)"DnnlExecutionProvider",     (char *)"OpenVINOExecutionProvider",
    (char *)"XnnpackExecutionProvider",  (char *)"CPUExecutionProvider"};
static OrtProviderOptions *const made = (OrtProviderOptions *)(void *)log_text;

static OrtStatus *say(const char *call) {
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%s;", call);
    if (!refuser || strcmp(refuser, call) != 0) return NULL;
    if (logged) keep_last(NULL, ORT_LOG_ERROR, "", "", "", logged);
    return (OrtStatus *)(void *)log_text;
}

static OrtStatus *say_options(const char *call, const char *const *keys, const char *const *values,
                              size_t count) {
    char text[256];
    size_t used = (size_t)snprintf(text, sizeof text, "%s", call);
    for (size_t o = 0; o < count; o++)
        used += (size_t)snprintf(text + used, sizeof text - used, " %s=%s", keys[o], values[o]);
    return say(text);
}

/* The four functions of a provider with options of its own. */
#define OWN(name)                                                                          \
    static OrtStatus *create_##name(OrtProviderOptions **out) {                            \
        *out = made;                                                                       \
        return say("create " #name);                                                       \
    }                                                                                      \
    static OrtStatus *update_##name(OrtProviderOptions *provider, const char *const *keys, \
                                    const char *const *values, size_t count) {             \
        CHECK(provider == made);                                                           \
        return say_options("update " #name, keys, values, count);                          \
    }                                                                                      \
    static OrtStatus *append_##name(OrtSessionOptions *options,                            \
                                    const OrtProviderOptions *provider) {                  \
        CHECK(options && provider == made);                                                \
        return say("append " #name);                                                       \
    }                                                                                      \
    static void release_##name(OrtProviderOptions *provider) {                             \
        CHECK(provider == made);                                                           \
        (void)say("release " #name);                                                       \
    }
OWN(cuda)
OWN(tensorrt)
OWN(dnnl)

static OrtStatus *append_named(OrtSessionOptions *options, const char *name,
                               const char *const *keys, const char *const *values, size_t count) {
    CHECK(options != NULL);
    return say_options(name, keys, values, count);
}

static OrtStatus *add_entry(OrtSessionOptions *options, const char *key, const char *value) {
    CHECK(options && value);
    return say(strrchr(key, '.') + 1);
}

static OrtStatus *list(char ***names_out, int *count_out) {
    *names_out = available;
    *count_out = sizeof available / sizeof available[0];
    return NULL;
}

static OrtStatus *release_list(char **names, int count) {
    CHECK(names == available && count > 0);
    return NULL;
}

static const char *words(const OrtStatus *status) {
    (void)status;
    return message;
}

static void release_status(OrtStatus *status) {
    (void)status;
}

static const struct lm_ort_api api = {
    .GetErrorMessage = words,
    .ReleaseStatus = release_status,
    .GetAvailableProviders = list,
    .ReleaseAvailableProviders = release_list,
    .AddSessionConfigEntry = add_entry,
    .SessionOptionsAppendExecutionProvider = append_named,
    .CreateCUDAProviderOptions = create_cuda,
    .UpdateCUDAProviderOptions = update_cuda,
    .SessionOptionsAppendExecutionProvider_CUDA_V2 = append_cuda,
    .ReleaseCUDAProviderOptions = release_cuda,
    .CreateTensorRTProviderOptions = create_tensorrt,
    .UpdateTensorRTProviderOptions = update_tensorrt,
    .SessionOptionsAppendExecutionProvider_TensorRT_V2 = append_tensorrt,
    .ReleaseTensorRTProviderOptions = release_tensorrt,
    .CreateDnnlProviderOptions = create_dnnl,
    .UpdateDnnlProviderOptions = update_dnnl,
    .SessionOptionsAppendExecutionProvider_Dnnl = append_dnnl,
    .ReleaseDnnlProviderOptions = release_dnnl,
};
static const struct lm_ort ort = {.api = &api, .version = "1.19.2"};
static struct lm_providers providers;

/* Adds them; the calls are in log_text. */
static int append(const lumen_provider *wanted, uint32_t count) {
    log_text[0] = '\0';
    CHECK(lm_providers_open(&providers, wanted, count) == 0);
    return lm_providers_append(&providers, &ort, (OrtSessionOptions *)(void *)available);
}

static void shut(void) {
    lm_providers_close(&providers);
    CHECK(providers.count == 0 && providers.list == NULL);
    lm_providers_close(&providers); /* twice does nothing */
}

static void each_by_its_function(void) {
    const lumen_option two[] = {{"b", "2"}, {"a", "{\"x\": 1}"}};
    const lumen_provider wanted[] = {
        {.name = "tensorrt", .options = two, .option_count = 1},
        {.name = "CUDAExecutionProvider", .options = two, .option_count = 2},
        {.name = "dnnl"},
        {.name = "openVINO", .options = two + 1, .option_count = 1},
        {.name = "xnnpack"},
        {.name = "future"},
        {.name = "cpu"},
    };
    char text[128];
    CHECK(append(wanted, 7) == 0);
    CHECK(strcmp(log_text, "create tensorrt;update tensorrt b=2;append tensorrt;release tensorrt;"
                           "create cuda;update cuda b=2 a={\"x\": 1};append cuda;release cuda;"
                           "create dnnl;append dnnl;release dnnl;"
                           "OpenVINO a={\"x\": 1};XNNPACK;future;"
                           "record_ep_graph_assignment_info;") == 0);
    lm_providers_text(&providers, text, sizeof text);
    CHECK(strcmp(text, "tensorrt, CUDAExecutionProvider, dnnl, openVINO, xnnpack, future, cpu") ==
          0);
    lm_providers_count_nodes(&providers, &ort, NULL); /* 1.19 does not tell: it is not asked */
    CHECK(providers.nodes == 0);
    shut();
}

static void the_cpu_alone(void) {
    const lumen_provider cpu[] = {{.name = "CPUExecutionProvider"}};
    CHECK(append(cpu, 1) == 0 && providers.count == 0 && log_text[0] == '\0');
    CHECK(lm_providers_check(&providers, &ort) == 0);
    shut();
    CHECK(append(NULL, 0) == 0 && log_text[0] == '\0');
    shut();
}

/* What was made is released, whatever refuses. */
static void refused_by_the_runtime(void) {
    const lumen_option one[] = {{"o", "1"}};
    const lumen_provider wanted[] = {{.name = "cuda", .options = one, .option_count = 1},
                                     {.name = "openvino"}};
    const char *const calls[] = {"create cuda", "update cuda o=1", "append cuda"};
    for (uint32_t c = 0; c < 3; c++) {
        refuser = calls[c];
        CHECK_AT("%s", refuser);
        CHECK(append(wanted, 2) == LUMEN_E_UNSUPPORTED);
        CHECK(strcmp(lm_error_last(), "providers: cuda cannot be used here: libcublas.so.12 is not "
                                      "there") == 0);
        CHECK(strstr(log_text, "release cuda;") && !strstr(log_text, "OpenVINO"));
        shut();
    }
    refuser = "OpenVINO";
    CHECK(append(wanted, 2) == LUMEN_E_UNSUPPORTED && strstr(lm_error_last(), "openvino cannot"));
    shut();
    refuser = NULL;
    refuser = "append cuda";
    message = "[ONNXRuntimeError] : 1 : FAIL : libcuda.so.1: cannot open shared object file";
    CHECK(append(wanted, 1) == LUMEN_E_UNSUPPORTED);
    CHECK(strcmp(lm_error_last(), "providers: cuda cannot be used here: libcuda.so.1: cannot open "
                                  "shared object file (install what has that library, or name its "
                                  "folder in LD_LIBRARY_PATH)") == 0);
    shut();
    refuser = NULL;
    /* A session that cannot be created. */
    CHECK(append(wanted, 2) == 0);
    message =
        "/src/basic.cc:1 auto f(int) [with A = B]\nException from src/a.cpp:5:\nException from "
        "src/b.cpp:7:\nNotFound: Unsupported property N\n\n";
    CHECK(lm_providers_loaded(&providers, &ort, (OrtStatus *)(void *)log_text) ==
          LUMEN_E_UNSUPPORTED);
    CHECK(strcmp(lm_error_last(), "providers: cuda, openvino, cpu cannot be used here: NotFound: "
                                  "Unsupported property N") == 0);
    message = "no model";
    CHECK(lm_providers_loaded(&providers, &ort, (OrtStatus *)(void *)log_text) == LUMEN_E_MODEL);
    CHECK(strcmp(lm_error_last(), "loading: ONNX Runtime says: no model") == 0);
    CHECK(lm_providers_loaded(&providers, &ort, NULL) == 0);
    providers.nodes = 7;
    for (uint32_t on_cpu = 6; on_cpu <= 7; on_cpu++) {
        providers.nodes_on_cpu = on_cpu;
        CHECK(lm_providers_check_nodes(&providers) == (on_cpu < 7 ? 0 : LUMEN_E_UNSUPPORTED));
    }
    CHECK(strstr(lm_error_last(), "of cuda, openvino, cpu the CPU gets all 7 nodes"));
    shut();
}

/* A line that was logged during the call says more than its status; one that was logged before is
 * another call's. */
static void refused_in_the_log(void) {
    const lumen_provider wanted[] = {{.name = "cuda"}};
    message = "no such thing";
    refuser = "append cuda";
    for (int turn = 0; turn < 4; turn++) {
        logged = turn % 2 ? "libnew.so is not there" : NULL;
        keep_last(NULL, ORT_LOG_ERROR, "", "", "", turn < 2 ? "" : "libold.so is not there");
        CHECK_AT("turn %d", turn);
        CHECK(append(wanted, 1) == LUMEN_E_UNSUPPORTED);
        CHECK(strcmp(lm_error_last(), logged ? "providers: cuda cannot be used here: libnew.so is "
                                               "not there"
                                             : "providers: cuda cannot be used here: no such "
                                               "thing") == 0);
        shut();
    }
    refuser = logged = NULL;
}

static void not_in_the_build(void) {
    static const struct {
        const char *name, *cure;
    } wanted[] = {{"openvino", NULL},
                  {"TENSORRTexecutionprovider", NULL},
                  {"qnn", "the wheel onnxruntime-qnn has it"},
                  {"azure", "the wheel onnxruntime has it"},
                  {"openvin", "this name is in no wheel that Lumen knows of"},
                  {"ExecutionProvider", "this name is in no wheel that Lumen knows of"}};
    for (size_t w = 0; w < sizeof wanted / sizeof wanted[0]; w++) {
        const lumen_provider one[] = {{.name = wanted[w].name}};
        char expected[256];
        CHECK_AT("%s", wanted[w].name);
        CHECK(lm_providers_open(&providers, one, 1) == 0);
        int code = lm_providers_check(&providers, &ort);
        snprintf(expected, sizeof expected,
                 "providers: expected one that the installed ONNX Runtime 1.19.2 has (tensorrt, "
                 "cuda, dnnl, openvino, xnnpack, cpu), found '%s': %s",
                 wanted[w].name, wanted[w].cure ? wanted[w].cure : "");
        CHECK(wanted[w].cure ? code == LUMEN_E_UNSUPPORTED : code == 0);
        if (code) CHECK(strcmp(lm_error_last(), expected) == 0);
        shut();
    }
}

/* A device has one session, by its provider or by the device that OpenVINO is told. */
static void one_session(void) {
    const lumen_option cpu[] = {{"num_streams", "1"}, {"device_type", "cpu"}};
    const lumen_option gpu[] = {{"device_type", "GPU.0"}};
    const struct {
        lumen_provider provider;
        bool shares;
    } cases[] = {{{.name = "TensorrtExecutionProvider"}, true},
                 {{.name = "cuda", .options = cpu, .option_count = 2}, true},
                 {{.name = "qnn"}, true},
                 {{.name = "openvino"}, false},
                 {{.name = "openvino", .options = cpu, .option_count = 2}, false},
                 {{.name = "openvino", .options = gpu, .option_count = 1}, true},
                 {{.name = "dnnl", .options = gpu, .option_count = 1}, false},
                 {{.name = "future"}, false},
                 {{.name = "cpu"}, false}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        CHECK_AT("%s %zu", cases[c].provider.name, c);
        CHECK(lm_providers_open(&providers, &cases[c].provider, 1) == 0);
        CHECK(lm_providers_share(&providers) == cases[c].shares);
        CHECK(lm_providers_use_cuda(&providers) == (c < 2));
        shut();
    }
}

static void too_many(void) {
    lumen_provider many[LUMEN_PROVIDERS_MAX + 1];
    lumen_option options[LUMEN_PROVIDER_OPTIONS_MAX + 1];
    for (size_t p = 0; p < sizeof many / sizeof many[0]; p++)
        many[p] = (lumen_provider){.name = "cuda"};
    for (size_t o = 0; o < sizeof options / sizeof options[0]; o++)
        options[o] = (lumen_option){"n", "v"};
    CHECK(lm_providers_open(&providers, many, LUMEN_PROVIDERS_MAX) == 0);
    CHECK(providers.count == LUMEN_PROVIDERS_MAX);
    shut();
    CHECK(lm_providers_open(&providers, many, LUMEN_PROVIDERS_MAX + 1) == LUMEN_E_INVALID);
    shut();
    many[1].options = options;
    for (uint32_t count = LUMEN_PROVIDER_OPTIONS_MAX; count < LUMEN_PROVIDER_OPTIONS_MAX + 2;
         count++) {
        bool fits = count == LUMEN_PROVIDER_OPTIONS_MAX;
        many[1].option_count = count;
        CHECK(lm_providers_open(&providers, many, 2) == (fits ? 0 : LUMEN_E_INVALID));
        shut();
    }
}

int main(void) {
    each_by_its_function();
    the_cpu_alone();
    refused_by_the_runtime();
    refused_in_the_log();
    not_in_the_build();
    one_session();
    too_many();
    return check_finish("test_providers");
}
