/* machine.h: the cores, caches and memory nodes of a machine, and what this process may use of
 * them, read from /proc and /sys. Control thread, at start; parts/placement.h decides by it.
 *
 * Files that are missing say nothing: a machine without them has one node, and no core shares
 * anything with another.
 */
#ifndef LM_BASE_MACHINE_H
#define LM_BASE_MACHINE_H

#include "base/cpu_set.h"

enum { LM_MACHINE_NODES_MAX = 64 };

struct lm_cpu {
    uint16_t node;    /* its place in lm_machine.nodes */
    uint16_t sibling; /* the first core of those that share its execution units */
    uint16_t cache;   /* the first core of those that share its last cache */
};

struct lm_machine_node {
    uint32_t id; /* the kernel's number */
    bool has_memory;
    struct lm_cpu_set cpus;
    uint8_t distances[LM_MACHINE_NODES_MAX]; /* to each node of the list; 10: to itself */
};

struct lm_machine {
    struct lm_cpu_set present;
    struct lm_cpu_set online;
    struct lm_cpu_set allowed;  /* the affinity mask, which has the cpuset in it */
    struct lm_cpu_set isolated; /* that the kernel keeps free (isolcpus, nohz_full) and the cpuset
                                 * has: in the mask or not */
    uint32_t quota;             /* cores that the cgroup pays for; 0: any number */
    uint32_t node_count;
    struct lm_machine_node nodes[LM_MACHINE_NODES_MAX]; /* those with cores or memory */
    struct lm_cpu cpus[LM_CPUS_MAX];
};

/* `root` is where /proc and /sys are found: "" for this machine's, else those of a captured tree.
 */
void lm_machine_read(struct lm_machine *machine, const char *root);

#endif
