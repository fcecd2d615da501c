/* model_set.h: the models that are served, and what is known of all of them together. A set is made
 * by the control thread and never changes once it is in force; threads reach it through one atomic
 * pointer (lm_shared.models). Each I/O thread counts the requests that use a set, so that a set
 * which another one has replaced can be closed when its last request has left.
 */
#ifndef LM_FLOW_MODEL_SET_H
#define LM_FLOW_MODEL_SET_H

#include "base/atomics.h"
#include "parts/model.h"

struct lm_http_documents; /* dialects/http_documents.h */

/* Of one I/O thread, which alone writes it. */
struct lm_model_set_use {
    LM_CACHE_ALIGNED lm_atomic_u64 requests;
};

struct lm_model_set {
    struct lm_model models[LUMEN_MODELS_MAX];
    uint32_t count;
    uint32_t values_per_slot; /* tensors of all: the width of a slot's table of wrapped values */
    char *description;        /* JSON, as the native protocol's describe says it */
    size_t description_bytes;
    struct lm_http_documents *documents; /* what HTTP answers of the server and its models */
    struct lm_model_set_use used_by[LUMEN_IO_THREADS_MAX];
};

#endif
