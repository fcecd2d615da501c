/* test_held.c: bytes that may not be parsed yet: each connection's are its own, no page is given
 * out twice, and an empty store is small again.
 */
#include "base/error.h"
#include "check.h"
#include "flow/connection.h"
#include "flow/held.h"
#include "ring/ring.h"

enum { CONNECTIONS = 600 };

static struct lm_held held;
static int32_t page_of[CONNECTIONS]; /* of each connection */

static uint8_t byte_of(uint32_t owner, uint32_t at) {
    return (uint8_t)(owner * 31 + at * 7 + 1);
}

/* As what is left of a header buffer. */
static bool keep(uint32_t owner, uint16_t at, uint16_t end) {
    uint8_t bytes[LM_HEADER_BUFFER_BYTES];
    uint16_t count = (uint16_t)(end - at);
    for (uint32_t b = 0; b < count; b++) bytes[b] = byte_of(owner, b);
    int32_t page = lm_held_keep(&held, owner, bytes, count);
    memset(bytes, 0, sizeof bytes); /* the buffer is the kernel's again */
    if (page >= 0) page_of[owner] = page;
    return page >= 0;
}

static void is_its_own(uint32_t owner, uint32_t count) {
    CHECK(lm_held_is_page(page_of[owner]));
    const uint8_t *bytes = lm_held_bytes(&held, page_of[owner]);
    for (uint32_t b = 0; b < count; b++) CHECK(bytes[b] == byte_of(owner, b));
}

static void give(uint32_t owner) {
    lm_held_return(&held, page_of[owner]);
    page_of[owner] = LM_NO_BUFFER;
}

/* The next connection that has a page, as a caller finds it. */
static uint32_t next(void) {
    uint32_t owner;
    int32_t page;
    while (lm_held_next(&held, &owner, &page)) {
        if (page_of[owner] == page) return owner;
    }
    return LM_NO_CONNECTION;
}

/* A store of three: those that have a page keep it when a fourth finds none. */
static void so_many_and_no_more(void) {
    CHECK(lm_held_open(&held, 3) == 0 && held.capacity == 3);
    CHECK(keep(0, 5, 105) && keep(1, 0, LM_HEADER_BUFFER_BYTES) && keep(2, 4095, 4096));
    CHECK(!keep(3, 1, 9));
    is_its_own(0, 100);
    is_its_own(1, LM_HEADER_BUFFER_BYTES);
    is_its_own(2, 1);
    int32_t page = page_of[1];
    give(1);
    CHECK(held.taken == 2 && keep(3, 1, 9) && page_of[3] == page);
    is_its_own(3, 8);
    is_its_own(0, 100);
    for (uint32_t c = 0; c < 4; c++) {
        if (c != 1) give(c);
    }
    CHECK(held.taken == 0);
    lm_held_close(&held);
    CHECK(!held.owners && !held.memory.base);
}

/* Each that has one comes once a round, whatever came and went before it. */
static void each_in_turn(void) {
    CHECK(lm_held_open(&held, CONNECTIONS) == 0);
    CHECK(next() == LM_NO_CONNECTION);
    for (uint32_t c = 10; c < 20; c++) CHECK(keep(c, 0, 1));
    for (uint32_t c = 11; c < 20; c += 2) give(c);
    for (int round = 0; round < 2; round++) {
        for (uint32_t c = 10; c < 20; c += 2) CHECK(next() == c);
        CHECK(next() == LM_NO_CONNECTION);
    }
    for (uint32_t c = 10; c < 20; c += 2) give(c);
    CHECK(next() == LM_NO_CONNECTION);
    lm_held_close(&held);
}

/* Whether every page that was ever used is given back: it reads as zeros then. */
static bool is_given_back(uint32_t pages) {
    for (uint32_t p = 0; p < pages; p++) {
        if (*lm_held_bytes(&held, (int32_t)p + LM_HEADER_BUFFERS)) return false;
    }
    return true;
}

/* Many pages' memory goes when none is in use, and only then; afterwards each is somebody's once
 * again. */
static void trimmed(void) {
    CHECK(lm_held_open(&held, CONNECTIONS) == 0);
    for (uint32_t c = 0; c < 300; c++) CHECK(keep(c, 0, 50));
    for (uint32_t c = 1; c < 300; c++) give(c);
    lm_held_trim(&held);
    is_its_own(0, 50);
    CHECK(!is_given_back(300));
    give(0);
    lm_held_trim(&held);
    CHECK(is_given_back(300) && held.used == 0);
    for (uint32_t c = 0; c < CONNECTIONS; c++) {
        CHECK_AT("connection %u after a trim", c);
        CHECK(keep(c, 2, 52));
    }
    for (uint32_t c = 0; c < CONNECTIONS; c++) {
        CHECK_AT("connection %u after a trim", c);
        is_its_own(c, 50);
        give(c);
    }
    check_where[0] = '\0';
    lm_held_close(&held);
    /* Few are worth no system call. */
    CHECK(lm_held_open(&held, CONNECTIONS) == 0);
    CHECK(keep(0, 0, 50));
    give(0);
    lm_held_trim(&held);
    CHECK(held.used == 1);
    lm_held_close(&held);
}

int main(void) {
    so_many_and_no_more();
    each_in_turn();
    trimmed();
    CHECK(lm_held_open(&held, LM_HELD_PAGES_MAX + 1) == 0);
    CHECK(held.capacity == LM_HELD_PAGES_MAX);
    lm_held_close(&held);
    return check_finish("test_held");
}
