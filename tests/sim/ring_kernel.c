/* ring_kernel.c: the kernel's side of the ring: which of the started operations could go on, what
 * comes of one, and when it is told. Every fault of a socket or of the ring is drawn here; F7 and
 * numbers like it are rows of the faults in docs/SECURITY.md.
 */
#include <errno.h>
#include <string.h>

#include "dialects/http2_state.h"
#include "ring_inner.h"

struct lm_ring rings[RINGS_MAX];

void rings_reset(void) {
    for (uint32_t r = 0; r < RINGS_MAX; r++) rings[r].open = false;
}

/* ---- telling ---- */

uint64_t ring_delay_ns(void) {
    if (sim_one_in(sim_plan.late_one_in))
        return sim_one_in(8) ? sim_between(SIM_MS, 200 * SIM_MS) : sim_between(1, 3 * SIM_MS);
    return sim_below(2) ? 0 : sim_below(20000);
}

void ring_tell_later(struct lm_ring *ring, const struct lm_completion *completion,
                     struct peer *peer, uint64_t at_ns) {
    SIM_CHECK(ring->later_count < CQ_MAX && ring->told_count < CQ_MAX / 2, "CQ_MAX is too small");
    ring->later[ring->later_count++] = (struct done){*completion, peer, at_ns};
}

static void tell(void *what, uint32_t which) {
    struct lm_ring *ring = what;
    struct done *done = &ring->later[which];
    const struct lm_completion *completion = &done->completion;
    if (ring->told_count >= sim_plan.completions) ring->overflows++; /* F6: the kernel keeps it */
    SIM_TRACE("completion op %llu of %llu/%llu: %lld more %llu", completion->op, completion->index,
              completion->generation, (int64_t)completion->result, completion->more);
    ring->told[ring->told_count++] = *done;
    /* Accepts and the end of accepting stay in their order. */
    memmove(done, done + 1, (ring->later_count - which - 1) * sizeof *done);
    ring->later_count--;
    fiber_unblock(ring, 1);
}

/* ---- operations ---- */

static void finish(struct lm_ring *ring, struct op *op, int result, int32_t buffer) {
    struct lm_completion completion = {.op = op->kind,
                                       .index = op->index,
                                       .generation = op->generation,
                                       .result = result,
                                       .buffer = buffer};
    ring_tell_later(ring, &completion, op->peer, sim_now_ns + ring_delay_ns());
    *op = ring->ops[--ring->op_count];
}

static int32_t take_buffer(struct lm_ring *ring) {
    uint32_t start = sim_below(sim_plan.header_buffers);
    for (uint32_t b = 0; b < sim_plan.header_buffers; b++) {
        uint32_t at = (start + b) % sim_plan.header_buffers;
        if (ring->buffer_out[at]) continue;
        ring->buffer_out[at] = true;
        ASAN_UNPOISON_MEMORY_REGION(lm_ring_buffer(ring, (int32_t)at), LM_HEADER_BUFFER_BYTES);
        return (int32_t)at;
    }
    return LM_NO_BUFFER;
}

/* F14: a result that is no fault of the connection's, and one that ends it. 0: neither. */
static int draw_error(struct peer *peer, bool sending) {
    if (sim_one_in(sim_plan.blip_one_in)) return sim_below(2) ? -EINTR : -EAGAIN;
    if (!sim_one_in(sim_plan.fatal_one_in)) return 0;
    static const int errors[] = {ECONNRESET, ETIMEDOUT, EPIPE, ECANCELED};
    peer_break(peer, errors[sim_below(sending ? 4 : 2)]);
    return 0;
}

