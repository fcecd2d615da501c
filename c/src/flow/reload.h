/* reload.h: another table of keys, hosts and rates, or another set of models, takes the place of
 * the one in force, and an old one is freed when no I/O thread can see it. The same words say
 * whether the I/O threads still turn.
 *
 * An I/O thread looks once a turn which table is in force (lm_io_look), so a request is judged by
 * one table from its head to its admission, without a lock or a write to memory that is shared. The
 * control thread counts what it asks for; an I/O thread that has seen a number holds no table older
 * than what was in force then. */
#ifndef LM_FLOW_RELOAD_H
#define LM_FLOW_RELOAD_H

#include "flow/state.h"

/* I/O thread: between two turns. What comes with a set of models was there before the set, so that
 * it is found here too. */
static inline void lm_io_look(struct lm_io *io) {
    struct lm_shared *shared = io->shared;
    const struct lm_model_set *models = io->models;
    const struct lm_access *access = io->access;
    /* R1: acquire, before the table is read: pairs with R3 */
    uint64_t asked = lm_load_acquire_u64(&shared->turns_asked);
    /* R2: acquire: what the table holds; pairs with R4 */
    io->access = (struct lm_access *)(uintptr_t)lm_load_acquire_u64(&shared->access);
    if (io->access != access) io->access_since_ns = io->now_ns;
    io->models = lm_models_in_force(shared);
    io->line = lm_node_line(io->node);
    /* relaxed: own word */
    if (io->models != models || asked != lm_load_relaxed_u64(&io->turns_seen)) {
        lm_annexes_look(&io->annexes);
        /* relaxed, both: the turn was asked for after they were written */
        lm_arena_use(&io->arena, lm_load_relaxed_u32(&shared->allocator_type));
        io->by_time = lm_load_relaxed_u32(&shared->by_time) != 0;
    }
    /* R5: release, after the last use of what was in force before; pairs with R6 */
    lm_store_release_u64(&io->turns_seen, asked);
}

/* Control thread: the table in force. */
static inline struct lm_access *lm_reload_in_force(const struct lm_shared *shared) {
    /* relaxed: written by this thread alone */
    return (struct lm_access *)(uintptr_t)lm_load_relaxed_u64(&shared->access);
}
/* Control thread: puts a table in force, takes it over, and wakes the I/O threads. */
void lm_reload_publish(struct lm_shared *shared, struct lm_access *take_access);
/* Control thread: frees the replaced tables that no I/O thread can see any more. */
void lm_reload_reap(struct lm_shared *shared);
/* Control thread: asks every I/O thread for a turn. Returns the number to look for. */
uint64_t lm_reload_ask(struct lm_shared *shared);
/* Control thread: whether every I/O thread has turned since it was asked. */
bool lm_reload_all_turned(const struct lm_shared *shared, uint64_t asked);
/* Control thread: puts a set of models in force in the place of the one there is, and wakes the I/O
 * threads. */
void lm_reload_publish_models(struct lm_shared *shared, struct lm_model_set *next);
/* Control thread: whether nobody uses a set any more that was replaced: no I/O thread begins a turn
 * with it, and every slot that was taken in one is back. */
bool lm_reload_models_are_left(const struct lm_shared *shared, const struct lm_model_set *set);
/* No thread runs: frees all tables. */
void lm_reload_close(struct lm_shared *shared);

#endif
