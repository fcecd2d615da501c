/* test_keys.c: whose token it is, what a key may do, which tables are refused, and where in a
 * request a token is found. Hashes come from the command `printf TOKEN | sha256sum`, or are made
 * here by libsodium, which the known ones vouch for. */
#include <math.h>
#include <sodium.h>

#include "base/error.h"
#include "check.h"
#include "parts/keys.h"

static struct check_guard guard;

/* The same bytes, the last one before an unreadable page. */
static const uint8_t *at_the_edge(const void *bytes, size_t count) {
    uint8_t *at = check_guard_tail(&guard, count);
    memcpy(at, bytes, count);
    return at;
}

static lumen_key_config entry(const char *name, const char *token) {
    lumen_key_config key = {.name = name};
    crypto_hash_sha256(key.sha256, (const uint8_t *)token, strlen(token));
    return key;
}

static uint32_t find(const struct lm_keys *keys, const char *token) {
    return lm_keys_find(keys, at_the_edge(token, strlen(token)), strlen(token));
}

/* ---- finding ---- */

/* printf abc | sha256sum */
static const uint8_t abc_hash[] = {0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40,
                                   0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17,
                                   0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};

static void known_hash(void) {
    struct lm_keys keys;
    lumen_key_config config = {.name = "abc"};
    memcpy(config.sha256, abc_hash, sizeof abc_hash);
    CHECK(lm_keys_open(&keys, &config, 1, 0) == 0);
    CHECK(find(&keys, "abc") == 0);
    CHECK(find(&keys, "abd") == LM_KEY_NONE && find(&keys, "ab") == LM_KEY_NONE);
    lm_keys_close(&keys);
    CHECK(keys.count == 0);
    CHECK(find(&keys, "abc") == LM_KEY_NONE);
}

/* A hash that differs in any one bit is another key's. */
static void the_whole_hash_counts(void) {
    struct lm_keys keys;
    for (uint32_t bit = 0; bit < 8 * sizeof abc_hash; bit += 5) {
        lumen_key_config config[] = {entry("other", "x"), entry("abc", "abc")};
        CHECK_AT("bit %u", bit);
        config[0] = config[1];
        config[0].name = "other";
        config[0].sha256[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(lm_keys_open(&keys, config, 1, 0) == 0 && find(&keys, "abc") == LM_KEY_NONE);
        lm_keys_close(&keys);
        CHECK(lm_keys_open(&keys, config, 2, 0) == 0 && find(&keys, "abc") == 1);
        lm_keys_close(&keys);
    }
}

static void every_key_is_found(uint64_t *random) {
    static char names[LUMEN_KEYS_MAX][16], tokens[LUMEN_KEYS_MAX][LM_TOKEN_BYTES_MAX + 1];
    static const uint32_t counts[] = {1, 2, 3, 64, LUMEN_KEYS_MAX};
    lumen_key_config config[LUMEN_KEYS_MAX];
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        struct lm_keys keys;
        for (uint32_t i = 0; i < counts[c]; i++) {
            uint32_t bytes = 8 + check_below(random, LM_TOKEN_BYTES_MAX - 7);
            if (i == 0) bytes = LM_TOKEN_BYTES_MAX;
            memset(tokens[i], 0, sizeof tokens[i]);
            for (uint32_t b = 0; b < bytes; b++)
                tokens[i][b] = (char)('!' + check_below(random, 94));
            snprintf(names[i], sizeof names[i], "key %u", i);
            config[i] = entry(names[i], tokens[i]);
        }
        CHECK(lm_keys_open(&keys, config, counts[c], 0) == 0);
        for (uint32_t i = 0; i < counts[c]; i++) {
            CHECK_AT("key %u of %u", i, counts[c]);
            CHECK(find(&keys, tokens[i]) == i);
            tokens[i][check_below(random, 8)] ^= 1;
            CHECK(find(&keys, tokens[i]) == LM_KEY_NONE);
        }
        lm_keys_close(&keys);
    }
}

