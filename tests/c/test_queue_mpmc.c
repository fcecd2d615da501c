/* test_queue_mpmc.c: the bounded queue, alone and under several producers and consumers. Positions
 * start just below 2^32, 2^63 and 2^64; under stress they get there half-way, with all threads at
 * work. */
#include "base/error.h"
#include "parts/queue_mpmc.h"
#include "queue_stress.h"

static const uint64_t starts[] = {0, 1, (1ull << 32) - 3, INT64_MAX - 2ull, UINT64_MAX - 2};
enum { START_COUNT = sizeof starts / sizeof starts[0] };

static void capacity_errors(void) {
    static const uint32_t wrong[] = {0, 1, 3, 6, 1000, (1u << 31) + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct lm_mpmc queue;
        char found[32];
        CHECK_AT("capacity %u", wrong[i]);
        snprintf(found, sizeof found, "found %u", wrong[i]);
        CHECK(lm_mpmc_open(&queue, wrong[i]) == LUMEN_E_INVALID);
        CHECK(strstr(lm_error_last(), "power of two") && strstr(lm_error_last(), found));
        lm_mpmc_close(&queue); /* allowed after a failed open */
    }
}

/* Fills and empties the queue whole, lap after lap. */
static void full_and_empty(uint32_t capacity, uint64_t start) {
    struct lm_mpmc queue;
    uint32_t value = 0;
    CHECK_AT("capacity %u, start %llu", capacity, (unsigned long long)start);
    CHECK(lm_mpmc_open_at(&queue, capacity, start) == 0);
    for (uint32_t lap = 0; lap < 5; lap++) {
        CHECK(lm_mpmc_depth(&queue) == 0);
        CHECK(!lm_mpmc_pop(&queue, &value));
        for (uint32_t i = 0; i < capacity; i++) {
            CHECK(lm_mpmc_push(&queue, 1000 * lap + i));
            CHECK(lm_mpmc_depth(&queue) == i + 1);
        }
        CHECK(!lm_mpmc_push(&queue, UINT32_MAX));
        CHECK(lm_mpmc_depth(&queue) == capacity);
        for (uint32_t i = 0; i < capacity; i++) {
            CHECK(lm_mpmc_pop(&queue, &value));
            CHECK(value == 1000 * lap + i);
        }
    }
    lm_mpmc_close(&queue);
}

/* Random pushes and pops; the values are consecutive, so two numbers are the whole model. */
static void random_walk(uint32_t capacity, uint64_t start, uint64_t *random) {
    struct lm_mpmc queue;
    uint32_t pushed = UINT32_MAX - 100, popped = pushed, value = 0;
    CHECK_AT("capacity %u, start %llu", capacity, (unsigned long long)start);
    CHECK(lm_mpmc_open_at(&queue, capacity, start) == 0);
    for (uint32_t step = 0; step < 2000; step++) {
        if (check_below(random, 2)) {
            bool room = pushed - popped < capacity;
            CHECK(lm_mpmc_push(&queue, pushed) == room);
            pushed += room;
        } else {
            bool some = pushed != popped;
            CHECK(lm_mpmc_pop(&queue, &value) == some);
            if (some) CHECK(value == popped);
            popped += some;
        }
        CHECK(lm_mpmc_depth(&queue) == pushed - popped);
    }
    lm_mpmc_close(&queue);
}

static void layout(void) {
    struct lm_mpmc queue;
    CHECK(lm_mpmc_open(&queue, 8) == 0);
    CHECK((uintptr_t)queue.cells % LM_CACHE_LINE == 0);
    CHECK((uintptr_t)&queue.head - (uintptr_t)&queue.tail >= LM_CACHE_LINE);
    lm_mpmc_close(&queue);
}

static bool push(void *queue, uint32_t value) {
    return lm_mpmc_push(queue, value);
}

static bool pop(void *queue, uint32_t *value_out) {
    return lm_mpmc_pop(queue, value_out);
}

static void stress(void) {
    static const uint32_t capacities[] = {2, 4, 8};
    static const uint32_t threads[][2] = {{1, 1}, {2, 1}, {1, 3}, {3, 2}};
    uint32_t items = CHECK_UNDER_TSAN ? 8000 : 50000;
    for (size_t c = 0; c < 3; c++) {
        for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
            for (size_t s = 2; s < START_COUNT; s += 2) {
                struct lm_mpmc queue;
                CHECK_AT("stress, capacity %u, %u producers, %u consumers, start %llu",
                         capacities[c], threads[t][0], threads[t][1],
                         (unsigned long long)starts[s]);
                check_watchdog(300, check_where);
                CHECK(lm_mpmc_open_at(&queue, capacities[c], starts[s] - items / 2) == 0);
                queue_stress(&(struct queue_stress){.queue = &queue,
                                                    .push = push,
                                                    .pop = pop,
                                                    .producers = threads[t][0],
                                                    .consumers = threads[t][1],
                                                    .items = items});
                CHECK(lm_mpmc_depth(&queue) == 0);
                lm_mpmc_close(&queue);
            }
        }
    }
    check_watchdog(0, "");
}

int main(void) {
    uint64_t random = check_seed();
    capacity_errors();
    layout();
    for (uint32_t capacity = 2; capacity <= 64; capacity *= 2) {
        for (size_t s = 0; s < START_COUNT; s++) {
            full_and_empty(capacity, starts[s]);
            random_walk(capacity, starts[s], &random);
        }
    }
    stress();
    return check_finish("test_queue_mpmc");
}
