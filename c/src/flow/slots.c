/* slots.c: see slots.h. */
#include "flow/slots.h"

#include "base/clock.h"
#include "flow/estimate.h"
#include "flow/region.h"
#include "flow/request_lists.h"

/* Slots are given in the order in which requests came to wait for them: what was released since
 * the last round, or is not to be had, is not for a request that comes now. */
static bool is_overtaking(const struct lm_io *io, bool waits) {
    const struct lm_waiters *waiters = &io->waiters;
    bool others_wait = io->lists[LM_LIST_WAITING].count > waits;
    return others_wait && !waiters->retrying && (waiters->released || waiters->no_place);
}

static bool take_place(struct lm_io *io, bool waits) {
    struct lm_places *places = &io->shared->places;
    struct lm_waiters *waiters = &io->waiters;
    struct lm_place_call call = {.thread = io->index,
                                 .reserve = waits ? 0 : lm_places_reserve(places),
                                 .waits = waits,
                                 .may_pass =
                                     waits && io->now_ns >= waiters->took_ns + LM_PLACE_TURN_NS};
    if (!lm_places_take(places, &call)) {
        waiters->no_place = waiters->no_place || waits;
        return false;
    }
    waiters->took_ns = io->now_ns;
    return true;
}

/* Any thread. */
static void give_place(struct lm_io *io) {
    const struct lm_shared *shared = io->shared;
    uint32_t waiting = lm_places_give(&io->shared->places) & ~(1u << io->index);
    /* A hint: they look again every LM_TICK_MS. The next one in turn, so that none is forgotten. */
    for (uint32_t n = 1; waiting && n < shared->io_count; n++) {
        uint32_t next = (io->index + n) % shared->io_count;
        if (!(waiting & 1u << next)) continue;
        lm_ring_wake(shared->ios[next].ring);
        return;
    }
}

struct lm_slot *lm_slots_take(struct lm_io *io, const struct lm_connection *connection,
                              size_t bytes) {
    struct lm_waiters *waiters = &io->waiters;
    bool is_here = connection->list == LM_LIST_WAITING;
    if (is_here && bytes < waiters->least_bytes) waiters->least_bytes = bytes;
    if (is_overtaking(io, is_here) || !take_place(io, is_here)) return NULL;
    struct lm_slot *slot =
        is_here ? lm_arena_acquire(&io->arena, bytes) : lm_arena_acquire_spare(&io->arena, bytes);
    if (slot) return slot;
    if (is_here && bytes < waiters->refused_bytes) waiters->refused_bytes = bytes;
    give_place(io);
    return NULL;
}

void lm_slots_put_back(struct lm_io *io, struct lm_slot *slot) {
    lm_arena_release(&io->arena, slot);
    io->waiters.released = true;
    give_place(io);
}

void lm_slots_use_models(struct lm_io *io, struct lm_request *request) {
    request->models = io->models;
    if (request->lists != io->models->lists->number)
        lm_request_lists_give(io->models->lists, io, request);
    lm_add_single_writer_u64(&io->models->used_by[io->index].slots, 1);
}

static void leave_models(struct lm_io *io, const struct lm_request *request) {
    lm_atomic_u64 *slots = &request->models->used_by[io->index].slots;
    uint64_t left = lm_load_relaxed_u64(slots) - 1; /* relaxed: own word */
    /* L1: release, after the last use of the set and its models; pairs with L2 in flow/reload.c */
    lm_store_release_u64(slots, left);
}

void lm_slots_charge(struct lm_io *io, struct lm_request *request) {
    io->in_flight++;
    request->placed = io->shared->places.max > 0;
    lm_slots_use_models(io, request);
    lm_estimate_charge(io, request);
}

void lm_slots_answered(struct lm_request *request) {
    if (!request->placed) return;
    request->placed = false;
    give_place(request->io);
}

void lm_slots_settle(struct lm_request *request, uint64_t tokens) {
    if (!request->tally.of[0] && !request->tally.of[1]) return;
    lm_budgets_settle(&request->io->shared->budgets, &request->tally, tokens, lm_unix_s());
}

void lm_slots_leave_shm(struct lm_request *request) {
    if (!request->holds_shm) return;
    request->holds_shm = false;
    lm_oip_leave_regions(request->io->shared->shm, request->asked);
}

void lm_slots_leave(struct lm_io *io, struct lm_request *request) {
    if (request->model) {            /* otherwise a reply of the I/O thread itself */
        lm_slots_settle(request, 0); /* it came to nothing */
        const bool is_of_workers =
            !request->keeping.is_hit && !lm_model_is_elsewhere(request->model);
        if (is_of_workers) lm_estimate_pace(io);
        io->in_flight--;
        lm_slots_answered(request);
        lm_estimate_discharge(io, request);
        if (request->region) lm_region_release(io, request);
        lm_slots_leave_shm(request);
    }
}

void lm_slots_free(struct lm_io *io, struct lm_request *request) {
    lm_spill_join(&io->spills, &request->spills); /* those of its own replies too */
    leave_models(io, request);
    lm_arena_release(&io->arena, request->slot);
    io->waiters.released = true;
}

void lm_slots_release(struct lm_io *io, struct lm_request *request) {
    lm_slots_leave(io, request);
    lm_slots_free(io, request);
}
