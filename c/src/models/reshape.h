/* reshape.h: the shapes that a configuration file gives a model's tensors for HTTP's clients,
 * where they differ from the graph's: the bytes are the same. Control thread, while a model is
 * opened. */
#ifndef LM_MODELS_RESHAPE_H
#define LM_MODELS_RESHAPE_H

#include "models/model.h"

/* Sets `client` of the model's tensors. A model whose clients send no rows where its graph has them
 * takes one row. Returns 0, or LUMEN_E_MODEL for a shape of other or unknown bytes. */
int lm_model_reshape(struct lm_model *model);

#endif
