/* providers.c: see providers.h. Most providers are added by name. CUDA, TensorRT and oneDNN have
 * functions of their own, which every build has; one without the provider answers with an error. */
#include "onnx/providers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "onnx/ort.h"
#include "onnx/refusal.h"

static const char suffix[] = "ExecutionProvider";

/* What names do not tell. */
static const struct {
    const char *name;
    const char *by_name; /* for ONNX Runtime; NULL: as in its list of providers */
    const char *cure;
    bool on_device;
} known[] = {
    {"openvino", NULL, "the wheel onnxruntime-openvino has it", false},
    {"cuda", NULL, "the wheel onnxruntime-gpu has it", true},
    {"tensorrt", NULL, "the wheel onnxruntime-gpu has it", true},
    {"migraphx", NULL, "the wheel onnxruntime-migraphx has it", true},
    {"rocm", NULL, "the wheel onnxruntime-rocm has it", true},
    {"qnn", NULL, "the wheel onnxruntime-qnn has it", true},
    {"webgpu", NULL, "the wheel onnxruntime-webgpu has it", true},
    {"cann", NULL, "the wheel onnxruntime-cann has it", true},
    {"dnnl", NULL, "no wheel has it: build ONNX Runtime with --use_dnnl", false},
    {"xnnpack", "XNNPACK", "no wheel for Linux has it: build ONNX Runtime with --use_xnnpack",
     false},
    {"azure", "AZURE", "the wheel onnxruntime has it", false},
};

/* The bytes of a name before the suffix. */
static size_t stem(const char *name) {
    size_t bytes = strlen(name), ending = sizeof suffix - 1;
    bool has = bytes > ending && strcasecmp(name + bytes - ending, suffix) == 0;
    return has ? bytes - ending : bytes;
}

/* Whether two names mean one provider: "openvino" and "OpenVINOExecutionProvider". */
static bool same(const char *name, const char *other) {
    size_t bytes = stem(name);
    return bytes == stem(other) && strncasecmp(name, other, bytes) == 0;
}

/* ---- the copy ---- */

static int copy_one(lumen_provider *copy, const lumen_provider *provider) {
    lumen_option *options = calloc(provider->option_count + 1, sizeof *options);
    copy->options = options;
    copy->name = strdup(provider->name);
    bool copied = options && copy->name;
    for (uint32_t o = 0; copied && o < provider->option_count; o++) {
        copy->option_count++;
        options[o].name = strdup(provider->options[o].name);
        options[o].value = strdup(provider->options[o].value);
        copied = options[o].name && options[o].value;
    }
    return copied ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for the settings of providers");
}

int lm_providers_open(struct lm_providers *providers, const lumen_provider *list, uint32_t count) {
    memset(providers, 0, sizeof *providers);
    if (count == 0) return 0;
    if (count > LUMEN_PROVIDERS_MAX) {
        return lm_error(LUMEN_E_INVALID, "providers: expected at most %d, found %u",
                        LUMEN_PROVIDERS_MAX, count);
    }
    providers->list = calloc(count + 1, sizeof *providers->list);
    if (!providers->list) return lm_error(LUMEN_E_NOMEM, "no memory for the names of providers");
    for (uint32_t p = 0; p < count; p++) {
        if (list[p].option_count > LUMEN_PROVIDER_OPTIONS_MAX) {
            return lm_error(LUMEN_E_INVALID, "providers: %s: expected at most %d options, found %u",
                            list[p].name, LUMEN_PROVIDER_OPTIONS_MAX, list[p].option_count);
        }
        if (same(list[p].name, "cpu")) continue; /* every session ends with it */
        int code = copy_one(&providers->list[providers->count++], &list[p]);
        if (code) return code;
    }
    return 0;
}

void lm_providers_close(struct lm_providers *providers) {
    for (uint32_t p = 0; p < providers->count; p++) {
        lumen_provider *provider = &providers->list[p];
        for (uint32_t o = 0; o < provider->option_count; o++) {
            free((char *)provider->options[o].name);
            free((char *)provider->options[o].value);
        }
        free((lumen_option *)provider->options);
        free((char *)provider->name);
    }
    free(providers->list);
    memset(providers, 0, sizeof *providers);
}

