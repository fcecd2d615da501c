/* main.c: walks all schedules of the scenarios and says how many there were.
 *
 *   explore [short|full] [scenario...]     bounded search, first sequentially consistent, then weak
 *                                          full stops a walk after a minute, and says so
 *   explore --bound PREEMPTIONS [scenario...] the same with another bound, sequentially consistent
 *   explore --random SECONDS [scenario...] schedules drawn without a bound, for longer
 *   explore --replay SCENARIO sc|weak LIMITS:CHOICES   one schedule again, step by step
 * Exit status 1: a schedule fails, and is printed in a form to replay.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "machine.h"
#include "scenario.h"
#include "world.h"

enum {
    UNBOUNDED = SCENARIO_DRAWN,
    STALE_SHORT = 2,
    STALE_FULL = 3,
    FULL_SECONDS = 60,
    REPLAY_MAX = 4096
};

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void run_once(const struct scenario *scenario, bool weak) {
    world_reset();
    scenario->set_up(scenario->variant, weak);
    machine_run();
    scenario->check();
}

/* The limits belong to the choices: where a limit is reached there is no choice. */
static void print_failure(const struct scenario *scenario, bool weak,
                          const struct machine_limits *limits) {
    printf("FAILED   %s (%s): %s\n", scenario->name, weak ? "weak" : "sc", machine_failure());
    printf("         --replay %s %s %u/%u:", scenario->name, weak ? "weak" : "sc",
           limits->preemptions, limits->stale_reads);
    machine_print_choices();
    putchar('\n');
}

/* true: as expected. */
static bool walk(const struct scenario *scenario, bool weak, const struct machine_limits *limits,
                 double seconds) {
    double began = now();
    uint64_t runs = 0;
    bool more = true, failed = false;
    machine_begin(limits);
    while (more && !failed) {
        run_once(scenario, weak);
        runs++;
        failed = machine_failure() != NULL;
        if (seconds > 0 && (runs & 255) == 0 && now() - began > seconds) break;
        if (!failed) more = machine_next();
    }
    if (failed && !scenario->must_fail) print_failure(scenario, weak, limits);
    printf("%-8s %-26s %-4s %9llu schedules, %u preemptions, %u stale reads%s, %.2f s\n",
           failed ? (scenario->must_fail ? "shown" : "FAILED")
                  : (scenario->must_fail ? (weak ? "not seen" : "MISSED") : "ok"),
           scenario->name, weak ? "weak" : "sc", (unsigned long long)runs, limits->preemptions,
           limits->stale_reads, !more || failed ? "" : " (not all)", now() - began);
    if (failed && scenario->must_fail) {
        printf("         %s\n         --replay %s %s %u/%u:", scenario->must_fail, scenario->name,
               weak ? "weak" : "sc", limits->preemptions, limits->stale_reads);
        machine_print_choices();
        putchar('\n');
    }
    fflush(stdout);
    /* What a weaker bound cannot show the sequentially consistent walk has shown. */
    return weak && scenario->must_fail ? true : failed == (scenario->must_fail != NULL);
}

static bool run_scenario(const struct scenario *scenario, bool full, uint32_t bound,
                         double random_seconds) {
    bool good = true;
    if (bound > 0) {
        struct machine_limits limits = {.preemptions = bound};
        return walk(scenario, false, &limits, 0);
    }
    for (int weak = 0; weak <= 1; weak++) {
        struct machine_limits limits = {.stale_reads =
                                            weak ? (full ? STALE_FULL : STALE_SHORT) : 0};
        if (weak && scenario->weak_preemptions == SCENARIO_SKIPPED) continue;
        if (random_seconds > 0) {
            limits.preemptions = limits.stale_reads = UNBOUNDED;
            if (!weak) limits.stale_reads = 0;
            limits.random_seed = (uint64_t)(now() * 1e9) | 1;
        } else if (full) {
            limits.preemptions =
                weak ? scenario->full_weak_preemptions : scenario->full_preemptions;
        } else {
            limits.preemptions = weak ? scenario->weak_preemptions : scenario->preemptions;
        }
        bool drawn = limits.preemptions == SCENARIO_DRAWN && random_seconds == 0;
        if (drawn) limits.random_seed = 1;
        good &= walk(scenario, weak != 0, &limits,
                     drawn  ? 1
                     : full ? FULL_SECONDS
                            : random_seconds);
    }
    return good;
}

static const struct {
    const struct scenario *list;
    const uint32_t *count;
} groups[] = {
    {scenarios_queue, &scenarios_queue_count},
    {scenarios_sleep, &scenarios_sleep_count},
    {scenarios_flow, &scenarios_flow_count},
    {scenarios_rest, &scenarios_rest_count},
    {scenarios_steal, &scenarios_steal_count},
    {scenarios_line, &scenarios_line_count},
    {scenarios_sequences, &scenarios_sequences_count},
    {scenarios_greeted, &scenarios_greeted_count},
};

static const struct scenario *nth(uint32_t n) {
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; n -= *groups[g++].count)
        if (n < *groups[g].count) return &groups[g].list[n];
    return NULL;
}

static int replay(const char *name, bool weak, const char *text) {
    static uint16_t choices[REPLAY_MAX];
    struct machine_limits limits = {.trace = true};
    uint32_t count = 0;
    char *end;
    limits.preemptions = (uint32_t)strtoul(text, &end, 10);
    if (*end == '/') limits.stale_reads = (uint32_t)strtoul(end + 1, &end, 10);
    for (text = *end ? end + 1 : end; count < REPLAY_MAX && *text;) {
        choices[count++] = (uint16_t)strtoul(text, &end, 10);
        text = *end ? end + 1 : end;
    }
    for (uint32_t n = 0; nth(n); n++) {
        if (strcmp(nth(n)->name, name) != 0) continue;
        machine_begin(&limits);
        machine_replay(choices, count);
        run_once(nth(n), weak);
        if (machine_failure()) print_failure(nth(n), weak, &limits);
        return machine_failure() != NULL;
    }
    fprintf(stderr, "explore: no scenario '%s'\n", name);
    return 2;
}

static bool is_wanted(const struct scenario *scenario, int count, char **names) {
    for (int n = 0; n < count; n++) {
        if (strncmp(scenario->name, names[n], strlen(names[n])) == 0) return true;
    }
    return count == 0;
}

int main(int argc, char **argv) {
    bool full = false;
    uint32_t bound = 0;
    double random_seconds = 0;
    int at = 1;
    if (argc == 5 && strcmp(argv[1], "--replay") == 0) {
        return replay(argv[2], strcmp(argv[3], "weak") == 0, argv[4]);
    }
    if (at + 1 < argc && strcmp(argv[at], "--random") == 0) {
        random_seconds = atof(argv[at + 1]);
        at += 2;
    } else if (at + 1 < argc && strcmp(argv[at], "--bound") == 0) {
        bound = (uint32_t)atoi(argv[at + 1]);
        at += 2;
    } else if (at < argc && (strcmp(argv[at], "full") == 0 || strcmp(argv[at], "short") == 0)) {
        full = strcmp(argv[at++], "full") == 0;
    }
    bool good = true;
    for (uint32_t n = 0; nth(n); n++) {
        if (!is_wanted(nth(n), argc - at, argv + at)) continue;
        good &= run_scenario(nth(n), full, bound, random_seconds);
    }
    return good ? 0 : 1;
}
