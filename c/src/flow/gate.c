/* gate.c: whether a request may enter: rates, how many are in flight, and whether its deadline can
 * still be met. One door for every dialect. I/O thread only, but for the token buckets, which all
 * I/O threads share.
 *
 * How long a request will wait is estimated from what is in flight: each admitted request is
 * charged with what its model's requests took of a worker lately, and the sum is shared out over
 * the workers. Where more is in flight than the workers can run at once, the pace at which requests
 * leave is measured too, and the longer of the two estimates counts: a worker that does not get its
 * core is slower than its Runs. The estimates are the I/O thread's own, so they cost no atomics;
 * with several I/O threads each takes the others to be as busy as itself.
 *
 * An estimate that refuses requests also prevents the Runs that would correct it. So it begins with
 * what the worker's warm-up took, one Run raises it by less than a half, however long it took, and
 * from time to time one request that only its own model's estimate stands against is run as a
 * probe: if it takes less, that is the new estimate. Probes come one at a time, four times the
 * estimate apart, so that those of a model that is as slow as estimated take at most a fifth of one
 * worker; and at least every LM_PROBE_MS_MAX, so that no estimate keeps requests out for longer.
 * Only a request whose body is here becomes a probe, and one that was not run costs no pause: a
 * client that sends slowly, or leaves, cannot use them up.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "flow/reload.h"
#include "work/worker.h"

enum {
    COST_SHIFT = 4,       /* a new measurement counts a sixteenth, */
    COST_SHIFT_YOUNG = 1, /* one of the first a half, */
    COST_YOUNG = 8,
    COST_JUMP = 8,    /* and as at most so many times the estimate, */
    COST_STEP = 1000, /* and this many ns */
    PROBE_PAUSE = 4,  /* estimates between two probes */
    PACE_SHIFT = 3,
    PACE_REQUESTS = 16, /* a pace is measured over so many, */
    PACE_NS = 10000000  /* or over so long */
};

/* ---- set-up: the control thread ---- */

int lm_gate_open(struct lm_shared *shared, const lumen_config *config) {
    shared->overload = config->overload;
    shared->header_timeout_ns = config->header_timeout_ms * 1000000ull;
    shared->reply_timeout_ns = config->reply_timeout_ms * 1000000ull;
    shared->idle_timeout_ns = config->idle_timeout_ms * 1000000ull;
    shared->hang_ns = config->hang_ms * 1000000ull;
    shared->body_bytes_per_s = config->body_bytes_per_s;
    shared->places.max = config->max_in_flight;
    shared->connections_max = config->max_connections;
    struct lm_access *access;
    int code = lm_address_table_open(&shared->addresses, config->connections_per_address,
                                     config->max_connections);
    if (code) return code;
    code = lm_access_open(&access, config, NULL, lm_now_ns());
    lm_store_relaxed_u64(&shared->access, (uintptr_t)access); /* relaxed: no thread runs yet */
    return code;
}

void lm_gate_close(struct lm_shared *shared) {
    lm_reload_close(shared);
    lm_address_table_close(&shared->addresses);
}

int lm_gate_add_model(struct lm_shared *shared, uint32_t model, const lumen_model_config *config) {
    return lm_access_set_model(lm_reload_in_force(shared), model, config, NULL, lm_now_ns());
}

/* ---- counting ---- */

static bool refuse(struct lm_refusal *refusal, enum lm_status status, uint64_t retry_ns,
                   const char *format, ...) __attribute__((format(printf, 4, 5)));

static bool refuse(struct lm_refusal *refusal, enum lm_status status, uint64_t retry_ns,
                   const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(refusal->why, sizeof refusal->why, format, arguments);
    va_end(arguments);
    refusal->status = status;
    uint64_t whole_s = (retry_ns + 999999999) / 1000000000;
    refusal->retry_after_s = whole_s < 1 ? 1 : whole_s > 3600 ? 3600 : (uint32_t)whole_s;
    return false;
}

