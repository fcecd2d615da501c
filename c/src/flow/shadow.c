/* shadow.c: see shadow.h. */
#include "flow/shadow.h"

#include "base/status.h"
#include "flow/carrier.h"
#include "flow/io_model.h"
#include "flow/slots.h"

static struct lm_io_model_counters *counters(const struct lm_io *io, const struct lm_model *model) {
    return &io->stats->models[model->index].io;
}

static bool is_open(const struct lm_shared *shared) {
    /* V1: acquire: the queue; pairs with V2 in server/threads.c */
    return lm_load_acquire_u32(&shared->shadows.is_open);
}

void lm_shadow_choose(struct lm_io *io, struct lm_request *request) {
    const struct lm_model *model = request->model;
    const struct lm_traffic_rule *rule = lm_traffic_find(&io->access->traffic, model->base);
    if (!rule || !rule->shadow || rule->shadow == model->version || !is_open(io->shared)) return;
    if (!lm_traffic_is_of(rule->shadow_percent, io->shadow_turn++)) return;
    const struct lm_model *shadow = lm_model_set_version(request->models, rule->base, rule->shadow);
    if (!shadow) return;
    /* Memory of its client, who may write there once it has its answer. */
    if (lm_carrier_of(request)->has_places || lm_carrier_of(request)->is_shared) {
        lm_add_single_writer_u64(&counters(io, shadow)->model_shadow_unfit, 1);
        return;
    }
    request->shadow.model = shadow;
    request->keeping.wanted = true;
}

/* Whether requests of its size find slots without its own: in its class, or in one above. */
static bool has_room(const struct lm_io *io, const struct lm_request *request) {
    if (io->draining || io->shadows_out >= LM_SHADOWS_MAX) return false;
    for (uint32_t c = request->slot->class_index; c < io->arena.class_count; c++) {
        const struct lm_arena_class *class = &io->arena.classes[c];
        const uint32_t kept = class->reserve_count + class->slot_count / LM_SHADOW_SHARE;
        if (!class->closed && class->free_count > kept) return true;
    }
    return false;
}

bool lm_shadow_take(struct lm_io *io, struct lm_request *request) {
    if (!request->model || !request->shadow.model || !request->keeping.whole ||
        request->status != LM_STATUS_OK)
        return false;
    struct lm_shadow_jobs *jobs = &io->shared->shadows;
    if (!has_room(io, request) ||
        !lm_mpmc_push(&jobs->queue, lm_job_pack(io->index, request->slot->index))) {
        lm_add_single_writer_u64(&counters(io, request->shadow.model)->model_shadow_skipped, 1);
        return false;
    }
    io->shadows_out++;
    (void)lm_waitset_wake_one(&jobs->waitset);
    return true;
}

static void count(const struct lm_io *io, const struct lm_request *request) {
    const struct lm_shadow_run *shadow = &request->shadow;
    struct lm_io_model_counters *of = counters(io, shadow->model);
    struct lm_io_model *side = shadow->model->sides[io->index];
    lm_add_single_writer_u64(&of->model_shadow_cpu_ns, shadow->cpu_ns);
    lm_atomic_u64 *const ends[] = {&of->model_shadow_ok, &of->model_shadow_failed,
                                   &of->model_shadow_unfit, &of->model_shadow_skipped};
    lm_add_single_writer_u64(ends[shadow->end], 1);
    if (shadow->end != LM_SHADOW_DONE) return;
    lm_add_single_writer_u64(&of->model_shadow_rows, request->sizes.rows);
    lm_add_single_writer_u64(&of->model_shadow_apart, shadow->rows_apart);
    if (shadow->difference > side->shadow_difference) side->shadow_difference = shadow->difference;
    const double billionths = side->shadow_difference * 1e9;
    /* relaxed: a gauge */
    lm_store_relaxed_u64(&of->model_shadow_difference,
                         billionths < 1e18 ? (uint64_t)billionths : (uint64_t)1e18);
}

void lm_shadow_take_back(struct lm_io *io) {
    uint32_t slot;
    while (io->shadows_out && lm_spsc_pop(&io->shared->shadows.returns[io->index], &slot)) {
        io->shadows_out--;
        count(io, &io->requests[slot]);
        lm_slots_free(io, &io->requests[slot]);
    }
}
