/* ort.c: see ort.h. Sessions are in ort_session.c, strings in ort_strings.c. */
#include "onnx/ort.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int lm_ort_check(const struct lm_ort *ort, OrtStatus *status, const char *tried) {
    if (!status) return 0;
    int code = lm_error(LUMEN_E_ORT, "%s: ONNX Runtime says: %s", tried,
                        ort->api->GetErrorMessage(status));
    ort->api->ReleaseStatus(status);
    return code;
}

/* Why a provider could not be loaded stands in the log alone. */
static _Thread_local char last_logged[512];

static void keep_last(void *parameter, int severity, const char *category, const char *log_id,
                      const char *place, const char *message) {
    (void)parameter, (void)severity, (void)category, (void)log_id, (void)place;
    snprintf(last_logged, sizeof last_logged, "%s", message);
}

void lm_ort_take_log(char *text, size_t bytes) {
    snprintf(text, bytes, "%s", last_logged);
    last_logged[0] = '\0';
}

int lm_ort_open(struct lm_ort *ort, const char *library_path) {
    memset(ort, 0, sizeof *ort);
    /* Wheels from 1.29 on start a telemetry thread with an sqlite file unless told not to. */
    setenv("ORT_DISABLE_TELEMETRY", "1", 1);
    ort->library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    if (!ort->library) {
        return lm_error(LUMEN_E_ORT,
                        "cannot load ONNX Runtime: %s (is the onnxruntime wheel installed?)",
                        dlerror());
    }
    const OrtApiBase *(*get_base)(void) = NULL;
    *(void **)&get_base = dlsym(ort->library, "OrtGetApiBase");
    if (!get_base) {
        int code = lm_error(LUMEN_E_ORT, "%s: expected ONNX Runtime, found no symbol OrtGetApiBase",
                            library_path);
        lm_ort_close(ort);
        return code;
    }
    const OrtApiBase *base = get_base();
    ort->version = base->GetVersionString();
    ort->api = base->GetApi(LM_ORT_API_VERSION);
    if (!ort->api) {
        int code = lm_error(
            LUMEN_E_ORT,
            "ONNX Runtime: expected version 1.%d or later, found %s (pip install -U onnxruntime)",
            LM_ORT_API_VERSION, ort->version);
        lm_ort_close(ort);
        return code;
    }
    int code = lm_ort_check(
        ort,
        ort->api->CreateEnvWithCustomLogger(keep_last, NULL, ORT_LOG_ERROR, "lumen", &ort->env),
        "creating its environment");
    if (!code)
        code =
            lm_ort_check(ort, ort->api->DisableTelemetryEvents(ort->env), "turning telemetry off");
    if (!code) {
        code = lm_ort_check(ort,
                            ort->api->CreateCpuMemoryInfo(ORT_ALLOCATOR_DEVICE, ORT_MEMORY_DEFAULT,
                                                          &ort->cpu_memory),
                            "describing CPU memory");
    }
    if (!code)
        code = lm_ort_check(ort, ort->api->GetAllocatorWithDefaultOptions(&ort->allocator),
                            "getting its allocator");
    if (code) lm_ort_close(ort);
    return code;
}

void lm_ort_close(struct lm_ort *ort) {
    if (ort->cpu_memory) ort->api->ReleaseMemoryInfo(ort->cpu_memory);
    if (ort->env) ort->api->ReleaseEnv(ort->env);
    /* The library stays loaded: it has thread-local destructors of its own, and Python may use it
     * too. */
    memset(ort, 0, sizeof *ort);
}

OrtValue *lm_ort_wrap(const struct lm_ort *ort, void *data, size_t bytes, const int64_t *shape,
                      size_t rank, int dtype) {
    OrtValue *value = NULL;
    OrtStatus *status = ort->api->CreateTensorWithDataAsOrtValue(ort->cpu_memory, data, bytes,
                                                                 shape, rank, dtype, &value);
    return lm_ort_check(ort, status, "wrapping a tensor") ? NULL : value;
}

void lm_ort_value_close(const struct lm_ort *ort, OrtValue *value) {
    if (value) ort->api->ReleaseValue(value);
}

/* ONNX Runtime has no code of its own for it. 1.17 and later say the first, some the second too. */
static bool names_output_memory(const char *message) {
    return strstr(message, "shape verification failed") || strstr(message, "pre-allocated output");
}

int lm_ort_run(const struct lm_ort *ort, OrtSession *session, const char *const *input_names,
               const OrtValue *const *inputs, size_t input_count, const char *const *output_names,
               OrtValue **outputs, size_t output_count) {
    OrtStatus *status = ort->api->Run(session, NULL, input_names, inputs, input_count, output_names,
                                      output_count, outputs);
    bool unfit = status && ort->api->GetErrorCode(status) == ORT_INVALID_ARGUMENT;
    bool unfit_output = status && names_output_memory(ort->api->GetErrorMessage(status));
    int code = lm_ort_check(ort, status, "inference");
    return unfit_output ? LM_ORT_UNFIT_OUTPUT : unfit ? LUMEN_E_INVALID : code;
}
