/* texts_info.h: what a server of texts says of itself to Text Embeddings Inference's clients (GET
 * /info). Written once, by the control thread.
 */
#ifndef LM_FORMATS_TEXTS_INFO_H
#define LM_FORMATS_TEXTS_INFO_H

#include "formats/oip_metadata.h"

/* The server's figures. */
struct lm_texts_info {
    const char *version;
    uint32_t worker_count, requests_max;
};

/* Of the first model of texts; empty where there is none. Returns 0 or LUMEN_E_NOMEM. */
int lm_texts_info_write(struct lm_model *const *models, uint32_t model_count,
                        const struct lm_texts_info *info, struct lm_oip_document *out);

#endif
