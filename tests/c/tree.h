/* tree.h: trees of /proc and /sys as other machines have them, made below a temporary directory. */
#ifndef TESTS_C_TREE_H
#define TESTS_C_TREE_H

#include <sys/stat.h>

#include "base/cpu_set.h"
#include "check.h"

static const char *tree_top; /* check_temporary_directory() */
static char root[96];

/* A fresh tree; write_line fills it. */
static inline void new_tree(const char *name) {
    snprintf(root, sizeof root, "%s/%s", tree_top, name);
    CHECK_AT("tree %s", name);
    CHECK(mkdir(root, 0700) == 0);
}

static inline void write_line(const char *path, const char *line) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = strchr(full + strlen(root) + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        CHECK(mkdir(full, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
    check_write_file(full, line, strlen(line));
}

/* A machine in a few words: its cores, those of each node, which of them are whose siblings. */
struct tree_machine {
    const char *name;
    const char *present;
    const char *online;        /* NULL: all */
    const char *allowed;       /* NULL: all */
    const char *nodes[4];      /* the cores of each */
    const char *distances[4];  /* NULL: the kernel has no file */
    const char *memory;        /* nodes that have some; NULL: all */
    const char *isolated;      /* NULL: none */
    const char *cpuset;        /* of the root group; NULL: no file */
    const char *quota;         /* cpu.max; NULL: none */
    uint32_t sibling_distance; /* core c and c + this are one; 0: no SMT */
    uint32_t cores_per_cache;  /* in a row, and their siblings; 0: no file */
};

static inline void tree_write_core(const struct tree_machine *machine, uint32_t cpu) {
    char path[128], line[64];
    uint32_t apart = machine->sibling_distance, per = machine->cores_per_cache;
    uint32_t first = apart ? cpu % apart : cpu, cache = per ? first / per * per : 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    snprintf(line, sizeof line, apart ? "%u,%u\n" : "%u\n", first, first + apart);
    write_line(path, line);
    if (per == 0) return;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cache/index3/shared_cpu_list", cpu);
    int used = snprintf(line, sizeof line, "%u-%u", cache, cache + per - 1);
    if (apart)
        snprintf(line + used, sizeof line - (size_t)used, ",%u-%u", cache + apart,
                 cache + apart + per - 1);
    write_line(path, line);
}

static inline void tree_write(const struct tree_machine *machine) {
    struct lm_cpu_set present = {0};
    char line[256], path[64];
    int used = 0, count = 0;
    new_tree(machine->name);
    CHECK(lm_cpu_set_parse(&present, machine->present));
    write_line("/sys/devices/system/cpu/present", machine->present);
    write_line("/sys/devices/system/cpu/online",
               machine->online ? machine->online : machine->present);
    write_line("/sys/devices/system/cpu/isolated", machine->isolated ? machine->isolated : "\n");
    write_line("/sys/devices/system/cpu/nohz_full", "  (null)\n");
    for (int n = 0; n < 4 && machine->nodes[n]; n++, count++) {
        used += snprintf(line + used, sizeof line - (size_t)used, n ? ",%d" : "%d", n);
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", n);
        write_line(path, machine->nodes[n]);
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/distance", n);
        if (machine->distances[n]) write_line(path, machine->distances[n]);
    }
    if (count) {
        write_line("/sys/devices/system/node/online", line);
        write_line("/sys/devices/system/node/has_memory", machine->memory ? machine->memory : line);
    }
    snprintf(line, sizeof line, "Name:\tx\nCpus_allowed_list:\t%s\nMems_allowed_list:\t0-3\n",
             machine->allowed ? machine->allowed : machine->present);
    write_line("/proc/self/status", line);
    write_line("/proc/self/cgroup", "0::/\n");
    if (machine->cpuset) write_line("/sys/fs/cgroup/cpuset.cpus.effective", machine->cpuset);
    if (machine->quota) write_line("/sys/fs/cgroup/cpu.max", machine->quota);
    for (uint32_t c = lm_cpu_set_next(&present, 0); c < LM_CPUS_MAX;
         c = lm_cpu_set_next(&present, c + 1))
        tree_write_core(machine, c);
}

#endif