static void lengths(void) {
    static const uint8_t long_one[LM_TOKEN_BYTES_MAX + 1] = {'x'};
    lumen_key_config config = entry("short", "x");
    struct lm_keys keys;
    CHECK(lm_keys_open(&keys, &config, 1, 0) == 0);
    CHECK(find(&keys, "x") == 0 && find(&keys, "") == LM_KEY_NONE);
    crypto_hash_sha256(keys.hashes[0], long_one, sizeof long_one);
    CHECK(lm_keys_find(&keys, long_one, sizeof long_one) == LM_KEY_NONE);
    CHECK(lm_keys_find(&keys, long_one, SIZE_MAX) == LM_KEY_NONE);
    lm_keys_close(&keys);
}

/* ---- what a key may do ---- */

static void rights(void) {
    struct lm_keys keys;
    lumen_key_config config[] = {entry("all", "a"), entry("two", "b"), entry("none", "c")};
    config[0].flags = LUMEN_KEY_ADMIN;
    static char iris[] = "iris", wine[] = "wine:3";
    const char *const named[] = {iris, wine};
    config[1].models = named;
    config[1].model_count = 2;
    config[1].rate = 1000;
    config[1].burst = 2;
    config[2].models = named;
    config[2].token_rate = 1000;
    config[2].token_burst = 5;
    CHECK(lm_keys_open(&keys, config, 3, 77) == 0);
    iris[0] = wine[0] = 'x'; /* the names were copied */
    for (uint32_t m = 0; m < LUMEN_MODELS_MAX; m++) {
        CHECK_AT("model %u", m);
        CHECK(lm_keys_allow_model(&keys, 0, m));
        CHECK(!lm_keys_allow_model(&keys, 1, m) && !lm_keys_allow_model(&keys, 2, m));
    }
    lm_keys_name_model(&keys, LUMEN_MODELS_MAX - 1, "iris:2", "iris");
    lm_keys_name_model(&keys, 5, "wine:3", "wine");
    lm_keys_name_model(&keys, 6, "wine:4", "wine");
    lm_keys_name_model(&keys, 7, "iri", "iri");
    struct lm_keys copy;
    CHECK(lm_keys_copy(&copy, &keys) == 0);
    CHECK(lm_keys_allow_name(&copy, 0, "any", "any"));
    CHECK(lm_keys_allow_name(&copy, 1, "iris:9", "iris"));
    CHECK(lm_keys_allow_name(&copy, 1, "wine:3", "wine"));
    CHECK(!lm_keys_allow_name(&copy, 1, "wine:4", "wine"));
    CHECK(!lm_keys_allow_name(&copy, 2, "iris", "iris"));
    lm_keys_name_model(&keys, 5, "other", "other"); /* its place is another one's now */
    for (uint32_t m = 0; m < LUMEN_MODELS_MAX; m++) {
        const bool is_iris = m == LUMEN_MODELS_MAX - 1;
        CHECK_AT("model %u", m);
        CHECK(lm_keys_allow_model(&keys, 0, m) && !lm_keys_allow_model(&keys, 2, m));
        CHECK(lm_keys_allow_model(&keys, 1, m) == is_iris);
        CHECK(lm_keys_allow_model(&copy, 1, m) == (is_iris || m == 5));
    }
    lm_keys_close(&copy);
    CHECK(!lm_keys_allow_model(&keys, 0, LUMEN_MODELS_MAX));
    CHECK(!lm_keys_allow_model(&keys, 0, UINT32_MAX));
    CHECK(lm_keys_is_admin(&keys, 0) && !lm_keys_is_admin(&keys, 1));
    CHECK(lm_token_bucket_acquire(lm_keys_bucket(&keys, 0), 1000, 77));
    CHECK(lm_token_bucket_acquire(lm_keys_bucket(&keys, 1), 2, 77));
    CHECK(!lm_token_bucket_acquire(lm_keys_bucket(&keys, 1), 1, 77));
    uint64_t wait_ns = lm_token_bucket_wait_ns(lm_keys_bucket(&keys, 1), 1, 77);
    CHECK(wait_ns >= 1000000 && wait_ns <= 1000001);
    CHECK(lm_token_bucket_acquire(lm_keys_bucket(&keys, 0), 1000, 77));
    lm_token_bucket_charge(lm_keys_token_bucket(&keys, 0), UINT32_MAX, 77);
    CHECK(lm_token_bucket_wait_ns(lm_keys_token_bucket(&keys, 0), 1, 77) == 0);
    lm_token_bucket_charge(lm_keys_token_bucket(&keys, 2), 7, 77);
    wait_ns = lm_token_bucket_wait_ns(lm_keys_token_bucket(&keys, 2), 1, 77);
    CHECK(wait_ns >= 3000000 && wait_ns <= 3000001);
    CHECK(lm_token_bucket_acquire(lm_keys_bucket(&keys, 2), 1000, 77));
    lm_keys_close(&keys);
}

