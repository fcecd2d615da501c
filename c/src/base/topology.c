/* topology.c: see topology.h. Called at start, never on a request's path. */
#include "base/topology.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { CGROUP_BYTES = 2048 }; /* of a control group's path */

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

/* The path of this process's cgroup: "0::/path" in /proc/self/cgroup (v2). */
static void own_cgroup(const char *root, char path[CGROUP_BYTES]) {
    char full[PATH_MAX], line[CGROUP_BYTES + 8];
    snprintf(path, CGROUP_BYTES, "/");
    snprintf(full, sizeof full, "%s/proc/self/cgroup", root);
    FILE *file = fopen(full, "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::", 3) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        memmove(path, line + 3, strnlen(line + 3, CGROUP_BYTES - 1) + 1);
        path[CGROUP_BYTES - 1] = '\0';
    }
    fclose(file);
}

static int smaller_quota(int a, int b) {
    if (a == 0 || b == 0) return a + b;
    return a < b ? a : b;
}

int lm_topology_cpu_quota(const char *root) {
    char group[CGROUP_BYTES], path[CGROUP_BYTES + 64], line[128];
    long long quota, period;
    int cores = 0;
    /* Every ancestor may carry a quota; the smallest one rules. */
    own_cgroup(root, group);
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

int lm_topology_usable_cpus(const char *root, int32_t *cpus_out, uint32_t capacity) {
    /* The cgroup's cpuset is already in the mask that the kernel returns. 8192 cores is its own
     * limit. */
    cpu_set_t *mask = CPU_ALLOC(8192);
    if (!mask) return 0;
    size_t bytes = CPU_ALLOC_SIZE(8192);
    CPU_ZERO_S(bytes, mask);
    int quota = lm_topology_cpu_quota(root);
    int found = 0;
    if (sched_getaffinity(0, bytes, mask) == 0) {
        for (int cpu = 0; cpu < 8192; cpu++) {
            if (!CPU_ISSET_S((size_t)cpu, bytes, mask)) continue;
            if (quota > 0 && found == quota) break;
            if ((uint32_t)found < capacity) cpus_out[found] = cpu;
            found++;
        }
    }
    CPU_FREE(mask);
    return found;
}

int lm_thread_pin(int32_t cpu) {
    cpu_set_t *mask = CPU_ALLOC(8192);
    if (!mask) return -ENOMEM;
    size_t bytes = CPU_ALLOC_SIZE(8192);
    CPU_ZERO_S(bytes, mask);
    CPU_SET_S((size_t)cpu, bytes, mask);
    int code = sched_setaffinity(0, bytes, mask) == 0 ? 0 : -errno;
    CPU_FREE(mask);
    return code;
}
