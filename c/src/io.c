/* io.c: see io.h. */
#include "io.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/topology.h"
#include "dialects/http.h"
#include "dialects/http2.h"
#include "dialects/upstream.h"
#include "dialects/upstream_greet.h"
#include "flow/accept.h"
#include "flow/access_log.h"
#include "flow/advance.h"
#include "flow/answer_cache.h"
#include "flow/answer_look.h"
#include "flow/estimate.h"
#include "flow/io_model.h"
#include "flow/parking.h"
#include "flow/receive.h"
#include "flow/region.h"
#include "flow/reload.h"
#include "flow/reply.h"
#include "flow/request_lists.h"
#include "flow/rest.h"
#include "flow/shadow.h"
#include "flow/slot_plan.h"
#include "flow/slot_wait.h"
#include "flow/submit.h"
#include "flow/threads.h"
#include "flow/tls.h"
#include "flow/tls_turn.h"
#include "flow/tracing.h"
#include "flow/transport.h"
#include "io_due.h"
#include "work/own.h"
#include "work/worker_open.h"

int lm_io_open(struct lm_io *io, struct lm_shared *shared, struct lm_node *node, uint32_t index,
               uint32_t connections, const lumen_slot_class *classes, uint32_t class_count) {
    io->shared = shared;
    io->node = node;
    io->models = lm_models_in_force(shared);
    io->by_time = true;
    io->index = index;
    int code = lm_arena_open(
        &io->arena, classes, class_count, lm_slot_plan_annex(lm_shared_parallel(shared)),
        shared->config.allocator_type, shared->config.huge_pages, shared->common);
    if (code) return code;
    io->annexes.arena = &io->arena;
    uint32_t slots = lm_arena_slots_max(&io->arena);
    uint32_t capacity = 2;
    while (capacity < slots) capacity *= 2;
    code = lm_mpmc_open(&io->returns, capacity);
    if (!code) code = lm_spsc_open(&io->ready, capacity);
    if (!code) code = lm_spsc_open(&io->own, capacity);
    if (!code) code = lm_spsc_open(&io->assigned, LM_ASSIGNED_MAX);
    if (shared->worker_count > shared->thread_count)
        io->inline_worker = &shared->workers[shared->thread_count + index];
    io->dialed_max = lm_upstreams_links_max(&shared->upstreams);
    if (!code) code = lm_connections_open(io, connections);
    if (!code) code = lm_held_open(&io->held, connections);
    if (code) return code;
    io->requests = calloc(slots, sizeof *io->requests);
    io->scrap = malloc(LM_SCRAP_BYTES);
    if (!io->requests || !io->scrap) {
        return lm_error(LUMEN_E_NOMEM, "no memory for the tables of %u slots", slots);
    }
    code = lm_access_log_has_rows(shared) ? lm_trace_open(&io->trace) : 0;
    if (!code) code = lm_answers_open(io, capacity);
    if (!code) code = lm_request_lists_hold(io->models->lists, io);
    if (!code) code = lm_http_open(io);
    if (!code) code = lm_http2_open(io, connections);
    if (!code) code = lm_tls_open(io);
    if (!code) code = lm_upstreams_open(io);
    if (!code) code = lm_tracing_open(io);
    for (uint32_t m = 0; !code && m < io->models->count; m++)
        code = lm_io_model_open(io, io->models->models[m]);
    return code;
}

void lm_io_close(struct lm_io *io) {
    lm_ring_close(io->ring); /* first: until then the kernel may write to slots */
    io->ring = NULL;
    lm_connections_close(io);
    lm_region_close_all(io);
    for (uint32_t s = 0; io->requests && s < lm_arena_slots_max(&io->arena); s++)
        lm_spill_join(&io->spills, &io->requests[s].spills);
    if (io->shared) lm_spill_close(&io->shared->spills, &io->spills); /* else it was never opened */
    lm_held_close(&io->held);
    lm_fd_store_close(io->fd_store);
    io->fd_store = NULL;
    lm_accept_close_listeners(io);
    lm_accept_refuse_assigned(io);
    lm_tls_side_close(io);
    lm_mpmc_close(&io->returns);
    lm_spsc_close(&io->ready);
    lm_spsc_close(&io->own);
    lm_spsc_close(&io->assigned);
    lm_answers_close(io);
    lm_annexes_close(&io->annexes);
    lm_arena_close(&io->arena);
    lm_trace_close(&io->trace);
    free(io->requests);
    free(io->scrap);
    lm_http_close(io);
    lm_http2_close(io);
    lm_tracing_close(io);
    lm_upstreams_shut(io);
    io->requests = NULL;
    io->scrap = NULL;
}

