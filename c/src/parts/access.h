/* access.h: who may ask, how often, and which versions answer: keys, host names, rates, weights.
 * One table of it is in force.
 *
 * Made by the control thread, then never changed but for the buckets, which every I/O thread takes
 * from. A reload puts another table in its place (flow/reload.c). */
#ifndef LM_PARTS_ACCESS_H
#define LM_PARTS_ACCESS_H

#include "parts/budgets.h"
#include "parts/keys.h"
#include "parts/token_bucket.h"
#include "parts/traffic.h"
#include "wire/http_site.h"

struct lm_access {
    struct lm_token_bucket bucket;         /* all requests together */
    struct lm_token_bucket *model_buckets; /* by index, as far as there are any */
    uint32_t model_count;
    struct lm_keys keys;
    struct lm_http_hosts hosts;
    struct lm_traffic traffic;
    uint64_t retired_at;       /* once it is replaced: the turn after which nobody uses it */
    struct lm_access *retired; /* the table that was replaced before it */
};

/* From the keys, hosts and rate of `config`. A bucket whose rate and burst are those of `before`
 * (of the server, or of the key of that name) goes on as it is, and so do the models' and the
 * traffic; `before` may be NULL. Returns 0 or LUMEN_E_*. */
int lm_access_open(struct lm_access **access_out, const lumen_config *config,
                   const struct lm_access *before, uint64_t now_ns);
/* The same for a model's rate, which is checked here. Before the table is in force. */
int lm_access_set_model(struct lm_access *access, uint32_t model, const lumen_model_config *config,
                        const struct lm_access *before, uint64_t now_ns);
/* The table `before` once more, for a change of one model's rate. Returns 0 or LUMEN_E_NOMEM. */
int lm_access_copy(struct lm_access **access_out, const struct lm_access *before);
/* Any thread: of a model's requests; NULL: they have no bound. */
static inline struct lm_token_bucket *lm_access_bucket(const struct lm_access *access,
                                                       uint32_t model) {
    return model < access->model_count ? &access->model_buckets[model] : NULL;
}
/* Whose budget each key has. */
void lm_access_find_budgets(struct lm_access *access, const struct lm_budgets *budgets);
/* NULL is allowed. */
void lm_access_close(struct lm_access *access);

#endif
