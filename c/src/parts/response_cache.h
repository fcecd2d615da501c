/* response_cache.h: answers by the digest of their request, in memory of a fixed size. The answer
 * that was not asked for longest gives way (LRU).
 *
 * The memory is cut into blocks of 256 bytes. An entry is a chain of them, so that entries of any
 * size share it without gaps, and nothing is allocated after open. One thread: the I/O thread whose
 * it is.
 */
#ifndef LM_PARTS_RESPONSE_CACHE_H
#define LM_PARTS_RESPONSE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "parts/keyed_hash.h"

enum { LM_RESPONSE_CACHE_BYTES_MIN = 64 << 10 };

struct lm_response_cache {
    struct lm_mapping memory;
    uint8_t *blocks;
    uint32_t *buckets; /* first block of the newest entry of each; 0: none */
    uint32_t block_count, bucket_mask;
    uint32_t free_head, free_count;
    uint32_t fresh; /* blocks from here on were never used */
    uint32_t newest, oldest;
    uint32_t entry_bytes_max;
    uint64_t entries;
    uint64_t evictions; /* entries that gave way, since open */
};

/* A place in an entry: reading or writing goes on there. */
struct lm_cache_cursor {
    struct lm_response_cache *cache;
    uint8_t *at;
    uint32_t room;  /* of this block */
    uint32_t block; /* its index */
    uint32_t left;  /* of the entry */
};

/* Returns 0 or LUMEN_E_NOMEM. No page is touched yet. */
int lm_response_cache_open(struct lm_response_cache *cache, size_t bytes);
/* Gives it all its pages, while it is empty. */
void lm_response_cache_touch(struct lm_response_cache *cache);
void lm_response_cache_close(struct lm_response_cache *cache);
/* false: there is no such entry. An entry that is found is the newest. */
bool lm_response_cache_find(struct lm_response_cache *cache, const struct lm_digest *digest,
                            struct lm_cache_cursor *cursor_out);
/* Makes an entry of so many bytes, which the caller writes, all of them, at once. false: it is too
 * large, or is there already. */
bool lm_response_cache_add(struct lm_response_cache *cache, const struct lm_digest *digest,
                           size_t bytes, struct lm_cache_cursor *cursor_out);
/* The next bytes of an entry. */
void lm_cache_read(struct lm_cache_cursor *cursor, void *to, size_t bytes);
void lm_cache_write(struct lm_cache_cursor *cursor, const void *from, size_t bytes);
/* Bytes of the blocks in use. */
uint64_t lm_response_cache_used(const struct lm_response_cache *cache);
bool lm_response_cache_is_valid(const struct lm_response_cache *cache);

#endif
