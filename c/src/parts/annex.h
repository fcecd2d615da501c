/* annex.h: slots of one more size, which come to an arena while it is used, for models that come
 * while a server runs, and go again.
 *
 * One thread, the maker, finds memory for an annex and frees it; in between the arena's owner has
 * it. Each looks once in a while at what the other has left there: a word says whose it is. The
 * table of slots has had entries for all annexes from the start, so that nothing moves.
 */
#ifndef LM_PARTS_ANNEX_H
#define LM_PARTS_ANNEX_H

#include "base/atomics.h"
#include "parts/arena.h"

/* Slots of one more size. */
struct lm_annex {
    lm_atomic_u32 state;
    bool is_taken;            /* the owner's: they are a class of the arena */
    struct lm_mapping memory; /* the maker's, with the rest; none with LUMEN_ALLOCATOR_STANDARD */
    size_t slot_bytes;
    uint32_t first, count; /* entries of the table */
};

/* All of an arena, which stays where it is. Zeroed but for the arena, it has none. */
struct lm_annexes {
    struct lm_arena *arena;
    struct lm_annex all[LM_ANNEXES_MAX];
};

/* Maker: memory for slots of one more size, which no class and no other annex has; at most
 * arena->annex_slots of
 * them. They are there once the owner has looked. Returns 0, LUMEN_E_NOMEM or
 * LUMEN_E_INVALID with what there is no room for. */
int lm_annex_open(struct lm_annexes *annexes, const lumen_slot_class *class, uint32_t huge_pages);
/* Maker: asks for one back. It goes once its slots are back and the owner has looked. */
void lm_annex_leave(struct lm_annex *annex);
/* Maker: frees those that have gone; false: some were asked for and have not. */
bool lm_annexes_reap(struct lm_annexes *annexes);
/* Maker: whether it is there, and was not asked for. */
bool lm_annex_is_open(const struct lm_annex *annex);
/* Maker: the memory of an entry of the table, as lm_slot's base and bytes, from what it knows of
 * its annex itself: the owner may be writing the entry. No bytes: it is of none that is there. */
struct lm_slot lm_annexes_slot(const struct lm_annexes *annexes, uint32_t index);
/* Maker: the bytes, and the slots, of all that are there. */
uint64_t lm_annexes_bytes(const struct lm_annexes *annexes);
uint32_t lm_annexes_slots(const struct lm_annexes *annexes);
/* Maker: the largest slot that there is of fewer than `below` bytes; those asked back do not count.
 */
size_t lm_annexes_largest(const struct lm_annexes *annexes, size_t below);

/* Owner: takes those that have come, gives up those that are asked for and not used. */
void lm_annexes_look(struct lm_annexes *annexes);
/* Nobody uses the arena any more: frees all, before lm_arena_close. */
void lm_annexes_close(struct lm_annexes *annexes);

#endif
