/* scheduler.c: threads as coroutines, and the walk over all their schedules.
 *
 * A run is a sequence of choices: at each scheduling point which thread goes on (the one that runs
 * comes first), at each load which value it sees (the newest comes first). The walk is depth first
 * without stored states: a run replays the choices of the one before up to the last that has an
 * alternative left. Preemptions and stale reads are limited per run; a switch away from a thread
 * that waits or has ended is free.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "machine_inner.h"

enum { STACK_BYTES = 64 << 10, CHOICES_MAX = 4096, STEPS_MAX = 3000 };

enum state { RUNNABLE, BLOCKED, FINISHED };

struct fiber {
    ucontext_t context;
    void (*body)(uint32_t argument);
    uint32_t argument;
    enum state state;
    const void *blocked_on;
    bool timed; /* goes on when no other can */
};

struct choice {
    uint16_t taken, options;
};

static _Alignas(16) char stacks[MACHINE_THREADS_MAX][STACK_BYTES];
static struct fiber fibers[MACHINE_THREADS_MAX];
static uint32_t fiber_count, current;
static bool running;
static ucontext_t outside;

static struct machine_limits limits;
static uint32_t preemptions, stale_reads, steps;
static struct choice choices[CHOICES_MAX];
static uint32_t choice_count, prescribed;
static uint64_t random_state;
static char failure[256];

bool machine_running(void) {
    return running;
}
bool machine_tracing(void) {
    return limits.trace;
}
uint32_t machine_self(void) {
    return current;
}
uint32_t machine_step(void) {
    return steps;
}
struct machine_clock machine_now(void) {
    return machine_known[current].clock;
}
bool machine_finished(uint32_t thread) {
    return fibers[thread].state == FINISHED;
}
bool machine_on_stack(const void *address) {
    uintptr_t at = (uintptr_t)address, base = (uintptr_t)stacks;
    return at >= base && at < base + sizeof stacks;
}
bool machine_stale_allowed(void) {
    return stale_reads < limits.stale_reads;
}
void machine_stale_taken(void) {
    stale_reads++;
}

void machine_trace(const char *format, ...) {
    if (!limits.trace || !running) return;
    va_list arguments;
    va_start(arguments, format);
    printf("  %3u  thread %u: ", steps, current);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
}

void machine_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!failure[0]) vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
    if (running) {
        running = false;
        swapcontext(&fibers[current].context, &outside);
    }
}

const char *machine_failure(void) {
    return failure[0] ? failure : NULL;
}

/* ---- choices ---- */

void machine_begin(const struct machine_limits *wanted) {
    limits = *wanted;
    random_state = wanted->random_seed;
    choice_count = prescribed = 0;
}

void machine_replay(const uint16_t *taken, uint32_t count) {
    for (uint32_t c = 0; c < count; c++) choices[c] = (struct choice){.taken = taken[c]};
    prescribed = count;
}

static uint32_t draw(uint32_t options) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    /* Mostly the first: a schedule of switches alone gets nowhere. */
    if ((random_state >> 60) < 11) return 0;
    return (uint32_t)((random_state >> 20) % options);
}

uint32_t machine_choose(uint32_t options) {
    if (options <= 1) return 0;
    if (choice_count == CHOICES_MAX) machine_fail("CHOICES_MAX is too small");
    struct choice *choice = &choices[choice_count];
    if (choice_count++ >= prescribed) choice->taken = (uint16_t)(random_state ? draw(options) : 0);
    choice->options = (uint16_t)options;
    if (choice->taken >= options) machine_fail("the choices belong to another program");
    return choice->taken;
}

bool machine_next(void) {
    if (random_state) {
        prescribed = 0;
        return true;
    }
    while (choice_count > 0) {
        struct choice *last = &choices[choice_count - 1];
        if (last->taken + 1u < last->options) {
            last->taken++;
            prescribed = choice_count;
            return true;
        }
        choice_count--;
    }
    return false;
}

