/* width.c: see width.h. docs/adr/0010 has the figures. */
#include "work/width.h"

#include "base/clock.h"
#include "base/topology.h"
#include "models/runner.h"

/* Each node has a session and helpers of its own; NULL: none. */
static const struct lm_wide *wide_of(const struct lm_model *model, const struct lm_node *node) {
    return node->index == 0 ? &model->wide : model->other_wides[node->index - 1];
}

static uint32_t helpers_of(const struct lm_model *model, const struct lm_node *node) {
    const struct lm_wide *wide = wide_of(model, node);
    return wide && lm_wide_is_open(wide) ? wide->width - 1 : 0;
}

/* Chooses so many of the sleepers. Returns their bits; 0: there are too few. */
static uint64_t choose_seats(const struct lm_shared *shared, uint64_t sleepers, uint32_t count,
                             uint32_t *seats) {
    uint64_t chosen = 0;
    for (uint32_t found = 0; found < count; found++, sleepers &= sleepers - 1) {
        if (!sleepers) return 0;
        seats[found] = (uint32_t)__builtin_ctzll(sleepers);
        if (shared->workers[seats[found]].cpu < 0) return 0;
        chosen |= 1ull << seats[found];
    }
    return chosen;
}

static bool is_idle(struct lm_node *node, uint32_t helpers) {
    struct lm_line *line = lm_node_line(node);
    return helpers > 0 && line->workers_sleep && lm_queue_depth(&line->queue) == 0 &&
           (uint32_t)__builtin_popcountll(lm_waitset_sleepers(&node->waitset)) >= helpers;
}

/* Takes the cores of sleeping workers for the model's helpers. Afterwards each worker that wakes
 * sees the Run's owner and finds the helper that sits on its core. */
static bool take_cores(struct lm_worker *worker, const struct lm_model *model,
                       uint64_t *began_ns_out) {
    struct lm_node *node = worker->node;
    struct lm_width *width = &node->width;
    uint32_t count = helpers_of(model, node), seats[LM_WIDTH_MAX - 1];
    const struct lm_shared *shared = worker->shared;
    bool is_thread = worker->index < shared->thread_count;
    if (!is_thread || worker->cpu < 0 || !is_idle(node, count)) return false;
    *began_ns_out = lm_now_ns();
    /* X1: acq_rel: one worker at a time; pairs with X2 */
    if (lm_exchange_acq_rel_u32(&width->taken, 1) != 0) return false;
    uint64_t chosen = choose_seats(shared, lm_waitset_sleepers(&node->waitset), count, seats);
    for (uint32_t h = 0; chosen && h < count; h++) {
        int32_t tid = wide_of(model, node)->helpers[h].tid;
        (void)lm_thread_pin_other(tid, shared->workers[seats[h]].cpu);
        /* relaxed, all: the waitset's word shows them to a worker that wakes after the look below
         */
        lm_store_relaxed_u32(&width->tids[h], (uint32_t)tid);
        lm_store_relaxed_u32(&width->seats[h], seats[h]);
    }
    lm_store_relaxed_u32(&width->helper_count, count);
    lm_store_relaxed_u32(&width->disturbed, 0);
    lm_store_relaxed_u32(&width->owner, worker->index + 1);
    /* A worker that is no longer asleep here may have missed the stores above: then not. */
    uint64_t asleep = lm_waitset_sleepers(&node->waitset);
    if (chosen && (asleep & chosen) == chosen && lm_queue_depth(&worker->line->queue) == 0)
        return true;
    lm_store_relaxed_u32(&width->owner, 0);
    /* X2: release: what this worker did to the seats; pairs with X1 */
    lm_store_release_u32(&width->taken, 0);
    return false;
}

static void give_cores_back(struct lm_width *width, struct lm_request *request) {
    /* relaxed, both: a worker that comes too late moves a helper that sleeps */
    request->disturbed = lm_load_relaxed_u32(&width->disturbed) != 0;
    lm_store_relaxed_u32(&width->owner, 0);
    lm_store_release_u32(&width->taken, 0); /* as X2 */
}

int lm_width_run(struct lm_worker *worker, struct lm_request *request, OrtValue **values) {
    const struct lm_model *model = lm_request_runs(request);
    const bool in_place = lm_request_is_in_place(request);
    const bool is_engine = in_place && lm_runner_of(model)->is_engine;
    struct lm_run run = lm_worker_run(worker, model);
    run.values = values;
    run.inputs = request->layout.inputs;
    run.outputs = request->layout.outputs;
    run.sizes = &request->sizes;
    run.turn = &request->turn;
    run.text = lm_request_text_ask(request);
    run.optionals = lm_request_optionals(request);
    /* The cost of a virtual model is no expert's own: what is long was found at start. */
    bool pays = !model->wide.only_long || request->expert || request->is_long;
    const struct lm_wide *wide =
        lm_runner_of(model)->not_wide ? NULL : wide_of(model, worker->node);
    uint64_t began_ns = 0;
    request->width = 1;
    request->disturbed = false;
    pays = pays && wide && (is_engine ? wide->team != NULL : wide->session != NULL);
    if (!pays || !take_cores(worker, model, &began_ns))
        return lm_model_make_run(model, in_place, &run);
    run.wide = wide;
    request->width = (uint8_t)model->wide.width;
    lm_add_single_writer_u64(&worker->stats->worker.runs_wide, 1);
    int code = lm_model_make_run(model, in_place, &run);
    request->wide_ns = lm_now_ns() - began_ns;
    give_cores_back(&worker->node->width, request);
    return code;
}

void lm_width_reclaim(struct lm_worker *worker) {
    struct lm_width *width = &worker->node->width;
    /* relaxed, all: shown by the waitset's word, see take_cores */
    uint32_t owner = lm_load_relaxed_u32(&width->owner);
    if (owner == 0 || owner == worker->index + 1) return;
    int32_t cpu = worker->shared->workers[owner - 1].cpu;
    uint32_t count = lm_load_relaxed_u32(&width->helper_count);
    for (uint32_t h = 0; h < count && h < LM_WIDTH_MAX - 1; h++) {
        if (lm_load_relaxed_u32(&width->seats[h]) != worker->index) continue;
        (void)lm_thread_pin_other((int32_t)lm_load_relaxed_u32(&width->tids[h]), cpu);
        lm_store_relaxed_u32(&width->disturbed, 1);
    }
}

uint64_t lm_width_cost_ns(struct lm_worker *worker, const struct lm_request *request) {
    const struct lm_model *model = request->model;
    uint32_t helpers = helpers_of(model, worker->node);
    return helpers && request->cost_ns >= LM_WIDE_RUN_NS && is_idle(worker->node, helpers)
               ? lm_wide_ns(&model->wide, request->cost_ns)
               : request->cost_ns;
}
