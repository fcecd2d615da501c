/* test_upstream_due.c: what is due of requests that upstreams have, in virtual time: whose patience
 * has ended, and when a stream that says nothing is pinged. What is said to clients, and links that
 * are cut, are the test's own to see. */
#include "check.h"
#include "dialects/upstream_end.h"
#include "dialects/upstream_hedge.h"
#include "dialects/upstream_trunk.h"

static uint32_t pings;
static int cut; /* of the link that was cut; -1: none was */

static enum lm_outcome see_ping(struct lm_io *io, uint32_t slot, size_t bytes, bool is_last) {
    const struct lm_exchange *exchange = lm_exchange_of(io, slot);
    CHECK(bytes == 8 && memcmp(exchange->event, ": ping\n\n", 8) == 0 && !is_last);
    pings++;
    return LM_OUTCOME_SENT;
}

static void see_cut(struct lm_io *io, struct lm_link *link, enum lm_link_fault why) {
    (void)io, (void)link;
    CHECK(cut == -1);
    cut = (int)why;
}

static void no_hedge(struct lm_io *io, const struct lm_link *link) {
    (void)io, (void)link;
}

/* The file itself, which calls these. */
#define lm_upstream_say see_ping
#define lm_link_cut see_cut
#define lm_upstream_hedge no_hedge
#include "dialects/upstream.c"

static const uint64_t ms = 1000000;
static struct lm_io *io;
static struct lm_upstream *upstream;
static struct lm_link *asked;
static struct lm_exchange *exchange;

/* A request that a link has, in this state from now on. */
static void begin(enum lm_link_state state) {
    *asked = (struct lm_link){.slot = 0, .state = (uint8_t)state, .moved_ns = io->now_ns};
    *exchange = (struct lm_exchange){.until_ns = UINT64_MAX,
                                     .is_events = true,
                                     .at_rest = true,
                                     .head_passed = true,
                                     .framing = LM_EXCHANGE_BY_CHUNKS};
    pings = 0;
    cut = -1;
}

/* Lets so much time go by, in the turns of its thread. */
static void pass(uint64_t count) {
    for (uint64_t n = 0; n < count; n++) {
        io->now_ns += ms;
        lm_upstream_due(io);
    }
}

/* ---- pings ---- */

static void streams_are_pinged(void) {
    upstream->ping_ns = 1000 * ms;
    begin(LM_LINK_ANSWERING);
    pass(900);
    CHECK(pings == 0);
    pass(200);
    CHECK(pings == 1);
    pass(800);
    CHECK(pings == 1); /* not with each look */
    pass(200);
    CHECK(pings == 2);
    asked->moved_ns = io->now_ns; /* an event has come */
    pass(900);
    CHECK(pings == 2);
    pass(200);
    CHECK(pings == 3);
    exchange->at_rest = false; /* within an event */
    pass(3000);
    exchange->at_rest = true;
    exchange->is_events = false;
    pass(3000);
    begin(LM_LINK_ASKING);
    pass(3000);
    CHECK(pings == 0);
    upstream->ping_ns = 0;
    begin(LM_LINK_ANSWERING);
    pass(3000);
    CHECK(pings == 0 && cut == -1);
}

/* ---- patience ---- */

/* The link is cut for this at a time, and not a moment before. */
static void ends(enum lm_link_state state, uint64_t after, enum lm_link_fault why) {
    begin(state);
    pass(after - 30);
    CHECK_AT("state %u, fault %d", state, cut);
    CHECK(cut == -1);
    for (int n = 0; n < 60 && cut == -1; n++) pass(1);
    CHECK(cut == (int)why);
    begin(LM_LINK_IDLE);
}

static void patience_ends(void) {
    upstream->connect_ns = 300 * ms;
    upstream->first_byte_ns = 500 * ms;
    upstream->silence_ns = 400 * ms;
    ends(LM_LINK_DIALING, 300, LM_FAULT_DIALED_LATE);
    ends(LM_LINK_ASKING, 500, LM_FAULT_SILENT);
    ends(LM_LINK_ANSWERING, 400, LM_FAULT_SILENT);
    begin(LM_LINK_ANSWERING);
    io->connections[1].sending = 0; /* its client does not read: that is no silence */
    pass(2000);
    CHECK(cut == -1);
    io->connections[1].sending = LM_NO_SLOT;
    pass(350);
    CHECK(cut == -1);
    for (int n = 0; n < 100 && cut == -1; n++) pass(1);
    CHECK(cut == LM_FAULT_SILENT);
    begin(LM_LINK_ASKING);
    exchange->until_ns = io->now_ns + 200 * ms; /* the answer is due as a whole */
    pass(170);
    CHECK(cut == -1);
    for (int n = 0; n < 60 && cut == -1; n++) pass(1);
    CHECK(cut == LM_FAULT_LATE);
    upstream->connect_ns = upstream->first_byte_ns = upstream->silence_ns = 0;
    begin(LM_LINK_ASKING);
    pass(5000);
    CHECK(cut == -1); /* nobody has said how long */
}

int main(void) {
    static struct lm_upstream_side side = {.links_used = 1, .busy = 1};
    static struct lm_connection connections[2];
    static struct lm_request requests[1];
    static struct lm_exchange exchanges[1];
    static struct lm_link links[1];
    io = calloc(1, sizeof *io);
    struct lm_shared *shared = calloc(1, sizeof *shared);
    upstream = calloc(1, sizeof *upstream);
    CHECK(io && shared && upstream);
    for (uint32_t a = 0; a < LUMEN_UPSTREAM_ADDRESSES_MAX; a++)
        side.pools[0].addresses[a].idle = side.pools[0].addresses[a].carrying = LM_NO_LINK;
    side.links = asked = links;
    side.exchanges = exchange = exchanges;
    requests[0].connection = 1;
    connections[0].buffer = connections[1].buffer = LM_NO_BUFFER;
    connections[0].sending = connections[1].sending = LM_NO_SLOT;
    shared->upstreams = (struct lm_upstreams){.at = {upstream}, .count = 1};
    io->upstream = &side;
    io->connections = connections;
    io->requests = requests;
    io->shared = shared;
    io->now_ns = 1000 * ms;
    streams_are_pinged();
    patience_ends();
    free(upstream);
    free(shared);
    free(io);
    return check_finish("test_upstream_due");
}
