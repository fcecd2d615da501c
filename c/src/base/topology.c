/* topology.c: see topology.h. Called at start, but for lm_thread_pin_other, which workers call. */
#include "base/topology.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A quota of `quota` µs in each `period` µs, as whole cores. */
static int cores_of_quota(long long quota, long long period) {
    if (quota <= 0 || period <= 0) return 0;
    return (int)((quota + period - 1) / period);
}

static int read_first_line(const char *root, const char *path, char *line, size_t capacity) {
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *file = fopen(full, "re");
    if (!file) return -1;
    char *got = fgets(line, (int)capacity, file);
    fclose(file);
    return got ? 0 : -1;
}

/* "0::/path" in /proc/self/cgroup. */
void lm_topology_cgroup(const char *root, char path[LM_CGROUP_BYTES]) {
    char full[PATH_MAX], line[LM_CGROUP_BYTES + 8];
    snprintf(path, LM_CGROUP_BYTES, "/");
    snprintf(full, sizeof full, "%s/proc/self/cgroup", root);
    FILE *file = fopen(full, "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::", 3) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        memmove(path, line + 3, strnlen(line + 3, LM_CGROUP_BYTES - 1) + 1);
        path[LM_CGROUP_BYTES - 1] = '\0';
    }
    fclose(file);
}

static int smaller_quota(int a, int b) {
    if (a == 0 || b == 0) return a + b;
    return a < b ? a : b;
}

int lm_topology_cpu_quota(const char *root) {
    char group[LM_CGROUP_BYTES], path[LM_CGROUP_BYTES + 64], line[128];
    long long quota, period;
    int cores = 0;
    /* Every ancestor may carry a quota; the smallest one rules. */
    lm_topology_cgroup(root, group);
    for (;;) {
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max",
                 strcmp(group, "/") == 0 ? "" : group);
        if (read_first_line(root, path, line, sizeof line) == 0 &&
            sscanf(line, "%lld %lld", &quota, &period) == 2) {
            cores = smaller_quota(cores, cores_of_quota(quota, period));
        }
        char *slash = strrchr(group, '/');
        if (!slash || group[1] == '\0') break;
        slash[slash == group] = '\0';
    }
    char quota_line[64], period_line[64];
    if (read_first_line(root, "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota_line,
                        sizeof quota_line) == 0 &&
        read_first_line(root, "/sys/fs/cgroup/cpu/cpu.cfs_period_us", period_line,
                        sizeof period_line) == 0 &&
        sscanf(quota_line, "%lld", &quota) == 1 && sscanf(period_line, "%lld", &period) == 1) {
        cores = smaller_quota(cores, cores_of_quota(quota, period));
    }
    return cores;
}

int lm_topology_mask(int32_t *cpus_out, uint32_t capacity) {
    cpu_set_t *mask = CPU_ALLOC(8192); /* the kernel's own limit */
    if (!mask) return 0;
    size_t bytes = CPU_ALLOC_SIZE(8192);
    CPU_ZERO_S(bytes, mask);
    int found = 0;
    if (sched_getaffinity(0, bytes, mask) == 0) {
        for (int cpu = 0; cpu < 8192; cpu++) {
            if (!CPU_ISSET_S((size_t)cpu, bytes, mask)) continue;
            if ((uint32_t)found < capacity) cpus_out[found] = cpu;
            found++;
        }
    }
    CPU_FREE(mask);
    return found;
}

int lm_topology_usable_cpus(const char *root, int32_t *cpus_out, uint32_t capacity) {
    int found = lm_topology_mask(cpus_out, capacity), quota = lm_topology_cpu_quota(root);
    return quota > 0 && found > quota ? quota : found;
}

int lm_thread_pin_other(int32_t tid, int32_t cpu) {
    cpu_set_t mask[8192 / CPU_SETSIZE]; /* no malloc: on a worker */
    if (cpu < 0 || cpu >= 8192) return -EINVAL;
    CPU_ZERO_S(sizeof mask, mask);
    CPU_SET_S((size_t)cpu, sizeof mask, mask);
    return sched_setaffinity(tid, sizeof mask, mask) == 0 ? 0 : -errno;
}

int lm_thread_pin(int32_t cpu) {
    return lm_thread_pin_other(0, cpu);
}

int lm_thread_cpus(struct lm_cpu_set *cpus_out) {
    cpu_set_t mask[LM_CPUS_MAX / CPU_SETSIZE];
    CPU_ZERO_S(sizeof mask, mask);
    if (sched_getaffinity(0, sizeof mask, mask) != 0) return -errno;
    memcpy(cpus_out, mask, sizeof mask);
    return 0;
}

int lm_thread_keep_to(const struct lm_cpu_set *cpus) {
    cpu_set_t mask[LM_CPUS_MAX / CPU_SETSIZE];
    _Static_assert(sizeof mask == sizeof *cpus, "a bit for each core, in the same order");
    memcpy(mask, cpus, sizeof mask);
    return sched_setaffinity(0, sizeof mask, mask) == 0 ? 0 : -errno;
}

void lm_thread_give_way(void) {
    const struct sched_param none = {0};
    (void)pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
}

int32_t lm_thread_id(void) {
    return (int32_t)syscall(SYS_gettid);
}

/* As the kernel lays it out in its first version. */
struct sched_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

int lm_thread_set_slice(uint64_t slice_ns) {
    struct sched_attributes attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return -errno;
    attributes.runtime_ns = slice_ns;
    return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0 ? 0 : -errno;
}