/* Each refusal has one reason. */
static lm_atomic_u64 *reason_of(struct lm_io_counters *counters, enum lm_status status) {
    switch (status) {
    case LM_STATUS_UNKNOWN_MODEL: return &counters->requests_unknown_model;
    case LM_STATUS_TOO_LARGE: return &counters->requests_too_large;
    case LM_STATUS_OVERLOADED: return &counters->requests_overloaded;
    case LM_STATUS_DEADLINE: return &counters->requests_late;
    case LM_STATUS_UNAUTHORISED: return &counters->requests_unauthorised;
    case LM_STATUS_RATE_LIMITED: return &counters->requests_limited;
    case LM_STATUS_SHUTTING_DOWN: return &counters->requests_draining;
    case LM_STATUS_OK:                                       /* no refusal */
    case LM_STATUS_INFERENCE_FAILED: LM_DEBUG_ASSERT(false); /* fallthrough */
    case LM_STATUS_BAD_REQUEST: break;
    }
    return &counters->requests_bad;
}

void lm_gate_count_refusal(struct lm_io *io, enum lm_status status, uint32_t model) {
    struct lm_io_counters *counters = &io->stats->io;
    bool is_error = status == LM_STATUS_BAD_REQUEST || status == LM_STATUS_UNKNOWN_MODEL ||
                    status == LM_STATUS_TOO_LARGE || status == LM_STATUS_UNAUTHORISED;
    lm_add_single_writer_u64(is_error ? &counters->requests_error : &counters->requests_refused, 1);
    lm_add_single_writer_u64(reason_of(counters, status), 1);
    if (model >= io->shared->model_count || status == LM_STATUS_UNAUTHORISED) return;
    lm_add_single_writer_u64(
        is_error ? &counters->model_bad[model] : &counters->model_refused[model], 1);
}

/* ---- deciding ---- */

/* One token from each bucket in turn; what an inner one refuses the outer ones have spent. */
static bool within_rates(struct lm_io *io, const struct lm_model *model, uint32_t key,
                         struct lm_refusal *refusal) {
    struct lm_access *access = io->access;
    struct lm_token_bucket *buckets[3] = {key == LM_NO_KEY ? NULL
                                                           : lm_keys_bucket(&access->keys, key),
                                          &access->model_buckets[model->index], &access->bucket};
    static const char *const whose[3] = {"this key", "this model", "this server"};
    for (int b = 0; b < 3; b++) {
        if (!buckets[b] || lm_token_bucket_acquire(buckets[b], 1, io->now_ns)) continue;
        uint64_t wait_ns = lm_token_bucket_wait_ns(buckets[b], 1, io->now_ns);
        return refuse(refusal, LM_STATUS_RATE_LIMITED, wait_ns,
                      "more requests than the rate of %s allows; try again in %llu ms", whose[b],
                      (unsigned long long)(wait_ns / 1000000 + 1));
    }
    return true;
}

static bool is_full(const struct lm_io *io) {
    const struct lm_places *places = &io->shared->places;
    return places->max && lm_places_left(places) <= io->lists[LM_LIST_WAITING].count;
}

bool lm_gate_enter(struct lm_io *io, const struct lm_model *model, uint32_t key,
                   struct lm_refusal *refusal) {
    const struct lm_shared *shared = io->shared;
    if (io->draining)
        return refuse(refusal, LM_STATUS_SHUTTING_DOWN, 0, "the server is shutting down");
    if (key != LM_NO_KEY && !lm_keys_allow_model(&io->access->keys, key, model->index)) {
        return refuse(refusal, LM_STATUS_UNAUTHORISED, 0, "this key may not use model '%s'",
                      model->name);
    }
    if (!within_rates(io, model, key, refusal)) return false;
    if (shared->overload == LUMEN_OVERLOAD_REFUSE && is_full(io)) {
        io->turned_away = io->refused_full = true;
        return refuse(refusal, LM_STATUS_OVERLOADED, 0,
                      "the server is full: %u requests are in flight (server.max_in_flight)",
                      lm_places_taken(&shared->places) + io->lists[LM_LIST_WAITING].count);
    }
    return true;
}

