/* test_annex.c: slots of more sizes that come to an arena and go, against a model of it in words;
 * and with a thread on either side. */
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "check.h"
#include "parts/annex.h"

enum { SLOTS = 4, OUT = 40, STEPS = 20000, BASE_BYTES = 512 };

static const lumen_slot_class base[] = {{.slot_bytes = 64, .slot_count = 3},
                                        {.slot_bytes = BASE_BYTES, .slot_count = 2}};
static struct lm_arena arena;
static struct lm_annexes annexes;

static void begin(uint32_t allocator) {
    memset(&annexes, 0, sizeof annexes);
    CHECK(lm_arena_open(&arena, base, 2, SLOTS, allocator, LUMEN_HUGE_TRANSPARENT, NULL) == 0);
    annexes.arena = &arena;
}

static void end(void) {
    lm_annexes_close(&annexes);
    lm_arena_close(&arena);
}

static int come(size_t bytes, uint32_t count) {
    const lumen_slot_class class = {.slot_bytes = bytes, .slot_count = count};
    return lm_annex_open(&annexes, &class, LUMEN_HUGE_TRANSPARENT);
}

/* One that comes, is used, and goes once its slots are back. */
static void one(uint32_t allocator) {
    begin(allocator);
    struct lm_annex *annex = &annexes.all[0];
    CHECK(!lm_arena_acquire(&arena, 1000) && !lm_arena_fits(&arena, 1000));
    CHECK(come(1024, 2) == 0 && lm_annex_is_open(annex) && lm_annexes_bytes(&annexes) == 2048);
    CHECK(!lm_arena_fits(&arena, 1000)); /* the owner has not looked */
    lm_annexes_look(&annexes);
    lm_annexes_look(&annexes);
    CHECK(lm_arena_fits(&arena, 1024) && arena.class_count == 3);
    struct lm_slot *one = lm_arena_acquire(&arena, 600), *two = lm_arena_acquire(&arena, 1024);
    CHECK(one && two && one != two && !lm_arena_acquire(&arena, 1000));
    const struct lm_slot known = lm_annexes_slot(&annexes, one->index);
    CHECK(known.base == one->home && known.bytes == one->bytes && known.index == one->index);
    CHECK(one->bytes == 1024 && one->index >= 5 && one->index < lm_arena_slots_max(&arena));
    memset(one->base, 1, 1024);
    memset(two->base, 2, 1024);
    lm_annex_leave(annex);
    lm_annexes_look(&annexes);
    CHECK(!lm_annexes_reap(&annexes) && !lm_arena_fits(&arena, 1000));
    lm_arena_release(&arena, one);
    CHECK(!lm_arena_acquire(&arena, 1000)); /* what comes back stays back */
    lm_annexes_look(&annexes);
    CHECK(!lm_annexes_reap(&annexes) && two->base[1023] == 2);
    lm_arena_release(&arena, two);
    lm_annexes_look(&annexes);
    CHECK(lm_annexes_reap(&annexes) && lm_annexes_bytes(&annexes) == 0 && arena.class_count == 2);
    CHECK(annex->memory.bytes == 0 && lm_annexes_largest(&annexes, SIZE_MAX) == BASE_BYTES);
    /* One that goes before the owner has seen it. */
    CHECK(come(2048, 1) == 0);
    lm_annex_leave(annex);
    lm_annexes_look(&annexes);
    CHECK(lm_annexes_reap(&annexes) && arena.class_count == 2 && arena.acquired_count == 0);
    end();
}

/* What is counted in a class stays with it, at whatever place it is. */
static void counts(void) {
    begin(LUMEN_ALLOCATOR_ARENA);
    struct lm_slot *slot = lm_arena_acquire(&arena, BASE_BYTES);
    const uint32_t before = slot->class_index;
    arena.classes[before].lent_count = 7;
    CHECK(come(LM_SLOT_ALIGN, 1) == 0);
    lm_annexes_look(&annexes);
    CHECK(slot->class_index == before + 1 && arena.classes[before + 1].lent_count == 7);
    CHECK(arena.classes[0].lent_count == 0);
    lm_annex_leave(&annexes.all[0]);
    lm_annexes_look(&annexes);
    CHECK(slot->class_index == before && arena.classes[before].lent_count == 7);
    lm_arena_release(&arena, slot);
    CHECK(lm_annexes_reap(&annexes));
    end();
}

