/* microbench.c: what the server's parts cost by themselves, in nanoseconds per operation.
 *
 *   microbench [--fast]
 *
 * Queues (a push and a pop, alone and between threads), slots and arenas against malloc and free, a
 * histogram's record, a look at the clock, waking a sleeping thread, taking a token from a bucket
 * or a budget, looking up a client's key. Started by
 * bench/micro/microbench.py, which makes a table of the JSON this prints. Each figure is measured
 * several times over: the minimum is what the code costs, the median what this machine makes of it.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/topology.h"
#include "parts/arena.h"
#include "parts/budgets.h"
#include "parts/histogram.h"
#include "parts/keys.h"
#include "parts/queue.h"
#include "parts/token_bucket.h"
#include "parts/waitset.h"

enum {
    CAPACITY = 1024,
    THREADS_MAX = 4,
    REPEATS_MAX = 64,
    REGION_BYTES = 256 << 10, /* what the bump pointer runs through before it is reset */
    WAKES_MAX = 1 << 14,
    VALUES = 1024,
};

static int32_t cpus[LUMEN_WORKERS_MAX];
static uint32_t cpu_count;
static uint32_t repeats = 25;
static uint64_t scale = 1; /* --fast divides the work by this */
static bool first = true;

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "microbench: %s\n", what);
    exit(1);
}

