/* labels.c: see labels.h. */
#include "models/labels.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/limits.h"

static int check_line(const char *line, size_t bytes, uint32_t number) {
    if (bytes > LM_LABEL_BYTES_MAX) {
        return lm_error(LUMEN_E_INVALID, "labels, line %u: expected at most %d bytes, found %zu",
                        number, LM_LABEL_BYTES_MAX, bytes);
    }
    size_t taken = 0;
    for (size_t i = 0; i < bytes; i += taken) {
        uint8_t byte = (uint8_t)line[i];
        taken = lm_utf8_bytes(line + i, bytes - i);
        if (taken == 0) {
            return lm_error(LUMEN_E_INVALID, "labels, line %u: byte %zu is not UTF-8", number, i);
        }
        if (byte < 0x20 || byte == 0x7f) {
            return lm_error(LUMEN_E_INVALID,
                            "labels, line %u: byte %zu is the control character %u", number, i,
                            byte);
        }
    }
    return 0;
}

static uint32_t count_lines(const char *text, size_t bytes) {
    size_t count = text[bytes - 1] != '\n';
    for (size_t i = 0; i < bytes; i++) count += text[i] == '\n';
    return (uint32_t)count;
}

/* Copies line after line, without their ends. */
static int take_lines(struct lm_labels *labels, const char *text, size_t bytes) {
    uint32_t used = 0;
    const char *end = text + bytes, *line = text;
    for (uint32_t i = 0; i < labels->count; i++) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const char *stop = newline ? newline : end;
        size_t length = (size_t)(stop - line);
        if (length > 0 && line[length - 1] == '\r') length--;
        int code = check_line(line, length, i + 1);
        if (code) return code;
        memcpy(labels->text + used, line, length);
        labels->starts[i] = used;
        used += (uint32_t)length;
        if (length > labels->bytes_max) labels->bytes_max = (uint32_t)length;
        line = newline ? newline + 1 : end;
    }
    labels->starts[labels->count] = used;
    return 0;
}

int lm_labels_open(struct lm_labels *labels, const char *text, size_t bytes) {
    memset(labels, 0, sizeof *labels);
    if (!text || bytes == 0) return 0;
    if (bytes > LM_LABELS_BYTES_MAX) {
        return lm_error(LUMEN_E_INVALID, "labels: expected at most %d bytes, found %zu",
                        LM_LABELS_BYTES_MAX, bytes);
    }
    labels->count = count_lines(text, bytes);
    labels->text = malloc(bytes);
    labels->starts = calloc((size_t)labels->count + 1, sizeof *labels->starts);
    int code = labels->text && labels->starts
                   ? take_lines(labels, text, bytes)
                   : lm_error(LUMEN_E_NOMEM, "no memory for %u labels", labels->count);
    if (code) lm_labels_close(labels);
    return code;
}

void lm_labels_close(struct lm_labels *labels) {
    free(labels->text);
    free(labels->starts);
    memset(labels, 0, sizeof *labels);
}

const char *lm_labels_get(const struct lm_labels *labels, uint32_t index, uint32_t *bytes_out) {
    *bytes_out = 0;
    if (!labels || index >= labels->count) return "";
    *bytes_out = labels->starts[index + 1] - labels->starts[index];
    return labels->text + labels->starts[index];
}
