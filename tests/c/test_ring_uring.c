/* test_ring_uring.c (F16): calls of io_uring that fail and may be made again, with completions
 * there or not, and those that will not be better the next time. liburing's calls are the test's
 * own.
 */
#include <liburing.h>

#include "base/error.h"
#include "check.h"
#include "kernel.h"
#include "ring/ring.h"

static int error;             /* what the next calls return, negative; 0: what the kernel says */
static uint32_t submits_left; /* calls of submit that fail; of wait one does, after its work */

static int submit(struct io_uring *ring) {
    if (!error || submits_left == 0) return io_uring_submit(ring);
    submits_left--;
    return error;
}

static int fail_once(int result) {
    int told = error ? error : result;
    error = 0;
    return told;
}

static int wait_forever(struct io_uring *ring, unsigned count) {
    return fail_once(io_uring_submit_and_wait(ring, count));
}

static int wait_until(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned count,
                      struct __kernel_timespec *timeout, sigset_t *signals) {
    return fail_once(io_uring_submit_and_wait_timeout(ring, cqe, count, timeout, signals));
}

static int look(struct io_uring *ring) {
    return fail_once(io_uring_submit_and_get_events(ring));
}

static unsigned most_entries; /* that the kernel has memory for; 0: enough */

static int init(unsigned entries, struct io_uring *ring, struct io_uring_params *params) {
    if (most_entries && params->cq_entries > most_entries) return -ENOMEM;
    return io_uring_queue_init_params(entries, ring, params);
}

/* The file itself, which calls these. */
#define io_uring_queue_init_params init
#define io_uring_submit submit
#define io_uring_submit_and_wait wait_forever
#define io_uring_submit_and_wait_timeout wait_until
#define io_uring_submit_and_get_events look
#include "ring/ring_uring.c"

enum { INDICES = 3 * LM_SQ_ENTRIES, PLENTY = 1000000000 };

static struct lm_completion found[64];

/* The same wait reaps the completions that are there, and loses none for the next one. */
static void waits_that_fail(struct lm_ring *ring) {
    static const int passing[] = {EBUSY, EAGAIN, EINTR, ETIME};
    for (size_t p = 0; p < sizeof passing / sizeof passing[0]; p++) {
        for (int for_ever = 0; for_ever < 2; for_ever++) {
            uint64_t limit = for_ever ? UINT64_MAX : PLENTY;
            CHECK_AT("errno %d, %s", passing[p], for_ever ? "for ever" : "with a limit");
            lm_ring_wake(ring);
            error = -passing[p];
            CHECK(lm_ring_wait(ring, 0, limit, found, 64) == 1 && found[0].op == LM_OP_WAKE);
            error = -passing[p];
            CHECK(lm_ring_wait(ring, 0, 0, found, 64) == 0);
            lm_ring_wake(ring);
            CHECK(lm_ring_wait(ring, 0, limit, found, 64) == 1 && found[0].op == LM_OP_WAKE);
        }
    }
    error = -EPERM;
    CHECK(lm_ring_wait(ring, 0, 0, found, 64) == -EPERM);
}

/* A full queue whose submission is refused for a while: every operation completes, once. */
static void submits_that_fail(struct lm_ring *ring, int fd) {
    static bool seen[INDICES];
    int count;
    CHECK_AT("submits that fail");
    error = -EBUSY;
    submits_left = 100;
    for (uint32_t i = 0; i < INDICES; i++) lm_ring_poll(ring, fd, i, 1);
    CHECK(submits_left == 0);
    error = 0;
    for (uint32_t left = INDICES; left > 0;) {
        CHECK((count = lm_ring_wait(ring, 0, UINT64_MAX, found, 64)) >= 0);
        for (int c = 0; c < count; c++, left--) {
            CHECK(found[c].op == LM_OP_READABLE && found[c].index < INDICES);
            CHECK(!seen[found[c].index]);
            seen[found[c].index] = true;
        }
    }
}

/* One that is refused for good ends the next wait, and no call before it hangs. */
static void a_ring_that_takes_nothing(struct lm_ring *ring, int fd) {
    CHECK_AT("a ring that takes nothing");
    error = -EBUSY;
    submits_left = UINT32_MAX;
    for (uint32_t i = 0; i < LM_SQ_ENTRIES + 2; i++) lm_ring_poll(ring, fd, i, 2);
    error = 0;
    CHECK(lm_ring_wait(ring, 0, 0, found, 64) == -EBUSY);
    CHECK(lm_ring_wait(ring, 0, UINT64_MAX, found, 64) == -EBUSY);
}

/* With little memory the rings are smaller; with hardly any the cause and the cure are told. */
static void little_memory(int fd) {
    struct lm_ring *ring;
    CHECK_AT("little memory");
    most_entries = 512;
    CHECK(lm_ring_open(&ring, LUMEN_IO_URING, INDICES) == 0);
    lm_ring_poll(ring, fd, 1, 3);
    CHECK(lm_ring_wait(ring, 0, UINT64_MAX, found, 64) == 1 && found[0].op == LM_OP_READABLE);
    lm_ring_close(ring);
    most_entries = 1;
    CHECK(lm_ring_open(&ring, LUMEN_IO_URING, INDICES) == LUMEN_E_UNSUPPORTED && !ring);
    CHECK(strstr(lm_error_last(), "ulimit -l"));
    most_entries = 0;
}

int main(void) {
    struct lm_ring *ring;
    int pair[2];
    const bool is_there = kernel_has_uring();
    int code = lm_ring_open(&ring, LUMEN_IO_URING, INDICES);
    if (code == LUMEN_E_UNSUPPORTED && !is_there) check_skip("test_ring_uring", lm_error_last());
    CHECK_AT("%s", lm_error_last());
    CHECK(code == 0);
    check_watchdog(60, "io_uring's calls");
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && write(pair[1], "x", 1) == 1);
    waits_that_fail(ring);
    submits_that_fail(ring, pair[0]);
    a_ring_that_takes_nothing(ring, pair[0]);
    lm_ring_close(ring);
    little_memory(pair[0]);
    close(pair[0]);
    close(pair[1]);
    return check_finish("test_ring_uring");
}
