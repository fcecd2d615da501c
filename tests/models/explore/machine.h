/* machine.h: a machine of a few threads whose every atomic operation is a choice of the explorer.
 *
 * The sources under test are compiled with -fsanitize=thread but linked against machine.c in place
 * of ThreadSanitizer's library, so that the real files with the real base/atomics.h report each
 * atomic operation with its memory order, and each plain access. Scenarios (which are not compiled
 * that way) start threads as coroutines and look at the outcome.
 */
#ifndef TESTS_MODELS_MACHINE_H
#define TESTS_MODELS_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

enum { MACHINE_THREADS_MAX = 6 };

struct machine_clock {
    uint16_t at[MACHINE_THREADS_MAX];
};

/* ---- for main.c ---- */

struct machine_limits {
    uint32_t preemptions; /* switches away from a thread that could go on */
    uint32_t stale_reads; /* loads of a value that is not the newest; 0: sequential consistency */
    uint64_t random_seed; /* not 0: choices are drawn, not enumerated */
    bool trace;
};

void machine_begin(const struct machine_limits *limits);
/* Prescribes the first choices of the next run. */
void machine_replay(const uint16_t *choices, uint32_t count);
/* Runs the threads that were added to their end, or until none can go on or one fails. */
void machine_run(void);
/* NULL, or what went wrong. */
const char *machine_failure(void);
/* The choices of the last run, for the person who replays it. */
void machine_print_choices(void);
/* Moves to the next schedule; false: all were seen. */
bool machine_next(void);

/* ---- for scenarios ---- */

void machine_add_thread(void (*body)(uint32_t argument), uint32_t argument);
bool machine_finished(uint32_t thread);
uint32_t machine_self(void);
/* Ends the run as failed, unless it has failed before. */
void machine_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A scheduling point; `what` is for the trace. */
void machine_point(const char *what);
/* Lets another thread go on, if there is one. Costs no preemption. */
void machine_yield(void);
/* Stops the calling thread until machine_unblock of the same word, by which nothing is ordered. */
void machine_block(const void *on);
uint32_t machine_unblock(const void *on, uint32_t most);
/* The same for a thread that goes on by itself once no other can; false: it did. */
bool machine_block_until_idle(const void *on);
/* Ordinal of the last step taken, and what the calling thread knows of the others' steps. */
uint32_t machine_step(void);
struct machine_clock machine_now(void);
/* Plain accesses of a scenario that are to be checked for races. */
void machine_plain_read(const void *address, uint32_t bytes);
void machine_plain_write(const void *address, uint32_t bytes);

#endif
