/* test_upstream_pool.c: which address of an upstream is asked, when one is left alone, and how many
 * requests are sent again, in virtual time; and how many slots upstreams may have. Links and what
 * they carry: tests/e2e. */
#include "check.h"
#include "dialects/upstream_end.h"
#include "dialects/upstream_pool.h"

enum { ADDRESSES = 3, DRAWS = 200 };
static const uint64_t second_ns = 1000000000ull;

static struct lm_io *io;
static struct lm_upstream *upstream;

/* Addresses that nobody has asked. */
static void begin(uint32_t addresses) {
    for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++) {
        struct lm_upstream_address *address = &upstream->addresses[a];
        lm_store_relaxed_u32(&address->state, a < addresses ? LM_ADDRESS_IN_USE : LM_ADDRESS_FREE);
        address->number = ++upstream->address_last;
    }
    io->upstream->pools[0] = (struct lm_upstream_pool){.since_ns = io->now_ns};
    for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++) {
        io->upstream->pools[0].addresses[a].idle = LM_NO_LINK;
        io->upstream->pools[0].addresses[a].carrying = LM_NO_LINK;
    }
    lm_store_relaxed_u32(&upstream->is_down, 0);
}

/* A bit for each address that is chosen, of many times. */
static uint32_t chosen(uint32_t tried) {
    uint32_t found = 0;
    for (uint32_t n = 0; n < DRAWS; n++) {
        const uint32_t address = lm_upstream_choose(io, 0, tried);
        CHECK(address < ADDRESSES && !(tried >> address & 1));
        found |= 1u << address;
    }
    return found;
}

static void choices(void) {
    begin(ADDRESSES);
    CHECK(chosen(0) == 7 && chosen(1) == 6 && chosen(6) == 1);
    CHECK(lm_upstream_choose(io, 0, 7) == LM_NO_ADDRESS_LEFT);
    struct lm_upstream_health *health = io->upstream->pools[0].addresses;
    health[1].busy = 2;
    health[2].busy = 1;
    CHECK(chosen(0) == 5); /* of any two it is another one */
    CHECK(chosen(1) == 4 && chosen(4) == 1 && chosen(5) == 2);
    health[1].busy = health[2].busy = 0;
    CHECK(chosen(0) == 7);
}

static void fail(uint32_t address, uint32_t times) {
    for (uint32_t n = 0; n < times; n++) lm_upstream_failed(io, 0, address);
}

/* relaxed: one thread */
static uint64_t ejections(void) {
    return lm_load_relaxed_u64(&io->stats->io.upstream_ejections);
}
static bool is_down(void) {
    return lm_load_relaxed_u32(&upstream->is_down);
}

/* Five failures behind each other, for half a minute; half of the addresses at the most. */
static void left_alone(void) {
    begin(ADDRESSES);
    fail(0, 4);
    lm_upstream_succeeded(io, 0, 0);
    fail(0, 4);
    CHECK(ejections() == 0 && chosen(0) == 7);
    fail(0, 1);
    CHECK(ejections() == 1 && chosen(0) == 6 && !is_down());
    fail(1, 5);
    CHECK(ejections() == 2 && chosen(0) == 4 && !is_down());
    CHECK(chosen(4) == 3); /* rather one of them than none */
    fail(2, 5);
    CHECK(ejections() == 2 && chosen(0) == 4 && is_down());
    lm_upstream_succeeded(io, 0, 1);
    CHECK(chosen(0) == 6 && !is_down());
    io->now_ns += 30 * second_ns - 1;
    CHECK(chosen(0) == 6);
    io->now_ns++;
    CHECK(chosen(0) == 7);
    fail(0, 1); /* which has not answered since */
    CHECK(ejections() == 3 && chosen(0) == 6);
}

/* An address that has failed, and has a connection, lets its model be ready after five seconds. */
static void down_for_a_while(void) {
    begin(1);
    CHECK(lm_upstream_choose(io, 0, 0) == 0);
    struct lm_upstream_health *health = io->upstream->pools[0].addresses;
    for (uint32_t open = 0; open < 2; open++) {
        upstream->connections = health->open = open;
        fail(0, 1);
        io->now_ns += 5 * second_ns - 1;
        health->next_dial_ns = UINT64_MAX;
        CHECK(!lm_upstream_keep(io) || open == 0);
        CHECK(is_down());
        io->now_ns++;
        CHECK(lm_upstream_keep(io));
        CHECK(is_down() == (open == 0));
    }
    upstream->connections = health->open = 0;
}

