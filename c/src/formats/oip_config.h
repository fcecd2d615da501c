/* oip_config.h: a model's configuration as Triton's clients read it. Control thread. */
#ifndef LM_FORMATS_OIP_CONFIG_H
#define LM_FORMATS_OIP_CONFIG_H

#include "formats/oip_metadata.h"

/* Writes the model's configuration for clients; `workers` have a session each. Returns 0 or
 * LUMEN_E_NOMEM. */
int lm_oip_model_config(const struct lm_model *model, uint32_t workers,
                        struct lm_oip_document *out);

#endif
