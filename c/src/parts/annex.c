/* annex.c: see annex.h. */
#include "parts/annex.h"

#include <string.h>

#include "base/common_memory.h"
#include "base/error.h"

/* The maker's while it is EMPTY or GONE. The owner takes it once it has COME, and gives it up once
 * it is asked for, which is LEAVING. */
enum annex_state { EMPTY, COME, LEAVING, GONE };

/* ---- the maker ---- */

static enum annex_state state_of(const struct lm_annex *annex) {
    /* K4: acquire: the owner's last use; pairs with K3 */
    return (enum annex_state)lm_load_acquire_u32(&annex->state);
}

static struct lm_annex *find_empty(struct lm_annexes *annexes, uint32_t *first_out) {
    const struct lm_arena *arena = annexes->arena;
    for (uint32_t a = 0; a < LM_ANNEXES_MAX; a++) {
        *first_out = arena->base_slots + a * arena->annex_slots;
        if (state_of(&annexes->all[a]) == EMPTY) return &annexes->all[a];
    }
    return NULL;
}

static int take_memory(struct lm_arena *arena, struct lm_annex *annex, uint32_t huge_pages) {
    size_t bytes = annex->slot_bytes * annex->count;
    if (arena->memory.bytes == 0) return 0; /* nor have the slots of the start any */
    int code = arena->common
                   ? lm_common_memory_take(arena->common, &annex->memory, bytes, huge_pages)
                   : lm_mapping_reserve_on(&annex->memory, bytes, huge_pages);
    /* Of larger ones the pages come when they are first used, as with the slots of the start. */
    if (!code && annex->slot_bytes <= LM_HOT_SLOT_BYTES) lm_mapping_touch(&annex->memory, bytes);
    return code;
}

static void give_memory_back(struct lm_arena *arena, struct lm_annex *annex) {
    if (arena->common) {
        lm_common_memory_give_back(arena->common, &annex->memory);
    } else {
        lm_mapping_close(&annex->memory);
    }
    memset(&annex->memory, 0, sizeof annex->memory);
}

int lm_annex_open(struct lm_annexes *annexes, const lumen_slot_class *class, uint32_t huge_pages) {
    struct lm_arena *arena = annexes->arena;
    uint32_t first;
    struct lm_annex *annex = find_empty(annexes, &first);
    LM_ASSERT(class->slot_bytes % LM_SLOT_ALIGN == 0 && class->slot_count > 0);
    if (!annex || class->slot_count > arena->annex_slots) {
        return lm_error(LUMEN_E_INVALID,
                        "slots that come later: expected at most %d sizes of %u slots each",
                        LM_ANNEXES_MAX, arena->annex_slots);
    }
    annex->slot_bytes = class->slot_bytes;
    annex->first = first;
    annex->count = class->slot_count;
    int code = take_memory(arena, annex, huge_pages);
    if (code) return code;
    /* K1: release: the memory; pairs with K2 */
    lm_store_release_u32(&annex->state, COME);
    return 0;
}

void lm_annex_leave(struct lm_annex *annex) {
    lm_store_release_u32(&annex->state, LEAVING); /* as K1 */
}

bool lm_annex_is_open(const struct lm_annex *annex) {
    return state_of(annex) == COME;
}

/* Slot `s` of it, which nobody has taken. */
static struct lm_slot slot_of(const struct lm_annex *annex, uint32_t s) {
    uint8_t *memory = annex->memory.base, *base = memory ? memory + s * annex->slot_bytes : NULL;
    return (struct lm_slot){
        .base = base, .home = base, .bytes = annex->slot_bytes, .index = annex->first + s};
}

struct lm_slot lm_annexes_slot(const struct lm_annexes *annexes, uint32_t index) {
    for (uint32_t a = 0; a < LM_ANNEXES_MAX; a++) {
        const struct lm_annex *annex = &annexes->all[a];
        if (!lm_annex_is_open(annex)) continue;
        if (index - annex->first < annex->count) return slot_of(annex, index - annex->first);
    }
    return (struct lm_slot){.index = index};
}

uint64_t lm_annexes_bytes(const struct lm_annexes *annexes) {
    uint64_t bytes = 0;
    for (uint32_t a = 0; a < LM_ANNEXES_MAX; a++) {
        const struct lm_annex *annex = &annexes->all[a];
        if (state_of(annex) != EMPTY) bytes += annex->slot_bytes * annex->count;
    }
    return bytes;
}

uint32_t lm_annexes_slots(const struct lm_annexes *annexes) {
    uint32_t slots = 0;
    for (uint32_t a = 0; a < LM_ANNEXES_MAX; a++) {
        if (state_of(&annexes->all[a]) != EMPTY) slots += annexes->all[a].count;
    }
    return slots;
}

