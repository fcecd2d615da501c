/* ort_api.h: the part of ONNX Runtime's C API that Lumen uses, by slot number.
 *
 * The wheel ships the library without a header. Its API is a table of function pointers that only
 * ever grows, so a slot number is enough; the static asserts below hold the first member of each
 * run to its slot.
 * Every slot here exists in API version 17 (ONNX Runtime 1.17, January 2024) and in all later ones.
 * Constant once it is loaded: any thread.
 */
#ifndef LM_ONNX_ORT_API_H
#define LM_ONNX_ORT_API_H

#include <stddef.h>
#include <stdint.h>

enum { LM_ORT_API_VERSION = 17 };

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtValue OrtValue;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtProviderOptions OrtProviderOptions; /* of CUDA, TensorRT and oneDNN alike */

/* Start a thread that calls main(argument), and wait for its end; the handle is the program's. */
typedef void *(*OrtCreateThread)(void *creation_options, void (*main)(void *), void *argument);
typedef void (*OrtJoinThread)(void *handle);

/* Takes a line of its log. */
typedef void (*OrtLog)(void *parameter, int severity, const char *category, const char *log_id,
                       const char *place, const char *message);

/* Values of its enums. */
enum { ORT_INVALID_ARGUMENT = 2 };
enum { ORT_LOG_ERROR = 3, ORT_LOG_FATAL = 4 };
enum { ORT_TYPE_TENSOR = 1, ORT_TYPE_SEQUENCE = 2, ORT_TYPE_MAP = 3 };
enum { ORT_OPTIMISE_NONE = 0, ORT_OPTIMISE_ALL = 99 };
enum { ORT_EXECUTE_SEQUENTIAL = 0 };
enum { ORT_ALLOCATOR_DEVICE = 0, ORT_MEMORY_DEFAULT = 0 };
enum lm_ort_dtype {
    ORT_FLOAT = 1,
    ORT_UINT8 = 2,
    ORT_INT8 = 3,
    ORT_UINT16 = 4,
    ORT_INT16 = 5,
    ORT_INT32 = 6,
    ORT_INT64 = 7,
    ORT_STRING = 8,
    ORT_BOOL = 9,
    ORT_FLOAT16 = 10,
    ORT_DOUBLE = 11,
    ORT_UINT32 = 12,
    ORT_UINT64 = 13,
    ORT_BFLOAT16 = 16
};

typedef struct OrtApiBase {
    const struct lm_ort_api *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} OrtApiBase;

