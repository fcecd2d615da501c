/* test_token_bucket.c: never more than burst + rate * t over any t, and never less than a bucket
 * would give. Decisions are compared with two models: one in whole nanoseconds, exact, for rates
 * whose tokens take a power of two of them, and one in real numbers for any rate. Threads are
 * judged by what they were given over every stretch of time. */
#include <math.h>
#include <pthread.h>
#include <sched.h>

#include "base/limits.h"
#include "check.h"
#include "parts/token_bucket.h"

enum { THREADS = 4, PER_THREAD = CHECK_UNDER_TSAN ? 20000 : 100000 };

static const uint64_t year_ns = 31557600ull * 1000000000u;

static struct lm_token_bucket made(double rate, uint32_t burst, uint64_t now_ns) {
    struct lm_token_bucket bucket;
    lm_token_bucket_init(&bucket, rate, burst, now_ns);
    CHECK(lm_token_bucket_is_valid(&bucket));
    return bucket;
}

/* ---- alone ---- */

static void by_hand(void) {
    struct lm_token_bucket bucket = made(0, 0, 5);
    for (int i = 0; i < 1000; i++) CHECK(lm_token_bucket_acquire(&bucket, UINT32_MAX, 5));
    CHECK(lm_token_bucket_wait_ns(&bucket, UINT32_MAX, 0) == 0);

    bucket = made(1e9, 3, 1000);                       /* a token a nanosecond */
    CHECK(!lm_token_bucket_acquire(&bucket, 4, 1000)); /* more than it can hold */
    CHECK(lm_token_bucket_wait_ns(&bucket, 4, 1000) == UINT64_MAX);
    CHECK(lm_token_bucket_acquire(&bucket, 3, 1000));
    CHECK(!lm_token_bucket_acquire(&bucket, 1, 1000));
    CHECK(lm_token_bucket_wait_ns(&bucket, 2, 1000) == 2);
    CHECK(!lm_token_bucket_acquire(&bucket, 2, 1001)); /* all or none: it leaves the one */
    CHECK(lm_token_bucket_acquire(&bucket, 1, 1001));
    CHECK(!lm_token_bucket_acquire(&bucket, 1, 0)); /* before the start */
    CHECK(lm_token_bucket_wait_ns(&bucket, 1, 1000) == 2);
    CHECK(lm_token_bucket_wait_ns(&bucket, 1, 0) == 1002);
    CHECK(lm_token_bucket_acquire(&bucket, 3, 5000)); /* what was above the brim is gone */
    CHECK(!lm_token_bucket_acquire(&bucket, 1, 5000));
}

/* A bucket that is charged more than it holds owes the rest: nobody gets a token before the rate
 * has brought so many. */
static void charged(void) {
    struct lm_token_bucket bucket = made(0, 0, 5);
    lm_token_bucket_charge(&bucket, UINT32_MAX, 5);
    CHECK(lm_token_bucket_wait_ns(&bucket, UINT32_MAX, 5) == 0);

    bucket = made(1e9, 3, 1000);
    lm_token_bucket_charge(&bucket, 2, 1000);
    CHECK(lm_token_bucket_wait_ns(&bucket, 1, 1000) == 0);
    lm_token_bucket_charge(&bucket, 11, 1000); /* 10 below nothing */
    CHECK(lm_token_bucket_wait_ns(&bucket, 1, 1000) == 11);
    CHECK(!lm_token_bucket_acquire(&bucket, 1, 1010));
    CHECK(lm_token_bucket_acquire(&bucket, 1, 1011));
    CHECK(!lm_token_bucket_acquire(&bucket, 1, 1011));
    lm_token_bucket_charge(&bucket, 1, 5000); /* a full one holds no more than its burst */
    CHECK(lm_token_bucket_acquire(&bucket, 2, 5000));
    CHECK(!lm_token_bucket_acquire(&bucket, 1, 5000));

    bucket = made(0.001, UINT32_MAX, 0); /* the most units a token, as often as it overflows */
    for (int i = 0; i < 20; i++) {
        lm_token_bucket_charge(&bucket, UINT32_MAX, 0);
        CHECK(lm_token_bucket_is_valid(&bucket) && !lm_token_bucket_acquire(&bucket, 1, 0));
    }
    CHECK(lm_token_bucket_wait_ns(&bucket, 1, 0) == UINT64_MAX);
}

