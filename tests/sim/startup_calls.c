/* startup_calls.c: the calls of the library that can fail at start, by name: each asks first
 * whether it is its turn to. The Makefile lists the same names for the linker's --wrap.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomics.h"
#include "startup.h"

enum { LIVE_MAX = 1 << 16 };

bool startup_verbose;
static enum startup_kind kind_armed;
static uint32_t nth;
static bool all_after;
static lm_atomic_u32 armed;
static lm_atomic_u64 counted;
static const char *first_failed;

const char *startup_kind_name(enum startup_kind kind) {
    return kind == STARTUP_CALL ? "call" : "allocation";
}

void startup_arm(enum startup_kind kind, uint32_t n, bool all) {
    kind_armed = kind;
    nth = n;
    all_after = all;
    first_failed = NULL;
    lm_store_relaxed_u64(&counted, 0);
    lm_store_release_u32(&armed, 1);
}

const char *startup_disarm(void) {
    lm_store_release_u32(&armed, 0);
    return first_failed;
}

/* Whether this call is one that fails. Any thread. */
static bool is_turn(enum startup_kind kind, const char *name) {
    if (!lm_load_acquire_u32(&armed) || kind != kind_armed) return false;
    uint64_t number = lm_count_relaxed_u64(&counted, 1) + 1;
    if (number == nth) first_failed = name;
    return number == nth || (all_after && number > nth);
}

/* ---- what is alive: blocks and mappings by their address ---- */

struct live {
    pthread_mutex_t lock;
    void *at[LIVE_MAX];
    uint32_t count;
};
static struct live blocks = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct live mappings = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void born(struct live *live, void *at) {
    if (!at || at == MAP_FAILED) return;
    pthread_mutex_lock(&live->lock);
    if (live->count < LIVE_MAX) live->at[live->count++] = at;
    pthread_mutex_unlock(&live->lock);
}

/* What the C library allocated for us is not known here, and leaves without a word. */
static void died(struct live *live, void *at) {
    pthread_mutex_lock(&live->lock);
    for (uint32_t i = live->count; at && i-- > 0;) {
        if (live->at[i] != at) continue;
        live->at[i] = live->at[--live->count];
        break;
    }
    pthread_mutex_unlock(&live->lock);
}

uint32_t startup_blocks(void) {
    return blocks.count;
}

uint32_t startup_mappings(void) {
    return mappings.count;
}

/* ---- allocations ---- */

#define ALLOCATION(name, parameters, arguments)   \
    void *__real_##name parameters;               \
    void *__wrap_##name parameters;               \
    void *__wrap_##name parameters {              \
        if (is_turn(STARTUP_ALLOCATION, #name)) { \
            errno = ENOMEM;                       \
            return NULL;                          \
        }                                         \
        void *block = __real_##name arguments;    \
        born(&blocks, block);                     \
        return block;                             \
    }

ALLOCATION(malloc, (size_t bytes), (bytes))
ALLOCATION(calloc, (size_t count, size_t bytes), (count, bytes))
ALLOCATION(aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))
ALLOCATION(strdup, (const char *text), (text))
/* operator new and new[] that return nullptr. */
ALLOCATION(_ZnwmRKSt9nothrow_t, (size_t bytes, const void *tag), (bytes, tag))
ALLOCATION(_ZnamRKSt9nothrow_t, (size_t bytes, const void *tag), (bytes, tag))

/* What ONNX Runtime asks of the allocator that it was given: there it does not look for NULL. */
void *startup_alloc_for_ort(size_t alignment, size_t bytes);
void *startup_alloc_for_ort(size_t alignment, size_t bytes) {
    return __real_aligned_alloc(alignment, bytes);
}

#define RELEASE(name, parameters, block, arguments) \
    void __real_##name parameters;                  \
    void __wrap_##name parameters;                  \
    void __wrap_##name parameters {                 \
        died(&blocks, block);                       \
        __real_##name arguments;                    \
    }

RELEASE(free, (void *block), block, (block))
RELEASE(_ZdlPvm, (void *block, size_t bytes), block, (block, bytes))
RELEASE(_ZdaPv, (void *block), block, (block))

/* ---- system calls, and functions that are little else ---- */

#define CALL(type, failed, number, name, parameters, arguments) \
    type __real_##name parameters;                              \
    type __wrap_##name parameters;                              \
    type __wrap_##name parameters {                             \
        if (is_turn(STARTUP_CALL, #name)) {                     \
            errno = number;                                     \
            return failed;                                      \
        }                                                       \
        return __real_##name arguments;                         \
    }

