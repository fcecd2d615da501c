/* http_page.h: the small page at GET /: the models, the state, live figures, commands to try.
 * Written at start; in the browser it asks GET /figures once a second. Control thread. */
#ifndef LM_FORMATS_HTTP_PAGE_H
#define LM_FORMATS_HTTP_PAGE_H

#include "formats/oip_metadata.h"
#include "models/model.h"

/* So many models at most are on it, and in the figures that it asks for: it is for people. */
enum { LM_PAGE_MODELS = 64 };

/* `metrics_port` 0: there is no metrics page. Returns 0 or LUMEN_E_NOMEM. */
int lm_http_page(struct lm_model *const *models, uint32_t model_count, const char *version,
                 uint32_t port, uint32_t metrics_port, struct lm_oip_document *out);

#endif
