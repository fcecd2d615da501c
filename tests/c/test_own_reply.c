/* test_own_reply.c: a long answer of the I/O thread itself to a client that does not read, when no
 * slot is left to keep it in: the client goes, and all that was taken for the answer comes back.
 * The transport is the test's own, and takes nothing.
 */
#include "check.h"
#include "flow/reply.h"
#include "flow/transport.h"

enum { LARGE_SLOT_BYTES = 16384, LONG_BYTES = 2 * LARGE_SLOT_BYTES };

static uint32_t shuts;

static ssize_t takes_nothing(struct lm_io *io, struct lm_connection *connection,
                             const struct msghdr *message) {
    (void)io, (void)connection, (void)message;
    errno = EAGAIN;
    return -1;
}

static void shut(struct lm_io *io, struct lm_connection *connection, int how) {
    (void)io, (void)connection, (void)how;
    shuts++;
}

static const struct lm_transport transport = {.send = takes_nothing, .shut = shut};
static struct lm_stats_block stats;
static struct lm_connection connection;
static struct lm_shared shared = {.transports = &transport};
static struct lm_io thread = {
    .shared = &shared, .stats = &stats, .connections = &connection, .connection_capacity = 1};

static void open_thread(void) {
    const lumen_slot_class classes[] = {{.slot_bytes = LM_REPLY_SLOT_BYTES, .slot_count = 8},
                                        {.slot_bytes = LARGE_SLOT_BYTES, .slot_count = 8}};
    CHECK(lm_arena_open(&thread.arena, classes, 2, 0, LUMEN_ALLOCATOR_ARENA, LUMEN_HUGE_NONE,
                        NULL) == 0);
    lm_spill_open(&shared.spills, 4 << 20);
    thread.marked_head = thread.marked_tail = LM_NO_CONNECTION;
    for (uint32_t l = 0; l < LM_LIST_COUNT; l++)
        thread.lists[l] = (struct lm_list){LM_NO_CONNECTION, LM_NO_CONNECTION, 0};
}

static void answer(void) {
    static uint8_t body[LONG_BYTES];
    connection = (struct lm_connection){.fd = 3,
                                        .buffer = LM_NO_BUFFER,
                                        .in.receiving = LM_NO_SLOT,
                                        .sending = LM_NO_SLOT,
                                        .reply_head = LM_NO_SLOT,
                                        .reply_tail = LM_NO_SLOT,
                                        .prev = LM_NO_CONNECTION,
                                        .next = LM_NO_CONNECTION};
    lm_reply_bytes(&thread, &connection, "head", 4, body, sizeof body, false);
    (void)lm_connection_take_marked(&thread);
}

int main(void) {
    open_thread();
    while (lm_arena_acquire_spare(&thread.arena, 1)) {
    }
    while (thread.arena.classes[0].free_count > 0) /* the last ones, which are for replies alone */
        CHECK(lm_arena_acquire(&thread.arena, 1) != NULL);
    CHECK(thread.arena.classes[1].free_count > 0); /* for requests */
    for (uint64_t n = 1; n <= 3; n++) {
        CHECK_AT("answer %llu", (unsigned long long)n);
        answer();
        CHECK(connection.ended && shuts == n && connection.sending == LM_NO_SLOT);
        CHECK(lm_load_relaxed_u64(&stats.io.connections_evicted) == n);
        CHECK(thread.spills != NULL); /* to be unmapped, a part at a time */
        while (thread.spills) lm_spill_unmap(&shared.spills, &thread.spills);
        CHECK(lm_load_relaxed_u64(&shared.spills.bytes) == 0);
    }
    lm_arena_close(&thread.arena);
    return check_finish("test_own_reply");
}
