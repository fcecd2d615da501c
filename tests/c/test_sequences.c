/* test_sequences.c: the table of open sequences: what one thread finds in it, against a model in
 * words; and several threads, of which no two ever own one sequence. */
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "check.h"
#include "models/model.h"
#include "models/sequence_table.h"
#include "models/sequences_open.h"
#include "parts/keys.h"

enum { IDLE_NS = 1000000, IDS = 6, OPEN = 4, STEPS = 20000, THREADS = 3, ROUNDS = 20000 };

static struct lm_sequences *sequences;
static struct lm_model model = {.input_count = 1, .output_count = 1};

static void begin(uint32_t max_open) {
    static const char *names[] = {"x", "y"};
    const lumen_sequences_config config = {.max_open = max_open, .idle_ms = IDLE_NS / 1000000};
    model.input_names = &names[0];
    model.output_names = &names[1];
    CHECK(lm_sequences_open(&sequences, &config) == 0);
    CHECK(lm_sequences_settle(sequences, &model, NULL) == 0); /* no tensor of its own */
}

static void end(void) {
    lm_sequences_close(sequences, NULL);
    sequences = NULL;
}

static enum lm_sequence_found take(uint64_t id, bool starts, bool ends, uint64_t now,
                                   struct lm_sequence_turn *turn) {
    const struct lm_sequence_ask ask = {.id = id, .starts = starts, .ends = ends};
    return lm_sequences_take(sequences, &ask, now, turn);
}

static void bounds(void) {
    const lumen_sequences_config none = {.max_open = 0, .idle_ms = 1};
    const lumen_sequences_config never = {.max_open = 1, .idle_ms = 0};
    const lumen_sequences_config states = {
        .max_open = 1, .idle_ms = 1, .state_count = LUMEN_STATES_MAX + 1};
    CHECK(lm_sequences_open(&sequences, &none) == LUMEN_E_INVALID && !sequences);
    CHECK(strstr(lm_error_last(), "max_open: expected 1 to 65536, found 0"));
    CHECK(lm_sequences_open(&sequences, &never) == LUMEN_E_INVALID && !sequences);
    CHECK(lm_sequences_open(&sequences, &states) == LUMEN_E_INVALID && !sequences);
}

/* All states of a model together have a bound; none of their memory is taken before. */
static void bytes_of_states(void) {
    static const lumen_state state = {.input = "s", .output = "s_next"};
    const lumen_sequences_config config = {
        .max_open = 1024, .idle_ms = 1, .states = &state, .state_count = 1};
    static const char *names[] = {"x", "y"};
    model.input_names = &names[0];
    model.output_names = &names[1];
    CHECK(lm_sequences_open(&sequences, &config) == 0);
    sequences->states[0].has_input = sequences->states[0].has_output = true;
    sequences->states[0].tensor.row_bytes = LM_SEQUENCES_BYTES_MAX / 1024 / 2;
    CHECK(lm_sequences_settle(sequences, &model, NULL) == LUMEN_E_MODEL);
    CHECK(strstr(lm_error_last(), "1024 states of 1073741824 bytes are more than 1099511627776"));
    CHECK(!sequences->memory.base);
    end();
}

static bool is_open(const struct lm_sequence_ask *ask) {
    struct lm_sequence_turn turn;
    if (lm_sequences_take(sequences, ask, 1, &turn) != LM_SEQUENCE_TAKEN) return false;
    lm_sequences_leave(sequences, &turn, true, 1);
    return true;
}

static struct lm_sequence_ask named(const char *text, uint64_t owner) {
    struct lm_sequence_ask ask = {.owner = owner, .text_bytes = (uint32_t)strlen(text)};
    memcpy(ask.text, text, ask.text_bytes);
    return ask;
}

/* Who asks, and how a number is written, are parts of the name; nobody can compute an id of theirs
 * that is another owner's. */
static void owners(void) {
    const uint64_t ann = lm_key_owner("ann"), bob = lm_key_owner("bob");
    struct lm_sequence_ask ask = {.id = 7, .owner = ann, .starts = true};
    begin(8);
    CHECK(is_open(&ask));
    ask.starts = false;
    CHECK(is_open(&ask));
    const struct lm_sequence_ask others[] = {
        {.id = 7},       {.id = 7, .owner = bob}, {.id = 7 ^ ann ^ bob, .owner = bob},
        {.id = 7 ^ ann}, {.id = ann, .owner = 7}, named("7", ann),
        named("\7", ann)};
    for (size_t o = 0; o < sizeof others / sizeof others[0]; o++) CHECK(!is_open(&others[o]));
    struct lm_sequence_ask text = named("7", ann);
    text.starts = true;
    CHECK(is_open(&text));
    text = named("70", ann);
    CHECK(!is_open(&text));
    text = named("7", ann);
    CHECK(is_open(&text));
    end();
    /* Another table finds the same ids by other keys. */
    struct lm_sequences *before;
    begin(8);
    before = sequences;
    begin(8);
    CHECK(lm_sequence_key(before, &ask) != lm_sequence_key(sequences, &ask));
    end();
    sequences = before;
    end();
}

