/* test_budgets.c (row 53): no window gives out more than its limit, whatever threads, clocks and
 * restarts do; what was not needed comes back, to the window it was of. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "parts/budgets.h"

enum { KEY = LUMEN_BUDGET_OF_KEY, MODEL = LUMEN_BUDGET_OF_MODEL, NOW_S = 1764428400 };

static lumen_budget_config of(uint32_t kind, const char *name, uint64_t requests, uint64_t tokens) {
    return (lumen_budget_config){
        .name = name, .kind = kind, .limit = {requests, 0, tokens, 10 * tokens}};
}

static struct lm_budgets opened(uint32_t port) {
    struct lm_budgets budgets = {0};
    char note[192];
    CHECK(lm_budgets_open(&budgets, port, note, sizeof note) == 0 && !note[0]);
    return budgets;
}

static struct lm_budget *entry(const struct lm_budgets *budgets, uint32_t number) {
    return (struct lm_budget *)(uintptr_t)lm_load_acquire_u64(&budgets->entries) + (number - 1);
}

static uint64_t used(const struct lm_budgets *budgets, uint32_t number, uint32_t limit_at) {
    return lm_load_relaxed_u64(&entry(budgets, number)->count[limit_at]) &
           ((1ull << LUMEN_BUDGET_USED_BITS) - 1);
}

/* All of its owners or none; and what comes back. */
static void of_two(void) {
    struct lm_budgets budgets = opened(0);
    struct lm_budget_shortage why;
    const lumen_budget_config config[] = {of(KEY, "a", 3, 100), of(MODEL, "m", 0, 60)};
    CHECK(lm_budgets_set(&budgets, config, 2, NOW_S) == 0);
    const uint32_t key = lm_budgets_find(&budgets, KEY, "a");
    const uint32_t model = lm_budgets_find(&budgets, MODEL, "m");
    CHECK(key && model && key != model && !lm_budgets_find(&budgets, MODEL, "a"));

    struct lm_budget_tally one = {.of = {(uint16_t)key, (uint16_t)model}}, two = one;
    CHECK(lm_budgets_take(&budgets, &one, 1, 50, NOW_S, &why));
    CHECK(!lm_budgets_take(&budgets, &two, 1, 20, NOW_S, &why)); /* the model has 10 left */
    CHECK(why.kind == MODEL && strcmp(why.owner, "m") == 0 && why.limit == 60 && why.left == 10);
    CHECK(why.limit_at == LUMEN_TOKENS_PER_MINUTE && why.wanted == 20 && why.wait_s == 60);
    CHECK(used(&budgets, key, LUMEN_TOKENS_PER_MINUTE) == 50); /* nothing of it stayed taken */
    CHECK(used(&budgets, key, LUMEN_REQUESTS_PER_MINUTE) == 1);
    lm_budgets_settle(&budgets, &one, 15, NOW_S);
    CHECK(!one.of[0] && !one.of[1] && !one.tokens);
    CHECK(used(&budgets, key, LUMEN_TOKENS_PER_MINUTE) == 15);
    CHECK(used(&budgets, model, LUMEN_TOKENS_PER_DAY) == 15);
    CHECK(lm_load_relaxed_u64(&entry(&budgets, key)->tokens) == 15);
    CHECK(lm_load_relaxed_u64(&entry(&budgets, model)->refused) == 1);

    CHECK(!lm_budgets_take(&budgets, &two, 1, 61, NOW_S, &why) && why.wait_s == 0); /* never */
    CHECK(lm_budgets_take(&budgets, &two, 1, 45, NOW_S, &why));
    lm_budgets_settle(&budgets, &two, 200, NOW_S); /* it had asked for too little */
    CHECK(used(&budgets, key, LUMEN_TOKENS_PER_MINUTE) == 215);
    struct lm_budget_tally three = {.of = {(uint16_t)key}};
    CHECK(!lm_budgets_take(&budgets, &three, 0, 1, NOW_S, &why) && why.left == 0);
    CHECK(lm_budgets_take(&budgets, &three, 1, 0, NOW_S, &why)); /* its third request */
    CHECK(!lm_budgets_take(&budgets, &three, 1, 0, NOW_S, &why));
    CHECK(why.limit_at == LUMEN_REQUESTS_PER_MINUTE);
    lm_budgets_close(&budgets);
}

