/* clock.h: the one clock of the server, CLOCK_MONOTONIC in nanoseconds; each thread's own; and the
 * time of day. Any thread. */
#ifndef LM_BASE_CLOCK_H
#define LM_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t lm_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Seconds since 1970. */
static inline uint64_t lm_unix_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (uint64_t)now.tv_sec;
}

/* Milliseconds since 1970. */
static inline uint64_t lm_unix_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The CPU time of the calling thread; a system call. */
static inline uint64_t lm_thread_cpu_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

#endif