/* Where there are others, one owner has at most half, of which idle ones count no more. */
static void shares(void) {
    struct lm_sequence_turn turn;
    struct lm_sequence_ask ann = {.owner = 1, .is_bounded = true, .starts = true};
    struct lm_sequence_ask bob = {.owner = 2, .is_bounded = true, .starts = true};
    begin(OPEN);
    for (ann.id = 1; ann.id <= OPEN / 2; ann.id++) CHECK(is_open(&ann));
    CHECK(lm_sequences_take(sequences, &ann, 1, &turn) == LM_SEQUENCE_SHARE);
    for (bob.id = 1; bob.id <= OPEN / 2; bob.id++) CHECK(is_open(&bob));
    CHECK(lm_sequences_take(sequences, &bob, 1, &turn) == LM_SEQUENCE_FULL);
    for (ann.id = 1; ann.id <= OPEN / 2; ann.id++) CHECK(is_open(&ann)); /* they are hers */
    CHECK(lm_sequences_take(sequences, &ann, IDLE_NS + 2, &turn) == LM_SEQUENCE_TAKEN);
    end();
    begin(OPEN); /* also while idle ones are still in the table, and none of them has to give way */
    for (ann.id = 1; ann.id <= OPEN / 2; ann.id++) CHECK(is_open(&ann));
    CHECK(lm_sequences_take(sequences, &ann, IDLE_NS + 2, &turn) == LM_SEQUENCE_TAKEN);
    end();
    begin(OPEN);
    ann.is_bounded = false;
    for (ann.id = 1; ann.id <= OPEN; ann.id++) CHECK(is_open(&ann));
    CHECK(lm_sequences_take(sequences, &ann, 1, &turn) == LM_SEQUENCE_FULL);
    end();
    begin(1);
    CHECK(is_open(&bob));
    end();
}

/* A long table is groups: each is full by itself, and all entries are some group's. */
static void groups(void) {
    enum { LONG = 2 * LM_SEQUENCE_GROUP_MAX + 1 };
    struct lm_sequence_ask ask = {.starts = true};
    static bool is_used[LONG];
    uint32_t used = 0, before = 0;
    begin(LONG);
    for (ask.id = 1; used < LONG; ask.id++) {
        struct lm_sequence_turn turn;
        enum lm_sequence_found found = lm_sequences_take(sequences, &ask, 1, &turn);
        CHECK(found == LM_SEQUENCE_TAKEN || (found == LM_SEQUENCE_FULL && used > 0));
        before += found == LM_SEQUENCE_FULL && !before ? used : 0;
        if (found == LM_SEQUENCE_FULL) continue;
        CHECK(turn.at < LONG && !is_used[turn.at]);
        is_used[turn.at] = true;
        used++;
        lm_sequences_leave(sequences, &turn, true, 1);
    }
    /* The smallest group; 0: all were full with the last sequence. */
    CHECK(before == 0 || before >= LM_SEQUENCE_GROUP_MAX / 2);
    end();
    /* Up to a group's size there is one. */
    begin(LM_SEQUENCE_GROUP_MAX);
    for (ask.id = 1; ask.id <= LM_SEQUENCE_GROUP_MAX; ask.id++) CHECK(is_open(&ask));
    end();
}

/* ---- one thread, against a model ---- */

struct expected {
    bool is_open, is_taken;
    uint64_t used;
    struct lm_sequence_turn turn;
};

static struct expected all[IDS];

static bool is_idle(const struct expected *one, uint64_t now) {
    return now > one->used + IDLE_NS;
}

/* Of those that are in the table; `idle`: which may give way. */
static uint32_t in_table(uint64_t now, uint32_t *idle_out) {
    uint32_t count = 0;
    *idle_out = 0;
    for (uint32_t i = 0; i < IDS; i++) {
        count += all[i].is_open || all[i].is_taken;
        *idle_out += all[i].is_open && !all[i].is_taken && is_idle(&all[i], now);
    }
    return count;
}

