/* ort_session.c: where the sessions of a model come from, and how they are opened; see ort.h. At
 * start, on the control thread or on one that lives on a node. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/processor.h"
#include "base/topology.h"
#include "onnx/ort.h"

/* Session options common to all: one thread unless asked otherwise, sequential, no chatter. */
static int make_options(const struct lm_ort *ort, int intra_op_threads, int optimise,
                        OrtSessionOptions **options_out) {
    const struct lm_ort_api *api = ort->api;
    int code =
        lm_ort_check(ort, api->CreateSessionOptions(options_out), "creating session options");
    if (code) return code;
    OrtSessionOptions *options = *options_out;
    OrtStatus *status = api->SetIntraOpNumThreads(options, intra_op_threads);
    if (!status) status = api->SetInterOpNumThreads(options, 1);
    if (!status) status = api->SetSessionExecutionMode(options, ORT_EXECUTE_SEQUENTIAL);
    /* Errors come back as statuses. Whoever can send requests must not be able to fill a log. */
    if (!status) status = api->SetSessionLogSeverityLevel(options, ORT_LOG_FATAL);
    if (!status) status = api->SetSessionGraphOptimizationLevel(options, optimise);
    if (!status && intra_op_threads > 1) {
        status = api->AddSessionConfigEntry(options, "session.intra_op.allow_spinning", "0");
    }
    if (!status && intra_op_threads > 1 && ort->flush_denormals) {
        status = api->AddSessionConfigEntry(options, "session.set_denormal_as_zero", "1");
    }
    if (!status && ort->uses_malloc) status = api->DisableCpuMemArena(options);
    if (!status && ort->uses_registered_allocator) {
        status = api->AddSessionConfigEntry(options, "session.use_env_allocators", "1");
    }
    code = lm_ort_check(ort, status, "setting session options");
    if (code) api->ReleaseSessionOptions(options);
    return code;
}

/* Gives free dimensions the sizes that the configuration fixes. */
static OrtStatus *fix_dims(const struct lm_ort *ort, OrtSessionOptions *options,
                           const lumen_dim *dims, uint32_t count) {
    OrtStatus *status = NULL;
    for (uint32_t d = 0; !status && d < count; d++) {
        const lumen_dim *dim = &dims[d];
        if (dim->fixed)
            status = ort->api->AddFreeDimensionOverrideByName(options, dim->name, dim->size);
    }
    return status;
}

/* A session's own copies of weights, in its kernels' order: most of the time that opening one takes
 * where matrices are large, and only Runs need them. */
static OrtStatus *pack_no_weights(const struct lm_ort_api *api, OrtSessionOptions *options) {
    return api->AddSessionConfigEntry(options, "session.disable_prepacking", "1");
}

/* Optimises the model and writes the result to `output`, in ONNX Runtime's own format. */
static int optimise_to(const struct lm_ort *ort, const lumen_model_config *config,
                       const char *output) {
    OrtSessionOptions *options = NULL;
    int code = make_options(ort, (int)config->intra_op_threads, ORT_OPTIMISE_ALL, &options);
    if (code) return code;
    OrtStatus *status = fix_dims(ort, options, config->dims, config->dim_count);
    if (!status)
        status = ort->api->AddSessionConfigEntry(options, "session.save_model_format", "ORT");
    if (!status) status = ort->api->SetOptimizedModelFilePath(options, output);
    if (!status) status = pack_no_weights(ort->api, options);
    OrtSession *session = NULL;
    if (!status) status = ort->api->CreateSession(ort->env, config->path, options, &session);
    code = lm_ort_check(ort, status, "optimising") ? LUMEN_E_MODEL : 0;
    if (session) ort->api->ReleaseSession(session);
    ort->api->ReleaseSessionOptions(options);
    return code;
}

/* Optimises into a file beside the cache entry and renames it into place, so that a half-written
 * entry is never seen, whoever else starts at the same moment. */
static int optimise_to_cache(const struct lm_ort *ort, const lumen_model_config *config) {
    static const char suffix[] = ".tmp";
    const char *cache_path = config->cache_path;
    char temporary[4096];
    int used = snprintf(temporary, sizeof temporary, "%s.XXXXXX%s", cache_path, suffix);
    if (used < 0 || (size_t)used >= sizeof temporary)
        return lm_error(LUMEN_E_IO, "cache path too long: %s", cache_path);
    /* Not the process' number: in two containers that share a cache both may be process 1. */
    int fd = mkostemps(temporary, (int)strlen(suffix), O_CLOEXEC);
    if (fd < 0) return lm_error_errno(LUMEN_E_IO, errno, "cannot create %s", temporary);
    close(fd);
    int code = optimise_to(ort, config, temporary);
    if (!code && rename(temporary, cache_path) != 0) {
        code = lm_error_errno(LUMEN_E_IO, errno, "cannot rename %s to %s", temporary, cache_path);
    }
    if (code) unlink(temporary);
    return code;
}

