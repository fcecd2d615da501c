/* check.h: what every C test is made of: CHECK, a seed that can be replayed, memory that ends at an
 * unreadable page, a directory that is removed at exit, and a watchdog.
 *
 * A test is one process. It prints one line at the end and exits 0; 77 when it could not run, after
 * saying why; anything else is a failure. A failure prints the seed: LUMEN_SEED=<seed> replays it.
 */
#ifndef TESTS_C_CHECK_H
#define TESTS_C_CHECK_H

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"

#ifdef __has_feature /* clang; gcc defines the two names below itself */
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
enum { CHECK_UNDER_TSAN = 1 };
#else
enum { CHECK_UNDER_TSAN = 0 };
#endif

/* A request of so many rows, for what takes its sizes. */
#define ROWS(count) (&(const struct lm_sizes){.rows = (count)})

static lm_atomic_u64 check_count;
static uint64_t check_seed_value;
static _Thread_local char check_where[160]; /* what a loop is at, see CHECK_AT */

static inline _Noreturn void check_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, condition);
    if (check_where[0]) fprintf(stderr, "  at: %s\n", check_where);
    if (check_seed_value)
        fprintf(stderr, "  seed: LUMEN_SEED=%llu\n", (unsigned long long)check_seed_value);
    exit(1);
}

/* Any thread. In a tight concurrent loop collect the outcome and check it after the join: counting
 * would order the threads. */
#define CHECK(condition)                                                        \
    do {                                                                        \
        /* relaxed: a number for the last line */                               \
        atomic_fetch_add_explicit(&check_count.value, 1, memory_order_relaxed); \
        if (!(condition)) check_failed(#condition, __FILE__, __LINE__);         \
    } while (0)

/* Whether this process has mapped a file. */
static inline bool check_is_mapped(const char *path) {
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) found = found || strstr(line, path);
    fclose(maps);
    return found;
}

/* The threads of this process, and whether there are so many, or will be: one that was joined may
 * be listed a moment longer. */
static inline uint32_t check_threads(void) {
    uint32_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    for (struct dirent *task; (task = readdir(tasks));) count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static inline bool check_threads_become(uint32_t count) {
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int waits = 0; waits < 10000; waits++) {
        if (check_threads() == count) return true;
        nanosleep(&moment, NULL);
    }
    return false;
}

/* Names the iteration that the next failure of this thread belongs to. */
#define CHECK_AT(...) snprintf(check_where, sizeof check_where, __VA_ARGS__)

static inline int check_finish(const char *test) {
    printf("%s: %llu checks\n", test,
           (unsigned long long)lm_load_relaxed_u64(&check_count)); /* relaxed: all joined */
    return 0;
}

static inline _Noreturn void check_skip(const char *test, const char *why) {
    printf("skipped  %s: %s\n", test, why);
    exit(77);
}

/* ---- random numbers ---- */

/* The seed of this run: LUMEN_SEED, or the clock. Never 0. */
static inline uint64_t check_seed(void) {
    const char *given = getenv("LUMEN_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    check_seed_value = given ? strtoull(given, NULL, 10)
                             : (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec;
    if (check_seed_value == 0) check_seed_value = 1;
    return check_seed_value;
}

/* xorshift64*: `state` is never 0. */
static inline uint64_t check_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

static inline uint32_t check_below(uint64_t *state, uint32_t bound) {
    return (uint32_t)((check_random(state) >> 32) % bound);
}

/* ---- memory between unreadable pages ---- */

struct check_guard {
    uint8_t *map;
    size_t map_bytes;
    uint8_t *end; /* the first byte that cannot be touched */
};

static inline void check_guard_open(struct check_guard *guard, size_t room) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t inside = room / page * page + page;
    guard->map_bytes = inside + 2 * page;
    guard->map = mmap(NULL, guard->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(guard->map != MAP_FAILED);
    CHECK(mprotect(guard->map + page, inside, PROT_READ | PROT_WRITE) == 0);
    guard->end = guard->map + page + inside;
}

/* `bytes` of it, the last one just before the unreadable page. */
static inline uint8_t *check_guard_tail(const struct check_guard *guard, size_t bytes) {
    return guard->end - bytes;
}

static inline void check_guard_close(struct check_guard *guard) {
    munmap(guard->map, guard->map_bytes);
}

/* ---- a directory of this test's own ---- */

static char check_directory[64];

static inline int check_remove_entry(const char *path, const struct stat *status, int kind,
                                     struct FTW *at) {
    (void)status, (void)kind, (void)at;
    return remove(path);
}

static inline void check_remove_directory(void) {
    nftw(check_directory, check_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* Made anew, removed at exit. Once a process. */
static inline const char *check_temporary_directory(void) {
    snprintf(check_directory, sizeof check_directory, "/tmp/lumen-test-XXXXXX");
    CHECK(mkdtemp(check_directory) != NULL);
    CHECK(atexit(check_remove_directory) == 0);
    return check_directory;
}

static inline void check_write_file(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wbe");
    CHECK(file != NULL);
    CHECK(fwrite(bytes, 1, count, file) == count);
    CHECK(fclose(file) == 0);
}

/* ---- watchdog ---- */

static char check_watchdog_text[320];

static inline void check_watchdog_bark(int signal_number) {
    (void)signal_number;
    ssize_t written = write(STDERR_FILENO, check_watchdog_text, strlen(check_watchdog_text));
    _exit(written < 0 ? 3 : 2);
}

/* Ends the process when `seconds` go by before the next call; 0 turns it off. */
static inline void check_watchdog(unsigned seconds, const char *missing) {
    snprintf(check_watchdog_text, sizeof check_watchdog_text,
             "not done after %u s: %s\n  seed: LUMEN_SEED=%llu\n", seconds, missing,
             (unsigned long long)check_seed_value);
    signal(SIGALRM, check_watchdog_bark);
    alarm(seconds);
}

#endif
