/* traceparent.c: see traceparent.h. */
#include "wire/traceparent.h"

#include <stdio.h>
#include <string.h>

/* 00-<trace, 32>-<parent, 16>-<flags, 2>; later versions may have more behind that. */
enum { TRACE_AT = 3, PARENT_AT = 36, FLAGS_AT = 53, SAMPLED = 1 };

/* So many digits in lower case. */
static bool read_digits(const char *at, size_t count, uint64_t *number_out) {
    *number_out = 0;
    for (size_t i = 0; i < count; i++) {
        const bool is_letter = at[i] >= 'a' && at[i] <= 'f';
        if (!is_letter && !(at[i] >= '0' && at[i] <= '9')) return false;
        *number_out = *number_out << 4 | (uint64_t)(is_letter ? at[i] - 'a' + 10 : at[i] - '0');
    }
    return true;
}

static void put_u64(uint8_t *at, uint64_t number) {
    for (int b = 0; b < 8; b++) at[b] = (uint8_t)(number >> (56 - 8 * b));
}

bool lm_traceparent_read(struct lm_slice value, struct lm_traceparent *parent_out) {
    uint64_t version, high, low, flags;
    const char *at = value.at;
    if (value.bytes < LM_TRACEPARENT_BYTES || value.bytes > LM_TRACEPARENT_BYTES_MAX) return false;
    const bool is_whole = read_digits(at, 2, &version) && version != 0xff && at[2] == '-' &&
                          read_digits(at + TRACE_AT, 16, &high) &&
                          read_digits(at + TRACE_AT + 16, 16, &low) && at[PARENT_AT - 1] == '-' &&
                          read_digits(at + PARENT_AT, 16, &parent_out->span) &&
                          at[FLAGS_AT - 1] == '-' && read_digits(at + FLAGS_AT, 2, &flags);
    if (!is_whole || !(high | low) || !parent_out->span) return false;
    if (value.bytes > LM_TRACEPARENT_BYTES && (version == 0 || at[LM_TRACEPARENT_BYTES] != '-'))
        return false;
    put_u64(parent_out->trace, high);
    put_u64(parent_out->trace + 8, low);
    parent_out->is_sampled = flags & SAMPLED;
    return true;
}

void lm_traceparent_write(const struct lm_traceparent *parent,
                          char text[LM_TRACEPARENT_BYTES + 1]) {
    static const char digits[] = "0123456789abcdef";
    memcpy(text, "00-", TRACE_AT);
    for (size_t b = 0; b < LM_TRACE_ID_SIZE; b++) {
        text[TRACE_AT + 2 * b] = digits[parent->trace[b] >> 4];
        text[TRACE_AT + 2 * b + 1] = digits[parent->trace[b] & 15];
    }
    snprintf(text + PARENT_AT - 1, LM_TRACEPARENT_BYTES - PARENT_AT + 2, "-%016llx-%02x",
             (unsigned long long)parent->span, parent->is_sampled ? SAMPLED : 0);
}
