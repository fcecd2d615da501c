/* test_queue_others.c: every type of queue through the one interface of queue.h, with the same
 * stress; and what single ones promise: exact "empty", batches, an end to waiting.
 */
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/error.h"
#include "check.h"
#include "parts/queue.h"
#include "queue_stress.h"

static bool push(void *queue, uint32_t value) {
    return lm_queue_push(queue, value);
}

static bool pop(void *queue, uint32_t *value_out) {
    return lm_queue_pop(queue, value_out);
}

static void full_and_empty(uint32_t type, uint32_t capacity) {
    struct lm_queue queue;
    uint32_t value;
    CHECK_AT("%s, capacity %u", lm_queue_name(type), capacity);
    memset(&queue, 0xee, sizeof queue); /* what was there before does not count */
    CHECK(lm_queue_open(&queue, type, capacity, 2, 0) == 0);
    for (uint32_t lap = 0; lap < 5; lap++) {
        CHECK(!lm_queue_pop(&queue, &value));
        for (uint32_t i = 0; i < capacity; i++) CHECK(lm_queue_push(&queue, lap * 1000 + i));
        CHECK(!lm_queue_push(&queue, 7));
        CHECK(lm_queue_depth(&queue) == capacity);
        for (uint32_t i = 0; i < capacity; i++) {
            CHECK(lm_queue_pop(&queue, &value) && value == lap * 1000 + i);
        }
    }
    CHECK(!lm_queue_pop(&queue, &value) && lm_queue_depth(&queue) == 0);
    lm_queue_close(&queue);
    lm_queue_close(&queue); /* twice does nothing */
}

/* Positions of the wait-free queue that wrap. */
static void spsc_starts(void) {
    static const uint64_t starts[] = {5, UINT32_MAX - 3, UINT64_MAX - 6, UINT64_MAX};
    for (size_t s = 0; s < sizeof starts / sizeof starts[0]; s++) {
        struct lm_spsc queue;
        uint32_t value;
        CHECK_AT("spsc, start %llu", (unsigned long long)starts[s]);
        CHECK(lm_spsc_open_at(&queue, 4, starts[s]) == 0);
        CHECK(!lm_spsc_pop(&queue, &value) && lm_spsc_depth(&queue) == 0);
        for (uint32_t lap = 0; lap < 20; lap++) {
            for (uint32_t i = 0; i < 4; i++) CHECK(lm_spsc_push(&queue, 10 * lap + i));
            CHECK(!lm_spsc_push(&queue, 7) && lm_spsc_depth(&queue) == 4);
            for (uint32_t i = 0; i < 4; i++) {
                CHECK(lm_spsc_peek(&queue, &value) && value == 10 * lap + i);
                CHECK(lm_spsc_pop(&queue, &value) && value == 10 * lap + i);
            }
            CHECK(!lm_spsc_peek(&queue, &value));
        }
        lm_spsc_close(&queue);
    }
}

/* The scalable queue has laps: starts where they and its positions wrap. */
static void scq_starts(void) {
    static const uint64_t laps[] = {0, (1ull << 46) - 2, (1ull << 46) - 1, (1ull << 32) - 1};
    for (size_t l = 0; l < sizeof laps / sizeof laps[0]; l++) {
        for (uint32_t capacity = 2; capacity <= 16; capacity *= 2) {
            struct lm_scq queue;
            uint32_t value;
            CHECK_AT("scq, lap %llu, capacity %u", (unsigned long long)laps[l], capacity);
            CHECK(lm_scq_open_at(&queue, capacity, laps[l]) == 0);
            for (uint32_t i = 0; i < 20 * capacity; i++) {
                CHECK(!lm_scq_pop(&queue, &value)); /* empty is exact, and costs positions */
                CHECK(lm_scq_push(&queue, i));
                CHECK(lm_scq_pop(&queue, &value) && value == i);
            }
            lm_scq_close(&queue);
        }
    }
}

