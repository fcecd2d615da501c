/* arena.c: see arena.h. */
#include "parts/arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/common_memory.h"
#include "base/error.h"

static int count_slots(const lumen_slot_class *classes, uint32_t class_count, uint32_t *slots_out) {
    uint64_t slots = 0;
    for (uint32_t c = 0; c < class_count; c++) {
        LM_ASSERT(classes[c].slot_bytes % LM_SLOT_ALIGN == 0);
        LM_ASSERT(c == 0 || classes[c].slot_bytes > classes[c - 1].slot_bytes);
        slots += classes[c].slot_count;
    }
    if (slots == 0 || slots > LM_SLOTS_MAX) {
        return lm_error(LUMEN_E_INVALID, "slots: expected 1 to %d, found %llu", LM_SLOTS_MAX,
                        (unsigned long long)slots);
    }
    *slots_out = (uint32_t)slots;
    return 0;
}

int lm_arena_hold_memory(struct lm_arena *arena, uint32_t huge_pages) {
    size_t bytes = 0, hot = 0;
    if (arena->memory.bytes > 0) return 0;
    for (uint32_t s = 0; s < arena->base_slots; s++) {
        bytes += arena->slots[s].bytes;
        if (arena->slots[s].bytes <= LM_HOT_SLOT_BYTES) hot = bytes;
    }
    int code = arena->common
                   ? lm_common_memory_take(arena->common, &arena->memory, bytes, huge_pages)
                   : lm_mapping_reserve_on(&arena->memory, bytes, huge_pages);
    /* Slots for bodies of JSON and large batches are large and rare, and get their pages when first
     * used. */
    if (!code) lm_mapping_touch(&arena->memory, hot);
    return code;
}

/* Gives each slot of the start its place. */
static void settle(struct lm_arena *arena) {
    uint8_t *at = arena->memory.base;
    for (uint32_t s = 0; at && s < arena->base_slots; s++) {
        struct lm_slot *slot = &arena->slots[s];
        slot->home = at;
        at += slot->bytes;
        if (!slot->acquired) slot->base = slot->home;
    }
}

void lm_arena_use(struct lm_arena *arena, uint32_t allocator_type) {
    if (arena->allocator_type == allocator_type) return;
    arena->allocator_type = allocator_type;
    if (allocator_type == LUMEN_ALLOCATOR_ARENA && !arena->slots[0].home) settle(arena);
}

/* Linked backwards, so that the first slots are handed out first and stay the warm ones. */
void lm_arena_fill_class(struct lm_arena *arena, uint32_t at, size_t slot_bytes, uint32_t first,
                         uint32_t count) {
    struct lm_arena_class *class = &arena->classes[at];
    *class = (struct lm_arena_class){.slot_bytes = slot_bytes,
                                     .slot_count = count,
                                     .free_head = LM_NO_SLOT,
                                     .free_count = count};
    class->reserve_count = (count + LM_RESERVE_ONE_IN - 1) / LM_RESERVE_ONE_IN;
    for (uint32_t s = first + count; s-- > first;) {
        arena->slots[s].class_index = at;
        arena->slots[s].next_free = class->free_head;
        class->free_head = s;
    }
}

static void make_slots(struct lm_arena *arena, const lumen_slot_class *classes,
                       uint32_t class_count) {
    uint32_t index = 0;
    for (uint32_t c = 0; c < class_count; c++) {
        const lumen_slot_class *class = &classes[c];
        for (uint32_t s = 0; s < class->slot_count; s++) {
            arena->slots[index + s] =
                (struct lm_slot){.bytes = class->slot_bytes, .index = index + s};
        }
        lm_arena_fill_class(arena, c, class->slot_bytes, index, class->slot_count);
        index += class->slot_count;
    }
    arena->class_count = class_count;
}

