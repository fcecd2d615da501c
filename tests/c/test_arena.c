/* test_arena.c: slots of several classes, taken and given back, with both allocators; what one slot
 * holds is never touched through another. */
#include "base/error.h"
#include "check.h"
#include "parts/arena.h"

static const lumen_slot_class classes[] = {{.slot_bytes = 64, .slot_count = 3},
                                           {.slot_bytes = 256, .slot_count = 2},
                                           {.slot_bytes = 4096, .slot_count = 1}};
enum { CLASS_COUNT = 3, SLOT_COUNT = 6 };

static const uint32_t allocators[] = {LUMEN_ALLOCATOR_ARENA, LUMEN_ALLOCATOR_STANDARD};

static void opening(uint32_t allocator) {
    struct lm_arena arena;
    static const lumen_slot_class none[] = {{.slot_bytes = 64, .slot_count = 0}};
    static const lumen_slot_class many[] = {{.slot_bytes = 64, .slot_count = LM_SLOTS_MAX},
                                            {.slot_bytes = 128, .slot_count = 1}};
    CHECK(lm_arena_open(&arena, none, 1, 2, allocator, LUMEN_HUGE_TRANSPARENT, NULL) ==
          LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "found 0"));
    CHECK(lm_arena_open(&arena, many, 2, 2, allocator, LUMEN_HUGE_TRANSPARENT, NULL) ==
          LUMEN_E_INVALID);
    CHECK(strstr(lm_error_last(), "65537"));
    CHECK(lm_arena_open(&arena, classes, CLASS_COUNT, 2, allocator, LUMEN_HUGE_TRANSPARENT, NULL) ==
          0);
    CHECK(arena.slot_count == SLOT_COUNT && arena.class_count == CLASS_COUNT &&
          arena.acquired_count == 0);
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        CHECK(arena.slots[i].index == i && !arena.slots[i].acquired &&
              lm_slot_is_valid(&arena.slots[i]));
        CHECK((arena.slots[i].base != NULL) == (allocator == LUMEN_ALLOCATOR_ARENA));
    }
    CHECK(lm_arena_fits(&arena, 0) && lm_arena_fits(&arena, 4096) && !lm_arena_fits(&arena, 4097));
    CHECK(!lm_arena_fits(&arena, SIZE_MAX));
    lm_arena_close(&arena);
    CHECK(arena.slots == NULL && arena.memory.base == NULL);
}

/* Slots of up to 4 MiB have their pages from the start, larger ones when they are first used. */
static void pages(void) {
    static const lumen_slot_class sizes[] = {{.slot_bytes = 8192, .slot_count = 2},
                                             {.slot_bytes = 4 << 20, .slot_count = 1},
                                             {.slot_bytes = (4 << 20) + 4096, .slot_count = 1}};
    static unsigned char there[3 << 10];
    struct lm_arena arena;
    CHECK_AT("pages");
    CHECK(lm_arena_open(&arena, sizes, 3, 2, LUMEN_ALLOCATOR_ARENA, LUMEN_HUGE_TRANSPARENT, NULL) ==
          0);
    CHECK(mincore(arena.memory.base, arena.memory.bytes, there) == 0);
    size_t hot = (2 * 8192 + (4 << 20)) / 4096;
    for (size_t p = 0; p < hot; p++) CHECK(there[p] & 1);
    if (!arena.memory.huge_pages) CHECK(!(there[hot] & 1));
    CHECK(!(there[hot + 512] & 1));
    lm_arena_close(&arena);
}

/* As many slots as there may be. */
static void most_slots(uint32_t allocator) {
    static const lumen_slot_class most[] = {{.slot_bytes = 64, .slot_count = LM_SLOTS_MAX - 4},
                                            {.slot_bytes = 128, .slot_count = 4}};
    struct lm_arena arena;
    CHECK(lm_arena_open(&arena, most, 2, 2, allocator, LUMEN_HUGE_TRANSPARENT, NULL) == 0 &&
          arena.slot_count == LM_SLOTS_MAX);
    CHECK(arena.classes[0].reserve_count == LM_SLOTS_MAX / 4 - 1);
    CHECK(arena.classes[1].reserve_count == 1);
    CHECK(allocator != LUMEN_ALLOCATOR_ARENA ||
          arena.memory.bytes >= (LM_SLOTS_MAX - 4) * 64 + 4 * 128);
    lm_arena_close(&arena);
}

