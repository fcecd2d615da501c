/* test_bulk.c: a worker hands a request of many texts over (work/bulk.h): it has as many tokens as
 * there were places for them, and with none the worker keeps it; and of how many texts a request
 * gives way. What the threads answer is tested by tests/e2e/models/test_e2e_texts.py. */
#include "check.h"
#include "models/layout.h"
#include "models/text_model.h"
#include "work/bulk.h"

enum { THREADS = 3, PLACES = 4, TEXTS = 5, JOB = 0, TEXTS_MOST = LM_FIRST_TEXTS_MAX + 1 };

static struct lm_shared shared;
static struct lm_io io;
static struct lm_request request;
static struct lm_worker worker;

static void finish(struct lm_worker *whose, uint32_t job) {
    (void)whose;
    CHECK_AT("job %u is finished, and threads have tokens of it", job);
    CHECK(false);
}

/* Its texts are "a", each behind its length; its slot has room for where each begins. */
static void make_request(uint32_t texts, enum lm_texts_turn turn) {
    static uint8_t strings[TEXTS_MOST * 5];
    static LM_CACHE_ALIGNED uint8_t room[1024];
    static struct lm_text_model text;
    static struct lm_model model = {.runner = LM_RUNNER_TEXT,
                                    .text = &text,
                                    .input_count = 1,
                                    .output_count = 2,
                                    .outputs_known = true};
    static struct lm_layout_lists lists;
    static struct lm_slot slot;
    for (uint32_t t = 0; t < texts; t++) memcpy(strings + t * 5, "\1\0\0\0a", 5);
    slot = (struct lm_slot){.base = room, .bytes = sizeof room};
    request = (struct lm_request){.io = &io,
                                  .model = &model,
                                  .slot = &slot,
                                  .layout = lm_layout_of(&lists),
                                  .sizes = {.rows = texts},
                                  .turn_wanted = (uint8_t)turn};
    request.layout.inputs[0] = strings;
}

/* Takes a request where the queue has so many places left. */
static void tokens_are(uint32_t places, bool is_taken, uint32_t expected) {
    struct lm_bulk *bulk = &shared.bulk;
    uint32_t job;
    CHECK_AT("%u places", places);
    for (uint32_t p = places; p < PLACES; p++) CHECK(lm_mpmc_push(&bulk->tokens, JOB + 1));
    make_request(TEXTS, LM_TURN_BOUND);
    CHECK(lm_bulk_take(&worker, JOB) == is_taken);
    /* relaxed: nobody else is at work */
    if (is_taken) CHECK(lm_load_relaxed_u64(&request.share.tokens) == expected);
    for (uint32_t p = places; p < PLACES; p++)
        CHECK(lm_mpmc_pop(&bulk->tokens, &job) && job == JOB + 1);
    for (uint32_t t = 0; t < expected; t++) CHECK(lm_mpmc_pop(&bulk->tokens, &job) && job == JOB);
    CHECK(!lm_mpmc_pop(&bulk->tokens, &job));
    for (uint32_t t = 0; is_taken && t < TEXTS; t++) CHECK(request.share.starts[t] == t * 5);
}

/* Whether a request of so many texts gives way to others. */
static bool gives_way(uint32_t texts, enum lm_texts_turn turn) {
    struct lm_bulk *bulk = &shared.bulk;
    uint32_t job;
    make_request(texts, turn);
    const bool is_taken = lm_bulk_take(&worker, JOB);
    while (lm_mpmc_pop(&bulk->tokens, &job)) CHECK(is_taken && job == JOB);
    return is_taken;
}

/* By their number, of which a client that is in a hurry may send more; or as the client says. */
static void how_many_give_way(void) {
    CHECK_AT("by the number of texts");
    CHECK(!gives_way(LM_BULK_TEXTS - 1, LM_TURN_BY_NUMBER));
    CHECK(gives_way(LM_BULK_TEXTS, LM_TURN_BY_NUMBER));
    CHECK(!gives_way(LM_FIRST_TEXTS_MAX, LM_TURN_FIRST));
    CHECK(gives_way(LM_FIRST_TEXTS_MAX + 1, LM_TURN_FIRST));
    CHECK(gives_way(1, LM_TURN_BULK) && gives_way(1, LM_TURN_BOUND));
}

int main(void) {
    shared.ios = &io;
    shared.bulk.count = THREADS;
    io.shared = &shared;
    io.requests = &request;
    worker = (struct lm_worker){.shared = &shared, .finish = finish};
    lm_waitset_init(&shared.bulk.waitset);
    CHECK(lm_mpmc_open(&shared.bulk.tokens, PLACES) == 0);
    tokens_are(PLACES, true, THREADS);
    tokens_are(THREADS - 1, true, THREADS - 1);
    tokens_are(1, true, 1);
    tokens_are(0, false, 0);
    how_many_give_way();
    lm_mpmc_close(&shared.bulk.tokens);
    return check_finish("test_bulk");
}