/* The compiler must take it that somebody looks at what `pointer` points to. */
static inline void keep(const void *pointer) {
    __asm__ volatile("" : : "r"(pointer) : "memory");
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* `detail` is a size in bytes, or a number of threads, tokens or keys. */
static void print_samples(const char *group, const char *name, uint64_t detail, double *samples,
                          size_t count) {
    char p99[32] = "null"; /* of a few repeats there is none */
    qsort(samples, count, sizeof *samples, by_value);
    if (count > REPEATS_MAX)
        snprintf(p99, sizeof p99, "%.2f", samples[(size_t)(0.99 * (double)(count - 1))]);
    printf("%s\n  {\"group\": \"%s\", \"name\": \"%s\", \"detail\": %llu, \"min_ns\": %.2f, "
           "\"median_ns\": %.2f, \"p99_ns\": %s}",
           first ? "" : ",", group, name, (unsigned long long)detail, samples[0],
           samples[count / 2], p99);
    first = false;
}

/* Runs `operations` operations. */
typedef void (*work)(void *state, uint64_t operations);

static void measure(const char *group, const char *name, uint64_t detail, work run, void *state,
                    uint64_t operations) {
    double samples[REPEATS_MAX];
    operations = operations / scale + 1;
    run(state, operations / 10 + 1); /* caches and predictors */
    for (uint32_t repeat = 0; repeat < repeats; repeat++) {
        uint64_t start = lm_now_ns();
        run(state, operations);
        samples[repeat] = (double)(lm_now_ns() - start) / (double)operations;
    }
    print_samples(group, name, detail, samples, repeats);
}

/* One thread of several that start together. */
struct party {
    work run;
    void *state;
    uint64_t operations;
    uint32_t place; /* which core, counted round */
    pthread_barrier_t *start;
    uint64_t begin_ns, end_ns;
};

static void *party_main(void *argument) {
    struct party *party = argument;
    lm_thread_pin(cpus[party->place % cpu_count]);
    pthread_barrier_wait(party->start);
    party->begin_ns = lm_now_ns();
    party->run(party->state, party->operations);
    party->end_ns = lm_now_ns();
    return NULL;
}

/* From the first one's start to the last one's end. */
static double together_ns(struct party *parties, uint32_t count) {
    pthread_t threads[THREADS_MAX];
    pthread_barrier_t start;
    uint64_t begin = UINT64_MAX, end = 0;
    pthread_barrier_init(&start, NULL, count);
    for (uint32_t i = 0; i < count; i++) {
        parties[i].start = &start;
        if (pthread_create(&threads[i], NULL, party_main, &parties[i]))
            fail("cannot start a thread");
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        if (parties[i].begin_ns < begin) begin = parties[i].begin_ns;
        if (parties[i].end_ns > end) end = parties[i].end_ns;
    }
    pthread_barrier_destroy(&start);
    return (double)(end - begin);
}

/* ---- queues ---- */

static void push_and_pop(void *state, uint64_t operations) {
    struct lm_queue *queue = state;
    for (uint64_t i = 0; i < operations; i++) {
        uint32_t value;
        if (!lm_queue_push(queue, (uint32_t)i) || !lm_queue_pop(queue, &value))
            fail("a queue of one thread lost a value");
        keep(&value);
    }
}

struct side {
    struct lm_queue *queue;
    bool produces;
};

/* Gives the core away after a while: there may be more threads than cores. */
static void wait_a_little(uint32_t *tries) {
    if (++*tries % 64 == 0) {
        sched_yield();
    } else {
        lm_cpu_relax();
    }
}

static void push_or_pop(void *state, uint64_t operations) {
    const struct side *side = state;
    uint32_t tries = 0, value;
    for (uint64_t i = 0; i < operations; i++) {
        if (side->produces) {
            while (!lm_queue_push(side->queue, (uint32_t)i)) wait_a_little(&tries);
        } else {
            while (!lm_queue_pop(side->queue, &value)) wait_a_little(&tries);
        }
    }
}

static double exchange_ns(struct lm_queue *queue, uint32_t producers, uint32_t consumers,
                          uint64_t messages) {
    struct side sides[2] = {{queue, true}, {queue, false}};
    struct party parties[THREADS_MAX];
    for (uint32_t i = 0; i < producers + consumers; i++) {
        bool produces = i < producers;
        /* Sides alternate over the cores: with two of them, each holds one of a pair. */
        parties[i] = (struct party){.run = push_or_pop,
                                    .state = &sides[produces ? 0 : 1],
                                    .operations = messages / (produces ? producers : consumers),
                                    .place = produces ? 2 * i : 2 * (i - producers) + 1};
    }
    return together_ns(parties, producers + consumers) / (double)messages;
}

static void measure_queues(void) {
    static const uint32_t types[] = {LUMEN_QUEUE_MPMC, LUMEN_QUEUE_SCQ, LUMEN_QUEUE_SPSC,
                                     LUMEN_QUEUE_NAIVE};
    static const uint32_t sides[][2] = {{1, 1}, {2, 1}, {2, 2}};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        struct lm_queue *queue = aligned_alloc(LM_CACHE_LINE, sizeof *queue);
        if (!queue || lm_queue_open(queue, types[t], CAPACITY, 1, 0)) fail("cannot open a queue");
        const char *name = lm_queue_name(types[t]);
        measure("queue, push + pop", name, 1, push_and_pop, queue, 2000000);
        for (size_t s = 0; s < sizeof sides / sizeof sides[0]; s++) {
            uint32_t producers = sides[s][0], consumers = sides[s][1];
            if (types[t] == LUMEN_QUEUE_SPSC && producers + consumers > 2) continue;
            double samples[REPEATS_MAX];
            char group[64];
            snprintf(group, sizeof group, "queue, %u to %u", producers, consumers);
            for (uint32_t repeat = 0; repeat < repeats; repeat++)
                samples[repeat] = exchange_ns(queue, producers, consumers, 400000 / scale / 4 * 4);
            print_samples(group, name, producers + consumers, samples, repeats);
        }
        lm_queue_close(queue);
        free(queue);
    }
}

/* ---- memory ---- */

struct memory {
    struct lm_slot slot;
    struct lm_arena arena;
    size_t bytes;
    bool fill; /* writes all of it, as whoever asked for it will */
};

static inline void use(const struct memory *memory, void *at) {
    if (!at) fail("no memory");
    if (memory->fill) memset(at, 1, memory->bytes);
    keep(at);
}

static void bump(void *state, uint64_t operations) {
    struct memory *memory = state;
    for (uint64_t i = 0; i < operations; i++) {
        void *at = lm_slot_alloc(&memory->slot, memory->bytes);
        if (!at) {
            lm_slot_reset(&memory->slot);
            at = lm_slot_alloc(&memory->slot, memory->bytes);
        }
        use(memory, at);
    }
}

