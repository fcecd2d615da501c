/* engine.h: a native engine: a mapped file (format.h) and the functions that run it on rows. It
 * takes the place of a session of ONNX Runtime for chains of dense layers and for ensembles of
 * trees (docs/adr).
 *
 * Opened and closed by the control thread. Afterwards it is read-only but for the memory of each
 * runner: one thread at a time runs with an index. Nothing is allocated in a run.
 */
#ifndef LM_ENGINE_ENGINE_H
#define LM_ENGINE_ENGINE_H

#include "engine/dense.h"
#include "engine/file.h"

struct lm_team;

struct lm_engine {
    struct lm_mapping file; /* base NULL: not open */
    struct lm_engine_view view;
    const struct lm_dense_kernel *kernel; /* of dense networks */
    uint32_t block_rows;                  /* that pass through the network together */
    size_t width;                         /* floats of a row of the widest layer, filled up */
    size_t runner_bytes;
    struct lm_mapping memory; /* of the runners */
};

/* `whole`: compares all weights with their digests. Returns 0 or LUMEN_E_* with the reason. */
int lm_engine_open(struct lm_engine *engine, const char *path, bool whole);
/* The same over bytes that somebody else keeps and has checked: file.base stays NULL. */
int lm_engine_open_view(struct lm_engine *engine, const struct lm_engine_view *view);
void lm_engine_close(struct lm_engine *engine);
/* Memory for so many runners, in place of what there was. Returns 0 or LUMEN_E_NOMEM. */
int lm_engine_hold_runners(struct lm_engine *engine, uint32_t runners);
/* Runs rows. `outputs` are those of the model: places for scores (float) and labels (int64_t) at
 * their indexes. `team`: its threads share the layers; NULL: the calling thread alone. */
void lm_engine_run(const struct lm_engine *engine, uint32_t runner, const float *input,
                   void *const *outputs, uint32_t rows, struct lm_team *team);

#endif
