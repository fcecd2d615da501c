/* memory.h: page-granular memory: mapped once at start, pre-faulted, huge pages where to be had.
 * Any thread, at start. */
#ifndef LM_BASE_MEMORY_H
#define LM_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline size_t lm_align_up(size_t value, size_t alignment) {
    return (value + alignment - 1) & ~(alignment - 1);
}

/* Multiplies sizes that come from a model or the network; false when the product does not fit. */
static inline bool lm_mul_size(size_t a, size_t b, size_t *product_out) {
    return !__builtin_mul_overflow(a, b, product_out);
}

struct lm_mapping {
    void *base;
    size_t bytes;
    bool huge_pages; /* the kernel was asked for them and did not refuse */
    bool reserved;   /* they are from the pool that the administrator reserved */
};

/* Maps zeroed private memory, every page touched. Returns 0 or LUMEN_E_NOMEM. */
int lm_mapping_open(struct lm_mapping *mapping, size_t bytes);
/* The same without touching a page: what is never used costs nothing. */
int lm_mapping_reserve(struct lm_mapping *mapping, size_t bytes);
/* The same on the pages that `huge_pages` (LUMEN_HUGE_*) names; where the pool has too few, on
 * transparent ones. */
int lm_mapping_reserve_on(struct lm_mapping *mapping, size_t bytes, uint32_t huge_pages);
/* Writes a byte to each page of the first `bytes`. */
void lm_mapping_touch(struct lm_mapping *mapping, size_t bytes);
void lm_mapping_close(struct lm_mapping *mapping);
/* Gives the memory of whole pages back: they hold zeros from now on. */
void lm_mapping_forget(struct lm_mapping *mapping, size_t at, size_t bytes);

/* Memory that the calling thread maps and first touches from now on lies on this node of the
 * machine, where that has any left; -1: wherever the kernel likes. Where the kernel knows no nodes
 * nothing happens. */
void lm_memory_prefer(int32_t node);
/* The same of a part of a mapping, whoever touches it. */
void lm_memory_bind(void *base, size_t bytes, int32_t node);
/* The same on the node that the calling thread prefers, if any. */
void lm_memory_bind_preferred(void *base, size_t bytes);

/* Where pages lie, as the kernel says of each. */
struct lm_pages {
    uint64_t here;      /* on the node that was asked about */
    uint64_t elsewhere; /* on another */
    uint64_t absent;    /* nowhere: never used */
};
/* Adds the pages of a mapping. false: the kernel does not say. */
bool lm_memory_where(const void *base, size_t bytes, int32_t node, struct lm_pages *pages);

/* The bytes of memory that this process may use: the machine's, or those of its control group. */
uint64_t lm_memory_usable(void);

/* Maps a whole file read-only: one of our own, which is only ever replaced by a rename. Whoever
 * writes into a mapped file changes what is read, and whoever cuts it ends this process. Returns 0
 * or LUMEN_E_IO with the reason. */
int lm_file_map(struct lm_mapping *mapping, const char *path);
/* Reads a whole file of somebody else's into memory. Returns 0 or LUMEN_E_* with the reason. */
int lm_file_read(struct lm_mapping *mapping, const char *path);

#endif