static void stress(uint32_t type) {
    static const uint32_t capacities[] = {2, 4, 8};
    static const uint32_t threads[][2] = {{1, 1}, {2, 1}, {1, 3}, {3, 2}};
    size_t cases = type == LUMEN_QUEUE_SPSC ? 1 : 4;
    for (size_t c = 0; c < 3; c++) {
        for (size_t t = 0; t < cases; t++) {
            struct lm_queue queue;
            CHECK_AT("stress %s, capacity %u, %u producers, %u consumers", lm_queue_name(type),
                     capacities[c], threads[t][0], threads[t][1]);
            check_watchdog(300, check_where);
            CHECK(lm_queue_open(&queue, type, capacities[c], 1, 0) == 0);
            queue_stress(&(struct queue_stress){.queue = &queue,
                                                .push = push,
                                                .pop = pop,
                                                .producers = threads[t][0],
                                                .consumers = threads[t][1],
                                                .items = CHECK_UNDER_TSAN ? 8000 : 50000});
            CHECK(lm_queue_depth(&queue) == 0);
            lm_queue_close(&queue);
        }
    }
    check_watchdog(0, "");
}

static void batches(void) {
    struct lm_queue queue;
    uint32_t values[8];
    CHECK_AT("batches");
    check_watchdog(60, check_where);
    /* A whole batch goes at once, whatever the delay. */
    CHECK(lm_queue_open(&queue, LUMEN_QUEUE_BATCHED, 16, 4, UINT64_MAX / 4) == 0);
    for (uint32_t i = 0; i < 6; i++) CHECK(lm_queue_push(&queue, i));
    CHECK(lm_queue_pop_wait(&queue, values, 8) == 4);
    for (uint32_t i = 0; i < 4; i++) CHECK(values[i] == i);
    /* What is left of one goes when the end comes; then there is nothing to wait for. */
    lm_queue_stop(&queue);
    CHECK(lm_queue_pop_wait(&queue, values, 8) == 2 && values[0] == 4 && values[1] == 5);
    CHECK(lm_queue_pop_wait(&queue, values, 8) == 0);
    lm_queue_close(&queue);
    /* Exactly a batch goes at once, and no more of it than there is room for. */
    CHECK(lm_queue_open(&queue, LUMEN_QUEUE_BATCHED, 16, 4, UINT64_MAX / 4) == 0);
    for (uint32_t most = 3; most <= 5; most++) {
        for (uint32_t i = 0; i < 4; i++) CHECK(lm_queue_push(&queue, 10 * most + i));
        CHECK(lm_queue_depth(&queue) == 4);
        CHECK(lm_queue_pop_wait(&queue, values, most) == (most < 4 ? most : 4));
        CHECK(values[0] == 10 * most && values[2] == 10 * most + 2);
        if (most < 4) CHECK(lm_queue_pop(&queue, values) && values[0] == 10 * most + 3);
    }
    /* The oldest value's time counts, whatever has come since. */
    CHECK(lm_queue_push(&queue, 1) && lm_queue_push(&queue, 2));
    queue.naive.batch_delay_ns = 3600000000000;
    queue.naive.pushed_ns[queue.naive.head & queue.naive.mask] -= 3600000000000;
    CHECK(lm_queue_pop_wait(&queue, values, 8) == 2 && values[0] == 1 && values[1] == 2);
    lm_queue_close(&queue);
    /* A lone value goes once it has waited its time. */
    CHECK(lm_queue_open(&queue, LUMEN_QUEUE_BATCHED, 16, 4, 20000000) == 0);
    uint64_t pushed_ns = lm_now_ns();
    CHECK(lm_queue_push(&queue, 9));
    CHECK(lm_queue_pop_wait(&queue, values, 8) == 1 && values[0] == 9);
    CHECK(lm_now_ns() >= pushed_ns + 20000000); /* it did wait; how late, who knows */
    lm_queue_close(&queue);
    check_watchdog(0, "");
}

struct waiter {
    struct lm_queue *queue;
    lm_atomic_u64 tid;
    uint32_t taken;
};

static void *wait_for_batch(void *argument) {
    struct waiter *self = argument;
    uint32_t values[4];
    lm_store_release_u64(&self->tid, (uint64_t)syscall(SYS_gettid));
    self->taken = lm_queue_pop_wait(self->queue, values, 4);
    return NULL;
}

static bool sleeps(const struct waiter *waiter) {
    char path[64], text[256] = "";
    uint64_t tid = lm_load_acquire_u64(&waiter->tid);
    snprintf(path, sizeof path, "/proc/self/task/%llu/stat", (unsigned long long)tid);
    FILE *file = tid ? fopen(path, "re") : NULL;
    if (!file) return false;
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    const char *state = strrchr(text, ')');
    return state && strncmp(state, ") S", 3) == 0;
}

