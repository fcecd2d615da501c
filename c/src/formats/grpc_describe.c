/* grpc_describe.c: see grpc_describe.h. */
#include "formats/grpc_describe.h"

#include <stdio.h>

enum {
    ASKED_HOST = 1,
    ASKED_FILE = 3,
    ASKED_SYMBOL,
    ASKED_EXTENSION,
    ASKED_NUMBERS,
    ASKED_SERVICES
};
enum { SAID_HOST = 1, SAID_REQUEST, SAID_FILES = 4, SAID_SERVICES = 6, SAID_ERROR };
enum {
    FILE_NAME = 1,
    FILE_PACKAGE,
    FILE_MESSAGES = 4,
    FILE_ENUMS,
    FILE_SERVICES,
    FILE_SYNTAX = 12
};
enum {
    MESSAGE_NAME = 1,
    MESSAGE_FIELD,
    MESSAGE_NESTED,
    MESSAGE_ENUM,
    MESSAGE_OPTIONS = 7,
    MESSAGE_ONEOF
};
enum {
    FIELD_NAME = 1,
    FIELD_NUMBER = 3,
    FIELD_LABEL,
    FIELD_TYPE,
    FIELD_TYPE_NAME,
    FIELD_ONEOF = 9
};
enum { OPTIONAL = 1, REPEATED = 3 };
enum { MAP_ENTRY = 7 };
enum { NAME_BYTES_MAX = 96, MESSAGES_MAX = 96 };

/* A file of descriptors: the inference's, or health's. */
struct file {
    const char *name, *package;
    uint8_t service; /* enum lm_grpc_service_index */
};
static const struct file files[] = {
    {"grpc_service.proto", "inference", LM_GRPC_INFERENCE},
    {"grpc/health/v1/health.proto", "grpc.health.v1", LM_GRPC_HEALTH}};
enum { FILES = sizeof files / sizeof files[0] };

/* The messages of a file, as its methods and their fields name them. */
struct found {
    const struct lm_grpc_message *messages[MESSAGES_MAX];
    const struct lm_grpc_enum *enums[MESSAGES_MAX];
    uint32_t message_count, enum_count;
};

static void find(struct found *found, const struct lm_grpc_message *message) {
    for (uint32_t m = 0; m < found->message_count; m++)
        if (found->messages[m] == message) return;
    if (found->message_count == MESSAGES_MAX) return;
    found->messages[found->message_count++] = message;
    for (uint32_t f = 0; f < message->count; f++) {
        const struct lm_grpc_field *field = &message->fields[f];
        bool is_new = field->values != NULL;
        for (uint32_t e = 0; e < found->enum_count; e++)
            is_new = is_new && found->enums[e] != field->values;
        if (is_new) found->enums[found->enum_count++] = field->values;
        if (field->message) find(found, field->message);
    }
}

static void find_all(struct found *found, const struct file *file) {
    found->message_count = found->enum_count = 0;
    for (uint32_t m = 0; m < LM_GRPC_METHODS; m++) {
        const struct lm_grpc_method *method = &lm_grpc_methods[m];
        if (method->service != file->service) continue;
        find(found, method->request);
        find(found, method->reply);
    }
}

/* ---- names ---- */

static void put_name(struct lm_pb_writer *writer, uint32_t number, const char *name) {
    lm_pb_put_bytes(writer, number, name, strlen(name));
}

static void put_number(struct lm_pb_writer *writer, uint32_t number, uint64_t value) {
    lm_pb_put_tag(writer, number, LM_PB_VARINT);
    lm_pb_put_varint(writer, value);
}