/* ---- the build ---- */

static const char *cure_of(const char *name) {
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        if (same(name, known[k].name)) return known[k].cure;
    }
    return "this name is in no wheel that Lumen knows of";
}

static int refuse(const char *name, char **available, int count, const char *version) {
    char names[512] = "";
    size_t used = 0;
    for (int a = 0; a < count && used < sizeof names; a++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%.*s", a ? ", " : "",
                                 (int)stem(available[a]), available[a]);
    }
    for (char *at = names; *at; at++) {
        if (*at >= 'A' && *at <= 'Z') *at = (char)(*at - 'A' + 'a');
    }
    return lm_error(LUMEN_E_UNSUPPORTED,
                    "providers: expected one that the installed ONNX Runtime %s has (%s), found "
                    "'%s': %s",
                    version, names, name, cure_of(name));
}

int lm_providers_check(const struct lm_providers *providers, const struct lm_ort *ort) {
    char **available = NULL;
    int count = 0;
    if (providers->count == 0) return 0;
    int code = lm_ort_check(ort, ort->api->GetAvailableProviders(&available, &count),
                            "asking for its providers");
    if (code) return code;
    for (uint32_t p = 0; !code && p < providers->count; p++) {
        bool found = false;
        for (int a = 0; a < count; a++)
            found = found || same(providers->list[p].name, available[a]);
        if (!found) code = refuse(providers->list[p].name, available, count, ort->version);
    }
    OrtStatus *status = ort->api->ReleaseAvailableProviders(available, count);
    if (!code) return lm_ort_check(ort, status, "asking for its providers");
    if (status) ort->api->ReleaseStatus(status);
    return code;
}

bool lm_providers_share(const struct lm_providers *providers) {
    if (providers->count == 0) return false;
    const lumen_provider *first = &providers->list[0];
    for (uint32_t o = 0; o < first->option_count; o++) {
        if (same(first->name, "openvino") && strcmp(first->options[o].name, "device_type") == 0)
            return strncasecmp(first->options[o].value, "CPU", 3) != 0;
    }
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        if (same(first->name, known[k].name)) return known[k].on_device;
    }
    return false;
}

bool lm_providers_use_cuda(const struct lm_providers *providers) {
    for (uint32_t p = 0; p < providers->count; p++) {
        const char *name = providers->list[p].name;
        if (same(name, "cuda") || same(name, "tensorrt")) return true;
    }
    return false;
}

/* ---- into a session ---- */

/* The functions of a provider that has its own. */
struct own {
    OrtStatus *(*create)(OrtProviderOptions **out);
    OrtStatus *(*update)(OrtProviderOptions *provider, const char *const *keys,
                         const char *const *values, size_t count);
    OrtStatus *(*append)(OrtSessionOptions *options, const OrtProviderOptions *provider);
    void (*release)(OrtProviderOptions *provider);
};

static OrtStatus *append_own(const struct own *own, OrtSessionOptions *options,
                             const char *const *keys, const char *const *values, size_t count) {
    OrtProviderOptions *provider = NULL;
    OrtStatus *status = own->create(&provider);
    if (!status && count > 0) status = own->update(provider, keys, values, count);
    if (!status) status = own->append(options, provider);
    if (provider) own->release(provider);
    return status;
}

/* By name: the one that ONNX Runtime's list has, without the suffix. */
static OrtStatus *append_named(const struct lm_ort_api *api, OrtSessionOptions *options,
                               const char *name, const char *const *keys, const char *const *values,
                               size_t count) {
    char **available = NULL;
    int available_count = 0;
    char chosen[128];
    OrtStatus *status = api->GetAvailableProviders(&available, &available_count);
    if (status) return status;
    snprintf(chosen, sizeof chosen, "%s", name);
    for (int a = 0; a < available_count; a++) {
        if (same(name, available[a]))
            snprintf(chosen, sizeof chosen, "%.*s", (int)stem(available[a]), available[a]);
    }
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
        if (known[k].by_name && same(name, known[k].name))
            snprintf(chosen, sizeof chosen, "%s", known[k].by_name);
    }
    status = api->ReleaseAvailableProviders(available, available_count);
    if (!status)
        status = api->SessionOptionsAppendExecutionProvider(options, chosen, keys, values, count);
    return status;
}

