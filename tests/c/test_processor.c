/* test_processor.c: what is said of the processor is what the compiler's own library says, where it
 * can. */
#include "base/processor.h"
#include "check.h"

static void denormals(void) {
    volatile float small = 1e-40f, sum = small + small;
    CHECK(sum > 0);
    uint64_t before = lm_processor_fractions();
    bool can = lm_processor_flush_denormals();
    sum = small + small;
    volatile float least = 1.2e-38f, half = least / 2; /* none is made either */
    lm_processor_set_fractions(before);
    CHECK((sum > 0) == !can && (half > 0) == !can);
    sum = small + small;
    CHECK(sum > 0);
#if defined(__x86_64__) || defined(__aarch64__)
    CHECK(can);
#endif
}

int main(void) {
    denormals();
    uint32_t found = lm_processor();
    CHECK(found & LM_PROCESSOR_ASKED);
    CHECK(found == lm_processor());
#if defined(__x86_64__) && !defined(__clang__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl");
    bool vn =
        avx512 && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
    CHECK(!(found & LM_PROCESSOR_AVX2) == !avx2);
    CHECK(!(found & LM_PROCESSOR_FMA) == !(avx2 && __builtin_cpu_supports("fma")));
    CHECK(!(found & LM_PROCESSOR_AVX512) == !avx512);
    CHECK(!(found & LM_PROCESSOR_AVX512_VN) == !vn);
#else
    CHECK(!(found & LM_PROCESSOR_AVX512) || found & LM_PROCESSOR_AVX2);
#endif
    return check_finish("test_processor");
}
