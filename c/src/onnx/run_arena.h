/* run_arena.h: memory for what ONNX Runtime allocates inside Run: a bump arena per worker, emptied
 * after each Run, offered through the runtime's registered allocator.
 *
 * ONNX Runtime knows one allocator for all sessions, so the arena of the calling thread is found in
 * a thread-local variable, set around Run. Whatever is allocated outside Run, or no longer fits,
 * comes from the C library. A block may be freed on any thread: arenas are told apart by address.
 */
#ifndef LM_ONNX_RUN_ARENA_H
#define LM_ONNX_RUN_ARENA_H

#include "base/atomics.h"
#include "base/limits.h"
#include "base/memory.h"
#include "onnx/ort.h"

struct lm_run_arena {
    LM_CACHE_ALIGNED uint8_t *base;
    size_t bytes;
    size_t used;
    lm_atomic_u64 live; /* blocks not yet freed; the arena is emptied only at 0 */
};

enum { LM_RUN_ARENA_LOADER = LM_RUNNERS_MAX }; /* of the thread that loads a model */

/* All workers' arenas and the loader's, in one mapping; the allocator is registered with the
 * runtime until close. */
struct lm_run_arenas {
    struct lm_mapping memory;
    struct lm_run_arena arenas[LM_RUNNERS_MAX + 1];
    uint32_t count;
    lm_atomic_u32 unused; /* 1: Runs take their memory from malloc */
};

/* Returns 0 or LUMEN_E_*; LUMEN_E_STATE when another server of this process has one. */
int lm_run_arenas_open(struct lm_run_arenas *arenas, struct lm_ort *ort, uint32_t count);
/* The memory of arena `index` lies on this node of the machine, where that has any left. */
void lm_run_arenas_bind(struct lm_run_arenas *arenas, uint32_t index, int32_t node);
/* After the last session is closed. */
void lm_run_arenas_close(struct lm_run_arenas *arenas, struct lm_ort *ort);

/* Between these two the calling thread's allocations come from arena `index`; a no-op without one.
 * The second returns the bytes that the arena keeps, because blocks in it are not freed. */
/* Any thread: whether Runs that begin from here on use them. */
void lm_run_arenas_use(struct lm_run_arenas *arenas, bool used);
void lm_run_arena_enter(struct lm_run_arenas *arenas, uint32_t index);
size_t lm_run_arena_leave(void);

#endif
