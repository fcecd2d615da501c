/* test_waitset.c: no wake-up is lost, and the worker that went idle last is woken first. The
 * consumers here wait as pop_or_sleep and next_job in work/worker.c do. A lost wake-up shows as a
 * round that never ends: the next push comes only after the last one's consumer has said so, so
 * nothing rescues it. */
#include <pthread.h>
#include <sched.h>

#include "base/clock.h"
#include "base/topology.h"
#include "check.h"
#include "parts/queue_mpmc.h"
#include "parts/waitset.h"

enum { THREADS_MAX = 4, LINGER_MAX = 2000, LINGER_JITTER = 128 };

/* ---- no lost wake-up ---- */

struct hall {
    struct lm_mpmc queue;
    struct lm_waitset set;
    LM_CACHE_ALIGNED lm_atomic_u64 consumed;
    LM_CACHE_ALIGNED lm_atomic_u32 stop;
    LM_CACHE_ALIGNED lm_atomic_u32 linger; /* turns of a loop of about 1 ns */
    uint32_t producers;
    uint32_t rounds;
    uint32_t per_round; /* items of each producer */
    bool pinned;
    pthread_barrier_t start;
};

struct visitor {
    struct hall *hall;
    pthread_t thread;
    uint32_t index;
    uint64_t random;
    uint64_t count;
    uint64_t sum;
};

static bool pop_or_sleep(struct visitor *self, uint32_t *item_out) {
    struct hall *hall = self->hall;
    lm_waitset_prepare(&hall->set, self->index, lm_now_ns());
    bool found = lm_mpmc_pop(&hall->queue, item_out);
    /* acquire: what was pushed before the stop is seen; pairs with the release in run_hall */
    if (found || lm_load_acquire_u32(&hall->stop)) {
        lm_waitset_cancel(&hall->set, self->index);
        return found;
    }
    lm_waitset_sleep(&hall->set, self->index, UINT64_MAX);
    return false;
}

static bool next_item(struct visitor *self, uint32_t *item_out) {
    struct hall *hall = self->hall;
    for (;;) {
        if (lm_mpmc_pop(&hall->queue, item_out)) return true;
        if (lm_load_acquire_u32(&hall->stop)) return false; /* as in pop_or_sleep */
        if (pop_or_sleep(self, item_out)) return true;
    }
}

/* The moment that matters is a push between a consumer's last look at the queue and its sleep, some
 * tens of nanoseconds. So consumers linger before they look, and producers steer for how long:
 * longer when a sleeper was found, shorter when none was. That holds the two sides at the edge. */
static void linger(struct visitor *self) {
    /* relaxed, as in steer: only a time */
    uint32_t turns =
        lm_load_relaxed_u32(&self->hall->linger) + check_below(&self->random, LINGER_JITTER);
    while (turns--) check_random(&self->random);
}

static void steer(struct hall *hall, bool found_sleeper) {
    uint32_t turns = lm_load_relaxed_u32(&hall->linger);
    if (found_sleeper && turns < LINGER_MAX) lm_store_relaxed_u32(&hall->linger, turns + 1);
    if (!found_sleeper && turns > 0) lm_store_relaxed_u32(&hall->linger, turns - 1);
}

/* Where there are two cores, one producer and one consumer get one each: on the same one they would
 * take turns instead of meeting. */
static void pin_visitor(const struct visitor *self, uint32_t side) {
    int32_t cpus[2];
    if (self->hall->pinned && lm_topology_usable_cpus("", cpus, 2) >= 2) lm_thread_pin(cpus[side]);
}

static void *consume(void *argument) {
    struct visitor *self = argument;
    uint32_t item;
    pin_visitor(self, 0);
    pthread_barrier_wait(&self->hall->start);
    while (next_item(self, &item)) {
        self->count++;
        self->sum += item;
        /* relaxed: tells the producers that the round goes on, carries nothing */
        atomic_fetch_add_explicit(&self->hall->consumed.value, 1, memory_order_relaxed);
        linger(self);
    }
    return NULL;
}

/* Ends when the round's items are consumed. */
static void wait_for_round(struct hall *hall, uint64_t consumed) {
    /* relaxed: see consume */
    for (uint32_t tries = 1; lm_load_relaxed_u64(&hall->consumed) < consumed; tries++) {
        if (tries % 256 == 0) sched_yield();
    }
}

static void *produce(void *argument) {
    struct visitor *self = argument;
    struct hall *hall = self->hall;
    uint64_t each_round = (uint64_t)hall->producers * hall->per_round;
    pin_visitor(self, 1);
    pthread_barrier_wait(&hall->start);
    for (uint32_t round = 0; round < hall->rounds; round++) {
        wait_for_round(hall, round * each_round);
        for (uint32_t i = 0; i < hall->per_round; i++) {
            uint32_t item = (round * hall->per_round + i) * hall->producers + self->index;
            while (!lm_mpmc_push(&hall->queue, item)) sched_yield();
            steer(hall, lm_waitset_wake_one(&hall->set));
        }
    }
    wait_for_round(hall, hall->rounds * each_round);
    return NULL;
}