/* The last quarter of each class, rounded up, is left alone: of 3 slots one, of 2 one; not the only
 * one. */
static void spare(uint32_t allocator) {
    struct lm_arena arena;
    struct lm_slot *taken[3];
    CHECK(lm_arena_open(&arena, classes, CLASS_COUNT, 2, allocator, LUMEN_HUGE_TRANSPARENT, NULL) ==
          0);
    for (uint32_t i = 0; i < 3; i++) {
        taken[i] = lm_arena_acquire_spare(&arena, 64);
        CHECK(taken[i] && taken[i]->class_index == (i < 2 ? 0 : 1));
    }
    CHECK(lm_arena_acquire_spare(&arena, 64)->class_index == 2);
    CHECK(lm_arena_acquire_spare(&arena, 64) == NULL);
    struct lm_slot *last = lm_arena_acquire(&arena, 64);
    CHECK(last && last->class_index == 0 && arena.classes[0].free_count == 0);
    lm_arena_release(&arena, taken[0]);
    CHECK(lm_arena_acquire_spare(&arena, 64) == NULL); /* the reserve is filled up first */
    lm_arena_release(&arena, taken[1]);
    CHECK(lm_arena_acquire_spare(&arena, 64) != NULL);
    lm_arena_close(&arena);
}

/* The smallest that fits, then the larger ones, then none; a returned one is the next to be taken.
 */
static void choice(uint32_t allocator) {
    struct lm_arena arena;
    struct lm_slot *taken[SLOT_COUNT];
    CHECK(lm_arena_open(&arena, classes, CLASS_COUNT, 2, allocator, LUMEN_HUGE_TRANSPARENT, NULL) ==
          0);
    for (uint32_t i = 0; i < SLOT_COUNT; i++) {
        taken[i] = lm_arena_acquire(&arena, i == 0 ? 0 : 64);
        CHECK_AT("slot %u of allocator %u", i, allocator);
        CHECK(taken[i] && taken[i]->index == i && taken[i]->acquired && taken[i]->used == 0);
        CHECK(taken[i]->class_index == (i < 3 ? 0 : i < 5 ? 1 : 2));
        CHECK(taken[i]->bytes == classes[taken[i]->class_index].slot_bytes);
        CHECK(taken[i]->base && (uintptr_t)taken[i]->base % LM_SLOT_ALIGN == 0);
        CHECK(arena.acquired_count == i + 1);
    }
    CHECK(lm_arena_acquire(&arena, 1) == NULL && arena.acquired_count == SLOT_COUNT);
    lm_arena_release(&arena, taken[1]);
    CHECK(arena.acquired_count == SLOT_COUNT - 1 && !taken[1]->acquired &&
          arena.classes[0].free_count == 1);
    CHECK(lm_arena_acquire(&arena, 65) == NULL); /* the free one is too small */
    lm_arena_release(&arena, taken[0]);
    CHECK(lm_arena_acquire(&arena, 1) == taken[0]); /* last in, first out: the warm one */
    CHECK(lm_arena_acquire(&arena, 1) == taken[1]);
    lm_arena_release(&arena, taken[5]);
    CHECK(lm_arena_acquire(&arena, 4097) == NULL && lm_arena_acquire(&arena, SIZE_MAX) == NULL);
    CHECK(lm_arena_acquire(&arena, 4096) == taken[5]);
    lm_arena_close(&arena); /* with slots still out: nothing leaks */
}