/* A bucket that fills lazily gives its burst, and at once what the pause brought. */
static void no_double_burst(void) {
    for (uint32_t burst = 1; burst < 50; burst += 7) {
        struct lm_token_bucket bucket = made(100, burst, 0);
        uint64_t now_ns = 3600ull * 1000000000u;
        uint32_t given = 0;
        CHECK_AT("burst %u", burst);
        for (uint32_t i = 0; i < 4 * burst; i++)
            given += lm_token_bucket_acquire(&bucket, 1, now_ns);
        CHECK(given == burst);
    }
}

/* Rates of 10^9 / 2^k: what is in the bucket is a whole number of nanoseconds. */
static void like_a_bucket_of_nanoseconds(uint64_t *random) {
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t k = check_below(random, 30);
        uint32_t burst =
            1 + (check_below(random, 2) ? check_below(random, 8) : check_below(random, 100000));
        uint64_t token_ns = 1ull << k, now_ns = check_random(random) >> 8;
        struct lm_token_bucket bucket = made(1e9 / (double)token_ns, burst, now_ns);
        uint64_t full_ns = burst * token_ns, level_ns = full_ns;
        for (uint32_t i = 0; i < 1000; i++) {
            uint64_t gap_ns = check_random(random) % (1 + token_ns * (1 + check_below(random, 8)));
            if (check_below(random, 50) == 0) gap_ns = check_random(random) % (2 * full_ns);
            uint32_t n = 1 + check_below(random, burst < 5 ? burst + 1 : 5);
            if (check_below(random, 20) == 0) n = 1 + check_below(random, burst);
            now_ns += gap_ns;
            level_ns = gap_ns < full_ns - level_ns ? level_ns + gap_ns : full_ns;
            uint64_t missing_ns = n * token_ns > level_ns ? n * token_ns - level_ns : 0;
            CHECK_AT("round %u, step %u: token of %llu ns, burst %u, n %u", round, i,
                     (unsigned long long)token_ns, burst, n);
            CHECK(lm_token_bucket_wait_ns(&bucket, n, now_ns) ==
                  (n > burst ? UINT64_MAX : missing_ns));
            CHECK(lm_token_bucket_acquire(&bucket, n, now_ns) == (missing_ns == 0));
            if (missing_ns == 0) level_ns -= n * token_ns;
        }
    }
}

/* Any rate. The bucket's decisions are taken over by the model, so that both stay side by side. */
static void like_a_bucket_of_reals(uint64_t *random) {
    for (uint32_t round = 0; round < 1000; round++) {
        double rate =
            exp(log(LM_RATE_MIN) + (double)check_below(random, 1 << 30) / (1 << 30) * log(1e12));
        uint32_t burst = 1 + (uint32_t)(check_random(random) >> (32 + check_below(random, 32)));
        if (round == 0) rate = LM_RATE_MIN;
        if (round == 1) rate = LM_RATE_MAX;
        uint64_t now_ns = check_random(random) >> 2;
        struct lm_token_bucket bucket = made(rate, burst, now_ns);
        long double level = burst, unit = ldexpl(1, -(int)bucket.shift);
        for (uint32_t i = 0; i < 300; i++) {
            uint32_t most = burst > 1 && check_below(random, 4) ? 2 + burst / 16 : burst;
            uint32_t n = 1 + check_below(random, most);
            uint64_t gap_ns = (uint64_t)((double)n / rate * 1e9 * 2 *
                                         ((double)check_below(random, 1 << 20) / (1 << 20)));
            if (gap_ns > 1ull << 51) gap_ns = 1ull << 51; /* 300 of them are within 36 years */
            now_ns += gap_ns;
            level += (long double)rate * (long double)gap_ns / 1e9L;
            if (level > burst) level = burst;
            CHECK_AT("round %u, step %u: rate %g, burst %u, n %u, level %Lg", round, i, rate, burst,
                     n, level);
            uint64_t wait_ns = lm_token_bucket_wait_ns(&bucket, n, now_ns);
            struct lm_token_bucket then = bucket, before = bucket;
            bool given = lm_token_bucket_acquire(&bucket, n, now_ns);
            CHECK(given == (wait_ns == 0));
            CHECK(given ? level - n > -3 * unit : level - n < 3 * unit);
            if (given) level -= n;
            if (given || wait_ns == UINT64_MAX)
                continue; /* more than the burst, or than 36 years */
            CHECK(!lm_token_bucket_acquire(&before, n, now_ns + wait_ns - 1));
            CHECK(lm_token_bucket_acquire(&then, n, now_ns + wait_ns));
        }
    }
}