size_t lm_annexes_largest(const struct lm_annexes *annexes, size_t below) {
    /* The classes are the owner's, the slots of the start stay as they are. */
    const struct lm_arena *arena = annexes->arena;
    size_t largest = arena->slots[arena->base_slots - 1].bytes;
    for (uint32_t a = 0; a < LM_ANNEXES_MAX; a++) {
        const struct lm_annex *annex = &annexes->all[a];
        bool counts = lm_annex_is_open(annex) && annex->slot_bytes < below;
        if (counts && annex->slot_bytes > largest) largest = annex->slot_bytes;
    }
    return largest;
}

bool lm_annexes_reap(struct lm_annexes *annexes) {
    bool all = true;
    for (uint32_t a = 0; a < LM_ANNEXES_MAX; a++) {
        struct lm_annex *annex = &annexes->all[a];
        all = all && state_of(annex) != LEAVING;
        if (state_of(annex) != GONE) continue;
        give_memory_back(annexes->arena, annex);
        lm_store_relaxed_u32(&annex->state, EMPTY); /* relaxed: own word while it is GONE */
    }
    return all;
}

void lm_annexes_close(struct lm_annexes *annexes) {
    for (uint32_t a = 0; a < LM_ANNEXES_MAX; a++) {
        if (state_of(&annexes->all[a]) != EMPTY) give_memory_back(annexes->arena, &annexes->all[a]);
    }
}

/* ---- the owner ---- */

/* Slots know their class by its place, which changes with those before it. */
static void renumber(struct lm_arena *arena, uint32_t from, int32_t by) {
    for (uint32_t s = 0; s < arena->slot_count; s++) {
        struct lm_slot *slot = &arena->slots[s];
        if (slot->class_index >= from)
            slot->class_index = (uint32_t)((int32_t)slot->class_index + by);
    }
}

/* The slots are the owner's also while no annex has them: it looks at all there ever were. */
static void make_slots(struct lm_arena *arena, const struct lm_annex *annex) {
    for (uint32_t s = 0; s < annex->count; s++) arena->slots[annex->first + s] = slot_of(annex, s);
}

static void take(struct lm_arena *arena, struct lm_annex *annex) {
    uint32_t at = arena->class_count;
    while (at > 0 && arena->classes[at - 1].slot_bytes > annex->slot_bytes) at--;
    LM_ASSERT(arena->class_count < LM_ARENA_CLASSES_MAX);
    make_slots(arena, annex);
    renumber(arena, at, 1);
    memmove(&arena->classes[at + 1], &arena->classes[at],
            (arena->class_count++ - at) * sizeof *arena->classes);
    if (arena->slot_count < annex->first + annex->count)
        arena->slot_count = annex->first + annex->count;
    lm_arena_fill_class(arena, at, annex->slot_bytes, annex->first, annex->count);
}

static uint32_t class_of(const struct lm_arena *arena, const struct lm_annex *annex) {
    return arena->slots[annex->first].class_index;
}

static void give_up(struct lm_arena *arena, const struct lm_annex *annex) {
    uint32_t at = class_of(arena, annex);
    for (uint32_t s = 0; s < annex->count; s++) arena->slots[annex->first + s].class_index = 0;
    memmove(&arena->classes[at], &arena->classes[at + 1],
            (--arena->class_count - at) * sizeof *arena->classes);
    renumber(arena, at + 1, -1);
}

/* Whether no slot of it is out; from here on none is given. */
static bool is_unused(struct lm_arena *arena, const struct lm_annex *annex) {
    struct lm_arena_class *class = &arena->classes[class_of(arena, annex)];
    class->closed = 1;
    return class->free_count == class->slot_count;
}

void lm_annexes_look(struct lm_annexes *annexes) {
    struct lm_arena *arena = annexes->arena;
    for (uint32_t a = 0; a < LM_ANNEXES_MAX; a++) {
        struct lm_annex *annex = &annexes->all[a];
        /* K2: acquire: the memory; pairs with K1 */
        uint32_t state = lm_load_acquire_u32(&annex->state);
        if (state == COME && !annex->is_taken) {
            take(arena, annex);
            annex->is_taken = true;
        }
        if (state != LEAVING || (annex->is_taken && !is_unused(arena, annex))) continue;
        if (annex->is_taken) give_up(arena, annex);
        annex->is_taken = false;
        /* K3: release: the last use of memory and slots; pairs with K4 */
        lm_store_release_u32(&annex->state, GONE);
    }
}
