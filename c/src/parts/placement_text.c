/* placement_text.c: see placement.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "parts/placement.h"

struct text {
    char *at;
    size_t capacity, used;
};

__attribute__((format(printf, 2, 3))) static void say(struct text *text, const char *format, ...) {
    size_t left = text->used < text->capacity ? text->capacity - text->used : 0;
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(left ? text->at + text->used : NULL, left, format, arguments);
    va_end(arguments);
    text->used += bytes > 0 ? (size_t)bytes : 0;
}

static void say_cores(struct text *text, const struct lm_machine *machine,
                      const struct lm_placement_wish *wish, const struct lm_placement *placement) {
    char list[256];
    struct lm_cpu_set offline = machine->present, outside = machine->isolated;
    lm_cpu_set_text(&placement->cores, list, sizeof list);
    bool named = wish->cores && strcmp(wish->cores, "auto") != 0;
    say(text, "cores: %s, %s\n", list,
        named ? "as engine.cores says" : "which is the affinity mask of this process");
    lm_cpu_set_drop(&offline, &machine->online);
    if (lm_cpu_set_count(&offline)) {
        lm_cpu_set_text(&offline, list, sizeof list);
        say(text, "cores %s are offline\n", list);
    }
    if (lm_cpu_set_count(&machine->isolated)) {
        lm_cpu_set_text(&machine->isolated, list, sizeof list);
        say(text, "cores %s are kept free by the kernel (isolcpus, nohz_full) and come first\n",
            list);
    }
    lm_cpu_set_drop(&outside, &placement->cores);
    if (lm_cpu_set_count(&outside)) {
        lm_cpu_set_text(&outside, list, sizeof list);
        say(text, "cores %s of these are not in the mask: engine.cores: isolated takes them\n",
            list);
    }
    if (machine->quota && machine->quota <= lm_cpu_set_count(&placement->cores))
        say(text, "the cgroup pays for %u of them (cpu.max)\n", machine->quota);
    if (placement->note[0]) say(text, "%s\n", placement->note);
}

static void say_nodes(struct text *text, const struct lm_machine *machine,
                      const struct lm_placement_wish *wish, const struct lm_placement *placement) {
    uint32_t used = placement->node_count;
    if (wish->nodes) {
        say(text, "nodes: %u, as engine.nodes says\n", used);
    } else if (machine->node_count == 1) {
        say(text, "nodes: 1, since the machine has one\n");
    } else if (wish->nodes_most == 1) {
        say(text, "nodes: 1, since the queue or server.io_threads allows no more\n");
    } else {
        say(text, "nodes: %u, as few as have the cores for %u workers\n", used,
            placement->worker_count);
    }
}

static const char *why_core(const struct lm_machine *machine, const struct lm_placement_node *node,
                            uint32_t at) {
    uint32_t cpu = (uint32_t)node->cores[at];
    for (uint32_t before = 0; before < at; before++) {
        if (machine->cpus[node->cores[before]].sibling == machine->cpus[cpu].sibling)
            return "no physical core is left without a worker";
    }
    return lm_cpu_set_has(&machine->isolated, cpu) ? "the kernel keeps it free"
                                                   : "it shares its physical core with no other";
}

/* Threads in a row that have the same reason take one line. */
static void say_threads(struct text *text, const struct lm_machine *machine,
                        const struct lm_placement *placement, uint32_t n, const char *what,
                        const struct lm_place *places, uint32_t first, uint32_t count,
                        const char *why_none) {
    const struct lm_placement_node *node = &placement->nodes[n];
    for (uint32_t from = 0, to; from < count; from = to) {
        struct lm_cpu_set cores = {0};
        char list[128];
        bool pinned = places[first + from].cpu >= 0;
        const char *why = pinned ? why_core(machine, node, from) : why_none;
        for (to = from; to < count; to++) {
            if (pinned && why_core(machine, node, to) != why) break;
            if (pinned) lm_cpu_set_add(&cores, (uint32_t)places[first + to].cpu);
        }
        if (!pinned) cores = node->cpus;
        lm_cpu_set_text(&cores, list, sizeof list);
        say(text, "  %s%s %u", what, to - from > 1 ? "s" : "", first + from);
        if (to - from > 1) say(text, "-%u", first + to - 1);
        if (pinned && to - from > 1) {
            say(text, ": cores %s, one each: %s\n", list, why);
        } else {
            say(text, ": core%s %s: %s\n", lm_cpu_set_count(&cores) > 1 ? "s" : "", list, why);
        }
    }
}

size_t lm_placement_text(const struct lm_machine *machine, const struct lm_placement_wish *wish,
                         const struct lm_placement *placement, char *text, size_t capacity) {
    struct text to = {.at = text, .capacity = capacity};
    uint32_t worker = 0, io = 0;
    say_cores(&to, machine, wish, placement);
    say_nodes(&to, machine, wish, placement);
    for (uint32_t n = 0; n < placement->node_count; n++) {
        const struct lm_placement_node *node = &placement->nodes[n];
        char list[256];
        lm_cpu_set_text(&node->cpus, list, sizeof list);
        say(&to, "node %u: cores %s", n, list);
        if (node->memory >= 0) {
            say(&to, ", memory of the machine's node %d\n", node->memory);
        } else {
            say(&to, "\n");
        }
        say_threads(&to, machine, placement, n, "I/O thread", placement->ios, io, node->io_count,
                    wish->io_runs_models ? "there are more I/O threads than cores"
                                         : "the kernel moves it to a core that is idle");
        say_threads(&to, machine, placement, n, "worker", placement->workers, worker,
                    node->worker_count, "there are more workers than cores");
        io += node->io_count;
        worker += node->worker_count;
    }
    return to.used;
}
