/* isolation.c: see isolation.h. */
#include "base/isolation.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/limits.h"

enum { CAP_IPC_LOCK = 14 };

bool lm_real_time_is_bounded(const char *root) {
    char path[PATH_MAX], line[32];
    snprintf(path, sizeof path, "%s/proc/sys/kernel/sched_rt_runtime_us", root);
    FILE *file = fopen(path, "re");
    bool bounded = file && fgets(line, sizeof line, file) && strtol(line, NULL, 10) > 0;
    if (file) fclose(file);
    return bounded;
}

static int set_policy(int policy, uint32_t priority) {
    const struct sched_param parameters = {.sched_priority = (int)priority};
    /* Threads that this one starts are ordinary. */
    if (policy == SCHED_FIFO) policy |= SCHED_RESET_ON_FORK;
    return sched_setscheduler(0, policy, &parameters) == 0 ? 0 : errno;
}

/* How often the calling thread has waited of its own accord. */
static uint64_t count_sleeps(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_nvcsw : 0;
}

void lm_real_time_begin(struct lm_real_time *thread, uint32_t priority) {
    *thread = (struct lm_real_time){.priority = priority};
    if (priority == 0) return;
    thread->refused = set_policy(SCHED_FIFO, priority);
    if (thread->refused) thread->priority = 0;
    thread->sleeps = count_sleeps();
    thread->next_look_ns = lm_now_ns() + LM_REAL_TIME_NS;
}

void lm_real_time_look(struct lm_real_time *thread, uint64_t now_ns) {
    uint64_t sleeps = count_sleeps();
    bool slept = sleeps != thread->sleeps;
    thread->sleeps = sleeps;
    thread->next_look_ns = now_ns + LM_REAL_TIME_NS;
    if (slept != thread->lowered) return;
    int refused = slept ? set_policy(SCHED_FIFO, thread->priority) : set_policy(SCHED_OTHER, 0);
    if (!refused) thread->lowered = !slept;
}

/* Whether limits of locked memory do not count for the process. */
static bool is_free_to_lock(void) {
    char line[128];
    unsigned long long capabilities = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "CapEff: %llx", &capabilities) == 1) break;
    }
    if (file) fclose(file);
    return capabilities >> CAP_IPC_LOCK & 1;
}

uint64_t lm_memory_lockable(void) {
    struct rlimit limit = {0};
    if (is_free_to_lock()) return UINT64_MAX;
    return getrlimit(RLIMIT_MEMLOCK, &limit) == 0 ? limit.rlim_cur : 0;
}

/* Whether the process may lock what it likes, and go on to. */
static bool may_lock(uint64_t *limit_out) {
    struct rlimit limit = {0};
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return false;
    *limit_out = limit.rlim_max;
    if (limit.rlim_max == RLIM_INFINITY && limit.rlim_cur != RLIM_INFINITY) {
        limit.rlim_cur = RLIM_INFINITY;
        if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return false;
    }
    return limit.rlim_max == RLIM_INFINITY || is_free_to_lock();
}

int lm_memory_lock(char *why, size_t capacity) {
    uint64_t limit = 0;
    /* Under a limit later mappings would fail, of whatever they are. */
    int code = may_lock(&limit) ? 0 : EPERM;
    /* On a fault: room that is only reserved takes no memory. */
    if (!code && mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0) code = errno;
    if (!code) return 0;
    snprintf(why, capacity,
             "engine.lock_memory: memory is not locked (%s; the limit is %llu KiB): ulimit -l "
             "unlimited, LimitMEMLOCK=infinity in the systemd unit, or CAP_IPC_LOCK",
             strerror(code), (unsigned long long)limit >> 10);
    return -code;
}

void lm_memory_unlock(void) {
    (void)munlockall();
}
