/* entities.c: see entities.h. */
#include "text/entities.h"

#include <math.h>

#include "lumen.h"

static void make_softmax(float *scores, uint32_t count) {
    float most = scores[0], sum = 0;
    for (uint32_t i = 1; i < count; i++) most = scores[i] > most ? scores[i] : most;
    for (uint32_t i = 0; i < count; i++) sum += scores[i] = expf(scores[i] - most);
    for (uint32_t i = 0; i < count; i++) scores[i] /= sum;
}

static uint32_t find_best(const float *scores, uint32_t count) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++) best = scores[i] > scores[best] ? i : best;
    return best;
}

/* The scores of a word's tokens become one row, the first one's. */
static void decide(float *scores, uint32_t tokens, uint32_t labels, uint32_t strategy) {
    uint32_t chosen = 0;
    for (uint32_t t = 1; strategy == LUMEN_AGGREGATE_MAX && t < tokens; t++) {
        const float *row = scores + (size_t)t * labels, *best = scores + (size_t)chosen * labels;
        if (row[find_best(row, labels)] > best[find_best(best, labels)]) chosen = t;
    }
    for (uint32_t l = 0; l < labels; l++) {
        float sum = 0;
        for (uint32_t t = 0; t < tokens; t++) sum += scores[(size_t)t * labels + l];
        scores[l] = strategy == LUMEN_AGGREGATE_AVERAGE ? sum / (float)tokens
                                                        : scores[(size_t)chosen * labels + l];
    }
}

/* Tokens, or words, each with its best label. */
static uint32_t choose(uint32_t label_count, uint32_t strategy,
                       const struct lm_entity_token *tokens, uint32_t count, float *scores,
                       struct lm_entity *entities) {
    const bool by_word = strategy >= LUMEN_AGGREGATE_FIRST;
    uint32_t found = 0;
    for (uint32_t t = 0, end; t < count; t = end) {
        float *row = scores + (size_t)t * label_count;
        end = t + 1;
        while (by_word && end < count && tokens[end].goes_on) end++;
        if (by_word) decide(row, end - t, label_count, strategy);
        const uint32_t best = find_best(row, label_count);
        entities[found++] = (struct lm_entity){
            best, tokens[t].index, row[best], {tokens[t].place.from, tokens[end - 1].place.to}};
    }
    return found;
}

/* Neighbours of one tag become one entity, with the mean of their scores. */
static uint32_t group(const struct lm_entity_label *labels, uint32_t count,
                      struct lm_entity *entities) {
    uint32_t groups = 0;
    for (uint32_t e = 0, end; e < count; e = end) {
        struct lm_entity whole = entities[e];
        const uint32_t tag = labels[whole.label].tag;
        end = e + 1;
        for (; end < count; end++) {
            const struct lm_entity_label *label = &labels[entities[end].label];
            if (label->tag != tag || label->begins) break;
            whole.score += entities[end].score;
            whole.place.to = entities[end].place.to;
        }
        whole.score /= (float)(end - e);
        entities[groups++] = whole;
    }
    return groups;
}

uint32_t lm_entities_find(const struct lm_entity_label *labels, uint32_t label_count,
                          uint32_t strategy, const struct lm_entity_token *tokens, uint32_t count,
                          float *scores, struct lm_entity *entities) {
    uint32_t kept = 0;
    for (uint32_t t = 0; t < count; t++)
        make_softmax(scores + (size_t)t * label_count, label_count);
    uint32_t found = choose(label_count, strategy, tokens, count, scores, entities);
    if (strategy != LUMEN_AGGREGATE_NONE) found = group(labels, found, entities);
    for (uint32_t e = 0; e < found; e++)
        if (!labels[entities[e].label].is_none) entities[kept++] = entities[e];
    return kept;
}
