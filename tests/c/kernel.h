/* kernel.h: whether this machine has all of io_uring that tests of it need, judged without our own
 * probes: what these refuse there is a failure, and no reason to skip a test.
 */
#ifndef TESTS_C_KERNEL_H
#define TESTS_C_KERNEL_H

#include <liburing.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>

/* Linux 6.8 keeps sockets without descriptors. */
static inline bool kernel_has_uring(void) {
    struct utsname kernel;
    struct io_uring ring;
    unsigned major = 0, minor = 0;
    if (uname(&kernel) != 0 || sscanf(kernel.release, "%u.%u", &major, &minor) != 2) return false;
    if (major * 100 + minor < 608 || getenv("LUMEN_URING_MASK")) return false;
    if (io_uring_queue_init(1, &ring, 0) != 0) return false;
    io_uring_queue_exit(&ring);
    return true;
}

#endif