static OrtStatus *append_one(const struct lm_ort_api *api, OrtSessionOptions *options,
                             const lumen_provider *provider) {
    const struct own cuda = {api->CreateCUDAProviderOptions, api->UpdateCUDAProviderOptions,
                             api->SessionOptionsAppendExecutionProvider_CUDA_V2,
                             api->ReleaseCUDAProviderOptions};
    const struct own tensorrt = {api->CreateTensorRTProviderOptions,
                                 api->UpdateTensorRTProviderOptions,
                                 api->SessionOptionsAppendExecutionProvider_TensorRT_V2,
                                 api->ReleaseTensorRTProviderOptions};
    const struct own dnnl = {api->CreateDnnlProviderOptions, api->UpdateDnnlProviderOptions,
                             api->SessionOptionsAppendExecutionProvider_Dnnl,
                             api->ReleaseDnnlProviderOptions};
    const char *keys[LUMEN_PROVIDER_OPTIONS_MAX], *values[LUMEN_PROVIDER_OPTIONS_MAX];
    uint32_t count = provider->option_count;
    for (uint32_t o = 0; o < count; o++) {
        keys[o] = provider->options[o].name;
        values[o] = provider->options[o].value;
    }
    const struct own *own = same(provider->name, "cuda")       ? &cuda
                            : same(provider->name, "tensorrt") ? &tensorrt
                            : same(provider->name, "dnnl")     ? &dnnl
                                                               : NULL;
    if (own) return append_own(own, options, keys, values, count);
    return append_named(api, options, provider->name, keys, values, count);
}

/* The part of a message that is of use to a person: of OpenVINO's the line behind its places in
 * sources, of ONNX Runtime's the first line without such places. */
static void shorten(char *message) {
    static const char place[] = "Exception from ";
    char *from = message, *at = message;
    while ((at = strstr(at, place))) from = at += sizeof place - 1;
    if (from > message) from += strcspn(from, "\n");
    from += strspn(from, "\n ");
    memmove(message, from, strlen(from) + 1);
    message[strcspn(message, "\r\n")] = '\0';
    lm_refusal_trim(message);
    static const char lambda[] = "::<lambda()> "; /* that the trimmed function was in */
    if (strncmp(message, lambda, sizeof lambda - 1) == 0)
        memmove(message, message + sizeof lambda - 1, strlen(message) - sizeof lambda + 2);
}

static int refused(const struct lm_ort *ort, OrtStatus *status, const char *names) {
    static const char code[] = " : FAIL : ";
    char said[4096], logged[512];
    snprintf(said, sizeof said, "%s", ort->api->GetErrorMessage(status));
    lm_ort_take_log(logged, sizeof logged);
    if (logged[0]) memcpy(said, logged, sizeof logged); /* which says more */
    (void)lm_ort_check(ort, status, "adding a provider");
    shorten(said);
    const char *from = strstr(said, code);
    from = from ? from + sizeof code - 1 : said;
    bool lacks = strstr(from, "cannot open shared object file") != NULL;
    return lm_error(LUMEN_E_UNSUPPORTED, "providers: %s cannot be used here: %.600s%s", names, from,
                    lacks ? " (install what has that library, or name its folder in "
                            "LD_LIBRARY_PATH)"
                          : "");
}

int lm_providers_loaded(const struct lm_providers *providers, const struct lm_ort *ort,
                        OrtStatus *status) {
    char names[256];
    if (!status || providers->count == 0 ||
        !strstr(ort->api->GetErrorMessage(status), "Exception from "))
        return lm_ort_check(ort, status, "loading") ? LUMEN_E_MODEL : 0;
    lm_providers_text(providers, names, sizeof names);
    return refused(ort, status, names);
}

