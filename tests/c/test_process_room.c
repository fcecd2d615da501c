/* test_process_room.c: models/process_room.c: at most so many inside, every job once, none left
 * behind, in the order in which they came where one thread looks.
 */
#include "models/process_room.h"

#include <pthread.h>
#include <sched.h>

#include "check.h"

enum { JOBS = 6000, THREADS = 4, RING = 8192 };

static struct lm_process_room room;

static void in_order(void) {
    uint32_t job;
    CHECK(lm_process_room_open(&room, 5) == 0);
    for (uint32_t n = 0; n < 2; n++) {
        job = n;
        CHECK(lm_process_room_enter(&room, 2, &job) && job == n);
    }
    for (uint32_t n = 2; n < 6; n++) {
        job = n;
        CHECK(!lm_process_room_enter(&room, 2, &job));
    }
    CHECK(lm_process_room_leave(&room, &job) && job == 2); /* for the line; a place is free, */
    job = 9;
    CHECK(lm_process_room_enter(&room, 2, &job) && job == 3); /* and who waits is first */
    job = 2;
    CHECK(!lm_process_room_enter(&room, 2, &job));
    /* 4, 5, 9 and 2 wait, and two are inside. */
    static const uint32_t rest[] = {4, 5};
    for (uint32_t n = 0; n < 2; n++) CHECK(lm_process_room_leave(&room, &job) && job == rest[n]);
    job = 7;
    CHECK(lm_process_room_enter(&room, 1, &job) && job == 9);
    CHECK(lm_process_room_leave(&room, &job) && job == 2);
    job = 8;
    CHECK(lm_process_room_enter(&room, 1, &job) && job == 7);
    CHECK(lm_process_room_leave(&room, &job) && job == 8);
    CHECK(lm_load_relaxed_u64(&room.word) == 0); /* relaxed: one thread */
    CHECK(lm_process_room_enter(&room, 1, &job) && job == 8);
    CHECK(!lm_process_room_leave(&room, &job));
    lm_process_room_close(&room);
}

/* ---- several threads ---- */

static struct lm_mpmc line;
static lm_atomic_u64 inside, most_inside, served;
static lm_atomic_u32 times[JOBS];

static void *work(void *argument) {
    uint32_t most = *(uint32_t *)argument, job;
    /* relaxed, all: counts that are looked at after the join */
    while (lm_load_relaxed_u64(&served) < JOBS) {
        if (!lm_mpmc_pop(&line, &job)) {
            sched_yield();
            continue;
        }
        if (!lm_process_room_enter(&room, most, &job)) continue;
        uint64_t now = lm_add_acq_rel_u64(&inside, 1) + 1, before;
        before = lm_load_relaxed_u64(&most_inside);
        while (now > before && !lm_cas_weak_relaxed_u64(&most_inside, &before, now)) {
        }
        lm_store_relaxed_u32(&times[job], lm_load_relaxed_u32(&times[job]) + 1);
        if (job % 7 == 0) sched_yield();
        (void)lm_sub_acq_rel_u64(&inside, 1);
        (void)lm_count_relaxed_u64(&served, 1);
        if (lm_process_room_leave(&room, &job)) {
            while (!lm_mpmc_push(&line, job)) sched_yield();
        }
    }
    return NULL;
}

static void several(uint32_t most) {
    pthread_t threads[THREADS];
    CHECK_AT("%u places", most);
    CHECK(lm_process_room_open(&room, RING) == 0 && lm_mpmc_open(&line, RING) == 0);
    lm_store_relaxed_u64(&served, 0);
    lm_store_relaxed_u64(&most_inside, 0);
    for (uint32_t j = 0; j < JOBS; j++) {
        lm_store_relaxed_u32(&times[j], 0);
        CHECK(lm_mpmc_push(&line, j));
    }
    for (uint32_t t = 0; t < THREADS; t++)
        CHECK(pthread_create(&threads[t], NULL, work, &most) == 0);
    for (uint32_t t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    for (uint32_t j = 0; j < JOBS; j++) CHECK(lm_load_relaxed_u32(&times[j]) == 1);
    uint64_t found = lm_load_relaxed_u64(&most_inside);
    CHECK(found >= 1 && found <= most && lm_load_relaxed_u64(&room.word) == 0);
    lm_mpmc_close(&line);
    lm_process_room_close(&room);
}

int main(void) {
    check_watchdog(100, "jobs that wait for a place");
    in_order();
    for (uint32_t most = 1; most <= THREADS; most++) several(most);
    return check_finish("test_process_room");
}
