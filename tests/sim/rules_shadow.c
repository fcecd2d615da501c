/* rules_shadow.c: requests of which another version runs copies: what is counted of these, and that
 * nobody waits for them.
 */
#include "rules.h"

static struct talk one, two;

#define COPIES_WORD(name) IO_MODEL_WORD(SIM_SHADOW, model_shadow_##name)

static void all_are_copied(struct sim_plan *plan) {
    plan->shadow_percent = 100;
}

/* Requests of the model are copied once they are answered, unless they have failed. */
static void copies(void) {
    talk_open(&one);
    for (uint32_t n = 1; n <= 3; n++) {
        talk_asks(&one, &(struct ask){.id = n, .rows = n});
        (void)talk_gets(&one, n, LM_STATUS_OK);
    }
    talk_asks(&one, &(struct ask){.id = 4, .poison = true});
    (void)talk_gets(&one, 4, LM_STATUS_INFERENCE_FAILED);
    talk_asks(&one, &(struct ask){.id = 5, .model = 3});
    (void)talk_gets(&one, 5, LM_STATUS_OK);
    pass((LM_IDLE_TICK_MS + 1) * SIM_MS);
    SIM_CHECK(COPIES_WORD(ok) == 3 && COPIES_WORD(rows) == 6, "other copies");
    SIM_CHECK(COPIES_WORD(apart) + COPIES_WORD(failed) + COPIES_WORD(skipped) + COPIES_WORD(unfit) +
                      COPIES_WORD(difference) ==
                  0,
              "a copy is not as its request");
    SIM_CHECK(sim_shared.ios[0].arena.acquired_count == 0, "a slot is lent for good");
    SIM_CHECK(WORKER_WORD(runs) == 5, "a copy is counted as a Run of a worker");
}

/* A request is answered before its copy is run, and the next one does not wait for that. */
static void a_copy_takes_its_time(void) {
    talk_open(&one);
    talk_open(&two);
    runtime_takes_ns = 50 * SIM_MS;
    uint64_t asked_ns = sim_now_ns;
    talk_asks(&one, &(struct ask){.id = 1});
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    talk_asks(&two, &(struct ask){.id = 2});
    (void)talk_gets(&two, 2, LM_STATUS_OK);
    near_ns("two answers", sim_now_ns - asked_ns, 100 * SIM_MS, SIM_MS);
    SIM_CHECK(COPIES_WORD(ok) <= 1, "a copy took no time");
    pass((LM_IDLE_TICK_MS + 60) * SIM_MS);
    SIM_CHECK(COPIES_WORD(ok) == 2, "a copy is lost");
}

/* The end waits for the copy that runs, and begins no other. */
static void copies_at_the_end(void) {
    talk_open(&one);
    talk_open(&two);
    talk_asks(&one, &(struct ask){.id = 1});
    (void)talk_gets(&one, 1, LM_STATUS_OK);
    runtime_takes_ns = SIM_S;
    pass((LM_IDLE_TICK_MS + 1) * SIM_MS); /* the copy is run from here on at the latest */
    runtime_takes_ns = SIM_MS;
    talk_asks(&two, &(struct ask){.id = 2});
    (void)talk_gets(&two, 2, LM_STATUS_OK);
    engine_drain(5 * SIM_S);
    SIM_CHECK(schedule(engine_ended, sim_now_ns + SIM_S), "a copy keeps the server");
    SIM_CHECK(COPIES_WORD(ok) == 1 && COPIES_WORD(skipped) == 1, "other copies");
}

const struct rule rules_of_shadow[] = {
    {"copies", all_are_copied, copies},
    {"a copy takes its time", all_are_copied, a_copy_takes_its_time},
    {"copies at the end", all_are_copied, copies_at_the_end},
};
const size_t rules_of_shadow_count = sizeof rules_of_shadow / sizeof rules_of_shadow[0];
