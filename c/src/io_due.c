/* io_due.c: see io_due.h. */
#include "io_due.h"

#include "dialects/grpc_stream.h"
#include "dialects/http_demand.h"
#include "dialects/http_errands.h"
#include "dialects/upstream.h"
#include "flow/accept.h"
#include "flow/answer_cache.h"
#include "flow/eviction.h"
#include "flow/parking.h"
#include "flow/receive.h"
#include "flow/region.h"
#include "flow/slot_wait.h"
#include "flow/timers.h"
#include "flow/tls_turn.h"
#include "work/watchdog.h"

#define TICK_NS (LM_TICK_MS * 1000000ull)
#define NEVER UINT64_MAX

/* The end has begun: no new connections, and those between two requests are closed. */
static void start_draining(struct lm_io *io) {
    io->draining = true;
    for (uint32_t l = 0; l < LM_LISTENERS; l++) {
        if (io->accepts_armed & 1u << l) lm_ring_cancel_accept(io->ring, l);
    }
    lm_accept_close_listeners(io);
    for (uint32_t i = 0; i < io->connections_used; i++) {
        if (io->connections[i].fd >= 0) lm_connection_mark(io, &io->connections[i]);
    }
}

/* It will begin: connections that carry others say so to their clients at once, those of single
 * requests with the next answer. */
static void start_leaving(struct lm_io *io) {
    io->leaving = true;
    for (uint32_t i = 0; i < io->connections_used; i++) {
        struct lm_connection *connection = &io->connections[i];
        if (connection->fd >= 0 && lm_io_dialect(io, connection)->carry)
            lm_connection_mark(io, connection);
    }
}

static void abort_all(struct lm_io *io) {
    for (uint32_t i = 0; i < io->connections_used; i++) {
        struct lm_connection *connection = &io->connections[i];
        if (connection->fd < 0 || lm_load_relaxed_u32(&connection->gone))
            continue; /* relaxed: own writes */
        connection->in.cut_short = LM_STATUS_SHUTTING_DOWN;
        lm_connection_abort(io, connection);
    }
}

/* Whether the end has begun, and how far it is. */
static void drain(struct lm_io *io) {
    if (!io->leaving && lm_shared_is_leaving(io->shared)) start_leaving(io);
    if (!io->draining) {
        /* D3: acquire: sees drain_until_ns; pairs with D1 in server/server.c and D2
         * in io.c */
        if (lm_load_acquire_u32(&io->shared->phase) != LM_PHASE_DRAINING) return;
        start_draining(io);
    }
    /* relaxed: a later, shorter limit may be seen one turn late */
    if (io->now_ns >= lm_load_relaxed_u64(&io->shared->drain_until_ns)) abort_all(io);
}

/* ---- how long there is time ---- */

/* Returns, and what became ready, are looked at in any turn. A worker may stand between claim and
 * publication, which a busy thread of better priority would only delay. */
static uint64_t returns_ns(const struct lm_io *io) {
    if (lm_mpmc_depth(&io->returns) == 0) return NEVER;
    return io->returns_stuck ? LM_STUCK_TICK_NS : 0;
}

/* Pushes that the workers' queue refused. */
static uint64_t refused_ns(const struct lm_io *io) {
    return lm_spsc_depth(&io->ready) > 0 ? LM_STUCK_TICK_NS : NEVER;
}

/* Requests of this thread's own, and those that may be answered from the cache. */
static uint64_t own_ns(const struct lm_io *io) {
    return lm_spsc_depth(&io->own) > 0 || lm_answers_wait(io) ? 0 : NEVER;
}

static uint64_t connections_ns(const struct lm_io *io) {
    if (io->sweep_at) return 0;
    return io->connections_open ? LM_SWEEP_PERIOD_MS * 1000000ull : NEVER;
}

static uint64_t slots_ns(const struct lm_io *io) {
    return io->arena.acquired_count ? LM_IDLE_TICK_MS * 1000000ull : NEVER;
}

static uint64_t accept_ns(const struct lm_io *io) {
    return io->accept_retry_ns ? LM_IDLE_TICK_MS * 1000000ull : NEVER;
}

