/* admit.c: see admit.h. */
#include "flow/admit.h"

#include "flow/access_log.h"
#include "flow/slots.h"
#include "flow/tracing.h"

uint64_t lm_admit_deadline_ns(const struct lm_io *io, const struct lm_connection *connection,
                              uint64_t timeout_us) {
    uint64_t came_ns = connection->in.started_ns - io->unseen_ns;
    if (timeout_us) return lm_deadline_after(came_ns, timeout_us);
    uint64_t timeout_ns = io->shared->default_timeout_ns;
    return timeout_ns ? came_ns + timeout_ns : UINT64_MAX;
}

struct lm_request *lm_admit_begin(struct lm_io *io, struct lm_connection *connection,
                                  const struct lm_demand *demand, struct lm_slot *slot) {
    struct lm_request *request = &io->requests[slot->index];
    request->io = io;
    request->slot = slot;
    request->model = demand->model;
    request->encoding = demand->encoding;
    request->is_unread = demand->is_unread;
    request->connection = connection->index;
    request->next_reply = LM_NO_SLOT;
    request->id = 0;
    request->held_ns = io->now_ns;
    request->seen_ns = 0;
    request->started_ns = connection->in.started_ns;
    request->deadline_ns = lm_admit_deadline_ns(io, connection, demand->timeout_us);
    request->sizes = demand->sizes;
    request->pixels = demand->pixels;
    request->payload_bytes = (uint32_t)demand->bytes;
    request->batch_rows = 0;
    request->expert = NULL;
    request->expert_at = 0;
    request->flags = 0;
    request->carrier = LM_CARRIER_SLOT;
    request->part_at = request->part_count = 0;
    request->region = NULL;
    request->keeping.wanted = request->keeping.whole = false;
    request->keeping.for_cache = request->keeping.is_hit = false;
    request->shadow = (struct lm_shadow_run){0};
    request->holds_shm = false;
    request->key = lm_io_dialect(io, connection)->key(io, connection);
    request->owner = lm_keys_owner(&io->access->keys, request->key);
    request->owner_has_part = io->access->keys.count > 1;
    request->tokens = 0;
    request->tally = (struct lm_budget_tally){0};
    request->turn_wanted =
        request->key < io->access->keys.count && lm_keys_is_bulk(&io->access->keys, request->key)
            ? LM_TURN_BOUND
            : LM_TURN_BY_NUMBER;
    request->dialect = connection->dialect;
    request->with_worker = request->last = request->in_pieces = request->stands_in = false;
    lm_store_relaxed_u32(&request->claim, 0); /* relaxed: published with the slot, as is this: */
    lm_store_relaxed_u64(&request->overdue_ns, request->deadline_ns);
    lm_access_log_admit(io, connection, request);
    lm_tracing_begin(io, connection, request);
    lm_slots_charge(io, request);
    request->asked->id_bytes = 0; /* nobody has read it */
    connection->in.receiving = slot->index;
    connection->in.read_state = LM_READ_BODY;
    connection->in.header_used = 0;
    if (lm_connection_waits(connection)) lm_connection_move(io, connection, LM_LIST_NONE);
    return request;
}

void lm_admit_wait(struct lm_io *io, struct lm_connection *connection, uint64_t timeout_us) {
    connection->in.read_state = LM_READ_WAIT;
    connection->timer_ns = lm_admit_deadline_ns(io, connection, timeout_us);
    lm_connection_move(io, connection, LM_LIST_EXPECTING);
}
