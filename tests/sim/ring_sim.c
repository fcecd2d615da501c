/* ring_sim.c: ring.h without a kernel: operations that are started, done when the scheduler says so
 * (ring_kernel.c), and reported some time later, as the seed has it.
 *
 * It checks what ring.h asks of its caller: one operation a direction, none on a descriptor that
 * is closed (F11), buffers given back once, nothing left behind at the end. Operations are
 * submitted at the next wait, as a rule; at once, as when the submission queue is full (F17).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "flow/accept.h"
#include "ring_inner.h"

static struct op *add_op(struct lm_ring *ring, enum lm_op kind, int fd, uint32_t index,
                         uint32_t generation) {
    struct peer *peer = peer_of(fd);
    SIM_CHECK(ring->op_count < OPS_MAX, "OPS_MAX is too small");
    SIM_CHECK(peer, "an operation on descriptor %d, which is closed", fd);
    SIM_CHECK(!ring_armed(ring, index, kind == LM_OP_SEND),
              "connection %u has two operations of one direction in the ring", index);
    peer->operations++;
    peer->served = true;
    struct op *op = &ring->ops[ring->op_count++];
    *op = (struct op){.kind = kind,
                      .peer = peer,
                      .index = index,
                      .generation = generation,
                      .submitted = sim_one_in(20),
                      .early = sim_one_in(20),
                      .not_before_ns = sim_now_ns + ring_delay_ns() / 4};
    return op;
}

bool ring_armed(const struct lm_ring *ring, uint32_t index, bool sending) {
    for (uint32_t o = 0; o < ring->op_count; o++) {
        if (ring->ops[o].index == index && (ring->ops[o].kind == LM_OP_SEND) == sending)
            return true;
    }
    for (uint32_t i = 0; i < ring->later_count + ring->told_count; i++) {
        const struct lm_completion *completion =
            i < ring->later_count ? &ring->later[i].completion
                                  : &ring->told[i - ring->later_count].completion;
        bool is_socket = completion->op == LM_OP_SEND || completion->op == LM_OP_RECV ||
                         completion->op == LM_OP_RECV_HEADER || completion->op == LM_OP_READABLE;
        if (is_socket && completion->index == index && (completion->op == LM_OP_SEND) == sending)
            return true;
    }
    return false;
}

bool ring_accepts(const struct lm_ring *ring) {
    return ring && ring->open && (ring->accept_submitted || ring->accept_armed);
}

/* ---- buffers (F9) ---- */

uint8_t *lm_ring_buffer(struct lm_ring *ring, int32_t buffer) {
    return ring->memory + (size_t)buffer * LM_HEADER_BUFFER_BYTES;
}

void lm_ring_buffer_return(struct lm_ring *ring, int32_t buffer) {
    SIM_CHECK(buffer >= 0 && (uint32_t)buffer < sim_plan.header_buffers,
              "buffer %d is given back, there is none", buffer);
    SIM_CHECK(ring->buffer_out[buffer], "buffer %d is given back twice", buffer);
    ring->buffer_out[buffer] = false;
    uint8_t *memory = lm_ring_buffer(ring, buffer);
    memset(memory, 0xdb, LM_HEADER_BUFFER_BYTES);
    /* Parsers may look ahead from the buffer before. */
    ASAN_POISON_MEMORY_REGION(memory + LM_CACHE_LINE, LM_HEADER_BUFFER_BYTES - LM_CACHE_LINE);
}

uint32_t ring_buffers_out(const struct lm_ring *ring) {
    uint32_t count = 0;
    for (uint32_t b = 0; b < sim_plan.header_buffers; b++) count += ring->buffer_out[b];
    return count;
}

uint32_t ring_buffers_coming(const struct lm_ring *ring) {
    uint32_t count = 0;
    for (uint32_t l = 0; l < ring->later_count; l++)
        count += ring->later[l].completion.buffer != LM_NO_BUFFER;
    for (uint32_t t = 0; t < ring->told_count; t++)
        count += ring->told[t].completion.buffer != LM_NO_BUFFER;
    return count;
}

bool ring_buffer_is_out(const struct lm_ring *ring, int32_t buffer) {
    return ring->buffer_out[buffer];
}

/* ---- opening ---- */

int lm_ring_open(struct lm_ring **ring_out, uint32_t backend, uint32_t max_connections) {
    (void)backend;
    (void)max_connections;
    uint32_t index = (uint32_t)(fiber_self() - fibers); /* I/O threads come first */
    struct lm_ring *ring = &rings[index];
    uint8_t *memory = ring->memory;
    size_t bytes = (size_t)BUFFERS_MAX * LM_HEADER_BUFFER_BYTES + LM_CACHE_LINE;
    if (!memory) memory = malloc(bytes);
    *ring = (struct lm_ring){.open = true, .memory = memory};
    for (uint32_t b = 0; b < sim_plan.header_buffers; b++) {
        ring->buffer_out[b] = true;
        ASAN_UNPOISON_MEMORY_REGION(lm_ring_buffer(ring, (int32_t)b), LM_HEADER_BUFFER_BYTES);
        lm_ring_buffer_return(ring, (int32_t)b);
    }
    ring->io = &sim_shared.ios[index];
    *ring_out = ring;
    return 0;
}