/* F8: no buffer is left, or none is to be had for a while. */
static void do_recv_header(struct lm_ring *ring, struct op *op) {
    if (op->cancelled && (!peer_can_receive(op->peer) || sim_below(2))) {
        finish(ring, op, -ECANCELED, LM_NO_BUFFER);
        return;
    }
    int error = draw_error(op->peer, false);
    bool wanted = error == 0;
    int32_t buffer = wanted ? take_buffer(ring) : LM_NO_BUFFER;
    if (!wanted || buffer == LM_NO_BUFFER) {
        finish(ring, op, wanted ? -ENOBUFS : error, LM_NO_BUFFER);
        return;
    }
    uint32_t most = LM_HEADER_BUFFER_BYTES;
    if (!sim_plan.plain && sim_one_in(6)) most = 1 + sim_below(sim_below(2) ? 8 : 300);
    int got = peer_receive(op->peer, lm_ring_buffer(ring, buffer), most);
    /* A buffer may come with an error or the end of the stream, or not. */
    if (got <= 0 && sim_below(3)) {
        lm_ring_buffer_return(ring, buffer);
        buffer = LM_NO_BUFFER;
    }
    finish(ring, op, got, buffer);
}

/* The kernel may write to memory as long as the operation is in the ring: it has to be the
 * connection's all that time. */
static void check_memory(const struct lm_ring *ring, const struct op *op) {
    struct lm_io *io = ring->io;
    const struct lm_connection *connection = &io->connections[op->index];
    if (op->memory == io->scrap) return;
    const struct lm_http2_carrier *http2 =
        connection->dialect == LM_DIALECT_HTTP2 ? lm_http2_of(io, connection) : NULL;
    if (http2) {
        SIM_CHECK(http2->placing, "a body of connection %u is received for no stream", op->index);
        connection = &io->connections[http2->busy->streams[http2->placing - 1].connection];
        SIM_CHECK(connection->recv_armed, "stream %u does not know that its slot is written to",
                  connection->index);
    }
    SIM_CHECK((http2 || connection->generation == op->generation) &&
                  connection->in.receiving != LM_NO_SLOT,
              "a body is received to a slot that connection %u has no more", op->index);
    const struct lm_slot *slot = io->requests[connection->in.receiving].slot;
    SIM_CHECK(slot->acquired, "a body is received to a slot that is free");
    bool inside = op->memory >= slot->base && op->memory + op->bytes <= slot->base + slot->bytes;
    SIM_CHECK(inside, "a body is received outside of its slot");
}

static void do_recv(struct lm_ring *ring, struct op *op) {
    check_memory(ring, op);
    if (op->cancelled && (!peer_can_receive(op->peer) || sim_below(2))) {
        finish(ring, op, op->done ? (int)op->done : -ECANCELED, LM_NO_BUFFER);
        return;
    }
    int error = op->done ? 0 : draw_error(op->peer, false);
    if (error) {
        finish(ring, op, error, LM_NO_BUFFER);
        return;
    }
    size_t most = op->bytes - op->done;
    if (most > 1 && sim_one_in(3)) most = 1 + sim_below((uint32_t)most);
    int got = peer_receive(op->peer, op->memory + op->done, (uint32_t)most);
    if (got > 0) {
        op->done += (size_t)got;
        if (op->done < op->bytes && !sim_one_in(sim_plan.blip_one_in)) return; /* MSG_WAITALL */
        got = (int)op->done;
    } else if (op->done) {
        got = (int)op->done; /* what came before; the rest is told the next time */
    } else if (got == -EAGAIN) {
        return;
    }
    finish(ring, op, got, LM_NO_BUFFER);
}

/* Now and then of too few bytes: no caller may take it for more than a hint. */
static void do_poll(struct lm_ring *ring, struct op *op) {
    finish(ring, op, draw_error(op->peer, false), LM_NO_BUFFER);
}

static void do_send(struct lm_ring *ring, struct op *op) {
    int error = op->done ? 0 : draw_error(op->peer, true);
    if (error) {
        finish(ring, op, error, LM_NO_BUFFER);
        return;
    }
    SIM_CHECK(op->message->msg_iovlen == op->part_count &&
                  memcmp(op->message->msg_iov, op->parts, op->part_count * sizeof *op->parts) == 0,
              "a message changed while the ring sends it");
    uint32_t most = sim_one_in(4) ? 1 + sim_below(100) : UINT32_MAX;
    int sent = peer_send(op->peer, op->parts, op->part_count, op->done, most);
    if (sent > 0) {
        op->done += (size_t)sent;
        if (op->done < op->bytes && !sim_one_in(sim_plan.blip_one_in)) return;
        sent = (int)op->done;
    } else if (op->done) {
        sent = (int)op->done;
    } else if (sent == -EAGAIN) {
        return;
    }
    finish(ring, op, sent, LM_NO_BUFFER);
}

