/* linearizability.c: histories of real threads on real queues, checked against a bounded FIFO.
 *
 *   linearizability SECONDS [mpmc|scq|naive|spsc]   recorded windows, checked by history.c
 *   linearizability --stress ITEMS [queue]  no clock between the threads, a plain word with each
 *                                           value: for a build with ThreadSanitizer
 * A window is one quiescent round: each thread does a few operations with a tick of one shared
 * counter before and after each, then all meet and the window is checked. The counter is a locked
 * instruction, so that it also hides what store buffers do; explore's weak mode is for that.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "history.h"
#include "parts/queue.h"

enum { THREADS_MAX = 4, OPERATIONS_EACH = 5, CAPACITY = 2 };

struct subject {
    const char *name;
    uint32_t type, rules;
    const char *threads[THREADS_MAX]; /* 'p' push, 'c' pop, 'm' both in turn */
};

static const struct subject subjects[] = {
    {"mpmc",
     LUMEN_QUEUE_MPMC,
     HISTORY_SPURIOUS_EMPTY | HISTORY_SPURIOUS_FULL,
     {"p", "p", "c", "c"}},
    {"scq", LUMEN_QUEUE_SCQ, HISTORY_FULL_ALONE, {"p", "p", "c", "c"}},
    {"scq", LUMEN_QUEUE_SCQ, HISTORY_FULL_ALONE, {"m", "m", "c"}},
    {"naive", LUMEN_QUEUE_NAIVE, HISTORY_STRICT, {"p", "p", "c", "c"}},
    {"spsc", LUMEN_QUEUE_SPSC, HISTORY_STRICT, {"p", "c"}},
};

struct record {
    struct history_operation operation;
    uint64_t from, to;
};

static const struct subject *subject;
static struct lm_queue queue;
static struct record records[THREADS_MAX][OPERATIONS_EACH];
static _Atomic(uint64_t) counter, arrived;
static _Atomic(bool) over;
static uint32_t thread_count;

static void record_one(struct record *record, char kind, uint32_t value) {
    record->operation = (struct history_operation){.value = value};
    record->operation.kind = kind == 'p' ? HISTORY_PUSH : HISTORY_POP;
    record->from = atomic_fetch_add(&counter, 1);
    if (kind == 'p')
        record->operation.done = lm_queue_push(&queue, value);
    else
        record->operation.done = lm_queue_pop(&queue, &record->operation.value);
    record->to = atomic_fetch_add(&counter, 1);
}

/* Waits until all threads came here `round` times; yields, for there may be more of them than
 * cores. */
static void meet(uint64_t round) {
    atomic_fetch_add(&arrived, 1);
    for (uint32_t spins = 0; atomic_load(&arrived) < round * (thread_count + 1); spins++) {
        if (spins > 200) sched_yield();
    }
}

static void *work(void *argument) {
    uint32_t t = (uint32_t)(uintptr_t)argument;
    uint64_t random = 88172645463325252ull + t;
    for (uint64_t round = 1;; round += 2) {
        meet(round);
        if (atomic_load(&over)) return NULL;
        for (uint32_t o = 0; o < OPERATIONS_EACH; o++) {
            char kind = *subject->threads[t];
            if (kind == 'm') kind = o % 2 ? 'c' : 'p';
            record_one(&records[t][o], kind, t * OPERATIONS_EACH + o);
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            for (uint64_t pause = random & 63; pause > 0; pause--) lm_cpu_relax();
            if ((random >> 20 & 63) == 0) sched_yield();
        }
        meet(round + 1);
    }
}

