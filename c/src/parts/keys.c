/* keys.c: see keys.h. SHA-256 and the comparison are libsodium's; neither allocates. */
#include "parts/keys.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

_Static_assert((int)LM_KEY_HASH_BYTES == (int)crypto_hash_sha256_BYTES, "one hash");
_Static_assert((int)LM_KEY_HASH_BYTES == (int)crypto_verify_32_BYTES, "compared as a whole");
_Static_assert(LUMEN_MODELS_MAX <= 64, "a key's models are one 64-bit word");
_Static_assert(sizeof(((lumen_key_config *)0)->sha256) == LM_KEY_HASH_BYTES, "the same hash");

/* ---- opening ---- */

static bool is_visible(uint8_t byte) {
    return byte > ' ' && byte < 0x7f;
}

/* Names appear in messages and as labels of metrics: no controls. Any UTF-8 is fine. */
static int check_name(const char *name, uint32_t index) {
    size_t bytes = name ? strnlen(name, LM_KEY_NAME_BYTES_MAX) : 0;
    if (bytes < 1 || bytes >= LM_KEY_NAME_BYTES_MAX) {
        return lm_error(LUMEN_E_INVALID, "key %u: name: expected 1 to %d bytes, found %s", index,
                        LM_KEY_NAME_BYTES_MAX - 1, bytes ? "more" : "none");
    }
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)name[i];
        if (byte >= ' ' && byte != 0x7f) continue;
        return lm_error(LUMEN_E_INVALID, "key %u: name: byte %zu is a control character, %u", index,
                        i, byte);
    }
    return 0;
}

static int check_rate(const char *name, const char *of, double rate, uint32_t burst) {
    /* Written so that a NaN is out of range. */
    if (!(rate == 0 || (rate >= LM_RATE_MIN && rate <= LM_RATE_MAX))) {
        return lm_error(LUMEN_E_INVALID, "key '%s': %srate: expected 0 or %g to %g, found %g", name,
                        of, LM_RATE_MIN, LM_RATE_MAX, rate);
    }
    if (rate > 0 && burst == 0) {
        return lm_error(LUMEN_E_INVALID,
                        "key '%s': %sburst: expected at least 1 where %srate is set, found 0", name,
                        of, of);
    }
    return 0;
}

static int check_limits(const lumen_key_config *key) {
    int code = check_rate(key->name, "", key->rate, key->burst);
    if (!code) code = check_rate(key->name, "token_", key->token_rate, key->token_burst);
    if (code) return code;
    if (key->flags & ~(uint32_t)LUMEN_KEY_FLAGS) {
        return lm_error(LUMEN_E_INVALID, "key '%s': flags: expected 0 to %d, found %u", key->name,
                        LUMEN_KEY_FLAGS, key->flags);
    }
    return 0;
}

static int check_unlike(const lumen_key_config *config, uint32_t index) {
    const lumen_key_config *key = &config[index];
    for (uint32_t other = 0; other < index; other++) {
        if (strcmp(config[other].name, key->name) == 0) {
            return lm_error(LUMEN_E_INVALID, "key '%s': two keys have this name, %u and %u",
                            key->name, other, index);
        }
        if (memcmp(config[other].sha256, key->sha256, LM_KEY_HASH_BYTES) == 0) {
            return lm_error(LUMEN_E_INVALID, "keys '%s' and '%s' have the same token",
                            config[other].name, key->name);
        }
    }
    return 0;
}

static int check(const lumen_key_config *config, uint32_t count) {
    if (count > LUMEN_KEYS_MAX) {
        return lm_error(LUMEN_E_INVALID, "keys: expected at most %d, found %u", LUMEN_KEYS_MAX,
                        count);
    }
    if (count > 0 && !config) return lm_error(LUMEN_E_INVALID, "keys: %u of them at NULL", count);
    int code = 0;
    for (uint32_t i = 0; !code && i < count; i++) {
        code = check_name(config[i].name, i);
        if (!code) code = check_limits(&config[i]);
        if (!code) code = check_unlike(config, i);
    }
    return code;
}

