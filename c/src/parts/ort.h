/* ort.h: ONNX Runtime, loaded from the installed wheel, and what Lumen asks of it: sessions that
 * share one copy of the weights, tensors wrapped over memory of ours, Run.
 *
 * Workers call lm_ort_wrap, lm_ort_run, lm_ort_value_close and lm_ort_check; everything else
 * belongs to start-up, on the control thread. Every OrtStatus is converted to an error sentence and
 * released in one place, lm_ort_check.
 */
#ifndef LM_PARTS_ORT_H
#define LM_PARTS_ORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "lumen.h"
#include "parts/ort_api.h"

struct lm_ort {
    void *library;
    const struct lm_ort_api *api;
    const char *version;
    OrtEnv *env;
    OrtMemoryInfo *cpu_memory;
    bool uses_registered_allocator; /* sessions allocate from run_arena.c's */
    OrtAllocator *allocator;        /* ONNX Runtime's default one; not ours to release */
};

/* Loads the library and makes its environment, telemetry off. Returns 0 or LUMEN_E_ORT. */
int lm_ort_open(struct lm_ort *ort, const char *library_path);
void lm_ort_close(struct lm_ort *ort);

/* Where the sessions of one model come from: the optimised graph in ONNX Runtime's own format,
 * mapped once and used in place by all of them, or (when that cannot be made) the model file
 * itself. */
struct lm_ort_source {
    struct lm_mapping optimised; /* bytes 0: sessions load `path` each with its own weights */
    char path[4096];
    const lumen_model_config *config; /* while sessions are opened */
    bool from_cache;
    bool shapes_vary; /* from one Run to another: sessions keep no plan of memory */
};

/* Of the configuration: path, cache_path (NULL: the optimised graph is made in memory),
 * intra_op_threads, and the dimensions that are fixed. Returns 0, LUMEN_E_MODEL or LUMEN_E_IO. */
int lm_ort_source_open(struct lm_ort_source *source, const struct lm_ort *ort,
                       const lumen_model_config *config);
void lm_ort_source_close(struct lm_ort_source *source);

/* A further session on the source; for the calling thread's use or another's, one at a time. */
int lm_ort_session_open(const struct lm_ort *ort, const struct lm_ort_source *source,
                        OrtSession **session_out);
void lm_ort_session_close(const struct lm_ort *ort, OrtSession *session);

/* Wraps memory as a tensor; the memory must outlive it. Returns NULL with the error sentence set.
 */
OrtValue *lm_ort_wrap(const struct lm_ort *ort, void *data, size_t bytes, const int64_t *shape,
                      size_t rank, int dtype);
void lm_ort_value_close(const struct lm_ort *ort, OrtValue *value);

/* Returns 0 or LUMEN_E_ORT. An output that is NULL on entry is allocated by ONNX Runtime. */
int lm_ort_run(const struct lm_ort *ort, OrtSession *session, const char *const *input_names,
               const OrtValue *const *inputs, size_t input_count, const char *const *output_names,
               OrtValue **outputs, size_t output_count);

/* Converts and releases a status: 0 when it is NULL, else LUMEN_E_ORT with `tried` in the sentence.
 */
int lm_ort_check(const struct lm_ort *ort, OrtStatus *status, const char *tried);

#endif
