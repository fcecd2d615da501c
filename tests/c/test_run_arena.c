/* test_run_arena.c: the allocator that ONNX Runtime is given, called as the runtime calls it: where
 * blocks lie, that they never overlap, when an arena is emptied, what does not fit. A table of
 * functions stands in for the runtime, so that every call is the test's own. */
#include <pthread.h>

#include "base/error.h"
#include "check.h"
#include "onnx/run_arena.h"

enum { ARENAS = 3, BLOCKS = 200 };

/* As ONNX Runtime declares it. */
struct given {
    uint32_t version;
    void *(*alloc)(struct given *, size_t);
    void (*release)(struct given *, void *);
    const OrtMemoryInfo *(*info)(const struct given *);
    void *(*reserve)(struct given *, size_t);
};

static struct given *given; /* NULL: none is registered */
static bool refuses;
static int memory_of_cpu; /* its address stands for the runtime's description */

static OrtStatus *take(OrtEnv *env, OrtAllocator *allocator) {
    (void)env;
    if (refuses) return (OrtStatus *)(void *)&refuses;
    given = (struct given *)(void *)allocator;
    return NULL;
}

static OrtStatus *forget(OrtEnv *env, const OrtMemoryInfo *info) {
    (void)env;
    CHECK(info == (const OrtMemoryInfo *)(void *)&memory_of_cpu);
    given = NULL;
    return NULL;
}

static const char *no_words(const OrtStatus *status) {
    (void)status;
    return "the test says no";
}

static void release_status(OrtStatus *status) {
    (void)status;
}

static struct lm_ort_api api = {.RegisterAllocator = take,
                                .UnregisterAllocator = forget,
                                .GetErrorMessage = no_words,
                                .ReleaseStatus = release_status};
static struct lm_ort ort = {.api = &api, .cpu_memory = (OrtMemoryInfo *)(void *)&memory_of_cpu};
static struct lm_run_arenas arenas;

static void *alloc(size_t bytes) {
    return given->alloc(given, bytes);
}

static void release(void *block) {
    given->release(given, block);
}

/* Which arena a block lies in; ARENAS: in none. */
static uint32_t arena_of(const void *block) {
    const uint8_t *base = arenas.memory.base, *at = block;
    if (at < base || at >= base + (size_t)ARENAS * LM_RUN_ARENA_BYTES) return ARENAS;
    return (uint32_t)((size_t)(at - base) / LM_RUN_ARENA_BYTES);
}

static void outside_a_run(void) {
    CHECK_AT("outside a Run");
    CHECK(given->version >= 17 && given->info(given) == ort.cpu_memory);
    static const size_t sizes[] = {0, 1, 64, 100000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint8_t *block = alloc(sizes[s]);
        CHECK(block && arena_of(block) == ARENAS && (uintptr_t)block % LM_CACHE_LINE == 0);
        memset(block, 7, sizes[s]);
        release(block);
    }
    CHECK(alloc(SIZE_MAX) == NULL); /* no memory has so much */
    release(NULL);                  /* as free() takes it */
}

static void blocks_of_a_run(uint32_t index) {
    uint8_t *first = NULL, *blocks[BLOCKS];
    CHECK_AT("blocks of arena %u", index);
    for (int run = 0; run < 3; run++) {
        uint8_t *end = NULL;
        lm_run_arena_enter(&arenas, index);
        for (uint32_t b = 0; b < BLOCKS; b++) {
            size_t bytes = b % 130; /* 0 is a block of its own, too */
            blocks[b] = b % 2 ? alloc(bytes) : given->reserve(given, bytes);
            CHECK(blocks[b] && arena_of(blocks[b]) == index);
            CHECK((uintptr_t)blocks[b] % LM_CACHE_LINE == 0);
            CHECK(blocks[b] >= end); /* no two share a byte */
            end = blocks[b] + (bytes ? bytes : 1);
            memset(blocks[b], (int)b, bytes);
        }
        if (run == 0) first = blocks[0];
        CHECK(blocks[0] == first); /* emptied after each Run */
        for (uint32_t b = 0; b < BLOCKS; b++) {
            for (size_t i = 0; i < b % 130; i++) CHECK(blocks[b][i] == (uint8_t)b);
            release(blocks[b]);
        }
        lm_run_arena_leave();
    }
    CHECK(first == (uint8_t *)arenas.memory.base + (size_t)index * LM_RUN_ARENA_BYTES);
}

static void *release_elsewhere(void *block) {
    release(block);
    return NULL;
}