void machine_print_choices(void) {
    uint32_t count = choice_count;
    while (count > 0 && choices[count - 1].taken == 0) count--;
    for (uint32_t c = 0; c < count; c++) printf("%s%u", c ? "," : "", choices[c].taken);
    if (count == 0) printf("0");
}

/* ---- threads ---- */

static void enter(void) {
    fibers[current].body(fibers[current].argument);
    fibers[current].state = FINISHED;
    machine_block(NULL);
}

void machine_add_thread(void (*body)(uint32_t argument), uint32_t argument) {
    if (fiber_count == MACHINE_THREADS_MAX) abort();
    struct fiber *fiber = &fibers[fiber_count];
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = stacks[fiber_count];
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, enter, 0);
    fiber->body = body;
    fiber->argument = argument;
    fiber->state = RUNNABLE;
    fiber->timed = false;
    fiber_count++;
}

static void switch_to(uint32_t next) {
    uint32_t from = current;
    if (next == from) return;
    current = next;
    swapcontext(&fibers[from].context, &fibers[next].context);
}

static uint32_t runnable(uint32_t *list, bool with_current) {
    uint32_t count = 0;
    if (with_current) list[count++] = current;
    for (uint32_t f = 0; f < fiber_count; f++) {
        if (f != current && fibers[f].state == RUNNABLE) list[count++] = f;
    }
    return count;
}

void machine_point(const char *what) {
    uint32_t list[MACHINE_THREADS_MAX];
    (void)what;
    if (++steps > STEPS_MAX) machine_fail("no end after %u steps: a livelock", steps);
    if (preemptions >= limits.preemptions) return;
    uint32_t chosen = machine_choose(runnable(list, true));
    if (chosen == 0) return;
    preemptions++;
    switch_to(list[chosen]);
}

void machine_yield(void) {
    uint32_t list[MACHINE_THREADS_MAX], count = runnable(list, false);
    if (++steps > STEPS_MAX) machine_fail("no end after %u steps: a livelock", steps);
    if (count > 0) switch_to(list[machine_choose(count)]);
}

void machine_block(const void *on) {
    uint32_t list[MACHINE_THREADS_MAX];
    if (fibers[current].state != FINISHED) {
        machine_trace("sleeps");
        fibers[current].state = BLOCKED;
        fibers[current].blocked_on = on;
    }
    uint32_t count = runnable(list, false);
    for (uint32_t f = 0; count == 0 && f < fiber_count; f++) {
        if (fibers[f].state != BLOCKED || !fibers[f].timed) continue;
        fibers[f].state = RUNNABLE;
        fibers[f].blocked_on = NULL;
        if (f == current) return;
        list[count++] = f;
    }
    if (count == 0) {
        running = false;
        swapcontext(&fibers[current].context, &outside);
    } else {
        switch_to(list[machine_choose(count)]);
    }
}

bool machine_block_until_idle(const void *on) {
    uint32_t self = current;
    fibers[self].timed = true;
    machine_block(on);
    fibers[self].timed = false;
    return fibers[self].blocked_on != NULL;
}

uint32_t machine_unblock(const void *on, uint32_t most) {
    uint32_t woken = 0;
    while (woken < most) {
        uint32_t list[MACHINE_THREADS_MAX], count = 0;
        for (uint32_t f = 0; f < fiber_count; f++) {
            if (fibers[f].state == BLOCKED && fibers[f].blocked_on == on) list[count++] = f;
        }
        if (count == 0) break;
        /* Who is woken matters only when it is not everyone. */
        uint32_t chosen = most >= count ? 0 : machine_choose(count);
        fibers[list[chosen]].state = RUNNABLE;
        woken++;
    }
    return woken;
}

void machine_run(void) {
    preemptions = stale_reads = steps = 0;
    choice_count = 0;
    failure[0] = 0;
    machine_memory_reset();
    current = 0;
    running = true;
    /* The first thread is a free choice. */
    uint32_t list[MACHINE_THREADS_MAX];
    for (uint32_t f = 0; f < fiber_count; f++) list[f] = f;
    current = list[machine_choose(fiber_count)];
    swapcontext(&outside, &fibers[current].context);
    running = false;
    fiber_count = 0;
}