int lm_providers_check_nodes(const struct lm_providers *providers) {
    char names[256];
    if (providers->nodes == 0 || providers->nodes_on_cpu < providers->nodes) return 0;
    lm_providers_text(providers, names, sizeof names);
    return lm_error(LUMEN_E_UNSUPPORTED,
                    "providers: expected one that takes a part of the graph; of %s the CPU gets "
                    "all %u nodes: leave the others out, or look at their options",
                    names, providers->nodes);
}

int lm_providers_append(const struct lm_providers *providers, const struct lm_ort *ort,
                        OrtSessionOptions *options) {
    char before[8];
    if (providers->count == 0) return 0;
    lm_ort_take_log(before, sizeof before);
    for (uint32_t p = 0; p < providers->count; p++) {
        OrtStatus *status = append_one(ort->api, options, &providers->list[p]);
        if (status) return refused(ort, status, providers->list[p].name);
    }
    /* Versions before 1.24 do not look at this entry. */
    OrtStatus *status =
        ort->api->AddSessionConfigEntry(options, "session.record_ep_graph_assignment_info", "1");
    return lm_ort_check(ort, status, "setting session options");
}

/* ---- the account of nodes ---- */

enum { ACCOUNT_MINOR = 24 /* of version 1 */ };
typedef struct OrtEpAssignedSubgraph OrtEpAssignedSubgraph;
typedef struct OrtEpAssignedNode OrtEpAssignedNode;

/* The part of the same table that came with version 1.24. */
struct account_api {
    void *unused_0[407];
    OrtStatus *(*Session_GetEpGraphAssignmentInfo)(const OrtSession *session,
                                                   const OrtEpAssignedSubgraph *const **parts,
                                                   size_t *count);
    OrtStatus *(*EpAssignedSubgraph_GetEpName)(const OrtEpAssignedSubgraph *part, const char **out);
    OrtStatus *(*EpAssignedSubgraph_GetNodes)(const OrtEpAssignedSubgraph *part,
                                              const OrtEpAssignedNode *const **nodes,
                                              size_t *count);
};
_Static_assert(offsetof(struct account_api, Session_GetEpGraphAssignmentInfo) ==
                   407 * sizeof(void *),
               "its slot");

static bool tells_nodes(const char *version) {
    return strncmp(version, "1.", 2) == 0 && strtol(version + 2, NULL, 10) >= ACCOUNT_MINOR;
}

/* Adds the nodes of one part of the graph. */
static OrtStatus *add_part(const struct account_api *api, const OrtEpAssignedSubgraph *part,
                           size_t *all, size_t *on_cpu) {
    const OrtEpAssignedNode *const *nodes = NULL;
    const char *name = NULL;
    size_t count = 0;
    OrtStatus *status = api->EpAssignedSubgraph_GetEpName(part, &name);
    if (!status) status = api->EpAssignedSubgraph_GetNodes(part, &nodes, &count);
    if (status) return status;
    *all += count;
    if (same(name, "cpu")) *on_cpu += count;
    return NULL;
}

void lm_providers_count_nodes(struct lm_providers *providers, const struct lm_ort *ort,
                              const OrtSession *session) {
    const struct account_api *api = (const struct account_api *)(const void *)ort->api;
    const OrtEpAssignedSubgraph *const *parts = NULL;
    size_t part_count = 0, all = 0, on_cpu = 0;
    providers->nodes = providers->nodes_on_cpu = 0;
    if (providers->count == 0 || !tells_nodes(ort->version)) return;
    OrtStatus *status = api->Session_GetEpGraphAssignmentInfo(session, &parts, &part_count);
    for (size_t p = 0; !status && p < part_count; p++)
        status = add_part(api, parts[p], &all, &on_cpu);
    if (status) {

        ort->api->ReleaseStatus(status); /* only the account is missing then */
        return;
    }
    providers->nodes = (uint32_t)all;
    providers->nodes_on_cpu = (uint32_t)on_cpu;
}
