/* providers.h: the execution providers of a model beside ONNX Runtime's own CPU code, such as
 * OpenVINO, CUDA or TensorRT: whether the installed build has them, and their way into a session's
 * options.
 *
 * Called at start, on the control thread or on one that opens sessions.
 */
#ifndef LM_ONNX_PROVIDERS_H
#define LM_ONNX_PROVIDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lumen.h"
#include "onnx/ort_api.h"

struct lm_ort;

struct lm_providers {
    lumen_provider *list; /* copies, with their options, without "cpu" */
    uint32_t count;       /* 0: the CPU alone */
    /* How many nodes of the graph there are and how many of them the CPU took, as ONNX Runtime
     * tells from 1.24 on; nodes 0: it does not. */
    uint32_t nodes;
    uint32_t nodes_on_cpu;
};

/* Copies what a configuration asks for. Returns 0, LUMEN_E_INVALID or LUMEN_E_NOMEM; it can be
 * closed in any case. */
int lm_providers_open(struct lm_providers *providers, const lumen_provider *list, uint32_t count);
void lm_providers_close(struct lm_providers *providers);

/* Refuses a provider that this build lacks: the error names those it has and where to get the
 * other. Returns 0 or LUMEN_E_*. */
int lm_providers_check(const struct lm_providers *providers, const struct lm_ort *ort);
/* Adds them to a session's options, in order, and asks the session to keep account of its nodes.
 * Returns 0, or LUMEN_E_UNSUPPORTED with the provider that cannot be used and why. */
int lm_providers_append(const struct lm_providers *providers, const struct lm_ort *ort,
                        OrtSessionOptions *options);
/* Counts the nodes of a session that was opened with them. */
void lm_providers_count_nodes(struct lm_providers *providers, const struct lm_ort *ort,
                              const OrtSession *session);
/* Refuses them where none of the others takes a node. Returns 0 or LUMEN_E_UNSUPPORTED. */
int lm_providers_check_nodes(const struct lm_providers *providers);
/* Converts and releases what creating a session with them came to. Returns 0 or LUMEN_E_*. */
int lm_providers_loaded(const struct lm_providers *providers, const struct lm_ort *ort,
                        OrtStatus *status);
/* Whether a device computes most of it: one session is for all workers then, as many of which may
 * have a request in flight there, and the device holds the weights once. */
bool lm_providers_share(const struct lm_providers *providers);
/* Whether CUDA or TensorRT is among them. */
bool lm_providers_use_cuda(const struct lm_providers *providers);
/* "openvino, cpu": the names as they were given. */
static inline void lm_providers_text(const struct lm_providers *providers, char *text,
                                     size_t capacity) {
    size_t used = 0;
    for (uint32_t p = 0; p < providers->count && used < capacity; p++)
        used += (size_t)snprintf(text + used, capacity - used, "%s, ", providers->list[p].name);
    if (used < capacity) snprintf(text + used, capacity - used, "cpu");
}

#endif
