/* labels.h: the names of a model's classes, one line each, with an index. Opened and closed by the
 * control thread; in between read-only, for any thread. */
#ifndef LM_MODELS_LABELS_H
#define LM_MODELS_LABELS_H

#include <stddef.h>
#include <stdint.h>

struct lm_labels {
    char *text;       /* our copy, the lines one after another */
    uint32_t *starts; /* count + 1 of them: label i ends where label i + 1 starts */
    uint32_t count;
    uint32_t bytes_max; /* of the longest label */
};

/* Lines end with \n or \r\n, the last one also with the text. Each is valid UTF-8 without control
 * characters; a line may be empty: that class has no label. `text` NULL or no bytes: no labels at
 * all. Returns 0, LUMEN_E_INVALID with the line, or LUMEN_E_NOMEM. */
int lm_labels_open(struct lm_labels *labels, const char *text, size_t bytes);
void lm_labels_close(struct lm_labels *labels);

/* Not terminated; of no bytes when the class has none. `labels` may be NULL. */
const char *lm_labels_get(const struct lm_labels *labels, uint32_t index, uint32_t *bytes_out);

#endif