static void do_op(void *what, uint32_t which) {
    struct lm_ring *ring = what;
    struct op *op = &ring->ops[which];
    switch (op->kind) {
    case LM_OP_RECV_HEADER: do_recv_header(ring, op); break;
    case LM_OP_RECV: do_recv(ring, op); break;
    case LM_OP_READABLE: do_poll(ring, op); break;
    default: do_send(ring, op); break;
    }
}

/* ---- accepting ---- */

static void tell_accept(struct lm_ring *ring, int result, struct peer *peer, bool more) {
    struct lm_completion completion = {
        .op = LM_OP_ACCEPT, .result = result, .buffer = LM_NO_BUFFER, .more = more};
    uint64_t at = sim_now_ns + ring_delay_ns();
    if (at < ring->accept_told_ns) at = ring->accept_told_ns;
    ring->accept_told_ns = at + 1;
    ring_tell_later(ring, &completion, peer, at);
    if (more) return;
    ring->accept_submitted = false;
    if (!listener_is_open(ring->io->index)) listener_abandon(ring->io->index);
}

/* F10: no descriptor is left. F7: accepting ends with any error, or with none. */
static void do_accept(void *what, uint32_t which) {
    struct lm_ring *ring = what;
    struct peer *peer = listener_next(ring->io->index);
    (void)which;
    if (ring->accept_cancelled && (!peer || sim_below(2))) {
        tell_accept(ring, -ECANCELED, NULL, false);
    } else if (fds_open >= sim_plan.descriptors) {
        tell_accept(ring, sim_below(2) ? -EMFILE : -ENFILE, NULL, false);
    } else if (sim_one_in(sim_plan.fatal_one_in)) {
        static const int errors[] = {ECONNABORTED, ENOMEM, ENOBUFS, EINTR, EPROTO};
        peer->waits = !sim_below(2);
        if (!peer->waits) peer_break(peer, ECONNABORTED);
        tell_accept(ring, -errors[sim_below(5)], NULL, false);
    } else {
        bool full = ring->told_count >= sim_plan.completions;
        int fd = peer_accept(peer);
        SIM_TRACE("accept peer %llu as fd %llu", peer->number, fd);
        tell_accept(ring, fd, peer, !full && !sim_one_in(sim_plan.blip_one_in));
    }
}

/* ---- what could happen ---- */

static bool op_is_possible(const struct op *op) {
    if (op->kind == LM_OP_SEND) return peer_can_send(op->peer);
    if (op->kind != LM_OP_READABLE) return op->cancelled || peer_can_receive(op->peer);
    return peer_is_readable(op->peer) || (op->early && peer_can_receive(op->peer));
}

static void ring_choose(struct lm_ring *ring, struct choice *choice) {
    for (uint32_t o = 0; o < ring->op_count; o++) {
        struct op *op = &ring->ops[o];
        if (!op->submitted || !op_is_possible(op)) continue;
        if (op->not_before_ns > sim_now_ns) {
            choice_at(choice, op->not_before_ns);
        } else {
            choice_add(choice, do_op, ring, o);
        }
    }
    bool accept_told = false;
    for (uint32_t l = 0; l < ring->later_count; l++) {
        bool is_accept = ring->later[l].completion.op == LM_OP_ACCEPT;
        if (is_accept && accept_told) continue;
        accept_told |= is_accept;
        if (ring->later[l].at_ns > sim_now_ns) {
            choice_at(choice, ring->later[l].at_ns);
        } else {
            choice_add(choice, tell, ring, l);
        }
    }
    if (ring->accept_submitted && (ring->accept_cancelled || listener_next(ring->io->index)))
        choice_add(choice, do_accept, ring, 0);
}

void rings_choose(struct choice *choice) {
    for (uint32_t r = 0; r < RINGS_MAX; r++) {
        if (rings[r].open) ring_choose(&rings[r], choice);
    }
}
