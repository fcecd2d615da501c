/* arena.h: the memory of requests. An arena is one mapping cut into slots of a few size classes;
 * a slot is a region with a bump pointer that is filled in order and emptied in O(1).
 *
 * One arena per I/O thread, which alone acquires and releases slots: the free lists need no
 * atomics. A worker only holds a slot's index, and allocates in it while it holds it. With
 * LUMEN_ALLOCATOR_STANDARD each acquire is a malloc and each release a free: the baseline. Which of
 * the two may change between any two calls.
 */
#ifndef LM_PARTS_ARENA_H
#define LM_PARTS_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/memory.h"

#define LM_NO_SLOT UINT32_MAX

struct lm_common_memory; /* base/common_memory.h */

struct lm_slot {
    uint8_t *base;
    uint8_t *home; /* its place in the arena's memory, which `base` is unless it is a malloc; NULL:
                    * it has none */
    size_t bytes;
    size_t used; /* bump pointer */
    uint32_t index;
    uint32_t class_index;
    uint32_t next_free;
    uint32_t acquired; /* 1 while out of the free list */
};

struct lm_arena_class {
    size_t slot_bytes;
    uint32_t slot_count;
    uint32_t free_head;
    uint32_t free_count;
    uint32_t lent_count;    /* that wait for another server; counted by those who have them wait */
    uint32_t reserve_count; /* the last ones, which lm_arena_acquire_spare leaves alone */
    int closed;             /* 1: it gives none any more; annex.h */
};

enum { LM_ARENA_CLASSES_MAX = LUMEN_SLOT_CLASSES_MAX + LM_ANNEXES_MAX };

struct lm_arena {
    struct lm_mapping memory;
    struct lm_common_memory *common; /* that `memory` is a part of; NULL: no other process has it */
    struct lm_slot *slots;
    uint32_t slot_count;  /* entries that have been slots so far */
    uint32_t base_slots;  /* those of the start; annexes' are behind them: */
    uint32_t annex_slots; /* entries for each annex */
    uint32_t class_count;
    uint32_t acquired_count;
    uint32_t allocator_type;                             /* LUMEN_ALLOCATOR_* */
    struct lm_arena_class classes[LM_ARENA_CLASSES_MAX]; /* by growing slot_bytes */
};

/* `classes` by growing slot_bytes, multiples of LM_SLOT_ALIGN; `huge_pages`: LUMEN_HUGE_*. With
 * LUMEN_ALLOCATOR_ARENA the slots are in `common`, unless that is NULL. The table has room for
 * annexes of so many slots each. Returns 0 or LUMEN_E_*. */
int lm_arena_open(struct lm_arena *arena, const lumen_slot_class *classes, uint32_t class_count,
                  uint32_t annex_slots, uint32_t allocator_type, uint32_t huge_pages,
                  struct lm_common_memory *common);
/* The entries of the table: no slot has an index so large. */
static inline uint32_t lm_arena_slots_max(const struct lm_arena *arena) {
    return arena->base_slots + LM_ANNEXES_MAX * arena->annex_slots;
}
/* Entries of the table that have memory become class `at`, all of them free. */
void lm_arena_fill_class(struct lm_arena *arena, uint32_t at, size_t slot_bytes, uint32_t first,
                         uint32_t count);
void lm_arena_close(struct lm_arena *arena);

/* The smallest free slot of at least `bytes`; NULL when there is none. */
struct lm_slot *lm_arena_acquire(struct lm_arena *arena, size_t bytes);
/* The same, where more than the class's reserve is free. */
struct lm_slot *lm_arena_acquire_spare(struct lm_arena *arena, size_t bytes);
/* Whether a slot of `bytes` exists at all, free or not. */
int lm_arena_fits(const struct lm_arena *arena, size_t bytes);
void lm_arena_release(struct lm_arena *arena, struct lm_slot *slot);

/* The next `bytes` of the slot, aligned to LM_SLOT_ALIGN; NULL when they do not fit. */
void *lm_slot_alloc(struct lm_slot *slot, size_t bytes);
/* LUMEN_ALLOCATOR_*: where it is from. */
static inline uint8_t lm_slot_allocator(const struct lm_slot *slot) {
    return slot->base == slot->home ? LUMEN_ALLOCATOR_ARENA : LUMEN_ALLOCATOR_STANDARD;
}
/* How many bytes of it are left. */
static inline size_t lm_slot_left(const struct lm_slot *slot) {
    size_t used = lm_align_up(slot->used, LM_SLOT_ALIGN);
    return used < slot->bytes ? slot->bytes - used : 0;
}
/* Adds such an allocation to what a slot has to hold; false when it overflows. */
static inline bool lm_slot_add(size_t *total, size_t bytes) {
    size_t rounded = lm_align_up(bytes, LM_SLOT_ALIGN);
    return rounded >= bytes && !__builtin_add_overflow(*total, rounded, total);
}
/* Forgets everything allocated in the slot. */
void lm_slot_reset(struct lm_slot *slot);
/* Owner: slots are of this type from here on; those that are out stay what they are. For
 * LUMEN_ALLOCATOR_ARENA another thread has called lm_arena_hold_memory before. */
void lm_arena_use(struct lm_arena *arena, uint32_t allocator_type);
/* Any one thread: memory for the slots of the start, where there is none yet. Returns 0 or
 * LUMEN_E_NOMEM. */
int lm_arena_hold_memory(struct lm_arena *arena, uint32_t huge_pages);
int lm_slot_is_valid(const struct lm_slot *slot);

#endif
