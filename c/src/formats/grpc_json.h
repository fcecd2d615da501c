/* grpc_json.h: messages of gRPC as JSON, by the tables of grpc_schema.h: what a client asks becomes
 * what the routes of HTTP read. Messages come from clients: each length is checked, and text that
 * is no UTF-8 cannot break the JSON. No state, no memory of its own: any thread.
 */
#ifndef LM_FORMATS_GRPC_JSON_H
#define LM_FORMATS_GRPC_JSON_H

#include "formats/grpc_schema.h"
#include "wire/protobuf.h"

/* Appends to memory of fixed size; what does not fit is not written, and makes `is_full` true. */
struct lm_grpc_text {
    char *at, *end;
    bool is_full;
    bool is_bad; /* the message was none */
};

void lm_grpc_put(struct lm_grpc_text *text, const char *bytes, size_t count);
void lm_grpc_puts(struct lm_grpc_text *text, const char *words);
void lm_grpc_put_string(struct lm_grpc_text *text, const void *bytes, size_t count);
void lm_grpc_put_number(struct lm_grpc_text *text, uint64_t number);

/* A field's value, however often it comes: `{...}`, `[...]` or one. */
void lm_grpc_put_field(struct lm_grpc_text *text, const struct lm_grpc_field *field,
                       const void *bytes, size_t count);
/* A map's entries, without braces; `before` is "" or ",". Those whose key begins with `but` are
 * left out; NULL: none is. Returns how many were written. */
uint32_t lm_grpc_put_entries(struct lm_grpc_text *text, const struct lm_grpc_field *field,
                             const void *bytes, size_t count, const char *before, const char *but);
/* An object of all fields that are there, but for strings of these names, up to NULL. */
void lm_grpc_put_message(struct lm_grpc_text *text, const struct lm_grpc_message *message,
                         const void *bytes, size_t count, const char *const *but);

/* The last string of this number in a message; `at` NULL: there is none. */
struct lm_pb_field lm_grpc_string_of(const void *bytes, size_t count, uint32_t number);

#endif
