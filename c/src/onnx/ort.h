/* ort.h: ONNX Runtime, loaded from the installed wheel, and what Lumen asks of it: sessions that
 * share one copy of the weights, tensors wrapped over memory of ours, Run.
 *
 * Workers call lm_ort_wrap, lm_ort_run, lm_ort_value_close and lm_ort_check; everything else
 * belongs to start-up, on the control thread. Every OrtStatus is converted to an error sentence and
 * released in one place, lm_ort_check.
 */
#ifndef LM_ONNX_ORT_H
#define LM_ONNX_ORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "lumen.h"
#include "onnx/bounds.h"
#include "onnx/ort_api.h"
#include "onnx/providers.h"

struct lm_ort {
    void *library;
    const struct lm_ort_api *api;
    const char *version;
    OrtEnv *env;
    OrtMemoryInfo *cpu_memory;
    bool uses_registered_allocator; /* sessions allocate from run_arena.c's */
    bool uses_malloc;               /* sessions allocate from malloc, and keep nothing */
    bool flush_denormals;           /* so do the threads that its sessions start */
    OrtAllocator *allocator;        /* ONNX Runtime's default one; not ours to release */
};

/* Loads the library and makes its environment, telemetry off. Returns 0 or LUMEN_E_ORT. */
int lm_ort_open(struct lm_ort *ort, const char *library_path);
void lm_ort_close(struct lm_ort *ort);

/* Where the sessions of one model come from: the optimised graph in ONNX Runtime's own format,
 * in memory once and used in place by all of them, or (when that cannot be made) the model file
 * itself. No file of the user's stays mapped: where weights lie beside such a model file, which
 * ONNX Runtime maps for each session, it is the copy that weights.py has made. */
struct lm_ort_source {
    struct lm_mapping optimised; /* bytes 0: sessions load `path` each with its own weights */
    char path[4096];
    uint32_t intra_op_threads;
    uint32_t dim_count;
    lumen_dim *dims;               /* copies, with their names */
    struct lm_providers providers; /* where there are any, `optimised` has no bytes */
    bool from_cache;
    bool shapes_vary; /* from one Run to another: sessions keep no plan of memory */
    char unbounded[LM_ONNX_WHY_BYTES]; /* why a Run may take any time; "": its shapes bound it */
};

/* Of the configuration: path, cache_path (NULL: the optimised graph is made in memory),
 * intra_op_threads, the dimensions that are fixed, and the providers. Returns 0 or LUMEN_E_*. */
int lm_ort_source_open(struct lm_ort_source *source, const struct lm_ort *ort,
                       const lumen_model_config *config);
void lm_ort_source_close(struct lm_ort_source *source);

/* The threads of a session's Runs: the caller's and count - 1 of its own. They look for work for a
 * moment before they sleep, and not at all between Runs. */
struct lm_ort_threads {
    uint32_t count;
    OrtCreateThread start;
    OrtJoinThread join;
    void *options; /* handed to `start` */
};

/* A further session on the source; for the calling thread's use or another's, one at a time. */
int lm_ort_session_open(const struct lm_ort *ort, const struct lm_ort_source *source,
                        OrtSession **session_out);
/* One to read the graph's tensors from: opened sooner, since its weights are not packed. */
int lm_ort_session_look(const struct lm_ort *ort, const struct lm_ort_source *source,
                        OrtSession **session_out);
/* A session on several threads (NULL: one), and on a copy of what the source maps (bytes 0: on
 * that).
 */
int lm_ort_session_open_on(const struct lm_ort *ort, const struct lm_ort_source *source,
                           const struct lm_mapping *copy, const struct lm_ort_threads *threads,
                           OrtSession **session_out);
void lm_ort_session_close(const struct lm_ort *ort, OrtSession *session);

/* Wraps memory as a tensor; the memory must outlive it. Returns NULL with the error sentence set.
 */
OrtValue *lm_ort_wrap(const struct lm_ort *ort, void *data, size_t bytes, const int64_t *shape,
                      size_t rank, int dtype);
void lm_ort_value_close(const struct lm_ort *ort, OrtValue *value);

/* ---- strings, in ort_strings.c; on the wire: a length (u32, little-endian), then so many bytes
 * ---- */

enum { LM_ORT_STRING_BYTES = 32 /* of an empty one in a tensor: a std::string */ };

/* Counts what string tensors allocate. A string allocates nothing where one as long was before. */
struct lm_ort_growth {
    uint64_t count;
    size_t bytes;
};

/* A tensor of empty strings. Returns NULL with the error sentence set. */
OrtValue *lm_ort_strings_open(const struct lm_ort *ort, const int64_t *shape, size_t rank);
/* Copies `count` strings from the wire to the elements from `first` on; adds to `growth`. */
int lm_ort_strings_fill(const struct lm_ort *ort, OrtValue *value, size_t first, size_t count,
                        const uint8_t *wire, struct lm_ort_growth *growth);
enum { LM_ORT_NO_ROOM = 1 };
/* Bytes of `count` elements from `first` on as on the wire. Returns 0 or LUMEN_E_ORT. */
int lm_ort_strings_measure(const struct lm_ort *ort, const OrtValue *value, size_t first,
                           size_t count, size_t *bytes_out);
/* Writes `count` elements from `first` on as on the wire. Returns 0, LUMEN_E_ORT, or
 * LM_ORT_NO_ROOM.
 */
int lm_ort_strings_take(const struct lm_ort *ort, const OrtValue *value, size_t first, size_t count,
                        uint8_t *wire, size_t room, size_t *bytes_out);

/* An output has another shape than the memory that it was given before the Run. */
enum { LM_ORT_UNFIT_OUTPUT = 2 };
/* Returns 0, LUMEN_E_*, or LM_ORT_UNFIT_OUTPUT. An output that is NULL on entry is allocated by
 * ONNX Runtime. */
int lm_ort_run(const struct lm_ort *ort, OrtSession *session, const char *const *input_names,
               const OrtValue *const *inputs, size_t input_count, const char *const *output_names,
               OrtValue **outputs, size_t output_count);

/* Converts and releases a status: 0 when it is NULL, else LUMEN_E_ORT with `tried` in the sentence.
 */
int lm_ort_check(const struct lm_ort *ort, OrtStatus *status, const char *tried);

/* Takes what ONNX Runtime last logged as an error on the calling thread; "": nothing. */
void lm_ort_take_log(char *text, size_t bytes);

#endif
