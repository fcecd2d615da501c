/* upstream_context.c: see upstream_context.h. */
#include "dialects/upstream_context.h"

#include <stdio.h>
#include <string.h>

/* 00-<trace, 32>-<parent, 16>-<flags, 2>; later versions may have more behind that. */
enum { TRACE_AT = 3, PARENT_AT = 36, FLAGS_AT = 53, TRACEPARENT_BYTES = 55 };

static bool are_digits(const char *at, size_t count, bool may_be_zero) {
    bool any = may_be_zero;
    for (size_t i = 0; i < count; i++) {
        const bool is_digit = at[i] >= '0' && at[i] <= '9';
        if (!is_digit && !(at[i] >= 'a' && at[i] <= 'f')) return false;
        any = any || at[i] != '0';
    }
    return any;
}

static bool is_traceparent(struct lm_slice value) {
    const char *at = value.at;
    if (value.bytes < TRACEPARENT_BYTES || value.bytes > LM_CONTEXT_PARENT_BYTES_MAX) return false;
    const bool is_first = memcmp(at, "00", 2) == 0;
    return are_digits(at, 2, true) && memcmp(at, "ff", 2) != 0 && at[2] == '-' &&
           are_digits(at + TRACE_AT, 32, false) && at[PARENT_AT - 1] == '-' &&
           are_digits(at + PARENT_AT, 16, false) && at[FLAGS_AT - 1] == '-' &&
           are_digits(at + FLAGS_AT, 2, true) &&
           (value.bytes == TRACEPARENT_BYTES || (!is_first && at[TRACEPARENT_BYTES] == '-'));
}

static void keep(char *to, uint16_t *bytes_out, struct lm_slice value, size_t most, bool is_fit) {
    const bool is_kept = is_fit && value.bytes <= most;
    *bytes_out = is_kept ? (uint16_t)value.bytes : 0;
    if (is_kept && value.bytes) memcpy(to, value.at, value.bytes);
}

void lm_upstream_context_keep(struct lm_io *io, const struct lm_connection *client,
                              const struct lm_http_head *head) {
    if (!io->upstream ||
        !(head->traceparent.bytes || head->request_id.bytes)) /* tracestate alone says nothing */
        return;
    struct lm_upstream_context *context = &io->upstream->contexts[client->index];
    const bool is_traced = is_traceparent(head->traceparent);
    context->generation = client->generation;
    context->started_ns = client->in.started_ns;
    keep(context->parent, &context->parent_bytes, head->traceparent, LM_CONTEXT_PARENT_BYTES_MAX,
         is_traced);
    keep(context->state, &context->state_bytes, head->tracestate, LM_CONTEXT_STATE_BYTES_MAX,
         is_traced);
    keep(context->id, &context->id_bytes, head->request_id, LM_CONTEXT_ID_BYTES_MAX, true);
    io->upstream->are_contexts = true;
}

static size_t write_field(char *out, size_t room, const char *name, const char *value,
                          uint16_t bytes) {
    return bytes ? (size_t)snprintf(out, room, "%s: %.*s\r\n", name, (int)bytes, value) : 0;
}

size_t lm_upstream_context_write(const struct lm_io *io, const struct lm_connection *client,
                                 char *out, size_t room) {
    if (!io->upstream->are_contexts) return 0;
    const struct lm_upstream_context *context = &io->upstream->contexts[client->index];
    if (context->generation != client->generation || context->started_ns != client->in.started_ns)
        return 0; /* another request's */
    size_t used = write_field(out, room, "traceparent", context->parent, context->parent_bytes);
    used +=
        write_field(out + used, room - used, "tracestate", context->state, context->state_bytes);
    return used +
           write_field(out + used, room - used, "X-Request-Id", context->id, context->id_bytes);
}
