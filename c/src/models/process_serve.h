/* process_serve.h: what runs in the process of a model (process.h): it opens the model as the
 * server did, and serves a box for each of the server's workers, each with a thread and a session.
 */
#ifndef LM_MODELS_PROCESS_SERVE_H
#define LM_MODELS_PROCESS_SERVE_H

#include "lumen.h"

/* Ends with the process, unless it cannot begin: then LUMEN_E_* with the sentence. */
int lm_process_serve(const lumen_process *place, const char *ort_library,
                     const lumen_model_config *config);

#endif
