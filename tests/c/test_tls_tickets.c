/* test_tls_tickets.c: the keys of session tickets: how long the newest seals, how many open what
 * was sealed before, and that none is left once they are forgotten. The clock is the test's. */
#include "check.h"
#include "tls/tickets.h"

static const uint64_t life_ns = LM_TLS_TICKET_HOURS * 3600ull * 1000000000ull;

static bool is_key(const struct lm_tls_ticket_key *one, const struct lm_tls_ticket_key *other) {
    return memcmp(one, other, sizeof *one) == 0;
}

/* Turns the keys at a time when the newest has had its time, and keeps the one that is made. */
static void make_one(struct lm_tls_tickets *tickets, uint64_t now_ns,
                     struct lm_tls_ticket_key *made_out) {
    const struct lm_tls_ticket_key before = tickets->keys[0];
    lm_tls_tickets_turn(tickets, now_ns);
    CHECK(!is_key(&tickets->keys[0], &before));
    *made_out = tickets->keys[0];
    /* For all of its hours. */
    lm_tls_tickets_turn(tickets, now_ns);
    lm_tls_tickets_turn(tickets, now_ns + life_ns - 1);
    CHECK(is_key(&tickets->keys[0], made_out));
}

int main(void) {
    enum { ROUNDS = LM_TLS_TICKET_KEYS + 2 };
    struct lm_tls_ticket_key made[ROUNDS];
    struct lm_tls_tickets tickets = {.openssl = lm_openssl()};
    if (!tickets.openssl) check_skip("test_tls_tickets", "there is no OpenSSL 3");
    for (uint32_t round = 0; round < ROUNDS; round++) {
        CHECK_AT("key %u", round);
        make_one(&tickets, 5 + round * life_ns, &made[round]);
        const uint32_t kept = round < LM_TLS_TICKET_KEYS ? round + 1 : LM_TLS_TICKET_KEYS;
        CHECK(tickets.count == kept);
        for (uint32_t k = 0; k < kept; k++) CHECK(is_key(&tickets.keys[k], &made[round - k]));
    }
    const struct lm_tls_ticket_key none[LM_TLS_TICKET_KEYS] = {0};
    lm_tls_tickets_forget(&tickets);
    CHECK(tickets.count == 0 && memcmp(tickets.keys, none, sizeof none) == 0);
    /* The next one comes at once. */
    lm_tls_tickets_turn(&tickets, 6 + (ROUNDS - 1) * life_ns);
    CHECK(tickets.count == 1 && !is_key(&tickets.keys[0], &none[0]));
    return check_finish("test_tls_tickets");
}
