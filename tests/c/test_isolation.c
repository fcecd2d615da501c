/* test_isolation.c: real-time priority and its guard, locked memory, reserved huge pages; each
 * where it is allowed and where it is not. A child without rights stands for an ordinary user. */
#include "base/isolation.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/memory.h"
#include "tree.h"

/* Runs `test` in a child: as an ordinary user, or as whoever runs this. */
static void in_child(void (*test)(void), bool ordinary) {
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        if (ordinary) {
            CHECK(setrlimit(RLIMIT_RTPRIO, &none) == 0 && setrlimit(RLIMIT_MEMLOCK, &none) == 0);
            if (geteuid() == 0) CHECK(setuid(65534) == 0);
        }
        test();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static bool may_have_real_time(void) {
    const struct sched_param one = {.sched_priority = 1}, none = {0};
    bool may = sched_setscheduler(0, SCHED_FIFO, &one) == 0;
    CHECK(!may || sched_setscheduler(0, SCHED_OTHER, &none) == 0);
    return may;
}

static int policy(void) {
    return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
}

/* The guard's clock is the test's own: a look is due whenever it says so. */
static void real_time(void) {
    struct lm_real_time thread;
    const int before = policy(); /* somebody may build at idle priority */
    lm_real_time_begin(&thread, 0);
    CHECK(thread.priority == 0 && thread.refused == 0 && policy() == before);
    if (!may_have_real_time()) {
        lm_real_time_begin(&thread, 2);
        CHECK(thread.priority == 0 && thread.refused == EPERM && policy() == before);
        return;
    }
    lm_real_time_begin(&thread, 2);
    CHECK(thread.priority == 2 && policy() == SCHED_FIFO);
    uint64_t now_ns = thread.next_look_ns;
    lm_real_time_check(&thread, now_ns - 1); /* too early: nothing */
    CHECK(thread.next_look_ns == now_ns);
    for (int look = 0; look < 1000 && !thread.lowered; look++, now_ns += LM_REAL_TIME_NS)
        lm_real_time_check(&thread, now_ns); /* it may have slept in a page fault before */
    CHECK(thread.lowered && policy() == SCHED_OTHER);
    /* Long enough that it is not over before the thread is off its core. */
    CHECK(nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL) == 0);
    lm_real_time_check(&thread, now_ns);
    CHECK(!thread.lowered && policy() == SCHED_FIFO);
    struct sched_param parameters;
    CHECK(sched_getparam(0, &parameters) == 0 && parameters.sched_priority == 2);
}

static void bounds(void) {
    static const struct {
        const char *name, *line;
        bool bounded;
    } cases[] = {{"bounded", "950000\n", true},
                 {"unbounded", "-1\n", false},
                 {"zero", "0\n", false},
                 {"empty", "", false}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        new_tree(cases[c].name);
        write_line("/proc/sys/kernel/sched_rt_runtime_us", cases[c].line);
        CHECK(lm_real_time_is_bounded(root) == cases[c].bounded);
    }
    new_tree("unknown");
    CHECK(!lm_real_time_is_bounded(root));
}

static unsigned long status_value(const char *path, const char *format) {
    char line[256];
    unsigned long value = 0;
    FILE *file = fopen(path, "re");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, format, &value) == 1) break;
    }
    CHECK(fclose(file) == 0);
    return value;
}

static void locked_memory(void) {
    char why[256];
    int code = lm_memory_lock(why, sizeof why);
    unsigned long locked = status_value("/proc/self/status", "VmLck: %lu");
    if (code == 0) {
#ifndef __SANITIZE_ADDRESS__ /* which makes mlockall do nothing */
        CHECK(locked > 0);
#endif
        lm_memory_unlock();
        CHECK(status_value("/proc/self/status", "VmLck: %lu") == 0);
    } else {
        CHECK(locked == 0 && strstr(why, "engine.lock_memory: memory is not locked (") == why);
    }
}

static void no_locked_memory(void) {
    char why[256];
    CHECK(lm_memory_lock(why, sizeof why) == -EPERM);
    CHECK(strstr(why, "the limit is 0 KiB"));
}

/* Whether the pool has pages is not ours to say, and may change at any time. */
static void huge_pages(void) {
    struct lm_mapping mapping;
    const size_t bytes = 3u << 20;
    bool had = status_value("/proc/meminfo", "HugePages_Free: %lu") >= 2;
    CHECK(lm_mapping_reserve_on(&mapping, bytes, LUMEN_HUGE_EXPLICIT) == 0);
    bool has = status_value("/proc/meminfo", "HugePages_Free: %lu") >= 2;
    CHECK(mapping.bytes == 4u << 20 && (mapping.reserved || !had || !has));
    CHECK(!mapping.reserved || mapping.huge_pages);
    lm_mapping_touch(&mapping, mapping.bytes);
    lm_mapping_close(&mapping);
    CHECK(lm_mapping_reserve_on(&mapping, bytes, LUMEN_HUGE_NONE) == 0);
    CHECK(!mapping.reserved && !mapping.huge_pages);
    lm_mapping_touch(&mapping, mapping.bytes);
    lm_mapping_close(&mapping);
    CHECK(lm_mapping_reserve_on(&mapping, 4096, LUMEN_HUGE_EXPLICIT) == 0);
    CHECK(!mapping.reserved && mapping.bytes == 4096); /* less than one of them */
    lm_mapping_close(&mapping);
}

int main(void) {
    tree_top = check_temporary_directory();
    in_child(real_time, false);
    in_child(real_time, true);
    bounds();
    in_child(locked_memory, false);
    in_child(no_locked_memory, true);
    huge_pages();
    return check_finish("test_isolation");
}
