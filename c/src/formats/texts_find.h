/* texts_find.h: the model that a request of texts names, found in its text before anything else of
 * it is read: an I/O thread has to know it. No state: any thread.
 */
#ifndef LM_FORMATS_TEXTS_FIND_H
#define LM_FORMATS_TEXTS_FIND_H

#include <stddef.h>

/* The string of the outermost object's field "model", as it is written; NULL: there is none, or the
 * text is no object. Nothing of the text is checked. */
const char *lm_texts_find_model(const char *text, size_t bytes, size_t *bytes_out);

#endif
