/* test_response_cache.c: a cache in step with the simplest one that could be: a list in the order
 * of use. And its digests: what differs in a byte, a length or a cut between two parts has another.
 */
#include <sys/uio.h>

#include "check.h"
#include "parts/response_cache.h"

enum { BYTES = LM_RESPONSE_CACHE_BYTES_MIN, BLOCK = 256, KEYS = 400, ENTRY_BYTES_MAX = 20000 };

/* ---- digests ---- */

static struct lm_digest digest_of(const struct lm_hash_key *key, const struct iovec *parts,
                                  uint32_t count) {
    struct lm_hash hash;
    lm_hash_begin(&hash, key);
    for (uint32_t p = 0; p < count; p++) lm_hash_add(&hash, parts[p].iov_base, parts[p].iov_len);
    return lm_hash_end(&hash);
}

static bool same(struct lm_digest a, struct lm_digest b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static struct lm_digest whole(const struct lm_hash_key *key, uint8_t *at, size_t bytes) {
    return digest_of(key, &(struct iovec){at, bytes}, 1);
}

static void digests(uint64_t *random) {
    static uint8_t text[5000], moved[5001];
    struct lm_hash_key key, other;
    lm_hash_key_draw(&key);
    lm_hash_key_draw(&other);
    for (uint32_t round = 0; round < 2000; round++) {
        size_t bytes = 1 + check_below(random, check_below(random, 4) ? 100 : sizeof text - 1);
        for (size_t b = 0; b < bytes; b++)
            text[b] = (uint8_t)(check_below(random, 2) ? 0 : check_random(random));
        CHECK_AT("round %u, %zu bytes", round, bytes);
        struct lm_digest digest = whole(&key, text, bytes);
        memcpy(moved + 1, text, bytes);
        CHECK(same(digest, whole(&key, moved + 1, bytes))); /* wherever it lies */
        CHECK(!same(digest, whole(&other, text, bytes)));
        CHECK(!same(digest, whole(&key, text, bytes - 1)));
        moved[1 + bytes] = 0;
        if (bytes < sizeof text) CHECK(!same(digest, whole(&key, moved + 1, bytes + 1)));
        moved[1 + check_below(random, (uint32_t)bytes)] ^= (uint8_t)(1u << check_below(random, 8));
        CHECK(!same(digest, whole(&key, moved + 1, bytes)));
        size_t cut = check_below(random, (uint32_t)bytes);
        const struct iovec parts[2] = {{text, cut}, {text + cut, bytes - cut}};
        CHECK(!same(digest, digest_of(&key, parts, 2)));
        if (cut == bytes - cut) continue;
        const struct iovec turned[2] = {{text, bytes - cut}, {text + bytes - cut, cut}};
        CHECK(!same(digest_of(&key, parts, 2), digest_of(&key, turned, 2)));
    }
}

/* ---- entries ---- */

/* One entry of the model: which key, how long, and what its bytes are made of. */
struct listed {
    uint32_t key, seed;
    size_t bytes;
};

static struct listed list[1000]; /* the newest first */
static uint32_t listed_count;

static struct lm_digest digest_for(uint32_t key) {
    struct lm_digest digest = {{0}};
    /* Most share their bucket: the first bytes choose it. */
    digest.bytes[0] = (uint8_t)(key % 3);
    memcpy(digest.bytes + 8, &key, sizeof key);
    return digest;
}

static void bytes_for(const struct listed *entry, uint8_t *text) {
    uint64_t random = entry->seed + 1;
    for (size_t b = 0; b < entry->bytes; b++) text[b] = (uint8_t)check_random(&random);
}

static size_t blocks_of(size_t bytes) {
    size_t first = BLOCK - 36, others = BLOCK - 4;
    return bytes <= first ? 1 : 1 + (bytes - first + others - 1) / others;
}

static struct listed take_at(uint32_t at) {
    struct listed taken = list[at];
    memmove(&list[at], &list[at + 1], (--listed_count - at) * sizeof *list);
    return taken;
}

static void put_first(struct listed entry) {
    memmove(&list[1], &list[0], listed_count++ * sizeof *list);
    list[0] = entry;
}

static uint32_t place_of(uint32_t key) {
    uint32_t at = 0;
    while (at < listed_count && list[at].key != key) at++;
    return at;
}

static void look_up(struct lm_response_cache *cache, uint32_t key) {
    static uint8_t expected[ENTRY_BYTES_MAX], found[ENTRY_BYTES_MAX];
    const struct lm_digest digest = digest_for(key);
    struct lm_cache_cursor cursor;
    uint32_t at = place_of(key);
    CHECK(lm_response_cache_find(cache, &digest, &cursor) == (at < listed_count));
    if (at == listed_count) return;
    put_first(take_at(at));
    bytes_for(&list[0], expected);
    size_t bytes = list[0].bytes, half = bytes / 2;
    lm_cache_read(&cursor, found, half); /* in two steps, as it was not written */
    lm_cache_read(&cursor, found + half, bytes - half);
    CHECK(cursor.left == 0 && memcmp(found, expected, bytes) == 0);
}

static void add(struct lm_response_cache *cache, struct listed entry) {
    static uint8_t text[ENTRY_BYTES_MAX];
    const struct lm_digest digest = digest_for(entry.key);
    const size_t all = lm_response_cache_used(cache) / BLOCK + cache->free_count;
    struct lm_cache_cursor cursor;
    uint64_t evictions = cache->evictions;
    bool fits = entry.bytes <= cache->entry_bytes_max && place_of(entry.key) == listed_count;
    CHECK(lm_response_cache_add(cache, &digest, entry.bytes, &cursor) == fits);
    if (!fits) return;
    bytes_for(&entry, text);
    lm_cache_write(&cursor, text, entry.bytes);
    CHECK(cursor.left == 0);
    put_first(entry);
    size_t used = 0;
    for (uint32_t l = 0; l < listed_count; l++) used += blocks_of(list[l].bytes);
    for (; used > all; evictions++) used -= blocks_of(take_at(listed_count - 1).bytes);
    CHECK(cache->evictions == evictions); /* no more than it had to, and the oldest */
    CHECK(cache->entries == listed_count && lm_response_cache_used(cache) == used * BLOCK);
}

static void in_step_with_a_list(uint64_t *random) {
    struct lm_response_cache cache;
    for (uint32_t round = 0; round < 4; round++) {
        listed_count = 0;
        CHECK(lm_response_cache_open(&cache, BYTES) == 0);
        if (round % 2) lm_response_cache_touch(&cache);
        for (uint32_t i = 0; i < 5000; i++) {
            uint32_t key = check_below(random, KEYS);
            uint32_t most = check_below(random, 10) ? 600 : ENTRY_BYTES_MAX;
            CHECK_AT("round %u, step %u, key %u", round, i, key);
            if (check_below(random, 2)) {
                look_up(&cache, key);
            } else {
                add(&cache, (struct listed){key, (uint32_t)check_random(random) >> 1,
                                            check_below(random, most)});
            }
            if (i % 64 == 0) CHECK(lm_response_cache_is_valid(&cache));
        }
        CHECK(cache.evictions > 100);
        lm_response_cache_close(&cache);
    }
}

int main(void) {
    uint64_t random = check_seed();
    digests(&random);
    in_step_with_a_list(&random);
    return check_finish("test_response_cache");
}
