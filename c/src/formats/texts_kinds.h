/* texts_kinds.h: the kinds of models of texts, as clients see them: a table, so that nobody else
 * asks for a model's task. No state: any thread.
 */
#ifndef LM_FORMATS_TEXTS_KINDS_H
#define LM_FORMATS_TEXTS_KINDS_H

#include "models/model.h"

struct lm_texts_kind {
    const char *does;   /* for a sentence */
    const char *box;    /* of the page that tries it (page.html) */
    const char *info;   /* Text Embeddings Inference's word for it (texts_info.h) */
    uint8_t main_route; /* of POST /, for its clients and Hugging Face's (enum lm_http_route) */
    uint64_t routes;    /* a bit for each that it answers */
};

/* NULL: the model is none of texts. */
const struct lm_texts_kind *lm_texts_kind_of(const struct lm_model *model);

/* Whether a route is for models as this one. */
bool lm_texts_fit(const struct lm_model *model, uint8_t route);

#endif