static uint64_t waiting_ns(const struct lm_io *io) {
    return io->waiters.released && io->lists[LM_LIST_WAITING].count ? 0 : NEVER;
}

static uint64_t parking_ns(const struct lm_io *io) {
    return lm_parking_is_due(io) ? LM_STUCK_TICK_NS : NEVER;
}

static uint64_t memory_ns(const struct lm_io *io) {
    return io->regions_unused || io->spills ? 0 : NEVER;
}

static uint64_t drain_ns(const struct lm_io *io) {
    return io->draining ? TICK_NS : NEVER;
}

/* ---- what is done ---- */

static void evict(struct lm_io *io) {
    if (io->arena.acquired_count || io->lists[LM_LIST_WAITING_PART].count) lm_eviction_run(io);
}

static void forget_places(struct lm_io *io) {
    if (!io->lists[LM_LIST_WAITING].count) lm_places_forget(&io->shared->places, io->index);
}

static void unmap(struct lm_io *io) {
    if (io->regions_unused) lm_region_unmap(io);
    if (io->spills) lm_spill_unmap(&io->shared->spills, &io->spills);
}

static void answer_errands(struct lm_io *io) {
    if (io->errands_out) lm_http_errands_answer(io);
}

/* In the order in which they are done. */
static const struct duty {
    enum lm_connection_list list; /* whose connections it is for; LM_LIST_NONE: for none */
    uint64_t list_ns;             /* while there is one */
    uint64_t (*sleep_ns)(const struct lm_io *io);
    void (*run)(struct lm_io *io); /* NULL: it is done elsewhere in the turn, or by another duty */
} duties[] = {
    {.sleep_ns = returns_ns},
    {.sleep_ns = refused_ns},
    {.sleep_ns = own_ns},
    {.sleep_ns = accept_ns},
    {.run = lm_accept_take_assigned}, /* the accepting thread wakes this one */
    {.run = lm_tls_take_greeted},     /* so does that of the handshakes */
    {.run = lm_watchdog_run},
    {.sleep_ns = connections_ns, .run = lm_timers_expire},
    {.list = LM_LIST_LINGERING, .list_ns = TICK_NS},
    {.sleep_ns = slots_ns, .run = evict},
    {.list = LM_LIST_WAITING_PART, .list_ns = TICK_NS},
    {.list = LM_LIST_WAITING,
     .list_ns = TICK_NS,
     .sleep_ns = waiting_ns,
     .run = lm_slot_wait_retry},
    {.run = forget_places},
    {.list = LM_LIST_RESUMING, .list_ns = 0, .run = lm_receive_resume},
    {.list = LM_LIST_STARVED, .list_ns = TICK_NS, .run = lm_receive_retry_starved},
    {.list = LM_LIST_UNPARKING, .list_ns = TICK_NS, .run = lm_receive_retry_unparking},
    {.sleep_ns = parking_ns},
    {.sleep_ns = memory_ns, .run = unmap},
    {.sleep_ns = drain_ns, .run = drain},
    {.sleep_ns = lm_grpc_watch_ns, .run = lm_grpc_look_at_watched},
    {.sleep_ns = lm_upstream_due_ns, .run = lm_upstream_due},
    {.run = answer_errands}, /* the control thread wakes this one */
    {.list = LM_LIST_ASKING, .list_ns = TICK_NS, .run = lm_http_demand_look},
};
enum { DUTIES = sizeof duties / sizeof duties[0] };

void lm_due_run(struct lm_io *io) {
    for (uint32_t d = 0; d < DUTIES; d++) {
        const struct duty *duty = &duties[d];
        bool is_due = duty->list == LM_LIST_NONE || io->lists[duty->list].count > 0;
        if (duty->run && is_due) duty->run(io);
    }
}

uint64_t lm_due_sleep_ns(const struct lm_io *io) {
    uint64_t least = NEVER;
    for (uint32_t d = 0; d < DUTIES && least > 0; d++) {
        const struct duty *duty = &duties[d];
        uint64_t ns = duty->sleep_ns ? duty->sleep_ns(io) : NEVER;
        if (ns < least) least = ns;
        if (duty->list != LM_LIST_NONE && io->lists[duty->list].count > 0 && duty->list_ns < least)
            least = duty->list_ns;
    }
    return least;
}
