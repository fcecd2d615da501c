/* gate.c: see gate.h. */
#include "flow/gate.h"

#include <stdio.h>

#include "base/clock.h"
#include "flow/estimate.h"
#include "models/runner.h"

static bool take_token(const struct lm_io *io, struct lm_token_bucket *bucket, const char *whose,
                       struct lm_refusal *refusal) {
    if (lm_token_bucket_acquire(bucket, 1, io->now_ns)) return true;
    uint64_t wait_ns = lm_token_bucket_wait_ns(bucket, 1, io->now_ns);
    return lm_refuse(refusal, LM_STATUS_RATE_LIMITED, wait_ns,
                     "more requests than the rate of %s allows; try again in %llu ms", whose,
                     (unsigned long long)(wait_ns / 1000000 + 1));
}

uint32_t lm_gate_key(const struct lm_io *io, uint32_t key, uint64_t owner, uint64_t then_ns) {
    const struct lm_keys *keys = &io->access->keys;
    if (keys->count == 0) return LM_NO_KEY;
    if (key == LM_NO_KEY || then_ns > io->access_since_ns) return key;
    for (uint32_t k = 0; k < keys->count; k++) {
        if (lm_keys_owner(keys, k) == owner) return k;
    }
    return LM_KEY_GONE;
}

uint32_t lm_gate_key_of(const struct lm_io *io, const struct lm_request *request) {
    return lm_gate_key(io, request->key, request->owner, request->started_ns);
}

bool lm_gate_allows(const struct lm_io *io, uint32_t key, const struct lm_model *model) {
    const struct lm_keys *keys = &io->access->keys;
    return key == LM_NO_KEY || (key < keys->count && lm_keys_allow_model(keys, key, model->index));
}

/* Its texts cost what they turn out to have: a key that owes nothing may ask. */
static bool has_tokens(const struct lm_io *io, const struct lm_model *model, uint32_t key,
                       struct lm_refusal *refusal) {
    if (!model->text || key >= io->access->keys.count) return true;
    uint64_t wait_ns =
        lm_token_bucket_wait_ns(lm_keys_token_bucket(&io->access->keys, key), 1, io->now_ns);
    return !wait_ns || lm_refuse(refusal, LM_STATUS_RATE_LIMITED, wait_ns,
                                 "more tokens of texts than the token_rate of this key allows; try "
                                 "again in %llu ms",
                                 (unsigned long long)(wait_ns / 1000000 + 1));
}

/* The budgets of a key and of a model. */
static struct lm_budget_tally owners_of(const struct lm_io *io, const struct lm_model *model,
                                        uint32_t key) {
    const lm_atomic_u32 *of_model = &io->shared->budgets.of_model[model->index];
    const bool has_key = key < io->access->keys.count;
    return (struct lm_budget_tally){
        .of = {(uint16_t)(has_key ? lm_keys_budget(&io->access->keys, key) : 0),
               (uint16_t)lm_load_relaxed_u32(of_model)}}; /* relaxed: as that of a key */
}

static bool refuse_over_budget(const struct lm_budget_shortage *why, struct lm_refusal *refusal) {
    static const char *const units[LUMEN_BUDGET_LIMITS] = {
        "requests per minute", "requests per day", "tokens per minute", "tokens per day"};
    char whose[LM_NAME_BYTES_MAX + 16];
    if (why->kind == LUMEN_BUDGET_OF_KEY)
        snprintf(whose, sizeof whose, "this key");
    else
        snprintf(whose, sizeof whose, "model '%s'", why->owner);
    return lm_refuse(refusal, LM_STATUS_RATE_LIMITED, why->wait_s * 1000000000ull,
                     "the budget of %s is %llu %s: %llu are left, and this request may need %llu%s",
                     whose, (unsigned long long)why->limit, units[why->limit_at],
                     (unsigned long long)why->left, (unsigned long long)why->wanted,
                     why->wait_s ? "" : ", which it never has");
}

static bool take_request(const struct lm_io *io, const struct lm_model *model, uint32_t key,
                         struct lm_refusal *refusal) {
    struct lm_budget_tally tally = owners_of(io, model, key);
    struct lm_budget_shortage why;
    return (!tally.of[0] && !tally.of[1]) ||
           lm_budgets_take(&io->shared->budgets, &tally, 1, 0, lm_unix_s(), &why) ||
           refuse_over_budget(&why, refusal);
}

bool lm_gate_reserve(struct lm_io *io, struct lm_request *request, uint64_t tokens,
                     struct lm_refusal *refusal) {
    struct lm_budget_shortage why;
    request->tally = owners_of(io, request->model, lm_gate_key_of(io, request));
    if (!request->tally.of[0] && !request->tally.of[1]) return true;
    if (lm_budgets_take(&io->shared->budgets, &request->tally, 0, tokens, lm_unix_s(), &why))
        return true;
    request->tally = (struct lm_budget_tally){0};
    return refuse_over_budget(&why, refusal);
}