static void malloc_and_free(void *state, uint64_t operations) {
    const struct memory *memory = state;
    for (uint64_t i = 0; i < operations; i++) {
        void *at = malloc(memory->bytes);
        use(memory, at);
        free(at);
    }
}

static void acquire_and_release(void *state, uint64_t operations) {
    struct memory *memory = state;
    for (uint64_t i = 0; i < operations; i++) {
        struct lm_slot *slot = lm_arena_acquire(&memory->arena, memory->bytes);
        use(memory, slot->base);
        lm_arena_release(&memory->arena, slot);
    }
}

static void measure_memory(void) {
    static const size_t sizes[] = {64, 512, 4 << 10, 64 << 10};
    struct lm_mapping region;
    if (lm_mapping_open(&region, REGION_BYTES)) fail(lm_error_last());
    for (int fill = 0; fill < 2; fill++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            struct memory memory = {.slot = {.base = region.base, .bytes = REGION_BYTES},
                                    .bytes = sizes[s],
                                    .fill = fill};
            lumen_slot_class class = {.slot_bytes = sizes[s], .slot_count = 64};
            uint64_t operations = fill ? (64u << 20) / (sizes[s] + 64) : 2000000;
            const char *group = fill ? "memory, written" : "memory";
            measure(group, "lm_slot_alloc", sizes[s], bump, &memory, operations);
            measure(group, "malloc + free", sizes[s], malloc_and_free, &memory, operations);
            for (uint32_t type = LUMEN_ALLOCATOR_ARENA; type <= LUMEN_ALLOCATOR_STANDARD; type++) {
                if (lm_arena_open(&memory.arena, &class, 1, 0, type, LUMEN_HUGE_TRANSPARENT, NULL))
                    fail(lm_error_last());
                measure(group,
                        type == LUMEN_ALLOCATOR_ARENA ? "acquire + release, lumen_arena"
                                                      : "acquire + release, standard",
                        sizes[s], acquire_and_release, &memory, operations);
                lm_arena_close(&memory.arena);
            }
        }
    }
    lm_mapping_close(&region);
}

/* ---- statistics and the clock ---- */

struct recorder {
    struct lm_histogram histogram;
    uint64_t values[VALUES];
};

static void record(void *state, uint64_t operations) {
    struct recorder *recorder = state;
    for (uint64_t i = 0; i < operations; i++)
        lm_histogram_record(&recorder->histogram, recorder->values[i % VALUES]);
}

static void look_at_clock(void *state, uint64_t operations) {
    (void)state;
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t now = lm_now_ns();
        keep(&now);
    }
}

static void measure_small_things(void) {
    static struct recorder recorder;
    uint64_t random = 88172645463325252u;
    for (uint32_t i = 0; i < VALUES; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        recorder.values[i] = random >> (29 + random % 24); /* up to 34 s, every size alike */
    }
    measure("statistics", "histogram record", 0, record, &recorder, 4000000);
    measure("statistics", "clock_gettime(CLOCK_MONOTONIC)", 0, look_at_clock, NULL, 2000000);
}

/* ---- sleep and wake ---- */

struct sleeper {
    struct lm_waitset set;
    LM_CACHE_ALIGNED lm_atomic_u64 round; /* written by the waker: how often it has called */
    LM_CACHE_ALIGNED lm_atomic_u64 seen;  /* written by the sleeper: the last call it ran for */
    lm_atomic_u64 ran_ns;                 /* and when */
    uint64_t rounds;
};