static uint32_t retries(void) {
    uint32_t count = 0;
    while (count < 1000 && lm_upstream_may_retry(io, 0)) count++;
    return count;
}

/* A quarter of the requests of late, and three more. */
static void share(void) {
    struct lm_upstream_pool *pool = &io->upstream->pools[0];
    begin(ADDRESSES);
    CHECK(retries() == 3);
    pool->asked = 100;
    CHECK(retries() == 25);
    io->now_ns += 10 * second_ns - 1;
    CHECK(lm_upstream_keep(io) && retries() == 0);
    io->now_ns++;
    CHECK(lm_upstream_keep(io) && pool->asked == 50);
    CHECK(retries() == 2); /* 14 of 15, and a half that is left of one */
    for (uint32_t n = 0; n < 8; n++) {
        io->now_ns += 10 * second_ns;
        CHECK(lm_upstream_keep(io));
    }
    CHECK(pool->asked == 0 && retries() == 3); /* as at the start */
    upstream->retries = false;
    pool->asked = 100;
    CHECK(retries() == 0);
}

/* As many requests begin, of an arena of so many slots, before one is refused with this word. */
static void begins(uint32_t slots, uint32_t own_models, uint32_t expected, const char *why) {
    enum { MOST = 64 };
    static struct lm_exchange exchanges[MOST];
    static struct lm_slot all[MOST];
    static char memory[1];
    const struct lm_model model = {.upstream = 1};
    struct lm_model_set set = {.own_count = own_models};
    struct lm_connection client = {0};
    uint32_t begun = 0;
    io->models = &set;
    io->upstream->exchanges = exchanges;
    io->arena.classes[0] = (struct lm_arena_class){.slot_count = slots};
    lm_store_relaxed_u64(&upstream->in_flight_now, 0);
    for (; begun < slots; begun++) {
        struct lm_refusal refusal = {0};
        all[begun] = (struct lm_slot){.index = begun};
        exchanges[begun] = (struct lm_exchange){.head = memory, .window = (uint8_t *)memory};
        struct lm_request request = {.slot = &all[begun], .model = &model};
        if (lm_upstream_begin(io, &client, &request, &refusal)) continue;
        CHECK_AT("%u slots, %u begun: %.90s", slots, begun, refusal.why);
        CHECK(refusal.status == LM_STATUS_OVERLOADED && strstr(refusal.why, why));
        break;
    }
    CHECK(begun == expected && io->arena.classes[0].lent_count == begun);
    CHECK(lm_load_relaxed_u64(&upstream->in_flight_now) == begun && client.in_flight == begun);
}

/* A quarter, rounded up, is for models that this server runs itself, if there are any. */
static void slots(void) {
    begin(ADDRESSES);
    upstream->in_flight = 1000;
    begins(8, 0, 8, "");
    begins(8, 1, 6, "as many of this server's slots");
    begins(9, 3, 6, "as many of this server's slots");
    begins(4, 1, 3, "as many of this server's slots");
    begins(2, 1, 1, "as many of this server's slots");
    begins(1, 1, 1, "");
    upstream->in_flight = 5;
    begins(8, 1, 5, "has 5 requests in flight already");
}

int main(void) {
    static struct lm_stats_block stats;
    io = calloc(1, sizeof *io);
    struct lm_shared *shared = calloc(1, sizeof *shared);
    upstream = calloc(1, sizeof *upstream);
    CHECK(io && shared && upstream);
    io->upstream = calloc(1, sizeof *io->upstream);
    CHECK(io->upstream);
    io->upstream->random = check_seed();
    io->now_ns = second_ns;
    io->stats = &stats;
    io->shared = shared;
    shared->upstreams = (struct lm_upstreams){.at = {upstream}, .count = 1};
    upstream->retries = true;
    upstream->retry_percent = 25;
    choices();
    left_alone();
    down_for_a_while();
    share();
    slots();
    free(io->upstream);
    free(upstream);
    free(shared);
    free(io);
    return check_finish("test_upstream_pool");
}