void lm_gate_charge(struct lm_io *io, const struct lm_request *request) {
    const struct lm_keys *keys = &io->access->keys;
    const uint32_t key = lm_gate_key_of(io, request);
    if (key >= keys->count) return;
    lm_token_bucket_charge(lm_keys_token_bucket(keys, key), request->tokens, io->now_ns);
}

static bool take_models_token(struct lm_io *io, const struct lm_model *model,
                              struct lm_refusal *refusal) {
    struct lm_token_bucket *bucket = lm_access_bucket(io->access, model->index);
    return !bucket || take_token(io, bucket, "this model", refusal);
}

/* One token from each bucket in turn; what an inner one refuses the outer ones have spent. */
static bool within_rates(struct lm_io *io, const struct lm_model *model, uint32_t key,
                         struct lm_refusal *refusal) {
    struct lm_access *access = io->access;
    struct lm_token_bucket *of_key =
        key < access->keys.count ? lm_keys_bucket(&access->keys, key) : NULL;
    if (of_key && !take_token(io, of_key, "this key", refusal)) return false;
    if (model && !take_models_token(io, model, refusal)) return false;
    return take_token(io, &access->bucket, "this server", refusal);
}

static bool is_full(const struct lm_io *io) {
    const struct lm_places *places = &io->shared->places;
    return places->max && lm_places_left(places) <= io->lists[LM_LIST_WAITING].count;
}

static bool is_queue_full(const struct lm_io *io, const struct lm_model *model) {
    /* relaxed: a count, guards nothing */
    return model->max_queued &&
           lm_load_relaxed_u64(&io->shared->queued[model->index]) >= model->max_queued;
}

static bool is_up(const struct lm_model *model, struct lm_refusal *refusal) {
    char text[LM_TEXT_BYTES_MAX];
    const char *why = lm_model_why_down(model, text, sizeof text);
    return !why || lm_refuse(refusal, LM_STATUS_OVERLOADED, 0, "%s", why);
}

static bool has_room(const struct lm_io *io, const struct lm_model *model,
                     struct lm_refusal *refusal) {
    return !is_queue_full(io, model) ||
           lm_refuse(refusal, LM_STATUS_OVERLOADED, 0,
                     "Exceeds maximum queue size: %u requests of model '%s' wait for a worker "
                     "already (max_queued)",
                     model->max_queued, model->name);
}

bool lm_gate_enter_model(struct lm_io *io, const struct lm_model *model, uint32_t key,
                         struct lm_refusal *refusal) {
    return is_up(model, refusal) && has_tokens(io, model, key, refusal) &&
           take_models_token(io, model, refusal) && has_room(io, model, refusal) &&
           take_request(io, model, key, refusal);
}

bool lm_gate_enter(struct lm_io *io, const struct lm_model *model, uint32_t key,
                   struct lm_refusal *refusal) {
    const struct lm_shared *shared = io->shared;
    if (model && !lm_gate_allows(io, key, model)) {
        return lm_refuse(refusal, LM_STATUS_UNAUTHORISED, 0, "this key may not use model '%s'",
                         model->name);
    }
    if (model && !(is_up(model, refusal) && has_tokens(io, model, key, refusal))) return false;
    if (!within_rates(io, model, key, refusal)) return false;
    if (model && !has_room(io, model, refusal)) return false;
    if (shared->config.overload == LUMEN_OVERLOAD_REFUSE && is_full(io)) {
        io->turned_away = io->refused_full = true;
        return lm_refuse(refusal, LM_STATUS_OVERLOADED, 0,
                         "the server is full: %u requests are in flight (server.max_in_flight)",
                         lm_places_taken(&shared->places) + io->lists[LM_LIST_WAITING].count);
    }
    return !model || take_request(io, model, key, refusal);
}

bool lm_gate_in_time(struct lm_io *io, const struct lm_demand *demand, uint64_t deadline_ns,
                     struct lm_refusal *refusal) {
    if (deadline_ns == UINT64_MAX) return true;
    uint64_t cost_ns = lm_estimate_run_ns(io, demand);
    uint64_t wait_ns = lm_estimate_wait_ns(io);
    /* A Run may take longer than the usual one, and so may those before it. */
    uint64_t begin_ns = io->now_ns + wait_ns + wait_ns / 16;
    if (begin_ns + cost_ns + cost_ns / 4 <= deadline_ns) return true;
    if (begin_ns < deadline_ns && lm_estimate_wants_probe(io, demand)) return true;
    io->turned_away = true;
    return lm_refuse(refusal, LM_STATUS_DEADLINE, wait_ns,
                     "the answer would come in about %llu us, after the deadline",
                     (unsigned long long)((wait_ns + cost_ns) / 1000));
}
