/* grpc_schema.c: see grpc_schema.h. */
#include "formats/grpc_schema.h"

#include <string.h>

#define FIELDS(list) list, sizeof(list) / sizeof(list)[0]
#define EMPTY(name) {name, no_fields, 0, false}
#define ONE(name, number, kind) {name, number, LM_GRPC_##kind, LM_GRPC_ONCE, NULL, NULL}
#define MANY(name, number, kind) {name, number, LM_GRPC_##kind, LM_GRPC_REPEATED, NULL, NULL}
#define MAP(name, number, kind) {name, number, LM_GRPC_##kind, LM_GRPC_MAP, NULL, NULL}
#define OF(name, number, times, message) \
    {name, number, LM_GRPC_MESSAGE, LM_GRPC_##times, &(message), NULL}
#define WORD(name, number, values) {name, number, LM_GRPC_ENUM, LM_GRPC_ONCE, NULL, &(values)}

typedef const struct lm_grpc_field field_list[];
typedef const struct lm_grpc_message message_table;

/* ---- of the server and its models ---- */

static field_list no_fields = {{0}};
static field_list ready_fields = {ONE("ready", 1, BOOL)};
static field_list live_fields = {ONE("live", 1, BOOL)};
static field_list model_fields = {ONE("name", 1, STRING), ONE("version", 2, STRING)};

static message_table server_live_request = EMPTY("ServerLiveRequest");
static message_table server_live_response = {"ServerLiveResponse", FIELDS(live_fields), false};
static message_table server_ready_request = EMPTY("ServerReadyRequest");
static message_table server_ready_response = {"ServerReadyResponse", FIELDS(ready_fields), false};
static message_table model_ready_request = {"ModelReadyRequest", FIELDS(model_fields), false};
static message_table model_ready_response = {"ModelReadyResponse", FIELDS(ready_fields), false};

static field_list server_metadata_fields = {ONE("name", 1, STRING), ONE("version", 2, STRING),
                                            MANY("extensions", 3, STRING)};
static message_table server_metadata_request = EMPTY("ServerMetadataRequest");
static message_table server_metadata_response = {"ServerMetadataResponse",
                                                 FIELDS(server_metadata_fields), false};

static field_list tensor_metadata_fields = {ONE("name", 1, STRING), ONE("datatype", 2, STRING),
                                            MANY("shape", 3, INT64)};
static message_table tensor_metadata = {"ModelMetadataResponse.TensorMetadata",
                                        FIELDS(tensor_metadata_fields), false};
static field_list model_metadata_fields = {
    ONE("name", 1, STRING), MANY("versions", 2, STRING), ONE("platform", 3, STRING),
    OF("inputs", 4, REPEATED, tensor_metadata), OF("outputs", 5, REPEATED, tensor_metadata)};
static message_table model_metadata_request = {"ModelMetadataRequest", FIELDS(model_fields), false};
static message_table model_metadata_response = {"ModelMetadataResponse",
                                                FIELDS(model_metadata_fields), false};

/* ---- inference ---- */

static field_list parameter_fields = {
    ONE("bool_param", 1, BOOL), ONE("int64_param", 2, INT64), ONE("string_param", 3, STRING),
    ONE("double_param", 4, DOUBLE), ONE("uint64_param", 5, UINT64)};
message_table lm_grpc_infer_parameter = {"InferParameter", FIELDS(parameter_fields), true};

static field_list contents_fields = {
    MANY("bool_contents", 1, BOOL),     MANY("int_contents", 2, INT32),
    MANY("int64_contents", 3, INT64),   MANY("uint_contents", 4, UINT32),
    MANY("uint64_contents", 5, UINT64), MANY("fp32_contents", 6, FLOAT),
    MANY("fp64_contents", 7, DOUBLE),   MANY("bytes_contents", 8, BYTES)};
static message_table tensor_contents = {"InferTensorContents", FIELDS(contents_fields), false};

static field_list input_fields = {
    ONE("name", 1, STRING), ONE("datatype", 2, STRING), MANY("shape", 3, INT64),
    OF("parameters", 4, MAP, lm_grpc_infer_parameter), OF("contents", 5, ONCE, tensor_contents)};
message_table lm_grpc_infer_input = {"ModelInferRequest.InferInputTensor", FIELDS(input_fields),
                                     false};
static field_list requested_fields = {ONE("name", 1, STRING),
                                      OF("parameters", 2, MAP, lm_grpc_infer_parameter)};
static message_table requested_output = {"ModelInferRequest.InferRequestedOutputTensor",
                                         FIELDS(requested_fields), false};
static field_list infer_request_fields = {ONE("model_name", 1, STRING),
                                          ONE("model_version", 2, STRING),
                                          ONE("id", 3, STRING),
                                          OF("parameters", 4, MAP, lm_grpc_infer_parameter),
                                          OF("inputs", 5, REPEATED, lm_grpc_infer_input),
                                          OF("outputs", 6, REPEATED, requested_output),
                                          MANY("raw_input_contents", 7, BYTES)};
message_table lm_grpc_infer_request = {"ModelInferRequest", FIELDS(infer_request_fields), false};

static message_table output_tensor = {"ModelInferResponse.InferOutputTensor", FIELDS(input_fields),
                                      false};
static field_list infer_response_fields = {ONE("model_name", 1, STRING),
                                           ONE("model_version", 2, STRING),
                                           ONE("id", 3, STRING),
                                           OF("parameters", 4, MAP, lm_grpc_infer_parameter),
                                           OF("outputs", 5, REPEATED, output_tensor),
                                           MANY("raw_output_contents", 6, BYTES)};
message_table lm_grpc_infer_response = {"ModelInferResponse", FIELDS(infer_response_fields), false};
static field_list stream_fields = {ONE("error_message", 1, STRING),
                                   OF("infer_response", 2, ONCE, lm_grpc_infer_response)};
static message_table stream_response = {"ModelStreamInferResponse", FIELDS(stream_fields), false};

/* ---- a model's configuration ---- */

static const char *const data_types[] = {"TYPE_INVALID", "TYPE_BOOL",   "TYPE_UINT8", "TYPE_UINT16",
                                         "TYPE_UINT32",  "TYPE_UINT64", "TYPE_INT8",  "TYPE_INT16",
                                         "TYPE_INT32",   "TYPE_INT64",  "TYPE_FP16",  "TYPE_FP32",
                                         "TYPE_FP64",    "TYPE_STRING", "TYPE_BF16"};
static const struct lm_grpc_enum data_type = {"DataType", FIELDS(data_types)};
static const char *const formats[] = {"FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW"};
static const struct lm_grpc_enum format = {"ModelInput.Format", FIELDS(formats)};
static const char *const instance_kinds[] = {"KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL"};
static const struct lm_grpc_enum instance_kind = {"ModelInstanceGroup.Kind",
                                                  FIELDS(instance_kinds)};
static const char *const timeout_actions[] = {"REJECT", "DELAY"};
static const struct lm_grpc_enum timeout_action = {"ModelQueuePolicy.TimeoutAction",
                                                   FIELDS(timeout_actions)};
static const char *const control_kinds[] = {"CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_READY",
                                            "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_CORRID"};
static const struct lm_grpc_enum control_kind = {"ModelSequenceBatching.Control.Kind",
                                                 FIELDS(control_kinds)};

static field_list config_input_fields = {
    ONE("name", 1, STRING),  WORD("data_type", 2, data_type), WORD("format", 3, format),
    MANY("dims", 4, INT64),  ONE("is_shape_tensor", 6, BOOL), ONE("allow_ragged_batch", 7, BOOL),
    ONE("optional", 8, BOOL)};
static message_table config_input = {"ModelInput", FIELDS(config_input_fields), false};
static field_list config_output_fields = {ONE("name", 1, STRING), WORD("data_type", 2, data_type),
                                          MANY("dims", 3, INT64), ONE("label_filename", 4, STRING),
                                          ONE("is_shape_tensor", 6, BOOL)};
static message_table config_output = {"ModelOutput", FIELDS(config_output_fields), false};

static field_list latest_fields = {ONE("num_versions", 1, UINT32)};
static message_table latest_versions = {"ModelVersionPolicy.Latest", FIELDS(latest_fields), false};
static message_table all_versions = {"ModelVersionPolicy.All", no_fields, 0, false};
static field_list specific_fields = {MANY("versions", 1, INT64)};
static message_table specific_versions = {"ModelVersionPolicy.Specific", FIELDS(specific_fields),
                                          false};
static field_list version_fields = {OF("latest", 1, ONCE, latest_versions),
                                    OF("all", 2, ONCE, all_versions),
                                    OF("specific", 3, ONCE, specific_versions)};
static message_table version_policy = {"ModelVersionPolicy", FIELDS(version_fields), false};

static field_list queue_fields = {
    WORD("timeout_action", 1, timeout_action), ONE("default_timeout_microseconds", 2, UINT64),
    ONE("allow_timeout_override", 3, BOOL), ONE("max_queue_size", 4, UINT32)};
static message_table queue_policy = {"ModelQueuePolicy", FIELDS(queue_fields), false};
static field_list batching_fields = {
    MANY("preferred_batch_size", 1, INT32),   ONE("max_queue_delay_microseconds", 2, UINT64),
    ONE("preserve_ordering", 3, BOOL),        ONE("priority_levels", 4, UINT64),
    ONE("default_priority_level", 5, UINT64), OF("default_queue_policy", 6, ONCE, queue_policy)};
static message_table dynamic_batching = {"ModelDynamicBatching", FIELDS(batching_fields), false};

static field_list control_fields = {
    WORD("kind", 1, control_kind), MANY("int32_false_true", 2, INT32),
    MANY("fp32_false_true", 3, FLOAT), WORD("data_type", 4, data_type),
    MANY("bool_false_true", 5, BOOL)};
static message_table control = {"ModelSequenceBatching.Control", FIELDS(control_fields), false};
static field_list control_input_fields = {ONE("name", 1, STRING),
                                          OF("control", 2, REPEATED, control)};
static message_table control_input = {"ModelSequenceBatching.ControlInput",
                                      FIELDS(control_input_fields), false};
static field_list initial_fields = {WORD("data_type", 1, data_type), MANY("dims", 2, INT64),
                                    ONE("zero_data", 3, BOOL), ONE("data_file", 4, STRING),
                                    ONE("name", 5, STRING)};
static message_table initial_state = {"ModelSequenceBatching.InitialState", FIELDS(initial_fields),
                                      false};
static field_list state_fields = {ONE("input_name", 1, STRING), ONE("output_name", 2, STRING),
                                  WORD("data_type", 3, data_type), MANY("dims", 4, INT64),
                                  OF("initial_state", 5, REPEATED, initial_state)};
static message_table state = {"ModelSequenceBatching.State", FIELDS(state_fields), false};
static field_list direct_fields = {ONE("max_queue_delay_microseconds", 1, UINT64),
                                   ONE("minimum_slot_utilization", 2, FLOAT)};
static message_table direct = {"ModelSequenceBatching.StrategyDirect", FIELDS(direct_fields),
                               false};
static field_list oldest_fields = {
    ONE("max_candidate_sequences", 1, INT32), MANY("preferred_batch_size", 2, INT32),
    ONE("max_queue_delay_microseconds", 3, UINT64), ONE("preserve_ordering", 4, BOOL)};
static message_table oldest = {"ModelSequenceBatching.StrategyOldest", FIELDS(oldest_fields),
                               false};
static field_list sequence_fields = {ONE("max_sequence_idle_microseconds", 1, UINT64),
                                     OF("control_input", 2, REPEATED, control_input),
                                     OF("direct", 3, ONCE, direct), OF("oldest", 4, ONCE, oldest),
                                     OF("state", 5, REPEATED, state)};
static message_table sequence_batching = {"ModelSequenceBatching", FIELDS(sequence_fields), false};

static field_list step_fields = {ONE("model_name", 1, STRING), ONE("model_version", 2, INT64),
                                 MAP("input_map", 3, STRING), MAP("output_map", 4, STRING)};
static message_table step = {"ModelEnsembling.Step", FIELDS(step_fields), false};
static field_list ensembling_fields = {OF("step", 1, REPEATED, step)};
static message_table ensembling = {"ModelEnsembling", FIELDS(ensembling_fields), false};

static field_list instance_fields = {ONE("name", 1, STRING),       ONE("count", 2, INT32),
                                     MANY("gpus", 3, INT32),       WORD("kind", 4, instance_kind),
                                     MANY("profile", 5, STRING),   ONE("passive", 7, BOOL),
                                     ONE("host_policy", 9, STRING)};
static message_table instance_group = {"ModelInstanceGroup", FIELDS(instance_fields), false};
static field_list text_fields = {ONE("string_value", 1, STRING)};
static message_table config_parameter = {"ModelParameter", FIELDS(text_fields), false};
static field_list transaction_fields = {ONE("decoupled", 1, BOOL)};
static message_table transaction_policy = {"ModelTransactionPolicy", FIELDS(transaction_fields),
                                           false};
static field_list cache_fields = {ONE("enable", 1, BOOL)};
static message_table response_cache = {"ModelResponseCache", FIELDS(cache_fields), false};

static field_list config_fields = {ONE("name", 1, STRING),
                                   ONE("platform", 2, STRING),
                                   OF("version_policy", 3, ONCE, version_policy),
                                   ONE("max_batch_size", 4, INT32),
                                   OF("input", 5, REPEATED, config_input),
                                   OF("output", 6, REPEATED, config_output),
                                   OF("instance_group", 7, REPEATED, instance_group),
                                   ONE("default_model_filename", 8, STRING),
                                   OF("dynamic_batching", 11, ONCE, dynamic_batching),
                                   OF("sequence_batching", 13, ONCE, sequence_batching),
                                   OF("parameters", 14, MAP, config_parameter),
                                   OF("ensemble_scheduling", 15, ONCE, ensembling),
                                   ONE("backend", 17, STRING),
                                   OF("model_transaction_policy", 19, ONCE, transaction_policy),
                                   OF("response_cache", 24, ONCE, response_cache),
                                   ONE("runtime", 25, STRING)};
static message_table model_config = {"ModelConfig", FIELDS(config_fields), false};
static field_list config_response_fields = {OF("config", 1, ONCE, model_config)};
static message_table model_config_request = {"ModelConfigRequest", FIELDS(model_fields), false};
static message_table model_config_response = {"ModelConfigResponse", FIELDS(config_response_fields),
                                              false};

/* ---- statistics ---- */

static field_list duration_fields = {ONE("count", 1, UINT64), ONE("ns", 2, UINT64)};
static message_table duration = {"StatisticDuration", FIELDS(duration_fields), false};
static field_list infer_statistics_fields = {
    OF("success", 1, ONCE, duration),       OF("fail", 2, ONCE, duration),
    OF("queue", 3, ONCE, duration),         OF("compute_input", 4, ONCE, duration),
    OF("compute_infer", 5, ONCE, duration), OF("compute_output", 6, ONCE, duration),
    OF("cache_hit", 7, ONCE, duration),     OF("cache_miss", 8, ONCE, duration)};
static message_table infer_statistics = {"InferStatistics", FIELDS(infer_statistics_fields), false};
static field_list batch_statistics_fields = {
    ONE("batch_size", 1, UINT64), OF("compute_input", 2, ONCE, duration),
    OF("compute_infer", 3, ONCE, duration), OF("compute_output", 4, ONCE, duration)};
static message_table batch_statistics = {"InferBatchStatistics", FIELDS(batch_statistics_fields),
                                         false};
static field_list memory_fields = {ONE("type", 1, STRING), ONE("id", 2, INT64),
                                   ONE("byte_size", 3, UINT64)};
static message_table memory_usage = {"MemoryUsage", FIELDS(memory_fields), false};
static field_list statistics_fields = {ONE("name", 1, STRING),
                                       ONE("version", 2, STRING),
                                       ONE("last_inference", 3, UINT64),
                                       ONE("inference_count", 4, UINT64),
                                       ONE("execution_count", 5, UINT64),
                                       OF("inference_stats", 6, ONCE, infer_statistics),
                                       OF("batch_stats", 7, REPEATED, batch_statistics),
                                       OF("memory_usage", 8, REPEATED, memory_usage)};
static message_table model_statistics = {"ModelStatistics", FIELDS(statistics_fields), false};
static field_list statistics_response_fields = {OF("model_stats", 1, REPEATED, model_statistics)};
static message_table statistics_request = {"ModelStatisticsRequest", FIELDS(model_fields), false};
static message_table statistics_response = {"ModelStatisticsResponse",
                                            FIELDS(statistics_response_fields), false};

/* ---- the repository, regions and settings ---- */

static field_list index_entry_fields = {ONE("name", 1, STRING), ONE("version", 2, STRING),
                                        ONE("state", 3, STRING), ONE("reason", 4, STRING)};
static message_table index_entry = {"RepositoryIndexResponse.ModelIndex",
                                    FIELDS(index_entry_fields), false};
static field_list index_request_fields = {ONE("repository_name", 1, STRING), ONE("ready", 2, BOOL)};
static message_table index_request = {"RepositoryIndexRequest", FIELDS(index_request_fields),
                                      false};
static field_list index_response_fields = {OF("models", 1, REPEATED, index_entry)};
static message_table index_response = {"RepositoryIndexResponse", FIELDS(index_response_fields),
                                       false};
static field_list repository_parameter_fields = {
    ONE("bool_param", 1, BOOL), ONE("int64_param", 2, INT64), ONE("string_param", 3, STRING),
    ONE("bytes_param", 4, BYTES)};
static message_table repository_parameter = {"ModelRepositoryParameter",
                                             FIELDS(repository_parameter_fields), true};
static field_list load_fields = {ONE("repository_name", 1, STRING), ONE("model_name", 2, STRING),
                                 OF("parameters", 3, MAP, repository_parameter)};
static message_table load_request = {"RepositoryModelLoadRequest", FIELDS(load_fields), false};
static message_table load_response = EMPTY("RepositoryModelLoadResponse");
static message_table unload_request = {"RepositoryModelUnloadRequest", FIELDS(load_fields), false};
static message_table unload_response = EMPTY("RepositoryModelUnloadResponse");

static field_list region_fields = {ONE("name", 1, STRING), ONE("key", 2, STRING),
                                   ONE("offset", 3, UINT64), ONE("byte_size", 4, UINT64)};
static field_list name_fields = {ONE("name", 1, STRING)};
static message_table system_region = {"SystemSharedMemoryStatusResponse.RegionStatus",
                                      FIELDS(region_fields), false};
static field_list system_status_fields = {OF("regions", 1, MAP, system_region)};
static message_table system_status_request = {"SystemSharedMemoryStatusRequest",
                                              FIELDS(name_fields), false};
static message_table system_status_response = {"SystemSharedMemoryStatusResponse",
                                               FIELDS(system_status_fields), false};
static message_table system_register_request = {"SystemSharedMemoryRegisterRequest",
                                                FIELDS(region_fields), false};
static message_table system_register_response = EMPTY("SystemSharedMemoryRegisterResponse");
static message_table system_unregister_request = {"SystemSharedMemoryUnregisterRequest",
                                                  FIELDS(name_fields), false};
static message_table system_unregister_response = {"SystemSharedMemoryUnregisterResponse",
                                                   no_fields, 0, false};
static field_list cuda_region_fields = {ONE("name", 1, STRING), ONE("device_id", 2, UINT64),
                                        ONE("byte_size", 3, UINT64)};
static message_table cuda_region = {"CudaSharedMemoryStatusResponse.RegionStatus",
                                    FIELDS(cuda_region_fields), false};
static field_list cuda_status_fields = {OF("regions", 1, MAP, cuda_region)};
static field_list cuda_register_fields = {ONE("name", 1, STRING), ONE("raw_handle", 2, BYTES),
                                          ONE("device_id", 3, INT64), ONE("byte_size", 4, UINT64)};
static message_table cuda_status_request = {"CudaSharedMemoryStatusRequest", FIELDS(name_fields),
                                            false};
static message_table cuda_status_response = {"CudaSharedMemoryStatusResponse",
                                             FIELDS(cuda_status_fields), false};
static message_table cuda_register_request = {"CudaSharedMemoryRegisterRequest",
                                              FIELDS(cuda_register_fields), false};
static message_table cuda_register_response = EMPTY("CudaSharedMemoryRegisterResponse");
static message_table cuda_unregister_request = {"CudaSharedMemoryUnregisterRequest",
                                                FIELDS(name_fields), false};
static message_table cuda_unregister_response = EMPTY("CudaSharedMemoryUnregisterResponse");

static field_list trace_value_fields = {MANY("value", 1, STRING)};
static message_table trace_value = {"TraceSettingRequest.SettingValue", FIELDS(trace_value_fields),
                                    true};
static message_table traced_value = {"TraceSettingResponse.SettingValue",
                                     FIELDS(trace_value_fields), true};
static field_list trace_request_fields = {OF("settings", 1, MAP, trace_value),
                                          ONE("model_name", 2, STRING)};
static message_table trace_request = {"TraceSettingRequest", FIELDS(trace_request_fields), false};
static field_list trace_response_fields = {OF("settings", 1, MAP, traced_value)};
static message_table trace_response = {"TraceSettingResponse", FIELDS(trace_response_fields),
                                       false};
static field_list log_value_fields = {ONE("bool_param", 1, BOOL), ONE("uint32_param", 2, UINT32),
                                      ONE("string_param", 3, STRING)};
static message_table log_value = {"LogSettingsRequest.SettingValue", FIELDS(log_value_fields),
                                  true};
static message_table logged_value = {"LogSettingsResponse.SettingValue", FIELDS(log_value_fields),
                                     true};
static field_list log_request_fields = {OF("settings", 1, MAP, log_value)};
static message_table log_request = {"LogSettingsRequest", FIELDS(log_request_fields), false};
static field_list log_response_fields = {OF("settings", 1, MAP, logged_value)};
static message_table log_response = {"LogSettingsResponse", FIELDS(log_response_fields), false};

/* ---- grpc.health.v1 ---- */

static const char *const serving_words[] = {"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"};
static const struct lm_grpc_enum serving = {"HealthCheckResponse.ServingStatus",
                                            FIELDS(serving_words)};
static field_list check_fields = {ONE("service", 1, STRING)};
static message_table check_request = {"HealthCheckRequest", FIELDS(check_fields), false};
static field_list checked_fields = {WORD("status", 1, serving)};
static message_table check_response = {"HealthCheckResponse", FIELDS(checked_fields), false};

/* ---- methods ---- */

const char *const lm_grpc_services[LM_GRPC_SERVICES] = {
    [LM_GRPC_INFERENCE] = "inference.GRPCInferenceService",
    [LM_GRPC_HEALTH] = "grpc.health.v1.Health",
    [LM_GRPC_REFLECTION] = "grpc.reflection.v1.ServerReflection",
    [LM_GRPC_REFLECTION_ALPHA] = "grpc.reflection.v1alpha.ServerReflection"};

#define METHOD(form, name, request, reply) \
    {LM_GRPC_INFERENCE, LM_GRPC_AS_##form, name, &(request), &(reply), false, false}

const struct lm_grpc_method lm_grpc_methods[LM_GRPC_METHODS] = {
    [LM_GRPC_SERVER_LIVE] = METHOD(TRUTH, "ServerLive", server_live_request, server_live_response),
    [LM_GRPC_SERVER_READY] =
        METHOD(TRUTH, "ServerReady", server_ready_request, server_ready_response),
    [LM_GRPC_MODEL_READY] = METHOD(TRUTH, "ModelReady", model_ready_request, model_ready_response),
    [LM_GRPC_SERVER_METADATA] =
        METHOD(FIELDS, "ServerMetadata", server_metadata_request, server_metadata_response),
    [LM_GRPC_MODEL_METADATA] =
        METHOD(FIELDS, "ModelMetadata", model_metadata_request, model_metadata_response),
    [LM_GRPC_MODEL_INFER] =
        METHOD(TENSORS, "ModelInfer", lm_grpc_infer_request, lm_grpc_infer_response),
    [LM_GRPC_MODEL_STREAM_INFER] = {LM_GRPC_INFERENCE, LM_GRPC_AS_TENSORS, "ModelStreamInfer",
                                    &lm_grpc_infer_request, &stream_response, true, true},
    [LM_GRPC_MODEL_CONFIG] =
        METHOD(VALUE, "ModelConfig", model_config_request, model_config_response),
    [LM_GRPC_MODEL_STATISTICS] =
        METHOD(FIELDS, "ModelStatistics", statistics_request, statistics_response),
    [LM_GRPC_REPOSITORY_INDEX] = METHOD(VALUE, "RepositoryIndex", index_request, index_response),
    [LM_GRPC_MODEL_LOAD] = METHOD(FIELDS, "RepositoryModelLoad", load_request, load_response),
    [LM_GRPC_MODEL_UNLOAD] =
        METHOD(FIELDS, "RepositoryModelUnload", unload_request, unload_response),
    [LM_GRPC_SYSTEM_SHM_STATUS] =
        METHOD(VALUE, "SystemSharedMemoryStatus", system_status_request, system_status_response),
    [LM_GRPC_SYSTEM_SHM_REGISTER] = METHOD(FIELDS, "SystemSharedMemoryRegister",
                                           system_register_request, system_register_response),
    [LM_GRPC_SYSTEM_SHM_UNREGISTER] = METHOD(FIELDS, "SystemSharedMemoryUnregister",
                                             system_unregister_request, system_unregister_response),
    [LM_GRPC_CUDA_SHM_STATUS] =
        METHOD(VALUE, "CudaSharedMemoryStatus", cuda_status_request, cuda_status_response),
    [LM_GRPC_CUDA_SHM_REGISTER] =
        METHOD(FIELDS, "CudaSharedMemoryRegister", cuda_register_request, cuda_register_response),
    [LM_GRPC_CUDA_SHM_UNREGISTER] = METHOD(FIELDS, "CudaSharedMemoryUnregister",
                                           cuda_unregister_request, cuda_unregister_response),
    [LM_GRPC_TRACE_SETTING] = METHOD(VALUE, "TraceSetting", trace_request, trace_response),
    [LM_GRPC_LOG_SETTINGS] = METHOD(VALUE, "LogSettings", log_request, log_response),
    [LM_GRPC_CHECK] = {LM_GRPC_HEALTH, LM_GRPC_AS_HEALTH, "Check", &check_request, &check_response,
                       false, false},
    [LM_GRPC_WATCH] = {LM_GRPC_HEALTH, LM_GRPC_AS_HEALTH, "Watch", &check_request, &check_response,
                       false, true},
    [LM_GRPC_REFLECT] = {LM_GRPC_REFLECTION, LM_GRPC_AS_IT_IS, "ServerReflectionInfo", NULL, NULL,
                         true, true},
    [LM_GRPC_REFLECT_ALPHA] = {LM_GRPC_REFLECTION_ALPHA, LM_GRPC_AS_IT_IS, "ServerReflectionInfo",
                               NULL, NULL, true, true},
};

enum lm_grpc_method_index lm_grpc_find_method(const char *path, size_t bytes) {
    const char *slash = bytes && *path == '/' ? memrchr(path, '/', bytes) : NULL;
    if (!slash || slash == path) return LM_GRPC_METHODS;
    const size_t service_bytes = (size_t)(slash - path) - 1;
    const size_t name_bytes = bytes - service_bytes - 2;
    for (uint32_t m = 0; m < LM_GRPC_METHODS; m++) {
        const char *service = lm_grpc_services[lm_grpc_methods[m].service];
        const char *name = lm_grpc_methods[m].name;
        if (strlen(name) == name_bytes && memcmp(name, slash + 1, name_bytes) == 0 &&
            strlen(service) == service_bytes && memcmp(service, path + 1, service_bytes) == 0)
            return (enum lm_grpc_method_index)m;
    }
    return LM_GRPC_METHODS;
}