/* Enough is in flight for the workers to be busy all the time. */
static bool is_backlogged(const struct lm_io *io) {
    return (io->in_flight - io->suspended) * io->shared->io_count >= 2 * io->shared->worker_count;
}

uint64_t lm_gate_wait_ns(const struct lm_io *io) {
    const struct lm_shared *shared = io->shared;
    /* Where there are more workers than requests, one of them is free. */
    if ((io->in_flight - io->suspended) * shared->io_count < shared->worker_count) return 0;
    uint64_t wait_ns = io->work_ns * shared->io_count / shared->worker_count;
    uint64_t paced_ns =
        is_backlogged(io) ? (io->in_flight - io->suspended) * io->pace.interval_ns : 0;
    return paced_ns > wait_ns ? paced_ns : wait_ns;
}

/* One request has left. Measures how often one does while the workers have enough to do. */
static void keep_pace(struct lm_io *io) {
    struct lm_pace *pace = &io->pace;
    if (!is_backlogged(io)) {
        pace->since_ns = 0;
        return;
    }
    if (pace->since_ns == 0) {
        *pace = (struct lm_pace){.since_ns = io->now_ns, .interval_ns = pace->interval_ns};
        return;
    }
    pace->left++;
    uint64_t took_ns = io->now_ns - pace->since_ns;
    if (took_ns == 0 || (pace->left < PACE_REQUESTS && took_ns < PACE_NS)) return;
    uint64_t sample_ns = took_ns / pace->left;
    pace->interval_ns =
        pace->interval_ns == 0
            ? sample_ns
            : pace->interval_ns - (pace->interval_ns >> PACE_SHIFT) + (sample_ns >> PACE_SHIFT);
    pace->since_ns = io->now_ns;
    pace->left = 0;
}

static bool probe_is_due(const struct lm_io *io, const struct lm_cost *cost) {
    return !cost->probing && io->now_ns >= cost->next_probe_ns;
}

bool lm_gate_in_time(struct lm_io *io, const struct lm_model *model, uint32_t rows,
                     uint64_t deadline_ns, struct lm_refusal *refusal) {
    if (deadline_ns == UINT64_MAX) return true;
    const struct lm_cost *cost = &io->costs[model->index];
    uint64_t cost_ns = cost->row_ns * rows;
    uint64_t wait_ns = lm_gate_wait_ns(io);
    /* A Run may take longer than the usual one, and so may those before it. */
    uint64_t begin_ns = io->now_ns + wait_ns + wait_ns / 16;
    if (begin_ns + cost_ns + cost_ns / 4 <= deadline_ns) return true;
    if (begin_ns < deadline_ns && probe_is_due(io, cost)) return true;
    io->turned_away = true;
    return refuse(refusal, LM_STATUS_DEADLINE, wait_ns,
                  "the answer would come in about %llu us, after the deadline",
                  (unsigned long long)((wait_ns + cost_ns) / 1000));
}

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
    uint32_t waiting = lm_places_give(&io->shared->places) & ~(1u << io->index);
    /* A hint: they look again every LM_TICK_MS. The next one in turn, so that none is forgotten. */
    for (uint32_t n = 1; waiting && n < io->shared->io_count; n++) {
        uint32_t next = (io->index + n) % io->shared->io_count;
        if (!(waiting & 1u << next)) continue;
        lm_ring_wake(io->shared->ios[next].ring);
        return;
    }
}

