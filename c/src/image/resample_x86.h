/* resample_x86.h: the kernels of resample.h for x86-64. Any thread. */
#ifndef LM_IMAGE_RESAMPLE_X86_H
#define LM_IMAGE_RESAMPLE_X86_H

#include "image/resample.h"

extern const struct lm_resample lm_resample_avx2;
extern const struct lm_resample lm_resample_avx512; /* VBMI and VNNI */

#endif