static void bounds(void) {
    begin(LUMEN_ALLOCATOR_ARENA);
    CHECK(come(1024, SLOTS + 1) == LUMEN_E_INVALID && lm_annexes_slots(&annexes) == 0);
    CHECK(come(1ull << 62, 1) == LUMEN_E_NOMEM && lm_annexes_slots(&annexes) == 0);
    for (uint32_t a = 0; a < LM_ANNEXES_MAX; a++) CHECK(come(1024 * (a + 1), SLOTS) == 0);
    CHECK(come(1 << 20, 1) == LUMEN_E_INVALID && strstr(lm_error_last(), "sizes of 4 slots each"));
    CHECK(lm_annexes_largest(&annexes, 3072) == 2048);
    lm_annexes_look(&annexes);
    CHECK(arena.class_count == 2 + LM_ANNEXES_MAX);
    end();
}

/* ---- at random ---- */

/* The smallest size that has a slot to give. */
static size_t expected(const uint32_t *free_of, size_t bytes) {
    size_t best = SIZE_MAX;
    for (uint32_t c = 0; c < 2 + LM_ANNEXES_MAX; c++) {
        const struct lm_annex *annex = c < 2 ? NULL : &annexes.all[c - 2];
        size_t has = annex ? annex->slot_bytes : base[c].slot_bytes;
        if (annex && (!annex->is_taken || !lm_annex_is_open(annex))) continue;
        if (free_of[c] > 0 && has >= bytes && has < best) best = has;
    }
    return best;
}

static uint32_t kind_of(const struct lm_slot *slot) {
    return slot->index < 3 ? 0 : slot->index < 5 ? 1 : 2 + (slot->index - 5) / SLOTS;
}

static void random_walk(uint32_t allocator, uint64_t *random) {
    struct lm_slot *out[OUT];
    uint32_t count = 0, free_of[2 + LM_ANNEXES_MAX] = {3, 2};
    begin(allocator);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t a = check_below(random, LM_ANNEXES_MAX);
        CHECK_AT("allocator %u, step %u, %u slots out", allocator, step, count);
        switch (check_below(random, 8)) {
        case 0: {
            uint32_t slots = 1 + check_below(random, SLOTS), before = lm_annexes_slots(&annexes);
            if (come(1024 + 64 * check_below(random, 200), slots)) break;
            for (uint32_t n = 0; n < LM_ANNEXES_MAX; n++) {
                const struct lm_annex *annex = &annexes.all[n];
                if (lm_annex_is_open(annex) && !annex->is_taken) free_of[2 + n] = annex->count;
            }
            CHECK(lm_annexes_slots(&annexes) == before + slots);
            break;
        }
        case 1:
            if (lm_annex_is_open(&annexes.all[a])) lm_annex_leave(&annexes.all[a]);
            break;
        case 2: (void)lm_annexes_reap(&annexes); break;
        case 3: lm_annexes_look(&annexes); break;
        case 4:
        case 5:
        case 6: {
            size_t bytes = check_below(random, 4) ? check_below(random, 14000) : 60;
            size_t due = expected(free_of, bytes);
            struct lm_slot *slot = count < OUT ? lm_arena_acquire(&arena, bytes) : NULL;
            if (count == OUT) break;
            /* Two annexes may have one size, and one that leaves gives what the owner has not
             * looked at yet. */
            CHECK(slot ? slot->bytes <= due : due == SIZE_MAX);
            if (!slot) break;
            CHECK(free_of[kind_of(slot)]-- > 0);
            memset(slot->base, (int)slot->index, slot->bytes);
            out[count++] = slot;
            break;
        }
        default: {
            if (count == 0) break;
            uint32_t o = check_below(random, count);
            CHECK(out[o]->base[0] == (uint8_t)out[o]->index);
            CHECK(out[o]->base[out[o]->bytes - 1] == (uint8_t)out[o]->index);
            free_of[kind_of(out[o])]++;
            lm_arena_release(&arena, out[o]);
            out[o] = out[--count];
        }
        }
        CHECK(arena.acquired_count == count);
    }
    for (uint32_t o = 0; o < count; o++) lm_arena_release(&arena, out[o]);
    for (uint32_t a = 0; a < LM_ANNEXES_MAX; a++) {
        if (lm_annex_is_open(&annexes.all[a])) lm_annex_leave(&annexes.all[a]);
    }
    lm_annexes_look(&annexes);
    CHECK(lm_annexes_reap(&annexes) && lm_annexes_bytes(&annexes) == 0 && arena.class_count == 2);
    end();
}

