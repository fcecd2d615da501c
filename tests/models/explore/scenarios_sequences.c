/* scenarios_sequences.c: threads that begin, continue and end sequences in one table
 * (models/sequences.c). Each writes a word that is its sequence's while it owns that: two owners at
 * once, or one that does not know what the last one did, are a race.
 */
#include <string.h>

#include "machine.h"
#include "models/sequence_table.h"
#include "scenario.h"

enum { STEPS_MAX = 3, THREADS_MAX = 3, OPEN_MAX = 2, KEYS = 3, IDLE_NS = 10, LATE = 1000 };

struct step {
    uint8_t id; /* 0: there is none */
    bool starts, ends;
    uint64_t now;
};

struct plan {
    uint32_t max_open;
    uint8_t open; /* a sequence that is there before, with its last request at 1; 0: none */
    struct step threads[THREADS_MAX][STEPS_MAX];
};

static const struct plan plans[] = {
    /* Two begin the same sequence at once, and go on. */
    {2, 0, {{{1, true, false, 1}, {1, false, false, 1}}, {{1, true, false, 1}}}},
    /* One ends it while the other begins it. */
    {2, 1, {{{1, false, true, 1}, {1, true, false, 1}}, {{1, true, false, 1}}}},
    /* One is given way, while its client comes back. */
    {1, 1, {{{1, false, false, 1}, {1, false, false, 1}}, {{2, true, false, LATE}}}},
    /* The same of two that want its place. */
    {1, 1, {{{1, true, false, LATE}}, {{2, true, true, LATE}}, {{1, false, false, 1}}}},
    /* One has its next request just before another would take its place. */
    {1, 1, {{{1, false, false, IDLE_NS - 1}}, {{2, true, false, IDLE_NS + 2}}}},
    /* Two continue one that stays open, beside one that begins and ends. */
    {2,
     1,
     {{{1, false, false, 1}, {1, true, false, 1}},
      {{1, false, false, 1}, {1, false, false, 1}},
      {{2, true, true, 1}}}},
};

static const struct plan *plan;
static struct lm_sequences sequences;
static struct lm_sequence table[OPEN_MAX];
static lm_atomic_u64 keys[OPEN_MAX];
static uint64_t memory[OPEN_MAX][LM_CACHE_LINE / sizeof(uint64_t)];
static uint64_t key_of[KEYS]; /* by a sequence's id */
static uint64_t words[KEYS];  /* of a sequence, by its id */
static uint8_t id_at[OPEN_MAX];
static uint64_t left_at[OPEN_MAX]; /* when an open one was left */
static bool is_always_open;        /* the plan's: each request of it is TAKEN or BUSY */

/* Nobody ends the plan's sequence, or comes so late that it gives way. */
static bool stays_open(void) {
    bool stays = plan->open != 0;
    for (uint32_t t = 0; t < THREADS_MAX; t++) {
        for (uint32_t s = 0; s < STEPS_MAX && plan->threads[t][s].id; s++) {
            const struct step *step = &plan->threads[t][s];
            stays = stays && step->now <= IDLE_NS && !(step->ends && step->id == plan->open);
        }
    }
    return stays;
}

static void ask(uint32_t thread) {
    for (uint32_t s = 0; s < STEPS_MAX && plan->threads[thread][s].id; s++) {
        const struct step *step = &plan->threads[thread][s];
        const struct lm_sequence_ask said = {
            .id = step->id, .starts = step->starts, .ends = step->ends};
        struct lm_sequence_turn turn;
        enum lm_sequence_found found = lm_sequences_take(&sequences, &said, step->now, &turn);
        if (is_always_open && step->id == plan->open && found != LM_SEQUENCE_BUSY &&
            found != LM_SEQUENCE_TAKEN)
            machine_fail("thread %u: an open sequence is not found", thread);
        if (found != LM_SEQUENCE_TAKEN) continue;
        machine_plain_write(&words[step->id], sizeof words[0]);
        if (!step->starts && id_at[turn.at] != step->id)
            machine_fail("thread %u: the state of %u for %u", thread, id_at[turn.at], step->id);
        uint8_t before = id_at[turn.at];
        if (before && before != step->id && left_at[turn.at] + IDLE_NS >= step->now)
            machine_fail("thread %u: %u gives way too early", thread, id_at[turn.at]);
        id_at[turn.at] = step->ends ? 0 : step->id;
        left_at[turn.at] = step->now;
        machine_point("a Run");
        machine_plain_write(&words[step->id], sizeof words[0]);
        lm_sequences_leave(&sequences, &turn, true, step->now);
    }
}

static void set_up(uint32_t variant, bool weak) {
    (void)weak;
    plan = &plans[variant];
    is_always_open = stays_open();
    memset(table, 0, sizeof table);
    memset(keys, 0, sizeof keys);
    memset(id_at, 0, sizeof id_at);
    memset(left_at, 0, sizeof left_at);
    sequences = (struct lm_sequences){.max_open = plan->max_open,
                                      .idle_ns = IDLE_NS,
                                      .id_bytes = sizeof memory[0],
                                      .memory.base = memory,
                                      .keys = keys,
                                      .table = table};
    for (uint64_t id = 1; id < KEYS; id++)
        key_of[id] = lm_sequence_key(&sequences, &(struct lm_sequence_ask){.id = id});
    if (plan->open) {
        lm_store_relaxed_u64(&keys[0], key_of[plan->open]);
        lm_store_relaxed_u64(&table[0].state, LM_SEQUENCE_IS_OPEN);
        lm_store_relaxed_u64(&table[0].used_ns, 1);
        id_at[0] = plan->open;
        left_at[0] = 1;
    }
    for (uint32_t t = 0; t < THREADS_MAX; t++) {
        if (plan->threads[t][0].id) machine_add_thread(ask, t);
    }
}

static void check(void) {
    uint32_t open[KEYS] = {0};
    for (uint32_t at = 0; at < plan->max_open; at++) {
        uint64_t state = lm_load_relaxed_u64(&table[at].state);
        uint64_t key = lm_load_relaxed_u64(&keys[at]);
        if (state == LM_SEQUENCE_IS_BUSY) machine_fail("entry %u is never left", at);
        if ((state == LM_SEQUENCE_IS_OPEN) != (key != 0))
            machine_fail("entry %u has the state %u and key %llu", at, (uint32_t)state,
                         (unsigned long long)key);
        for (uint32_t id = 1; id < KEYS; id++) {
            if (key == key_of[id] && ++open[id] > 1) machine_fail("sequence %u twice", id);
        }
    }
}

#define SEQUENCE(n, v, p, w, fp, fw) \
    {.name = n,                      \
     .set_up = set_up,               \
     .check = check,                 \
     .variant = v,                   \
     .preemptions = p,               \
     .weak_preemptions = w,          \
     .full_preemptions = fp,         \
     .full_weak_preemptions = fw}

const struct scenario scenarios_sequences[] = {
    SEQUENCE("sequence-begins-twice", 0, 3, 1, 5, 3),
    SEQUENCE("sequence-ends-and-begins", 1, 3, 1, 5, 3),
    SEQUENCE("sequence-gives-way", 2, 3, 2, 5, 3),
    SEQUENCE("sequence-gives-way-to-two", 3, 2, 1, 4, 2),
    SEQUENCE("sequence-comes-back", 4, 3, 2, 5, 3),
    SEQUENCE("sequence-stays-open", 5, 3, 1, 4, 2),
};
const uint32_t scenarios_sequences_count =
    sizeof scenarios_sequences / sizeof scenarios_sequences[0];