int lm_arena_open(struct lm_arena *arena, const lumen_slot_class *classes, uint32_t class_count,
                  uint32_t annex_slots, uint32_t allocator_type, uint32_t huge_pages,
                  struct lm_common_memory *common) {
    memset(arena, 0, sizeof *arena);
    LM_ASSERT(class_count >= 1 && class_count <= LUMEN_SLOT_CLASSES_MAX);
    arena->allocator_type = allocator_type;
    int code = count_slots(classes, class_count, &arena->slot_count);
    if (code) return code;
    uint32_t left = (LM_SLOTS_MAX - arena->slot_count) / LM_ANNEXES_MAX;
    arena->base_slots = arena->slot_count;
    arena->annex_slots = annex_slots < left ? annex_slots : left;
    if (allocator_type == LUMEN_ALLOCATOR_ARENA) arena->common = common;
    arena->slots = calloc(lm_arena_slots_max(arena), sizeof *arena->slots);
    if (!arena->slots) {
        uint32_t wanted = arena->slot_count;
        lm_arena_close(arena);
        return lm_error(LUMEN_E_NOMEM, "no memory for a table of %u slots", wanted);
    }
    make_slots(arena, classes, class_count);
    if (allocator_type != LUMEN_ALLOCATOR_ARENA) return 0;
    code = lm_arena_hold_memory(arena, huge_pages);
    if (!code) settle(arena);
    return code;
}

void lm_arena_close(struct lm_arena *arena) {
    for (uint32_t s = 0; arena->slots && s < arena->slot_count; s++) {
        if (arena->slots[s].base != arena->slots[s].home) free(arena->slots[s].base);
    }
    free(arena->slots);
    if (arena->common) {
        lm_common_memory_give_back(arena->common, &arena->memory);
    } else {
        lm_mapping_close(&arena->memory);
    }
    memset(arena, 0, sizeof *arena);
}

int lm_arena_fits(const struct lm_arena *arena, size_t bytes) {
    uint32_t last = arena->class_count - 1;
    while (last > 0 && arena->classes[last].closed) last--;
    return bytes <= arena->classes[last].slot_bytes;
}

/* `spare`: only of classes of which more than the reserve is free. */
static struct lm_slot *acquire(struct lm_arena *arena, size_t bytes, bool spare) {
    for (uint32_t c = 0; c < arena->class_count; c++) {
        struct lm_arena_class *class = &arena->classes[c];
        /* A class of one slot has none to spare, and none to keep back. */
        uint32_t kept = spare && class->slot_count > 1 ? class->reserve_count : 0;
        if (class->slot_bytes < bytes || class->free_count <= kept || class->closed) continue;
        struct lm_slot *slot = &arena->slots[class->free_head];
        LM_DEBUG_ASSERT(!slot->acquired && slot->used == 0);
        if (arena->allocator_type == LUMEN_ALLOCATOR_STANDARD || !slot->home) {
            uint8_t *base = aligned_alloc(LM_SLOT_ALIGN, slot->bytes);
            if (!base) return NULL;
            slot->base = base;
        }
        class->free_head = slot->next_free;
        class->free_count--;
        arena->acquired_count++;
        slot->acquired = 1;
        return slot;
    }
    return NULL;
}

struct lm_slot *lm_arena_acquire(struct lm_arena *arena, size_t bytes) {
    return acquire(arena, bytes, false);
}

struct lm_slot *lm_arena_acquire_spare(struct lm_arena *arena, size_t bytes) {
    return acquire(arena, bytes, true);
}

void lm_arena_release(struct lm_arena *arena, struct lm_slot *slot) {
    LM_DEBUG_ASSERT(slot->acquired && lm_slot_is_valid(slot));
    struct lm_arena_class *class = &arena->classes[slot->class_index];
    lm_slot_reset(slot);
    if (slot->base != slot->home) {
        free(slot->base);
        slot->base = slot->home;
    }
    slot->acquired = 0;
    slot->next_free = class->free_head;
    class->free_head = slot->index;
    class->free_count++;
    arena->acquired_count--;
}

void *lm_slot_alloc(struct lm_slot *slot, size_t bytes) {
    size_t rounded = lm_align_up(bytes, LM_SLOT_ALIGN);
    if (rounded < bytes || rounded > slot->bytes - slot->used) return NULL;
    void *at = slot->base + slot->used;
    slot->used += rounded;
    return at;
}

void lm_slot_reset(struct lm_slot *slot) {
    slot->used = 0;
}

int lm_slot_is_valid(const struct lm_slot *slot) {
    return slot->used <= slot->bytes && slot->used % LM_SLOT_ALIGN == 0 &&
           (slot->base == NULL || ((uintptr_t)slot->base % LM_SLOT_ALIGN) == 0);
}