static void windows(void) {
    struct lm_budgets budgets = opened(0);
    struct lm_budget_shortage why;
    const lumen_budget_config config = of(KEY, "a", 0, 10); /* 100 a day */
    CHECK(lm_budgets_set(&budgets, &config, 1, NOW_S) == 0);
    const struct lm_budget_tally owner = {.of = {(uint16_t)lm_budgets_find(&budgets, KEY, "a")}};
    struct lm_budget_tally one = owner, two = owner, three = owner;
    CHECK(lm_budgets_take(&budgets, &one, 0, 10, NOW_S + 59, &why));
    CHECK(!lm_budgets_take(&budgets, &two, 0, 1, NOW_S + 59, &why) && why.wait_s == 1);
    CHECK(lm_budgets_take(&budgets, &two, 0, 6, NOW_S + 60, &why)); /* the next minute */
    /* A thread whose clock is behind takes from the minute that has begun. */
    CHECK(!lm_budgets_take(&budgets, &three, 0, 5, NOW_S + 59, &why) && why.left == 4);
    CHECK(lm_budgets_take(&budgets, &three, 0, 4, NOW_S + 59, &why));
    lm_budgets_settle(&budgets, &three, 0, NOW_S + 60);
    CHECK(used(&budgets, owner.of[0], LUMEN_TOKENS_PER_MINUTE) == 6);
    lm_budgets_settle(&budgets, &one, 1, NOW_S + 61); /* its minute is over, its day is not */
    CHECK(used(&budgets, owner.of[0], LUMEN_TOKENS_PER_MINUTE) == 6);
    CHECK(used(&budgets, owner.of[0], LUMEN_TOKENS_PER_DAY) == 7);
    /* A clock that was years ahead for a while: the count goes on with what it says now. */
    three = owner;
    CHECK(lm_budgets_take(&budgets, &three, 0, 10, NOW_S + 400000000ull, &why));
    three = owner;
    CHECK(lm_budgets_take(&budgets, &three, 0, 10, NOW_S + 120, &why));
    lm_budgets_close(&budgets);
}

/* The file goes on, with its names; who has left keeps counts for a day; a copy is taken where it
 * knows more. */
static void restarts(void) {
    const uint32_t port = 200000 + (uint32_t)getpid(); /* no server's */
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/lumen-%u.budgets", port);
    lumen_budget_config config = of(KEY, "a", 0, 10);
    struct lm_budget_shortage why;
    struct lm_budgets budgets = opened(port), other = opened(port);
    CHECK(lm_budgets_set(&budgets, &config, 1, NOW_S) == 0);
    CHECK(lm_budgets_set(&other, &config, 1, NOW_S) == 0);
    struct lm_budget_tally one = {.of = {(uint16_t)lm_budgets_find(&budgets, KEY, "a")}}, two = one;
    CHECK(lm_budgets_take(&budgets, &one, 0, 7, NOW_S, &why));
    CHECK(!lm_budgets_take(&other, &two, 0, 4, NOW_S, &why)); /* two servers have it in common */
    lm_budgets_close(&budgets);
    lm_budgets_close(&other);

    budgets = opened(port);
    CHECK(lm_budgets_set(&budgets, NULL, 0, NOW_S) == 0); /* without a limit for a while */
    two = (struct lm_budget_tally){.of = {(uint16_t)lm_budgets_find(&budgets, KEY, "a")}};
    CHECK(lm_budgets_take(&budgets, &two, 0, 1000, NOW_S, &why));
    config.count[LUMEN_TOKENS_PER_MINUTE] =
        lm_load_relaxed_u64(&entry(&budgets, two.of[0])->count[LUMEN_TOKENS_PER_MINUTE]) + 1;
    CHECK(lm_budgets_set(&budgets, &config, 1, NOW_S) == 0);
    CHECK(used(&budgets, two.of[0], LUMEN_TOKENS_PER_MINUTE) == 8); /* the copy's */
    config.count[LUMEN_TOKENS_PER_MINUTE] -= 5;
    CHECK(lm_budgets_set(&budgets, &config, 1, NOW_S) == 0);
    CHECK(used(&budgets, two.of[0], LUMEN_TOKENS_PER_MINUTE) == 8); /* an older one's */
    lm_budgets_close(&budgets);

    CHECK(truncate(path, 100) == 0); /* of another version: it begins anew */
    budgets = opened(port);
    CHECK(lm_budgets_set(&budgets, NULL, 0, NOW_S) == 0);
    CHECK(!lm_budgets_find(&budgets, KEY, "a"));
    lm_budgets_close(&budgets);
    CHECK(unlink(path) == 0);
}

