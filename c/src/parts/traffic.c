/* traffic.c: see traffic.h. */
#include "parts/traffic.h"

#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "parts/settings.h"

static int check(const lumen_traffic *rule) {
    const size_t name = strnlen(rule->name, LM_NAME_BYTES_MAX);
    uint64_t sum = 0;
    if (name == 0 || name == LM_NAME_BYTES_MAX)
        return lm_error(LUMEN_E_INVALID, "traffic: expected a model's name of 1 to %d bytes",
                        LM_NAME_BYTES_MAX - 1);
    int code = lm_setting_in_range("traffic: versions", rule->count, 1, LUMEN_TRAFFIC_VERSIONS_MAX);
    for (uint32_t v = 0; !code && v < rule->count; v++) {
        code = lm_setting_in_range("traffic: weight", rule->weights[v], 0, LUMEN_WEIGHT_MAX);
        sum += rule->weights[v];
    }
    if (!code && rule->shadow)
        code = lm_setting_in_range("traffic: shadow_percent", rule->shadow_percent, 1, 100);
    if (!code && sum == 0)
        code = lm_error(LUMEN_E_INVALID, "traffic: expected a weight above 0 for model '%s'",
                        rule->name);
    return code;
}

int lm_traffic_set(struct lm_traffic *traffic, const lumen_traffic *rules, uint32_t count) {
    int code = lm_setting_in_range("traffic: models", count, 0, LUMEN_TRAFFIC_MAX);
    for (uint32_t r = 0; !code && r < count; r++) code = check(&rules[r]);
    if (code) return code;
    memset(traffic, 0, sizeof *traffic);
    for (uint32_t r = 0; r < count; r++) {
        struct lm_traffic_rule *rule = &traffic->rules[traffic->count++];
        memcpy(rule->base, rules[r].name, strlen(rules[r].name) + 1);
        rule->count = rules[r].count;
        rule->is_sticky = rules[r].sticky != 0;
        rule->shadow = rules[r].shadow;
        rule->shadow_percent = rules[r].shadow_percent;
        memcpy(rule->versions, rules[r].versions, sizeof rule->versions);
        memcpy(rule->weights, rules[r].weights, sizeof rule->weights);
    }
    return 0;
}

const struct lm_traffic_rule *lm_traffic_find(const struct lm_traffic *traffic, const char *base) {
    for (uint32_t r = 0; r < traffic->count; r++) {
        if (strcmp(traffic->rules[r].base, base) == 0) return &traffic->rules[r];
    }
    return NULL;
}

uint32_t lm_traffic_pick(const struct lm_traffic_rule *rule, uint32_t served, uint32_t at) {
    uint64_t sum = 0, below = 0;
    for (uint32_t v = 0; v < rule->count; v++)
        if (served >> v & 1) sum += rule->weights[v];
    const uint64_t place = sum * at >> 32;
    for (uint32_t v = 0; v < rule->count; v++) {
        if (!(served >> v & 1)) continue;
        below += rule->weights[v];
        if (place < below) return v;
    }
    return rule->count;
}

uint16_t lm_traffic_session(const char *text, size_t bytes) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    if (bytes == 0) return 0;
    for (size_t b = 0; b < bytes; b++) hash = (hash ^ (uint8_t)text[b]) * 16777619u;
    hash = (hash ^ hash >> 15) * 2246822519u; /* its high bits depend on all bytes */
    return hash >> 16 ? (uint16_t)(hash >> 16) : 1;
}
