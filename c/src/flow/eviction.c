/* eviction.c: see eviction.h. */
#include "flow/eviction.h"

#include "flow/estimate.h"
#include "flow/slot_wait.h"
#include "flow/transport.h"

/* How far a connection's client has come, by what the kernel has of it. false: it does not say. */
static bool progress(const struct lm_io *io, const struct lm_connection *connection, bool sending,
                     uint64_t *bytes_out) {
    struct lm_transport_look look;
    if (!lm_look_at_client(io, connection, &look)) return false;
    *bytes_out = sending ? look.acked_bytes : look.received_bytes;
    return true;
}

static bool is_slow(const struct lm_io *io, const struct lm_connection *connection,
                    struct lm_request *request, bool sending) {
    uint64_t bytes = 0;
    if (!progress(io, connection, sending, &bytes)) {
        uint64_t allowed_ms = LM_STALL_MS + request->slot->bytes / LM_STALL_BYTES_PER_MS;
        return io->now_ns > request->held_ns + allowed_ms * 1000000ull;
    }
    if (request->seen_ns == 0 || bytes >= request->seen_bytes + LM_SLOW_WINDOW_BYTES) {
        request->seen_ns = io->now_ns;
        request->seen_bytes = bytes;
        return false;
    }
    return io->now_ns > request->seen_ns + LM_SLOW_WINDOW_MS * 1000000ull;
}

static void cut_off(struct lm_io *io, struct lm_connection *connection) {
    lm_add_single_writer_u64(&io->stats->io.connections_evicted, 1);
    connection->in.cut_short = LM_STATUS_OVERLOADED;
    lm_io_dialect(io, connection)
        ->give_up(io, connection, LM_STATUS_OVERLOADED,
                  "the body came too slowly, and the slot it was received to was needed");
}

/* How many slots each class lacks to its reserve, or all of them to that of max_in_flight; false:
 * nobody is hurt by it. */
static bool find_short(const struct lm_io *io, uint32_t lacks[LM_ARENA_CLASSES_MAX]) {
    const struct lm_list *lists = io->lists;
    bool starved = lists[LM_LIST_STARVED].count || lists[LM_LIST_UNPARKING].count;
    bool found = starved;
    uint32_t places = lm_places_left(&io->shared->places);
    uint32_t reserve = lm_places_reserve(&io->shared->places);
    /* One more than the reserve is due where somebody waits for one that can be spared. */
    uint32_t parts = lists[LM_LIST_WAITING_PART].count > 0;
    bool waits = lists[LM_LIST_WAITING].count || lists[LM_LIST_EXPECTING].count || parts ||
                 lists[LM_LIST_EXPECTING_HELD].count || io->refused_full;
    for (uint32_t c = 0; c < io->arena.class_count; c++) {
        const struct lm_arena_class *class = &io->arena.classes[c];
        uint32_t due = class->reserve_count + (c == 0 ? 0 : parts);
        /* Own replies have no list to wait on. */
        bool is_short = class->free_count < due && (waits || c == 0);
        lacks[c] = starved ? UINT32_MAX : is_short ? due - class->free_count : 0;
        if (waits && places < reserve + parts && lacks[c] < reserve + parts - places)
            lacks[c] = reserve + parts - places;
        found = found || lacks[c] > 0;
    }
    return found;
}

void lm_eviction_run(struct lm_io *io) {
    uint32_t lacks[LM_ARENA_CLASSES_MAX];
    if (io->now_ns < io->next_eviction_ns) return;
    io->next_eviction_ns = io->now_ns + LM_EVICT_PERIOD_MS * 1000000ull;
    lm_slot_wait_bound(io);
    bool is_short = find_short(io, lacks);
    const bool spills_short = lm_spill_is_short(&io->shared->spills);
    io->refused_full = false;
    if (!is_short && !spills_short) return;
    lm_eviction_suspend(io);
    for (uint32_t s = 0; s < io->arena.slot_count; s++) {
        struct lm_request *request = &io->requests[s];
        uint32_t *lack = &lacks[io->arena.slots[s].class_index];
        bool spills = io->arena.slots[s].acquired && spills_short && request->spills;
        if (!io->arena.slots[s].acquired || (*lack == 0 && !spills)) continue;
        struct lm_connection *connection = lm_io_connection(io, request->connection);
        bool sending = connection->sending == s;
        /* relaxed: written by this thread */
        if (connection->fd < 0 || lm_load_relaxed_u32(&connection->gone)) continue;
        if (!sending && (connection->in.receiving != s || connection->ended)) continue;
        if (!is_slow(io, connection, request, sending)) continue;
        if (*lack > 0) (*lack)--;
        cut_off(io, connection);
    }
}

void lm_eviction_suspend(struct lm_io *io) {
    for (uint32_t s = 0; s < io->arena.slot_count; s++) {
        struct lm_request *request = &io->requests[s];
        if (!io->arena.slots[s].acquired || !request->model || request->with_worker) continue;
        if (lm_io_connection(io, request->connection)->in.receiving != s) continue;
        if (io->now_ns > request->held_ns + LM_SLOW_BODY_MS * 1000000ull)
            lm_estimate_suspend(io, request);
    }
}