void lm_ring_close(struct lm_ring *ring) {
    if (!ring) return;
    for (uint32_t i = 0; i < ring->later_count + ring->told_count; i++) {
        const struct lm_completion *completion =
            i < ring->later_count ? &ring->later[i].completion
                                  : &ring->told[i - ring->later_count].completion;
        SIM_CHECK(completion->op != LM_OP_ACCEPT || completion->result < 0,
                  "descriptor %d was accepted and nobody took it: it stays open for ever",
                  completion->result);
        SIM_CHECK(completion->op != LM_OP_SEND && completion->op != LM_OP_RECV &&
                      completion->op != LM_OP_RECV_HEADER && completion->op != LM_OP_READABLE,
                  "the ring is closed before connection %u's last completion", completion->index);
    }
    SIM_CHECK(ring->op_count == 0, "the ring is closed with %u operations", ring->op_count);
    SIM_CHECK(!ring_accepts(ring), "the ring is closed while it accepts connections");
    ring->open = false;
}

const char *lm_ring_detail(const struct lm_ring *ring) {
    (void)ring;
    return "simulated";
}

const char *lm_ring_backend(const struct lm_ring *ring) {
    (void)ring;
    return "simulation";
}

uint64_t lm_ring_overflows(const struct lm_ring *ring) {
    return ring->overflows;
}

/* ---- starting ---- */

void lm_ring_accept(struct lm_ring *ring, uint32_t listener, int listen_fd) {
    SIM_CHECK(listener == LM_LISTENER_TCP, "the simulation has no listener %u", listener);
    SIM_CHECK(listen_fd >= 0 && listener_is_open(ring->io->index), "accept on a closed listener");
    SIM_CHECK(!ring_accepts(ring), "accept is armed twice");
    ring->accept_armed = true;
    ring->accept_cancelled = false;
}

void lm_ring_cancel_accept(struct lm_ring *ring, uint32_t listener) {
    (void)listener;
    struct lm_completion completion = {.op = LM_OP_CANCEL, .buffer = LM_NO_BUFFER};
    ring->accept_cancelled = true;
    if (!ring->accept_submitted) completion.result = sim_below(2) ? -ENOENT : -EALREADY; /* F13 */
    ring_tell_later(ring, &completion, NULL, sim_now_ns + ring_delay_ns());
}

void lm_ring_recv_header(struct lm_ring *ring, int fd, uint32_t index, uint32_t generation) {
    SIM_TRACE("recv header fd %llu connection %llu/%llu", fd, index, generation);
    (void)add_op(ring, LM_OP_RECV_HEADER, fd, index, generation);
}

void lm_ring_recv(struct lm_ring *ring, int fd, void *memory, size_t bytes, uint32_t index,
                  uint32_t generation) {
    SIM_TRACE("recv fd %llu connection %llu/%llu: %llu bytes", fd, index, generation, bytes);
    SIM_CHECK(bytes > 0, "a receive of no bytes");
    struct op *op = add_op(ring, LM_OP_RECV, fd, index, generation);
    op->memory = memory;
    op->bytes = bytes;
}

void lm_ring_poll(struct lm_ring *ring, int fd, uint32_t index, uint32_t generation) {
    SIM_TRACE("poll fd %llu connection %llu/%llu", fd, index, generation);
    (void)add_op(ring, LM_OP_READABLE, fd, index, generation);
}

void lm_ring_connect(struct lm_ring *ring, int fd, const struct sockaddr *address, socklen_t bytes,
                     uint32_t index, uint32_t generation) {
    (void)ring, (void)fd, (void)address, (void)bytes, (void)index, (void)generation;
    SIM_CHECK(false, "a connection to an upstream: there are none");
}

void lm_ring_send(struct lm_ring *ring, int fd, const struct msghdr *message, uint32_t index,
                  uint32_t generation) {
    struct op *op = add_op(ring, LM_OP_SEND, fd, index, generation);
    SIM_CHECK(message->msg_iovlen > 0 && message->msg_iovlen <= PARTS_MAX, "a send of no parts");
    op->message = message;
    op->part_count = message->msg_iovlen;
    for (size_t p = 0; p < op->part_count; p++) {
        op->parts[p] = message->msg_iov[p];
        op->bytes += op->parts[p].iov_len;
    }
    SIM_TRACE("send fd %llu connection %llu/%llu: %llu bytes", fd, index, generation, op->bytes);
    SIM_CHECK(op->bytes > 0, "a send of no bytes");
}

bool lm_ring_holds_sockets(const struct lm_ring *ring) {
    (void)ring;
    return true;
}