static void years(void) {
    static const double rates[] = {LM_RATE_MIN, 1.0 / 3, 7, 1e6 / 3, 1e9 / 3, LM_RATE_MAX};
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        for (uint64_t years = 1; years <= 36; years += 7) {
            uint64_t now_ns = 12345 + years * year_ns;
            CHECK_AT("rate %g, after %llu years", rates[r], (unsigned long long)years);
            struct lm_token_bucket idle = made(rates[r], UINT32_MAX, 12345);
            CHECK(lm_token_bucket_acquire(&idle, UINT32_MAX, now_ns)); /* idle: full, no more */
            CHECK(!lm_token_bucket_acquire(&idle, 1, now_ns));
            struct lm_token_bucket busy = made(rates[r], 1, 12345);
            /* No drift: as if all tokens had been taken as they came, then one a token's time on.
             */
            CHECK(lm_token_bucket_acquire(&busy, 1, now_ns));
            uint64_t token_ns = (uint64_t)ceil(1e9 / rates[r]);
            CHECK(!lm_token_bucket_acquire(&busy, 1, now_ns + token_ns - 1 - token_ns / 1000000));
            CHECK(lm_token_bucket_acquire(&busy, 1, now_ns + token_ns + 1));
        }
    }
    struct lm_token_bucket dry = made(1, 1, 0);
    CHECK(lm_token_bucket_acquire(&dry, 1, UINT64_MAX));
    CHECK(lm_token_bucket_wait_ns(&dry, 1, UINT64_MAX) == UINT64_MAX);
}

/* A day of a client that takes every token: the count is the rate's, to the token. */
static void no_drift(void) {
    static const double rates[] = {0.7, 3, 10.0 / 3, 999.9};
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        struct lm_token_bucket bucket = made(rates[r], 1, 0);
        uint64_t now_ns = 0, end_ns = 3600ull * 1000000000u, given = 0;
        CHECK_AT("rate %g", rates[r]);
        while ((now_ns += lm_token_bucket_wait_ns(&bucket, 1, now_ns)) <= end_ns) {
            CHECK(lm_token_bucket_acquire(&bucket, 1, now_ns));
            given++;
        }
        /* The one at the very end may fall a nanosecond behind it. */
        uint64_t expected = 1 + (uint64_t)(rates[r] * 3600 + 1e-9);
        CHECK(given == expected || given + 1 == expected);
    }
}

/* ---- threads ---- */

struct gift {
    uint64_t now_ns;
    uint32_t count;
};

struct room {
    struct lm_token_bucket bucket;
    pthread_barrier_t start;
    uint64_t step_ns;
    uint32_t back_ns; /* clocks go back by up to so much */
    uint32_t n_max;
};

struct taker {
    struct room *room;
    pthread_t thread;
    uint64_t random;
    uint64_t last_ns; /* the latest time it passed */
    uint32_t gift_count;
    struct gift gifts[PER_THREAD];
};

static void *take(void *argument) {
    struct taker *self = argument;
    struct room *room = self->room;
    pthread_barrier_wait(&room->start);
    for (uint32_t i = 1; i <= PER_THREAD; i++) {
        uint64_t now_ns = 1000000 + i * room->step_ns;
        uint32_t n = 1 + check_below(&self->random, room->n_max);
        if (room->back_ns) now_ns -= check_below(&self->random, room->back_ns);
        if (now_ns > self->last_ns) self->last_ns = now_ns;
        if (lm_token_bucket_acquire(&room->bucket, n, now_ns))
            self->gifts[self->gift_count++] = (struct gift){now_ns, n};
        if (i % 1024 == 0) sched_yield(); /* so that they stay side by side on few cores */
    }
    return NULL;
}

static int by_time(const void *a, const void *b) {
    const struct gift *x = a, *y = b;
    return (x->now_ns > y->now_ns) - (x->now_ns < y->now_ns);
}

/* Over every stretch between two gifts: less than burst + rate * t + u. With S(k) given up to the
 * k-th gift, all stretches that end at k are judged by the least S(i - 1) - rate * t(i). */