static void take_returns(struct lm_io *io) {
    uint32_t slot;
    while (lm_mpmc_pop(&io->returns, &slot)) lm_reply_returned(io, slot);
    io->returns_stuck = lm_mpmc_depth(&io->returns) > 0;
}

/* Nothing is left to do, the thread may end. */
static bool is_drained(const struct lm_io *io) {
    /* A connection accepted after this thread's last look would stay open for ever. */
    return io->draining && io->connections_open == 0 && io->arena.acquired_count == 0 &&
           !io->accepts_armed;
}

/* A descriptor is asked for, a request waits for its bytes, or the transport asked. */
static void readable(struct lm_io *io, const struct lm_completion *completion) {
    struct lm_connection *connection = lm_io_connection(io, completion->index);
    const struct lm_transport *transport = lm_transport_of(io, connection);
    if (connection->in.read_state == LM_READ_DESCRIPTOR) {
        lm_receive_readable(io, completion);
    } else if (!transport->readable || !transport->readable(io, completion)) {
        lm_slot_wait_readable(io, completion);
    }
}

/* Bytes of a reply, of what a connection carries, or of the transport's own. */
static void sent(struct lm_io *io, const struct lm_completion *completion) {
    const struct lm_transport *transport =
        lm_transport_of(io, lm_io_connection(io, completion->index));
    if (!transport->sent || !transport->sent(io, completion)) lm_reply_sent(io, completion);
}

static void complete(struct lm_io *io, const struct lm_completion *completion) {
    switch (completion->op) {
    case LM_OP_ACCEPT: lm_accept_completed(io, completion); break;
    case LM_OP_RECV_HEADER:
    case LM_OP_RECV: lm_receive_completed(io, completion); break;
    case LM_OP_READABLE: readable(io, completion); break;
    case LM_OP_SEND: sent(io, completion); break;
    case LM_OP_CONNECT: lm_upstream_connected(io, completion); break;
    case LM_OP_WAKE:
    case LM_OP_CANCEL: break; /* the loop looks at everything anyway */
    }
}

/* Waits for completions. Says first whether a worker's return must wake this thread: the exchange
 * and the worker's are on one word, so that a return pushed before it is seen by the look that
 * follows. */
static int wait_for_work(struct lm_io *io, struct lm_completion *completions) {
    bool wants = io->connections_wanting || io->lists[LM_LIST_WAITING].count || io->draining;
    if (wants) {
        /* I1: acquire sees a return whose W2 came first, release shows the flag; pairs with W2
         * in work/worker.c */
        (void)lm_exchange_acq_rel_u32(&io->wants_returns, 1);
    }
    uint64_t limit = lm_due_sleep_ns(io); /* behind the exchange: it looks at the returns */
    /* relaxed, both: guard nothing */
    bool may_poll = !lm_load_relaxed_u32(&io->shared->io_shares_cores) || io->in_flight == 0;
    bool polls = limit > 0 && io->connections_open && may_poll;
    uint64_t poll_ns = polls ? lm_load_relaxed_u64(&io->shared->io_poll_ns) : 0;
    int count = lm_ring_wait(io->ring, poll_ns, limit, completions, LM_COMPLETIONS_PER_TURN);
    /* acq_rel: keeps every write to this word a read-modify-write, as I1 and W2 need */
    if (wants) (void)lm_exchange_acq_rel_u32(&io->wants_returns, 0);
    return count;
}

static void publish_gauges(struct lm_io *io) {
    struct lm_io_counters *counters = &io->stats->io;
    /* relaxed: gauges */
    lm_store_relaxed_u64(&counters->connections_open, io->connections_open);
    lm_store_relaxed_u64(&counters->connections_parked, io->connections_parked);
    lm_store_relaxed_u64(&counters->slots_in_use, io->arena.acquired_count);
    lm_store_relaxed_u64(&counters->in_flight, io->in_flight);
    lm_store_relaxed_u64(&counters->upstream_connections, io->dialed_open);
    lm_store_relaxed_u64(&counters->ring_overflows, lm_ring_overflows(io->ring));
}

/* Each turn: completions and returns mark connections, which are advanced; so does what is due;
 * what became ready is handed to the workers; the thread sleeps. */