bool lm_ring_is_submitted(const struct lm_ring *ring) {
    for (uint32_t o = 0; o < ring->op_count; o++) {
        if (!ring->ops[o].submitted) return false;
    }
    return true;
}

bool ring_will_end(const struct lm_ring *ring, uint32_t index) {
    for (uint32_t o = 0; o < ring->op_count; o++) {
        const struct op *op = &ring->ops[o];
        if (op->index == index && op->kind != LM_OP_SEND)
            return op->cancelled || peer_can_receive(op->peer);
    }
    return true; /* it has */
}

bool ring_has_all(const struct peer *peer) {
    const struct lm_ring *ring = &rings[peer->io];
    for (uint32_t o = 0; o < ring->op_count; o++) {
        if (ring->ops[o].peer == peer && !ring->ops[o].submitted) return false;
    }
    return true;
}

void lm_ring_cancel_recv_header(struct lm_ring *ring, uint32_t index, uint32_t generation) {
    struct lm_completion completion = {
        .op = LM_OP_CANCEL, .result = -ENOENT, .buffer = LM_NO_BUFFER};
    struct peer *peer = store_kept(ring->io->fd_store, index);
    SIM_CHECK(peer, "connection %u has a descriptor: its receive ends with a shutdown", index);
    if (engine_ended_one(peer->io)) peer->excused = true;
    for (uint32_t o = 0; o < ring->op_count; o++) {
        struct op *op = &ring->ops[o];
        if (op->kind != LM_OP_RECV_HEADER || op->index != index || op->generation != generation)
            continue;
        op->cancelled = true;
        completion.result = 0;
    }
    ring_tell_later(ring, &completion, NULL, sim_now_ns + ring_delay_ns());
}

void lm_ring_cancel_recv(struct lm_ring *ring, uint32_t index, uint32_t generation) {
    struct lm_completion completion = {
        .op = LM_OP_CANCEL, .result = -ENOENT, .buffer = LM_NO_BUFFER};
    for (uint32_t o = 0; o < ring->op_count; o++) {
        struct op *op = &ring->ops[o];
        if (op->kind != LM_OP_RECV || op->index != index || op->generation != generation) continue;
        op->cancelled = true;
        completion.result = 0;
    }
    ring_tell_later(ring, &completion, NULL, sim_now_ns + ring_delay_ns());
}

/* ---- waiting ---- */

static void submit(struct lm_ring *ring) {
    for (uint32_t o = 0; o < ring->op_count; o++) ring->ops[o].submitted = true;
    if (ring->accept_armed) {
        ring->accept_submitted = true;
        ring->accept_armed = false;
    }
}

static uint32_t reap(struct lm_ring *ring, struct lm_completion *completions, uint32_t capacity) {
    uint32_t count = ring->told_count < capacity ? ring->told_count : capacity;
    if (count > 1 && sim_one_in(4)) count = 1 + sim_below(count);
    for (uint32_t c = 0; c < count; c++) {
        completions[c] = ring->told[c].completion;
        if (completions[c].op == LM_OP_ACCEPT || !ring->told[c].peer) continue;
        ring->told[c].peer->operations--;
    }
    memmove(ring->told, ring->told + count, (ring->told_count - count) * sizeof *ring->told);
    ring->told_count -= count;
    return count;
}

int lm_ring_wait(struct lm_ring *ring, uint64_t poll_ns, uint64_t timeout_ns,
                 struct lm_completion *completions, uint32_t capacity) {
    (void)poll_ns; /* looking before sleeping changes when, not what */
    uint64_t began = sim_now_ns;
    check_sweep(ring->io);
    if (sim_one_in(sim_plan.blip_one_in)) { /* no memory for them now: they stay where they are */
        sim_now_ns += 400;
        return 0;
    }
    submit(ring);
    check_io(ring->io, timeout_ns);
    sim_now_ns += 400;
    if (sim_one_in(sim_plan.switch_one_in)) fiber_yield();
    uint64_t until = timeout_ns == UINT64_MAX ? UINT64_MAX : sim_now_ns + timeout_ns;
    while (ring->told_count == 0 && sim_now_ns < until) {
        if (sim_one_in(sim_plan.blip_one_in)) break; /* F16: EINTR */
        fiber_block(ring, until);
    }
    uint32_t count = reap(ring, completions, capacity);
    for (uint32_t c = 0; c < count; c++) {
        if (completions[c].op == LM_OP_WAKE) ring->wake_rung = false;
    }
    check_turn(ring->io, sim_now_ns - began, count);
    engine_turn(ring->io->index);
    return (int)count;
}

void lm_ring_wake(struct lm_ring *ring) {
    SIM_CHECK(ring && ring->open, "a ring that is closed is rung");
    if (ring->wake_rung) return;
    ring->wake_rung = true;
    struct lm_completion completion = {.op = LM_OP_WAKE, .buffer = LM_NO_BUFFER};
    ring_tell_later(ring, &completion, NULL, sim_now_ns + ring_delay_ns() % 100000);
}
