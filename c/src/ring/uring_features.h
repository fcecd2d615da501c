/* uring_features.h: what to expect of this kernel's io_uring before it is asked: kernels known to
 * be bad, and features hidden for a test by LUMEN_URING_MASK. Start-up only. The thread
 * that opens a ring. */
#ifndef LM_RING_URING_FEATURES_H
#define LM_RING_URING_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

enum lm_uring_verdict {
    LM_URING_FINE,
    LM_URING_ONE_SHOT_ACCEPT, /* its multishot accept is not to be trusted */
    LM_URING_AVOID            /* `auto` takes epoll */
};

struct lm_uring_verdict_why {
    enum lm_uring_verdict verdict;
    const char *why; /* "" or where the trouble is told */
};

/* Bits of lm_uring_features.masked: the feature is treated as missing. */
enum {
    LM_MASK_SETUP = 1 << 0,
    LM_MASK_DEFER_TASKRUN = 1 << 1,
    LM_MASK_SINGLE_ISSUER = 1 << 2,
    LM_MASK_COOP_TASKRUN = 1 << 3,
    LM_MASK_SUBMIT_ALL = 1 << 4,
    LM_MASK_MULTISHOT_ACCEPT = 1 << 5,
    LM_MASK_BUFFER_RINGS = 1 << 6,
    LM_MASK_REGISTERED_RING = 1 << 7,
    LM_MASK_SELF_TEST = 1 << 8, /* the self-test finds fault */
    LM_MASK_EPOLL_PWAIT2 = 1 << 9,
    LM_MASK_FD_INSTALL = 1 << 10
};

struct lm_uring_features {
    uint32_t masked; /* LM_MASK_* */
    uint32_t kernel; /* LM_KERNEL */
};

/* Reads "6.1.0-13-amd64" as LM_KERNEL(6,1,0); 0 when it is no version. */
uint32_t lm_kernel_parse(const char *release);
struct lm_uring_verdict_why lm_uring_judge(uint32_t kernel);
/* Names separated by commas, see uring_features.c; NULL hides nothing. Returns 0 or
 * LUMEN_E_INVALID naming what it does not know. */
int lm_uring_mask_parse(const char *mask, struct lm_uring_features *features);
/* This kernel, with LUMEN_URING_MASK applied. */
int lm_uring_features_read(struct lm_uring_features *features);

/* Says why io_uring could not be set up or entered, and the cure, as an error: returns
 * LUMEN_E_UNSUPPORTED. */
int lm_uring_refuse(int errno_value);

#endif
