/* machine.c: see machine.h. Source: Documentation/ABI/stable/sysfs-devices-node,
 * Documentation/ABI/stable/sysfs-devices-system-cpu. */
#include "base/machine.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/topology.h"

enum { LINE_BYTES = 4096 };

/* The first line of a file below root; false: there is none. */
__attribute__((format(printf, 3, 4))) static bool read_line(const char *root, char *line,
                                                            const char *path, ...) {
    char full[PATH_MAX];
    size_t used = (size_t)snprintf(full, sizeof full, "%s", root);
    va_list arguments;
    va_start(arguments, path);
    vsnprintf(full + used, sizeof full - used, path, arguments);
    va_end(arguments);
    FILE *file = fopen(full, "re");
    if (!file) return false;
    bool got = fgets(line, LINE_BYTES, file) != NULL;
    fclose(file);
    return got;
}

/* The set that a file holds as a list; empty where it holds none. */
static bool read_set(const char *root, struct lm_cpu_set *set, const char *path) {
    char line[LINE_BYTES];
    *set = (struct lm_cpu_set){0};
    if (read_line(root, line, "%s", path) && lm_cpu_set_parse(set, line)) return true;
    *set = (struct lm_cpu_set){0};
    return false;
}

/* The list behind a name in /proc/self/status. */
static bool read_status(const char *root, const char *name, struct lm_cpu_set *set) {
    char path[PATH_MAX], line[LINE_BYTES];
    size_t length = strlen(name);
    bool found = false;
    snprintf(path, sizeof path, "%s/proc/self/status", root);
    FILE *file = fopen(path, "re");
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, length) != 0 || line[length] != ':') continue;
        *set = (struct lm_cpu_set){0};
        found = lm_cpu_set_parse(set, line + length + 1 + strspn(line + length + 1, " \t"));
    }
    if (file) fclose(file);
    return found;
}

/* The mask of a captured tree stands in its status; this thread's own is asked for. */
static void read_allowed(struct lm_machine *machine, const char *root) {
    if (root[0] && read_status(root, "Cpus_allowed_list", &machine->allowed)) return;
    int32_t cpus[1024];
    int count = lm_topology_mask(cpus, 1024);
    machine->allowed = (struct lm_cpu_set){0};
    for (int c = 0; c < count && c < 1024; c++)
        lm_cpu_set_add(&machine->allowed, (uint32_t)cpus[c]);
}

static void read_isolated(struct lm_machine *machine, const char *root) {
    struct lm_cpu_set full, cpuset;
    char path[LM_CGROUP_BYTES], file[LM_CGROUP_BYTES + 64];
    read_set(root, &machine->isolated, "/sys/devices/system/cpu/isolated");
    if (read_set(root, &full, "/sys/devices/system/cpu/nohz_full")) {
        for (uint32_t c = lm_cpu_set_next(&full, 0); c < LM_CPUS_MAX;
             c = lm_cpu_set_next(&full, c + 1))
            lm_cpu_set_add(&machine->isolated, c);
    }
    lm_cpu_set_keep(&machine->isolated, &machine->online);
    if (lm_cpu_set_next(&machine->isolated, 0) == LM_CPUS_MAX) return;
    lm_topology_cgroup(root, path);
    for (;;) {
        snprintf(file, sizeof file, "/sys/fs/cgroup%s/cpuset.cpus.effective",
                 strcmp(path, "/") == 0 ? "" : path);
        if (read_set(root, &cpuset, file)) {
            lm_cpu_set_keep(&machine->isolated, &cpuset);
            return;
        }
        char *slash = strrchr(path, '/');
        if (!slash || path[1] == '\0') return;
        slash[slash == path] = '\0';
    }
}

static void read_distances(struct lm_machine *machine, const char *root, uint32_t n,
                           const struct lm_cpu_set *online) {
    char line[LINE_BYTES];
    struct lm_machine_node *node = &machine->nodes[n];
    for (uint32_t m = 0; m < machine->node_count; m++) node->distances[m] = m == n ? 10 : 20;
    if (!read_line(root, line, "/sys/devices/system/node/node%u/distance", node->id)) return;
    const char *at = line;
    /* A number for each node that is online, in their order. */
    for (uint32_t id = lm_cpu_set_next(online, 0); id < LM_CPUS_MAX;
         id = lm_cpu_set_next(online, id + 1)) {
        char *end;
        unsigned long distance = strtoul(at, &end, 10);
        if (end == at) return;
        at = end;
        for (uint32_t m = 0; m < machine->node_count; m++) {
            if (machine->nodes[m].id == id)
                node->distances[m] = (uint8_t)(distance < 255 ? distance : 255);
        }
    }
}

