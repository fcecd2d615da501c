/* placement.c: see placement.h. */
#include "parts/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* A core, and where it stands in the order. */
struct candidate {
    uint32_t cpu;
    uint32_t node; /* of the machine, where its memory is */
    uint32_t rank; /* how many of its physical core come before it */
    uint32_t cache;
    bool isolated;
};

struct candidates {
    uint32_t count;
    struct candidate list[LM_CPUS_MAX];
};

/* ---- which cores ---- */

static int refuse(const struct lm_cpu_set *may, const char *which, const struct lm_cpu_set *found,
                  const char *why) {
    char allowed[128], named[64];
    lm_cpu_set_text(may, allowed, sizeof allowed);
    lm_cpu_set_text(found, named, sizeof named);
    return lm_error(LUMEN_E_INVALID, "engine.cores: expected cores of %s%s, found %s, which %s",
                    allowed, which, named, why);
}

/* The cores that engine.cores names; each must be there for this process. */
static int take_named(const struct lm_machine *machine, const char *list,
                      struct lm_cpu_set *cores) {
    struct lm_cpu_set named = {0}, rest, may = machine->allowed;
    if (!lm_cpu_set_parse(&named, list) || lm_cpu_set_next(&named, 0) == LM_CPUS_MAX) {
        return lm_error(LUMEN_E_INVALID,
                        "engine.cores: expected auto, isolated or a list such as 0-3,8, found "
                        "'%.60s'",
                        list);
    }
    for (uint32_t c = lm_cpu_set_next(&machine->isolated, 0); c < LM_CPUS_MAX;
         c = lm_cpu_set_next(&machine->isolated, c + 1))
        lm_cpu_set_add(&may, c);
    rest = named;
    lm_cpu_set_drop(&rest, &machine->present);
    if (lm_cpu_set_count(&rest) > 0) return refuse(&may, "", &rest, "this machine does not have");
    rest = named;
    lm_cpu_set_drop(&rest, &machine->online);
    if (lm_cpu_set_count(&rest) > 0) return refuse(&may, "", &rest, "are offline");
    rest = named;
    lm_cpu_set_drop(&rest, &may);
    if (lm_cpu_set_count(&rest) > 0) {
        return refuse(&may, " (the affinity mask or the cpuset of this process)", &rest,
                      "this process may not use");
    }
    *cores = named;
    return 0;
}

static int find_cores(const struct lm_machine *machine, const struct lm_placement_wish *wish,
                      struct lm_placement *placement) {
    const char *cores = wish->cores;
    placement->cores = machine->allowed;
    if (!cores || strcmp(cores, "auto") == 0) return 0;
    placement->confined = true;
    if (strcmp(cores, "isolated") != 0) return take_named(machine, cores, &placement->cores);
    placement->cores = machine->isolated;
    if (lm_cpu_set_count(&machine->isolated) > 0) return 0;
    placement->cores = machine->allowed;
    placement->confined = false;
    snprintf(
        placement->note, sizeof placement->note,
        "engine.cores isolated: this kernel keeps no core free (isolcpus= or nohz_full= on its "
        "command line): all cores that this process may use are taken");
    return 0;
}

/* ---- in which order ---- */

/* Where a core's memory is: on its own node, or the nearest one that has any. */
static uint32_t memory_node(const struct lm_machine *machine, uint32_t cpu) {
    uint32_t own = machine->cpus[cpu].node, best = own;
    for (uint32_t n = 0; !machine->nodes[best].has_memory && n < machine->node_count; n++) {
        if (!machine->nodes[n].has_memory) continue;
        best = n;
        for (uint32_t m = n + 1; m < machine->node_count; m++) {
            if (machine->nodes[m].has_memory &&
                machine->nodes[own].distances[m] < machine->nodes[own].distances[best])
                best = m;
        }
    }
    return best;
}

static int compare(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;
    if (a->isolated != b->isolated) return a->isolated ? -1 : 1;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->cache != b->cache) return a->cache < b->cache ? -1 : 1;
    return a->cpu < b->cpu ? -1 : a->cpu > b->cpu;
}

static void sort_cores(const struct lm_machine *machine, const struct lm_cpu_set *cores,
                       struct candidates *candidates) {
    uint8_t ranks[LM_CPUS_MAX] = {0}; /* by the first core of those that share a physical one */
    candidates->count = 0;
    for (uint32_t c = lm_cpu_set_next(cores, 0); c < LM_CPUS_MAX;
         c = lm_cpu_set_next(cores, c + 1)) {
        candidates->list[candidates->count++] =
            (struct candidate){.cpu = c,
                               .node = memory_node(machine, c),
                               .rank = ranks[machine->cpus[c].sibling]++,
                               .cache = machine->cpus[c].cache,
                               .isolated = lm_cpu_set_has(&machine->isolated, c)};
    }
    qsort(candidates->list, candidates->count, sizeof candidates->list[0], compare);
}

/* ---- which nodes ---- */

static void add_core(struct lm_placement_node *node, uint32_t cpu) {
    lm_cpu_set_add(&node->cpus, cpu);
    if (node->core_count < LUMEN_WORKERS_MAX) node->cores[node->core_count++] = (int32_t)cpu;
}

