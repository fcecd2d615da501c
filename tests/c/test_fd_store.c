/* test_fd_store.c (row F10): sockets outlive their descriptors, come back as new ones, and end when
 * they are dropped; more of them than there may be descriptors.
 */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <liburing.h>

#include "base/error.h"
#include "check.h"
#include "kernel.h"

static bool wait_fails; /* after its work, once */

static int wait_for(struct io_uring *ring, unsigned count) {
    int code = io_uring_submit_and_wait(ring, count);
    if (wait_fails) code = -EPERM;
    wait_fails = false;
    return code;
}

/* The file itself, which calls this. */
#define io_uring_submit_and_wait wait_for
#include "ring/fd_store.c"

enum { LIMIT = 40, CAPACITY = 95 }; /* three tables, the last one not full */

static int open_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 256; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void say(int fd, char what) {
    CHECK(write(fd, &what, 1) == 1);
}

static void hear(int fd, char what) {
    char heard = 0;
    CHECK(read(fd, &heard, 1) == 1 && heard == what);
}

/* Whoever is at the other end cannot tell. */
static void check_socket(struct lm_fd_store *store, uint32_t index) {
    int pair[2], before = open_descriptors();
    char end;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(lm_fd_store_put(store, index, pair[0]) == 0);
    close(pair[0]);
    say(pair[1], 'a');
    for (int turn = 0; turn < 3; turn++) {
        int fd = lm_fd_store_get(store, index);
        CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
        if (turn == 0) hear(fd, 'a');
        say(fd, 'b');
        hear(pair[1], 'b');
        close(fd);
    }
    lm_fd_store_drop(store, index);
    CHECK(read(pair[1], &end, 1) == 0);
    CHECK(lm_fd_store_get(store, index) < 0);
    close(pair[1]);
    CHECK(open_descriptors() == before);
}

/* Both ends of more pairs than there may be descriptors. */
static void check_many(struct lm_fd_store *store) {
    for (uint32_t i = 0; i + 1 < CAPACITY; i += 2) {
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        say(pair[0], (char)i);
        for (uint32_t end = 0; end < 2; end++) {
            CHECK(lm_fd_store_put(store, i + end, pair[end]) == 0);
            close(pair[end]);
        }
    }
    for (uint32_t i = 0; i + 1 < CAPACITY; i += 2) {
        int fd = lm_fd_store_get(store, i + 1);
        hear(fd, (char)i);
        lm_fd_store_drop(store, i);
        char end;
        CHECK(read(fd, &end, 1) == 0);
        close(fd);
        lm_fd_store_drop(store, i + 1);
    }
}

static void check_none_free(struct lm_fd_store *store) {
    int taken[LIMIT], count = 0, fd;
    CHECK(lm_fd_store_put(store, 50, STDOUT_FILENO) == 0);
    while ((fd = dup(STDOUT_FILENO)) >= 0) taken[count++] = fd;
    CHECK(errno == EMFILE);
    CHECK(lm_fd_store_get(store, 50) == -EMFILE);
    CHECK(lm_fd_store_get(store, 50) == -EMFILE);
    while (count) close(taken[--count]);
    fd = lm_fd_store_get(store, 50);
    CHECK(fd >= 0);
    close(fd);
    lm_fd_store_drop(store, 50);
}

/* A descriptor that comes after its call has given up is closed, and is nobody else's. */
static void check_late(struct lm_fd_store *store) {
    int pairs[2][2], before = open_descriptors();
    for (uint32_t p = 0; p < 2; p++) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[p]) == 0);
        CHECK(lm_fd_store_put(store, p, pairs[p][0]) == 0);
        close(pairs[p][0]);
        say(pairs[p][1], (char)('a' + p));
    }
    wait_fails = true;
    CHECK(lm_fd_store_get(store, 0) == -EPERM);
    for (uint32_t p = 2; p-- > 0;) {
        int fd = lm_fd_store_get(store, p);
        CHECK(fd >= 0);
        hear(fd, (char)('a' + p));
        close(fd);
        lm_fd_store_drop(store, p);
        close(pairs[p][1]);
    }
    CHECK(open_descriptors() == before);
}

int main(void) {
    struct lm_fd_store *store;
    struct rlimit limit = {LIMIT, LIMIT};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    const bool is_there = kernel_has_uring();
    int before = open_descriptors();
    setenv("LUMEN_URING_MASK", "fd_install", 1);
    CHECK(lm_fd_store_open(&store, CAPACITY, 3) == LUMEN_E_UNSUPPORTED && !store);
    CHECK(strstr(lm_error_last(), "Linux 6.8"));
    unsetenv("LUMEN_URING_MASK");
    int code = lm_fd_store_open(&store, CAPACITY, 3);
    CHECK_AT("%s", lm_error_last());
    if (code == LUMEN_E_UNSUPPORTED && !is_there) check_skip("test_fd_store", lm_error_last());
    CHECK(code == 0 && open_descriptors() == before + 3);
    CHECK(lm_fd_store_get(store, 0) < 0); /* what it was tried with is gone */
    check_socket(store, 0);
    check_socket(store, LIMIT - 1);
    check_socket(store, LIMIT);
    check_socket(store, CAPACITY - 1);
    check_many(store);
    check_none_free(store);
    check_late(store);
    lm_fd_store_close(store);
    CHECK(open_descriptors() == before);
    CHECK(lm_fd_store_open(&store, 6 * LIMIT, 5) == LUMEN_E_UNSUPPORTED && !store);
    CHECK(strstr(lm_error_last(), "that takes 6 descriptors"));
    CHECK(open_descriptors() == before);
    CHECK(lm_fd_store_open(&store, 2 * LIMIT, 2) == 0 && open_descriptors() == before + 2);
    lm_fd_store_close(store);
    return check_finish("test_fd_store");
}
