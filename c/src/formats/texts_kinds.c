/* texts_kinds.c: see texts_kinds.h. */
#include "formats/texts_kinds.h"

#include "formats/http_route.h"
#include "models/text_model.h"

#define ROUTE(route) (UINT64_C(1) << (route))
_Static_assert(LM_ROUTE_COUNT <= 64, "a bit for each route");

/* Those of every kind. */
#define TOKENS (ROUTE(LM_ROUTE_TEXTS) | ROUTE(LM_ROUTE_TOKENIZE) | ROUTE(LM_ROUTE_DECODE))

enum kind { EMBEDS, SCORES, SCORES_PAIRS, FINDS_ENTITIES };

static const struct lm_texts_kind kinds[] = {
    [EMBEDS] = {.does = "makes embeddings",
                .box = "embedding",
                .info = "embedding",
                .main_route = LM_ROUTE_EMBED,
                .routes = TOKENS | ROUTE(LM_ROUTE_EMBEDDINGS) | ROUTE(LM_ROUTE_EMBED) |
                          ROUTE(LM_ROUTE_EMBED_ALL) | ROUTE(LM_ROUTE_SIMILARITY)},
    [SCORES] = {.does = "scores texts",
                .box = "scores",
                .info = "classifier",
                .main_route = LM_ROUTE_PREDICT_TEXT,
                .routes = TOKENS | ROUTE(LM_ROUTE_PREDICT_TEXT)},
    [SCORES_PAIRS] = {.does = "scores pairs of texts",
                      .box = "pairs",
                      .info = "reranker",
                      .main_route = LM_ROUTE_PREDICT_TEXT,
                      .routes = TOKENS | ROUTE(LM_ROUTE_PREDICT_TEXT) | ROUTE(LM_ROUTE_RERANK) |
                                ROUTE(LM_ROUTE_RERANK_V1) | ROUTE(LM_ROUTE_RERANK_V2)},
    [FINDS_ENTITIES] = {.does = "finds entities",
                        .box = "entities",
                        .info = "token_classifier",
                        .main_route = LM_ROUTE_ENTITIES,
                        .routes = TOKENS | ROUTE(LM_ROUTE_ENTITIES)},
};

const struct lm_texts_kind *lm_texts_kind_of(const struct lm_model *model) {
    const struct lm_text_model *text = model->text;
    if (!text) return NULL;
    if (text->task == LUMEN_TEXT_EMBEDDING) return &kinds[EMBEDS];
    if (text->task == LUMEN_TEXT_ENTITIES) return &kinds[FINDS_ENTITIES];
    return &kinds[text->has_pairs ? SCORES_PAIRS : SCORES];
}

/* Of any model of an upstream: which of them it is for, the upstream says. */
static const uint64_t elsewhere = ROUTE(LM_ROUTE_CHAT) | ROUTE(LM_ROUTE_COMPLETIONS) |
                                  ROUTE(LM_ROUTE_RESPONSES) | ROUTE(LM_ROUTE_EMBEDDINGS) |
                                  ROUTE(LM_ROUTE_RERANK) | ROUTE(LM_ROUTE_RERANK_V1) |
                                  ROUTE(LM_ROUTE_RERANK_V2);

bool lm_texts_fit(const struct lm_model *model, uint8_t route) {
    if (lm_model_is_elsewhere(model)) return elsewhere >> route & 1;
    const struct lm_texts_kind *kind = lm_texts_kind_of(model);
    return kind && (kind->routes >> route & 1) != 0;
}
