/* uring_features.c: see uring_features.h. Knows versions and names; asks the kernel nothing but its
 * release.
 *
 * LUMEN_URING_MASK is for tests of what older kernels get: "defer_taskrun,buffer_rings" makes Lumen
 * behave as if the kernel lacked both. The names are those of `features` below, and kernel=6.6.5,
 * which pretends that release. The last two are none of io_uring's features: self_test makes the
 * ring's own test fail, epoll_pwait2 hides that system call from the epoll backend.
 */
#include "ring/uring_features.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/error.h"
#include "base/limits.h"

static const struct {
    const char *name;
    uint32_t bit;
} features_by_name[] = {
    {"setup", LM_MASK_SETUP},
    {"defer_taskrun", LM_MASK_DEFER_TASKRUN},
    {"single_issuer", LM_MASK_SINGLE_ISSUER},
    {"coop_taskrun", LM_MASK_COOP_TASKRUN},
    {"submit_all", LM_MASK_SUBMIT_ALL},
    {"multishot_accept", LM_MASK_MULTISHOT_ACCEPT},
    {"buffer_rings", LM_MASK_BUFFER_RINGS},
    {"registered_ring", LM_MASK_REGISTERED_RING},
    {"fd_install", LM_MASK_FD_INSTALL},
    {"self_test", LM_MASK_SELF_TEST},
    {"epoll_pwait2", LM_MASK_EPOLL_PWAIT2},
};
enum { FEATURE_COUNT = sizeof features_by_name / sizeof features_by_name[0] };

/* Trouble that a self-test may miss. Vendors' kernels keep old numbers with new code: the self-test
 * has the last word where this list says nothing. tests/test_probe.py holds lumen_uring's copy of
 * it against this one. */
static const struct {
    uint32_t first, last;
    enum lm_uring_verdict verdict;
    const char *why;
} known_bad[] = {
    {LM_KERNEL(5, 15, 0), LM_KERNEL(6, 0, 255), LM_URING_AVOID, "libuv issue 4141"},
    {LM_KERNEL(6, 6, 1), LM_KERNEL(6, 6, 9), LM_URING_ONE_SHOT_ACCEPT, "liburing issue 1062"},
    {LM_KERNEL(6, 7, 4), LM_KERNEL(6, 7, 4), LM_URING_ONE_SHOT_ACCEPT, "liburing issue 1062"},
};

/* Below 256, as LM_KERNEL has room for: stable series go on beyond. */
static bool take_number(const char **at, uint32_t *number_out) {
    char *end;
    unsigned long number = strtoul(*at, &end, 10);
    if (end == *at || **at < '0' || **at > '9') return false;
    *at = end;
    *number_out = number < 255 ? (uint32_t)number : 255;
    return true;
}

uint32_t lm_kernel_parse(const char *release) {
    uint32_t major, minor, patch = 0;
    if (!take_number(&release, &major) || *release++ != '.') return 0;
    if (!take_number(&release, &minor)) return 0;
    if (*release == '.') {
        release++;
        (void)take_number(&release, &patch); /* "6.1.y": the series' first */
    }
    return LM_KERNEL(major, minor, patch);
}

struct lm_uring_verdict_why lm_uring_judge(uint32_t kernel) {
    for (size_t k = 0; k < sizeof known_bad / sizeof known_bad[0]; k++) {
        if (kernel >= known_bad[k].first && kernel <= known_bad[k].last)
            return (struct lm_uring_verdict_why){known_bad[k].verdict, known_bad[k].why};
    }
    return (struct lm_uring_verdict_why){LM_URING_FINE, ""};
}

static bool mask_one(const char *name, size_t bytes, struct lm_uring_features *features) {
    for (int f = 0; f < FEATURE_COUNT; f++) {
        const char *known = features_by_name[f].name;
        if (strlen(known) != bytes || memcmp(known, name, bytes) != 0) continue;
        features->masked |= features_by_name[f].bit;
        return true;
    }
    if (bytes > 7 && memcmp(name, "kernel=", 7) == 0) {
        features->kernel = lm_kernel_parse(name + 7);
        return features->kernel != 0;
    }
    return false;
}

int lm_uring_mask_parse(const char *mask, struct lm_uring_features *features) {
    while (mask && *mask) {
        size_t bytes = strcspn(mask, ", ");
        if (bytes > 0 && !mask_one(mask, bytes, features)) {
            return lm_error(LUMEN_E_INVALID,
                            "LUMEN_URING_MASK: expected names such as defer_taskrun, buffer_rings "
                            "or setup, separated by commas, found '%.*s'",
                            (int)(bytes < 64 ? bytes : 64), mask);
        }
        mask += bytes;
        mask += strspn(mask, ", ");
    }
    return 0;
}

int lm_uring_features_read(struct lm_uring_features *features) {
    struct utsname name;
    *features = (struct lm_uring_features){0};
    if (uname(&name) == 0) features->kernel = lm_kernel_parse(name.release);
    return lm_uring_mask_parse(getenv("LUMEN_URING_MASK"), features);
}

int lm_uring_refuse(int errno_value) {
    switch (-errno_value) {
    case EPERM:
        return lm_error(
            LUMEN_E_UNSUPPORTED,
            "io_uring is refused by this system (EPERM): a container's seccomp profile or "
            "kernel.io_uring_disabled; run with --security-opt seccomp=unconfined, or a profile "
            "that allows "
            "io_uring_setup, io_uring_enter and io_uring_register, or sysctl "
            "kernel.io_uring_disabled=0");
    case ENOSYS:
        return lm_error(
            LUMEN_E_UNSUPPORTED,
            "io_uring is not there (ENOSYS): a kernel built without it, or a sandbox "
            "(gVisor, an old seccomp profile) that hides it; it needs Linux 6.1 or later");
    case ENOMEM:
        return lm_error(LUMEN_E_UNSUPPORTED,
                        "io_uring found no memory (ENOMEM): raise the locked-memory limit "
                        "(ulimit -l, LimitMEMLOCK=) or the container's memory");
    default:
        return lm_error_errno(LUMEN_E_UNSUPPORTED, errno_value, "io_uring could not be set up");
    }
}
