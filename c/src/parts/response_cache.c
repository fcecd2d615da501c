/* response_cache.c: see response_cache.h. */
#include "parts/response_cache.h"

#include <string.h>

#include "base/error.h"

/* Block 0 is never used, so that memory as the kernel gives it is an empty cache. */
enum { NONE = 0, BLOCK_BYTES = 256, SHARE_MAX = 4 };

/* At the start of an entry's first block; further blocks have `next` alone. */
struct head {
    uint32_t next; /* block of the entry, or of the free list */
    uint32_t bytes;
    uint32_t older, newer;   /* entries, by their first block */
    uint32_t bucket_next;    /* entry of the same bucket */
    struct lm_digest digest; /* under which it is found */
};
_Static_assert(sizeof(struct head) < BLOCK_BYTES / 2, "a small answer fits one block");

static uint8_t *block_at(const struct lm_response_cache *cache, uint32_t block) {
    return cache->blocks + (size_t)block * BLOCK_BYTES;
}

static struct head *head_of(const struct lm_response_cache *cache, uint32_t block) {
    return (struct head *)(void *)block_at(cache, block);
}

static uint32_t blocks_for(size_t bytes) {
    const size_t first = BLOCK_BYTES - sizeof(struct head);
    const size_t others = BLOCK_BYTES - sizeof(uint32_t);
    return bytes <= first ? 1 : 1 + (uint32_t)((bytes - first + others - 1) / others);
}

int lm_response_cache_open(struct lm_response_cache *cache, size_t bytes) {
    LM_ASSERT(bytes >= LM_RESPONSE_CACHE_BYTES_MIN);
    *cache = (struct lm_response_cache){.newest = NONE, .oldest = NONE, .free_head = NONE};
    int code = lm_mapping_reserve(&cache->memory, bytes);
    if (code) return code;
    uint32_t buckets = 64; /* about one for each block: a word in 65 of the memory */
    while ((size_t)buckets * 2 * BLOCK_BYTES <= bytes && buckets < 1u << 31) buckets *= 2;
    size_t table = lm_align_up(buckets * sizeof *cache->buckets, BLOCK_BYTES);
    size_t blocks = (bytes - table) / BLOCK_BYTES;
    cache->buckets = cache->memory.base;
    cache->blocks = (uint8_t *)cache->memory.base + table;
    cache->bucket_mask = buckets - 1;
    cache->block_count = blocks < UINT32_MAX ? (uint32_t)blocks : UINT32_MAX;
    cache->fresh = 1;
    cache->free_count = cache->block_count - 1;
    size_t share = (size_t)cache->block_count / SHARE_MAX * (BLOCK_BYTES - sizeof(uint32_t));
    cache->entry_bytes_max = share < UINT32_MAX / 2 ? (uint32_t)share : UINT32_MAX / 2;
    return 0;
}

void lm_response_cache_touch(struct lm_response_cache *cache) {
    lm_mapping_touch(&cache->memory, cache->memory.bytes);
}

void lm_response_cache_close(struct lm_response_cache *cache) {
    lm_mapping_close(&cache->memory);
    *cache = (struct lm_response_cache){.blocks = NULL};
}

/* ---- the two lists that an entry is in ---- */

static uint32_t *bucket_of(const struct lm_response_cache *cache, const struct lm_digest *digest) {
    uint32_t word;
    memcpy(&word, digest->bytes, sizeof word);
    return &cache->buckets[word & cache->bucket_mask];
}

static void put_newest(struct lm_response_cache *cache, uint32_t entry) {
    struct head *head = head_of(cache, entry);
    head->older = cache->newest;
    head->newer = NONE;
    if (cache->newest == NONE) {
        cache->oldest = entry;
    } else {
        head_of(cache, cache->newest)->newer = entry;
    }
    cache->newest = entry;
}

static void take_out(struct lm_response_cache *cache, uint32_t entry) {
    const struct head *head = head_of(cache, entry);
    *(head->older == NONE ? &cache->oldest : &head_of(cache, head->older)->newer) = head->newer;
    *(head->newer == NONE ? &cache->newest : &head_of(cache, head->newer)->older) = head->older;
}

static void evict(struct lm_response_cache *cache) {
    const uint32_t entry = cache->oldest;
    const struct head *head = head_of(cache, entry);
    uint32_t *link = bucket_of(cache, &head->digest);
    while (*link != entry) link = &head_of(cache, *link)->bucket_next;
    *link = head->bucket_next;
    take_out(cache, entry);
    cache->free_count += blocks_for(head->bytes);
    uint32_t last = entry;
    while (head_of(cache, last)->next != NONE) last = head_of(cache, last)->next;
    head_of(cache, last)->next = cache->free_head;
    cache->free_head = entry;
    cache->entries--;
    cache->evictions++;
}