/* Ever new names: those of the day before yesterday give way. */
static void names(void) {
    struct lm_budgets budgets = opened(0);
    struct lm_budget_shortage why;
    char name[32];
    for (uint32_t n = 0; n < LUMEN_BUDGETS_MAX; n++) {
        snprintf(name, sizeof name, "key-%u", n);
        const lumen_budget_config config = of(KEY, name, 0, 10);
        CHECK(lm_budgets_set(&budgets, &config, 1, NOW_S) == 0);
        struct lm_budget_tally one = {.of = {(uint16_t)lm_budgets_find(&budgets, KEY, name)}};
        CHECK(one.of[0] && lm_budgets_take(&budgets, &one, 0, 1, NOW_S, &why));
    }
    const lumen_budget_config more = of(MODEL, "more", 0, 10);
    CHECK(lm_budgets_set(&budgets, &more, 1, NOW_S) == LUMEN_E_INVALID);
    /* The last key has the limit that it had. */
    struct lm_budget_tally again = {.of = {(uint16_t)lm_budgets_find(&budgets, KEY, name)}};
    CHECK(!lm_budgets_take(&budgets, &again, 0, 10, NOW_S, &why));
    CHECK(lm_budgets_set(&budgets, &more, 1, NOW_S + 2 * 86400) == 0);
    CHECK(lm_budgets_find(&budgets, MODEL, "more") && !lm_budgets_find(&budgets, KEY, "key-0"));

    const lumen_budget_config wrong[] = {of(3, "a", 0, 1), of(KEY, "", 0, 1),
                                         of(KEY, "a", 0, 1ull << 41)};
    for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++)
        CHECK(lm_budgets_set(&budgets, &wrong[w], 1, NOW_S) == LUMEN_E_INVALID);
    lm_budgets_close(&budgets);
}

/* ---- threads ---- */

struct room {
    struct lm_budgets budgets;
    pthread_barrier_t start;
    lm_atomic_u64 steps;     /* of all threads: the time of day */
    lm_atomic_u64 spent[16]; /* by minute */
};

enum { THREADS = 8, STEPS = 20000, LIMIT = 1000 };

struct spender {
    struct room *room;
    uint64_t random;
};

/* Clocks that disagree by half a minute; each spends all that it takes, or a part of it. */
static void *spend(void *argument) {
    struct spender *spender = argument;
    struct room *room = spender->room;
    struct lm_budget_shortage why;
    pthread_barrier_wait(&room->start);
    for (uint32_t i = 0; i < STEPS; i++) {
        const uint64_t step = lm_count_relaxed_u64(&room->steps, 1);
        const uint64_t now_s =
            NOW_S + step * 600 / (THREADS * STEPS) + check_below(&spender->random, 30);
        struct lm_budget_tally tally = {.of = {1}};
        const uint64_t n = 1 + check_below(&spender->random, 40);
        if (!lm_budgets_take(&room->budgets, &tally, 0, n, now_s, &why)) continue;
        const uint32_t minute = (tally.minute - (uint32_t)(NOW_S / 60)) & 0xffffff;
        CHECK(minute < 16);
        const uint64_t spent = check_below(&spender->random, 2) ? n : n / 2;
        (void)lm_count_relaxed_u64(&room->spent[minute], spent);
        lm_budgets_settle(&room->budgets, &tally, spent, now_s);
    }
    return NULL;
}

static void together(uint64_t *random) {
    static struct room room;
    pthread_t threads[THREADS];
    struct spender spenders[THREADS];
    const lumen_budget_config config = {
        .name = "a", .kind = KEY, .limit = {[LUMEN_TOKENS_PER_MINUTE] = LIMIT}};
    room.budgets = opened(0);
    CHECK(lm_budgets_set(&room.budgets, &config, 1, NOW_S) == 0);
    pthread_barrier_init(&room.start, NULL, THREADS);
    for (uint32_t t = 0; t < THREADS; t++) {
        spenders[t] = (struct spender){&room, check_random(random)};
        CHECK(pthread_create(&threads[t], NULL, spend, &spenders[t]) == 0);
    }
    for (uint32_t t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    uint64_t sum = 0;
    for (uint32_t m = 0; m < 16; m++) {
        const uint64_t spent = lm_load_relaxed_u64(&room.spent[m]);
        CHECK_AT("minute %u: %llu", m, (unsigned long long)spent);
        CHECK(spent <= LIMIT);
        sum += spent;
    }
    CHECK(sum > 0 && lm_load_relaxed_u64(&entry(&room.budgets, 1)->tokens) == sum);
    lm_budgets_close(&room.budgets);
}

int main(void) {
    uint64_t random = 20251129;
    of_two();
    windows();
    restarts();
    names();
    together(&random);
    return check_finish("test_budgets");
}