static void read_nodes(struct lm_machine *machine, const char *root) {
    struct lm_cpu_set online, memory, granted;
    char path[96];
    bool known = read_set(root, &online, "/sys/devices/system/node/online");
    bool told = read_set(root, &memory, "/sys/devices/system/node/has_memory") ||
                read_set(root, &memory, "/sys/devices/system/node/has_normal_memory");
    if (told && read_status(root, "Mems_allowed_list", &granted))
        lm_cpu_set_keep(&memory, &granted);
    for (uint32_t id = lm_cpu_set_next(&online, 0);
         id < LM_CPUS_MAX && machine->node_count < LM_MACHINE_NODES_MAX;
         id = lm_cpu_set_next(&online, id + 1)) {
        struct lm_machine_node *node = &machine->nodes[machine->node_count];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u/cpulist", id);
        read_set(root, &node->cpus, path);
        node->id = id;
        node->has_memory = !told || lm_cpu_set_has(&memory, id);
        for (uint32_t c = lm_cpu_set_next(&node->cpus, 0); c < LM_CPUS_MAX;
             c = lm_cpu_set_next(&node->cpus, c + 1))
            machine->cpus[c].node = (uint16_t)machine->node_count;
        machine->node_count++;
    }
    if (!known) {
        machine->node_count = 1;
        machine->nodes[0].has_memory = true;
        machine->nodes[0].cpus = machine->present;
    }
    for (uint32_t n = 0; n < machine->node_count; n++) read_distances(machine, root, n, &online);
}

/* What the cores that matter share. One file speaks for all cores that it names. */
static void read_shared(struct lm_machine *machine, const char *root) {
    struct lm_cpu_set used = machine->allowed, group, seen = {0}, cached = {0};
    char path[128];
    for (uint32_t c = lm_cpu_set_next(&machine->isolated, 0); c < LM_CPUS_MAX;
         c = lm_cpu_set_next(&machine->isolated, c + 1))
        lm_cpu_set_add(&used, c);
    for (uint32_t c = 0; c < LM_CPUS_MAX; c++)
        machine->cpus[c].sibling = machine->cpus[c].cache = (uint16_t)c;
    for (uint32_t c = lm_cpu_set_next(&used, 0); c < LM_CPUS_MAX;
         c = lm_cpu_set_next(&used, c + 1)) {
        if (!lm_cpu_set_has(&seen, c)) {
            snprintf(path, sizeof path,
                     "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", c);
            read_set(root, &group, path);
            for (uint32_t s = c; s < LM_CPUS_MAX; s = lm_cpu_set_next(&group, s + 1)) {
                machine->cpus[s].sibling = (uint16_t)c;
                lm_cpu_set_add(&seen, s);
            }
        }
        if (lm_cpu_set_has(&cached, c)) continue;
        for (int index = 3; index >= 2; index--) {
            snprintf(path, sizeof path,
                     "/sys/devices/system/cpu/cpu%u/cache/index%d/shared_cpu_list", c, index);
            if (read_set(root, &group, path)) break;
        }
        for (uint32_t s = c; s < LM_CPUS_MAX; s = lm_cpu_set_next(&group, s + 1)) {
            machine->cpus[s].cache = (uint16_t)c;
            lm_cpu_set_add(&cached, s);
        }
    }
}

void lm_machine_read(struct lm_machine *machine, const char *root) {
    memset(machine, 0, sizeof *machine);
    read_allowed(machine, root);
    if (!read_set(root, &machine->online, "/sys/devices/system/cpu/online"))
        machine->online = machine->allowed;
    if (!read_set(root, &machine->present, "/sys/devices/system/cpu/present"))
        machine->present = machine->online;
    lm_cpu_set_keep(&machine->allowed, &machine->online);
    machine->quota = (uint32_t)lm_topology_cpu_quota(root);
    read_isolated(machine, root);
    read_nodes(machine, root);
    read_shared(machine, root);
}