/* Optimises into an anonymous file and maps that. */
static int optimise_to_memory(struct lm_ort_source *source, const struct lm_ort *ort,
                              const lumen_model_config *config) {
    int fd = memfd_create("lumen-model", MFD_CLOEXEC);
    if (fd < 0)
        return lm_error_errno(LUMEN_E_NOMEM, errno, "cannot create memory for the optimised model");
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int code = optimise_to(ort, config, path);
    if (!code) code = lm_file_map(&source->optimised, path);
    close(fd);
    return code;
}

static bool is_ort_format(const struct lm_mapping *file) {
    return file->bytes > 8 && memcmp((const char *)file->base + 4, "ORTM", 4) == 0;
}

/* Maps what the cache holds; false when there is nothing usable. A damaged entry is removed. */
static bool map_cached(struct lm_ort_source *source, const struct lm_ort *ort,
                       const char *cache_path) {
    if (lm_file_map(&source->optimised, cache_path) != 0) return false;
    OrtSession *session = NULL;
    if (is_ort_format(&source->optimised) && lm_ort_session_look(ort, source, &session) == 0) {
        lm_ort_session_close(ort, session);
        return true;
    }
    lm_mapping_close(&source->optimised);
    unlink(cache_path);
    return false;
}

/* Sessions are opened after the call that brought the configuration, too. */
static int copy_dims(struct lm_ort_source *source, const lumen_model_config *config) {
    source->intra_op_threads = config->intra_op_threads;
    source->dims = calloc(config->dim_count + 1, sizeof *source->dims);
    for (uint32_t d = 0; source->dims && d < config->dim_count; d++) {
        source->dims[d] = config->dims[d];
        source->dims[d].name = strdup(config->dims[d].name);
        if (!source->dims[d].name) break;
        source->dim_count++;
    }
    bool copied = source->dims && source->dim_count == config->dim_count;
    return copied ? 0 : lm_error(LUMEN_E_NOMEM, "no memory for the sizes of dimensions");
}

/* After a failure lm_ort_source_close closes the source. */
static int open_source(struct lm_ort_source *source, const struct lm_ort *ort,
                       const lumen_model_config *config) {
    const char *path = source->path, *cache_path = config->cache_path;
    struct lm_mapping file;
    int code = copy_dims(source, config);
    if (!code)
        code = lm_providers_open(&source->providers, config->providers, config->provider_count);
    if (!code) code = lm_providers_check(&source->providers, ort);
    if (!code) code = lm_file_read(&file, path);
    if (code) return code;
    /* Of the file that was given: the optimised graph, also of the cache, is of the same one. */
    if (lm_onnx_is_bounded(file.base, file.bytes, source->unbounded)) source->unbounded[0] = '\0';
    if (source->providers.count > 0) {
        /* What a provider compiles cannot be saved, and a graph that is optimised for the CPU hides
         * nodes from it: each session loads the model's own file. */
        lm_mapping_close(&file);
        return 0;
    }
    if (is_ort_format(&file)) {
        source->optimised = file;
        return 0;
    }
    lm_mapping_close(&file);

    if (cache_path && map_cached(source, ort, cache_path)) {
        source->from_cache = true;
        return 0;
    }
    if (cache_path && optimise_to_cache(ort, config) == 0 && map_cached(source, ort, cache_path)) {
        return 0;
    }
    if (optimise_to_memory(source, ort, config) == 0) return 0;
    /* Not every graph can be written in that format. What counts is whether it loads. */
    OrtSession *session = NULL;
    code = lm_ort_session_open(ort, source, &session);
    if (!code) lm_ort_session_close(ort, session);
    return code;
}

/* What tells a file from another one, or from itself before it was written to. */
struct stamp {
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec written, changed;
};

static struct stamp stamp_of(const char *path) {
    struct stat status;
    struct stamp stamp;
    memset(&stamp, 0, sizeof stamp); /* with what lies between its fields */
    if (stat(path, &status) != 0) return stamp;
    stamp.device = status.st_dev;
    stamp.inode = status.st_ino;
    stamp.bytes = status.st_size;
    stamp.written = status.st_mtim;
    stamp.changed = status.st_ctim;
    return stamp;
}

int lm_ort_source_open(struct lm_ort_source *source, const struct lm_ort *ort,
                       const lumen_model_config *config) {
    memset(source, 0, sizeof *source);
    if (strlen(config->path) >= sizeof source->path)
        return lm_error(LUMEN_E_MODEL, "model path too long: %s", config->path);
    memcpy(source->path, config->path, strlen(config->path) + 1);
    /* Each step reads the file anew: all of them must have seen the same one. */
    const struct stamp before = stamp_of(config->path);
    int code = open_source(source, ort, config);
    const struct stamp after = stamp_of(config->path);
    if (!code && memcmp(&before, &after, sizeof before) != 0) {
        if (config->cache_path && !source->from_cache) unlink(config->cache_path);
        code = lm_error(LUMEN_E_MODEL, "%s was written while it was loaded: load it again",
                        config->path);
    }
    if (code) lm_ort_source_close(source);
    return code;
}

