/* reload.c: see reload.h. Control thread only. */
#include "flow/reload.h"

uint64_t lm_reload_ask(struct lm_shared *shared) {
    uint64_t asked = lm_load_relaxed_u64(&shared->turns_asked) + 1; /* relaxed: own word */
    /* R3: release, after the table was published; pairs with R1 */
    lm_store_release_u64(&shared->turns_asked, asked);
    for (uint32_t i = 0; i < shared->io_count; i++) {
        if (shared->ios[i].ring) lm_ring_wake(shared->ios[i].ring);
    }
    return asked;
}

bool lm_reload_all_turned(const struct lm_shared *shared, uint64_t asked) {
    for (uint32_t i = 0; i < shared->io_count; i++) {
        /* R6: acquire: its uses of an older table are over; pairs with R5 */
        if (lm_load_acquire_u64(&shared->ios[i].turns_seen) < asked) return false;
    }
    return true;
}

void lm_reload_publish(struct lm_shared *shared, struct lm_access *take_access) {
    struct lm_access *old = lm_reload_in_force(shared);
    take_access->retired = old;
    /* R4: release: the table is whole; pairs with R2 */
    lm_store_release_u64(&shared->access, (uintptr_t)take_access);
    old->retired_at = lm_reload_ask(shared);
}

void lm_reload_publish_models(struct lm_shared *shared, struct lm_model_set *next) {
    struct lm_model_set *before = lm_models_in_force(shared);
    next->retired = before;
    lm_store_release_u64(&shared->models, (uintptr_t)next); /* as G2 in flow/shared.c */
    before->retired_at = lm_reload_ask(shared);
}

bool lm_reload_models_are_left(const struct lm_shared *shared, const struct lm_model_set *set) {
    if (!lm_reload_all_turned(shared, set->retired_at)) return false;
    for (uint32_t i = 0; i < shared->io_count; i++) {
        /* L2: acquire: all uses of the set are over; pairs with L1 in flow/slots.c */
        if (lm_load_acquire_u64(&set->used_by[i].slots) > 0) return false;
    }
    return true;
}

void lm_reload_reap(struct lm_shared *shared) {
    struct lm_access *newer = lm_reload_in_force(shared);
    while (newer->retired) {
        struct lm_access *old = newer->retired;
        if (!lm_reload_all_turned(shared, old->retired_at)) {
            newer = old;
            continue;
        }
        newer->retired = old->retired;
        lm_access_close(old);
    }
}

void lm_reload_close(struct lm_shared *shared) {
    struct lm_access *access = lm_reload_in_force(shared);
    while (access) {
        struct lm_access *before = access->retired;
        lm_access_close(access);
        access = before;
    }
    lm_store_relaxed_u64(&shared->access, 0); /* relaxed: no thread runs */
}