/* One that was given back, or has never been used: its page may be untouched. */
static uint32_t take_block(struct lm_response_cache *cache) {
    uint32_t block = cache->free_head;
    cache->free_count--;
    if (block == NONE) return cache->fresh++;
    cache->free_head = head_of(cache, block)->next;
    return block;
}

/* ---- entries ---- */

static uint32_t find(const struct lm_response_cache *cache, const struct lm_digest *digest) {
    uint32_t entry = *bucket_of(cache, digest);
    while (entry != NONE && memcmp(&head_of(cache, entry)->digest, digest, sizeof *digest) != 0)
        entry = head_of(cache, entry)->bucket_next;
    return entry;
}

static struct lm_cache_cursor cursor_at(struct lm_response_cache *cache, uint32_t entry) {
    return (struct lm_cache_cursor){.cache = cache,
                                    .at = block_at(cache, entry) + sizeof(struct head),
                                    .room = BLOCK_BYTES - sizeof(struct head),
                                    .block = entry,
                                    .left = head_of(cache, entry)->bytes};
}

bool lm_response_cache_find(struct lm_response_cache *cache, const struct lm_digest *digest,
                            struct lm_cache_cursor *cursor_out) {
    uint32_t entry = find(cache, digest);
    if (entry == NONE) return false;
    if (entry != cache->newest) {
        take_out(cache, entry);
        put_newest(cache, entry);
    }
    *cursor_out = cursor_at(cache, entry);
    return true;
}

bool lm_response_cache_add(struct lm_response_cache *cache, const struct lm_digest *digest,
                           size_t bytes, struct lm_cache_cursor *cursor_out) {
    if (bytes > cache->entry_bytes_max || find(cache, digest) != NONE) return false;
    const uint32_t needed = blocks_for(bytes);
    while (cache->free_count < needed) evict(cache);
    const uint32_t entry = take_block(cache);
    uint32_t last = entry;
    for (uint32_t b = 1; b < needed; b++) {
        uint32_t block = take_block(cache);
        head_of(cache, last)->next = block;
        last = block;
    }
    head_of(cache, last)->next = NONE;
    struct head *head = head_of(cache, entry);
    uint32_t *bucket = bucket_of(cache, digest);
    head->bytes = (uint32_t)bytes;
    head->digest = *digest;
    head->bucket_next = *bucket;
    *bucket = entry;
    put_newest(cache, entry);
    cache->entries++;
    *cursor_out = cursor_at(cache, entry);
    return true;
}

/* Bytes of the block that are next, at most so many. */
static uint8_t *next_bytes(struct lm_cache_cursor *cursor, size_t bytes, size_t *taken_out) {
    LM_ASSERT(bytes <= cursor->left);
    if (cursor->room == 0) {
        cursor->block = head_of(cursor->cache, cursor->block)->next;
        cursor->at = block_at(cursor->cache, cursor->block) + sizeof(uint32_t);
        cursor->room = BLOCK_BYTES - sizeof(uint32_t);
    }
    uint8_t *at = cursor->at;
    uint32_t taken = bytes < cursor->room ? (uint32_t)bytes : cursor->room;
    cursor->at += taken;
    cursor->room -= taken;
    cursor->left -= taken;
    *taken_out = taken;
    return at;
}

void lm_cache_read(struct lm_cache_cursor *cursor, void *to, size_t bytes) {
    for (size_t done = 0, taken; done < bytes; done += taken) {
        const uint8_t *at = next_bytes(cursor, bytes - done, &taken);
        memcpy((uint8_t *)to + done, at, taken);
    }
}

void lm_cache_write(struct lm_cache_cursor *cursor, const void *from, size_t bytes) {
    for (size_t done = 0, taken; done < bytes; done += taken) {
        uint8_t *at = next_bytes(cursor, bytes - done, &taken);
        memcpy(at, (const uint8_t *)from + done, taken);
    }
}

uint64_t lm_response_cache_used(const struct lm_response_cache *cache) {
    return (uint64_t)(cache->block_count - 1 - cache->free_count) * BLOCK_BYTES;
}

bool lm_response_cache_is_valid(const struct lm_response_cache *cache) {
    uint64_t entries = 0, used = 0, free = 0;
    uint32_t newer = NONE;
    for (uint32_t e = cache->newest; e != NONE; e = head_of(cache, e)->older) {
        const struct head *head = head_of(cache, e);
        uint32_t chain = 1;
        for (uint32_t b = e; head_of(cache, b)->next != NONE; chain++) b = head_of(cache, b)->next;
        if (head->newer != newer || chain != blocks_for(head->bytes)) return false;
        if (find(cache, &head->digest) != e) return false;
        used += chain;
        entries++;
        newer = e;
    }
    for (uint32_t b = cache->free_head; b != NONE; b = head_of(cache, b)->next) free++;
    free += cache->block_count - cache->fresh;
    return newer == cache->oldest && entries == cache->entries && free == cache->free_count &&
           1 + used + free == cache->block_count;
}
