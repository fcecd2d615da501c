/* texts_find.c: see texts_find.h. */
#include "formats/texts_find.h"

#include <stdbool.h>
#include <string.h>

#include "formats/http_route.h"
#include "formats/rows_find.h"
#include "models/text_model.h"

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

/* ---- models by what they do ---- */

#define ROUTE(route) (UINT64_C(1) << (route))
_Static_assert(LM_ROUTE_COUNT <= 64, "a bit for each route");

/* Routes that any model of texts answers. */
static const uint64_t all =
    ROUTE(LM_ROUTE_TEXTS) | ROUTE(LM_ROUTE_TOKENIZE) | ROUTE(LM_ROUTE_DECODE);

struct kind {
    const char *does;
    uint8_t route; /* of `/` */
    uint64_t routes;
};

static const struct kind embeds = {"makes embeddings", LM_ROUTE_EMBED,
                                   ROUTE(LM_ROUTE_EMBEDDINGS) | ROUTE(LM_ROUTE_EMBED) |
                                       ROUTE(LM_ROUTE_EMBED_ALL) | ROUTE(LM_ROUTE_SIMILARITY)};
static const struct kind scores = {"scores texts", LM_ROUTE_PREDICT_TEXT,
                                   ROUTE(LM_ROUTE_PREDICT_TEXT)};
static const struct kind scores_pairs = {"scores pairs of texts", LM_ROUTE_PREDICT_TEXT,
                                         ROUTE(LM_ROUTE_PREDICT_TEXT) | ROUTE(LM_ROUTE_RERANK) |
                                             ROUTE(LM_ROUTE_RERANK_V1) | ROUTE(LM_ROUTE_RERANK_V2)};
static const struct kind finds = {"finds entities", LM_ROUTE_ENTITIES, ROUTE(LM_ROUTE_ENTITIES)};

static const struct kind *kind_of(const struct lm_text_model *text) {
    if (text->task == LUMEN_TEXT_EMBEDDING) return &embeds;
    if (text->task == LUMEN_TEXT_ENTITIES) return &finds;
    return text->has_pairs ? &scores_pairs : &scores;
}

bool lm_texts_fit(const struct lm_model *model, uint8_t route) {
    return model->text && ((kind_of(model->text)->routes | all) >> route & 1) != 0;
}

uint8_t lm_texts_route(const struct lm_model *model) {
    return kind_of(model->text)->route;
}

const char *lm_texts_does(const struct lm_model *model) {
    return model->text ? kind_of(model->text)->does : "takes tensors, no text";
}

bool lm_texts_is_named(const struct lm_model *model, const char *name, size_t bytes) {
    const char *const known[] = {model->base, model->name};
    bool is_one = false;
    for (int k = 0; k < 2; k++)
        is_one = is_one || (strlen(known[k]) == bytes && memcmp(known[k], name, bytes) == 0);
    return is_one;
}
