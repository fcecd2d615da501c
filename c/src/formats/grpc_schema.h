/* grpc_schema.h: gRPC's services and their messages, as tables: Triton's and KServe's
 * GRPCInferenceService, grpc.health.v1 and grpc.reflection. JSON becomes messages by these tables,
 * messages become JSON, and reflection describes them. Names and numbers are those of the public
 * .proto files; fields that this server neither reads nor says are not there. Constant: any thread.
 */
#ifndef LM_FORMATS_GRPC_SCHEMA_H
#define LM_FORMATS_GRPC_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "wire/protobuf.h"

enum lm_grpc_kind {
    LM_GRPC_STRING,
    LM_GRPC_BYTES,
    LM_GRPC_BOOL,
    LM_GRPC_INT32,
    LM_GRPC_INT64,
    LM_GRPC_UINT32,
    LM_GRPC_UINT64,
    LM_GRPC_FLOAT,
    LM_GRPC_DOUBLE,
    LM_GRPC_ENUM,
    LM_GRPC_MESSAGE
};

/* How often a field comes. A map's entries are messages of a string, the key, and of what the table
 * says, the value; in JSON it is an object. */
enum lm_grpc_times { LM_GRPC_ONCE, LM_GRPC_REPEATED, LM_GRPC_MAP };
enum { LM_GRPC_MAP_KEY = 1, LM_GRPC_MAP_VALUE = 2 };

struct lm_grpc_enum {
    const char *name;          /* as those of messages */
    const char *const *values; /* by number */
    uint8_t count;
};

struct lm_grpc_field {
    const char *name;
    uint8_t number;
    uint8_t kind;  /* enum lm_grpc_kind */
    uint8_t times; /* enum lm_grpc_times */
    const struct lm_grpc_message *message;
    const struct lm_grpc_enum *values;
};

struct lm_grpc_message {
    const char *name; /* with the messages that it is in; its package is its file's */
    const struct lm_grpc_field *fields;
    uint8_t count;
    bool is_value; /* one field alone is set, and JSON has its value in the message's place */
};

extern const struct lm_grpc_message lm_grpc_infer_request, lm_grpc_infer_input,
    lm_grpc_infer_response, lm_grpc_infer_parameter;

enum lm_grpc_service_index {
    LM_GRPC_INFERENCE,
    LM_GRPC_HEALTH,
    LM_GRPC_REFLECTION,
    LM_GRPC_REFLECTION_ALPHA,
    LM_GRPC_SERVICES
};

enum lm_grpc_method_index {
    LM_GRPC_SERVER_LIVE,
    LM_GRPC_SERVER_READY,
    LM_GRPC_MODEL_READY,
    LM_GRPC_SERVER_METADATA,
    LM_GRPC_MODEL_METADATA,
    LM_GRPC_MODEL_INFER,
    LM_GRPC_MODEL_STREAM_INFER,
    LM_GRPC_MODEL_CONFIG,
    LM_GRPC_MODEL_STATISTICS,
    LM_GRPC_REPOSITORY_INDEX,
    LM_GRPC_MODEL_LOAD,
    LM_GRPC_MODEL_UNLOAD,
    LM_GRPC_SYSTEM_SHM_STATUS,
    LM_GRPC_SYSTEM_SHM_REGISTER,
    LM_GRPC_SYSTEM_SHM_UNREGISTER,
    LM_GRPC_CUDA_SHM_STATUS,
    LM_GRPC_CUDA_SHM_REGISTER,
    LM_GRPC_CUDA_SHM_UNREGISTER,
    LM_GRPC_TRACE_SETTING,
    LM_GRPC_LOG_SETTINGS,
    LM_GRPC_CHECK,
    LM_GRPC_WATCH,
    LM_GRPC_REFLECT,
    LM_GRPC_REFLECT_ALPHA,
    LM_GRPC_METHODS
};

/* How what HTTP answers becomes the reply's message. */
enum lm_grpc_form {
    LM_GRPC_AS_FIELDS,  /* the JSON's fields are the message's */
    LM_GRPC_AS_VALUE,   /* the JSON is the value of the message's only field */
    LM_GRPC_AS_TENSORS, /* as AS_FIELDS, with tensors behind: an inference */
    LM_GRPC_AS_TRUTH,   /* yes or no: the code says which */
    LM_GRPC_AS_HEALTH,  /* grpc.health.v1's words: the code says which */
    LM_GRPC_AS_IT_IS    /* it is a message already */
};

struct lm_grpc_method {
    uint8_t service; /* enum lm_grpc_service_index */
    uint8_t form;    /* enum lm_grpc_form */
    const char *name;
    const struct lm_grpc_message *request, *reply; /* NULL: reflection's own (grpc_describe.h) */
    bool asks_many, answers_many;                  /* a stream of messages */
};

/* With its package. */
extern const char *const lm_grpc_services[LM_GRPC_SERVICES];
extern const struct lm_grpc_method lm_grpc_methods[LM_GRPC_METHODS];

/* The method of a path, "/package.Service/Method"; LM_GRPC_METHODS: there is none. */
enum lm_grpc_method_index lm_grpc_find_method(const char *path, size_t bytes);

/* How one of its values stands in a message: LM_PB_*. */
static inline uint8_t lm_grpc_wire_type(const struct lm_grpc_field *field) {
    switch ((enum lm_grpc_kind)field->kind) {
    case LM_GRPC_STRING:
    case LM_GRPC_BYTES:
    case LM_GRPC_MESSAGE: return LM_PB_BYTES;
    case LM_GRPC_FLOAT: return LM_PB_FIXED32;
    case LM_GRPC_DOUBLE: return LM_PB_FIXED64;
    case LM_GRPC_BOOL:
    case LM_GRPC_INT32:
    case LM_GRPC_INT64:
    case LM_GRPC_UINT32:
    case LM_GRPC_UINT64:
    case LM_GRPC_ENUM: break;
    }
    return LM_PB_VARINT;
}

/* Whether a call brings tensors, which are not looked at where the message becomes a request. */
static inline bool lm_grpc_infers(enum lm_grpc_method_index method) {
    return lm_grpc_methods[method].form == LM_GRPC_AS_TENSORS;
}

/* A field by its name, or by its number; NULL: the message has none such. */
static inline const struct lm_grpc_field *lm_grpc_field_named(const struct lm_grpc_message *message,
                                                              const char *name, size_t bytes) {
    for (uint32_t f = 0; f < message->count; f++) {
        const char *known = message->fields[f].name;
        if (strlen(known) == bytes && memcmp(known, name, bytes) == 0) return &message->fields[f];
    }
    return NULL;
}
static inline const struct lm_grpc_field *lm_grpc_field_numbered(
    const struct lm_grpc_message *message, uint32_t number) {
    for (uint32_t f = 0; f < message->count; f++)
        if (message->fields[f].number == number) return &message->fields[f];
    return NULL;
}

#endif
