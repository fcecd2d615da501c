/* clusters.c: see clusters.h. */
#include "text/clusters.h"

bool lm_cluster_joins(const struct lm_text_held *held, uint32_t entry) {
    const uint32_t before = held->before, now = entry & LM_CLUSTER_CLASS;
    if (before == LM_CLUSTER_CR && now == LM_CLUSTER_LF) return true;
    if ((before >= LM_CLUSTER_CR && before <= LM_CLUSTER_CONTROL) ||
        (now >= LM_CLUSTER_CR && now <= LM_CLUSTER_CONTROL))
        return false;
    if ((now >= LM_CLUSTER_EXTEND && now <= LM_CLUSTER_SPACING) || before == LM_CLUSTER_PREPEND)
        return true;
    if (before == LM_CLUSTER_L)
        return now == LM_CLUSTER_L || now == LM_CLUSTER_V || now == LM_CLUSTER_LV ||
               now == LM_CLUSTER_LVT;
    if (before == LM_CLUSTER_LV || before == LM_CLUSTER_V)
        return now == LM_CLUSTER_V || now == LM_CLUSTER_T;
    if (before == LM_CLUSTER_LVT || before == LM_CLUSTER_T) return now == LM_CLUSTER_T;
    return (held->linked && entry & LM_CLUSTER_CONSONANT) ||
           (held->picture == 2 && entry & LM_CLUSTER_PICTURE);
}

void lm_cluster_look(struct lm_text_held *held, uint32_t entry) {
    const uint32_t now = entry & LM_CLUSTER_CLASS;
    held->before = (uint8_t)now;
    if (entry & LM_CLUSTER_PICTURE)
        held->picture = 1;
    else if (held->picture != 1 || (now != LM_CLUSTER_EXTEND && now != LM_CLUSTER_JOINER))
        held->picture = 0;
    else
        held->picture = now == LM_CLUSTER_JOINER ? 2 : 1;
    if (entry & LM_CLUSTER_CONSONANT) {
        held->consonant = true;
        held->linked = false;
    } else if (entry & LM_CLUSTER_LINKER) {
        held->linked = held->consonant;
    } else if (!(entry & LM_CLUSTER_BETWEEN)) {
        held->consonant = held->linked = false;
    }
}

uint32_t lm_cluster_group(const struct lm_tokenizer *tokenizer, const struct lm_text_held *held,
                          uint32_t count) {
    uint32_t low = 0, high = tokenizer->header->groups.count, first = held->chars[0].point;
    while (low < high) { /* the first group of those that begin so */
        const uint32_t middle = low + (high - low) / 2;
        if (tokenizer->groups[middle].chars[0] < first)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < tokenizer->header->groups.count; low++) {
        const struct lm_text_group *group = &tokenizer->groups[low];
        if (group->chars[0] != first) return 0;
        if (group->chars[1] == held->chars[1].point &&
            (group->chars[2] == 0 || (count > 2 && group->chars[2] == held->chars[2].point)))
            return group->to;
    }
    return 0;
}
