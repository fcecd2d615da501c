/* keyed_hash.h: 128 bits that stand for a request's bytes, under a key that is drawn at start.
 *
 * NH (of UMAC, RFC 4418), twice, over blocks of 1 KiB, and Poly1305 over what that gives. For any
 * two messages of at most LM_CACHED_BYTES_MAX that were chosen without knowledge of the key, the
 * chance of one digest is below 2^-80: so an answer can be found by the digest alone, and the
 * request's own bytes need not be kept beside it. The digests must not leave the process. The
 * messages are lists of parts: lists of other lengths differ, whatever their bytes.
 *
 * Any one thread at a time; the key is read-only.
 */
#ifndef LM_PARTS_KEYED_HASH_H
#define LM_PARTS_KEYED_HASH_H

#include <sodium.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LM_DIGEST_BYTES = 16,
    LM_HASH_BLOCK_WORDS = 128,
    LM_HASH_SHIFT_WORDS = 2 /* of the second NH's key, behind the first one's (Toeplitz) */
};

struct lm_hash_key {
    uint64_t words[LM_HASH_BLOCK_WORDS + LM_HASH_SHIFT_WORDS];
    uint8_t poly[crypto_onetimeauth_poly1305_KEYBYTES];
};

struct lm_digest {
    uint8_t bytes[LM_DIGEST_BYTES];
};

struct lm_hash {
    const struct lm_hash_key *key;
    crypto_onetimeauth_poly1305_state poly;
};

void lm_hash_key_draw(struct lm_hash_key *key);

void lm_hash_begin(struct lm_hash *hash, const struct lm_hash_key *key);
/* One part of the message, at any address. */
void lm_hash_add(struct lm_hash *hash, const void *data, size_t bytes);
struct lm_digest lm_hash_end(struct lm_hash *hash);

#endif
