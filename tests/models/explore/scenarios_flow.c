/* scenarios_flow.c: the way back: slots that return to the I/O thread, its flag that asks to be
 * woken, and the token of whoever sends on a connection: io.c's wait_for_work and take_returns,
 * worker.c's give_back, reply.c, connection.c and advance.c as they are.
 *
 * Unless the plan has ticks no time limit ever ends a wait (world.c), so that whatever happens only
 * at the next tick counts as not happening.
 */
#include <errno.h>
#include <string.h>

#include "flow/accept.h"
#include "flow/advance.h"
#include "flow/receive.h"
#include "flow/reply.h"
#include "flow/transports.h"
#include "machine_inner.h"
#include "real.h"
#include "scenario.h"
#include "world.h"

enum { REPLIES_MAX = 4, REPLY_BYTES = 2 };

struct plan {
    uint32_t workers;
    bool replies; /* each worker sends a reply first; otherwise it was sent long ago */
    bool ticks;   /* the I/O thread's wait ends by itself once nobody else can go on */
    bool wanting; /* the connection lingers: its I/O thread waits for every return */
};

static const struct plan plans[] = {
    {.workers = 2, .wanting = true},
    {.workers = 2, .replies = true, .ticks = true},
    {.workers = 3, .replies = true, .ticks = true},
    {.workers = 3, .wanting = true},
    {.workers = 2, .replies = true},
};

static const struct plan *plan;
static struct lm_shared shared;
static struct lm_io io;
static struct lm_stats_block block;
static struct lm_model_set set; /* that the requests came in */
static struct lm_connection connection;
static struct lm_request requests[REPLIES_MAX];
static struct lm_slot slots[REPLIES_MAX];
static uint8_t bytes[REPLIES_MAX][REPLY_BYTES]; /* each the number of its reply */
static struct iovec parts[REPLIES_MAX];
static uint8_t wire[REPLIES_MAX * REPLY_BYTES];
static uint32_t wire_used;
static const struct msghdr *ring_sends; /* started, not completed */
static bool partial_done;

static ssize_t put_on_wire(const struct msghdr *message, uint32_t most) {
    const struct iovec *part = message->msg_iov;
    uint32_t count = part->iov_len < most ? (uint32_t)part->iov_len : most;
    /* A place of the socket's own stands for it: two senders without order would be a race. */
    machine_plain_write(&wire_used, sizeof wire_used);
    if (wire_used + count > sizeof wire) machine_fail("more bytes than there are replies");
    memcpy(wire + wire_used, part->iov_base, count);
    wire_used += count;
    return (ssize_t)count;
}

ssize_t model_sendmsg(int fd, const struct msghdr *message, int flags) {
    (void)fd;
    (void)flags;
    machine_point("sendmsg");
    /* Once in a run the socket takes a part only, or nothing. */
    uint32_t chosen = partial_done ? 0 : machine_choose(3);
    partial_done |= chosen > 0;
    machine_trace("sendmsg of reply %u: %s", *(uint8_t *)message->msg_iov->iov_base,
                  chosen == 0   ? "whole"
                  : chosen == 1 ? "a part"
                                : "nothing");
    if (chosen == 2) {
        errno = EAGAIN;
        return -1;
    }
    return put_on_wire(message, chosen == 1 ? 1 : REPLY_BYTES);
}

void lm_ring_send(struct lm_ring *ring, int fd, const struct msghdr *message, uint32_t index,
                  uint32_t generation) {
    (void)ring;
    (void)fd;
    (void)index;
    (void)generation;
    if (ring_sends) machine_fail("two sends of one connection in the ring");
    ring_sends = message;
}

void lm_ring_cancel_recv_header(struct lm_ring *ring, uint32_t index, uint32_t generation) {
    (void)ring;
    (void)generation;
    machine_fail("connection %u is parked, and none is", index);
}

void lm_fd_store_drop(struct lm_fd_store *store, uint32_t index) {
    lm_ring_cancel_recv_header((struct lm_ring *)store, index, 0);
}

void lm_accept_refuse_assigned(struct lm_io *of) {
    (void)of;
}

uint32_t world_completions(struct lm_completion *completions, uint32_t capacity) {
    (void)capacity;
    if (!ring_sends) return 0;
    const struct msghdr *message = ring_sends;
    ring_sends = NULL;
    completions[0] = (struct lm_completion){.op = LM_OP_SEND,
                                            .result = (int32_t)put_on_wire(message, REPLY_BYTES)};
    return 1;
}

void lm_receive_continue(struct lm_io *unused, struct lm_connection *same) {
    (void)unused;
    (void)same;
}

static void forget(struct lm_io *unused, struct lm_connection *same) {
    (void)unused;
    (void)same;
}

static const struct lm_dialect dialect = {.forget = forget};

static void work(uint32_t w) {
    size_t sent_bytes;
    if (plan->replies) {
        requests[w].outcome = (uint8_t)lm_reply_try(&connection, &requests[w], &sent_bytes);
        machine_plain_write(&requests[w].outcome, 1);
    }
    real_give_back(&io, w);
}

