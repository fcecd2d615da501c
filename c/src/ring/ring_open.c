/* ring_open.c: chooses between the two backends of ring.h and tries io_uring before it is used. On
 * the ring's own thread, at start.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "ring/ring_backend.h"

/* Opens io_uring and tries it. */
static int open_uring(struct lm_ring **ring_out, const struct lm_uring_features *features,
                      uint32_t max_connections) {
    struct lm_ring *ring;
    int code = lm_uring_open(&ring, features, max_connections);
    if (code) return code;
    code = lm_ring_check(ring);
    if (!code && (features->masked & LM_MASK_SELF_TEST)) {
        code = lm_error(LUMEN_E_UNSUPPORTED, "io_uring was set up, but LUMEN_URING_MASK makes its "
                                             "self-test fail");
    }
    if (code && code != LUMEN_E_AGAIN) {
        lm_uring_close(ring);
        return code;
    }
    lm_uring_describe(ring);
    if (features->masked)
        snprintf(ring->note, sizeof ring->note, "LUMEN_URING_MASK hides features of this kernel");
    *ring_out = ring;
    return 0;
}

int lm_ring_open(struct lm_ring **ring_out, uint32_t backend, uint32_t max_connections) {
    char why[sizeof(*ring_out)->note] = "";
    struct lm_uring_features features;
    *ring_out = NULL;
    int code = lm_uring_features_read(&features);
    if (code) return code;
    struct lm_uring_verdict_why judged = lm_uring_judge(features.kernel);
    bool avoid = judged.verdict == LM_URING_AVOID;
    if (backend == LUMEN_IO_URING || (backend == LUMEN_IO_AUTO && !avoid)) {
        code = open_uring(ring_out, &features, max_connections);
        if (!code && avoid) {
            snprintf((*ring_out)->note, sizeof why,
                     "io_uring was asked for, and this kernel's has known faults (%s)", judged.why);
        }
        if (code != LUMEN_E_UNSUPPORTED || backend == LUMEN_IO_URING) return code;
        snprintf(why, sizeof why, "epoll is used: %s%s", lm_error_last(),
                 features.masked ? " (LUMEN_URING_MASK is set)" : "");
    } else if (backend == LUMEN_IO_AUTO) {
        snprintf(why, sizeof why,
                 "epoll is used: io_uring of this kernel has known faults (%s); use Linux 6.1 or "
                 "later, or ask for it with io_backend: io_uring",
                 judged.why);
    }
    code = lm_epoll_open(ring_out, &features, max_connections);
    if (!code) memcpy((*ring_out)->note, why, sizeof why);
    return code;
}
