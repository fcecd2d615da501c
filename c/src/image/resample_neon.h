/* resample_neon.h: the kernel of resample.h for 64-bit Arm. Any thread. */
#ifndef LM_IMAGE_RESAMPLE_NEON_H
#define LM_IMAGE_RESAMPLE_NEON_H

#include "image/resample.h"

extern const struct lm_resample lm_resample_neon;

#endif