struct lm_slot *lm_gate_slot(struct lm_io *io, const struct lm_connection *connection,
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

void lm_gate_slot_back(struct lm_io *io, struct lm_slot *slot) {
    lm_arena_release(&io->arena, slot);
    io->waiters.released = true;
    give_place(io);
}

void lm_gate_wait(struct lm_io *io, struct lm_connection *connection) {
    struct lm_waiters *waiters = &io->waiters;
    if (io->lists[LM_LIST_WAITING].count == 0) {
        waiters->due_ns = UINT64_MAX;
        waiters->least_bytes = SIZE_MAX;
        waiters->released = waiters->no_place = false;
    }
    if (connection->timer_ns < waiters->due_ns) waiters->due_ns = connection->timer_ns;
    lm_connection_move(io, connection, LM_LIST_WAITING);
}

void lm_gate_begin(struct lm_io *io) {
    const struct lm_worker *worker =
        io->inline_worker ? io->inline_worker : &io->shared->workers[0];
    for (uint32_t m = 0; m < io->shared->model_count; m++) io->costs[m].row_ns = worker->warm_ns[m];
}

void lm_gate_charge(struct lm_io *io, struct lm_request *request) {
    io->in_flight++;
    request->cost_ns = io->costs[request->model->index].row_ns * request->rows;
    request->suspended = request->probe = false;
    request->placed = io->shared->places.max > 0;
    request->worked_ns = 0;
    io->work_ns += request->cost_ns;
}

void lm_gate_suspend(struct lm_io *io, struct lm_request *request) {
    if (request->suspended) return;
    request->suspended = true;
    io->suspended++;
    io->work_ns -= request->cost_ns;
    request->cost_ns = 0;
}

void lm_gate_whole(struct lm_io *io, struct lm_request *request) {
    struct lm_cost *cost = &io->costs[request->model->index];
    if (request->suspended) {
        request->suspended = false;
        io->suspended--;
        request->cost_ns = cost->row_ns * request->rows;
        io->work_ns += request->cost_ns;
    }
    /* A body of JSON may name a deadline that only the worker will read. */
    bool has_text = request->dialect == LM_DIALECT_HTTP && request->http.text;
    bool is_late = request->deadline_ns < io->now_ns + request->cost_ns + request->cost_ns / 4;
    if (!(is_late || has_text) || !probe_is_due(io, cost)) return;
    request->probe = cost->probing = true;
    io->work_ns -= request->cost_ns;
    request->cost_ns = 0; /* so that its worker runs it */
}

static void learn_cost(struct lm_io *io, const struct lm_request *request) {
    struct lm_cost *cost = &io->costs[request->model->index];
    if (request->probe) cost->probing = false;
    if (request->batch_rows == 0) return; /* no Run */
    uint64_t took_ns = request->worked_ns / request->rows;
    uint64_t most_ns = COST_JUMP * cost->row_ns + COST_STEP;
    uint32_t shift = cost->measured < COST_YOUNG ? COST_SHIFT_YOUNG : COST_SHIFT;
    if (request->probe) {
        uint64_t pause_ns = PROBE_PAUSE * cost->row_ns * request->rows;
        if (pause_ns > LM_PROBE_MS_MAX * 1000000ull) pause_ns = LM_PROBE_MS_MAX * 1000000ull;
        cost->next_probe_ns = io->now_ns + pause_ns;
    }
    cost->measured += cost->measured < COST_YOUNG;
    if (cost->row_ns == 0 || (request->probe && took_ns < cost->row_ns)) {
        cost->row_ns = took_ns;
        return;
    }
    if (took_ns > most_ns) took_ns = most_ns;
    cost->row_ns += (took_ns >> shift) - (cost->row_ns >> shift);
}

void lm_gate_answered(struct lm_request *request) {
    if (!request->placed) return;
    request->placed = false;
    give_place(request->io);
}

void lm_gate_discharge(struct lm_io *io, struct lm_request *request) {
    keep_pace(io);
    io->in_flight--;
    lm_gate_answered(request);
    io->suspended -= request->suspended;
    io->work_ns -= request->cost_ns;
    learn_cost(io, request);
}
