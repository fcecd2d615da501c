/* access.c: see access.h. Control thread only. */
#include "parts/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "parts/settings.h"

/* A reload must not fill buckets that it does not change: a rate would be as many times its burst
 * as somebody reloads. Tokens taken while this looks are lost to the new table's count. */
static void carry(struct lm_token_bucket *to, const struct lm_token_bucket *from) {
    bool same = to->units_per_ns == from->units_per_ns && to->burst_units == from->burst_units &&
                to->shift == from->shift;
    if (!same) return;
    to->start_ns = from->start_ns;
    /* relaxed: the word is the bucket's whole state, and the table is published later */
    lm_store_relaxed_u64(&to->gone, lm_load_relaxed_u64(&from->gone));
}

static void copy_bucket(struct lm_token_bucket *to, const struct lm_token_bucket *from) {
    to->units_per_ns = from->units_per_ns;
    to->burst_units = from->burst_units;
    to->shift = from->shift;
    carry(to, from);
}

/* Makes room for the buckets of so many models. Returns 0 or LUMEN_E_NOMEM. */
static int hold_buckets(struct lm_access *access, uint32_t count) {
    const uint32_t before = access->model_count;
    if (count <= before) return 0;
    struct lm_token_bucket *buckets = aligned_alloc(LM_CACHE_LINE, count * sizeof *buckets);
    if (!buckets) return lm_error(LUMEN_E_NOMEM, "no memory for the rates of %u models", count);
    memset(buckets, 0, count * sizeof *buckets);
    for (uint32_t m = 0; m < before; m++) copy_bucket(&buckets[m], &access->model_buckets[m]);
    free(access->model_buckets);
    access->model_buckets = buckets;
    access->model_count = count;
    return 0;
}

static int copy_buckets(struct lm_access *to, const struct lm_access *from) {
    int code = hold_buckets(to, from->model_count);
    for (uint32_t m = 0; !code && m < from->model_count; m++)
        copy_bucket(&to->model_buckets[m], &from->model_buckets[m]);
    return code;
}

static void carry_keys(struct lm_keys *to, const struct lm_keys *from) {
    for (uint32_t t = 0; t < to->count; t++) {
        for (uint32_t f = 0; f < from->count; f++) {
            if (strcmp(to->entries[t].name, from->entries[f].name) != 0) continue;
            carry(&to->entries[t].bucket, &from->entries[f].bucket);
            carry(&to->entries[t].token_bucket, &from->entries[f].token_bucket);
        }
    }
}

int lm_access_open(struct lm_access **access_out, const lumen_config *config,
                   const struct lm_access *before, uint64_t now_ns) {
    *access_out = NULL;
    struct lm_access *access =
        aligned_alloc(LM_CACHE_LINE, lm_align_up(sizeof *access, LM_CACHE_LINE));
    if (!access) return lm_error(LUMEN_E_NOMEM, "no memory for keys and rates");
    memset(access, 0, sizeof *access);
    int code = lm_keys_open(&access->keys, config->keys, config->key_count, now_ns);
    if (code) {
        lm_access_close(access);
        return code;
    }
    lm_http_hosts_set(&access->hosts, config->hosts, config->host_count);
    lm_token_bucket_init(&access->bucket, config->rate, config->burst, now_ns);
    if (before) {
        access->traffic = before->traffic;
        carry(&access->bucket, &before->bucket);
        carry_keys(&access->keys, &before->keys);
        code = copy_buckets(access, before);
    }
    if (code)
        lm_access_close(access);
    else
        *access_out = access;
    return code;
}

int lm_access_copy(struct lm_access **access_out, const struct lm_access *before) {
    struct lm_access *access =
        aligned_alloc(LM_CACHE_LINE, lm_align_up(sizeof *access, LM_CACHE_LINE));
    struct lm_keys keys = {0};
    *access_out = access;
    if (!access || lm_keys_copy(&keys, &before->keys)) {
        free(access);
        *access_out = NULL;
        return lm_error(LUMEN_E_NOMEM, "no memory for keys and rates");
    }
    memset(access, 0, sizeof *access);
    access->keys = keys;
    access->hosts = before->hosts;
    access->traffic = before->traffic;
    copy_bucket(&access->bucket, &before->bucket);
    for (uint32_t k = 0; k < keys.count; k++) {
        copy_bucket(&keys.entries[k].bucket, &before->keys.entries[k].bucket);
        copy_bucket(&keys.entries[k].token_bucket, &before->keys.entries[k].token_bucket);
    }
    int code = copy_buckets(access, before);
    if (code) {
        lm_access_close(access);
        *access_out = NULL;
    }
    return code;
}

int lm_access_set_model(struct lm_access *access, uint32_t model, const lumen_model_config *config,
                        const struct lm_access *before, uint64_t now_ns) {
    char name[LM_NAME_BYTES_MAX + 16];
    snprintf(name, sizeof name, "model '%s': rate", config->name);
    int code = lm_setting_rate(name, config->rate, config->burst);
    if (!code) code = hold_buckets(access, model + 1);
    if (code) return code;
    lm_token_bucket_init(&access->model_buckets[model], config->rate, config->burst, now_ns);
    const struct lm_token_bucket *old = before ? lm_access_bucket(before, model) : NULL;
    if (old) carry(&access->model_buckets[model], old);
    return 0;
}

void lm_access_find_budgets(struct lm_access *access, const struct lm_budgets *budgets) {
    for (uint32_t k = 0; k < access->keys.count; k++) {
        struct lm_key *key = &access->keys.entries[k];
        lm_store_relaxed_u32(&key->budget, /* relaxed: the entry is in B1's memory */
                             lm_budgets_find(budgets, LUMEN_BUDGET_OF_KEY, key->name));
    }
}

void lm_access_close(struct lm_access *access) {
    if (!access) return;
    lm_keys_close(&access->keys);
    free(access->model_buckets);
    free(access);
}
