/* test_cuda_host.c: what is asked of CUDA's runtime, and its refusal. The one that the test makes
 * is a library of three functions: a machine with a GPU has the real one. */
#include <dlfcn.h>

#include "base/cuda_host.h"
#include "base/error.h"
#include "check.h"

static const char source[] =
    "#include <stddef.h>\n"
    "void *held; size_t held_bytes; unsigned how;\n"
    "int cudaHostRegister(void *base, size_t bytes, unsigned flags) {\n"
    "    if (bytes == 13) return 2;\n"
    "    held = base, held_bytes = bytes, how = flags;\n"
    "    return 0;\n"
    "}\n"
    "int cudaHostUnregister(void *base) { return base == held ? (held = NULL, 0) : 1; }\n"
    "const char *cudaGetErrorString(int code) { return code == 2 ? \"out of memory\" : \"?\"; }\n";

/* Compiles it under the name that its soname has, and loads it; NULL: there is no compiler. */
static void *stand_in(void) {
    char file[256], library[256], command[1024];
    snprintf(file, sizeof file, "%s/cudart.c", check_temporary_directory());
    snprintf(library, sizeof library, "%s/libcudart.so.12", check_temporary_directory());
    FILE *out = fopen(file, "w");
    CHECK(out && fputs(source, out) >= 0 && fclose(out) == 0);
    snprintf(command, sizeof command, "cc -shared -fPIC -Wl,-soname,libcudart.so.12 -o %s %s",
             library, file);
    return system(command) == 0 ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
}

int main(void) {
    static char memory[64];
    struct lm_cuda_host cuda;
    CHECK(!lm_cuda_host_find(&cuda) && !cuda.lock); /* no provider has loaded one */
    void *library = stand_in();
    CHECK(library != NULL);
    void **held = dlsym(library, "held");
    const size_t *bytes = dlsym(library, "held_bytes");
    const unsigned *how = dlsym(library, "how");
    CHECK(lm_cuda_host_find(&cuda));
    CHECK(lm_cuda_host_lock(&cuda, memory, sizeof memory) == 0);
    CHECK(*held == memory && *bytes == sizeof memory && *how == 1);
    CHECK(lm_cuda_host_lock(&cuda, memory, 13) == LUMEN_E_UNSUPPORTED);
    CHECK(
        strcmp(lm_error_last(),
               "copies of requests to the GPU wait: CUDA does not lock 13 bytes: out of memory") ==
        0);
    lm_cuda_host_unlock(&cuda, memory);
    CHECK(*held == NULL);
    return check_finish("test_cuda_host");
}