/* Nodes of the machine by how many of the cores they have, most first. */
static uint32_t rank_nodes(const struct candidates *candidates, uint32_t *order, uint32_t *counts) {
    uint32_t count = 0;
    memset(counts, 0, LM_MACHINE_NODES_MAX * sizeof *counts);
    for (uint32_t c = 0; c < candidates->count; c++) counts[candidates->list[c].node]++;
    for (uint32_t n = 0; n < LM_MACHINE_NODES_MAX; n++) {
        if (counts[n] == 0) continue;
        uint32_t at = count++;
        for (; at > 0 && counts[order[at - 1]] < counts[n]; at--) order[at] = order[at - 1];
        order[at] = n;
    }
    return count;
}

/* A node for each of the machine's, as few as have the cores that are wanted. */
static void take_nodes(const struct lm_machine *machine, const struct candidates *candidates,
                       uint32_t wanted, uint32_t most, struct lm_placement *placement) {
    uint32_t order[LM_MACHINE_NODES_MAX], counts[LM_MACHINE_NODES_MAX], held = 0;
    uint32_t places[LM_MACHINE_NODES_MAX], there = rank_nodes(candidates, order, counts);
    uint32_t taken[LM_NODES_MAX], count = 0;
    for (uint32_t n = 0; n < there && count < most && (count == 0 || held < wanted); n++) {
        taken[count++] = order[n];
        held += counts[order[n]];
    }
    memset(places, 0xff, sizeof places);
    placement->node_count = 0;
    for (uint32_t n = 0; n < LM_MACHINE_NODES_MAX; n++) {
        for (uint32_t t = 0; t < count; t++) {
            if (taken[t] != n) continue;
            places[n] = placement->node_count;
            placement->nodes[placement->node_count++].memory =
                machine->node_count > 1 ? (int32_t)machine->nodes[n].id : -1;
        }
    }
    for (uint32_t c = 0; c < candidates->count; c++) {
        uint32_t place = places[candidates->list[c].node];
        if (place != UINT32_MAX) add_core(&placement->nodes[place], candidates->list[c].cpu);
    }
    for (uint32_t c = lm_cpu_set_next(&machine->online, 0); c < LM_CPUS_MAX;
         c = lm_cpu_set_next(&machine->online, c + 1)) {
        uint32_t place = places[memory_node(machine, c)];
        if (place != UINT32_MAX) lm_cpu_set_add(&placement->nodes[place].receives, c);
    }
}

/* So many nodes whatever the machine has: parts of the list of cores, in its order. Cores of
 * several of the machine's nodes in one of them leave it without memory of its own. */
static void cut_nodes(const struct lm_machine *machine, const struct candidates *candidates,
                      uint32_t count, struct lm_placement *placement) {
    uint32_t order[LM_MACHINE_NODES_MAX], counts[LM_MACHINE_NODES_MAX], at = 0;
    uint32_t there = rank_nodes(candidates, order, counts), cores = candidates->count;
    placement->node_count = count;
    for (uint32_t n = 0; n < count; n++) placement->nodes[n].memory = -2; /* none yet */
    for (uint32_t m = 0; m < there; m++) {
        for (uint32_t c = 0; c < cores; c++) {
            const struct candidate *core = &candidates->list[c];
            if (core->node != order[m]) continue;
            struct lm_placement_node *node = &placement->nodes[(uint64_t)at++ * count / cores];
            int32_t memory = machine->node_count > 1 ? (int32_t)machine->nodes[core->node].id : -1;
            node->memory = node->memory == -2 || node->memory == memory ? memory : -1;
            add_core(node, core->cpu);
        }
    }
    /* More nodes than cores: they share them, which is for tests. */
    for (uint32_t n = 0; n < count; n++) {
        if (placement->nodes[n].core_count > 0) continue;
        placement->nodes[n].memory = -1;
        add_core(&placement->nodes[n], candidates->list[n % cores].cpu);
    }
    for (uint32_t n = 0; n < count; n++) placement->nodes[n].receives = placement->nodes[n].cpus;
}

/* By the machine's distances between the memories, then by number. */
static uint32_t distance(const struct lm_machine *machine, int32_t from, int32_t to) {
    for (uint32_t f = 0; f < machine->node_count; f++) {
        for (uint32_t t = 0; (int32_t)machine->nodes[f].id == from && t < machine->node_count;
             t++) {
            if ((int32_t)machine->nodes[t].id == to) return machine->nodes[f].distances[t];
        }
    }
    return 0;
}

static void find_nearest(const struct lm_machine *machine, struct lm_placement *placement) {
    for (uint32_t n = 0; n < placement->node_count; n++) {
        uint32_t *nearest = placement->nodes[n].nearest, count = 0;
        int32_t own = placement->nodes[n].memory;
        for (uint32_t other = 0; other < placement->node_count; other++) {
            if (other == n) continue;
            uint32_t far = distance(machine, own, placement->nodes[other].memory), at = count++;
            for (; at > 0 && distance(machine, own, placement->nodes[nearest[at - 1]].memory) > far;
                 at--)
                nearest[at] = nearest[at - 1];
            nearest[at] = other;
        }
    }
}