static void *sleeper_main(void *argument) {
    struct sleeper *sleeper = argument;
    lm_thread_pin(cpus[1 % cpu_count]);
    for (uint64_t done = 0; done < sleeper->rounds;) {
        uint64_t now = lm_now_ns();
        /* acquire: pairs with the waker's release, so that `ran_ns` may be written again */
        uint64_t round = lm_load_acquire_u64(&sleeper->round);
        if (round > done) {
            lm_store_relaxed_u64(&sleeper->ran_ns, now); /* published by the release below */
            done = round;
            lm_store_release_u64(&sleeper->seen, done);
            continue;
        }
        lm_waitset_prepare(&sleeper->set, 0, now);
        if (lm_load_acquire_u64(&sleeper->round) > done) {
            lm_waitset_cancel(&sleeper->set, 0);
        } else {
            lm_waitset_sleep(&sleeper->set, 0, UINT64_MAX);
        }
    }
    return NULL;
}

static void nap_us(long microseconds) {
    struct timespec time = {.tv_nsec = microseconds * 1000};
    nanosleep(&time, NULL);
}

static void measure_wakes(void) {
    static struct sleeper sleeper;
    static double calls[WAKES_MAX], latencies[WAKES_MAX];
    pthread_t thread;
    uint64_t rounds = 4000 / scale, count = 0;
    lm_waitset_init(&sleeper.set);
    sleeper.rounds = rounds;
    if (pthread_create(&thread, NULL, sleeper_main, &sleeper)) fail("cannot start a thread");
    lm_thread_pin(cpus[0]);
    for (uint64_t i = 0; i < rounds; i++) {
        /* It has announced itself; give it the time to be really asleep, in the kernel's eyes. */
        while (!lm_load_acquire_u64(&sleeper.set.sleepers)) sched_yield();
        nap_us(200);
        uint64_t start = lm_now_ns();
        lm_store_release_u64(&sleeper.round, i + 1); /* pairs with the sleeper's acquire */
        lm_waitset_wake_one(&sleeper.set);
        uint64_t called = lm_now_ns();
        while (lm_load_acquire_u64(&sleeper.seen) != i + 1) sched_yield();
        uint64_t ran = lm_load_relaxed_u64(&sleeper.ran_ns);
        if (ran <= start) continue; /* it was awake, for a reason of its own */
        calls[count] = (double)(called - start);
        latencies[count++] = (double)(ran - start);
    }
    pthread_join(thread, NULL);
    if (!count) fail("no wake-up could be timed");
    print_samples("wake-up", "the waker's call", 0, calls, count);
    print_samples("wake-up", "until the sleeper runs", 0, latencies, count);
}

/* ---- limits ---- */

struct taker {
    struct lm_token_bucket *bucket;
    uint32_t tokens; /* at once */
    bool refused;    /* what is timed is a refusal */
};

static void take(void *state, uint64_t operations) {
    const struct taker *taker = state;
    for (uint64_t i = 0; i < operations; i++) {
        if (lm_token_bucket_acquire(taker->bucket, taker->tokens, i) == taker->refused)
            fail("a token bucket decided otherwise than meant to");
    }
}

static double contend_ns(work run, void *state, uint64_t operations) {
    struct party parties[THREADS_MAX];
    for (uint32_t i = 0; i < THREADS_MAX; i++) {
        parties[i] = (struct party){
            .run = run, .state = state, .operations = operations / THREADS_MAX, .place = i};
    }
    return together_ns(parties, THREADS_MAX) / (double)operations;
}

struct spender {
    struct lm_budgets budgets;
    struct lm_budget_tally owners;
    uint64_t tokens; /* that a request takes; half of them are given back */
};

/* A request takes tokens of its budgets, and settles. */
static void spend(void *state, uint64_t operations) {
    const struct spender *spender = state;
    struct lm_budget_shortage why;
    for (uint64_t i = 0; i < operations; i++) {
        struct lm_budget_tally tally = spender->owners;
        if (lm_budgets_take(&spender->budgets, &tally, 1, spender->tokens, 60, &why))
            lm_budgets_settle(&spender->budgets, &tally, spender->tokens / 2, 60);
        else if (spender->tokens < 1000000)
            fail("a budget refused");
    }
}