/* An output that a request still holds, or what a session keeps from one Run to the next. */
static void blocks_that_stay(void) {
    CHECK_AT("blocks that stay");
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        lm_run_arena_enter(&arenas, 1);
        uint8_t *kept = alloc(1000), *gone = alloc(1000);
        memset(kept, 0x5a, 1000);
        release(gone);
        CHECK(lm_run_arena_leave() == 2 * 1024); /* what was freed is not to be had either */
        for (int run = 0; run < 3; run++) {
            lm_run_arena_enter(&arenas, 1);
            uint8_t *more = alloc(5000);
            CHECK(arena_of(more) == 1 && (more >= kept + 1000 || more + 5000 <= kept));
            memset(more, 0xa5, 5000);
            release(more);
            CHECK(lm_run_arena_leave() == 2 * 1024 + (size_t)(run + 1) * 5056);
            for (size_t i = 0; i < 1000; i++) CHECK(kept[i] == 0x5a);
        }
        lm_run_arena_enter(&arenas, 2); /* another worker's is emptied all the same */
        uint8_t *other = alloc(10);
        release(other);
        lm_run_arena_leave();
        lm_run_arena_enter(&arenas, 2);
        CHECK(alloc(10) == other);
        release(other);
        lm_run_arena_leave();
        /* Also when it is freed on another thread, or inside another worker's Run. */
        pthread_t thread;
        if (elsewhere) {
            CHECK(pthread_create(&thread, NULL, release_elsewhere, kept) == 0);
            CHECK(pthread_join(thread, NULL) == 0);
        } else {
            lm_run_arena_enter(&arenas, 2);
            release(kept);
            lm_run_arena_leave();
        }
        lm_run_arena_enter(&arenas, 1); /* sees that nothing is left, and empties it */
        CHECK(lm_run_arena_leave() == 0);
        lm_run_arena_enter(&arenas, 1);
        uint8_t *again = alloc(1);
        CHECK(again == kept);
        release(again);
        lm_run_arena_leave();
    }
}

/* A block that does not fit comes from the C library; later blocks that fit are the arena's. */
static void a_full_arena(void) {
    CHECK_AT("a full arena");
    lm_run_arena_enter(&arenas, 0);
    CHECK(alloc(SIZE_MAX) == NULL); /* no memory has so much */
    uint8_t *most = alloc(LM_RUN_ARENA_BYTES - 128);
    CHECK(arena_of(most) == 0);
    uint8_t *too_large = alloc(129);
    CHECK(too_large && arena_of(too_large) == ARENAS);
    memset(too_large, 1, 129);
    uint8_t *exactly = alloc(128);
    CHECK(arena_of(exactly) == 0 && exactly + 128 == most + LM_RUN_ARENA_BYTES);
    uint8_t *none_left = alloc(1);
    CHECK(none_left && arena_of(none_left) == ARENAS);
    exactly[127] = 1;
    release(none_left);
    release(too_large);
    release(most);
    release(exactly);
    lm_run_arena_leave();
    lm_run_arena_enter(&arenas, ARENAS); /* there are fewer */
    uint8_t *outside = alloc(1);
    CHECK(outside && arena_of(outside) == ARENAS);
    release(outside);
    CHECK(lm_run_arena_leave() == 0);
}

static void opened_and_closed(void) {
    static struct lm_run_arenas second;
    CHECK_AT("opened and closed");
    CHECK(ort.uses_registered_allocator && given);
    CHECK(lm_run_arenas_open(&second, &ort, 1) == LUMEN_E_STATE);
    CHECK(strstr(lm_error_last(), "another server"));
    lm_run_arenas_close(&second, &(struct lm_ort){.api = &api}); /* the first keeps its own */
    CHECK(given);
    lm_run_arena_enter(&arenas, 0);
    uint8_t *block = alloc(1);
    CHECK(arena_of(block) == 0);
    release(block);
    lm_run_arena_leave();
    struct given *table = given;
    lm_run_arenas_close(&arenas, &ort);
    CHECK(!given && !ort.uses_registered_allocator && arenas.count == 0 && !arenas.memory.base);
    lm_run_arena_enter(&arenas, 0);
    block = table->alloc(table, 1); /* what the runtime asks for at its own end */
    CHECK(block);
    table->release(table, block);
    lm_run_arena_leave();
    refuses = true;
    CHECK(lm_run_arenas_open(&arenas, &ort, 1) == LUMEN_E_ORT);
    CHECK(strstr(lm_error_last(), "the test says no"));
    CHECK(!ort.uses_registered_allocator && arenas.count == 0 && !arenas.memory.base);
    refuses = false;
    CHECK(lm_run_arenas_open(&arenas, &ort, ARENAS) == 0 && given);
    lm_run_arenas_close(&arenas, &ort);
}

int main(void) {
    CHECK(lm_run_arenas_open(&arenas, &ort, ARENAS) == 0);
    outside_a_run();
    for (uint32_t a = 0; a < ARENAS; a++) blocks_of_a_run(a);
    blocks_that_stay();
    a_full_arena();
    opened_and_closed();
    return check_finish("test_run_arena");
}
