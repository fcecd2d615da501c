/* processor.c: see processor.h. */
#include "base/processor.h"

#include "base/atomics.h"

#if defined(__x86_64__)
#include <cpuid.h>

static bool has(uint32_t word, uint32_t bits) {
    return (word & bits) == bits;
}

/* Which registers the kernel saves: a bit for each kind. */
static uint32_t saved_registers(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static uint32_t ask(void) {
    enum { F16C = 1 << 29, OSXSAVE = 1 << 27, FMA = 1 << 12, AVX2 = 1 << 5 };        /* ecx, ebx */
    const uint32_t avx512 = 1u << 16 | 1u << 30 | 1u << 31, vn = 1u << 1 | 1u << 11; /* ebx, ecx */
    uint32_t a, b, c, d, found = LM_PROCESSOR_ASKED;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, OSXSAVE | F16C)) return found;
    uint32_t saved = saved_registers(), fma = has(c, FMA) ? LM_PROCESSOR_FMA : 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
    if (!has(saved, 0x6) || !has(b, AVX2)) return found;
    found |= LM_PROCESSOR_AVX2 | fma;
    if (!has(saved, 0xe6) || !has(b, avx512)) return found;
    found |= LM_PROCESSOR_AVX512;
    return has(c, vn) ? found | LM_PROCESSOR_AVX512_VN : found;
}
#else
static uint32_t ask(void) {
    return LM_PROCESSOR_ASKED;
}
#endif

uint32_t lm_processor(void) {
    static lm_atomic_u32 known;
    uint32_t found = lm_load_relaxed_u32(&known); /* relaxed: all threads find the same */
    if (found == 0) {
        found = ask();
        lm_store_relaxed_u32(&known, found); /* relaxed: as above */
    }
    return found;
}

#if defined(__x86_64__)
/* MXCSR: flush to zero, denormals are zero. */
enum { FLUSH = 0x8000 | 0x0040 };
uint64_t lm_processor_fractions(void) {
    return __builtin_ia32_stmxcsr();
}
void lm_processor_set_fractions(uint64_t mode) {
    __builtin_ia32_ldmxcsr((uint32_t)mode);
}
#elif defined(__aarch64__)
enum { FLUSH = 1 << 24 }; /* FPCR.FZ */
uint64_t lm_processor_fractions(void) {
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
void lm_processor_set_fractions(uint64_t mode) {
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
#else
enum { FLUSH = 0 };
uint64_t lm_processor_fractions(void) {
    return 0;
}
void lm_processor_set_fractions(uint64_t mode) {
    (void)mode;
}
#endif

bool lm_processor_flush_denormals(void) {
    lm_processor_set_fractions(lm_processor_fractions() | FLUSH);
    return FLUSH != 0;
}
