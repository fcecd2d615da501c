/* topology.h: which cores this process may use, and the scheduling calls made on threads. */
#ifndef LM_BASE_TOPOLOGY_H
#define LM_BASE_TOPOLOGY_H

#include <stdint.h>

#include "base/cpu_set.h"

enum { LM_CGROUP_BYTES = 2048 }; /* of a control group's path */

/* The cores of the calling thread's affinity mask, which has the cgroup's cpuset in it. Returns
 * their number, 0 where it cannot be read; writes at most `capacity`. */
int lm_topology_mask(int32_t *cpus_out, uint32_t capacity);

/* The path of this process's control group (version 2), "/" where it has none. */
void lm_topology_cgroup(const char *root, char path[LM_CGROUP_BYTES]);

/* The cores in the affinity mask, at most as many as the cgroup's cpu.max pays for (rounded up).
 * `root` is where /proc and /sys are found ("" for the real ones; tests pass captured trees).
 * Returns their number; writes at most `capacity`. */
int lm_topology_usable_cpus(const char *root, int32_t *cpus_out, uint32_t capacity);

/* Cores that a cgroup v2 or v1 CPU quota pays for, rounded up; 0 when there is no quota. */
int lm_topology_cpu_quota(const char *root);

/* Pins the calling thread. Returns 0 or a negative errno. */
int lm_thread_pin(int32_t cpu);
/* Pins another thread of this process, by its number; 0: the calling one. Allocates nothing. */
int lm_thread_pin_other(int32_t tid, int32_t cpu);
/* The cores that the calling thread may run on. Returns 0 or a negative errno. */
int lm_thread_cpus(struct lm_cpu_set *cpus_out);
/* Lets the calling thread run on these cores alone. Returns 0 or a negative errno. */
int lm_thread_keep_to(const struct lm_cpu_set *cpus);
/* From here on the kernel runs the calling thread where no other wants the core. */
void lm_thread_give_way(void);
/* The calling thread's number. */
int32_t lm_thread_id(void);
/* How long the calling thread computes before it is another one's turn: a wish of Linux 6.12 and
 * later, which needs no privilege. Returns 0 or a negative errno. */
int lm_thread_set_slice(uint64_t slice_ns);

#endif