/* ---- which threads ---- */

/* The node that has most cores for each of its threads. */
static uint32_t emptiest(const struct lm_placement *placement, const uint32_t *held) {
    uint32_t best = 0;
    for (uint32_t n = 1; n < placement->node_count; n++) {
        if ((uint64_t)placement->nodes[n].core_count * (held[best] + 1) >
            (uint64_t)placement->nodes[best].core_count * (held[n] + 1))
            best = n;
    }
    return best;
}

/* Spreads `count` threads: as many for each node as its cores say, at least one. Returns whether
 * each can have a core of its own. */
static bool spread(const struct lm_placement *placement, uint32_t count, uint32_t *held) {
    bool fits = true;
    for (uint32_t n = 0; n < placement->node_count; n++) held[n] = n < count;
    for (uint32_t t = placement->node_count; t < count; t++) held[emptiest(placement, held)]++;
    for (uint32_t n = 0; n < placement->node_count; n++)
        fits = fits && held[n] <= placement->nodes[n].core_count;
    return fits;
}

static void seat(const struct lm_placement *placement, const uint32_t *held, bool pinned,
                 struct lm_place *places) {
    uint32_t t = 0;
    for (uint32_t n = 0; n < placement->node_count; n++) {
        for (uint32_t h = 0; h < held[n]; h++)
            places[t++] = (struct lm_place){pinned ? placement->nodes[n].cores[h] : -1, n};
    }
}

/* Workers that may come later, on the cores of the affinity mask that have none: the quota of a
 * cgroup may grow. With several nodes the number stays. */
static void seat_spare(struct lm_placement *placement, bool pinned) {
    const struct lm_placement_node *node = &placement->nodes[0];
    const uint32_t first = placement->worker_count;
    if (first == 0 || placement->node_count > 1) return;
    for (uint32_t w = first; w < node->core_count; w++)
        placement->workers[w] = (struct lm_place){pinned ? node->cores[w] : -1, 0};
    if (node->core_count > first) placement->spare_count = node->core_count - first;
}

static uint32_t at_most(uint32_t number, uint32_t most) {
    return number < most ? number : most;
}

/* How many nodes the settings ask for; 0: as many as the machine has. */
static uint32_t nodes_asked(const struct lm_placement_wish *wish, uint32_t workers,
                            struct lm_placement *placement) {
    uint32_t most = at_most(wish->nodes_most, wish->no_workers ? LM_NODES_MAX : workers);
    if (wish->nodes <= most) return wish->nodes;
    snprintf(placement->note, sizeof placement->note,
             "engine.nodes %u: %u, since each node has a worker and an I/O thread, and the queues "
             "spsc, naive and batched have one node",
             wish->nodes, most);
    return most;
}

int lm_placement_plan(const struct lm_machine *machine, const struct lm_placement_wish *wish,
                      struct lm_placement *placement) {
    uint32_t held[LM_NODES_MAX];
    memset(placement, 0, sizeof *placement);
    int code = find_cores(machine, wish, placement);
    if (code) return code;
    struct candidates *candidates = malloc(sizeof *candidates);
    if (!candidates) return lm_error(LUMEN_E_NOMEM, "no memory for a plan of cores");
    sort_cores(machine, &placement->cores, candidates);
    bool known = candidates->count > 0;
    if (!known) candidates->list[candidates->count++] = (struct candidate){0};
    uint32_t paid = machine->quota ? at_most(candidates->count, machine->quota) : candidates->count;
    uint32_t wanted = wish->workers ? wish->workers : paid;
    placement->core_count = paid;
    uint32_t workers = at_most(wanted, LUMEN_WORKERS_MAX);
    uint32_t nodes = nodes_asked(wish, workers, placement);
    if (nodes == 0) {
        take_nodes(machine, candidates, wanted,
                   at_most(wish->nodes_most, wish->no_workers ? LM_NODES_MAX : workers), placement);
    } else {
        cut_nodes(machine, candidates, nodes, placement);
    }
    free(candidates);
    find_nearest(machine, placement);
    placement->confined = placement->confined || placement->node_count > 1;
    placement->worker_count = wish->no_workers ? 0 : workers;
    bool fits = spread(placement, placement->worker_count, held);
    for (uint32_t n = 0; n < placement->node_count; n++)
        placement->nodes[n].worker_count = placement->worker_count ? held[n] : 0;
    if (placement->worker_count)
        seat(placement, held, known && fits && workers <= paid, placement->workers);
    seat_spare(placement, known && workers <= paid);
    placement->io_count = wish->io_count;
    if (placement->io_count == 0) return 0;
    fits = spread(placement, placement->io_count, held);
    for (uint32_t n = 0; n < placement->node_count; n++) placement->nodes[n].io_count = held[n];
    seat(placement, held, known && fits && wish->io_runs_models && placement->io_count <= paid,
         placement->ios);
    return 0;
}
