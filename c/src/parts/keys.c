/* keys.c: see keys.h. SHA-256 and the comparison are libsodium's; neither allocates. */
#include "parts/keys.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

_Static_assert((int)LM_KEY_HASH_BYTES == (int)crypto_hash_sha256_BYTES, "one hash");
_Static_assert((int)LM_KEY_HASH_BYTES == (int)crypto_verify_32_BYTES, "compared as a whole");
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
    for (uint32_t m = 0; key->models && m < key->model_count; m++) {
        if (!key->models[m])
            return lm_error(LUMEN_E_INVALID, "key '%s': models: expected names, found NULL",
                            key->name);
    }
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

/* ---- rights ---- */

enum { RIGHTS_BYTES = LUMEN_MODELS_MAX / 8 };

/* The names, each with its NUL behind the list of them, in one piece of memory; and nobody's right
 * yet. Returns 0 or LUMEN_E_NOMEM. */
static int hold_rights(struct lm_key *key, const char *const *names, uint32_t count) {
    size_t bytes = (count + 1) * sizeof *key->model_names;
    for (uint32_t m = 0; m < count; m++) bytes += strlen(names[m]) + 1;
    key->model_names = malloc(bytes);
    key->models = calloc(1, RIGHTS_BYTES);
    if (!key->model_names || !key->models)
        return lm_error(LUMEN_E_NOMEM, "no memory for the models of key '%s'", key->name);
    char *at = (char *)(key->model_names + count + 1);
    for (uint32_t m = 0; m < count; m++) {
        key->model_names[m] = at;
        at = stpcpy(at, names[m]) + 1;
    }
    key->model_names[count] = NULL;
    return 0;
}

static int copy_rights(struct lm_key *key, const struct lm_key *from) {
    uint32_t count = 0;
    if (!from->models) return 0;
    while (from->model_names[count]) count++;
    int code = hold_rights(key, (const char *const *)from->model_names, count);
    if (!code) memcpy(key->models, from->models, RIGHTS_BYTES);
    return code;
}

void lm_keys_name_model(struct lm_keys *keys, uint32_t model, const char *name, const char *base) {
    LM_ASSERT(model < LUMEN_MODELS_MAX);
    for (uint32_t k = 0; k < keys->count; k++) {
        const struct lm_key *key = &keys->entries[k];
        if (!key->models) continue;
        uint64_t *word = &key->models[model / 64], bit = 1ull << model % 64;
        *word = lm_keys_allow_name(keys, k, name, base) ? *word | bit : *word & ~bit;
    }
}

bool lm_keys_allow_name(const struct lm_keys *keys, uint32_t key, const char *name,
                        const char *base) {
    LM_DEBUG_ASSERT(key < keys->count);
    bool is_named = false;
    if (!keys->entries[key].models) return true;
    for (char **named = keys->entries[key].model_names; *named && !is_named; named++)
        is_named = strcmp(*named, name) == 0 || strcmp(*named, base) == 0;
    return is_named;
}

/* ---- all keys ---- */

static int hold(struct lm_keys *keys, uint32_t count) {
    const size_t bytes = count * sizeof *keys->entries;
    keys->entries = aligned_alloc(LM_CACHE_LINE, bytes);
    keys->hashes = calloc(count, sizeof *keys->hashes);
    if (keys->entries) memset(keys->entries, 0, bytes);
    if (keys->entries && keys->hashes) return 0;
    return lm_error(LUMEN_E_NOMEM, "no memory for %u keys", count);
}

static int open_key(struct lm_key *key, const lumen_key_config *config, uint64_t now_ns) {
    key->flags = config->flags;
    memcpy(key->name, config->name, strlen(config->name) + 1);
    lm_token_bucket_init(&key->bucket, config->rate, config->burst, now_ns);
    lm_token_bucket_init(&key->token_bucket, config->token_rate, config->token_burst, now_ns);
    return config->models ? hold_rights(key, config->models, config->model_count) : 0;
}

int lm_keys_open(struct lm_keys *keys, const lumen_key_config *config, uint32_t count,
                 uint64_t now_ns) {
    *keys = (struct lm_keys){0};
    int code = check(config, count);
    if (code || count == 0) return code;
    if (sodium_init() < 0)
        return lm_error(LUMEN_E_UNSUPPORTED, "keys: libsodium cannot be set up on this system");
    code = hold(keys, count);
    for (; !code && keys->count < count; keys->count++) {
        memcpy(keys->hashes[keys->count], config[keys->count].sha256, LM_KEY_HASH_BYTES);
        code = open_key(&keys->entries[keys->count], &config[keys->count], now_ns);
    }
    if (code) lm_keys_close(keys);
    return code;
}

int lm_keys_copy(struct lm_keys *keys, const struct lm_keys *from) {
    *keys = (struct lm_keys){0};
    if (from->count == 0) return 0;
    int code = hold(keys, from->count);
    for (; !code && keys->count < from->count; keys->count++) {
        const struct lm_key *key = &from->entries[keys->count];
        struct lm_key *copy = &keys->entries[keys->count];
        copy->flags = key->flags;
        lm_store_relaxed_u32(&copy->budget, /* relaxed: the table is published later */
                             lm_load_relaxed_u32(&key->budget));
        memcpy(copy->name, key->name, sizeof key->name);
        memcpy(keys->hashes[keys->count], from->hashes[keys->count], LM_KEY_HASH_BYTES);
        code = copy_rights(copy, key);
    }
    if (code) lm_keys_close(keys);
    return code;
}

void lm_keys_close(struct lm_keys *keys) {
    for (uint32_t k = 0; keys->entries && k < keys->count; k++) {
        free(keys->entries[k].model_names);
        free(keys->entries[k].models);
    }
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
    const uint64_t *models = keys->entries[key].models;
    return model < LUMEN_MODELS_MAX && (!models || (models[model / 64] >> model % 64 & 1));
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

uint64_t lm_key_owner(const char *name) {
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a: no client chooses the names of keys */
    while (*name) hash = (hash ^ (uint8_t)*name++) * 0x100000001b3;
    return hash ? hash : 1;
}

uint64_t lm_keys_owner(const struct lm_keys *keys, uint32_t key) {
    return key < keys->count ? lm_key_owner(keys->entries[key].name) : 0;
}
