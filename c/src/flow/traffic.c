/* traffic.c: see traffic.h. */
#include "flow/traffic.h"

#include "models/runner.h"

const struct lm_model *lm_traffic_choose(struct lm_io *io, const struct lm_model_set *set,
                                         const struct lm_model *model, uint16_t session) {
    const struct lm_traffic *traffic = &io->access->traffic;
    if (traffic->count == 0 || lm_runner_of(model)->keeps_state) return model;
    const struct lm_traffic_rule *rule = lm_traffic_find(traffic, model->base);
    const struct lm_model *served[LUMEN_TRAFFIC_VERSIONS_MAX];
    uint32_t bits = 0;
    if (!rule) return model;
    for (uint32_t v = 0; v < rule->count; v++) {
        served[v] = lm_model_set_version(set, rule->base, rule->versions[v]);
        bits |= (uint32_t)(served[v] != NULL) << v;
    }
    const bool stays = rule->is_sticky && session;
    const uint32_t at =
        stays ? lm_traffic_at_session(session) : lm_traffic_turn(io->traffic_turn++);
    const uint32_t picked = lm_traffic_pick(rule, bits, at);
    return picked < rule->count ? served[picked] : model;
}
