/* chance.c: the one generator that all choices are drawn from, virtual time, the trace of the last
 * events, and the end of a run that failed.
 */
#include <stdarg.h>
#include <stdlib.h>

#include "sim.h"

enum { EVENTS_MAX = 400 };

struct event {
    uint64_t at_ns;
    const char *who;
    const char *format;
    uint64_t values[5];
};

uint64_t sim_now_ns;
bool sim_tracing;
const char *sim_rule;
static uint64_t state, first;
static struct event events[EVENTS_MAX];
static uint64_t event_count;
static char failure[2400];

void sim_seed(uint64_t seed) {
    first = seed;
    /* Seeds are 1, 2, 3, ...: far apart after this (splitmix64's last steps). */
    state = (seed + 1) * 0x9e3779b97f4a7c15ull;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebull;
    state |= 1;
    event_count = 0;
    sim_now_ns = 1000 * SIM_S;
}

uint64_t sim_random(void) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dull;
}

uint32_t sim_below(uint32_t bound) {
    return bound < 2 ? 0 : (uint32_t)(((sim_random() >> 32) * bound) >> 32);
}

uint64_t sim_between(uint64_t low, uint64_t high) {
    return low + sim_random() % (high - low + 1);
}

bool sim_one_in(uint32_t n) {
    return n > 0 && sim_below(n) == 0;
}

static void print_event(FILE *file, const struct event *event) {
    const uint64_t *v = event->values;
    fprintf(file, "%12.3f us  %-9s ", (double)(event->at_ns - 1000 * SIM_S) / 1e3, event->who);
    fprintf(file, event->format, (unsigned long long)v[0], (unsigned long long)v[1],
            (unsigned long long)v[2], (unsigned long long)v[3], (unsigned long long)v[4]);
    fputc('\n', file);
}

void sim_trace_add(const char *format, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e) {
    struct event *event = &events[event_count++ % EVENTS_MAX];
    const struct fiber *self = fiber_self();
    *event = (struct event){sim_now_ns, self ? self->name : "world", format, {a, b, c, d, e}};
    if (sim_tracing) print_event(stdout, event);
}

void sim_trace_print(FILE *file) {
    uint64_t from = event_count > EVENTS_MAX ? event_count - EVENTS_MAX : 0;
    fprintf(file, "---- the last %llu of %llu events of seed %llu ----\n",
            (unsigned long long)(event_count - from), (unsigned long long)event_count,
            (unsigned long long)first);
    for (uint64_t i = from; i < event_count; i++) print_event(file, &events[i % EVENTS_MAX]);
    sim_plan_print(file);
    if (failure[0]) fprintf(file, "sim: %s\n", failure);
    if (sim_rule) {
        fprintf(file, "FAILED   rule '%s'; replay: build/sim --rules --trace\n", sim_rule);
        return;
    }
    fprintf(file, "FAILED   seed %llu; replay: build/sim --seed %llu --trace\n",
            (unsigned long long)first, (unsigned long long)first);
}

void sim_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
    abort(); /* main.c's handler prints it, after the trace */
}