static void judge(struct gift *gifts, size_t count, double rate, uint32_t burst, uint32_t shift) {
    long double least = INFINITY, given = 0, worst = -INFINITY;
    qsort(gifts, count, sizeof *gifts, by_time);
    for (size_t k = 0; k < count; k++) {
        long double flowed = (long double)rate * (long double)gifts[k].now_ns / 1e9L;
        if (given - flowed < least) least = given - flowed;
        given += gifts[k].count;
        if (given - flowed - least > worst) worst = given - flowed - least;
    }
    CHECK(worst < burst + ldexpl(1, -(int)shift) + 1e-6L);
}

static uint64_t run_room(struct room *room, double rate, uint32_t burst, uint64_t *random) {
    static struct taker takers[THREADS];
    static struct gift gifts[THREADS * PER_THREAD];
    size_t count = 0;
    uint64_t given = 0;
    check_watchdog(60, "an acquire does not return");
    CHECK(pthread_barrier_init(&room->start, NULL, THREADS) == 0);
    for (uint32_t t = 0; t < THREADS; t++) {
        takers[t].room = room;
        takers[t].random = check_random(random);
        takers[t].gift_count = 0;
        takers[t].last_ns = 0;
        CHECK(pthread_create(&takers[t].thread, NULL, take, &takers[t]) == 0);
    }
    for (uint32_t t = 0; t < THREADS; t++) CHECK(pthread_join(takers[t].thread, NULL) == 0);
    for (uint32_t t = 0; t < THREADS; t++) {
        memcpy(gifts + count, takers[t].gifts, takers[t].gift_count * sizeof *gifts);
        count += takers[t].gift_count;
    }
    for (size_t k = 0; k < count; k++) given += gifts[k].count;
    judge(gifts, count, rate, burst, room->bucket.shift);
    CHECK(lm_token_bucket_is_valid(&room->bucket));
    pthread_barrier_destroy(&room->start);
    check_watchdog(0, "");
    return given;
}

static void together(uint64_t *random) {
    static struct room room;
    static const struct {
        double rate;
        uint32_t burst, n_max, back_ns;
        uint64_t step_ns;
    } cases[] = {
        {1e9 / 64, 100, 1, 0, 10},      {1e9 / 64, 100, 5, 1000, 10}, {1e6, 1000, 64, 5000, 100},
        {0.001, 1000, 1, 100, 1000000}, {1e9, 50, 64, 200, 3},        {3e8, 7, 7, 0, 50},
        {12345.678, 1, 1, 900, 2000},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        CHECK_AT("case %zu", c);
        room = (struct room){
            .step_ns = cases[c].step_ns, .back_ns = cases[c].back_ns, .n_max = cases[c].n_max};
        lm_token_bucket_init(&room.bucket, cases[c].rate, cases[c].burst, 1000000);
        run_room(&room, cases[c].rate, cases[c].burst, random);
    }
}

/* Four threads ask for more than there is, from an empty bucket, and it never stands full: what
 * they were given is what flowed in, to the token. Nothing is lost between them. */
static void nothing_lost(uint64_t *random) {
    static struct room room;
    const uint32_t burst = 1u << 20;
    const uint64_t token_ns = 64, step_ns = 40, start_ns = 1000000;
    CHECK_AT("nothing lost");
    room = (struct room){.step_ns = step_ns, .back_ns = 500, .n_max = 3};
    lm_token_bucket_init(&room.bucket, 1e9 / (double)token_ns, burst, start_ns);
    CHECK(lm_token_bucket_acquire(&room.bucket, burst, start_ns));
    uint64_t given = run_room(&room, 1e9 / (double)token_ns, burst, random);
    uint64_t end_ns = start_ns + PER_THREAD * step_ns;
    while (lm_token_bucket_acquire(&room.bucket, 1, end_ns)) given++;
    CHECK(given == (end_ns - start_ns) / token_ns);
}

int main(void) {
    uint64_t random = check_seed();
    by_hand();
    charged();
    no_double_burst();
    like_a_bucket_of_nanoseconds(&random);
    like_a_bucket_of_reals(&random);
    years();
    no_drift();
    together(&random);
    nothing_lost(&random);
    return check_finish("test_token_bucket");
}
