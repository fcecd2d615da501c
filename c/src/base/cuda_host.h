/* cuda_host.h: memory of this process that a GPU reads and writes by itself. CUDA copies to and
 * from other memory through a buffer of its own, and waits meanwhile; from pages that it has locked
 * it copies while the GPU computes.
 *
 * The functions are those of the CUDA runtime that ONNX Runtime's provider has loaded. Control
 * thread, before the memory is used and after.
 */
#ifndef LM_BASE_CUDA_HOST_H
#define LM_BASE_CUDA_HOST_H

#include <stdbool.h>
#include <stddef.h>

struct lm_cuda_host {
    int (*lock)(void *base, size_t bytes, unsigned flags); /* cudaHostRegister; NULL: not found */
    int (*unlock)(void *base);                             /* cudaHostUnregister */
    const char *(*words)(int code);                        /* cudaGetErrorString */
};

/* Finds CUDA's runtime in this process; false: none is loaded. */
bool lm_cuda_host_find(struct lm_cuda_host *cuda);
/* For all GPUs. Returns 0, or LUMEN_E_UNSUPPORTED with CUDA's words. */
int lm_cuda_host_lock(const struct lm_cuda_host *cuda, void *base, size_t bytes);
void lm_cuda_host_unlock(const struct lm_cuda_host *cuda, void *base);

#endif
