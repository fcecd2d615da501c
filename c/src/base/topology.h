/* topology.h: which cores this process may use, and the scheduling calls made on threads. */
#ifndef LM_BASE_TOPOLOGY_H
#define LM_BASE_TOPOLOGY_H

#include <stdint.h>

/* The cores in the affinity mask, at most as many as the cgroup's cpu.max pays for (rounded up).
 * `root` is where /proc and /sys are found ("" for the real ones; tests pass captured trees).
 * Returns their number; writes at most `capacity`. */
int lm_topology_usable_cpus(const char *root, int32_t *cpus_out, uint32_t capacity);

/* Cores that a cgroup v2 or v1 CPU quota pays for, rounded up; 0 when there is no quota. */
int lm_topology_cpu_quota(const char *root);

/* Pins the calling thread. Returns 0 or a negative errno. */
int lm_thread_pin(int32_t cpu);

#endif
