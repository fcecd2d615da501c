/* describe.h: the models as JSON, as a `describe` request and lumen_describe answer. Built at
 * start. Control thread. */
#ifndef LM_FORMATS_DESCRIBE_H
#define LM_FORMATS_DESCRIBE_H

#include <stddef.h>

#include "models/model.h"

/* Returns 0 or LUMEN_E_NOMEM; the text, not terminated, is the caller's to free. */
int lm_describe(struct lm_model *const *models, uint32_t model_count, const char *version,
                char **text_out, size_t *bytes_out);

#endif