/* Functions that return OrtStatus*: NULL means success. */
struct lm_ort_api {
    void *unused_0[1];
    int (*GetErrorCode)(const OrtStatus *status);
    const char *(*GetErrorMessage)(const OrtStatus *status);
    OrtStatus *(*CreateEnv)(int severity, const char *log_id, OrtEnv **out);
    OrtStatus *(*CreateEnvWithCustomLogger)(OrtLog log, void *parameter, int severity,
                                            const char *log_id, OrtEnv **out);
    void *unused_5[1];
    OrtStatus *(*DisableTelemetryEvents)(const OrtEnv *env);
    OrtStatus *(*CreateSession)(const OrtEnv *env, const char *path,
                                const OrtSessionOptions *options, OrtSession **out);
    OrtStatus *(*CreateSessionFromArray)(const OrtEnv *env, const void *data, size_t bytes,
                                         const OrtSessionOptions *options, OrtSession **out);
    OrtStatus *(*Run)(OrtSession *session, const OrtRunOptions *options,
                      const char *const *input_names, const OrtValue *const *inputs,
                      size_t input_count, const char *const *output_names, size_t output_count,
                      OrtValue **outputs);
    OrtStatus *(*CreateSessionOptions)(OrtSessionOptions **out);
    OrtStatus *(*SetOptimizedModelFilePath)(OrtSessionOptions *options, const char *path);
    void *unused_12[1];
    OrtStatus *(*SetSessionExecutionMode)(OrtSessionOptions *options, int mode);
    void *unused_14[3];
    OrtStatus *(*DisableMemPattern)(OrtSessionOptions *options);
    void *unused_18[1];
    OrtStatus *(*DisableCpuMemArena)(OrtSessionOptions *options);
    void *unused_20[2];
    OrtStatus *(*SetSessionLogSeverityLevel)(OrtSessionOptions *options, int level);
    OrtStatus *(*SetSessionGraphOptimizationLevel)(OrtSessionOptions *options, int level);
    OrtStatus *(*SetIntraOpNumThreads)(OrtSessionOptions *options, int threads);
    OrtStatus *(*SetInterOpNumThreads)(OrtSessionOptions *options, int threads);
    void *unused_26[4];
    OrtStatus *(*SessionGetInputCount)(const OrtSession *session, size_t *out);
    OrtStatus *(*SessionGetOutputCount)(const OrtSession *session, size_t *out);
    OrtStatus *(*SessionGetOverridableInitializerCount)(const OrtSession *session, size_t *out);
    OrtStatus *(*SessionGetInputTypeInfo)(const OrtSession *session, size_t index,
                                          OrtTypeInfo **out);
    OrtStatus *(*SessionGetOutputTypeInfo)(const OrtSession *session, size_t index,
                                           OrtTypeInfo **out);
    OrtStatus *(*SessionGetOverridableInitializerTypeInfo)(const OrtSession *session, size_t index,
                                                           OrtTypeInfo **out);
    OrtStatus *(*SessionGetInputName)(const OrtSession *session, size_t index,
                                      OrtAllocator *allocator, char **out);
    OrtStatus *(*SessionGetOutputName)(const OrtSession *session, size_t index,
                                       OrtAllocator *allocator, char **out);
    OrtStatus *(*SessionGetOverridableInitializerName)(const OrtSession *session, size_t index,
                                                       OrtAllocator *allocator, char **out);
    OrtStatus *(*CreateRunOptions)(OrtRunOptions **out);
    void *unused_40[8];
    OrtStatus *(*CreateTensorAsOrtValue)(OrtAllocator *allocator, const int64_t *shape, size_t rank,
                                         int type, OrtValue **out);
    OrtStatus *(*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo *info, void *data,
                                                 size_t bytes, const int64_t *shape, size_t rank,
                                                 int type, OrtValue **out);
    void *unused_50[1];
    OrtStatus *(*GetTensorMutableData)(OrtValue *value, void **out);
    void *unused_52[3];
    OrtStatus *(*CastTypeInfoToTensorInfo)(const OrtTypeInfo *info,
                                           const OrtTensorTypeAndShapeInfo **out);
    OrtStatus *(*GetOnnxTypeFromTypeInfo)(const OrtTypeInfo *info, int *out);
    void *unused_57[3];
    OrtStatus *(*GetTensorElementType)(const OrtTensorTypeAndShapeInfo *info, int *out);
    OrtStatus *(*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo *info, size_t *out);
    OrtStatus *(*GetDimensions)(const OrtTensorTypeAndShapeInfo *info, int64_t *dims, size_t count);
    OrtStatus *(*GetSymbolicDimensions)(const OrtTensorTypeAndShapeInfo *info, const char **names,
                                        size_t count);
    OrtStatus *(*GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo *info, size_t *out);
    OrtStatus *(*GetTensorTypeAndShape)(const OrtValue *value, OrtTensorTypeAndShapeInfo **out);
    void *unused_66[3];
    OrtStatus *(*CreateCpuMemoryInfo)(int allocator_type, int memory_type, OrtMemoryInfo **out);
    void *unused_70[6];
    OrtStatus *(*AllocatorFree)(OrtAllocator *allocator, void *block);
    void *unused_77[1];
    OrtStatus *(*GetAllocatorWithDefaultOptions)(OrtAllocator **out);
    void *unused_79[13];
    void (*ReleaseEnv)(OrtEnv *env);
    void (*ReleaseStatus)(OrtStatus *status);
    void (*ReleaseMemoryInfo)(OrtMemoryInfo *info);
    void (*ReleaseSession)(OrtSession *session);
    void (*ReleaseValue)(OrtValue *value);
    void (*ReleaseRunOptions)(OrtRunOptions *options);
    void (*ReleaseTypeInfo)(OrtTypeInfo *info);
    void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo *info);
    void (*ReleaseSessionOptions)(OrtSessionOptions *options);
    void *unused_101[23];
    OrtStatus *(*AddFreeDimensionOverrideByName)(OrtSessionOptions *options, const char *name,
                                                 int64_t size);
    OrtStatus *(*GetAvailableProviders)(char ***names_out, int *count_out);
    OrtStatus *(*ReleaseAvailableProviders)(char **names, int count);
    OrtStatus *(*GetStringTensorElementLength)(const OrtValue *value, size_t index, size_t *out);
    OrtStatus *(*GetStringTensorElement)(const OrtValue *value, size_t bytes, size_t index,
                                         void *out);
    void *unused_129[1];
    OrtStatus *(*AddSessionConfigEntry)(OrtSessionOptions *options, const char *key,
                                        const char *value);
    void *unused_131[39];
    OrtStatus *(*SessionOptionsAppendExecutionProvider_TensorRT_V2)(
        OrtSessionOptions *options, const OrtProviderOptions *provider);
    OrtStatus *(*CreateTensorRTProviderOptions)(OrtProviderOptions **out);
    OrtStatus *(*UpdateTensorRTProviderOptions)(OrtProviderOptions *provider,
                                                const char *const *keys, const char *const *values,
                                                size_t count);
    void *unused_173[1];
    void (*ReleaseTensorRTProviderOptions)(OrtProviderOptions *provider);
    void *unused_175[1];
    OrtStatus *(*RegisterAllocator)(OrtEnv *env, OrtAllocator *allocator);
    OrtStatus *(*UnregisterAllocator)(OrtEnv *env, const OrtMemoryInfo *info);
    void *unused_178[18];
    OrtStatus *(*SessionOptionsSetCustomCreateThreadFn)(OrtSessionOptions *options,
                                                        OrtCreateThread create);
    OrtStatus *(*SessionOptionsSetCustomThreadCreationOptions)(OrtSessionOptions *options,
                                                               void *creation_options);
    OrtStatus *(*SessionOptionsSetCustomJoinThreadFn)(OrtSessionOptions *options,
                                                      OrtJoinThread join);
    void *unused_199[5];
    OrtStatus *(*SessionOptionsAppendExecutionProvider_CUDA_V2)(OrtSessionOptions *options,
                                                                const OrtProviderOptions *provider);
    OrtStatus *(*CreateCUDAProviderOptions)(OrtProviderOptions **out);
    OrtStatus *(*UpdateCUDAProviderOptions)(OrtProviderOptions *provider, const char *const *keys,
                                            const char *const *values, size_t count);
    void *unused_207[1];
    void (*ReleaseCUDAProviderOptions)(OrtProviderOptions *provider);
    void *unused_209[7];
    OrtStatus *(*SessionOptionsAppendExecutionProvider)(OrtSessionOptions *options,
                                                        const char *name, const char *const *keys,
                                                        const char *const *values, size_t count);
    void *unused_217[22];
    OrtStatus *(*SessionOptionsAppendExecutionProvider_Dnnl)(OrtSessionOptions *options,
                                                             const OrtProviderOptions *provider);
    OrtStatus *(*CreateDnnlProviderOptions)(OrtProviderOptions **out);
    OrtStatus *(*UpdateDnnlProviderOptions)(OrtProviderOptions *provider, const char *const *keys,
                                            const char *const *values, size_t count);
    void *unused_242[1];
    void (*ReleaseDnnlProviderOptions)(OrtProviderOptions *provider);
    void *unused_244[8];
    OrtStatus *(*GetResizedStringTensorElementBuffer)(OrtValue *value, size_t index, size_t bytes,
                                                      char **buffer);
};