static void bump_pointer(uint32_t allocator) {
    struct lm_arena arena;
    CHECK(lm_arena_open(&arena, classes, CLASS_COUNT, 2, allocator, LUMEN_HUGE_TRANSPARENT, NULL) ==
          0);
    struct lm_slot *slot = lm_arena_acquire(&arena, 4096);
    uint8_t *first = lm_slot_alloc(slot, 1), *second = lm_slot_alloc(slot, 65),
            *third = lm_slot_alloc(slot, 64);
    CHECK(first == slot->base && second == first + 64 && third == second + 128 &&
          slot->used == 256);
    static const size_t too_large[] = {4096 - 256 + 1, 4096,          SIZE_MAX,
                                       SIZE_MAX - 62,  SIZE_MAX - 63, SIZE_MAX / 2 + 1};
    for (size_t i = 0; i < sizeof too_large / sizeof too_large[0]; i++) {
        CHECK_AT("%zu bytes", too_large[i]);
        CHECK(lm_slot_alloc(slot, too_large[i]) == NULL && slot->used == 256);
    }
    uint8_t *rest = lm_slot_alloc(slot, 4096 - 256);
    CHECK(rest == third + 64 && slot->used == 4096 && lm_slot_is_valid(slot));
    CHECK(lm_slot_alloc(slot, 1) == NULL);
    memset(slot->base, 0xa5, slot->bytes);
    lm_slot_reset(slot);
    CHECK(slot->used == 0 && slot->acquired);
    /* O(1): the memory was left alone. */
    for (size_t i = 0; i < slot->bytes; i++) CHECK(slot->base[i] == 0xa5);
    CHECK(lm_slot_alloc(slot, 4096) == first);
    lm_arena_release(&arena, slot); /* resets */
    CHECK(slot->used == 0);
    lm_arena_close(&arena);
}

static void fill(const struct lm_slot *slot, uint8_t pattern) {
    memset(slot->base, pattern, slot->bytes);
}

static bool holds(const struct lm_slot *slot, uint8_t pattern) {
    for (size_t i = 0; i < slot->bytes; i++) {
        if (slot->base[i] != pattern) return false;
    }
    return true;
}

/* The class that must be taken from, by the counts of a model; CLASS_COUNT when none. */
static uint32_t expected_class(const lumen_slot_class *sizes, const uint32_t *free_count,
                               uint32_t count, size_t bytes) {
    for (uint32_t c = 0; c < count; c++) {
        if (sizes[c].slot_bytes >= bytes && free_count[c]) return c;
    }
    return count;
}

static void random_walk(uint32_t allocator, uint64_t *random) {
    enum { COUNT = 4, SLOTS = 24, STEPS = 20000 };
    static const lumen_slot_class sizes[COUNT] = {{.slot_bytes = 64, .slot_count = 9},
                                                  {.slot_bytes = 448, .slot_count = 6},
                                                  {.slot_bytes = 512, .slot_count = 1},
                                                  {.slot_bytes = 4160, .slot_count = 8}};
    struct lm_arena arena;
    struct lm_slot *out[SLOTS];
    uint8_t patterns[SLOTS];
    uint32_t out_count = 0, free_count[COUNT];
    for (uint32_t c = 0; c < COUNT; c++) free_count[c] = sizes[c].slot_count;
    CHECK(lm_arena_open(&arena, sizes, COUNT, 2, allocator, LUMEN_HUGE_TRANSPARENT, NULL) == 0);
    for (uint32_t step = 0; step < STEPS; step++) {
        CHECK_AT("allocator %u, step %u, %u slots out", allocator, step, out_count);
        if (out_count == 0 || check_below(random, 100) < 55) {
            size_t bytes = check_below(random, check_below(random, 2) ? 600 : 4200);
            uint32_t class = expected_class(sizes, free_count, COUNT, bytes);
            struct lm_slot *slot = lm_arena_acquire(&arena, bytes);
            CHECK((slot == NULL) == (class == COUNT));
            if (!slot) continue;
            CHECK(slot->class_index == class && slot->used == 0 &&
                  (uintptr_t)slot->base % LM_SLOT_ALIGN == 0);
            free_count[class]--;
            patterns[out_count] = (uint8_t)(step % 255 + 1);
            fill(slot, patterns[out_count]);
            out[out_count++] = slot;
        } else {
            uint32_t which = check_below(random, out_count);
            CHECK(holds(out[which], patterns[which])); /* nobody wrote over it */
            free_count[out[which]->class_index]++;
            lm_arena_release(&arena, out[which]);
            out[which] = out[--out_count];
            patterns[which] = patterns[out_count];
        }
        CHECK(arena.acquired_count == out_count);
    }
    for (uint32_t i = 0; i < out_count; i++) CHECK(holds(out[i], patterns[i]));
    lm_arena_close(&arena);
}

int main(void) {
    uint64_t random = check_seed();
    for (uint32_t i = 0; i < 2; i++) {
        opening(allocators[i]);
        most_slots(allocators[i]);
        choice(allocators[i]);
        spare(allocators[i]);
        bump_pointer(allocators[i]);
        random_walk(allocators[i], &random);
    }
    pages();
    return check_finish("test_arena");
}