/* Behind the last dot. */
static const char *last_of(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* Whether it is in that message, and in no other within. */
static bool is_in(const char *name, const char *outer) {
    const size_t bytes = strlen(outer);
    return strncmp(name, outer, bytes) == 0 && name[bytes] == '.' &&
           last_of(name) == name + bytes + 1;
}

/* A map's entries have a message of their own, which is named after the field. */
static void name_entry(const char *field, char out[NAME_BYTES_MAX]) {
    size_t used = 0;
    bool is_first = true;
    for (; *field && used + 8 < NAME_BYTES_MAX; field++) {
        const bool is_small = *field >= 'a' && *field <= 'z';
        if (*field != '_') out[used++] = (char)(is_first && is_small ? *field - 32 : *field);
        is_first = *field == '_';
    }
    snprintf(out + used, NAME_BYTES_MAX - used, "Entry");
}

/* ---- messages ---- */

static uint8_t type_of(const struct lm_grpc_field *field) {
    static const uint8_t types[] = {
        [LM_GRPC_STRING] = 9, [LM_GRPC_BYTES] = 12,  [LM_GRPC_BOOL] = 8,    [LM_GRPC_INT32] = 5,
        [LM_GRPC_INT64] = 3,  [LM_GRPC_UINT32] = 13, [LM_GRPC_UINT64] = 4,  [LM_GRPC_FLOAT] = 2,
        [LM_GRPC_DOUBLE] = 1, [LM_GRPC_ENUM] = 14,   [LM_GRPC_MESSAGE] = 11};
    return types[field->kind];
}

static void put_type(struct lm_pb_writer *writer, const struct file *file,
                     const struct lm_grpc_field *field) {
    char name[2 * NAME_BYTES_MAX];
    put_number(writer, FIELD_TYPE, type_of(field));
    if (!field->message && !field->values) return;
    snprintf(name, sizeof name, ".%s.%s", file->package,
             field->message ? field->message->name : field->values->name);
    put_name(writer, FIELD_TYPE_NAME, name);
}

static void put_field(struct lm_pb_writer *writer, const struct file *file,
                      const struct lm_grpc_message *message, const struct lm_grpc_field *field) {
    uint8_t *start = lm_pb_begin(writer, MESSAGE_FIELD);
    put_name(writer, FIELD_NAME, field->name);
    put_number(writer, FIELD_NUMBER, field->number);
    put_number(writer, FIELD_LABEL, field->times == LM_GRPC_ONCE ? OPTIONAL : REPEATED);
    if (field->times == LM_GRPC_MAP) {
        char entry[NAME_BYTES_MAX], name[3 * NAME_BYTES_MAX];
        name_entry(field->name, entry);
        snprintf(name, sizeof name, ".%s.%s.%s", file->package, message->name, entry);
        put_number(writer, FIELD_TYPE, 11);
        put_name(writer, FIELD_TYPE_NAME, name);
    } else {
        put_type(writer, file, field);
    }
    if (message->is_value && field->times == LM_GRPC_ONCE) put_number(writer, FIELD_ONEOF, 0);
    lm_pb_end(writer, start);
}

static void put_entry(struct lm_pb_writer *writer, const struct file *file,
                      const struct lm_grpc_field *field) {
    static const struct lm_grpc_field key = {
        "key", LM_GRPC_MAP_KEY, LM_GRPC_STRING, LM_GRPC_ONCE, NULL, NULL};
    static const struct lm_grpc_message none = {"", NULL, 0, false};
    struct lm_grpc_field value = *field;
    char name[NAME_BYTES_MAX];
    name_entry(field->name, name);
    value.name = "value";
    value.number = LM_GRPC_MAP_VALUE;
    value.times = LM_GRPC_ONCE;
    uint8_t *start = lm_pb_begin(writer, MESSAGE_NESTED);
    put_name(writer, MESSAGE_NAME, name);
    put_field(writer, file, &none, &key);
    put_field(writer, file, &none, &value);
    uint8_t *options = lm_pb_begin(writer, MESSAGE_OPTIONS);
    put_number(writer, MAP_ENTRY, 1);
    lm_pb_end(writer, options);
    lm_pb_end(writer, start);
}

static void put_enum(struct lm_pb_writer *writer, uint32_t number,
                     const struct lm_grpc_enum *values) {
    enum { ENUM_NAME = 1, ENUM_VALUE, VALUE_NAME = 1, VALUE_NUMBER };
    uint8_t *start = lm_pb_begin(writer, number);
    put_name(writer, ENUM_NAME, last_of(values->name));
    for (uint32_t v = 0; v < values->count; v++) {
        uint8_t *value = lm_pb_begin(writer, ENUM_VALUE);
        put_name(writer, VALUE_NAME, values->values[v]);
        put_number(writer, VALUE_NUMBER, v);
        lm_pb_end(writer, value);
    }
    lm_pb_end(writer, start);
}

/* With the messages and enums within. */
static void put_message(struct lm_pb_writer *writer, uint32_t number, const struct file *file,
                        const struct found *found, const struct lm_grpc_message *message) {
    static const char oneof[] = "parameter_choice";
    uint8_t *start = lm_pb_begin(writer, number);
    put_name(writer, MESSAGE_NAME, last_of(message->name));
    for (uint32_t f = 0; f < message->count; f++)
        put_field(writer, file, message, &message->fields[f]);
    for (uint32_t f = 0; f < message->count; f++)
        if (message->fields[f].times == LM_GRPC_MAP) put_entry(writer, file, &message->fields[f]);
    for (uint32_t m = 0; m < found->message_count; m++)
        if (is_in(found->messages[m]->name, message->name))
            put_message(writer, MESSAGE_NESTED, file, found, found->messages[m]);
    for (uint32_t e = 0; e < found->enum_count; e++)
        if (is_in(found->enums[e]->name, message->name))
            put_enum(writer, MESSAGE_ENUM, found->enums[e]);
    if (message->is_value && message->fields[0].times == LM_GRPC_ONCE) {
        uint8_t *choice = lm_pb_begin(writer, MESSAGE_ONEOF);
        put_name(writer, MESSAGE_NAME, oneof);
        lm_pb_end(writer, choice);
    }
    lm_pb_end(writer, start);
}

static void put_service(struct lm_pb_writer *writer, const struct file *file) {
    enum { SERVICE_NAME = 1, SERVICE_METHOD, INPUT = 2, OUTPUT, ASKS_MANY = 5, ANSWERS_MANY };
    char name[2 * NAME_BYTES_MAX];
    uint8_t *start = lm_pb_begin(writer, FILE_SERVICES);
    put_name(writer, SERVICE_NAME, last_of(lm_grpc_services[file->service]));
    for (uint32_t m = 0; m < LM_GRPC_METHODS; m++) {
        const struct lm_grpc_method *method = &lm_grpc_methods[m];
        if (method->service != file->service) continue;
        uint8_t *one = lm_pb_begin(writer, SERVICE_METHOD);
        put_name(writer, SERVICE_NAME, method->name);
        snprintf(name, sizeof name, ".%s.%s", file->package, method->request->name);
        put_name(writer, INPUT, name);
        snprintf(name, sizeof name, ".%s.%s", file->package, method->reply->name);
        put_name(writer, OUTPUT, name);
        if (method->asks_many) put_number(writer, ASKS_MANY, 1);
        if (method->answers_many) put_number(writer, ANSWERS_MANY, 1);
        lm_pb_end(writer, one);
    }
    lm_pb_end(writer, start);
}

static void put_file(struct lm_pb_writer *writer, const struct file *file) {
    struct found found;
    find_all(&found, file);
    uint8_t *said = lm_pb_begin(writer, SAID_FILES);
    uint8_t *start = lm_pb_begin(writer, 1);
    put_name(writer, FILE_NAME, file->name);
    put_name(writer, FILE_PACKAGE, file->package);
    for (uint32_t m = 0; m < found.message_count; m++)
        if (!strchr(found.messages[m]->name, '.'))
            put_message(writer, FILE_MESSAGES, file, &found, found.messages[m]);
    for (uint32_t e = 0; e < found.enum_count; e++)
        if (!strchr(found.enums[e]->name, '.')) put_enum(writer, FILE_ENUMS, found.enums[e]);
    put_service(writer, file);
    put_name(writer, FILE_SYNTAX, "proto3");
    lm_pb_end(writer, start);
    lm_pb_end(writer, said);
}

/* ---- requests ---- */

static void put_services(struct lm_pb_writer *writer) {
    uint8_t *list = lm_pb_begin(writer, SAID_SERVICES);
    for (uint32_t s = 0; s < LM_GRPC_SERVICES; s++) {
        uint8_t *one = lm_pb_begin(writer, 1);
        put_name(writer, 1, lm_grpc_services[s]);
        lm_pb_end(writer, one);
    }
    lm_pb_end(writer, list);
}

static void put_error(struct lm_pb_writer *writer, uint32_t code, const char *why) {
    uint8_t *start = lm_pb_begin(writer, SAID_ERROR);
    put_number(writer, 1, code);
    put_name(writer, 2, why);
    lm_pb_end(writer, start);
}

static bool equals(const struct lm_pb_field *text, const char *word, size_t bytes) {
    return text->value == bytes && memcmp(text->bytes, word, bytes) == 0;
}

/* The file of a service, of one of its methods or of a message. */
static const struct file *file_of(const struct lm_pb_field *symbol) {
    for (uint32_t f = 0; f < FILES; f++) {
        const char *package = files[f].package, *service = lm_grpc_services[files[f].service];
        const size_t bytes = strlen(package), service_bytes = strlen(service);
        struct found found;
        char name[NAME_BYTES_MAX];
        if (symbol->value <= bytes || memcmp(symbol->bytes, package, bytes) != 0) continue;
        if (equals(symbol, service, service_bytes)) return &files[f];
        for (uint32_t m = 0; m < LM_GRPC_METHODS; m++) {
            const int used = snprintf(name, sizeof name, "%s.%s", service, lm_grpc_methods[m].name);
            if (lm_grpc_methods[m].service == files[f].service &&
                equals(symbol, name, (size_t)used))
                return &files[f];
        }
        find_all(&found, &files[f]);
        const struct lm_pb_field rest = {.bytes = symbol->bytes + bytes + 1,
                                         .value = symbol->value - bytes - 1};
        for (uint32_t m = 0; m < found.message_count; m++)
            if (equals(&rest, found.messages[m]->name, strlen(found.messages[m]->name)))
                return &files[f];
        for (uint32_t e = 0; e < found.enum_count; e++)
            if (equals(&rest, found.enums[e]->name, strlen(found.enums[e]->name))) return &files[f];
    }
    return NULL;
}

bool lm_grpc_describe(const uint8_t *request, size_t bytes, struct lm_pb_writer *writer) {
    enum { NOT_FOUND = 5, UNIMPLEMENTED = 12 };
    struct lm_pb_reader reader = lm_pb_reader(request, bytes);
    struct lm_pb_field field, asked = {0};
    while (lm_pb_next(&reader, &field)) {
        if (field.type != LM_PB_BYTES) continue;
        if (field.number == ASKED_HOST)
            lm_pb_put_bytes(writer, SAID_HOST, field.bytes, field.value);
        if (field.number >= ASKED_FILE && field.number <= ASKED_SERVICES) asked = field;
    }
    if (reader.is_bad) return false;
    lm_pb_put_bytes(writer, SAID_REQUEST, request, bytes);
    const struct file *file = asked.number == ASKED_SYMBOL ? file_of(&asked) : NULL;
    for (uint32_t f = 0; asked.number == ASKED_FILE && f < FILES; f++)
        if (equals(&asked, files[f].name, strlen(files[f].name))) file = &files[f];
    if (asked.number == ASKED_SERVICES) {
        put_services(writer);
    } else if (file) {
        put_file(writer, file);
    } else if (asked.number == ASKED_FILE || asked.number == ASKED_SYMBOL) {
        put_error(writer, NOT_FOUND, "no such file or symbol");
    } else {
        put_error(writer, UNIMPLEMENTED, "there are no extensions");
    }
    return !writer->is_full;
}