/* What was given may be gone after open. */
static void copied(void) {
    struct lm_keys keys;
    char name[] = "alice";
    lumen_key_config config = entry(name, "secret");
    CHECK(lm_keys_open(&keys, &config, 1, 0) == 0);
    memset(name, 'z', sizeof name);
    memset(&config, 0xff, sizeof config);
    CHECK(find(&keys, "secret") == 0);
    lm_keys_close(&keys);
}

/* ---- refusals ---- */

static void refused(const lumen_key_config *config, uint32_t count, const char *named) {
    struct lm_keys keys;
    CHECK_AT("expected '%s' in: %s", named, lm_error_last());
    int code = lm_keys_open(&keys, config, count, 0);
    CHECK_AT("expected '%s' in: %s", named, lm_error_last());
    CHECK(code == LUMEN_E_INVALID && strstr(lm_error_last(), named));
    CHECK(keys.count == 0 && !keys.entries && !keys.hashes);
    lm_keys_close(&keys);
}

static void refusals(void) {
    static lumen_key_config many[LUMEN_KEYS_MAX + 1];
    static const double rates[] = {-1, 1e-4, 1.1e9, INFINITY, NAN};
    char longest[LM_KEY_NAME_BYTES_MAX + 1] = {0};
    lumen_key_config two[] = {entry("a", "1"), entry("b", "2")};
    lumen_key_config one = two[0];
    refused(many, LUMEN_KEYS_MAX + 1, "at most 256, found 257");
    refused(NULL, 1, "NULL");
    one.name = NULL;
    refused(&one, 1, "1 to 63 bytes, found none");
    one.name = "";
    refused(&one, 1, "1 to 63 bytes, found none");
    memset(longest, 'n', LM_KEY_NAME_BYTES_MAX);
    one.name = longest;
    refused(&one, 1, "1 to 63 bytes, found more");
    one.name = "a\nb";
    refused(&one, 1, "key 0: name: byte 1 is a control character, 10");
    one.name = "ab\x7f";
    refused(&one, 1, "key 0: name: byte 2 is a control character, 127");
    two[1].name = "\x1f";
    refused(two, 2, "key 1: name: byte 0 is a control character, 31");
    two[1].name = "b";
    one = two[0];
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        one.rate = rates[r];
        one.burst = 1;
        refused(&one, 1, "key 'a': rate");
    }
    one = two[0];
    one.rate = 5;
    refused(&one, 1, "key 'a': burst");
    one.rate = LM_RATE_MIN;
    refused(&one, 1, "key 'a': burst: expected at least 1 where rate is set, found 0");
    one.rate = 0;
    one.token_rate = 1;
    refused(&one, 1, "key 'a': token_burst: expected at least 1 where token_rate is set, found 0");
    one.token_rate = 2e9;
    refused(&one, 1, "key 'a': token_rate: expected 0 or 0.001 to 1e+09, found 2e+09");
    one = two[0];
    one.flags = LUMEN_KEY_FLAGS + 1;
    refused(&one, 1, "key 'a': flags");
    two[1].name = "a";
    refused(two, 2, "two keys have this name, 0 and 1");
    two[1].name = "b";
    memcpy(two[1].sha256, two[0].sha256, sizeof two[1].sha256);
    refused(two, 2, "keys 'a' and 'b' have the same token");

    struct lm_keys keys;
    longest[LM_KEY_NAME_BYTES_MAX - 1] = '\0';
    one = two[0];
    one.name = longest;
    CHECK(lm_keys_open(&keys, &one, 1, 0) == 0);
    lm_keys_close(&keys);
    CHECK(lm_keys_open(&keys, NULL, 0, 0) == 0 && find(&keys, "x") == LM_KEY_NONE);
    lm_keys_close(&keys);
}

