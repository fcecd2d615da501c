/* test_held.c: bytes that may not be parsed yet: each connection's are its own, its header buffer
 * goes back, no page is given out twice, and an empty store is small again.
 */
#include "base/error.h"
#include "check.h"
#include "flow/io.h"

enum { CONNECTIONS = 600 };

static struct lm_io io;
static struct lm_connection connections[CONNECTIONS];
static int pair[2];

static uint8_t byte_of(uint32_t owner, uint32_t at) {
    return (uint8_t)(owner * 31 + at * 7 + 1);
}

/* As after a receive of which `at` bytes are parsed. */
static bool keep(uint32_t owner, uint16_t at, uint16_t end) {
    struct lm_connection *connection = &connections[owner];
    struct lm_completion found;
    uint32_t returned = io.buffers_returned;
    uint8_t bytes[LM_HEADER_BUFFER_BYTES];
    memset(bytes, 0xff, at);
    for (uint32_t b = at; b < end; b++) bytes[b] = byte_of(owner, b - at);
    CHECK(send(pair[1], bytes, end, 0) == end);
    lm_ring_recv_header(io.ring, pair[0], 0, 0);
    CHECK(lm_ring_wait(io.ring, 0, UINT64_MAX, &found, 1) == 1 && found.result == end);
    connection->index = owner;
    connection->buffer = found.buffer;
    connection->buffer_at = at;
    connection->buffer_end = end;
    bool kept = lm_held_keep(&io, connection);
    CHECK(io.buffers_returned == returned + kept); /* what it was in goes back, once */
    return kept;
}

static void is_its_own(uint32_t owner, uint32_t count) {
    const struct lm_connection *connection = &connections[owner];
    CHECK(lm_held_is_page(connection->buffer) && connection->buffer_at == 0);
    CHECK(connection->buffer_end == count);
    const uint8_t *bytes = lm_io_buffer(&io, connection->buffer);
    for (uint32_t b = 0; b < count; b++) CHECK(bytes[b] == byte_of(owner, b));
}

static void give(uint32_t owner) {
    uint32_t returned = io.buffers_returned;
    lm_io_buffer_return(&io, connections[owner].buffer);
    connections[owner].buffer = LM_NO_BUFFER;
    CHECK(io.buffers_returned == returned); /* a page is no header buffer */
}

/* A store of three: those that have a page keep it when a fourth finds none. */
static void so_many_and_no_more(void) {
    CHECK(lm_held_open(&io.held, 3) == 0 && io.held.capacity == 3);
    CHECK(keep(0, 5, 105) && keep(1, 0, LM_HEADER_BUFFER_BYTES) && keep(2, 4095, 4096));
    CHECK(!keep(3, 1, 9) && connections[3].buffer_at == 1); /* it has what it had */
    lm_io_buffer_return(&io, connections[3].buffer);
    is_its_own(0, 100);
    is_its_own(1, LM_HEADER_BUFFER_BYTES);
    is_its_own(2, 1);
    int32_t page = connections[1].buffer;
    CHECK(lm_held_keep(&io, &connections[1]) && connections[1].buffer == page); /* it has one */
    is_its_own(1, LM_HEADER_BUFFER_BYTES);
    give(1);
    CHECK(io.held.taken == 2 && keep(3, 1, 9) && connections[3].buffer == page);
    is_its_own(3, 8);
    is_its_own(0, 100);
    for (uint32_t c = 0; c < 4; c++) {
        if (c != 1) give(c);
    }
    CHECK(io.held.taken == 0);
    lm_held_close(&io.held);
    CHECK(!io.held.owners && !io.held.memory.base);
}

/* Each that has one comes once a round, whatever came and went before it. */
static void each_in_turn(void) {
    CHECK(lm_held_open(&io.held, CONNECTIONS) == 0);
    CHECK(lm_held_next(&io.held, connections) == LM_NO_CONNECTION);
    for (uint32_t c = 10; c < 20; c++) CHECK(keep(c, 0, 1));
    for (uint32_t c = 11; c < 20; c += 2) give(c);
    for (int round = 0; round < 2; round++) {
        for (uint32_t c = 10; c < 20; c += 2) CHECK(lm_held_next(&io.held, connections) == c);
        CHECK(lm_held_next(&io.held, connections) == LM_NO_CONNECTION);
    }
    for (uint32_t c = 10; c < 20; c += 2) give(c);
    CHECK(lm_held_next(&io.held, connections) == LM_NO_CONNECTION);
    lm_held_close(&io.held);
}

/* Whether every page that was ever used is given back: it reads as zeros then. */
static bool is_given_back(uint32_t pages) {
    for (uint32_t p = 0; p < pages; p++) {
        if (*lm_held_bytes(&io.held, (int32_t)p + LM_HEADER_BUFFERS)) return false;
    }
    return true;
}

/* Many pages' memory goes when none is in use, and only then; afterwards each is somebody's once
 * again. */
static void trimmed(void) {
    CHECK(lm_held_open(&io.held, CONNECTIONS) == 0);
    for (uint32_t c = 0; c < 300; c++) CHECK(keep(c, 0, 50));
    for (uint32_t c = 1; c < 300; c++) give(c);
    lm_held_trim(&io.held);
    is_its_own(0, 50);
    CHECK(!is_given_back(300));
    give(0);
    lm_held_trim(&io.held);
    CHECK(is_given_back(300) && io.held.used == 0);
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
    lm_held_close(&io.held);
    /* Few are worth no system call. */
    CHECK(lm_held_open(&io.held, CONNECTIONS) == 0);
    CHECK(keep(0, 0, 50));
    give(0);
    lm_held_trim(&io.held);
    CHECK(io.held.used == 1);
    lm_held_close(&io.held);
}

int main(void) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(lm_ring_open(&io.ring, LUMEN_IO_EPOLL, CONNECTIONS) == 0);
    so_many_and_no_more();
    each_in_turn();
    trimmed();
    CHECK(lm_held_open(&io.held, LM_HELD_PAGES_MAX + 1) == 0);
    CHECK(io.held.capacity == LM_HELD_PAGES_MAX);
    lm_held_close(&io.held);
    lm_ring_close(io.ring);
    return check_finish("test_held");
}
