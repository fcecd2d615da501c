/* dense_x86.h: the kernels of dense.h for x86-64. Any thread. */
#ifndef LM_ENGINE_DENSE_X86_H
#define LM_ENGINE_DENSE_X86_H

#include "engine/dense.h"

extern const struct lm_dense_kernel lm_dense_avx2; /* and FMA */
extern const struct lm_dense_kernel lm_dense_avx512;

#endif
