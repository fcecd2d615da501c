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

/* Whether the model is called so, with or without its version. */
bool lm_texts_is_named(const struct lm_model *model, const char *name, size_t bytes);

#endif
