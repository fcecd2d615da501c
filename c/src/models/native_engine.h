/* native_engine.h: the native engine of a model: whether it fits, answers as ONNX Runtime does and
 * is faster. Control thread, before the server starts.
 */
#ifndef LM_MODELS_NATIVE_ENGINE_H
#define LM_MODELS_NATIVE_ENGINE_H

#include "models/runner.h"

/* Opens the engine that the settings name. Returns 0, or LUMEN_E_* where it is asked for and cannot
 * be had. */
int lm_model_open_engine(struct lm_model *model, const lumen_model_config *config);
/* Compares and times it beside a session, and decides which of them computes the answers. Returns
 * as above. */
int lm_model_choose_engine(struct lm_model *model, const struct lm_ort *ort);

/* The setting's word for what computes. */
static inline const char *lm_model_engine_name(const struct lm_model *model) {
    return lm_runner_of(model)->is_engine ? "native" : "onnxruntime";
}

#endif