static void spawn(struct visitor *visitor, struct hall *hall, uint32_t index, uint64_t random,
                  void *(*main)(void *)) {
    *visitor = (struct visitor){.hall = hall, .index = index, .random = random};
    CHECK(pthread_create(&visitor->thread, NULL, main, visitor) == 0);
}

static void run_hall(uint32_t producers, uint32_t consumers, uint32_t per_round, uint32_t rounds,
                     uint64_t *random) {
    static struct hall hall;
    struct visitor makers[THREADS_MAX], takers[THREADS_MAX];
    CHECK_AT("%u producers, %u consumers, %u items a round", producers, consumers, per_round);
    check_watchdog(60, "a wake-up was lost");
    hall = (struct hall){.producers = producers,
                         .rounds = rounds,
                         .per_round = per_round,
                         .pinned = producers + consumers == 2};
    lm_waitset_init(&hall.set);
    CHECK(lm_mpmc_open(&hall.queue, 4) == 0);
    CHECK(pthread_barrier_init(&hall.start, NULL, producers + consumers) == 0);
    for (uint32_t c = 0; c < consumers; c++)
        spawn(&takers[c], &hall, c, check_random(random), consume);
    for (uint32_t p = 0; p < producers; p++)
        spawn(&makers[p], &hall, p, check_random(random), produce);
    for (uint32_t p = 0; p < producers; p++) CHECK(pthread_join(makers[p].thread, NULL) == 0);
    /* release: pairs with the acquire in pop_or_sleep */
    lm_store_release_u32(&hall.stop, 1);
    lm_waitset_wake_all(&hall.set);
    uint64_t count = 0, sum = 0, items = (uint64_t)producers * per_round * rounds;
    for (uint32_t c = 0; c < consumers; c++) {
        CHECK(pthread_join(takers[c].thread, NULL) == 0);
        count += takers[c].count;
        sum += takers[c].sum;
    }
    CHECK(count == items);
    CHECK(sum == items * (items - 1) / 2);
    CHECK(lm_load_relaxed_u64(&hall.set.sleepers) == 0); /* relaxed: all joined */
    check_watchdog(0, "");
    pthread_barrier_destroy(&hall.start);
    lm_mpmc_close(&hall.queue);
}

/* ---- which one is woken ---- */

static bool is_woken(const struct lm_waitset *set, uint32_t index) {
    return lm_load_relaxed_u32(&set->seats[index].woken) == 1; /* relaxed: this thread wrote it */
}

/* Without threads: prepare is the announcement, so that the choice can be seen in the seats. */
static void warmest_first(uint64_t *random) {
    static struct lm_waitset set;
    for (uint32_t turn = 0; turn < 200; turn++) {
        uint32_t order[LUMEN_WORKERS_MAX];
        uint32_t count = 1 + check_below(random, LUMEN_WORKERS_MAX);
        lm_waitset_init(&set);
        for (uint32_t i = 0; i < LUMEN_WORKERS_MAX; i++) order[i] = i;
        for (uint32_t i = 0; i < count; i++) {
            uint32_t other = i + check_below(random, LUMEN_WORKERS_MAX - i), index = order[other];
            order[other] = order[i];
            order[i] = index;
            lm_waitset_prepare(&set, index, 1000 + 10ull * i);
        }
        for (uint32_t i = count; i > 0; i--) {
            CHECK_AT("%u workers asleep, the %uth is to be woken", count, i);
            CHECK(!is_woken(&set, order[i - 1]));
            CHECK(lm_waitset_wake_one(&set));
            CHECK(is_woken(&set, order[i - 1]));
            lm_waitset_sleep(&set, order[i - 1], UINT64_MAX); /* returns at once */
        }
        CHECK(!lm_waitset_wake_one(&set));
    }
}

static void cancelled_and_all(void) {
    static struct lm_waitset set;
    lm_waitset_init(&set);
    CHECK(!lm_waitset_wake_one(&set));
    lm_waitset_prepare(&set, 0, 1);
    lm_waitset_prepare(&set, 63, 2);
    lm_waitset_prepare(&set, 31, 3);
    lm_waitset_cancel(&set, 31);
    CHECK(lm_waitset_wake_one(&set));
    CHECK(is_woken(&set, 63) && !is_woken(&set, 31) && !is_woken(&set, 0));
    lm_waitset_prepare(&set, 63, 4); /* a new sleep begins unwoken */
    CHECK(!is_woken(&set, 63));
    lm_waitset_wake_all(&set);
    CHECK(is_woken(&set, 63) && is_woken(&set, 0) && !is_woken(&set, 31));
    CHECK(!lm_waitset_wake_one(&set));
}