int lm_keys_open(struct lm_keys *keys, const lumen_key_config *config, uint32_t count,
                 uint64_t now_ns) {
    *keys = (struct lm_keys){0};
    int code = check(config, count);
    if (code || count == 0) return code;
    if (sodium_init() < 0)
        return lm_error(LUMEN_E_UNSUPPORTED, "keys: libsodium cannot be set up on this system");
    keys->entries = aligned_alloc(LM_CACHE_LINE, count * sizeof *keys->entries);
    keys->hashes = calloc(count, sizeof *keys->hashes);
    if (!keys->entries || !keys->hashes) {
        lm_keys_close(keys);
        return lm_error(LUMEN_E_NOMEM, "no memory for %u keys", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct lm_key *key = &keys->entries[i];
        *key = (struct lm_key){.models = config[i].models, .flags = config[i].flags};
        memcpy(key->name, config[i].name, strlen(config[i].name) + 1);
        memcpy(keys->hashes[i], config[i].sha256, LM_KEY_HASH_BYTES);
        lm_token_bucket_init(&key->bucket, config[i].rate, config[i].burst, now_ns);
        lm_token_bucket_init(&key->token_bucket, config[i].token_rate, config[i].token_burst,
                             now_ns);
    }
    keys->count = count;
    return 0;
}

int lm_keys_copy(struct lm_keys *keys, const struct lm_keys *from) {
    *keys = (struct lm_keys){0};
    if (from->count == 0) return 0;
    keys->entries = aligned_alloc(LM_CACHE_LINE, from->count * sizeof *keys->entries);
    keys->hashes = calloc(from->count, sizeof *keys->hashes);
    if (!keys->entries || !keys->hashes) {
        lm_keys_close(keys);
        return lm_error(LUMEN_E_NOMEM, "no memory for %u keys", from->count);
    }
    for (uint32_t i = 0; i < from->count; i++) {
        const struct lm_key *key = &from->entries[i];
        keys->entries[i] = (struct lm_key){.models = key->models, .flags = key->flags};
        lm_store_relaxed_u32(&keys->entries[i].budget, /* relaxed: the table is published later */
                             lm_load_relaxed_u32(&key->budget));
        memcpy(keys->entries[i].name, key->name, sizeof key->name);
        memcpy(keys->hashes[i], from->hashes[i], LM_KEY_HASH_BYTES);
    }
    keys->count = from->count;
    return 0;
}

void lm_keys_forget_model(struct lm_keys *keys, uint32_t model) {
    for (uint32_t k = 0; k < keys->count; k++) {
        uint64_t *models = &keys->entries[k].models;
        if (*models != UINT64_MAX) *models &= ~(1ull << model); /* or it names none, but all */
    }
}

void lm_keys_close(struct lm_keys *keys) {
    free(keys->entries);
    free(keys->hashes);
    *keys = (struct lm_keys){0};
}

/* ---- asking ---- */

/* Among the keys of tokens, or those of certificates: `kind` is 0 or LUMEN_KEY_SUBJECT. */
static uint32_t find(const struct lm_keys *keys, const uint8_t *hash, uint32_t kind) {
    uint32_t found = 0; /* index + 1 */
    for (uint32_t i = 0; i < keys->count; i++) {
        /* 0 where equal, else -1: a mask, so that no jump depends on what is in the table. */
        uint32_t mask = ~(uint32_t)crypto_verify_32(hash, keys->hashes[i]);
        if ((keys->entries[i].flags & LUMEN_KEY_SUBJECT) == kind) found |= mask & (i + 1);
    }
    return found - 1; /* 0 becomes LM_KEY_NONE */
}

uint32_t lm_keys_find(const struct lm_keys *keys, const uint8_t *token, size_t bytes) {
    if (bytes < 1 || bytes > LM_TOKEN_BYTES_MAX) return LM_KEY_NONE;
    uint8_t hash[LM_KEY_HASH_BYTES];
    crypto_hash_sha256(hash, token, bytes);
    return find(keys, hash, 0);
}

uint32_t lm_keys_find_subject(const struct lm_keys *keys, const uint8_t *hash) {
    return find(keys, hash, LUMEN_KEY_SUBJECT);
}

bool lm_keys_allow_model(const struct lm_keys *keys, uint32_t key, uint32_t model) {
    LM_DEBUG_ASSERT(key < keys->count);
    return model < LUMEN_MODELS_MAX && (keys->entries[key].models >> model & 1);
}

bool lm_keys_is_admin(const struct lm_keys *keys, uint32_t key) {
    LM_DEBUG_ASSERT(key < keys->count);
    return keys->entries[key].flags & LUMEN_KEY_ADMIN;
}

bool lm_keys_is_bulk(const struct lm_keys *keys, uint32_t key) {
    LM_DEBUG_ASSERT(key < keys->count);
    return keys->entries[key].flags & LUMEN_KEY_BULK;
}

struct lm_token_bucket *lm_keys_bucket(const struct lm_keys *keys, uint32_t key) {
    LM_DEBUG_ASSERT(key < keys->count);
    return &keys->entries[key].bucket;
}

struct lm_token_bucket *lm_keys_token_bucket(const struct lm_keys *keys, uint32_t key) {
    LM_DEBUG_ASSERT(key < keys->count);
    return &keys->entries[key].token_bucket;
}

uint32_t lm_keys_budget(const struct lm_keys *keys, uint32_t key) {
    LM_DEBUG_ASSERT(key < keys->count);
    return lm_load_relaxed_u32(
        &keys->entries[key].budget); /* relaxed: the entry is in B1's memory */
}

/* ---- where tokens are found ---- */

struct lm_token lm_keys_api_key(const char *value, size_t bytes) {
    const struct lm_token none = {0};
    if (bytes < 1 || bytes > LM_TOKEN_BYTES_MAX) return none;
    for (size_t i = 0; i < bytes; i++) {
        if (!is_visible((uint8_t)value[i])) return none;
    }
    return (struct lm_token){(const uint8_t *)value, bytes};
}

struct lm_token lm_keys_bearer(const char *value, size_t bytes) {
    static const char scheme[] = "bearer ";
    const size_t scheme_bytes = sizeof scheme - 1;
    if (bytes < scheme_bytes) return (struct lm_token){0};
    for (size_t i = 0; i < scheme_bytes; i++) {
        char byte = value[i];
        if (byte >= 'A' && byte <= 'Z') byte = (char)(byte | 0x20);
        if (byte != scheme[i]) return (struct lm_token){0};
    }
    return lm_keys_api_key(value + scheme_bytes, bytes - scheme_bytes);
}

struct lm_token lm_keys_credential(const uint8_t credential[LM_NATIVE_CREDENTIAL_BYTES]) {
    size_t bytes = LM_NATIVE_CREDENTIAL_BYTES;
    while (bytes > 0 && credential[bytes - 1] == 0) bytes--;
    /* A zero inside is no padding: such a token could not be told from a shorter one everywhere. */
    if (memchr(credential, 0, bytes)) bytes = 0;
    return (struct lm_token){credential, bytes};
}