#define LM_ORT_SLOT(member, slot)                                                  \
    _Static_assert(offsetof(struct lm_ort_api, member) == (slot) * sizeof(void *), \
                   #member " is slot " #slot)
LM_ORT_SLOT(GetErrorCode, 1);
LM_ORT_SLOT(DisableTelemetryEvents, 6);
LM_ORT_SLOT(SetSessionExecutionMode, 13);
LM_ORT_SLOT(DisableMemPattern, 17);
LM_ORT_SLOT(DisableCpuMemArena, 19);
LM_ORT_SLOT(SetSessionLogSeverityLevel, 22);
LM_ORT_SLOT(SessionGetInputCount, 30);
LM_ORT_SLOT(SessionGetInputTypeInfo, 33);
LM_ORT_SLOT(SessionGetInputName, 36);
LM_ORT_SLOT(CreateRunOptions, 39);
LM_ORT_SLOT(CreateTensorAsOrtValue, 48);
LM_ORT_SLOT(GetTensorMutableData, 51);
LM_ORT_SLOT(CastTypeInfoToTensorInfo, 55);
LM_ORT_SLOT(GetTensorElementType, 60);
LM_ORT_SLOT(CreateCpuMemoryInfo, 69);
LM_ORT_SLOT(AllocatorFree, 76);
LM_ORT_SLOT(GetAllocatorWithDefaultOptions, 78);
LM_ORT_SLOT(ReleaseEnv, 92);
LM_ORT_SLOT(AddFreeDimensionOverrideByName, 124);
LM_ORT_SLOT(AddSessionConfigEntry, 130);
LM_ORT_SLOT(SessionOptionsAppendExecutionProvider_TensorRT_V2, 170);
LM_ORT_SLOT(ReleaseTensorRTProviderOptions, 174);
LM_ORT_SLOT(RegisterAllocator, 176);
LM_ORT_SLOT(SessionOptionsSetCustomCreateThreadFn, 196);
LM_ORT_SLOT(SessionOptionsAppendExecutionProvider_CUDA_V2, 204);
LM_ORT_SLOT(ReleaseCUDAProviderOptions, 208);
LM_ORT_SLOT(SessionOptionsAppendExecutionProvider, 216);
LM_ORT_SLOT(SessionOptionsAppendExecutionProvider_Dnnl, 239);
LM_ORT_SLOT(ReleaseDnnlProviderOptions, 243);
LM_ORT_SLOT(GetResizedStringTensorElementBuffer, 252);
#undef LM_ORT_SLOT

#endif