static void collect(struct history *history) {
    const struct record *flat[HISTORY_OPERATIONS_MAX];
    *history = (struct history){.capacity = CAPACITY};
    for (uint32_t t = 0; t < thread_count; t++) {
        for (uint32_t o = 0; o < OPERATIONS_EACH; o++) {
            flat[history->count] = &records[t][o];
            history->operations[history->count++] = records[t][o].operation;
        }
    }
    for (uint32_t a = 0; a < history->count; a++) {
        for (uint32_t b = 0; b < history->count; b++) {
            if (flat[b]->to < flat[a]->from) history->operations[a].before |= 1u << b;
        }
    }
    /* What is left is popped by this thread, after all. */
    uint32_t all = (1u << history->count) - 1, value;
    bool found = true;
    while (found) {
        found = lm_queue_pop(&queue, &value);
        history->operations[history->count++] = (struct history_operation){
            .kind = HISTORY_POP, .done = found, .value = value, .before = all};
        all = (1u << history->count) - 1;
    }
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* Returns how many windows no order explains. */
static uint32_t record_for(double seconds) {
    pthread_t threads[THREADS_MAX];
    uint32_t windows = 0, strict_misses = 0, misses = 0;
    double until = now() + seconds;
    atomic_store(&over, false);
    atomic_store(&arrived, 0);
    for (thread_count = 0; thread_count < THREADS_MAX && subject->threads[thread_count];)
        thread_count++;
    for (uint32_t t = 0; t < thread_count; t++) {
        if (pthread_create(&threads[t], NULL, work, (void *)(uintptr_t)t)) abort();
    }
    for (uint64_t round = 1;; round += 2) {
        struct history history;
        if (now() > until || misses) atomic_store(&over, true);
        meet(round);
        if (atomic_load(&over)) break;
        meet(round + 1);
        collect(&history);
        windows++;
        strict_misses += !history_is_legal(&history, HISTORY_STRICT);
        if (history_is_legal(&history, subject->rules)) continue;
        misses++;
        printf("no order explains this window of %s:\n", subject->name);
        history_print(&history);
    }
    for (uint32_t t = 0; t < thread_count; t++) pthread_join(threads[t], NULL);
    printf("%-8s %-6s %u threads, %u windows checked; %u would miss the strict specification\n",
           misses ? "FAILED" : "ok", subject->name, thread_count, windows, strict_misses);
    return misses;
}

/* ---- stress for ThreadSanitizer ---- */

static uint64_t *payloads;
static uint32_t items;
static lm_atomic_u64 taken_count;

static void *stress(void *argument) {
    uint32_t t = (uint32_t)(uintptr_t)argument,
             producers = subject->type == LUMEN_QUEUE_SPSC ? 1 : 2;
    uint64_t wrong = 0;
    if (t < producers) {
        for (uint32_t i = 0; i < items; i++) {
            uint32_t value = t * items + i;
            payloads[value] = ~(uint64_t)value;
            while (!lm_queue_push(&queue, value)) sched_yield();
        }
        return NULL;
    }
    /* relaxed: only says when to stop, orders nothing */
    while (lm_load_relaxed_u64(&taken_count) < (uint64_t)items * producers) {
        uint32_t value;
        if (!lm_queue_pop(&queue, &value)) {
            sched_yield();
            continue;
        }
        wrong += value >= items * producers || payloads[value] != ~(uint64_t)value;
        atomic_fetch_add_explicit(&taken_count.value, 1, memory_order_relaxed);
    }
    return (void *)(uintptr_t)wrong;
}

static uint32_t stress_all(uint32_t count) {
    uint32_t threads_wanted = subject->type == LUMEN_QUEUE_SPSC ? 2 : 4;
    pthread_t threads[THREADS_MAX];
    uint64_t wrong = 0;
    items = count;
    payloads = calloc((size_t)items * 2, sizeof *payloads);
    lm_store_relaxed_u64(&taken_count, 0);
    for (uint32_t t = 0; t < threads_wanted; t++) {
        if (pthread_create(&threads[t], NULL, stress, (void *)(uintptr_t)t)) abort();
    }
    for (uint32_t t = 0; t < threads_wanted; t++) {
        void *result;
        pthread_join(threads[t], &result);
        wrong += (uintptr_t)result;
    }
    free(payloads);
    printf("%-8s %-6s %u values by each producer\n", wrong ? "FAILED" : "ok", subject->name, items);
    return wrong != 0;
}

int main(int argc, char **argv) {
    bool stressed = argc > 1 && strcmp(argv[1], "--stress") == 0;
    const char *amount = argc > (stressed ? 2 : 1) ? argv[stressed ? 2 : 1] : "1";
    const char *only = argc > (stressed ? 3 : 2) ? argv[stressed ? 3 : 2] : NULL;
    uint32_t failures = 0;
    for (uint32_t s = 0; s < sizeof subjects / sizeof subjects[0]; s++) {
        subject = &subjects[s];
        if (only && strcmp(only, subject->name) != 0) continue;
        if (lm_queue_open(&queue, subject->type, CAPACITY, 1, 0)) return 2;
        failures += stressed ? stress_all((uint32_t)atoi(amount)) : record_for(atof(amount));
        lm_queue_close(&queue);
    }
    return failures ? 1 : 0;
}
