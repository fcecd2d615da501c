/* run_arena.c: see run_arena.h. The allocator's functions are called by ONNX Runtime, on workers.
 */
#include "onnx/run_arena.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* The layout ONNX Runtime expects of an allocator of API version 17. */
struct allocator {
    uint32_t version;
    void *(*alloc)(struct allocator *, size_t);
    void (*release)(struct allocator *, void *);
    const OrtMemoryInfo *(*info)(const struct allocator *);
    void *(*reserve)(struct allocator *, size_t);
};

/* One per process, as ONNX Runtime's environment is. */
static struct {
    struct allocator table;
    const OrtMemoryInfo *memory_info;
    struct lm_run_arenas *arenas;
} registered;

static _Thread_local struct lm_run_arena *current;

static void *arena_alloc(struct allocator *self, size_t bytes) {
    (void)self;
    struct lm_run_arena *arena = current;
    size_t rounded = lm_align_up(bytes ? bytes : 1, LM_CACHE_LINE);
    if (rounded < bytes) return NULL; /* a size that no memory has */
    if (arena && rounded <= arena->bytes - arena->used) {
        void *block = arena->base + arena->used;
        arena->used += rounded;
        /* relaxed: only the owner decides by it, between its own Runs */
        lm_count_relaxed_u64(&arena->live, 1);
        return block;
    }
    return aligned_alloc(LM_CACHE_LINE, rounded);
}

static void arena_free(struct allocator *self, void *block) {
    (void)self;
    const struct lm_run_arenas *arenas = registered.arenas;
    uint8_t *base = arenas ? arenas->memory.base : NULL;
    uint8_t *at = block;
    if (base && at >= base && at < base + arenas->memory.bytes) {
        size_t index = (size_t)(at - base) / LM_RUN_ARENA_BYTES;
        struct lm_run_arena *arena = &registered.arenas->arenas[index];
        lm_count_relaxed_u64(&arena->live, (uint64_t)-1); /* relaxed: as above */
        return;
    }
    free(block);
}

static const OrtMemoryInfo *arena_info(const struct allocator *self) {
    (void)self;
    return registered.memory_info;
}

int lm_run_arenas_open(struct lm_run_arenas *arenas, struct lm_ort *ort, uint32_t count) {
    memset(arenas, 0, sizeof *arenas);
    if (registered.arenas) {
        return lm_error(LUMEN_E_STATE, "another server of this process has the run arena");
    }
    int code = lm_mapping_reserve(&arenas->memory, (size_t)count * LM_RUN_ARENA_BYTES);
    if (code) return code;
    for (uint32_t a = 0; a < count; a++) {
        arenas->arenas[a].base = (uint8_t *)arenas->memory.base + (size_t)a * LM_RUN_ARENA_BYTES;
        arenas->arenas[a].bytes = LM_RUN_ARENA_BYTES;
    }
    registered.table =
        (struct allocator){LM_ORT_API_VERSION, arena_alloc, arena_free, arena_info, arena_alloc};
    registered.memory_info = ort->cpu_memory;
    registered.arenas = arenas;
    code = lm_ort_check(
        ort, ort->api->RegisterAllocator(ort->env, (OrtAllocator *)(void *)&registered.table),
        "registering the run arena");
    ort->uses_registered_allocator = code == 0;
    arenas->count = code ? 0 : count;
    if (code) lm_run_arenas_close(arenas, ort);
    return code;
}

void lm_run_arenas_bind(struct lm_run_arenas *arenas, uint32_t index, int32_t node) {
    if (index < arenas->count)
        lm_memory_bind(arenas->arenas[index].base, arenas->arenas[index].bytes, node);
}

void lm_run_arenas_close(struct lm_run_arenas *arenas, struct lm_ort *ort) {
    if (ort->uses_registered_allocator) {
        (void)lm_ort_check(ort, ort->api->UnregisterAllocator(ort->env, ort->cpu_memory),
                           "unregistering the run arena");
    }
    ort->uses_registered_allocator = false;
    if (registered.arenas == arenas) registered.arenas = NULL;
    lm_mapping_close(&arenas->memory);
    arenas->count = 0;
}

void lm_run_arena_enter(struct lm_run_arenas *arenas, uint32_t index) {
    /* relaxed: a block that an arena gave goes back to it, whatever this says */
    bool used = index < arenas->count && lm_load_relaxed_u32(&arenas->unused) == 0;
    current = used ? &arenas->arenas[index] : NULL;
}

void lm_run_arenas_use(struct lm_run_arenas *arenas, bool used) {
    lm_store_relaxed_u32(&arenas->unused, !used); /* relaxed: as above */
}

size_t lm_run_arena_leave(void) {
    struct lm_run_arena *arena = current;
    current = NULL;
    if (!arena) return 0;
    /* relaxed: blocks are freed by this thread inside Run, or stay and keep the arena as it is */
    if (lm_load_relaxed_u64(&arena->live) == 0) arena->used = 0;
    return arena->used;
}