static void measure_budgets(void) {
    static struct spender spender = {.tokens = 1000};
    const uint64_t most = 1ull << 38;
    const lumen_budget_config config[] = {
        {.name = "k", .kind = LUMEN_BUDGET_OF_KEY, .limit = {most, most, most, most}},
        {.name = "m", .kind = LUMEN_BUDGET_OF_MODEL, .limit = {most, most, most, most}}};
    double samples[REPEATS_MAX];
    char note[192];
    if (lm_budgets_open(&spender.budgets, 0, note, sizeof note) ||
        lm_budgets_set(&spender.budgets, config, 2, 60))
        fail(lm_error_last());
    for (uint32_t owners = 1; owners <= LM_BUDGET_OWNERS; owners++) {
        spender.owners.of[owners - 1] = (uint16_t)owners;
        measure("budgets, take + settle", "4 limits each", owners, spend, &spender, 1000000);
    }
    for (uint32_t repeat = 0; repeat < repeats; repeat++)
        samples[repeat] = contend_ns(spend, &spender, 1000000 / scale);
    print_samples("budgets, 4 threads", "4 limits each", LM_BUDGET_OWNERS, samples, repeats);
    spender.tokens = most;
    measure("budgets, refusal", "4 limits each", LM_BUDGET_OWNERS, spend, &spender, 1000000);
    lm_budgets_close(&spender.budgets);
}

static void measure_buckets(void) {
    static const uint32_t batches[] = {1, 64};
    static struct lm_token_bucket bucket, empty;
    double samples[REPEATS_MAX];
    lm_token_bucket_init(&empty, LM_RATE_MIN, 1, 0);
    if (!lm_token_bucket_acquire(&empty, 1, 0)) fail("a full bucket refused");
    for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
        struct taker taker = {.bucket = &bucket, .tokens = batches[b]};
        lm_token_bucket_init(&bucket, LM_RATE_MAX, UINT32_MAX, 0); /* enough for all repeats */
        measure("token bucket", "acquire", batches[b], take, &taker, 2000000);
    }
    struct taker each = {.bucket = &bucket, .tokens = 1};
    lm_token_bucket_init(&bucket, LM_RATE_MAX, UINT32_MAX, 0);
    for (uint32_t repeat = 0; repeat < repeats; repeat++)
        samples[repeat] = contend_ns(take, &each, 2000000 / scale);
    print_samples("token bucket, 4 threads", "acquire", 1, samples, repeats);
    struct taker refused = {.bucket = &empty, .tokens = 1, .refused = true};
    measure("token bucket", "refusal", 1, take, &refused, 2000000);
}

static void find_key(void *state, uint64_t operations) {
    static const uint8_t token[32] = "a token of 32 bytes, as most are";
    for (uint64_t i = 0; i < operations; i++) {
        uint32_t key = lm_keys_find(state, token, sizeof token);
        keep(&key);
    }
}

static void measure_keys(void) {
    static const uint32_t counts[] = {1, LUMEN_KEYS_MAX};
    static lumen_key_config config[LUMEN_KEYS_MAX];
    static char names[LUMEN_KEYS_MAX][8];
    for (uint32_t i = 0; i < LUMEN_KEYS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "k%u", i);
        config[i].name = names[i];
        memcpy(config[i].sha256, &i, sizeof i);
    }
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        struct lm_keys keys;
        if (lm_keys_open(&keys, config, counts[c], 0)) fail(lm_error_last());
        measure("keys", "find", counts[c], find_key, &keys, 200000);
        lm_keys_close(&keys);
    }
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--fast") == 0) {
        scale = 20;
        repeats = 5;
    } else if (argc != 1) {
        fail("expected no argument, or --fast");
    }
    int found = lm_topology_usable_cpus("", cpus, LUMEN_WORKERS_MAX);
    if (found < 1) fail("no usable cores");
    cpu_count = (uint32_t)(found < LUMEN_WORKERS_MAX ? found : LUMEN_WORKERS_MAX);
    printf("{\"cores\": %u, \"repeats\": %u, \"results\": [", cpu_count, repeats);
    measure_queues();
    measure_memory();
    measure_small_things();
    measure_wakes();
    measure_buckets();
    measure_budgets();
    measure_keys();
    printf("\n]}\n");
    return 0;
}