void lm_ort_source_close(struct lm_ort_source *source) {
    lm_mapping_close(&source->optimised);
    lm_providers_close(&source->providers);
    for (uint32_t d = 0; d < source->dim_count; d++) free((char *)source->dims[d].name);
    free(source->dims);
    source->dims = NULL;
    source->dim_count = 0;
}

/* Its threads stop looking for work when the Run returns. Runtimes before 1.26 have no shorter time
 * than that: a helper whose core is taken away then costs its Run more (docs/adr/0010). */
static OrtStatus *use_threads(const struct lm_ort_api *api, OrtSessionOptions *options,
                              const struct lm_ort_threads *threads) {
    static const char *const entries[][2] = {{"session.intra_op.allow_spinning", "1"},
                                             {"session.force_spinning_stop", "1"},
                                             {"session.intra_op.spin_duration_us", "50"}};
    OrtStatus *status = api->SetIntraOpNumThreads(options, (int)threads->count);
    for (size_t e = 0; !status && e < sizeof entries / sizeof entries[0]; e++)
        status = api->AddSessionConfigEntry(options, entries[e][0], entries[e][1]);
    if (!status)
        status = api->SessionOptionsSetCustomThreadCreationOptions(options, threads->options);
    if (!status) status = api->SessionOptionsSetCustomCreateThreadFn(options, threads->start);
    if (!status) status = api->SessionOptionsSetCustomJoinThreadFn(options, threads->join);
    return status;
}

/* The options of a session on the optimised graph, whose bytes it uses in place. */
static OrtStatus *use_in_place(const struct lm_ort_api *api, OrtSessionOptions *options) {
    static const char *const entries[][2] = {{"session.load_model_format", "ORT"},
                                             {"session.use_ort_model_bytes_directly", "1"},
                                             {"session.use_ort_model_bytes_for_initializers", "1"}};
    OrtStatus *status = NULL;
    for (size_t e = 0; !status && e < sizeof entries / sizeof entries[0]; e++)
        status = api->AddSessionConfigEntry(options, entries[e][0], entries[e][1]);
    return status;
}

static int create(const struct lm_ort *ort, const struct lm_ort_source *source, const void *graph,
                  OrtSessionOptions *options, OrtSession **session_out) {
    const struct lm_ort_api *api = ort->api;
    OrtStatus *status;
    if (source->optimised.bytes > 0) {
        status = use_in_place(api, options);
        if (!status)
            status = api->CreateSessionFromArray(ort->env, graph, source->optimised.bytes, options,
                                                 session_out);
    } else {
        status = fix_dims(ort, options, source->dims, source->dim_count);
        if (!status) status = api->CreateSession(ort->env, source->path, options, session_out);
    }
    return lm_providers_loaded(&source->providers, ort, status);
}

static int open_session(const struct lm_ort *ort, const struct lm_ort_source *source,
                        const struct lm_mapping *copy, const struct lm_ort_threads *threads,
                        bool packs_weights, OrtSession **session_out) {
    const struct lm_ort_api *api = ort->api;
    const void *graph = copy->bytes ? copy->base : source->optimised.base;
    bool in_place = source->optimised.bytes > 0;
    OrtSessionOptions *options = NULL;
    uint64_t fractions = lm_processor_fractions(); /* the first session may change the caller's */
    struct lm_cpu_set cores;
    /* So may a provider the cores of the thread that opens it: OpenVINO does. */
    bool restores = source->providers.count > 0 && lm_thread_cpus(&cores) == 0;
    int code = make_options(ort, threads ? 1 : (int)source->intra_op_threads,
                            in_place ? ORT_OPTIMISE_NONE : ORT_OPTIMISE_ALL, &options);
    if (code) return code;
    OrtStatus *status = source->shapes_vary ? api->DisableMemPattern(options) : NULL;
    if (!status && threads) status = use_threads(api, options, threads);
    if (!status && !packs_weights) status = pack_no_weights(api, options);
    code = lm_ort_check(ort, status, "setting session options") ? LUMEN_E_MODEL : 0;
    if (!code) code = lm_providers_append(&source->providers, ort, options);
    if (!code) code = create(ort, source, graph, options, session_out);
    api->ReleaseSessionOptions(options);
    lm_processor_set_fractions(fractions);
    if (restores) (void)lm_thread_keep_to(&cores);
    return code;
}

int lm_ort_session_open_on(const struct lm_ort *ort, const struct lm_ort_source *source,
                           const struct lm_mapping *copy, const struct lm_ort_threads *threads,
                           OrtSession **session_out) {
    return open_session(ort, source, copy, threads, true, session_out);
}

int lm_ort_session_open(const struct lm_ort *ort, const struct lm_ort_source *source,
                        OrtSession **session_out) {
    return open_session(ort, source, &source->optimised, NULL, true, session_out);
}

int lm_ort_session_look(const struct lm_ort *ort, const struct lm_ort_source *source,
                        OrtSession **session_out) {
    return open_session(ort, source, &source->optimised, NULL, false, session_out);
}

void lm_ort_session_close(const struct lm_ort *ort, OrtSession *session) {
    if (session) ort->api->ReleaseSession(session);
}
