/* test_places.c: max_in_flight in one word: so many and no more, those kept for requests whose
 * bytes are here, and that no I/O thread has two in a row while another one waits.
 */
#include <pthread.h>
#include <sched.h>

#include "check.h"
#include "flow/places.h"

enum { THREADS = 3, TAKES = 20000 };

static struct lm_places places;

static bool take(uint32_t thread, uint32_t reserve, bool waits, bool may_pass) {
    struct lm_place_call call = {thread, reserve, waits, may_pass};
    return lm_places_take(&places, &call);
}

static void begin(uint32_t max) {
    places.max = max;
    lm_store_relaxed_u64(&places.word, 0);
}

static void so_many(void) {
    begin(3);
    CHECK(lm_places_left(&places) == 3);
    for (uint32_t n = 1; n <= 3; n++) {
        CHECK(take(0, 0, false, false));
        CHECK(lm_places_taken(&places) == n && lm_places_left(&places) == 3 - n);
    }
    CHECK(!take(0, 0, false, false) && lm_places_taken(&places) == 3);
    CHECK(lm_places_give(&places) == 0); /* who asked without waiting is not noted */
    CHECK(take(1, 0, false, false) && !take(1, 0, false, false));
    begin(0);
    for (uint32_t n = 0; n < 100; n++) CHECK(take(0, 99, n % 2, false));
    CHECK(lm_places_give(&places) == 0 && lm_places_left(&places) > 1u << 30);
    lm_places_forget(&places, 0);
    CHECK(lm_load_relaxed_u64(&places.word) == 0); /* without a bound nothing is touched */
}

/* One in four, rounded up; but whoever finds nothing in flight has a place. */
static void reserves(void) {
    static const uint32_t expected[][2] = {{0, 0}, {1, 1}, {4, 1}, {5, 2}, {8, 2}, {9, 3}};
    for (size_t e = 0; e < sizeof expected / sizeof expected[0]; e++) {
        begin(expected[e][0]);
        CHECK_AT("max %u", places.max);
        CHECK(lm_places_reserve(&places) == expected[e][1]);
    }
    check_where[0] = '\0';
    begin(4);
    for (uint32_t n = 0; n < 3; n++) CHECK(take(0, 1, false, false));
    CHECK(!take(0, 1, false, false) && take(0, 0, true, false));
    begin(1);
    CHECK(take(0, 1, false, false) && !take(0, 1, false, false));
    begin(2);
    CHECK(take(0, 2, false, false) && !take(0, 2, false, false));
}

/* 0 and 2 wait; each lets the other one go first when it was the last. */
static void turns(void) {
    begin(2);
    CHECK(take(0, 0, false, false) && take(0, 0, false, false));
    CHECK(!take(0, 0, true, false) && !take(2, 0, true, false) && !take(2, 0, true, false));
    CHECK(lm_places_give(&places) == (1u << 0 | 1u << 2));
    CHECK(!take(1, 0, false, false));                           /* it does not wait */
    CHECK(!take(0, 0, true, false) && take(2, 0, true, false)); /* 0 was the last */
    CHECK(lm_places_give(&places) == (1u << 0 | 1u << 2));
    CHECK(!take(2, 0, true, false) && take(0, 0, true, false));
    CHECK(lm_places_give(&places) == (1u << 0 | 1u << 2));
    CHECK(take(0, 0, true, true)); /* the other one has not come in time */
    lm_places_forget(&places, 2);
    CHECK(lm_places_give(&places) == 1u << 0);
    CHECK(take(0, 0, true, false)); /* alone: as often as it likes */
    CHECK(lm_places_give(&places) == 1u << 0 && take(0, 0, true, false));
    lm_places_forget(&places, 0);
    lm_places_forget(&places, 0);
    CHECK(lm_places_give(&places) == 0 && lm_places_taken(&places) == 1);
    begin(1);
    CHECK(take(15, 0, false, false) && !take(14, 0, true, false));
    CHECK(lm_places_give(&places) == 1u << 14 && take(14, 0, true, false));
    CHECK(lm_places_give(&places) == 1u << 14);
}

static lm_atomic_u64 inside;

static void *taker(void *argument) {
    uint32_t thread = (uint32_t)(uintptr_t)argument;
    bool right = true;
    for (uint32_t n = 0; n < TAKES; n++) {
        while (!take(thread, 0, true, false)) sched_yield();
        lm_places_forget(&places, thread);
        /* relaxed: a count alone; the places are what is tried */
        right = right && atomic_fetch_add_explicit(&inside.value, 1, memory_order_relaxed) < 2;
        atomic_fetch_sub_explicit(&inside.value, 1, memory_order_relaxed);
        (void)lm_places_give(&places);
    }
    CHECK(right);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    check_watchdog(120, "threads that all get places");
    so_many();
    reserves();
    turns();
    begin(2);
    for (uintptr_t t = 0; t < THREADS; t++)
        CHECK(pthread_create(&threads[t], NULL, taker, (void *)t) == 0);
    for (uint32_t t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    CHECK(lm_places_taken(&places) == 0);
    return check_finish("test_places");
}
