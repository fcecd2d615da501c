/* texts_find.c: see texts_find.h. */
#include "formats/texts_find.h"

#include <stdbool.h>
#include <string.h>

#include "formats/rows_find.h"

static const char *skip_space(const char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
    return at;
}

/* Behind a value; NULL: it does not end. */
static const char *pass(const char *at, const char *end) {
    size_t unused;
    if (*at == '"' || *at == '[' || *at == '{') return lm_rows_pass(at, end, &unused);
    while (at < end && *at != ',' && *at != '}') at++;
    return at;
}

const char *lm_texts_find_model(const char *text, size_t bytes, size_t *bytes_out) {
    static const char name[] = "\"model\"";
    const char *end = text + bytes, *at = skip_space(text, end);
    if (at == end || *at++ != '{') return NULL;
    for (;;) {
        at = skip_space(at, end);
        if (at == end || *at != '"') return NULL;
        const char *key = at;
        at = pass(at, end);
        if (!at) return NULL;
        const bool is_model =
            (size_t)(at - key) == sizeof name - 1 && memcmp(key, name, sizeof name - 1) == 0;
        at = skip_space(at, end);
        if (at == end || *at++ != ':') return NULL;
        at = skip_space(at, end);
        const char *value = at;
        if (at == end || !(at = pass(at, end))) return NULL;
        if (is_model && *value == '"') {
            *bytes_out = (size_t)(at - value) - 2;
            return value + 1;
        }
        at = skip_space(at, end);
        if (at == end || *at++ != ',') return NULL;
    }
}

bool lm_texts_is_named(const struct lm_model *model, const char *name, size_t bytes) {
    const char *const known[] = {model->base, model->name};
    bool is_one = false;
    for (int k = 0; k < 2; k++)
        is_one = is_one || (strlen(known[k]) == bytes && memcmp(known[k], name, bytes) == 0);
    return is_one;
}