CALL(int, -1, EMFILE, socket, (int domain, int type, int protocol), (domain, type, protocol))
CALL(int, -1, EADDRINUSE, bind, (int fd, const struct sockaddr *address, socklen_t bytes),
     (fd, address, bytes))
CALL(int, -1, EADDRINUSE, listen, (int fd, int backlog), (fd, backlog))
CALL(int, -1, ENOBUFS, getsockname, (int fd, struct sockaddr *address, socklen_t *bytes),
     (fd, address, bytes))
CALL(int, -1, ENOPROTOOPT, setsockopt,
     (int fd, int level, int name, const void *value, socklen_t bytes),
     (fd, level, name, value, bytes))
CALL(int, -1, ECONNREFUSED, connect, (int fd, const struct sockaddr *address, socklen_t bytes),
     (fd, address, bytes))
CALL(int, -1, EMFILE, eventfd, (unsigned value, int flags), (value, flags))
CALL(int, -1, EMFILE, epoll_create1, (int flags), (flags))
CALL(int, -1, ENOSPC, epoll_ctl, (int epoll, int operation, int fd, struct epoll_event *event),
     (epoll, operation, fd, event))
CALL(int, -1, ENOMEM, madvise, (void *at, size_t bytes, int advice), (at, bytes, advice))
CALL(int, -1, EMFILE, memfd_create, (const char *name, unsigned flags), (name, flags))
CALL(int, -1, EIO, fstat, (int fd, struct stat *status), (fd, status))
CALL(int, -1, EACCES, lstat, (const char *path, struct stat *status), (path, status))
CALL(int, -1, EPERM, chmod, (const char *path, mode_t mode), (path, mode))
CALL(int, -1, ENOLCK, flock, (int fd, int operation), (fd, operation))
CALL(int, -1, EACCES, rename, (const char *from, const char *to), (from, to))
CALL(int, ENOSPC, ENOSPC, posix_fallocate, (int fd, off_t offset, off_t bytes), (fd, offset, bytes))
CALL(int, EAGAIN, EAGAIN, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument),
     (thread, attributes, body, argument))
CALL(FILE *, NULL, EMFILE, fopen, (const char *path, const char *mode), (path, mode))
CALL(FILE *, NULL, ENOMEM, open_memstream, (char **text, size_t *bytes), (text, bytes))

/* liburing's calls return their errno, negative. */
#define URING(number, name, parameters, arguments) \
    CALL(int, -number, number, name, parameters, arguments)
URING(ENOMEM, io_uring_queue_init_params,
      (unsigned entries, struct io_uring *ring, struct io_uring_params *params),
      (entries, ring, params))
URING(EINVAL, io_uring_register_buf_ring,
      (struct io_uring * ring, struct io_uring_buf_reg *registration, unsigned flags),
      (ring, registration, flags))
URING(EINVAL, io_uring_register_ring_fd, (struct io_uring * ring), (ring))
URING(EPERM, io_uring_submit, (struct io_uring * ring), (ring))
URING(ENOMEM, io_uring_queue_init, (unsigned entries, struct io_uring *ring, unsigned flags),
      (entries, ring, flags))
URING(EMFILE, io_uring_register_files_sparse, (struct io_uring * ring, unsigned count),
      (ring, count))
URING(ENOMEM, io_uring_register_files_update,
      (struct io_uring * ring, unsigned first, const int *fds, unsigned count),
      (ring, first, fds, count))
URING(EPERM, io_uring_submit_and_wait, (struct io_uring * ring, unsigned count), (ring, count))
URING(EPERM, io_uring_submit_and_get_events, (struct io_uring * ring), (ring))
URING(EPERM, io_uring_submit_and_wait_timeout,
      (struct io_uring * ring, struct io_uring_cqe **cqe, unsigned count,
       struct __kernel_timespec *timeout, sigset_t *signals),
      (ring, cqe, count, timeout, signals))

void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (is_turn(STARTUP_CALL, "mmap")) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *mapping = __real_mmap(at, bytes, protection, flags, fd, offset);
    born(&mappings, mapping);
    return mapping;
}

int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes) {
    died(&mappings, at);
    return __real_munmap(at, bytes);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (!is_turn(STARTUP_CALL, "open")) return __real_open(path, flags, mode);
    errno = EMFILE;
    return -1;
}