static void try_take(uint32_t id, bool starts, bool ends, uint64_t now) {
    struct expected *one = &all[id];
    struct lm_sequence_turn turn;
    uint32_t idle, count = in_table(now, &idle);
    enum lm_sequence_found found = take(id + 1, starts, ends, now, &turn);
    bool was_idle = one->is_open && is_idle(one, now), was_open = one->is_open && !was_idle;
    if (one->is_taken) {
        CHECK(found == LM_SEQUENCE_BUSY);
        return;
    }
    /* It may have given way before, to another: then it is idle here too. */
    if (was_idle) one->is_open = false;
    if (!was_open && !starts) {
        CHECK(found == LM_SEQUENCE_UNKNOWN);
        return;
    }
    if (!was_open && count >= OPEN && idle == 0) {
        CHECK(found == LM_SEQUENCE_FULL);
        return;
    }
    CHECK(found == LM_SEQUENCE_TAKEN && turn.starts == starts && turn.ends == ends);
    one->is_taken = true;
    one->turn = turn;
}

static void random_walk(uint64_t *random) {
    uint64_t now = 1;
    begin(OPEN);
    memset(all, 0, sizeof all);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint64_t chance = check_random(random);
        uint32_t id = (uint32_t)(chance % IDS);
        struct expected *one = &all[id];
        now += chance >> 8 & 1 ? IDLE_NS / 8 : 0;
        if (one->is_taken && (chance >> 9 & 1)) {
            bool answered = chance >> 10 & 3;
            lm_sequences_leave(sequences, &one->turn, answered, now);
            one->is_taken = false;
            one->is_open = answered ? !one->turn.ends : one->is_open;
            one->used = now;
            continue;
        }
        /* An idle one that has been given way is not in the table, whatever its time says: the
         * model forgets all idle ones where one may have. */
        try_take(id, chance >> 12 & 1, chance >> 13 & 1, now);
        for (uint32_t i = 0; i < IDS; i++) {
            if (all[i].is_open && !all[i].is_taken && is_idle(&all[i], now)) {
                struct lm_sequence_turn turn;
                CHECK(take(i + 1, false, false, now, &turn) == LM_SEQUENCE_UNKNOWN);
                all[i].is_open = false;
            }
        }
        for (uint32_t i = 0; i < IDS; i++) {
            for (uint32_t k = 0; k < i; k++)
                CHECK(!all[i].is_taken || !all[k].is_taken || all[i].turn.at != all[k].turn.at);
        }
    }
    end();
}

/* ---- several threads ---- */

/* Plain words: whoever owns the sequence writes them, and ThreadSanitizer sees anybody else. */
static uint64_t counts[IDS];

struct client {
    uint64_t random;
    uint64_t taken[IDS];
};

static void *ask_often(void *argument) {
    struct client *client = argument;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t chance = check_random(&client->random);
        uint32_t id = (uint32_t)(chance % 3);
        struct lm_sequence_turn turn;
        uint64_t now = 1 + (chance >> 20 & 7 ? 0 : round * (uint64_t)IDLE_NS);
        if (take(id + 1, chance >> 8 & 1, chance >> 9 & 1, now, &turn) != LM_SEQUENCE_TAKEN)
            continue;
        counts[id]++;
        client->taken[id]++;
        if (chance >> 10 & 1) sched_yield();
        lm_sequences_leave(sequences, &turn, chance >> 11 & 1, now);
    }
    return NULL;
}

static void several_threads(uint64_t *random) {
    struct client clients[THREADS];
    pthread_t threads[THREADS];
    begin(OPEN);
    memset(counts, 0, sizeof counts);
    for (uint32_t t = 0; t < THREADS; t++) {
        clients[t] = (struct client){.random = check_random(random)};
        CHECK(pthread_create(&threads[t], NULL, ask_often, &clients[t]) == 0);
    }
    for (uint32_t t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    for (uint32_t i = 0; i < IDS; i++) {
        uint64_t sum = 0;
        for (uint32_t t = 0; t < THREADS; t++) sum += clients[t].taken[i];
        CHECK(counts[i] == sum);
    }
    /* Nobody has left an entry behind. */
    struct lm_sequence_turn turn[OPEN];
    const uint64_t late = (ROUNDS + 9ull) * IDLE_NS;
    for (uint32_t i = 0; i < OPEN; i++)
        CHECK(take(100 + i, true, true, late, &turn[i]) == LM_SEQUENCE_TAKEN);
    CHECK(take(200, true, true, late, &turn[0]) == LM_SEQUENCE_FULL);
    end();
}

int main(void) {
    uint64_t random = check_seed();
    check_watchdog(100, "sequences that begin and end");
    bounds();
    bytes_of_states();
    owners();
    shares();
    groups();
    random_walk(&random);
    several_threads(&random);
    check_watchdog(0, "");
    return check_finish("test_sequences");
}