static void run_io(uint32_t unused) {
    struct lm_completion completions[LM_COMPLETIONS_PER_TURN];
    (void)unused;
    for (;;) {
        real_take_returns(&io);
        lm_advance_all(&io);
        if (io.arena.acquired_count == 0) return;
        int count = real_wait_for_work(&io, completions);
        for (int c = 0; c < count; c++) lm_reply_completed(&io, &completions[c]);
        lm_advance_all(&io);
    }
}

static void set_up_requests(void) {
    set.used_by[0] = (struct lm_model_set_use){.slots = {plan->workers}};
    for (uint32_t r = 0; r < plan->workers; r++) {
        memset(bytes[r], (int)r, REPLY_BYTES);
        slots[r] = (struct lm_slot){.index = r, .acquired = 1};
        struct lm_request *request = &requests[r];
        request->io = &io;
        request->slot = &slots[r];
        request->model = NULL;
        request->models = &set;
        request->connection = 0;
        request->outcome = LM_OUTCOME_SENT;
        request->reply = &parts[r];
        parts[r] = (struct iovec){bytes[r], REPLY_BYTES};
        request->message = (struct msghdr){.msg_iov = request->reply, .msg_iovlen = 1};
    }
}

static void set_up(uint32_t variant, bool weak) {
    (void)weak;
    plan = &plans[variant];
    world_ticks = plan->ticks;
    io = (struct lm_io){.shared = &shared,
                        .node = &shared.nodes[0],
                        .stats = &block,
                        .requests = requests,
                        .connections = &connection,
                        .marked_head = LM_NO_CONNECTION,
                        .marked_tail = LM_NO_CONNECTION,
                        .connections_open = 1};
    io.arena.acquired_count = plan->workers;
    shared.dialects[LM_DIALECT_OPEN] = &dialect;
    shared.transports = lm_transports;
    io.arena.slots = slots;
    connection = (struct lm_connection){.in.receiving = LM_NO_SLOT,
                                        .sending = LM_NO_SLOT,
                                        .reply_head = LM_NO_SLOT,
                                        .reply_tail = LM_NO_SLOT,
                                        .in.block = LM_NO_BLOCK,
                                        .buffer = LM_NO_BUFFER,
                                        .write_shut = true,
                                        .in_flight = plan->workers,
                                        .list = LM_LIST_NONE};
    if (plan->wanting) connection.in.read_state = LM_READ_LINGER;
    set_up_requests();
    wire_used = 0;
    ring_sends = NULL;
    partial_done = !plan->replies;
    if (lm_mpmc_open(&io.returns, plan->workers > 2 ? 4 : 2)) machine_fail("no queue");
    lm_connection_mark(&io, &connection);
    lm_advance_all(&io);
    for (uint32_t w = 0; w < plan->workers; w++) machine_add_thread(work, w);
    machine_add_thread(run_io, 0);
}

static void check(void) {
    if (!machine_failure() && plan->wanting && !machine_finished(plan->workers)) {
        machine_fail("the I/O thread sleeps although slots it wants have come back");
    }
    if (!machine_failure() && plan->replies) {
        if (wire_used != plan->workers * REPLY_BYTES) {
            machine_fail("%u bytes are on the wire, of %u", wire_used, plan->workers * REPLY_BYTES);
        }
        for (uint32_t at = 0; at < wire_used; at += REPLY_BYTES) {
            if (wire[at] != wire[at + 1]) machine_fail("the bytes of two replies are mixed");
        }
        if (connection.reply_head != LM_NO_SLOT) machine_fail("a reply waits for ever");
        if (plan->ticks && set.used_by[0].slots.value != 0)
            machine_fail("a slot still counts for its set");
    }
    lm_mpmc_close(&io.returns);
}

#define FLOW(n, v, fails, p, w, fp, fw) \
    {.name = n,                         \
     .set_up = set_up,                  \
     .check = check,                    \
     .variant = v,                      \
     .must_fail = fails,                \
     .preemptions = p,                  \
     .weak_preemptions = w,             \
     .full_preemptions = fp,            \
     .full_weak_preemptions = fw}

const struct scenario scenarios_flow[] = {
    FLOW("wants-returns", 0, NULL, 2, 1, 4, 3),
    FLOW("wants-returns-3", 3, NULL, 1, 1, 3, 2),
    FLOW("send-token", 1, NULL, 2, 1, 3, 2),
    FLOW("send-token-3", 2, NULL, 1, 0, 2, 1),
    /* Weak memory may let the ring's wake-up overtake the return: then the next tick serves it. */
    FLOW("send-token-without-ticks", 4, NULL, 2, SCENARIO_SKIPPED, 3, SCENARIO_SKIPPED),
};
const uint32_t scenarios_flow_count = sizeof scenarios_flow / sizeof scenarios_flow[0];
