/* scenario.h: a few threads, and what must be true when they have ended. */
#ifndef TESTS_MODELS_SCENARIO_H
#define TESTS_MODELS_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As a bound: no bound, but schedules drawn for a second, always the same ones; or none at all. */
enum { SCENARIO_DRAWN = 1000, SCENARIO_SKIPPED = 1001 };

struct scenario {
    const char *name;
    void (*set_up)(uint32_t variant, bool weak); /* opens what is needed and adds the threads */
    void (*check)(void);                         /* after each run; also frees what set_up opened */
    uint32_t variant;
    const char *must_fail; /* NULL, or what is not claimed, or is not right yet: to be shown */
    uint32_t preemptions, weak_preemptions; /* bounds of the short form */
    uint32_t full_preemptions, full_weak_preemptions;
};

extern const struct scenario scenarios_queue[], scenarios_sleep[], scenarios_flow[],
    scenarios_rest[], scenarios_steal[], scenarios_line[], scenarios_sequences[],
    scenarios_greeted[];
extern const uint32_t scenarios_queue_count, scenarios_sleep_count, scenarios_flow_count,
    scenarios_rest_count, scenarios_steal_count, scenarios_line_count, scenarios_sequences_count,
    scenarios_greeted_count;

#endif
