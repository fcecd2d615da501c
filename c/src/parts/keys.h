/* keys.h: the clients' keys: who a token belongs to, and what that client may do.
 *
 * Opened by the control thread; read by every I/O thread, which change nothing but the buckets. A
 * token is known by its SHA-256 alone, and its hash is compared with all of them, in a time that
 * depends neither on the keys nor on which one it is. Nothing is remembered between two calls:
 * that costs every request some hundred nanoseconds, and no connection can outlive its key.
 */
#ifndef LM_PARTS_KEYS_H
#define LM_PARTS_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/native_codec.h"
#include "parts/token_bucket.h"

enum { LM_KEY_HASH_BYTES = 32 };

#define LM_KEY_NONE UINT32_MAX /* no key has this index */

struct lm_key {
    struct lm_token_bucket bucket;       /* of its requests a second */
    struct lm_token_bucket token_bucket; /* of its tokens of texts a second */
    char name[LM_KEY_NAME_BYTES_MAX];
    char **model_names;   /* that it may use, NULL behind the last one; NULL: it may use all */
    uint64_t *models;     /* of those that there are: bit m: may use model m */
    uint32_t flags;       /* LUMEN_KEY_* */
    lm_atomic_u32 budget; /* as lm_budgets_find has it; 0: none */
};

/* Read only after open, but for the buckets. */
struct lm_keys {
    struct lm_key *entries;
    uint8_t (*hashes)[LM_KEY_HASH_BYTES]; /* by themselves: a look-up reads all of them */
    uint32_t count;
};

/* What a client presented: a part of the request it was found in. 0 bytes: nothing usable. */
struct lm_token {
    const uint8_t *at;
    size_t bytes;
};

/* Copies names and hashes. Returns 0, or LUMEN_E_* with the key and what is wrong with it; `keys`
 * is then empty. No keys at all is fine: nobody is found. */
int lm_keys_open(struct lm_keys *keys, const lumen_key_config *config, uint32_t count,
                 uint64_t now_ns);
void lm_keys_close(struct lm_keys *keys);
/* The same keys, whose buckets the caller fills. Returns 0 or LUMEN_E_NOMEM. */
int lm_keys_copy(struct lm_keys *keys, const struct lm_keys *from);

/* Before the keys are in force: the model of that number has this name from now on; whoever names
 * it, or its base, may use it, and of those that name their models nobody else. */
void lm_keys_name_model(struct lm_keys *keys, uint32_t model, const char *name, const char *base);

/* Any thread: whose certificate it is, by the SHA-256 of its name; LM_KEY_NONE: nobody's. */
uint32_t lm_keys_find_subject(const struct lm_keys *keys, const uint8_t *hash);
/* Any thread: whose token it is; LM_KEY_NONE: nobody's, or not 1..LM_TOKEN_BYTES_MAX bytes. */
uint32_t lm_keys_find(const struct lm_keys *keys, const uint8_t *token, size_t bytes);

/* A word that stands for the name of a key, whatever number it has; never 0. */
uint64_t lm_key_owner(const char *name);
/* The same of the key of a number; 0: the table has no such key. */
uint64_t lm_keys_owner(const struct lm_keys *keys, uint32_t key);

/* Any thread; `key` is what lm_keys_find returned, and not LM_KEY_NONE. */
bool lm_keys_allow_model(const struct lm_keys *keys, uint32_t key, uint32_t model);
/* The same of a model that is not there yet, by its name. */
bool lm_keys_allow_name(const struct lm_keys *keys, uint32_t key, const char *name,
                        const char *base);
bool lm_keys_is_admin(const struct lm_keys *keys, uint32_t key);
bool lm_keys_is_bulk(const struct lm_keys *keys, uint32_t key);
struct lm_token_bucket *lm_keys_bucket(const struct lm_keys *keys, uint32_t key);
struct lm_token_bucket *lm_keys_token_bucket(const struct lm_keys *keys, uint32_t key);
uint32_t lm_keys_budget(const struct lm_keys *keys, uint32_t key);

/* The token in the value of an Authorization header, without the blanks around it: "Bearer", in any
 * case, one space, and 1..LM_TOKEN_BYTES_MAX visible ASCII characters. */
struct lm_token lm_keys_bearer(const char *value, size_t bytes);
/* The same in the value of X-API-Key: the characters alone. */
struct lm_token lm_keys_api_key(const char *value, size_t bytes);
/* The token in the native protocol's credential, padded with zero bytes at its end. */
struct lm_token lm_keys_credential(const uint8_t credential[LM_NATIVE_CREDENTIAL_BYTES]);

#endif
