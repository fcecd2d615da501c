/* test_topology.c: the cores that pay for workers, read from captured /proc and /sys trees, and the
 * scheduling calls on this process's own threads. */
#include <sched.h>

#include "base/topology.h"
#include "check.h"
#include "tree.h"

enum { CPUS_MAX = 1024 };

static void version_2(void) {
    static const struct {
        const char *name, *line;
        int cores;
    } cases[] = {{"max", "max 100000\n", 0},     {"two", "150000 100000\n", 2},
                 {"one", "100000 100000\n", 1},  {"just-over", "100001 100000\n", 2},
                 {"tiny", "1000 100000\n", 1},   {"many", "6400000 100000\n", 64},
                 {"period", "50000 25000\n", 2}, {"no-newline", "300000 100000", 3},
                 {"garbage", "lots of it\n", 0}, {"half", "150000\n", 0},
                 {"zero", "0 100000\n", 0},      {"no-period", "100000 0\n", 0},
                 {"negative", "-1 100000\n", 0}, {"blank", "", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        new_tree(cases[i].name);
        write_line("/proc/self/cgroup", "0::/\n");
        write_line("/sys/fs/cgroup/cpu.max", cases[i].line);
        CHECK(lm_topology_cpu_quota(root) == cases[i].cores);
    }
}

/* Whichever level has the smallest quota rules. */
static void ancestors(void) {
    static const char *const levels[] = {"/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/a/cpu.max",
                                         "/sys/fs/cgroup/a/b/cpu.max",
                                         "/sys/fs/cgroup/a/b/c/cpu.max"};
    for (size_t smallest = 0; smallest < 4; smallest++) {
        char name[16];
        snprintf(name, sizeof name, "nested-%zu", smallest);
        new_tree(name);
        write_line("/proc/self/cgroup", "0::/a/b/c\n");
        for (size_t level = 0; level < 4; level++)
            write_line(levels[level], level == smallest ? "200000 100000\n" : "800000 100000\n");
        CHECK(lm_topology_cpu_quota(root) == 2);
    }
    new_tree(
        "nested-max"); /* "max" below a quota is no escape; other groups' quotas are not ours */
    write_line("/proc/self/cgroup", "12:pids:/x\n0::/a/b\n");
    write_line("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    write_line("/sys/fs/cgroup/a/cpu.max", "300000 100000\n");
    write_line("/sys/fs/cgroup/a/other/cpu.max", "100000 100000\n");
    write_line("/sys/fs/cgroup/x/cpu.max", "100000 100000\n");
    CHECK(lm_topology_cpu_quota(root) == 3);
    new_tree("nested-gap"); /* levels without the file, such as the real root */
    write_line("/proc/self/cgroup", "0::/a/b/c/d\n");
    write_line("/sys/fs/cgroup/a/cpu.max", "500000 100000\n");
    CHECK(lm_topology_cpu_quota(root) == 5);
}

static void version_1(void) {
    new_tree("v1");
    write_line("/proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n");
    write_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
    write_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    CHECK(lm_topology_cpu_quota(root) == 3);
    new_tree("v1-none");
    write_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    write_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    CHECK(lm_topology_cpu_quota(root) == 0);
    new_tree("v1-half");
    write_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
    CHECK(lm_topology_cpu_quota(root) == 0);
    new_tree("both"); /* hybrid: the smaller one */
    write_line("/proc/self/cgroup", "0::/\n");
    write_line("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    write_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
    write_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    CHECK(lm_topology_cpu_quota(root) == 2);
}

static void nothing_there(void) {
    new_tree("bare");
    CHECK(lm_topology_cpu_quota(root) == 0);
    new_tree("odd-lines");
    write_line("/proc/self/cgroup", "0::\n");
    CHECK(lm_topology_cpu_quota(root) == 0);
    char line[4096] = "0::/"; /* longer than any path: no crash, and whatever it says no quota */
    memset(line + 4, 'x', sizeof line - 6);
    line[sizeof line - 2] = '\n';
    write_line("/proc/self/cgroup", line);
    CHECK(lm_topology_cpu_quota(root) == 0);
}

static void own_mask(int32_t *cpus, int *count) {
    cpu_set_t mask;
    CHECK(sched_getaffinity(0, sizeof mask, &mask) == 0);
    *count = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &mask)) cpus[(*count)++] = (int32_t)cpu;
    }
}

static void usable_cpus(void) {
    int32_t mask[CPUS_MAX], cpus[CPUS_MAX];
    int count;
    cpu_set_t before, one;
    own_mask(mask, &count);
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    new_tree("no-quota");
    CHECK(lm_topology_usable_cpus(root, cpus, CPUS_MAX) == count);
    CHECK(memcmp(cpus, mask, (size_t)count * sizeof mask[0]) == 0);

    cpus[0] = cpus[1] = -7; /* no more than `capacity` is written, the number is whole */
    CHECK(lm_topology_usable_cpus(root, cpus, 1) == count);
    CHECK(cpus[0] == mask[0] && cpus[1] == -7);
    CHECK(lm_topology_usable_cpus(root, NULL, 0) == count);

    for (int quota = 1; quota <= count + 1; quota++) {
        char name[32], line[32];
        snprintf(name, sizeof name, "quota-%d", quota);
        snprintf(line, sizeof line, "%d 100000\n", quota * 100000);
        new_tree(name);
        write_line("/proc/self/cgroup", "0::/\n");
        write_line("/sys/fs/cgroup/cpu.max", line);
        CHECK(lm_topology_usable_cpus(root, cpus, CPUS_MAX) == (quota < count ? quota : count));
        CHECK(memcmp(cpus, mask, (size_t)(quota < count ? quota : count) * sizeof mask[0]) == 0);
    }

    CPU_ZERO(&one); /* the tree still pays for more than this one */
    CPU_SET((size_t)mask[count - 1], &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    int found = lm_topology_usable_cpus(root, cpus, CPUS_MAX);
    CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
    CHECK(found == 1 && cpus[0] == mask[count - 1]);
}

static void thread_calls(void) {
    int32_t mask[CPUS_MAX], pinned[CPUS_MAX];
    int count, pinned_count;
    cpu_set_t before;
    CHECK_AT("pinning");
    own_mask(mask, &count);
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    CHECK(lm_thread_pin(mask[count - 1]) == 0);
    own_mask(pinned, &pinned_count);
    CHECK(pinned_count == 1 && pinned[0] == mask[count - 1]);
    CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
    struct lm_cpu_set all = {0}, none = {0};
    for (int c = 0; c < count; c++) lm_cpu_set_add(&all, (uint32_t)mask[c]);
    CHECK(lm_thread_keep_to(&none) == -EINVAL && lm_thread_keep_to(&all) == 0);
    own_mask(pinned, &pinned_count);
    CHECK(pinned_count == count && memcmp(pinned, mask, (size_t)count * sizeof mask[0]) == 0);
    CHECK(lm_thread_pin(8191) == -EINVAL && lm_thread_pin(-1) == -EINVAL);
    own_mask(pinned, &pinned_count);
    CHECK(pinned_count == count); /* a refusal changes nothing */
}

int main(void) {
    tree_top = check_temporary_directory();
    version_2();
    ancestors();
    version_1();
    nothing_there();
    usable_cpus();
    thread_calls();
    return check_finish("test_topology");
}
