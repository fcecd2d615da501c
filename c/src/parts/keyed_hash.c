/* keyed_hash.c: see keyed_hash.h. */
#include "parts/keyed_hash.h"

#include <string.h>

enum { BLOCK_BYTES = LM_HASH_BLOCK_WORDS * sizeof(uint64_t) };

/* What Poly1305 gets for a block. */
struct nh {
    unsigned __int128 first, second;
};

void lm_hash_key_draw(struct lm_hash_key *key) {
    randombytes_buf(key, sizeof *key);
}

void lm_hash_begin(struct lm_hash *hash, const struct lm_hash_key *key) {
    hash->key = key;
    crypto_onetimeauth_poly1305_init(&hash->poly, key->poly);
}

static inline uint64_t word_at(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word); /* little-endian, as we are */
    return word;
}

/* So many pairs of words. NH adds products of sums: for two blocks that differ, both sums of a key
 * agree for one in 2^64 keys, and those of the shifted key independently so. */
static struct nh nh_of(const uint64_t *key, const uint8_t *data, size_t pairs) {
    struct nh sums = {0, 0};
    for (size_t p = 0; p < pairs; p++, key += 2, data += 16) {
        uint64_t a = word_at(data), b = word_at(data + 8);
        sums.first += (unsigned __int128)(a + key[0]) * (b + key[1]);
        sums.second += (unsigned __int128)(a + key[2]) * (b + key[3]);
    }
    return sums;
}

static void add_block(struct lm_hash *hash, const uint8_t *data, size_t pairs) {
    struct nh sums = nh_of(hash->key->words, data, pairs);
    crypto_onetimeauth_poly1305_update(&hash->poly, (const uint8_t *)&sums, sizeof sums);
}

void lm_hash_add(struct lm_hash *hash, const void *data, size_t bytes) {
    const uint8_t *at = data;
    /* The length tells padding from zeros, and this part from the next one. */
    const uint64_t length[2] = {bytes, 0};
    crypto_onetimeauth_poly1305_update(&hash->poly, (const uint8_t *)length, sizeof length);
    for (; bytes >= BLOCK_BYTES; at += BLOCK_BYTES, bytes -= BLOCK_BYTES)
        add_block(hash, at, LM_HASH_BLOCK_WORDS / 2);
    size_t whole = bytes / 16, rest = bytes % 16;
    if (rest == 0) {
        if (whole) add_block(hash, at, whole);
        return;
    }
    uint8_t last[BLOCK_BYTES];
    memcpy(last, at, bytes);
    memset(last + bytes, 0, 16 - rest);
    add_block(hash, last, whole + 1);
}

struct lm_digest lm_hash_end(struct lm_hash *hash) {
    struct lm_digest digest;
    crypto_onetimeauth_poly1305_final(&hash->poly, digest.bytes);
    return digest;
}