/* A sleep ends at its time, not before, and takes its announcement back; times of 0 are times. */
static void until_a_time(void) {
    static struct lm_waitset set;
    CHECK_AT("a sleep with an end");
    check_watchdog(60, "a sleep that does not end");
    lm_waitset_init(&set);
    for (uint64_t wait_ns = 0; wait_ns <= 20000000; wait_ns += 10000000) {
        uint64_t until_ns = lm_now_ns() + wait_ns;
        lm_waitset_prepare(&set, 5, until_ns);
        lm_waitset_sleep(&set, 5, until_ns);
        CHECK(lm_now_ns() >= until_ns);
        CHECK(!lm_waitset_wake_one(&set) && !is_woken(&set, 5));
    }
    lm_waitset_prepare(&set, 7, 0);
    CHECK(lm_waitset_wake_one(&set) && is_woken(&set, 7));
    lm_waitset_sleep(&set, 7, UINT64_MAX); /* was woken before it slept */
    CHECK(!lm_waitset_wake_one(&set));
    check_watchdog(0, "");
}

struct sleeper {
    struct lm_waitset *set;
    pthread_barrier_t *parked;
    lm_atomic_u32 *woken_count;
    pthread_t thread;
    uint32_t index;
    uint32_t rank; /* as how manieth it was woken */
};

static void *sleep_once(void *argument) {
    struct sleeper *self = argument;
    lm_waitset_prepare(self->set, self->index, 1000 - self->index);
    pthread_barrier_wait(self->parked);
    lm_waitset_sleep(self->set, self->index, UINT64_MAX);
    /* relaxed: each is woken only after the one before has counted */
    self->rank = atomic_fetch_add_explicit(&self->woken_count->value, 1, memory_order_relaxed);
    return NULL;
}

/* With threads in the kernel: wake_one wakes one, the one that parked last. */
static void real_sleepers(void) {
    static struct lm_waitset set;
    struct sleeper sleepers[THREADS_MAX];
    pthread_barrier_t parked;
    lm_atomic_u32 woken_count = {0};
    CHECK_AT("real sleepers");
    check_watchdog(60, "a sleeper was not woken");
    lm_waitset_init(&set);
    CHECK(pthread_barrier_init(&parked, NULL, THREADS_MAX + 1) == 0);
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        sleepers[i] = (struct sleeper){
            .set = &set, .parked = &parked, .woken_count = &woken_count, .index = i};
        CHECK(pthread_create(&sleepers[i].thread, NULL, sleep_once, &sleepers[i]) == 0);
    }
    pthread_barrier_wait(&parked);
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        CHECK(lm_waitset_wake_one(&set));
        while (lm_load_relaxed_u32(&woken_count) <= i) sched_yield(); /* relaxed: see sleep_once */
    }
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        CHECK(pthread_join(sleepers[i].thread, NULL) == 0);
        CHECK(sleepers[i].rank == i); /* index 0 has the latest time */
    }
    check_watchdog(0, "");
    pthread_barrier_destroy(&parked);
}

static void interrupt(int signal_number) {
    (void)signal_number;
}

/* A sleeper that returns for another reason than a wake-up takes its announcement back. */
static void interrupted_sleeper(void) {
    static struct lm_waitset set;
    struct sigaction action = {.sa_handler = interrupt};
    lm_atomic_u32 woken_count = {0};
    pthread_barrier_t parked;
    struct sleeper sleeper = {.set = &set, .parked = &parked, .woken_count = &woken_count};
    CHECK_AT("an interrupted sleeper");
    check_watchdog(60, "a sleeper was not interrupted");
    lm_waitset_init(&set);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_barrier_init(&parked, NULL, 2) == 0);
    CHECK(pthread_create(&sleeper.thread, NULL, sleep_once, &sleeper) == 0);
    pthread_barrier_wait(&parked);
    while (lm_load_relaxed_u32(&woken_count) == 0) { /* relaxed: see sleep_once */
        pthread_kill(sleeper.thread, SIGUSR1);
        sched_yield();
    }
    CHECK(pthread_join(sleeper.thread, NULL) == 0);
    CHECK(!is_woken(&set, 0));
    CHECK(!lm_waitset_wake_one(&set));
    check_watchdog(0, "");
    pthread_barrier_destroy(&parked);
}

int main(void) {
    uint64_t random = check_seed();
    uint32_t rounds = CHECK_UNDER_TSAN ? 10000 : 40000;
    warmest_first(&random);
    cancelled_and_all();
    until_a_time();
    real_sleepers();
    interrupted_sleeper();
    run_hall(1, 1, 1, rounds, &random);
    run_hall(1, 2, 1, rounds, &random);
    run_hall(1, 3, 2, rounds / 4, &random);
    run_hall(2, 2, 1, rounds / 4, &random);
    run_hall(2, 4, 3, rounds / 8, &random);
    return check_finish("test_waitset");
}
