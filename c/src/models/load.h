/* load.h: opens and closes a model: its sessions, and what it is opened from. Control thread. */
#ifndef LM_MODELS_LOAD_H
#define LM_MODELS_LOAD_H

#include "models/model.h"

int lm_model_open(struct lm_model *model, const struct lm_ort *ort,
                  const lumen_model_config *config, uint32_t index, uint32_t session_count);
/* One that an upstream serves: it has a name, and neither tensors nor sessions. */
int lm_model_open_elsewhere(struct lm_model *model, const lumen_model_config *config,
                            uint32_t index);
/* A virtual one (virtual.h) of some of `models`, by their indexes; NULL: none is there. They stay
 * where they are. Returns 0 or LUMEN_E_*; closed as other models are. */
int lm_model_open_virtual(struct lm_model *model, const lumen_model_config *config, uint32_t index,
                          struct lm_model *const *models, uint32_t count);
void lm_model_close(struct lm_model *model, const struct lm_ort *ort);
/* Worker `index` of that node gets a session, or another. Returns 0 or LUMEN_E_ORT. */
int lm_model_open_session(struct lm_model *model, const struct lm_ort *ort, uint32_t node,
                          uint32_t index);
/* Unless it is the first one's. */
void lm_model_close_session(struct lm_model *model, const struct lm_ort *ort, uint32_t index);

/* ---- what a model is opened from ---- */

/* signature.c. Its tensors, as its first session has them, and as the file of this path tells what
 * the session does not. Returns 0 or LUMEN_E_*. */
int lm_model_read_signature(struct lm_model *model, const struct lm_ort *ort, const char *path);
/* trial.c. Corrects what the graph says of its outputs by what they are in two requests of other
 * sizes. */
void lm_model_try_sizes(struct lm_model *model, const struct lm_ort *ort);
/* The ns of a Run of one row of the smallest sizes, on zeros: the best of a few; 0: it fails. */
uint64_t lm_model_time_run(const struct lm_model *model, const struct lm_ort *ort);

/* pictures.c. Returns 0, or LUMEN_E_* where a setting for files of pictures does not fit. */
int lm_model_plan_pictures(struct lm_model *model, const lumen_model_config *config);

/* text_open.c. The graph's tensors give way to those of texts. Returns 0 or LUMEN_E_*. */
int lm_model_open_text(struct lm_model *model, const struct lm_ort *ort,
                       const lumen_text_config *config);

#endif
