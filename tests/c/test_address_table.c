/* test_address_table.c: counts by address against a plain list, over random comings and goings. */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "check.h"
#include "parts/address_table.h"

enum { ADDRESSES = 24, CONNECTIONS = 64 };

static struct sockaddr_storage v4(uint32_t number) {
    struct sockaddr_storage address = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&address;
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = htonl(0x7f000001 + number);
    return address;
}

static struct sockaddr_storage v6(const char *text) {
    struct sockaddr_storage address = {0};
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)&address;
    in->sin6_family = AF_INET6;
    CHECK(inet_pton(AF_INET6, text, &in->sin6_addr) == 1);
    return address;
}

static void without_a_bound(void) {
    struct lm_address_table table;
    struct sockaddr_storage address = v4(0);
    uint32_t entry = 0;
    CHECK_AT("no bound");
    CHECK(lm_address_table_open(&table, 0, CONNECTIONS) == 0);
    for (int i = 0; i < 100; i++) {
        CHECK(lm_address_table_add(&table, &address, &entry) && entry == LM_NO_ADDRESS);
    }
    lm_address_table_remove(&table, entry);
    lm_address_table_close(&table);
}

static void who_is_one_host(void) {
    struct lm_address_table table;
    uint32_t entry;
    CHECK_AT("one host");
    CHECK(lm_address_table_open(&table, 1, CONNECTIONS) == 0);
    struct sockaddr_storage first = v6("2001:db8:1:2::1"), neighbour = v6("2001:db8:1:2:ffff::9"),
                            other = v6("2001:db8:1:3::1"), mapped_other = v6("::ffff:127.0.0.2"),
                            mapped = v6("::ffff:127.0.0.1"), nobody = {.ss_family = AF_UNIX};
    struct sockaddr_storage plain = v4(0);
    CHECK(lm_address_table_add(&table, &first, &entry));
    CHECK(!lm_address_table_add(&table, &neighbour, &entry)); /* the same 64 bits */
    CHECK(lm_address_table_add(&table, &other, &entry));
    CHECK(lm_address_table_add(&table, &plain, &entry));
    CHECK(lm_address_table_add(&table, &mapped_other, &entry));
    CHECK(!lm_address_table_add(&table, &mapped, &entry)); /* is `plain` */
    CHECK(entry == LM_NO_ADDRESS);
    CHECK(lm_address_table_add(&table, &nobody, &entry));
    CHECK(!lm_address_table_add(&table, &nobody, &entry));
    lm_address_table_close(&table);
}

/* An address that has no connection any more leaves its entry to the next one that hashes there. */
static void entries_are_taken_again(void) {
    struct lm_address_table table, fresh;
    uint32_t entry, home;
    CHECK_AT("entries");
    CHECK(lm_address_table_open(&table, 1, CONNECTIONS) == 0);
    CHECK(table.mask + 1 == 2 * CONNECTIONS && (table.mask & (table.mask + 1)) == 0);
    for (uint32_t i = 0; i < 10 * CONNECTIONS; i++) {
        struct sockaddr_storage address = v4(i);
        CHECK(lm_address_table_open(&fresh, 1, CONNECTIONS) == 0);
        CHECK(lm_address_table_add(&fresh, &address, &home));
        CHECK(lm_address_table_add(&table, &address, &entry) && entry == home);
        lm_address_table_remove(&table, entry);
        lm_address_table_close(&fresh);
    }
    lm_address_table_close(&table);
}

/* With few places many addresses want the same one, and are found behind those that have left. */
static void at_random(uint64_t *random, uint32_t connections, uint32_t bound) {
    struct lm_address_table table;
    uint32_t entries[CONNECTIONS], addresses[CONNECTIONS], open = 0, counts[ADDRESSES] = {0};
    CHECK(lm_address_table_open(&table, bound, connections) == 0);
    for (uint32_t turn = 0; turn < 200000; turn++) {
        CHECK_AT("turn %u, %u of %u open", turn, open, connections);
        if (open < connections && check_below(random, 2)) {
            uint32_t number = check_below(random, ADDRESSES);
            struct sockaddr_storage address = v4(number);
            bool taken = lm_address_table_add(&table, &address, &entries[open]);
            CHECK(taken == (counts[number] < bound));
            if (!taken) continue;
            CHECK(entries[open] != LM_NO_ADDRESS);
            addresses[open++] = number;
            counts[number]++;
        } else if (open > 0) {
            uint32_t gone = check_below(random, open);
            lm_address_table_remove(&table, entries[gone]);
            counts[addresses[gone]]--;
            open--;
            entries[gone] = entries[open];
            addresses[gone] = addresses[open];
        }
    }
    lm_address_table_close(&table);
}

int main(void) {
    uint64_t random = check_seed();
    without_a_bound();
    who_is_one_host();
    entries_are_taken_again();
    at_random(&random, CONNECTIONS, 5);
    at_random(&random, CONNECTIONS / 4, 2);
    at_random(&random, 3, 1);
    return check_finish("test_address_table");
}