static int run(struct lm_io *io) {
    struct lm_completion completions[LM_COMPLETIONS_PER_TURN];
    int count = 0;
    io->now_ns = io->seen_ns = lm_now_ns();
    lm_io_look(io);
    for (uint32_t m = 0; m < io->models->count; m++) lm_estimate_begin(io, io->models->models[m]);
    for (;;) {
        uint64_t woke_ns = io->now_ns;
        io->parses_left = LM_PARSES_PER_TURN;
        lm_tls_begin_turn(io);
        take_returns(io); /* before what their clients sent next */
        if (io->shadows_out) lm_shadow_take_back(io);
        for (int c = 0; c < count; c++) complete(io, &completions[c]);
        lm_advance_all(io); /* first: what came in time has no deadline any more */
        if (lm_answers_wait(io)) lm_answers_run(io);
        if (io->inline_worker) lm_own_run(io);
        lm_due_run(io);
        lm_tls_begin_turn(io); /* for those that had no turn before */
        lm_advance_all(io);
        lm_submit_hand_over(io);
        if (is_drained(io)) return 0;
        lm_accept_arm(io);
        publish_gauges(io);
        lm_add_single_writer_u64(&io->busy_ns, lm_now_ns() - woke_ns);
        lm_rest(io, woke_ns);
        count = wait_for_work(io, completions);
        if (count < 0)
            return lm_error_errno(LUMEN_E_IO, count, "I/O thread %u: %s", io->index,
                                  lm_ring_backend(io->ring));
        io->now_ns = io->seen_ns = lm_now_ns();
        lm_real_time_check(&io->real_time, io->now_ns);
        lm_io_look(io);
        if (io->fd_store) lm_parking_park(io);
    }
}

static void name_thread(struct lm_io *io) {
    char name[16];
    snprintf(name, sizeof name, "lumen-io/%u", io->index);
    pthread_setname_np(pthread_self(), name);
    io->stats->head.tid = (int32_t)syscall(SYS_gettid);
}

/* Where there are fewer descriptors than connections. Without it the server runs all the same. */
static void open_fd_store(struct lm_io *io) {
    io->unparked_max = io->shared->unparked_max;
    if (!io->unparked_max) return;
    int code = lm_ring_holds_sockets(io->ring)
                   ? lm_fd_store_open(&io->fd_store, lm_parking_places(io), io->unparked_max / 2)
                   : lm_error(LUMEN_E_UNSUPPORTED, "that takes io_uring");
    if (code) snprintf(io->park_error, sizeof io->park_error, "%s", lm_error_last());
}

/* The kernel takes nothing from the ring any more, and nobody else can serve its connections: they
 * end, and so does the server, for whoever watches it to start it again. */
static void give_up(struct lm_io *io) {
    struct lm_shared *shared = io->shared;
    fprintf(stderr, "lumen: %s: the server ends\n", lm_error_last());
    for (uint32_t l = 0; l < LM_LISTENERS; l++) {
        /* An accept that is armed keeps it open. */
        if (io->listen_fds[l] >= 0) shutdown(io->listen_fds[l], SHUT_RDWR);
    }
    for (uint32_t i = 0; i < io->connections_used; i++) {
        bool parked = io->connections[i].fd == LM_FD_PARKED;
        int fd = parked ? lm_fd_store_get(io->fd_store, i) : io->connections[i].fd;
        if (fd >= 0) shutdown(fd, SHUT_RDWR);
        if (parked && fd >= 0) close(fd);
    }
    /* relaxed: published by D2 */
    lm_store_relaxed_u64(&shared->drain_until_ns, lm_now_ns() + LM_FAILURE_DRAIN_MS * 1000000ull);
    /* D2: release: shows drain_until_ns; pairs with D3 in io_due.c */
    lm_store_release_u32(&shared->phase, LM_PHASE_DRAINING);
    for (uint32_t i = 0; i < shared->io_count; i++) lm_ring_wake(shared->ios[i].ring);
}

void *lm_io_main(void *argument) {
    struct lm_io *io = argument;
    struct lm_shared *shared = io->shared;
    name_thread(io);
    lm_real_time_begin(&io->real_time, shared->real_time);
    if (io->node->cpus) (void)lm_thread_keep_to(io->node->cpus);
    if (io->node->memory >= 0) lm_memory_prefer(io->node->memory);
    if (io->inline_worker) io->start_code = lm_worker_open(io->inline_worker);
    if (!io->start_code)
        io->start_code =
            lm_ring_open(&io->ring, shared->config.io_backend, io->connection_capacity);
    if (!io->start_code) open_fd_store(io);
    if (io->start_code) snprintf(io->start_error, sizeof io->start_error, "%s", lm_error_last());
    lm_thread_meet(shared);
    /* E4: acquire: how the start went; pairs with E2 in server/threads.c */
    if (lm_load_acquire_u32(&shared->workers_stop) == 0 && io->ring) {
        if (run(io)) give_up(io);
    }
    /* The ring stays until lm_io_close: lumen_stop may ring it up to then. */
    lm_store_relaxed_u64(&io->stats->io.connections_open, 0); /* relaxed: gauges */
    lm_store_relaxed_u64(&io->stats->io.connections_parked, 0);
    lm_store_relaxed_u64(&io->stats->io.slots_in_use, 0);
    lm_store_relaxed_u64(&io->stats->io.in_flight, 0);
    lm_thread_ended(shared, LUMEN_ROLE_IO);
    return NULL;
}
