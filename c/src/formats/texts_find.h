/* texts_find.h: which model a request of texts is for: the one that it names, found in its text
 * before anything else of it is read, since an I/O thread has to know it. No state: any thread.
 */
#ifndef LM_FORMATS_TEXTS_FIND_H
#define LM_FORMATS_TEXTS_FIND_H

#include <stddef.h>

#include "models/model.h"

/* The string of the outermost object's field "model", as it is written; NULL: there is none, or the
 * text is no object. Nothing of the text is checked. */
const char *lm_texts_find_model(const char *text, size_t bytes, size_t *bytes_out);

/* Whether a route (enum lm_http_route) is for models as this one. */
bool lm_texts_fit(const struct lm_model *model, uint8_t route);

/* The route of Text Embeddings Inference's clients, and of Hugging Face's, for a model of texts. */
uint8_t lm_texts_route(const struct lm_model *model);

/* A model's work, for a sentence. */
const char *lm_texts_does(const struct lm_model *model);

/* Whether the model is called so, with or without its version. */
bool lm_texts_is_named(const struct lm_model *model, const char *name, size_t bytes);

#endif
