/* traffic.h: which version of a model answers requests that name none: as the weights of its
 * versions say. Part of the table that a reload replaces (access.h); read by I/O threads.
 */
#ifndef LM_PARTS_TRAFFIC_H
#define LM_PARTS_TRAFFIC_H

#include <stdbool.h>

#include "base/limits.h"
#include "lumen_traffic.h"

struct lm_traffic_rule {
    char base[LM_NAME_BYTES_MAX];
    uint32_t count;
    uint32_t versions[LUMEN_TRAFFIC_VERSIONS_MAX];
    uint32_t weights[LUMEN_TRAFFIC_VERSIONS_MAX];
    bool is_sticky;
    uint32_t shadow, shadow_percent; /* 0: there is none */
};

struct lm_traffic {
    uint32_t count;
    struct lm_traffic_rule rules[LUMEN_TRAFFIC_MAX];
};

/* Control thread. Returns 0 or LUMEN_E_INVALID. */
int lm_traffic_set(struct lm_traffic *traffic, const lumen_traffic *rules, uint32_t count);
/* NULL: there is none. */
const struct lm_traffic_rule *lm_traffic_find(const struct lm_traffic *traffic, const char *base);
/* One of the versions of which `served` has a bit, by weight; `at` says where between 0 and 2^32.
 * Returns its place in the rule; `count`: none has a weight. */
uint32_t lm_traffic_pick(const struct lm_traffic_rule *rule, uint32_t served, uint32_t at);

/* Where the n-th request stands, so that of any few in a row each version has its share (a Weyl
 * sequence with the golden ratio). */
static inline uint32_t lm_traffic_turn(uint32_t n) {
    return n * 2654435769u;
}
/* Whether the n-th request is one of so many in a hundred: of each version's, since the sequence
 * has a ratio of its own (the square root of 2). */
static inline bool lm_traffic_is_of(uint32_t percent, uint32_t n) {
    return (uint64_t)(n * 1779033703u) * 100 >> 32 < percent;
}
/* Where all requests of a session stand: 1 to 2^16 - 1; 0: there is no session. */
uint16_t lm_traffic_session(const char *text, size_t bytes);
static inline uint32_t lm_traffic_at_session(uint16_t session) {
    return (uint32_t)session << 16;
}

#endif
