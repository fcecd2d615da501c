/* processor.h: which vector instructions this processor and this kernel have. Asked here and not
 * with __builtin_cpu_supports, which says no to everything where zig builds a wheel's library.
 * Any thread.
 */
#ifndef LM_BASE_PROCESSOR_H
#define LM_BASE_PROCESSOR_H

#include <stdbool.h>
#include <stdint.h>

enum {
    LM_PROCESSOR_ASKED = 1,
    LM_PROCESSOR_AVX2 = 2,      /* and F16C */
    LM_PROCESSOR_AVX512 = 4,    /* F, BW and VL, beside AVX2 */
    LM_PROCESSOR_AVX512_VN = 8, /* VBMI and VNNI, beside those */
    LM_PROCESSOR_FMA = 16       /* beside AVX2 */
};

/* The sum of those that it has. */
uint32_t lm_processor(void);

/* From now on the calling thread takes denormal numbers for zeros and makes none. false: this
 * processor cannot. */
bool lm_processor_flush_denormals(void);
/* How the calling thread computes with fractions; what lm_processor_flush_denormals changes. */
uint64_t lm_processor_fractions(void);
void lm_processor_set_fractions(uint64_t mode);

#endif
