/* strings.c: see strings.h. */
#include "models/strings.h"
#include "models/layout.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 4))) static bool wrong(char *why, size_t why_bytes,
                                                        const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why, why_bytes, format, args);
    va_end(args);
    return false;
}

bool lm_strings_walk(const char *name, const uint8_t **at, const uint8_t *end, size_t count,
                     char *why, size_t why_bytes) {
    for (size_t i = 0; i < count; i++) {
        uint32_t bytes;
        size_t left = (size_t)(end - *at);
        if (left < sizeof bytes) {
            return wrong(why, why_bytes,
                         "input '%.64s': expected %zu strings, found %zu and %zu bytes more", name,
                         count, i, left);
        }
        memcpy(&bytes, *at, sizeof bytes); /* little-endian, as we are */
        left -= sizeof bytes;
        if (bytes > LM_STRING_BYTES_MAX) {
            return wrong(why, why_bytes,
                         "input '%.64s', string %zu: expected at most %d bytes, found a length of "
                         "%u",
                         name, i, LM_STRING_BYTES_MAX, bytes);
        }
        if (bytes > left) {
            return wrong(why, why_bytes,
                         "input '%.64s', string %zu: expected the %u bytes of its length, found "
                         "%zu",
                         name, i, bytes, left);
        }
        *at += sizeof bytes + bytes;
    }
    return true;
}

static size_t least_bytes(const struct lm_tensor *tensor, const struct lm_sizes *sizes) {
    size_t bytes = 0;
    lm_tensor_bytes(tensor, sizes, &bytes);
    return bytes;
}

/* Cuts a body into its inputs. */
static bool cut(const struct lm_model *model, const struct lm_sizes *sizes,
                struct lm_layout *layout, char *why, size_t why_bytes) {
    uint8_t *at = layout->raw, *end = at + layout->raw_bytes;
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        size_t bytes = least_bytes(input, sizes), left = (size_t)(end - at);
        if (lm_is_string(input)) {
            const uint8_t *stop = at;
            if (!lm_strings_walk(input->name, &stop, end, bytes / input->element_bytes, why,
                                 why_bytes))
                return false;
            layout->inputs[i] = at;
            layout->string_bytes[i] = bytes = (size_t)(stop - at);
        } else if (left < bytes) {
            return wrong(why, why_bytes, "input '%.64s': expected %zu bytes, found %zu",
                         input->name, bytes, left);
        } else {
            memcpy(layout->inputs[i], at, bytes);
        }
        at += bytes;
    }
    if (at == end) return true;
    return wrong(why, why_bytes, "payload: expected %zu bytes for its inputs, found %zu",
                 layout->raw_bytes - (size_t)(end - at), layout->raw_bytes);
}

bool lm_strings_check(const struct lm_model *model, const struct lm_sizes *sizes,
                      struct lm_layout *layout, char *why, size_t why_bytes) {
    if (layout->raw) return cut(model, sizes, layout, why, why_bytes);
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct lm_tensor *input = &model->inputs[i];
        if (!lm_is_string(input)) continue;
        const uint8_t *at = layout->inputs[i], *end = at + layout->string_bytes[i];
        size_t count = least_bytes(input, sizes) / input->element_bytes;
        if (!lm_strings_walk(input->name, &at, end, count, why, why_bytes)) return false;
        if (at == end) continue;
        return wrong(why, why_bytes,
                     "input '%.64s': expected %zu strings, found %zu bytes behind them",
                     input->name, count, (size_t)(end - at));
    }
    return true;
}