/* Two batches whose signals have become one: the consumer that wakes passes it on. */
static void one_signal_for_two(void) {
    struct lm_queue queue;
    struct waiter waiters[2] = {{.queue = &queue}, {.queue = &queue}};
    pthread_t threads[2];
    CHECK_AT("one signal for two batches");
    check_watchdog(60, check_where);
    CHECK(lm_queue_open(&queue, LUMEN_QUEUE_BATCHED, 16, 4, UINT64_MAX / 4) == 0);
    for (int t = 0; t < 2; t++)
        CHECK(!pthread_create(&threads[t], NULL, wait_for_batch, &waiters[t]));
    while (!sleeps(&waiters[0]) || !sleeps(&waiters[1])) sched_yield();
    pthread_mutex_lock(&queue.naive.lock);
    queue.naive.tail += 8;
    pthread_cond_signal(&queue.naive.not_empty);
    pthread_mutex_unlock(&queue.naive.lock);
    for (int t = 0; t < 2; t++) {
        CHECK(pthread_join(threads[t], NULL) == 0 && waiters[t].taken == 4);
    }
    lm_queue_close(&queue);
    check_watchdog(0, "");
}

static void *wait_for_end(void *queue) {
    uint32_t value;
    return (void *)(uintptr_t)lm_queue_pop_wait(queue, &value, 1);
}

static void stop_wakes_everybody(void) {
    struct lm_queue queue;
    pthread_t threads[3];
    CHECK_AT("stop wakes everybody");
    check_watchdog(30, check_where);
    CHECK(lm_queue_open(&queue, LUMEN_QUEUE_NAIVE, 4, 1, 0) == 0);
    for (int t = 0; t < 3; t++) CHECK(!pthread_create(&threads[t], NULL, wait_for_end, &queue));
    lm_queue_stop(&queue);
    for (int t = 0; t < 3; t++) {
        void *taken;
        pthread_join(threads[t], &taken);
        CHECK(taken == NULL);
    }
    lm_queue_close(&queue);
    check_watchdog(0, "");
}

/* Without batches each value is handed over by itself, at once. */
static void one_at_a_time(void) {
    struct lm_queue queue;
    uint32_t values[8];
    CHECK_AT("one at a time");
    check_watchdog(60, check_where);
    CHECK(lm_queue_open(&queue, LUMEN_QUEUE_NAIVE, 4, 3, UINT64_MAX / 4) == 0);
    for (uint32_t i = 0; i < 3; i++) CHECK(lm_queue_push(&queue, i));
    for (uint32_t i = 0; i < 3; i++)
        CHECK(lm_queue_pop_wait(&queue, values, 8) == 1 && values[0] == i);
    lm_queue_close(&queue);
    check_watchdog(0, "");
}

static bool is_type(uint32_t type) {
    return strcmp(lm_queue_name(type), "?") != 0;
}

/* The name of each queue, and which of them block. */
static void kinds(void) {
    struct lm_queue queue;
    uint32_t type = 0;
    for (; is_type(type); type++) {
        CHECK_AT("kind %u", type);
        for (uint32_t other = 0; other < type; other++)
            CHECK(strcmp(lm_queue_name(type), lm_queue_name(other)) != 0);
        queue.type = type;
        CHECK(lm_queue_blocks(&queue) ==
              (type == LUMEN_QUEUE_NAIVE || type == LUMEN_QUEUE_BATCHED));
    }
    CHECK(type > LUMEN_QUEUE_INLINE);
    CHECK(lm_queue_open(&queue, LUMEN_QUEUE_INLINE, 4, 1, 0) == LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "engine.queue_type: no queue of number 5"));
}

static void wrong_capacities(uint32_t type) {
    static const uint32_t wrong[] = {0, 1, 3, 12, 65535};
    for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++) {
        struct lm_queue queue;
        CHECK_AT("%s, capacity %u", lm_queue_name(type), wrong[w]);
        CHECK(lm_queue_open(&queue, type, wrong[w], 2, 0) == LUMEN_E_INVALID);
        CHECK(strstr(lm_error_last(), "power of two"));
    }
}

int main(void) {
    kinds();
    for (uint32_t type = 0; is_type(type); type++) {
        if (type == LUMEN_QUEUE_INLINE) continue; /* no queue */
        wrong_capacities(type);
        for (uint32_t capacity = 2; capacity <= 32; capacity *= 2) full_and_empty(type, capacity);
        if (type != LUMEN_QUEUE_MPMC && type != LUMEN_QUEUE_BATCHED) stress(type);
    }
    scq_starts();
    spsc_starts();
    one_at_a_time();
    batches();
    one_signal_for_two();
    stop_wakes_everybody();
    return check_finish("test_queue_others");
}