/* ---- two threads ---- */

static lm_atomic_u32 is_over;

static void *own(void *argument) {
    uint64_t *taken = argument;
    while (!lm_load_relaxed_u32(&is_over)) { /* relaxed: a hint */
        lm_annexes_look(&annexes);
        for (uint32_t s = 0; s < arena.slot_count; s++) /* as flow/eviction.c does */
            CHECK(!arena.slots[s].acquired);
        struct lm_slot *slot = lm_arena_acquire(&arena, 1000);
        if (!slot) continue;
        memset(slot->base, 7, slot->bytes);
        lm_annexes_look(&annexes);
        CHECK(slot->base[0] == 7 && slot->base[slot->bytes - 1] == 7);
        lm_arena_release(&arena, slot);
        (*taken)++;
    }
    return NULL;
}

/* The entries of the table whose slots have so many bytes, as the maker knows them; their memory is
 * told apart. What a model that is loaded wraps its tensors around (flow/io_model.c). */
static uint32_t slots_of(size_t bytes) {
    uint32_t count = 0;
    for (uint32_t s = arena.base_slots; s < lm_arena_slots_max(&arena); s++) {
        struct lm_slot slot = lm_annexes_slot(&annexes, s);
        CHECK(slot.index == s && (slot.bytes == bytes || slot.bytes == 0));
        if (slot.bytes == 0) continue;
        CHECK(slot.base == (uint8_t *)annexes.all[0].memory.base + count * bytes);
        count++;
    }
    return count;
}

static void two_threads(void) {
    uint64_t taken = 0;
    pthread_t owner;
    begin(LUMEN_ALLOCATOR_ARENA);
    lm_store_relaxed_u32(&is_over, 0);
    CHECK(pthread_create(&owner, NULL, own, &taken) == 0);
    for (uint32_t round = 0; round < 200; round++) {
        CHECK(come(1024 + 64 * round, 1 + round % SLOTS) == 0);
        struct lm_annex *annex = &annexes.all[0];
        CHECK(lm_annex_is_open(annex));
        CHECK(slots_of(1024 + 64 * round) == 1 + round % SLOTS); /* the owner takes it now */
        if (round % 3) sched_yield();
        lm_annex_leave(annex);
        CHECK(slots_of(1) == 0);
        while (!lm_annexes_reap(&annexes)) sched_yield();
    }
    lm_store_relaxed_u32(&is_over, 1);
    pthread_join(owner, NULL);
    CHECK(lm_annexes_bytes(&annexes) == 0 && arena.acquired_count == 0);
    end();
}

int main(void) {
    uint64_t random = check_seed();
    check_watchdog(100, "slots that come and go");
    one(LUMEN_ALLOCATOR_ARENA);
    one(LUMEN_ALLOCATOR_STANDARD);
    counts();
    bounds();
    random_walk(LUMEN_ALLOCATOR_ARENA, &random);
    random_walk(LUMEN_ALLOCATOR_STANDARD, &random);
    two_threads();
    check_watchdog(0, "");
    return check_finish("test_annex");
}