/* ---- where tokens are found ---- */

typedef struct lm_token (*reader)(const char *, size_t);

/* `token` NULL: there is none. */
static void read_as(reader read, const char *value, const char *token) {
    size_t bytes = strlen(value);
    const char *at = (const char *)at_the_edge(value, bytes);
    struct lm_token found = read(at, bytes);
    CHECK_AT("'%s'", value);
    CHECK((found.bytes > 0) == (token != NULL));
    if (!token) return;
    CHECK(found.bytes == strlen(token) && memcmp(found.at, token, found.bytes) == 0);
    CHECK(found.at + found.bytes == (const uint8_t *)at + bytes); /* of the value, no copy */
}

static void headers(void) {
    char longest[7 + LM_TOKEN_BYTES_MAX + 2];
    read_as(lm_keys_bearer, "Bearer abc", "abc");
    read_as(lm_keys_bearer, "bearer abc", "abc");
    read_as(lm_keys_bearer, "BEARER a.b-c_d~e+f/g==", "a.b-c_d~e+f/g==");
    read_as(lm_keys_bearer, "Bearer !", "!");
    static const char *const none[] = {"",
                                       "B",
                                       "Bearer",
                                       "Bearer ",
                                       "Bearer  a",
                                       "Bearer a b",
                                       "Bearer a ",
                                       "Bearer\ta",
                                       " Bearer a",
                                       "Basic abc",
                                       "Bearerx abc",
                                       "Bearer a\x7f",
                                       "Bearer \xe9",
                                       "Bearer a\n",
                                       "Bear@r a",
                                       "Bearer:a"};
    for (size_t n = 0; n < sizeof none / sizeof none[0]; n++)
        read_as(lm_keys_bearer, none[n], NULL);
    memset(longest, 'x', sizeof longest);
    memcpy(longest, "Bearer ", 7);
    longest[7 + LM_TOKEN_BYTES_MAX] = '\0';
    read_as(lm_keys_bearer, longest, longest + 7);
    read_as(lm_keys_api_key, longest + 7, longest + 7);
    longest[7 + LM_TOKEN_BYTES_MAX] = 'x';
    longest[7 + LM_TOKEN_BYTES_MAX + 1] = '\0';
    read_as(lm_keys_bearer, longest, NULL);
    read_as(lm_keys_api_key, longest + 7, NULL);
    read_as(lm_keys_api_key, "abc", "abc");
    read_as(lm_keys_api_key, "", NULL);
    read_as(lm_keys_api_key, "a b", NULL);
}

/* 21 */
static void credentials(void) {
    for (size_t bytes = 0; bytes <= LM_NATIVE_CREDENTIAL_BYTES; bytes++) {
        uint8_t credential[LM_NATIVE_CREDENTIAL_BYTES] = {0};
        memset(credential, 'k', bytes);
        const uint8_t *at = at_the_edge(credential, sizeof credential);
        struct lm_token token = lm_keys_credential(at);
        CHECK_AT("a token of %zu bytes", bytes);
        CHECK(token.bytes == bytes && token.at == at);
        if (bytes < 3) continue;
        credential[bytes / 2] = 0;
        at = at_the_edge(credential, sizeof credential);
        CHECK(lm_keys_credential(at).bytes == 0);
    }
}

int main(void) {
    uint64_t random = check_seed();
    check_guard_open(&guard, 4096);
    CHECK(sodium_init() >= 0);
    known_hash();
    the_whole_hash_counts();
    every_key_is_found(&random);
    lengths();
    rights();
    copied();
    refusals();
    headers();
    credentials();
    check_guard_close(&guard);
    return check_finish("test_keys");
}
