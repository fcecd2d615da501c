/* http_page.h: the small page at GET /: the models, the state, live figures, commands to try.
 * Written at start; it asks the server's own statistics once a second. */
#ifndef LM_PARTS_HTTP_PAGE_H
#define LM_PARTS_HTTP_PAGE_H

#include "parts/model.h"
#include "parts/oip_metadata.h"

/* Returns 0 or LUMEN_E_NOMEM. */
int lm_http_page(const struct lm_model *models, uint32_t model_count, const char *version,
                 struct lm_oip_document *out);

#endif
