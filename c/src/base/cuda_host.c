/* cuda_host.c: see cuda_host.h. */
#include "base/cuda_host.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"

enum { PORTABLE = 1 /* cudaHostRegisterPortable: locked for every context */ };

bool lm_cuda_host_find(struct lm_cuda_host *cuda) {
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
    memset(cuda, 0, sizeof *cuda);
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        /* Only what is there already: another one would not know the provider's GPU. */
        void *library = dlopen(names[n], RTLD_NOW | RTLD_NOLOAD);
        if (!library) continue;
        *(void **)&cuda->lock = dlsym(library, "cudaHostRegister");
        *(void **)&cuda->unlock = dlsym(library, "cudaHostUnregister");
        *(void **)&cuda->words = dlsym(library, "cudaGetErrorString");
        dlclose(library); /* the provider holds it */
        if (cuda->lock && cuda->unlock && cuda->words) return true;
    }
    cuda->lock = NULL;
    return false;
}

int lm_cuda_host_lock(const struct lm_cuda_host *cuda, void *base, size_t bytes) {
    int code = cuda->lock(base, bytes, PORTABLE);
    if (code == 0) return 0;
    return lm_error(LUMEN_E_UNSUPPORTED,
                    "copies of requests to the GPU wait: CUDA does not lock %zu bytes: %s", bytes,
                    cuda->words(code));
}

void lm_cuda_host_unlock(const struct lm_cuda_host *cuda, void *base) {
    (void)cuda->unlock(base);
}
