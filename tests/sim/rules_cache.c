/* rules_cache.c: what the response cache keeps of an answer, however the answer left. */
#include <string.h>

#include "rules.h"

static struct talk one, two;

enum { VALUES = 4, HEADER = LM_NATIVE_REQUEST_BYTES };

static const float values[VALUES] = {1, 2, 3, 4};

static void asks_values(struct talk *talk, uint64_t id) {
    talk_asks(talk, &(struct ask){.id = id, .most = HEADER});
    talk_send(talk, values, sizeof values);
}

static void gets_twice_the_values(struct talk *talk, uint64_t id) {
    float found[VALUES];
    talk_reads(talk, LM_NATIVE_REPLY_BYTES + sizeof found, SIM_S);
    memcpy(found, talk->in + LM_NATIVE_REPLY_BYTES, sizeof found);
    for (uint32_t v = 0; v < VALUES; v++)
        SIM_CHECK(found[v] == 2 * values[v], "request %llu, value %u: %g", (unsigned long long)id,
                  v, (double)found[v]);
    (void)talk_gets(talk, id, LM_STATUS_OK);
}

static void in_part(struct sim_plan *plan) {
    plan->cache_bytes = plan->io_count * 65536;
    plan->batch_size = 4;
    plan->batch_delay_ns = 2 * SIM_MS;
    plan->socket_bytes = LM_NATIVE_REPLY_BYTES + sizeof values - 6; /* not all of a reply */
}

/* An answer's rest moves from its batch to its slot, where the kept outputs are. */
static void a_batch_sent_in_part(void) {
    talk_open(&one);
    talk_open(&two);
    asks_values(&one, 1);
    talk_asks(&two, &(struct ask){.id = 2});
    gets_twice_the_values(&one, 1);
    (void)talk_gets(&two, 2, LM_STATUS_OK);
    SIM_CHECK(WORKER_WORD(batches) == 1, "no batch");
    pass(SIM_S); /* the slot is back */
    asks_values(&two, 3);
    gets_twice_the_values(&two, 3);
    SIM_CHECK(IO_WORD(cache_hits) == 1, "not from the cache");
}

static void cached(struct sim_plan *plan) {
    plan->cache_bytes = plan->io_count * 65536;
}

/* A deadline that passes while the body comes holds for a kept answer, too. */
static void too_late_for_a_kept_answer(void) {
    talk_open(&one);
    asks_values(&one, 1);
    gets_twice_the_values(&one, 1);
    pass(SIM_MS);
    for (uint64_t late = 0; late < 2; late++) {
        talk_asks(&one, &(struct ask){.id = 2 + late, .timeout_us = 20000, .most = HEADER});
        pass((10 + 20 * late) * SIM_MS);
        talk_send(&one, values, sizeof values);
        (void)talk_gets(&one, 2 + late, late ? LM_STATUS_DEADLINE : LM_STATUS_OK);
        SIM_CHECK(IO_WORD(cache_hits) == 1 && WORKER_WORD(runs) == 1, "other words");
    }
}

const struct rule rules_of_cache[] = {
    {"a batch sent in part", in_part, a_batch_sent_in_part},
    {"too late for a kept answer", cached, too_late_for_a_kept_answer},
};
const size_t rules_of_cache_count = sizeof rules_of_cache / sizeof rules_of_cache[0];
