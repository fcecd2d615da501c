/* queue_stress.h: one stress test for every queue of 32-bit values with several ends.
 *
 * Producers push distinct values, consumers pop until the producers have ended. Afterwards every
 * value must have been taken exactly once, and each consumer must have met the values of one
 * producer in the order in which they were pushed. With each value goes a plain word in memory,
 * written before the push and read after the pop, so that ThreadSanitizer sees whether the queue
 * carries the edge. Nothing else orders the threads between start and end: each keeps its findings
 * to itself.
 */
#ifndef TESTS_C_QUEUE_STRESS_H
#define TESTS_C_QUEUE_STRESS_H

#include <pthread.h>
#include <sched.h>

#include "check.h"

enum { QUEUE_STRESS_THREADS_MAX = 8 };

struct queue_stress {
    void *queue;
    bool (*push)(void *queue, uint32_t value); /* false: full */
    bool (*pop)(void *queue,
                uint32_t *value_out); /* false: empty; exact once all pushes have returned */
    uint32_t producers;
    uint32_t consumers;
    uint32_t items; /* of each producer */
};

struct queue_stress_run {
    const struct queue_stress *plan;
    pthread_barrier_t start;
    lm_atomic_u32 all_pushed;
    uint64_t *payloads; /* by value */
};

struct queue_stress_thread {
    struct queue_stress_run *run;
    pthread_t thread;
    uint32_t index;
    uint32_t *taken; /* consumers: the values in order */
    uint32_t taken_count;
    uint32_t strangers; /* consumers: values nobody pushed, or with another payload */
};

static inline uint64_t queue_stress_payload(uint32_t value) {
    return ~(value * 0x9e3779b97f4a7c15ull);
}

/* Full or empty: look again a few times, then let another thread have the core. */
static inline void queue_stress_pause(uint32_t *tries) {
    if (++*tries % 16 == 0) {
        sched_yield();
    } else {
        lm_cpu_relax();
    }
}

static inline void *queue_stress_produce(void *argument) {
    struct queue_stress_thread *self = argument;
    const struct queue_stress *plan = self->run->plan;
    uint32_t tries = 0;
    pthread_barrier_wait(&self->run->start);
    for (uint32_t i = 0; i < plan->items; i++) {
        uint32_t value = self->index * plan->items + i;
        self->run->payloads[value] = queue_stress_payload(value);
        while (!plan->push(plan->queue, value)) queue_stress_pause(&tries);
    }
    return NULL;
}

static inline void *queue_stress_consume(void *argument) {
    struct queue_stress_thread *self = argument;
    const struct queue_stress *plan = self->run->plan;
    uint32_t total = plan->producers * plan->items, value, tries = 0;
    pthread_barrier_wait(&self->run->start);
    for (;;) {
        /* acquire: what was pushed before it was set is in the queue; pairs with queue_stress */
        bool all_pushed = lm_load_acquire_u32(&self->run->all_pushed);
        if (!plan->pop(plan->queue, &value)) {
            if (all_pushed) return NULL;
            queue_stress_pause(&tries);
        } else if (value >= total || self->taken_count == total ||
                   self->run->payloads[value] != queue_stress_payload(value)) {
            self->strangers++;
        } else {
            self->taken[self->taken_count++] = value;
        }
    }
}

/* One consumer's log against the rules; marks what it took. */
static inline void queue_stress_account(const struct queue_stress_thread *consumer, uint8_t *seen) {
    const struct queue_stress *plan = consumer->run->plan;
    uint32_t next[QUEUE_STRESS_THREADS_MAX] = {0};
    uint64_t twice = 0, disordered = 0;
    for (uint32_t i = 0; i < consumer->taken_count; i++) {
        uint32_t value = consumer->taken[i], producer = value / plan->items;
        twice += seen[value];
        seen[value] = 1;
        disordered += value % plan->items < next[producer];
        next[producer] = value % plan->items + 1;
    }
    CHECK(consumer->strangers == 0);
    CHECK(twice == 0);
    CHECK(disordered == 0);
}

static inline void queue_stress(const struct queue_stress *plan) {
    struct queue_stress_run run = {.plan = plan};
    struct queue_stress_thread producers[QUEUE_STRESS_THREADS_MAX] = {0},
                               consumers[QUEUE_STRESS_THREADS_MAX] = {0};
    size_t total = (size_t)plan->producers * plan->items;
    CHECK(plan->producers <= QUEUE_STRESS_THREADS_MAX &&
          plan->consumers <= QUEUE_STRESS_THREADS_MAX);
    run.payloads = calloc(total, sizeof *run.payloads);
    uint8_t *seen = calloc(total, 1);
    CHECK(run.payloads && seen);
    CHECK(pthread_barrier_init(&run.start, NULL, plan->producers + plan->consumers) == 0);
    for (uint32_t p = 0; p < plan->producers; p++) {
        producers[p] = (struct queue_stress_thread){.run = &run, .index = p};
        CHECK(pthread_create(&producers[p].thread, NULL, queue_stress_produce, &producers[p]) == 0);
    }
    for (uint32_t c = 0; c < plan->consumers; c++) {
        consumers[c] = (struct queue_stress_thread){
            .run = &run, .index = c, .taken = malloc(total * sizeof(uint32_t))};
        CHECK(consumers[c].taken != NULL);
        CHECK(pthread_create(&consumers[c].thread, NULL, queue_stress_consume, &consumers[c]) == 0);
    }
    for (uint32_t p = 0; p < plan->producers; p++)
        CHECK(pthread_join(producers[p].thread, NULL) == 0);
    /* release: pairs with the acquire in queue_stress_consume */
    lm_store_release_u32(&run.all_pushed, 1);
    size_t taken = 0;
    for (uint32_t c = 0; c < plan->consumers; c++) {
        CHECK(pthread_join(consumers[c].thread, NULL) == 0);
        queue_stress_account(&consumers[c], seen);
        taken += consumers[c].taken_count;
        free(consumers[c].taken);
    }
    CHECK(taken == total); /* with no value twice: each exactly once */
    pthread_barrier_destroy(&run.start);
    free(run.payloads);
    free(seen);
}

#endif
